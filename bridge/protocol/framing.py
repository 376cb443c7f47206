"""Bytes of a pipe into lines: one JSON-RPC message a line, as ACP's stdio transport has it.

Owns the unfinished line and the limit on its size. Rules: only ``\\n`` ends a line (JSON text may
hold U+2028 and the like raw, so ``splitlines`` would cut messages in two); a ``\\r`` before it and
blank lines are dropped; a line over the limit is skipped to its end in flat memory and reported
once; how the bytes were cut into reads never shows in what comes out. Knows nothing of JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_LINE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Overflow:
    """A line over the limit was skipped; ``size_bytes`` is its whole length without ``\\n``."""

    size_bytes: int


class LineSplitter:
    """Cuts a byte stream into lines of at most ``max_line_bytes`` (``\\n`` not counted)."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        # A list, joined once at the line's end: appending to bytes would be quadratic for a
        # line that arrives in a thousand reads.
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def feed(self, data: bytes) -> list[bytes | Overflow]:
        """Lines that ``data`` completes, in order, without their ends and without blank ones."""
        first, *ended = data.split(b"\n")
        if not ended:
            self._hold(first)
            return []
        lines: list[bytes | Overflow] = []
        # Only the first piece of a read can have held parts in front of it.
        if (line := self._finish(first)) is not None:
            lines.append(line)
        rest = ended.pop()
        if len(data) > self._max_line_bytes or 13 in data:
            lines += [line for piece in ended if (line := self._checked(piece)) is not None]
        else:
            lines += [piece for piece in ended if piece and not piece.isspace()]
        self._hold(rest)
        return lines

    def eof(self) -> list[bytes | Overflow]:
        """The unterminated rest, if there is one; the splitter starts afresh after it."""
        line = self._finish(b"")
        return [] if line is None else [line]

    def _hold(self, piece: bytes) -> None:
        self._size_bytes += len(piece)
        if self._size_bytes > self._max_line_bytes:
            self._parts.clear()
        elif piece:
            self._parts.append(piece)

    def _finish(self, piece: bytes) -> bytes | Overflow | None:
        """The line that ends with ``piece``."""
        self._hold(piece)
        size_bytes, self._size_bytes = self._size_bytes, 0
        if size_bytes > self._max_line_bytes:
            return Overflow(size_bytes)
        line = b"".join(self._parts)
        self._parts.clear()
        return self._checked(line)

    def _checked(self, line: bytes) -> bytes | Overflow | None:
        """The line without a CR at its end, None for a blank one."""
        if len(line) > self._max_line_bytes:
            return Overflow(len(line))
        return line.removesuffix(b"\r") if line and not line.isspace() else None
