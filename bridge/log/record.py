"""Records: what one append wrote, framed so that a torn tail is found and cut off.

``length, crc, first_seq, first_id, count, time, types_len, meta_len`` then the types (distinct,
newline-joined, so that a filter can skip a record without reading its body), the runtime's private
meta and the body, which is the frames. ``length`` counts what follows the header; the checksum is
over the header after it and everything that follows.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

_HEADER: Final = struct.Struct("<4sIIQQIdHI")
MAGIC: Final = b"cab1"
HEADER_BYTES: Final = _HEADER.size
_AFTER_CRC: Final = 12


@dataclass(frozen=True, slots=True)
class Head:
    """A record's header. ``length`` is in bytes without the header, ``time`` since the epoch."""

    length: int
    crc: int
    first_seq: int
    first_id: int
    count: int
    time: float
    types_bytes: int
    meta_bytes: int

    @property
    def last_seq(self) -> int:
        """The position of its last entry."""
        return self.first_seq + self.count - 1

    @property
    def last_id(self) -> int:
        """The id of its last entry."""
        return self.first_id + self.count - 1

    @property
    def body_offset(self) -> int:
        """Where the frames begin, from the record's start."""
        return HEADER_BYTES + self.types_bytes + self.meta_bytes

    @property
    def body_bytes(self) -> int:
        """The size of the frames."""
        return self.length - self.types_bytes - self.meta_bytes

    @property
    def size(self) -> int:
        """The size of the whole record."""
        return HEADER_BYTES + self.length


@dataclass(frozen=True, slots=True)
class Record:
    """One append: its entries ``first_seq … last_seq`` and the frames they became."""

    session_id: str
    first_seq: int
    first_id: int
    count: int
    time: float
    types: frozenset[str]
    meta: bytes
    body: bytes

    @property
    def last_seq(self) -> int:
        """The position of its last entry."""
        return self.first_seq + self.count - 1

    @property
    def last_id(self) -> int:
        """The id of its last entry."""
        return self.first_id + self.count - 1


def pack(record: Record) -> list[bytes]:
    """The bytes of a record, in pieces, so that a large body is not copied."""
    types = "\n".join(sorted(record.types)).encode("utf-8", "surrogatepass")
    length = len(types) + len(record.meta) + len(record.body)
    tail = struct.pack(
        "<QQIdHI",
        record.first_seq,
        record.first_id,
        record.count,
        record.time,
        len(types),
        len(record.meta),
    )
    crc = zlib.crc32(tail)
    for piece in (types, record.meta, record.body):
        crc = zlib.crc32(piece, crc)
    head = struct.pack("<4sII", MAGIC, length, crc) + tail
    return [head + types + record.meta, record.body]


def unpack_head(data: bytes) -> Head | None:
    """The header at the start of ``data``; ``None`` where there is none."""
    if len(data) < HEADER_BYTES:
        return None
    magic, length, crc, seq, number, count, time, types, meta = _HEADER.unpack_from(data)
    if magic != MAGIC or count == 0 or types + meta > length:
        return None
    return Head(length, crc, seq, number, count, time, types, meta)


def is_intact(head: Head, data: bytes) -> bool:
    """Whether ``data``, a whole record, is what was written."""
    return zlib.crc32(memoryview(data)[_AFTER_CRC : head.size]) == head.crc


def unpack(session_id: str, head: Head, data: bytes) -> Record:
    """The record that ``data`` holds."""
    types_end = HEADER_BYTES + head.types_bytes
    body = head.body_offset
    types = data[HEADER_BYTES:types_end].decode("utf-8", "surrogatepass")
    return Record(
        session_id,
        head.first_seq,
        head.first_id,
        head.count,
        head.time,
        frozenset(types.split("\n")),
        data[types_end:body],
        data[body : head.size],
    )
