"""What a turn leaves behind, and how it is told again by session/load.

Rules: text is coalesced, one chunk for what were many of the same kind in a row; tool calls come
once, as they ended, under new ids ``replay-<turn>-<n>`` (Hezaerd/noyau#64). The last updates of a
replay belong after the answer to session/load (Emanuele-web04/synara#811).
"""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

Update = dict[str, Any]


class Record:
    """Gathers one turn's items: ``{kind: message|thought, text}`` and ``{kind: tool, call}``."""

    def __init__(self) -> None:
        self._items: list[dict[str, Any]] = []
        self._text = StringIO()
        self._kind: str | None = None

    def add_text(self, kind: str, text: str) -> None:
        """``kind`` is ``message`` or ``thought``."""
        if kind != self._kind:
            self._close()
            self._kind = kind
        self._text.write(text)

    def add_tool(self, call: dict[str, Any]) -> None:
        """``call`` may change until :meth:`items` is read."""
        self._close()
        self._items.append({"kind": "tool", "call": call})

    def items(self) -> list[dict[str, Any]]:
        """Everything so far."""
        self._close()
        return self._items

    def _close(self) -> None:
        if self._kind is not None:
            self._items.append({"kind": self._kind, "text": self._text.getvalue()})
            self._text = StringIO()
            self._kind = None


def replayed(turns: list[dict[str, Any]]) -> tuple[list[Update], list[Update]]:
    """The updates that come before the answer, and the one or two that come after it."""
    updates = [each for number, turn in enumerate(turns, 1) for each in _told(number, turn)]
    late = min(2, len(updates) // 2)
    split = len(updates) - late
    return updates[:split], updates[split:]


def _told(number: int, turn: dict[str, Any]) -> Iterator[Update]:
    for block in turn["prompt"]:
        yield {"sessionUpdate": "user_message_chunk", "content": block}
    tools = 0
    for item in turn["items"]:
        match item:
            case {"kind": "message" | "thought" as kind, "text": str(text)}:
                content = {"type": "text", "text": text}
                yield {"sessionUpdate": f"agent_{kind}_chunk", "content": content}
            case {"kind": "tool", "call": dict(call)}:
                tools += 1
                call_id = f"replay-{number}-{tools}"
                yield {"sessionUpdate": "tool_call", **call, "toolCallId": call_id}
