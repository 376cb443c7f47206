"""stdin and stdout as threads, so that neither a full pipe nor a file blocks the conversation.

Rules: lines are written whole and in order, gathered up to 64 KiB or until the loop has nothing
else to do. A producer that awaits ``drained`` gets at most 1 MiB ahead of the client. A client that
is gone ends the conversation like the end of input. Threads are daemons: a read that never returns
must not keep the process. Knows bytes only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import threading
from collections.abc import Callable
from typing import Final

GATHER_BYTES: Final = 64 * 1024
AHEAD_BYTES: Final = 1024 * 1024
READ_BYTES: Final = 256 * 1024


class PipeOutlet:
    """An outlet that writes to a descriptor. ``on_broken`` is called once when it is closed."""

    def __init__(self, fd: int, on_broken: Callable[[], None]) -> None:
        self._fd = fd
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._size = 0
        self._is_scheduled = False
        self._unwritten = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._write_all, name="stdout", daemon=True).start()

    def put(self, data: bytes) -> None:
        """Take whole lines."""
        self._parts.append(data)
        self._size += len(data)
        if self._size >= GATHER_BYTES:
            self._hand_over()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._hand_over_when_idle)

    async def drained(self) -> None:
        """Let others run, then wait until the client is less than 1 MiB behind."""
        await asyncio.sleep(0)
        await self._has_room.wait()

    async def flush(self) -> None:
        """Wait until everything is in the pipe."""
        self._hand_over()
        await self._is_empty.wait()

    def _hand_over_when_idle(self) -> None:
        self._is_scheduled = False
        self._hand_over()

    def _hand_over(self) -> None:
        if not self._parts:
            return
        self._unwritten += self._size
        self._is_empty.clear()
        if self._unwritten > AHEAD_BYTES:
            self._has_room.clear()
        self._queue.put(b"".join(self._parts))
        self._parts.clear()
        self._size = 0

    def _written(self, size: int) -> None:
        self._unwritten -= size
        if self._unwritten <= AHEAD_BYTES:
            self._has_room.set()
        if self._unwritten == 0:
            self._is_empty.set()

    def _write_all(self) -> None:
        is_broken = False
        # The loop is closed when the process is about to end: then nobody waits for this.
        with contextlib.suppress(RuntimeError):
            while True:
                data = self._queue.get()
                if not is_broken and not write_whole(self._fd, data):
                    is_broken = True
                    self._loop.call_soon_threadsafe(self._on_broken)
                self._loop.call_soon_threadsafe(self._written, len(data))


def write_whole(fd: int, data: bytes) -> bool:
    """Write all of ``data``, blocking; whether the other end still takes it."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            # The descriptor may be shared with somebody who made it non-blocking.
            select.select([], [fd], [])
        except OSError:
            return False
    return True


def start_reading(fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
    """Read ``fd`` in a thread; both functions are called on the running loop."""
    loop = asyncio.get_running_loop()

    def read_all() -> None:
        with contextlib.suppress(RuntimeError):
            while data := _read(fd):
                loop.call_soon_threadsafe(on_data, data)
            loop.call_soon_threadsafe(on_end)

    threading.Thread(target=read_all, name="stdin", daemon=True).start()


def _read(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, READ_BYTES)
        except BlockingIOError:
            select.select([fd], [], [])
        except OSError:
            return b""
