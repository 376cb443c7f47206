"""Segment files: the records of one session in a row of files, the last of them still growing.

Each is named by its first position and first id. Reading opens, reads and closes; only the store
keeps a descriptor, and only of the segment it appends to. A sparse index per segment is made when
it is first read and kept up by appends.

Rules: what cannot be read costs the rest of its segment and is remembered in ``damage``; nothing
here raises for it. An end that was not written whole is no damage: it counts as never written.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge.log import record as records
from bridge.log.record import HEADER_BYTES, MAGIC, Head

INDEX_EVERY_BYTES: Final = 65536

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.seg")


@dataclass(slots=True)
class Segment:
    """One file. ``size`` is the end of its last whole record; ``index`` is made on first use."""

    path: Path
    first_seq: int
    first_id: int
    size: int = -1
    last_seq: int = 0
    last_id: int = 0
    damage: str | None = None
    index: list[tuple[int, int, int]] = field(default_factory=list)
    """``(first_seq, first_id, offset)`` of a record every 64 KiB."""

    @property
    def is_scanned(self) -> bool:
        """Whether its end is known."""
        return self.size >= 0

    def note(self, head: Head, offset: int) -> None:
        """A record stands at ``offset``."""
        if not self.index or offset - self.index[-1][2] >= INDEX_EVERY_BYTES:
            self.index.append((head.first_seq, head.first_id, offset))
        self.size = offset + head.size
        self.last_seq = head.last_seq
        self.last_id = head.last_id

    def scan(self) -> None:
        """Find its records and where the last whole one ends. Checks every header, not bodies."""
        self.size, self.index = 0, []
        self.last_seq, self.last_id = self.first_seq - 1, self.first_id - 1
        try:
            length = self.path.stat().st_size
            with open(self.path, "rb", buffering=0) as file:
                self._scan(file.fileno(), length)
        except OSError as error:
            self.damage = f"{self.path.name}: {error.strerror}"

    def _scan(self, fd: int, length: int) -> None:
        offset, window, start = 0, b"", 0
        while offset < length:
            at = offset - start
            if at + HEADER_BYTES > len(window):
                window, start, at = os.pread(fd, INDEX_EVERY_BYTES * 4, offset), offset, 0
            head = records.unpack_head(window[at : at + HEADER_BYTES])
            if head is None or offset + head.size > length or head.first_seq != self.last_seq + 1:
                self._look_behind(fd, offset, length)
                return
            self.note(head, offset)
            offset += head.size

    def _look_behind(self, fd: int, offset: int, length: int) -> None:
        """No whole record stands at ``offset``: a torn end, or damage with good ones behind it.

        Positions that were given out behind the damage must not be given out again.
        """
        rest = os.pread(fd, length - offset, offset)
        found = rest.find(MAGIC, 1)
        while found >= 0:
            head = records.unpack_head(rest[found : found + HEADER_BYTES])
            if head is not None and records.is_intact(head, rest[found : found + head.size]):
                self.damage = f"{self.path.name}: damaged at byte {offset}"
                self.last_seq = max(self.last_seq, head.last_seq)
                self.last_id = max(self.last_id, head.last_id)
            found = rest.find(MAGIC, found + 1)

    def offset_of(self, seq: int) -> int:
        """An offset at or before the record that holds ``seq``."""
        found = bisect_right(self.index, seq, key=lambda each: each[0]) - 1
        return self.index[found][2] if found >= 0 else 0

    def offset_of_id(self, number: int) -> int:
        """An offset at or before the record that holds the id."""
        found = bisect_right(self.index, number, key=lambda each: each[1]) - 1
        return self.index[found][2] if found >= 0 else 0


def name_of(first_seq: int, first_id: int) -> str:
    """The file name of a segment."""
    return f"{first_seq:020d}-{first_id:020d}.seg"


def find_segments(folder: Path) -> list[Segment]:
    """The segments of a folder, in order; none where there is no folder."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    return [
        Segment(folder / name, int(found[1]), int(found[2]))
        for name in names
        if (found := _NAME.fullmatch(name))
    ]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands: its segment's path, its offset, its header."""

    path: Path
    offset: int
    head: Head


def places(segment: Segment, offset: int) -> Iterator[Place]:
    """The records of a segment from ``offset`` on; the file is open while this is consumed."""
    if not segment.is_scanned:
        segment.scan()
    if offset >= segment.size:
        return
    try:
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        segment.damage = f"{segment.path.name}: {error.strerror}"
        return
    try:
        window, start = b"", offset
        while offset < segment.size:
            at = offset - start
            if at + HEADER_BYTES > len(window):
                window, start, at = os.pread(fd, INDEX_EVERY_BYTES, offset), offset, 0
            head = records.unpack_head(window[at : at + HEADER_BYTES])
            if head is None:
                segment.damage = f"{segment.path.name}: no record at byte {offset}"
                return
            yield Place(segment.path, offset, head)
            offset += head.size
    finally:
        os.close(fd)


def read_at(path: Path, offset: int, size: int) -> bytes:
    """Bytes of a segment file; fewer at its end."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while size > 0:
            piece = os.pread(fd, size, offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)
