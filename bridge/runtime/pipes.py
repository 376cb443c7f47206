"""Our ends of an agent's pipes: reads that never block, a bounded stdin, the tail of stderr.

Watched with ``add_reader`` and ``add_writer`` instead of pipe transports, which differ between
loops: libuv reads one pipe up to 32 times before anybody else has a turn, and its close of a pipe
with unsent data reports ENOTSOCK.

Knows nothing of processes; its errors say what it means for the agent.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import struct
import termios
import unicodedata
from collections.abc import Collection

from bridge.errors import AgentError
from bridge.redact import redact

READ_BYTES = 256 * 1024
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BOUNDARY = re.compile(rb"\s")


def read_some(fd: int) -> bytes | None:
    """What is there, at most 256 KiB; empty at the end, None when nothing is there yet."""
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def readable_bytes(fd: int) -> int:
    """How many bytes the pipe holds."""
    answer = fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4)
    return int(struct.unpack("i", answer)[0])


class Tail:
    """The last bytes of stderr."""

    def __init__(self, max_bytes: int, secrets: Collection[str]) -> None:
        self._max = max_bytes
        self._kept = bytearray()
        self._is_cut = False
        self._secrets = tuple(secrets)

    def feed(self, data: bytes) -> None:
        """Keep ``data``, let go of what is too old."""
        self._kept += data
        if (surplus := len(self._kept) - self._max) > 0:
            del self._kept[:surplus]
            self._is_cut = True

    def text(self) -> str:
        """Readable text without keys, escape sequences and control characters."""
        kept = bytes(self._kept)
        if self._is_cut:
            # Half a key is not recognised as one: begin after the first gap between words.
            gap = _BOUNDARY.search(kept)
            kept = kept[gap.end() :] if gap else b""
        plain = _ANSI.sub("", kept.decode(errors="replace"))
        return redact("".join(c for c in plain if _is_shown(c)), self._secrets).strip()


def _is_shown(char: str) -> bool:
    return char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Zl", "Zp")


class StdinPipe:
    """Our end of the agent's stdin: takes everything at once, up to a bound."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, max_bytes: int) -> None:
        self._loop = loop
        self._fd = fd
        self._max = max_bytes
        self._waiting = bytearray()
        self._is_closing = False
        self._is_closed = False

    def write(self, data: bytes) -> None:
        """Hand over ``data`` whole or raise :class:`AgentError` and take none of it."""
        if self._is_closing or self._is_closed:
            raise AgentError("agent-exited", "The agent no longer reads what it is sent.")
        if len(self._waiting) + len(data) > self._max:
            raise AgentError(
                "agent-protocol-error",
                f"The agent does not read its input; {len(self._waiting)} bytes wait for it.",
            )
        if self._waiting:
            self._waiting += data
            return
        sent = self._send(data)
        if self._is_closed:
            raise AgentError("agent-exited", "The agent has closed its input.")
        if sent < len(data):
            self._waiting += memoryview(data)[sent:]
            self._loop.add_writer(self._fd, self._flush)

    def finish(self) -> None:
        """Close once what waits has been read; later writes are refused."""
        self._is_closing = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close now; what waits is given up."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._waiting = bytearray()

    def _flush(self) -> None:
        del self._waiting[: self._send(self._waiting)]
        if self._waiting or self._is_closed:
            return
        self._loop.remove_writer(self._fd)
        if self._is_closing:
            self.close()

    def _send(self, data: bytes | bytearray) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            return 0
