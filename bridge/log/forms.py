"""The forms a stream may ask for, derived from the stored frames by cutting lines.

The default form is the stored bytes themselves. The others drop the ``event`` line, keep only some
types or some turn's entries, or put the global id in place of the position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.clock import rfc3339
from bridge.log.entry import dumps

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

    @property
    def number(self) -> int:
        """The global id."""
        start = self.data.index(b',"id":') + 6
        return int(self.data[start : self.data.index(b",", start)])

    @property
    def seq(self) -> int:
        """The position."""
        return int(self.id_line[4:])


def take_apart(frame: bytes) -> Frame:
    """A frame, or as much of its beginning as holds everything before ``params``."""
    first = frame.index(b"\n")
    second = frame.index(b"\n", first + 1)
    return Frame(frame[:first], frame[first + 1 : second], frame[second + 1 :])


def render(frame: Frame, form: Form, *, has_global_id: bool) -> bytes:
    """The frame in another form, from its first byte to the end of what ``data`` holds."""
    id_line = b"id: %d" % frame.number if has_global_id else frame.id_line
    if form.named:
        return b"\n".join((id_line, frame.event_line, frame.data))
    return b"\n".join((id_line, frame.data))


def is_wanted(frame: Frame, form: Form) -> bool:
    """Whether the form keeps this entry."""
    return form.wants_type(frame.kind) and (form.keep is None or form.keep(frame.data))


def belongs_to(turn_id: str) -> Keep:
    """Keeps what belongs to a turn, or to the session as such."""
    own = b',"turnId":"%b"' % turn_id.encode()
    none = b',"turnId":null'

    def keep(data: bytes) -> bool:
        head = data[:512]
        return own in head or none in head

    return keep


def ends(turn_id: str) -> Keep:
    """Whether an entry is the end of a turn."""
    own = b',"turnId":"%b"' % turn_id.encode()

    def is_end(data: bytes) -> bool:
        head = data[:512]
        return own in head and b',"type":"bridge/turn_ended"' in head

    return is_end


def reset(
    session_id: str | None, now: float, reason: str, position: int, **told: Any
) -> tuple[bytes, bytes]:
    """A ``bridge/reset``: its frame, which moves the reader to ``position``, and its JSON.

    It has no position of its own and is not logged.
    """
    event = {
        "sessionId": session_id,
        "time": rfc3339(now),
        "type": "bridge/reset",
        "params": {"reason": reason, **told},
    }
    data = dumps(event)
    frame = b"id: %d\nevent: bridge/reset\ndata: %b\n\n" % (position, data)
    return frame, data


def unnamed(frame: bytes) -> bytes:
    """A small frame without its event line."""
    taken = take_apart(frame)
    return b"\n".join((taken.id_line, taken.data))
