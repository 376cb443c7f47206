"""Small real processes and a receiver that remembers, for the tests of this folder."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from bridge.runtime import linux
from bridge.runtime.spawn import ExitStatus, SpawnPlan

LIMIT_S = 20
TAG = f"teststate{os.getpid()}.one"
"""Of this test process alone: a stop ends all that carries its tag."""
Event = bytes | str | ExitStatus


class Recorder:
    """Keeps what it is told and wakes those who wait for it."""

    def __init__(self, on_output: Callable[[bytes], None] | None = None) -> None:
        self.events: list[Event] = []
        self.received_bytes = 0
        self._on_output = on_output
        self._changed = anyio.Event()

    @property
    def output(self) -> bytes:
        return b"".join(event for event in self.events if isinstance(event, bytes))

    def output_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        if self._on_output:
            self._on_output(data)
        else:
            self.events.append(data)
        self._change()

    def output_ended(self) -> None:
        self.events.append("output ended")
        self._change()

    def exited(self, status: ExitStatus) -> None:
        self.events.append(status)
        self._change()

    async def until(self, is_met: Callable[[], bool]) -> None:
        while not is_met():
            await self._changed.wait()

    async def line(self) -> str:
        """The first line of the output."""
        await self.until(lambda: b"\n" in self.output)
        return self.output.decode().partition("\n")[0]

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def python(code: str, *args: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-u", "-c", code, *args)


def plan(
    *argv: str,
    cwd: str = "/",
    env: Mapping[str, str] | None = None,
    tag: str = TAG,
    max_stdin_bytes: int = 1024 * 1024,
    max_stderr_bytes: int = 4096,
    secrets: tuple[str, ...] = (),
) -> SpawnPlan:
    return SpawnPlan(
        argv=argv,
        cwd=cwd,
        env={"PATH": os.environ["PATH"]} if env is None else env,
        tag=tag,
        max_stdin_bytes=max_stdin_bytes,
        max_stderr_bytes=max_stderr_bytes,
        secrets=secrets,
    )


def open_fds() -> set[str]:
    """Descriptors of this process; the one of the listing itself has gone again."""
    fds = set(os.listdir("/proc/self/fd"))
    return {fd for fd in fds if os.path.exists(f"/proc/self/fd/{fd}")}


async def has_ended(pid: int) -> bool:
    """Wait, within the tests' limit, until ``pid`` (anybody's child) is no longer running."""
    return await to_thread.run_sync(_await_end, pid)


def _await_end(pid: int) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ready, _, _ = select.select([handle], [], [], LIMIT_S)
    finally:
        os.close(handle)
    return bool(ready)


async def told(fifo: Path) -> str:
    """What is written to ``fifo`` until its writer closes it."""
    return await to_thread.run_sync(fifo.read_text, abandon_on_cancel=True)


def identity(pid: int) -> linux.Identity:
    return linux.Identity(pid, linux.start_ticks(pid))


def end_for_good(*started: linux.Identity) -> None:
    """Clean up after a test that failed half-way; spares pids that were reused."""
    for one in started:
        linux.send_signal(one, signal.SIGKILL)


@contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """Leave room for ``count`` more descriptors, by the limit of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    filler: list[int] = []
    highest = max(int(fd) for fd in open_fds())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + count, hard))
    try:
        # Descriptors below the highest one are free too; take them.
        while (fd := os.dup(0)) < highest:
            filler.append(fd)
        os.close(fd)
    except OSError:
        assert count == 0
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in filler:
            os.close(fd)
