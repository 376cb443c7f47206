"""A picture without a library: a PNG of a gradient.

Source: PNG specification (W3C), 5.3 chunk layout and 11.2 critical chunks.
"""

from __future__ import annotations

import struct
import zlib


def png(width: int, height: int) -> bytes:
    """An RGB picture, 8 bits a channel."""
    rows = b"".join(
        b"\0" + b"".join(_pixel(x, y, width, height) for x in range(width)) for y in range(height)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(rows, 9))
        + _chunk(b"IEND", b"")
    )


def _pixel(x: int, y: int, width: int, height: int) -> bytes:
    return bytes((255 * x // width, 255 * y // height, 160))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
