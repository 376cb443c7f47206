"""Walking over a segment's bytes: where records stand, where damage begins and ends.

Reads by descriptor and keeps nothing open. Knows nothing of sessions or of who reads.
"""

from __future__ import annotations

import os
from typing import Final

from bridge.log import record as records
from bridge.log.record import HEADER_BYTES, MAGIC, Head

INDEX_EVERY_BYTES: Final = 65536
WINDOW_BYTES: Final = 65536


class Window:
    """A stretch of a file, read anew where what is wanted lies beyond it."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = max(size, HEADER_BYTES + records.TYPES_BYTES)
        self._bytes = b""
        self._start = 0

    def head(self, offset: int) -> Head | None:
        """The header at an offset."""
        at = self._at(offset, HEADER_BYTES)
        return records.unpack_head(self._bytes, at)

    def data(self, offset: int, head: Head) -> bytes:
        """The record at an offset; of one that does not fit into a window its types at least."""
        size = head.size if head.size <= self._size else HEADER_BYTES + head.types_bytes
        at = self._at(offset, size)
        return self._bytes[at : at + size]

    def _at(self, offset: int, size: int) -> int:
        at = offset - self._start
        if at < 0 or at + size > len(self._bytes):
            self._bytes, self._start, at = pread(self._fd, self._size, offset), offset, 0
        return at


class Walk:
    """One look at every header of a segment, and at the whole of what does not fit the others.

    ``before``: the position and the id before its first entry. Afterwards ``seq`` and ``number``
    are those of the last whole record's last entry and ``end`` is where that record ends.
    """

    def __init__(
        self, fd: int, size: int, *, before: tuple[int, int], until_seq: int, is_end_known: bool
    ) -> None:
        self.index: list[tuple[int, int, int]] = []
        self.gaps: dict[int, int] = {}
        self.end = 0
        self.seq, self.number = before
        self._until_seq = until_seq
        self._is_end_known = is_end_known
        self._fd = fd
        self._size = size
        self._before: tuple[int, Head, int, int] | None = None
        """The last record: its offset and header, and the positions before it."""

    def run(self) -> None:
        """Walk to the end of the last whole record."""
        window = Window(self._fd, WINDOW_BYTES * 4)
        offset = 0
        while offset < self._size:
            head = window.head(offset)
            if head is not None and self._follows(head, offset):
                self._note(head, offset)
                offset = self.end
            else:
                offset = self._pass_over(offset)
        if not self._trusts_last():
            self._forget_last()

    def _follows(self, head: Head, offset: int) -> bool:
        if head.first_seq != self.seq + 1 or head.first_id <= self.number:
            return False
        return offset + head.size <= self._size and head.last_seq < self._until_seq

    def _note(self, head: Head, offset: int) -> None:
        if is_due(self.index, offset):
            self.index.append((head.first_seq, head.first_id, offset))
        self._before = (offset, head, self.seq, self.number)
        self.seq, self.number = head.last_seq, head.last_id
        self.end = offset + head.size

    def _trusts_last(self) -> bool:
        """Whether the last record is what its header says; where the next fails it may not be."""
        if self._before is None:
            return True
        offset, head, _, _ = self._before
        return records.is_intact(head, pread(self._fd, head.size, offset))

    def _forget_last(self) -> None:
        assert self._before is not None
        offset, _, self.seq, self.number = self._before
        if self.index[-1][2] == offset:
            self.index.pop()
        self._before = None
        self.end = offset

    def _pass_over(self, offset: int) -> int:
        """No record follows at ``offset``: to the next whole one, or the end where there is none.

        Positions that were given out behind damage must not be given out again.
        """
        if not self._trusts_last():
            self._forget_last()
            offset = self.end
        rest = pread(self._fd, self._size - offset, offset)
        at = rest.find(MAGIC)
        while at >= 0:
            head = records.unpack_head(rest, at)
            if head is not None and self._is_behind(head, rest, at):
                if at:
                    self.gaps[offset] = offset + at
                self._note(head, offset + at)
                return self.end
            at = rest.find(MAGIC, at + 1)
        if self._is_end_known:
            self.gaps[offset] = self._size
        return self._size

    def _is_behind(self, head: Head, rest: bytes, at: int) -> bool:
        is_later = head.first_seq > self.seq and head.first_id > self.number
        is_inside = at + head.size <= len(rest) and head.last_seq < self._until_seq
        return is_later and is_inside and records.is_intact(head, rest[at : at + head.size])


def is_due(index: list[tuple[int, int, int]], offset: int) -> bool:
    """Whether a record at ``offset`` belongs into a sparse index."""
    return not index or offset - index[-1][2] >= INDEX_EVERY_BYTES


def pread(fd: int, size: int, offset: int) -> bytes:
    """Bytes of a file; fewer at its end only."""
    data = os.pread(fd, size, offset)
    while data and len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data
