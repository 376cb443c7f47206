"""All that a session's entries add up to: its view, turns, requests, open tools and transcript.

The live runtime applies each entry as it makes it; recovery applies the same entries read back
from the log. There is no second way to arrive at a state, so what a restart finds is what was
there. Entries are applied in the order of their ``seq``; nothing here raises on what an agent
sent.

Knows no time, no files and no HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bridge.protocol import view as views
from bridge.protocol.acp import UpdatePeek, loads, peek_update
from bridge.protocol.transcript import TranscriptFold
from bridge.protocol.turns import Turn

_OPEN_STATUSES: Final = frozenset({"pending", "in_progress"})
_TURN_EVENTS: Final = frozenset({"bridge/turn_queued", "bridge/turn_started", "bridge/turn_ended"})
_MESSAGE_ENDERS: Final = frozenset({"agent_thought_chunk", "tool_call", "plan"})
_LAST_CHUNK_CHARS: Final = 4096
"""As much of the last chunk is kept: what agents say of their failures stands at its start."""


@dataclass(frozen=True, slots=True)
class Page:
    """A finished stretch of the transcript: one turn, or what came between two."""

    turn_id: str | None
    first_seq: int
    last_seq: int
    items: list[dict[str, Any]]


class Applied(msgspec.Struct, frozen=True):
    """One entry on its way into the projection; ``parsed`` spares decoding ``params`` again.

    A struct and not a dataclass because one is made for every line of the hot path.
    """

    seq: int
    time: str
    type: str
    params: bytes
    turn_id: str | None = None
    request_id: str | None = None
    is_replay: bool = False
    subagent: str | None = None
    parsed: Any = None
    peek: UpdatePeek | None = None


class Projection:
    """The state of one session, folded from its entries."""

    def __init__(self, view: views.View | None = None) -> None:
        self.view: views.View = dict(view or {})
        self.turn: Turn | None = None
        self.queue: list[Turn] = []
        self.open_tools: dict[str, str] = {}
        self.known_tools: set[str] = set()
        self.pages: list[Page] = []
        self.ended: list[Turn] = []
        self.requests: dict[str, dict[str, Any]] = {}
        self.changed_requests: dict[str, dict[str, Any]] = {}
        self.last_chunk = ""
        self.has_run_tools = False
        self.has_heard = False
        self.last_cancelled: list[Any] | None = None
        self._prompt: list[Any] | None = None
        self._transcript = TranscriptFold(todos=self.view.get("todos"))
        self._stretch_turn: str | None = None
        self._stretch_first = 0
        self._stretch_last = 0

    @classmethod
    def resume(cls, view: views.View) -> Projection:
        """Continue from a stored view: what was open in it is open again."""
        projection = cls(view)
        if isinstance(shown := view.get("turn"), dict):
            projection.turn = Turn.from_json(shown)
        projection.requests = {each["requestId"]: each for each in view.get("pendingRequests", [])}
        return projection

    def turn_of(self, turn_id: str) -> Turn | None:
        """A turn that is open, or the last one."""
        if self.turn is not None and self.turn.turn_id == turn_id:
            return self.turn
        return next((each for each in self.queue if each.turn_id == turn_id), None)

    def open_items(self) -> list[dict[str, Any]]:
        """The transcript's items since its last finished page."""
        return self._transcript.items()

    def open_page(self) -> Page | None:
        """The stretch that is still being written, if it has begun."""
        if not self._stretch_first:
            return None
        return Page(
            self._stretch_turn, self._stretch_first, self._stretch_last, self._transcript.items()
        )

    def known_tool(self, tool_call_id: str) -> dict[str, Any] | None:
        """What the open stretch knows of a tool call."""
        return self._transcript.tool(self._stretch_turn, tool_call_id)

    def forget_words(self) -> None:
        """What was heard so far says nothing of how this try ends."""
        self.last_chunk = ""
        self.has_heard = False

    def close_stretch(self) -> None:
        """Finish the open page (a turn ended, the session is hibernated)."""
        if self._stretch_first and (items := self._transcript.cut()):
            self.pages.append(
                Page(self._stretch_turn, self._stretch_first, self._stretch_last, items)
            )
        self._transcript = TranscriptFold(todos=self.view.get("todos"))
        self._stretch_first = self._stretch_last = 0
        self._stretch_turn = None

    def apply(self, entry: Applied) -> views.View:
        """Fold one entry; returns what it implies that only ``bridge/session`` can say."""
        if entry.type == "session/update":
            peek = entry.peek or peek_update(entry.params)
            self._extend(entry, peek)
            return self._apply_update(entry, peek)
        parsed = loads(entry.params) if entry.parsed is None else entry.parsed
        if entry.type == "bridge/turn_started":
            self.close_stretch()
            self._stretch_turn = entry.turn_id
        self._extend(entry, None)
        self._apply_other(entry, parsed)
        return {}

    def touch(self, time: str) -> None:
        """The time of the last entry is the session's ``updatedAt``."""
        self.view["updatedAt"] = time

    def _extend(self, entry: Applied, peek: UpdatePeek | None) -> None:
        if not self._stretch_first:
            self._stretch_first = entry.seq
        self._stretch_last = entry.seq
        self._transcript.apply(
            seq=entry.seq,
            turn_id=entry.turn_id,
            type=entry.type,
            params=entry.params,
            request_id=entry.request_id,
            is_replay=entry.is_replay,
            subagent=entry.subagent,
            peek=peek,
        )

    def _apply_update(self, entry: Applied, peek: UpdatePeek) -> views.View:
        kind = peek.kind
        self.has_heard = True
        if kind == "agent_message_chunk":
            self._add_text(entry, peek)
            return {}
        is_tool = kind in ("tool_call", "tool_call_update")
        if entry.subagent is not None:
            if is_tool:
                self._follow_tool(entry, peek)
            return {}
        if not entry.is_replay:
            self._follow_message(kind, peek)
        if is_tool:
            self._follow_tool(entry, peek)
            return {} if entry.is_replay else self._todos_of_tool(peek, entry.params)
        if kind not in views.FOLDED_UPDATES:
            return {}
        conveyed, implied = views.fold_update(self.view, _update_of(entry.params))
        self.view.update(conveyed)
        return implied

    def _add_text(self, entry: Applied, peek: UpdatePeek) -> None:
        if entry.subagent is not None or entry.is_replay or peek.text is None:
            return
        turn = self.turn
        if turn is not None and turn.turn_id == entry.turn_id:
            turn.texts.add(peek.text, peek.message_id)
            self.last_chunk = peek.text[:_LAST_CHUNK_CHARS]

    def _follow_message(self, kind: str, peek: UpdatePeek) -> None:
        is_new_tool = kind == "tool_call_update" and peek.tool_call_id not in self.known_tools
        if self.turn is not None and (kind in _MESSAGE_ENDERS or is_new_tool):
            self.turn.texts.end_message()
            # The agent has gone on by itself, so what it said before was no end of anything.
            self.last_chunk = ""

    def _follow_tool(self, entry: Applied, peek: UpdatePeek) -> None:
        """Which tools ran and are open, a subagent's too: it ends with the turn."""
        if entry.is_replay or peek.tool_call_id is None:
            return
        self.has_run_tools = True
        self.known_tools.add(peek.tool_call_id)
        status = peek.status or ("pending" if peek.kind == "tool_call" else None)
        if status in _OPEN_STATUSES:
            self.open_tools[peek.tool_call_id] = status or ""
        elif status is not None:
            self.open_tools.pop(peek.tool_call_id, None)

    def _todos_of_tool(self, peek: UpdatePeek, params: bytes) -> views.View:
        """Some builds keep todos by a tool call alone (pingdotgg/t3code#11170)."""
        if peek.tool_call_id is None or b"updateTodos" not in params:
            return {}
        raw_input = _update_of(params).get("rawInput")
        if not isinstance(raw_input, dict) or raw_input.get("_toolName") != "updateTodos":
            return {}
        return views.fold_todos(self.view, {"merge": False, **raw_input})

    def _apply_other(self, entry: Applied, parsed: Any) -> None:
        if not entry.type.startswith("bridge/"):
            # A permission, a task, an image: not every agent shows a tool call for what it does.
            self.has_heard = self.has_run_tools = True
        match entry.type:
            case "bridge/session":
                self.view.update(parsed["changed"])
            case kind if kind in _TURN_EVENTS:
                self._apply_turn(kind, parsed)
            case "bridge/request_resolved":
                shown = parsed["request"]
                self.requests.pop(shown["requestId"], None)
                self.changed_requests[shown["requestId"]] = shown
            case "bridge/tool_closed":
                self.open_tools.pop(parsed["toolCallId"], None)
            case "cursor/update_todos" | "_cursor/update_todos":
                self.view.update(views.fold_todos(self.view, parsed))
            case _:
                pass

    def _apply_turn(self, kind: str, parsed: dict[str, Any]) -> None:
        turn = self._synced(parsed["turn"])
        if kind == "bridge/turn_queued":
            self.queue.append(turn)
            return
        self.queue = [each for each in self.queue if each.turn_id != turn.turn_id]
        if kind == "bridge/turn_started":
            self.turn = turn
            self.open_tools.clear()
            self.known_tools.clear()
            self.has_run_tools = False
            self.forget_words()
            self._prompt = parsed.get("prompt")
            return
        self.ended.append(turn)
        if self.turn is not None and self.turn.turn_id == turn.turn_id:
            self.last_cancelled = self._prompt if turn.status == "cancelled" else None
            self.turn = turn
        elif self.turn is None or self.turn.has_ended:
            self.turn = turn
        if turn.turn_id == self._stretch_turn:
            self.close_stretch()

    def _synced(self, shown: dict[str, Any]) -> Turn:
        known = self.turn_of(shown["turnId"])
        fresh = Turn.from_json(shown)
        if known is not None:
            fresh.texts = known.texts
        return fresh


def _update_of(params: bytes) -> dict[str, Any]:
    try:
        parsed = loads(params)
    except ValueError:
        return {}
    update = parsed.get("update") if isinstance(parsed, dict) else None
    return update if isinstance(update, dict) else {}
