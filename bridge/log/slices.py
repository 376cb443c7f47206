"""Large records, handed out in pieces, so that nobody needs memory for all of one.

From memory the pieces come from the shared body. From a file they are read as they are wanted,
after the whole record has been checked, a bounded stretch at a time: half an event cannot be taken
back. A segment that is unlinked meanwhile stays readable.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from bridge.log.entry import PARAMS
from bridge.log.record import CHECKED_FROM, Record, checksum
from bridge.log.segments import Item, Place

_FRONT_BYTES: Final = 4096


class Slice:
    """The body of one record and how far it has been taken."""

    def __init__(self, item: Item) -> None:
        self.last_seq = item.last_seq
        self.last_id = item.last_id
        self.is_end = False
        self.is_begun = False
        self._place = None if isinstance(item, Record) else item
        self._body = item.body if isinstance(item, Record) else b""
        self._at = self._end = 0
        self._checked, self._checksum = CHECKED_FROM, 0
        if isinstance(item, Place):
            self._at = item.head.body_offset
            self._end = item.head.size
        else:
            self._end = len(item.body)

    @property
    def is_done(self) -> bool:
        """Whether all of it has been taken."""
        return self._at >= self._end

    def check(self, max_bytes: int) -> bool | None:
        """Look at the next stretch: whether all is as written, ``None`` while that is open.

        What is not counts as a gap from then on. Raises ``OSError``.
        """
        place = self._place
        if place is None or self._checked >= place.head.size:
            return True
        size = min(max_bytes, place.head.size - self._checked)
        data = place.segment.read(place.offset + self._checked, size)
        self._checksum = checksum(data, self._checksum)
        self._checked += size
        if len(data) == size and self._checked < place.head.size:
            return None
        if len(data) < size or self._checksum != place.head.crc:
            place.segment.distrust(place)
            return False
        return True

    def front(self) -> bytes:
        """The front of its one frame, up to ``params``; taken with it. Raises ``OSError``."""
        self.is_begun = True
        size = _FRONT_BYTES
        while (found := (data := self._read(min(size, self._end - self._at))).find(PARAMS)) < 0:
            size *= 4
        front = data[: found + len(PARAMS)]
        self._at += len(front)
        return front

    def take(self, max_bytes: int) -> bytes:
        """The next piece. Raises ``OSError``."""
        self.is_begun = True
        piece = self._read(min(max_bytes, self._end - self._at))
        self._at += len(piece)
        return piece

    def _read(self, size: int) -> bytes:
        if self._place is None:
            return self._body[self._at : self._at + size]
        data = self._place.segment.read(self._place.offset + self._at, size)
        if len(data) < size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return data
