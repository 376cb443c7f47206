"""One session's log: its segments, its positions, its signal.

Made by the store. Reading is by position; writing is the store's business. Opening it for writing
cuts a torn tail off; damage in the middle is kept as it is, said in ``damage``, and skipped.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio

from bridge.log import record as records
from bridge.log.files import Files
from bridge.log.record import Record
from bridge.log.segments import Place, Segment, find_segments, name_of, places, read_at

_EVICTED = "evicted"


class SessionLog:
    """Positions are 0 where there is nothing yet."""

    def __init__(self, session_id: str, folder: Path, files: Files) -> None:
        self.session_id = session_id
        self.is_closed = False
        self.changed = anyio.Event()
        self.recent: deque[Record] = deque()
        self.last_seq = 0
        self.last_id = 0
        self.evicted_seq = 0
        self.evicted_id = 0
        self._folder = folder
        self._files = files
        self._fd: int | None = None
        self._segments = find_segments(folder)
        self._find_end()

    def __repr__(self) -> str:
        return f"<SessionLog {self.session_id} {self.first_seq}..{self.last_seq}>"

    # -- positions ----------------------------------------------------------------------------

    @property
    def first_seq(self) -> int:
        """The position of the first entry that is kept; one past the end where none is."""
        return self._segments[0].first_seq if self._segments else self.last_seq + 1

    @property
    def damage(self) -> list[str]:
        """What could not be read, as far as it has been tried."""
        return [segment.damage for segment in self._segments if segment.damage]

    @property
    def size_bytes(self) -> int:
        """The size of its files."""
        sizes = 0
        for segment in self._segments:
            with contextlib.suppress(OSError):
                sizes += segment.path.stat().st_size
        return sizes

    def close(self) -> None:
        """Nothing will be appended any more: streams end after the last entry."""
        self.is_closed = True
        self.wake()

    def wake(self) -> None:
        """Whoever waits looks again."""
        self.changed.set()
        self.changed = anyio.Event()

    # -- reading ------------------------------------------------------------------------------

    def places(self, after_seq: int) -> Iterator[Place]:
        """Where the records with an entry beyond a position stand, in order."""
        start = bisect_right(self._segments, after_seq + 1, key=lambda each: each.first_seq) - 1
        for segment in self._segments[max(start, 0) :]:
            if not segment.is_scanned:
                segment.scan()
            for place in places(segment, segment.offset_of(after_seq + 1)):
                if place.head.last_seq > after_seq:
                    yield place

    def seq_after_id(self, number: int) -> int | None:
        """The position before the first entry whose id is beyond ``number``."""
        start = bisect_right(self._segments, number, key=lambda each: each.first_id) - 1
        for segment in self._segments[max(start, 0) :]:
            if not segment.is_scanned:
                segment.scan()
            for place in places(segment, segment.offset_of_id(number)):
                if place.head.last_id > number:
                    return place.head.first_seq - 1 + max(0, number + 1 - place.head.first_id)
        return None

    def read(self, place: Place) -> Record | None:
        """The record at a place; ``None`` where it is damaged."""
        try:
            data = read_at(place.path, place.offset, place.head.size)
        except OSError:
            return None
        if len(data) < place.head.size or not records.is_intact(place.head, data):
            self._note_damage(place)
            return None
        return records.unpack(self.session_id, place.head, data)

    def records(self, after_seq: int) -> Iterator[Record]:
        """The records with an entry beyond a position. Damage costs its segment's rest."""
        skipped: Path | None = None
        for place in self.places(after_seq):
            if place.path == skipped:
                continue
            record = self.read(place)
            if record is None:
                skipped = place.path
            else:
                yield record

    def first_after(self, path: Path) -> int:
        """The first position of the segment behind the one at ``path``."""
        for segment in self._segments:
            if segment.path.name > path.name:
                return segment.first_seq
        return self.last_seq + 1

    # -- writing, by the store ----------------------------------------------------------------

    def write(self, written: Sequence[Record], pieces: Sequence[bytes], segment_bytes: int) -> None:
        """Append records in one write. Raises ``OSError`` and leaves the file as it was."""
        segment = self._segment_for(written[0], segment_bytes)
        assert self._fd is not None
        start = segment.size
        try:
            _write_all(self._files, self._fd, pieces)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
            raise
        offset = start
        for record, head_piece, body in zip(written, pieces[::2], pieces[1::2], strict=True):
            head = records.unpack_head(head_piece)
            assert head is not None
            segment.note(head, offset)
            offset += len(head_piece) + len(body)
            self.last_seq, self.last_id = record.last_seq, record.last_id

    def duplicate(self) -> int | None:
        """A second descriptor of the file that is written, for syncing in another thread."""
        return None if self._fd is None else os.dup(self._fd)

    def release(self) -> None:
        """Give the descriptor back; the next write takes it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def evict(self, *, before: float | None, max_bytes: int | None, is_writing: bool) -> bool:
        """Unlink old segments; see the store."""
        sizes = {}
        for segment in self._segments:
            with contextlib.suppress(OSError):
                status = segment.path.stat()
                sizes[segment.path] = (status.st_size, status.st_mtime)
        total = sum(size for size, _ in sizes.values())
        has_evicted = False
        while len(self._segments) > (1 if is_writing else 0):
            size, written_at = sizes.get(self._segments[0].path, (0, 0.0))
            is_old = before is not None and written_at < before
            is_large = max_bytes is not None and total > max_bytes and len(self._segments) > 1
            if not (is_old or is_large):
                break
            self._evict_first()
            total -= size
            has_evicted = True
        return has_evicted

    def _evict_first(self) -> None:
        segment = self._segments[0]
        if not segment.is_scanned:
            segment.scan()
        following = self._segments[1] if len(self._segments) > 1 else None
        self.evicted_seq = following.first_seq - 1 if following else self.last_seq
        self.evicted_id = max(self.evicted_id, segment.last_id)
        self._write_evicted()
        with contextlib.suppress(FileNotFoundError):
            segment.path.unlink()
        del self._segments[0]

    def _write_evicted(self) -> None:
        """Said before it is done: what is gone must never look as if it never was."""
        path = self._folder / _EVICTED
        text = f"{self.evicted_seq} {self.evicted_id} {self.last_seq} {self.last_id}\n"
        fresh = path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, text.encode("ascii"))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(fresh, path)

    def _read_evicted(self) -> None:
        try:
            numbers = (self._folder / _EVICTED).read_text("ascii").split()
        except (FileNotFoundError, UnicodeDecodeError):
            return
        if len(numbers) == 4 and all(number.isdecimal() for number in numbers):
            self.evicted_seq, self.evicted_id = int(numbers[0]), int(numbers[1])
            self.last_seq = max(self.last_seq, int(numbers[2]))
            self.last_id = max(self.last_id, int(numbers[3]))

    def _find_end(self) -> None:
        self._read_evicted()
        while self._segments:
            last = self._segments[-1]
            last.scan()
            self._drop_damaged_end(last)
            if last.size > 0 or last.damage is not None:
                self.last_seq = max(self.last_seq, last.last_seq)
                self.last_id = max(self.last_id, last.last_id)
                return
            self._segments.pop()

    def _drop_damaged_end(self, segment: Segment) -> None:
        """A last record that was not written whole counts as never written."""
        if segment.size <= 0 or segment.damage is not None:
            return
        tail = list(places(segment, segment.index[-1][2]))
        place = tail[-1]
        data = read_at(place.path, place.offset, place.head.size)
        if not records.is_intact(place.head, data):
            segment.size = place.offset
            segment.last_seq, segment.last_id = place.head.first_seq - 1, place.head.first_id - 1

    def _segment_for(self, first: Record, segment_bytes: int) -> Segment:
        last = self._segments[-1] if self._segments else None
        if last is not None and last.size < segment_bytes and self._fd is None:
            self._reopen(last)
        if last is None or last.size >= segment_bytes or self._fd is None:
            last = self._begin(first)
        return last

    def _reopen(self, segment: Segment) -> None:
        """Open the last segment to append to it, without what a crash left at its end."""
        if segment.damage is not None:
            return
        fd = os.open(segment.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        os.ftruncate(fd, segment.size)
        self._fd = fd

    def _begin(self, first: Record) -> Segment:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / name_of(first.first_seq, first.first_id)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        self.release()
        self._fd = fd
        segment = Segment(path, first.first_seq, first.first_id, size=0)
        segment.last_seq, segment.last_id = first.first_seq - 1, first.first_id - 1
        self._segments.append(segment)
        return segment

    def _note_damage(self, place: Place) -> None:
        for segment in self._segments:
            if segment.path == place.path:
                segment.damage = f"{place.path.name}: damaged record at byte {place.offset}"


def _write_all(files: Files, fd: int, pieces: Sequence[bytes]) -> None:
    total = sum(map(len, pieces))
    written = files.write(fd, pieces)
    if written < total:
        rest = b"".join(pieces)
        while written < total:
            written += files.write(fd, [rest[written:]])
