"""One item of the transcript: how it grows, how it is bounded, how it is shown.

An item can be shown at any time and taken up again from what was shown; from there on it grows
exactly as it would have. So its whole state is in the shown form, bounds included: a text is cut
at 1 MiB (UTF-8), a raw value over 256 KiB is left out, and ``truncated`` says so for good.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from bridge.protocol.acp import dumps
from bridge.protocol.turns import TEXT_LIMIT_BYTES

RAW_LIMIT_BYTES: Final = 256 * 1024
MAX_PIECES: Final = 1000
_STUB_TEXT: Final = 1024

_OPEN_STATUSES: Final = frozenset({"pending", "in_progress"})
TOOL_MEMBERS: Final = (
    "toolCallId",
    "title",
    "kind",
    "status",
    "content",
    "locations",
    "rawInput",
    "rawOutput",
)
_TEXT_TYPES: Final = frozenset({"user", "message", "thought"})


class Item:
    """A growing item; values inside ``data`` are replaced, never changed in place."""

    __slots__ = ("_parts", "_used_bytes", "data")

    def __init__(self, data: dict[str, Any], text: str = "") -> None:
        self.data = data
        self._parts = [text] if text else []
        self._used_bytes = _size_of(text)

    def __repr__(self) -> str:
        return f"<Item {self.data['itemId']} open={self.is_open}>"

    @classmethod
    def from_shown(cls, shown: dict[str, Any]) -> Item:
        """The item that :meth:`shown` was called on."""
        data = dict(shown)
        text = data.pop("text") if data["type"] in _TEXT_TYPES else ""
        return cls(data, text)

    @property
    def is_open(self) -> bool:
        """Whether later entries may still change it."""
        return bool(self.data["open"])

    def shown(self) -> dict[str, Any]:
        """The item as JSON; the text is joined once, however often it is asked for."""
        if self.data["type"] not in _TEXT_TYPES:
            return dict(self.data)
        self._parts = ["".join(self._parts)]
        return self.data | {"text": self._parts[0]}

    def touch(self, seq: int, **changed: Any) -> None:
        """An entry changed it."""
        self.data.update(changed)
        self.data["lastSeq"] = seq

    def close(self) -> None:
        """Nothing will change it any more."""
        self.data["open"] = False

    def add_text(self, text: str) -> None:
        """Append to the text, up to the limit; what follows a cut is left out altogether."""
        room = TEXT_LIMIT_BYTES - self._used_bytes
        if room <= 0 or "truncated" in self.data:
            self.data["truncated"] = True
            return
        # Of a huge chunk nobody needs a copy; a character takes a byte at least.
        text = text[: room + 1]
        size = _size_of(text)
        if size > room:
            text = text.encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore")
            self.data["truncated"] = True
        self._parts.append(text)
        self._used_bytes += size

    def add_block(self, block: dict[str, Any]) -> None:
        """Append a content block that is no text (an image, a link)."""
        self.set_pieces("content", [*self.data.get("content", ()), block], is_small=False)

    def set_raw(self, name: str, value: Any, *, is_small: bool) -> None:
        """Set a member to what the agent sent, or to null where that is too large.

        ``is_small`` spares measuring what came in an entry that is smaller than the limit.
        """
        if not is_small and _json_size(value) > RAW_LIMIT_BYTES:
            value = None
            self.data["truncated"] = True
        self.data[name] = value

    def set_pieces(self, name: str, pieces: Iterable[Any], *, is_small: bool) -> None:
        """Set a member to a list of objects; those beyond the limits become stubs, or go."""
        kept = [piece for piece in pieces if isinstance(piece, dict)]
        bounded = kept[:MAX_PIECES] if is_small else _bounded(kept[:MAX_PIECES])
        if bounded != kept:
            self.data["truncated"] = True
        self.data[name] = bounded


def new_item(
    kind: str, seq: int, turn_id: str | None, /, *, is_open: bool = True, **members: Any
) -> Item:
    """An item that begins with the entry ``seq``; its id follows from that and its type."""
    return Item(
        {
            "itemId": f"{kind}-{seq}",
            "type": kind,
            "turnId": turn_id,
            "firstSeq": seq,
            "lastSeq": seq,
            "open": is_open,
            **members,
        }
    )


def fill_tool(item: Item, update: dict[str, Any], *, is_small: bool) -> None:
    """Merge an update into a tool's item; null, absent and misshapen members change nothing."""
    for name in ("title", "kind", "status"):
        if isinstance(text := update.get(name), str):
            item.set_raw(name, text, is_small=is_small)
    for name in ("content", "locations"):
        if isinstance(pieces := update.get(name), list):
            item.set_pieces(name, pieces, is_small=is_small)
    for name in ("rawInput", "rawOutput"):
        if (value := update.get(name)) is not None:
            item.set_raw(name, value, is_small=is_small)
    status = item.data["status"]
    item.data["open"] = status is None or status in _OPEN_STATUSES


def parted(blocks: list[Any]) -> tuple[list[str], list[Any]]:
    """The texts of a prompt, and its other blocks."""
    texts, others = [], []
    for block in blocks:
        if not isinstance(block, dict) or block.get("type") != "text":
            others.append(block)
        elif isinstance(text := block.get("text"), str):
            texts.append(text)
    return texts, others


def last_rest(items: list[dict[str, Any]]) -> tuple[int, str | None]:
    """Where the stretch begins that later entries go on with, and the turn that began last."""
    start, turn_id = 0, None
    for number, item in enumerate(items):
        if item["type"] == "user" and "replay" not in item:
            start, turn_id = number, item["turnId"]
        elif item["type"] == "turn_end" and item["turnId"] == turn_id:
            start = number + 1
    return start, turn_id


def latest_todos(items: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The agent's own list as the last of these items shows it."""
    shown = [each for each in items if each["type"] == "todos" and "subagent" not in each]
    return max(shown, key=lambda each: each["lastSeq"])["todos"] if shown else None


def joins(
    data: dict[str, Any], role: str, message_id: str | None, turn_id: str | None, is_replay: bool
) -> bool:
    """Whether a chunk goes on with the text of this item."""
    return bool(
        data["type"] == role
        and data["messageId"] == message_id
        and data["turnId"] == turn_id
        and ("replay" in data) == is_replay
    )


def _size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _json_size(value: Any) -> int:
    return len(dumps(value))


def _bounded(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    used, kept = 0, []
    for piece in pieces:
        size = _json_size(piece)
        is_kept = used + size <= TEXT_LIMIT_BYTES
        used += size if is_kept else 0
        kept.append(piece if is_kept else _stub(piece))
    return kept


def _stub(piece: dict[str, Any]) -> dict[str, Any]:
    """The names in a piece (its type, path, uri), without what makes it large."""
    named = ("type", "path", "uri", "name", "mimeType")
    short = {
        name: value
        for name in named
        if isinstance(value := piece.get(name), str) and len(value) <= _STUB_TEXT
    }
    return short | {"truncated": True}
