"""The transcript: a session's entries folded to what a person reads.

One fold is one page: a turn, or the stretch between two. Rules:

* chunks join the open item of the same role and ``messageId``; a thought, a message, a tool
  call, a plan or a user item ends it; each subagent is a stream of its own;
* a tool is known by (turn, ``toolCallId``): members an update leaves out stay, others replace;
* plans and todos are one item a turn, replaced in place;
* the user's items come from ``bridge/turn_started`` and from replays; a live echo is none;
* an item's id follows from the entry that began it, and the whole state is in the items shown:
  folding later entries onto :meth:`TranscriptFold.from_items` gives exactly the later transcript.

What is unknown, or of the wrong type, changes nothing and never raises. Knows no log and no time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from bridge.protocol import todos as todo_list
from bridge.protocol.acp import UpdatePeek, peek_update
from bridge.protocol.held import decoded, kind_of, wire_method
from bridge.protocol.items import (
    RAW_LIMIT_BYTES,
    TOOL_MEMBERS,
    Item,
    fill_tool,
    joins,
    last_rest,
    latest_todos,
    new_item,
    parted,
)

MAX_ITEMS: Final = 10_000
"""Most items of one page; a page that reaches it says so and takes only the turn's end."""

_ROLES: Final = {
    "agent_message_chunk": "message",
    "agent_thought_chunk": "thought",
    "user_message_chunk": "user",
}
_AT_REST: Final = frozenset({"hibernated", "failed", "closed"})
"""Without a process nothing that is open goes on: its page is finished."""

_TURN_MEMBERS: Final = (
    "status",
    "outcome",
    "stopReason",
    "cancelledBy",
    "error",
    "suspectedError",
)


class _At(NamedTuple):
    """Where an entry stands, and whose it is."""

    seq: int
    turn_id: str | None
    request_id: str | None
    is_replay: bool
    subagent: str | None
    is_small: bool


