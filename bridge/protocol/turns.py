"""A turn: its states, its texts and how it is shown.

The states are the literal table :data:`TABLE`; a missing cell is an error that names both. A turn
ends exactly once, with the agent's stop reason or with an error that says what happened.

Knows no time (the caller hands in RFC 3339 texts), no process and no HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

Status = Literal["queued", "running", "waiting", "completed", "cancelled", "failed"]
Verb = Literal["start", "wait", "go_on", "complete", "cancel", "fail"]

TABLE: Final[dict[Status, dict[Verb, Status]]] = {
    "queued": {"start": "running", "cancel": "cancelled", "fail": "failed"},
    "running": {
        "wait": "waiting",
        "complete": "completed",
        "cancel": "cancelled",
        "fail": "failed",
    },
    "waiting": {
        "go_on": "running",
        "complete": "completed",
        "cancel": "cancelled",
        "fail": "failed",
    },
    "completed": {},
    "cancelled": {},
    "failed": {},
}

_ENDED: Final = frozenset(status for status, steps in TABLE.items() if not steps)

TEXT_LIMIT_BYTES: Final = 1024 * 1024

STOP_REASONS: Final = frozenset(
    {"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}
)
"""Those of ACP (https://agentclientprotocol.com/protocol/prompt-turn#stop-reasons)."""

_LIMITS: Final = frozenset({"max_tokens", "max_turn_requests"})


class IllegalTransition(RuntimeError):
    """The runtime asked a turn for something its state does not allow: a bug of ours."""


class TurnText:
    """The agent's text in a turn: all messages, and the last one.

    A message is ended by a thought, tool call, plan or user item, or by another ``messageId``.
    Each text is cut at :data:`TEXT_LIMIT_BYTES` (UTF-8), said by ``is_truncated``.
    """

    __slots__ = ("_is_open", "_last", "_last_bytes", "_message_id", "_parts", "_total", "is_cut")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._last: list[str] = []
        self._total = 0
        self._last_bytes = 0
        self._message_id: str | None = None
        self._is_open = False
        self.is_cut = False

    def add(self, text: str, message_id: str | None) -> None:
        """One ``agent_message_chunk``."""
        if not self._is_open or message_id != self._message_id:
            self._last = []
            self._last_bytes = 0
            if self._parts:
                self._total = self._keep(self._parts, self._total, "\n\n", 2)
            self._message_id = message_id
            self._is_open = True
        # Of a huge chunk nobody needs a copy; a character takes a byte at least.
        text = text[: TEXT_LIMIT_BYTES + 1]
        size = _size_of(text)
        self._total = self._keep(self._parts, self._total, text, size)
        self._last_bytes = self._keep(self._last, self._last_bytes, text, size)

    def end_message(self) -> None:
        """Something else than text came; the next chunk begins another message."""
        self._is_open = False

    @property
    def text(self) -> str:
        """All messages, a blank line between them."""
        return "".join(self._parts)

    @property
    def final_text(self) -> str:
        """The last message."""
        return "".join(self._last)

    @property
    def is_truncated(self) -> bool:
        """Whether either text was cut."""
        return self.is_cut

    def _keep(self, parts: list[str], used: int, text: str, size: int) -> int:
        room = TEXT_LIMIT_BYTES - used
        if room <= 0:
            self.is_cut = self.is_cut or bool(text)
            return used
        if size > room:
            self.is_cut = True
            start = text[:room].encode("utf-8", "surrogatepass")
            text = start[:room].decode("utf-8", "ignore")
            parts.append(text)
            return TEXT_LIMIT_BYTES
        parts.append(text)
        return used + size


def _size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


@dataclass(slots=True)
class Turn:
    """One prompt and all that follows from it. Times are RFC 3339, positions are ``seq``."""

    turn_id: str
    session_id: str
    created_at: str
    after_seq: int
    status: Status = "queued"
    outcome: str | None = None
    stop_reason: str | None = None
    cancelled_by: Literal["caller", "agent"] | None = None
    caused_by: str | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    started_at: str | None = None
    ended_at: str | None = None
    usage: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    suspected_error: dict[str, Any] | None = None
    texts: TurnText = field(default_factory=TurnText)

    @property
    def has_ended(self) -> bool:
        """Whether nothing can follow."""
        return self.status in _ENDED

    def move(self, verb: Verb) -> None:
        """Take a step of the table; raises :class:`IllegalTransition` where there is none."""
        following = TABLE[self.status].get(verb)
        if following is None:
            raise IllegalTransition(f"a turn that is {self.status} cannot {verb}")
        self.status = following

    def as_json(self) -> dict[str, Any]:
        """The turn as events, lists and ``Session.turn`` show it: without its texts."""
        return {
            "turnId": self.turn_id,
            "sessionId": self.session_id,
            "status": self.status,
            "outcome": self.outcome,
            "stopReason": self.stop_reason,
            "cancelledBy": self.cancelled_by,
            "causedBy": self.caused_by,
            "afterSeq": self.after_seq,
            "firstSeq": self.first_seq,
            "lastSeq": self.last_seq,
            "createdAt": self.created_at,
            "startedAt": self.started_at,
            "endedAt": self.ended_at,
            "usage": self.usage,
            "result": self.result,
            "error": self.error,
            "suspectedError": self.suspected_error,
        }

    def as_full_json(self) -> dict[str, Any]:
        """The turn as its own resource shows it."""
        return self.as_json() | {
            "text": self.texts.text,
            "finalText": self.texts.final_text,
            "textTruncated": self.texts.is_truncated,
        }

    @classmethod
    def from_json(cls, shown: dict[str, Any]) -> Turn:
        """The turn an event carries; its texts begin empty."""
        return cls(
            turn_id=shown["turnId"],
            session_id=shown["sessionId"],
            created_at=shown["createdAt"],
            after_seq=shown["afterSeq"],
            status=shown["status"],
            outcome=shown["outcome"],
            stop_reason=shown["stopReason"],
            cancelled_by=shown["cancelledBy"],
            caused_by=shown["causedBy"],
            first_seq=shown["firstSeq"],
            last_seq=shown["lastSeq"],
            started_at=shown["startedAt"],
            ended_at=shown["endedAt"],
            usage=shown["usage"],
            result=shown["result"],
            error=shown["error"],
            suspected_error=shown["suspectedError"],
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a stop reason means for the turn."""

    verb: Verb
    outcome: str
    cancelled_by: Literal["caller", "agent"] | None = None


def judge(stop_reason: str, *, was_cancelled: bool, was_refused: bool) -> Verdict:
    """The end of a turn the agent ended itself.

    ``was_cancelled``: a caller asked for it, which some agents answer with ``end_turn`` all the
    same. ``was_refused``: a permission was rejected in this turn, upon which some agents end the
    turn as cancelled though nobody cancelled.
    """
    if was_cancelled:
        return Verdict("cancel", "cancelled", "caller")
    if stop_reason == "cancelled":
        return Verdict("cancel", "denied" if was_refused else "cancelled", "agent")
    if stop_reason == "refusal":
        return Verdict("complete", "refused")
    if stop_reason in _LIMITS:
        return Verdict("complete", "limit")
    return Verdict("complete", "ok")
