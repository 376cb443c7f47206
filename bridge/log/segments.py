"""Segment files: the records of one session in a row of files, the last of them still growing.

Each is named by its first position and first id. Reading opens, reads and closes; only the store
keeps a descriptor, and only of the segment it appends to. What is unlinked while somebody reads it
stays readable for them: the segment then holds a descriptor until the last of them lets go of it.

Where a segment ends is found from its last record, so that opening does not read it all. Its
sparse index and the places where it is damaged (``gaps``) are found when it is first read.

Rules: what cannot be read is a gap and is said in ``damage``; nothing here raises for it. An end
that was not written whole is no damage: it counts as never written. Only a machine that is out of
descriptors raises (``OSError``), since what is there would look as if it were not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from bridge.errors import StorageError
from bridge.log import record as records
from bridge.log.record import MAGIC, Head, Record
from bridge.log.scan import WINDOW_BYTES, Walk, Window, is_due, pread

NEVER: Final = 2**63

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.seg")
_END_WINDOWS: Final = (65536, 1024 * 1024)
_SMALLEST_FRAME_BYTES: Final = 64
_UNKNOWN_BYTES: Final = 1024 * 1024
"""What a segment is taken to hold that nobody has looked at yet."""
PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class _Held:
    """A descriptor that is closed when nobody holds it any more."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands. ``data`` is all of it, or its beginning, as far as it was read."""

    segment: Segment
    offset: int
    head: Head
    data: bytes = b""

    @property
    def first_seq(self) -> int:
        """The position of its first entry."""
        return self.head.first_seq

    @property
    def last_seq(self) -> int:
        """The position of its last entry."""
        return self.head.last_seq

    @property
    def first_id(self) -> int:
        """The id of its first entry."""
        return self.head.first_id

    @property
    def last_id(self) -> int:
        """The id of its last entry."""
        return self.head.last_id

    @property
    def count(self) -> int:
        """How many entries it holds."""
        return self.head.count

    @property
    def body_bytes(self) -> int:
        """The size of its frames."""
        return self.head.body_bytes

    @property
    def types(self) -> frozenset[str]:
        """The types of its entries; empty where they are not said or not read."""
        return records.types_of(self.head, self.data)

    def read(self) -> bytes:
        """All of it; less where its file has less."""
        if len(self.data) >= self.head.size:
            return self.data
        return self.segment.read(self.offset, self.head.size)


Item = Record | Place
"""A record in memory, or where one stands in a file."""