class TranscriptFold:
    """The items of one page; ``todos`` is the session's list as the page begins."""

    def __init__(self, todos: list[dict[str, Any]] | None = None) -> None:
        self._items: list[Item] = []
        self._texts: dict[str | None, Item] = {}
        self._tools: dict[tuple[str | None, str], Item] = {}
        self._singles: dict[tuple[str, str | None, str | None], Item] = {}
        self._requests: dict[str, Item] = {}
        self._todos = todos or []
        self._turn_id: str | None = None

    def __repr__(self) -> str:
        return f"<TranscriptFold items={len(self._items)}>"

    @classmethod
    def from_items(
        cls, items: list[dict[str, Any]], todos: list[dict[str, Any]] | None = None
    ) -> TranscriptFold:
        """The fold that :meth:`items` was called on."""
        start, turn_id = last_rest(items)
        fold = cls(latest_todos(items[:start]) or todos)
        fold._turn_id = turn_id
        for number, shown in enumerate(items):
            fold._items.append(item := Item.from_shown(shown))
            if number >= start:
                fold._index(item)
        return fold

    def items(self) -> list[dict[str, Any]]:
        """All items in the order of their ``firstSeq``."""
        return [item.shown() for item in self._items]

    def cut(self) -> list[dict[str, Any]]:
        """The page is finished: close every item, hand them out and begin with nothing."""
        self._rest()
        finished, self._items = self._items, []
        return [item.shown() for item in finished]

    def _rest(self) -> None:
        """Nothing goes on from here: every item is closed, later entries begin others."""
        self._todos = self._latest_todos(None)
        for index in (self._texts, self._tools, self._singles, self._requests):
            index.clear()
        for item in self._items:
            item.close()

    def tool(self, turn_id: str | None, tool_call_id: str) -> dict[str, Any] | None:
        """What is known of a tool call, as ACP's ToolCall; ``None``: nothing."""
        item = self._tools.get((turn_id, tool_call_id))
        if item is None:
            return None
        known = {name: item.data[name] for name in TOOL_MEMBERS}
        return {name: value for name, value in known.items() if value is not None}

    def apply(
        self,
        *,
        seq: int,
        turn_id: str | None,
        type: str,  # noqa: A002 - the entry's own word for it
        params: bytes,
        request_id: str | None = None,
        is_replay: bool = False,
        subagent: str | None = None,
        peek: UpdatePeek | None = None,
    ) -> None:
        """Fold one entry; entries come in the order of their ``seq``.

        ``peek`` is ``peek_update(params)`` where it is known already; a chunk of text needs no
        more than that.
        """
        if type == "session/update":
            peek = peek or peek_update(params)
            if self._goes_on(seq, turn_id, is_replay, subagent, peek):
                return
        is_small = len(params) <= RAW_LIMIT_BYTES
        at = _At(seq, turn_id, request_id, is_replay, subagent, is_small)
        if peek is not None:
            self._apply_update(at, params, peek)
        elif handler := _HANDLERS.get(wire_method(type)):
            handler(self, at, decoded(params))
        elif request_id is not None:
            self._hold(at, type, decoded(params))

    # --- What the agent tells -----------------------------------------------------------------

    def _goes_on(
        self,
        seq: int,
        turn_id: str | None,
        is_replay: bool,
        subagent: str | None,
        peek: UpdatePeek,
    ) -> bool:
        """Whether it is one more chunk of the open text: nearly every line of a busy agent."""
        item = self._texts.get(subagent)
        role = _ROLES.get(peek.kind)
        if item is None or role is None or not peek.text:
            return False
        if not joins(item.data, role, peek.message_id, turn_id, is_replay):
            return False
        item.data["lastSeq"] = seq
        item.add_text(peek.text)
        return True

    def _apply_update(self, at: _At, params: bytes, peek: UpdatePeek) -> None:
        role = _ROLES.get(peek.kind)
        if role is not None and peek.text is not None:
            self._add_text(at, role, peek.message_id, peek.text)
        elif role is not None:
            update = _object(decoded(params).get("update"))
            self._add_block(at, role, peek.message_id, _object(update.get("content")))
        elif fold := _UPDATES.get(peek.kind):
            fold(self, at, _object(decoded(params).get("update")))

    def _add_text(self, at: _At, role: str, message_id: str | None, text: str) -> None:
        if text and (item := self._text_item(at, role, message_id)):
            item.data["lastSeq"] = at.seq
            item.add_text(text)

    def _add_block(self, at: _At, role: str, message_id: str | None, block: dict[str, Any]) -> None:
        if isinstance(block.get("type"), str) and block["type"] != "text":
            if item := self._text_item(at, role, message_id):
                item.touch(at.seq)
                item.add_block(block)

    def _text_item(self, at: _At, role: str, message_id: str | None) -> Item | None:
        """The item a chunk belongs to; ``None`` for a live echo of the prompt."""
        if role == "user" and not at.is_replay:
            return None
        item = self._texts.get(at.subagent)
        if item is not None and joins(item.data, role, message_id, at.turn_id, at.is_replay):
            return item
        self._end_text(at.subagent)
        return self._begin(at, role, messageId=message_id)

    def _end_text(self, subagent: str | None) -> None:
        if (item := self._texts.pop(subagent, None)) is not None:
            item.close()

    def _apply_tool_call(self, at: _At, update: dict[str, Any]) -> None:
        self._merge_tool(at, update, is_new=True)

    def _apply_tool_update(self, at: _At, update: dict[str, Any]) -> None:
        self._merge_tool(at, update, is_new=False)

    def _merge_tool(self, at: _At, update: dict[str, Any], *, is_new: bool) -> None:
        tool_call_id = _text(update.get("toolCallId"))
        if tool_call_id is None:
            return
        item = self._tools.get((at.turn_id, tool_call_id))
        if is_new or item is None:
            self._end_text(at.subagent)
        if item is None:
            # A call without a status is pending (ACP's default); an update says nothing of it.
            status = "pending" if is_new else None
            members: dict[str, Any] = dict.fromkeys(TOOL_MEMBERS)
            members.update(toolCallId=tool_call_id, status=status)
            item = self._begin(at, "tool", **members)
        if item is not None:
            item.touch(at.seq)
            fill_tool(item, update, is_small=at.is_small)
        raw_input = _object(update.get("rawInput"))
        if raw_input.get("_toolName") == "updateTodos":
            self._update_todos(at, {"merge": False, **raw_input})

    def _apply_plan(self, at: _At, update: dict[str, Any]) -> None:
        entries = update.get("entries")
        if not isinstance(entries, list):
            return
        self._end_text(at.subagent)
        if (item := self._single(at, "plan")) is not None:
            item.touch(at.seq)
            item.set_pieces("entries", entries, is_small=at.is_small)

    def _update_todos(self, at: _At, params: dict[str, Any]) -> None:
        if not isinstance(params.get("todos"), list):
            return
        if (item := self._single(at, "todos")) is not None:
            is_new = "todos" not in item.data
            before = self._latest_todos(at.subagent) if is_new else item.data["todos"]
            item.touch(at.seq)
            item.set_pieces("todos", todo_list.merge(before, params), is_small=False)

    def _latest_todos(self, subagent: str | None) -> list[dict[str, Any]]:
        """The list as it stands, whichever turn of the page changed it last."""
        shown = [
            item.data
            for (kind, _, stream), item in self._singles.items()
            if kind == "todos" and stream == subagent and "todos" in item.data
        ]
        if shown:
            latest: list[dict[str, Any]] = max(shown, key=lambda data: data["lastSeq"])["todos"]
            return latest
        return self._todos if subagent is None else []

    def _single(self, at: _At, kind: str) -> Item | None:
        """The one item of this kind in the turn (and of the subagent)."""
        return self._singles.get((kind, at.turn_id, at.subagent)) or self._begin(at, kind)

    def _hold(self, at: _At, method: str, params: dict[str, Any]) -> None:
        members: dict[str, Any] = {
            "requestId": at.request_id,
            "kind": kind_of(method) or "extension",
            "method": method,
            "status": "pending",
            "resolution": None,
        }
        if (item := self._begin(at, "request", **members)) is not None:
            item.set_raw("params", params, is_small=at.is_small)

    # --- What the bridge tells ----------------------------------------------------------------

    def _start_turn(self, at: _At, params: dict[str, Any]) -> None:
        self._rest()
        self._turn_id = at.turn_id
        item = self._begin(at, "user", messageId=None)
        if item is None:
            return
        prompt = params.get("prompt")
        blocks = prompt if isinstance(prompt, list) else [{"type": "text", "text": prompt}]
        texts, others = parted(blocks)
        item.add_text("\n".join(texts))
        if others:
            item.set_pieces("content", others, is_small=at.is_small)
        self._end_text(at.subagent)

    def _end_turn(self, at: _At, params: dict[str, Any]) -> None:
        turn = _object(params.get("turn"))
        turn_id = _text(turn.get("turnId")) or at.turn_id
        if turn_id == self._turn_id:
            self._rest()
        members = {name: turn.get(name) for name in _TURN_MEMBERS}
        self._begin(at._replace(turn_id=turn_id), "turn_end", is_open=False, **members)

    def _resolve(self, at: _At, params: dict[str, Any]) -> None:
        request = _object(params.get("request"))
        request_id = _text(request.get("requestId")) or at.request_id
        if request_id is None:
            return
        item = self._requests.get(request_id)
        if item is None:
            # It was asked on an earlier page: here it appears as it was settled.
            members: dict[str, Any] = {name: request.get(name) for name in ("kind", "method")}
            item = self._begin(at, "request", requestId=request_id, params=None, **members)
        if item is not None:
            settled = {name: request.get(name) for name in ("status", "resolution")}
            item.touch(at.seq, open=False, **settled)

    def _close_tool(self, at: _At, params: dict[str, Any]) -> None:
        item = self._tools.get((at.turn_id, _text(params.get("toolCallId")) or ""))
        if item is not None:
            status = _text(params.get("status")) or item.data["status"]
            item.touch(at.seq, open=False, status=status)

    def _change_session(self, at: _At, params: dict[str, Any]) -> None:
        if _object(params.get("changed")).get("status") in _AT_REST:
            self._rest()

    def _warn(self, at: _At, params: dict[str, Any]) -> None:
        self._notice(at, _text(params.get("code")), _text(params.get("detail")))

    def _tell_exit(self, at: _At, params: dict[str, Any]) -> None:
        told = {name: params.get(name) for name in ("exitCode", "signal", "stderrTail")}
        self._notice(at, "agent-exited", "The agent process ended.", **told)

    def _tell_deletion(self, at: _At, params: dict[str, Any]) -> None:
        self._notice(at, "session-deleted", "The session was deleted.")

    def _notice(self, at: _At, code: str | None, detail: str | None, **more: Any) -> None:
        self._begin(at, "notice", is_open=False, code=code, detail=detail, **more)

    # --- The page -----------------------------------------------------------------------------

    def _begin(self, at: _At, kind: str, /, *, is_open: bool = True, **members: Any) -> Item | None:
        """A new item; ``None`` where the page is full, which its last item says."""
        room = 2 if kind == "turn_end" else MAX_ITEMS - len(self._items)
        if room <= 0:
            return None
        if room == 1:
            kind, is_open = "notice", False
            members = {"code": "transcript-truncated", "detail": "This page has no more room."}
        if at.subagent is not None:
            members["subagent"] = at.subagent
        if at.is_replay:
            members["replay"] = True
        item = new_item(kind, at.seq, at.turn_id, is_open=is_open, **members)
        self._items.append(item)
        self._index(item)
        return item if room > 1 else None

    def _index(self, item: Item) -> None:
        data = item.data
        turn_id, subagent = data["turnId"], data.get("subagent")
        match data["type"]:
            case "user" | "message" | "thought":
                if item.is_open:
                    self._texts[subagent] = item
            case "tool":
                self._tools[turn_id, data["toolCallId"]] = item
            case "plan" | "todos" as kind:
                self._singles[kind, turn_id, subagent] = item
            case "request":
                self._requests[data["requestId"]] = item


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_Handler = Callable[[TranscriptFold, _At, dict[str, Any]], None]

_UPDATES: Final[dict[str, _Handler]] = {
    "tool_call": TranscriptFold._apply_tool_call,
    "tool_call_update": TranscriptFold._apply_tool_update,
    "plan": TranscriptFold._apply_plan,
}
_HANDLERS: Final[dict[str, _Handler]] = {
    "cursor/update_todos": TranscriptFold._update_todos,
    "bridge/session": TranscriptFold._change_session,
    "bridge/turn_started": TranscriptFold._start_turn,
    "bridge/turn_ended": TranscriptFold._end_turn,
    "bridge/request_resolved": TranscriptFold._resolve,
    "bridge/tool_closed": TranscriptFold._close_tool,
    "bridge/warning": TranscriptFold._warn,
    "bridge/agent_exited": TranscriptFold._tell_exit,
    "bridge/session_deleted": TranscriptFold._tell_deletion,
}
