"""The forms a stream may ask for, derived from the stored frames by cutting lines.

The default form is the stored bytes themselves. The others drop the ``event`` line, keep only some
types or some turn's entries, or put the global id in place of the position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.clock import rfc3339
from bridge.log.entry import PARAMS, dumps, split_frames
from bridge.log.record import Record

Keep = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Form:
    """``types`` are names or prefixes ending in ``*``; ``until`` ends a stream after an entry."""

    named: bool = True
    types: tuple[str, ...] | None = None
    keep: Keep | None = None
    until: Keep | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the stored bytes can be sent as they are."""
        return self.named and self.types is None and self.keep is None and self.until is None

    def wants_type(self, kind: str) -> bool:
        """Whether entries of a type are kept."""
        if self.types is None:
            return True
        return any(
            kind.startswith(each[:-1]) if each.endswith("*") else kind == each
            for each in self.types
        )

    def may_want(self, kinds: frozenset[str]) -> bool:
        """Whether a record of such entries may hold one that is kept; none said: it may."""
        return self.types is None or not kinds or any(map(self.wants_type, kinds))


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame taken apart; ``data`` begins at ``data: `` and may be only its beginning."""

    id_line: bytes
    event_line: bytes
    data: bytes

    @property
    def kind(self) -> str:
        """The type on its event line."""
        return self.event_line[7:].decode("utf-8", "replace")


def take_apart(frame: bytes) -> Frame:
    """A frame, or as much of its beginning as holds everything before ``params``."""
    first = frame.index(b"\n")
    second = frame.index(b"\n", first + 1)
    return Frame(frame[:first], frame[first + 1 : second], frame[second + 1 :])


def render(frame: Frame, form: Form, number: int | None = None) -> bytes:
    """The frame in another form, as far as ``data`` goes; with the global id where one is given."""
    id_line = frame.id_line if number is None else b"id: %d" % number
    if form.named:
        return b"\n".join((id_line, frame.event_line, frame.data))
    return b"\n".join((id_line, frame.data))


def with_ids(record: Record) -> bytes:
    """A record's frames with the global ids in place of the positions."""
    return b"".join(
        b"id: %d%b" % (number, frame[frame.index(b"\n") :])
        for number, frame in enumerate(split_frames(record.body), record.first_id)
    )


def is_wanted(frame: Frame, form: Form) -> bool:
    """Whether the form keeps this entry."""
    return form.wants_type(frame.kind) and (form.keep is None or form.keep(frame.data))


def belongs_to(turn_id: str) -> Keep:
    """Keeps what belongs to a turn, or to the session as such."""
    own = b',"turnId":"%b"' % turn_id.encode()
    none = b',"turnId":null'

    def keep(data: bytes) -> bool:
        front = _front(data)
        return own in front or none in front

    return keep


def ends(turn_id: str) -> Keep:
    """Whether an entry is the end of a turn."""
    own = b',"turnId":"%b"' % turn_id.encode()

    def is_end(data: bytes) -> bool:
        front = _front(data)
        return own in front and b',"type":"bridge/turn_ended"' in front

    return is_end


def _front(data: bytes) -> bytes:
    """What stands before ``params``, so that nothing an agent says can pass for a member."""
    return data[: data.index(PARAMS)]


@dataclass(frozen=True, slots=True)
class Reset:
    """A ``bridge/reset`` that moves the reader to ``position``; it is in no log and has no place.

    ``data`` is its JSON. It passes every filter.
    """

    position: int
    data: bytes

    def rendered(self, form: Form) -> bytes:
        """Its frame."""
        event = b"event: bridge/reset\n" if form.named else b""
        return b"id: %d\n%bdata: %b\n\n" % (self.position, event, self.data)


def reset(session_id: str | None, now: float, reason: str, position: int, **told: Any) -> Reset:
    """What is gone or not there yet: ``reason`` and what the contract adds to it."""
    event = {
        "sessionId": session_id,
        "time": rfc3339(now),
        "type": "bridge/reset",
        "params": {"reason": reason, **told},
    }
    return Reset(position, dumps(event))