@dataclass(slots=True, eq=False)
class Segment:
    """One file. ``end`` is where its last whole record ends, -1 until :meth:`find_end`."""

    path: Path
    first_seq: int
    first_id: int
    until_seq: int = NEVER
    """The first position of the segment behind it."""
    end: int = -1
    last_seq: int = 0
    last_id: int = 0
    damage: str | None = None
    is_sealed: bool = False
    """Whether nothing may be appended to it any more."""
    is_indexed: bool = False
    index: list[tuple[int, int, int]] = field(default_factory=list)
    """``(first_seq, first_id, offset)`` of a record every 64 KiB."""
    gaps: dict[int, int] = field(default_factory=dict)
    """Where a damaged stretch begins, and where the next whole record stands."""
    _held: _Held | None = None

    # -- its file -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor to read from."""
        if self._held is not None:
            yield self._held.fd
            return
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file; fewer at its end and where the disk does not give them back."""
        try:
            with self.opened() as fd:
                return pread(fd, size, offset)
        except OSError as error:
            if error.errno in PASSING:
                raise
            return b""

    def hold(self) -> None:
        """Keep what is about to be unlinked readable for those who are reading it."""
        if self._held is None:
            with contextlib.suppress(OSError):
                self._held = _Held(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC))

    # -- where it ends ------------------------------------------------------------------------

    def find_end(self) -> None:
        """Find its last whole record. Raises ``OSError`` only where descriptors have run out."""
        self.last_seq, self.last_id = self.first_seq - 1, self.first_id - 1
        try:
            with self.opened() as fd:
                size = os.fstat(fd).st_size
                if not any(self._ends_whole(fd, size, window) for window in _END_WINDOWS):
                    self._walk_to_end(fd, size)
        except OSError as error:
            self._give_up(error)
            self._skip_positions()

    def _ends_whole(self, fd: int, size: int, window: int) -> bool:
        """Whether a whole record ends where the file does."""
        data = pread(fd, min(window, size), max(0, size - window))
        at = data.rfind(MAGIC)
        while at >= 0:
            head = records.unpack_head(data, at)
            if head is not None and at + head.size == len(data):
                if not records.is_intact(head, data[at:]):
                    return False
                self.end, self.last_seq, self.last_id = size, head.last_seq, head.last_id
                return True
            at = data.rfind(MAGIC, 0, at)
        return False

    def _walk_to_end(self, fd: int, size: int) -> None:
        walk = self._walk(fd, size)
        self.end = walk.end
        self.last_seq, self.last_id = walk.seq, walk.number
        self._take(walk)

    def _give_up(self, error: OSError) -> None:
        if error.errno in PASSING:
            raise error
        self.damage = f"{self.path.name}: {error.strerror}"
        self.is_sealed = self.is_indexed = True
        self.end = max(self.end, 0)

    def _skip_positions(self) -> None:
        """What it holds is not known, but must not be given out again: no entry is so small."""
        with contextlib.suppress(OSError):
            most = self.path.stat().st_size // _SMALLEST_FRAME_BYTES
            self.last_seq, self.last_id = self.last_seq + most, self.last_id + most

    # -- what is in it ------------------------------------------------------------------------

    def note(self, record: Record, offset: int, size: int) -> None:
        """A record of ``size`` bytes was appended at ``offset``."""
        self.end = offset + size
        self.last_seq, self.last_id = record.last_seq, record.last_id
        if self.is_indexed and is_due(self.index, offset):
            self.index.append((record.first_seq, record.first_id, offset))

    def scan(self) -> None:
        """Make the index and find the gaps. Raises ``OSError`` where descriptors have run out."""
        try:
            with self.opened() as fd:
                size = os.fstat(fd).st_size
                walk = self._walk(fd, size if self.end < 0 else min(size, self.end))
        except OSError as error:
            self._give_up(error)
            return
        if self.end < 0:
            self.end, self.last_seq, self.last_id = walk.end, walk.seq, walk.number
        self._take(walk)

    def _walk(self, fd: int, size: int) -> Walk:
        before = (self.first_seq - 1, self.first_id - 1)
        is_known = self.end >= 0
        walk = Walk(fd, size, before=before, until_seq=self.until_seq, is_end_known=is_known)
        walk.run()
        return walk

    def _take(self, walk: Walk) -> None:
        self.index, self.gaps, self.is_indexed = walk.index, self.gaps | walk.gaps, True
        if walk.gaps:
            self.damage = f"{self.path.name}: damaged at byte {min(walk.gaps)}"
        elif walk.seq + 1 < self.until_seq < NEVER:
            self.damage = f"{self.path.name}: damaged at its end"

    @property
    def unscanned_bytes(self) -> int:
        """What a search in it has to walk over first."""
        if self.is_indexed:
            return 0
        return self.end if self.end >= 0 else _UNKNOWN_BYTES

    def distrust(self, place: Place) -> None:
        """The record at a place turned out damaged: from now on it is a gap."""
        self.scan()
        self.gaps.setdefault(place.offset, place.offset + place.head.size)
        self.damage = f"{self.path.name}: damaged at byte {place.offset}"

    def offset_of(self, seq: int) -> int:
        """An offset at or before the record that holds ``seq``."""
        return self._offset(seq, _seq_of)

    def offset_of_id(self, number: int) -> int:
        """An offset at or before the record that holds the id."""
        return self._offset(number, _id_of)

    def _offset(self, wanted: int, key: Callable[[tuple[int, int, int]], int]) -> int:
        if not self.is_indexed:
            self.scan()
        found = bisect_right(self.index, wanted, key=key) - 1
        return self.index[found][2] if found >= 0 else 0

    def places(self, offset: int, *, read_bytes: int = 0) -> Iterator[Place]:
        """The records from ``offset`` on, with as much of each as one read brings.

        ``read_bytes``: how much is read at once; 0 where only headers are wanted. The file is
        open while this is consumed.
        """
        if self.end < 0:
            self.scan()
        if offset >= self.end:
            return
        try:
            with self.opened() as fd:
                yield from self._places(Window(fd, read_bytes or WINDOW_BYTES), offset, read_bytes)
        except OSError as error:
            if error.errno in PASSING:
                raise
            self.damage = f"{self.path.name}: {error.strerror}"

    def _places(self, window: Window, offset: int, read_bytes: int) -> Iterator[Place]:
        while offset < self.end:
            following = self.gaps.get(offset)
            if following is None:
                head = window.head(offset)
                if head is None or offset + head.size > self.end:
                    if not self._finds_gap(offset):
                        return
                    continue
                if head.last_seq >= self.until_seq:
                    return
                yield Place(self, offset, head, window.data(offset, head) if read_bytes else b"")
                following = self.gaps.get(offset, offset + head.size)
            offset = following

    def _finds_gap(self, offset: int) -> bool:
        """Damage that came after the scan: whether another one says where to go on."""
        self.scan()
        return offset in self.gaps


def find_segments(folder: Path) -> list[Segment]:
    """The segments of a folder, in order; none where there is no folder. Raises ``OSError``."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    found = [
        Segment(folder / name, int(match[1]), int(match[2]))
        for name in names
        if (match := _NAME.fullmatch(name))
    ]
    for segment, following in pairwise(found):
        segment.until_seq = following.first_seq
    return found


def sizes_of(segments: Sequence[Segment]) -> list[tuple[int, float]]:
    """The size of each file and when it was last written; nothing of one that is gone."""
    sizes = []
    for segment in segments:
        try:
            status = segment.path.stat()
        except OSError:
            sizes.append((0, 0.0))
        else:
            sizes.append((status.st_size, status.st_mtime))
    return sizes


def evictable(segments: Sequence[Segment], *, before: float | None, max_bytes: int | None) -> int:
    """How many of the first segments were last written before a time, or are beyond a size.

    Size alone leaves the last one.
    """
    sizes = sizes_of(segments)
    total = sum(size for size, _ in sizes)
    count = 0
    for size, written_at in sizes:
        is_old = before is not None and written_at < before
        is_large = max_bytes is not None and total > max_bytes and count < len(sizes) - 1
        if not (is_old or is_large):
            break
        total -= size
        count += 1
    return count


def unreadable(error: OSError) -> StorageError:
    """What is said where the disk refuses to give back what is there."""
    reason = os.strerror(error.errno or 0)
    return StorageError("internal-error", f"The log cannot be read: {reason}.")


def name_of(first_seq: int, first_id: int) -> str:
    """The file name of a segment."""
    return f"{first_seq:020d}-{first_id:020d}.seg"


def _seq_of(entry: tuple[int, int, int]) -> int:
    return entry[0]


def _id_of(entry: tuple[int, int, int]) -> int:
    return entry[1]
