"""One session's log: its segments, its positions, its signal.

Made by the store. Reading is by position; writing is the store's business. Opening it changes
nothing on disk: what a crash left at the end is cut off by the next write. Damage is kept as it
is, said in ``damage``, and never has its positions given out again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import anyio

from bridge.log import record as records
from bridge.log.files import Files
from bridge.log.record import Record
from bridge.log.segments import (
    PASSING,
    Place,
    Segment,
    evictable,
    find_segments,
    name_of,
    sizes_of,
)
from bridge.log.tail import Run

logger = logging.getLogger(__name__)

_EVICTED: Final = "evicted"
_HEAD: Final = "head"
_READ_BYTES: Final = 65536
_PIECES_AT_ONCE: Final = 512
"""``writev`` takes 1,024 at most."""


def by_seq(segment: Segment) -> int:
    """What segments are found by."""
    return segment.first_seq


def by_id(segment: Segment) -> int:
    """What they are found by for readers of all sessions."""
    return segment.first_id


class SessionLog:
    """Positions are 0 where there is nothing yet.

    A folder that cannot be listed must not look as if there were nothing: its log has an end, no
    entries, and takes none. Raises ``OSError`` where descriptors have run out.
    """

    def __init__(self, session_id: str, folder: Path, files: Files) -> None:
        self.session_id = session_id
        self.is_closed = False
        self._changed: anyio.Event | None = None
        self.recent = Run()
        self.last_seq = 0
        self.last_id = 0
        self.evicted_seq = 0
        self.evicted_id = 0
        self._folder = folder
        self._files = files
        self._fd: int | None = None
        self._unsynced: set[Path] = set()
        self._fault: OSError | None = None
        self._segments = self._list()
        self._find_end()

    def __repr__(self) -> str:
        return f"<SessionLog {self.session_id} {self.first_seq}..{self.last_seq}>"

    # -- positions ----------------------------------------------------------------------------

    @property
    def first_seq(self) -> int:
        """The position of the first entry that is kept; one past the end where none is."""
        if self._segments:
            return self._segments[0].first_seq
        first = self.recent.first
        return self.last_seq + 1 if first is None else first.first_seq

    @property
    def fault(self) -> OSError | None:
        """Why its folder could not be listed: what is there is not known."""
        return self._fault

    @property
    def damage(self) -> list[str]:
        """What could not be read, as far as it has been tried."""
        faults = [] if self._fault is None else [f"{self._folder.name}: {self._fault.strerror}"]
        return faults + [segment.damage for segment in self._segments if segment.damage]

    @property
    def size_bytes(self) -> int:
        """The size of its files."""
        return sum(size for size, _ in sizes_of(self._segments))

    def close(self) -> None:
        """Nothing will be appended any more: streams end after the last entry."""
        self.is_closed = True
        self.wake()

    @property
    def changed(self) -> anyio.Event:
        """Set at the next change; made only where somebody waits, appends are many."""
        if self._changed is None:
            self._changed = anyio.Event()
        return self._changed

    def wake(self) -> None:
        """Whoever waits looks again."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    # -- reading ------------------------------------------------------------------------------

    def places(
        self, after_seq: int, *, read_bytes: int = 0, behind: Place | None = None
    ) -> Iterator[Place]:
        """Where the records with an entry beyond a position stand, in order.

        A record that does not begin where the one before it ended says that what was between them
        is gone. ``read_bytes`` as for a segment's; ``behind`` spares the search, being the place of
        the last entry that is not wanted. Raises ``OSError`` where the disk refuses.
        """
        start = bisect_right(self._segments, after_seq + 1, key=by_seq) - 1
        for segment in self._segments[max(start, 0) :]:
            if behind is not None and behind.segment is segment:
                offset = behind.offset + behind.head.size
            else:
                offset = segment.offset_of(after_seq + 1)
            for place in segment.places(offset, read_bytes=read_bytes):
                if place.last_seq > after_seq:
                    yield place

    def unscanned_bytes(self, wanted: int, key: Callable[[Segment], int] = by_seq) -> int:
        """What is walked over before a position (or an id) is found: 0 where that was done."""
        at = max(bisect_right(self._segments, wanted, key=key) - 1, 0)
        return sum(each.unscanned_bytes for each in self._segments[at : at + 1])

    def seq_at(self, number: int) -> int:
        """The position of the last entry whose id is ``number`` at most, as far as it is kept."""
        start = max(bisect_right(self._segments, number, key=by_id) - 1, 0)
        seq = self.first_seq - 1
        for segment in self._segments[start : start + 1]:
            seq = segment.first_seq - 1
            for place in segment.places(segment.offset_of_id(number)):
                if place.last_id > number:
                    return max(seq, place.last_seq - (place.last_id - number))
                seq = place.last_seq
        return seq

    def read(self, place: Place) -> Record | None:
        """The record at a place; ``None`` where it is damaged, which from then on is a gap."""
        data = place.read()
        if not records.is_intact(place.head, data):
            place.segment.distrust(place)
            return None
        return records.unpack(self.session_id, place.head, data)

    def records(self, after_seq: int) -> Iterator[Record]:
        """The readable records with an entry beyond a position. Never raises for a disk."""
        try:
            for place in self.places(after_seq, read_bytes=_READ_BYTES):
                if (record := self.read(place)) is not None:
                    yield record
        except OSError:
            logger.exception("a log cannot be read", extra={"session": self.session_id})

    # -- writing, by the store ----------------------------------------------------------------

    def write(self, written: Sequence[Record], pieces: Sequence[bytes], segment_bytes: int) -> None:
        """Append records in one write. Raises ``OSError`` and leaves the file as it was."""
        segment = self._segment_for(written[0], segment_bytes)
        assert self._fd is not None
        offset = segment.end
        try:
            _write_all(self._files, self._fd, pieces)
        except OSError:
            self._undo(segment)
            raise
        for record, head, body in zip(written, pieces[::2], pieces[1::2], strict=True):
            segment.note(record, offset, len(head) + len(body))
            offset = segment.end
        self.last_seq, self.last_id = segment.last_seq, segment.last_id
        self._unsynced.add(segment.path)

    def take_unsynced(self) -> set[Path]:
        """The files and folders that were changed since the last time; the caller syncs them."""
        taken, self._unsynced = self._unsynced, set()
        return taken

    def release(self) -> None:
        """Give the descriptor back; the next write takes it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def forget(self) -> None:
        """Its files are about to go. What is in memory and what is being read stays readable."""
        self.release()
        self._unsynced.clear()
        for segment in self._segments:
            segment.hold()
        self._segments = []

    def head(self) -> bytes:
        """What was kept at the last eviction of what the entries that went had said, if any."""
        try:
            return (self._folder / _HEAD).read_bytes()
        except FileNotFoundError:
            return b""

    def evict(
        self, *, before: float | None, max_bytes: int | None, head: Callable[[], bytes]
    ) -> bool:
        """Unlink old segments; see the store. Never raises for a disk."""
        wanted = evictable(self._segments, before=before, max_bytes=max_bytes)
        if self._fd is not None:
            wanted = min(wanted, len(self._segments) - 1)
        if wanted > 0:
            self._keep_head(head())
        try:
            for _ in range(wanted):
                self._evict_first()
        except OSError:
            logger.exception("old entries cannot be removed", extra={"session": self.session_id})
            return False
        return wanted > 0

    def _evict_first(self) -> None:
        segment = self._segments[0]
        if segment.end < 0:
            segment.find_end()
        following = self._segments[1] if len(self._segments) > 1 else None
        seq, number = self.evicted_seq, self.evicted_id
        self.evicted_seq = following.first_seq - 1 if following else self.last_seq
        self.evicted_id = max(number, segment.last_id)
        try:
            self._write_evicted()
        except OSError:
            if following is None:
                self.evicted_seq, self.evicted_id = seq, number
                raise
        segment.hold()
        with contextlib.suppress(FileNotFoundError):
            segment.path.unlink()
        del self._segments[0]
        if not self._segments:
            self.recent.clear()

    def _write_evicted(self) -> None:
        """Said before it is done: what is gone must never look as if it never was.

        On a full disk the next segment's name has to say it, if a little less exactly.
        """
        text = f"{self.evicted_seq} {self.evicted_id} {self.last_seq} {self.last_id}\n"
        self._replace(_EVICTED, text.encode("ascii"))

    def _keep_head(self, head: bytes) -> None:
        """Only damaged tables ever want it, so a disk that is full does not keep entries here."""
        try:
            if head:
                self._replace(_HEAD, head)
        except OSError:
            logger.exception("a head cannot be kept", extra={"session": self.session_id})

    def _replace(self, name: str, data: bytes) -> None:
        """A file beside the segments, whole or as it was."""
        path = self._folder / name
        fresh = path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(self._files, fd, [data])
            self._files.sync(fd)
        finally:
            os.close(fd)
        os.replace(fresh, path)

    def _read_evicted(self) -> None:
        numbers: list[bytes] = []
        with contextlib.suppress(OSError):
            numbers = (self._folder / _EVICTED).read_bytes().split()
        if len(numbers) == 4 and all(number.isdigit() for number in numbers):
            self.evicted_seq, self.evicted_id = int(numbers[0]), int(numbers[1])
            self.last_seq, self.last_id = int(numbers[2]), int(numbers[3])
        if self._segments and self._segments[0].first_seq - 1 > self.evicted_seq:
            self.evicted_seq = self._segments[0].first_seq - 1
            self.evicted_id = self._segments[0].first_id - 1

    def _list(self) -> list[Segment]:
        try:
            return find_segments(self._folder)
        except OSError as error:
            if error.errno in PASSING:
                raise
            self._fault = error.with_traceback(None)
            self.last_seq = self.last_id = 1
            return []

    def _find_end(self) -> None:
        self._read_evicted()
        while self._segments:
            last = self._segments[-1]
            last.find_end()
            self.last_seq = max(self.last_seq, last.last_seq)
            self.last_id = max(self.last_id, last.last_id)
            if last.end > 0 or last.damage is not None:
                break
            self._segments.pop()
        if self._segments and self._segments[-1].last_seq < self.last_seq:
            self._segments[-1].is_sealed = True

    def _segment_for(self, first: Record, segment_bytes: int) -> Segment:
        if self._fault is not None:
            raise self._fault
        last = self._segments[-1] if self._segments else None
        if last is None or last.is_sealed or last.end >= segment_bytes:
            return self._begin(first)
        if self._fd is None:
            self._fd = self._reopen(last)
        return last

    def _reopen(self, segment: Segment) -> int:
        """Open the last segment to append to it, without what a crash left at its end."""
        fd = os.open(segment.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            self._files.truncate(fd, segment.end)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _begin(self, first: Record) -> Segment:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / name_of(first.first_seq, first.first_id)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        self.release()
        self._fd = fd
        segment = Segment(path, first.first_seq, first.first_id, end=0, is_indexed=True)
        segment.last_seq, segment.last_id = first.first_seq - 1, first.first_id - 1
        if self._segments:
            self._segments[-1].until_seq = first.first_seq
        self._segments.append(segment)
        self._unsynced |= {self._folder, self._folder.parent}
        return segment

    def _undo(self, segment: Segment) -> None:
        """Cut off what a failed write left, or else never append behind it."""
        assert self._fd is not None
        try:
            self._files.truncate(self._fd, segment.end)
        except OSError:
            self.release()
            segment.is_sealed = True
            if segment.end == 0:
                self._segments.remove(segment)


def _write_all(files: Files, fd: int, pieces: Sequence[bytes]) -> None:
    """All pieces, in one write where the system takes them all."""
    written = files.write(fd, pieces[:_PIECES_AT_ONCE])
    if written == sum(map(len, pieces)):
        return
    rest: deque[bytes | memoryview] = deque(pieces)
    while True:
        if written <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        while rest and written >= len(rest[0]):
            written -= len(rest.popleft())
        if not rest:
            return
        rest[0] = memoryview(rest[0])[written:]
        written = files.write(fd, list(islice(rest, _PIECES_AT_ONCE)))
