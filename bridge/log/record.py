"""Records: what one append wrote, framed so that a torn tail is found and cut off.

``length, crc, first_seq, first_id, count, time, types_len, meta_len`` then the types (distinct,
newline-joined, so that a filter can skip a record without reading its body; none: too many to say),
the runtime's private meta and the body, which is the frames. ``length`` counts what follows the
header; the checksum is over the header after it and everything that follows.

Neither JSON nor frames hold NUL bytes, so no text of an agent can pass for a header: a length or a
position made of text is beyond what :func:`unpack_head` and :func:`is_intact` take.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import msgspec

_HEADER: Final = struct.Struct("<4sIIQQIdHI")
MAGIC: Final = b"cab1"
HEADER_BYTES: Final = _HEADER.size
TYPES_BYTES: Final = 4096
"""Types that take more are not said."""
CHECKED_FROM: Final = 12
"""Where in a record the bytes begin that its checksum covers."""
_MAX_POSITION: Final = 2**53


# Structs and not dataclasses: a walk over a segment makes one for each of ten thousand records.
class Head(msgspec.Struct, frozen=True, gc=False):
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


class Record(msgspec.Struct, frozen=True, gc=False):
    """One append: its entries ``first_seq … last_seq`` and the frames they became.

    ``types`` as on the frames' event lines; empty where they are not said.
    """

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

    @property
    def body_bytes(self) -> int:
        """The size of the frames."""
        return len(self.body)


def pack(record: Record) -> list[bytes]:
    """The bytes of a record, in pieces, so that a large body is not copied."""
    types = "\n".join(sorted(record.types)).encode()
    if len(types) > TYPES_BYTES:
        types = b""
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


def unpack_head(data: bytes, at: int = 0) -> Head | None:
    """The header at ``at``; ``None`` where there is none."""
    if len(data) - at < HEADER_BYTES:
        return None
    magic, length, crc, seq, number, count, time, types, meta = _HEADER.unpack_from(data, at)
    if magic != MAGIC or count == 0 or types + meta > length:
        return None
    if not (0 < seq < _MAX_POSITION and 0 < number < _MAX_POSITION):
        return None
    return Head(length, crc, seq, number, count, time, types, meta)


def is_intact(head: Head, data: bytes) -> bool:
    """Whether ``data`` begins with the whole record as it was written."""
    checked = memoryview(data)[CHECKED_FROM : head.size]
    return len(data) >= head.size and checksum(checked) == head.crc


def checksum(data: bytes | memoryview, before: int = 0) -> int:
    """The checksum of a record's bytes beyond :data:`CHECKED_FROM`, piece by piece."""
    return zlib.crc32(data, before)


def types_of(head: Head, data: bytes) -> frozenset[str]:
    """The types of the record that ``data`` begins with; empty where they are not said."""
    types = data[HEADER_BYTES : HEADER_BYTES + head.types_bytes]
    return frozenset(types.decode("utf-8", "replace").split("\n")) if types else frozenset()


def unpack(session_id: str, head: Head, data: bytes) -> Record:
    """The record that ``data`` begins with."""
    body = head.body_offset
    return Record(
        session_id,
        head.first_seq,
        head.first_id,
        head.count,
        head.time,
        types_of(head, data),
        data[HEADER_BYTES + head.types_bytes : body],
        data[body : head.size],
    )
