"""One agent process: its three pipes, its exit, and a stop that leaves nothing behind.

Rules
- Nothing here blocks the loop. A write goes to the pipe at once as far as it fits, the rest waits
  in a bounded buffer; stdout is read only while it is not paused; stderr is always drained, since
  an agent that cannot write there stands still.
- The exit status decides, not the end of stdout: a grandchild may hold stdout open for hours.
  After the exit all that the agent itself wrote is delivered, then ``exited`` is called, last and
  exactly once.
- A pid is signalled only while it cannot have passed to another process: the agent is reaped
  after its group has been signalled, descendants are named by pid and start time.
- Whoever spawns a process calls ``stop`` in the end, also after ``exited``: descendants that left
  the group outlive the agent otherwise.

Knows nothing of JSON-RPC, sessions or what the bytes mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from anyio import CancelScope, to_thread

from bridge.errors import AgentError
from bridge.runtime import linux
from bridge.runtime.pipes import StdinPipe, Tail, read_some, readable_bytes

logger = logging.getLogger(__name__)

RUN_TAG = "CURSOR_BRIDGE_RUN"
"""The variable by which an agent's descendants are recognised."""
AFTER_EXIT_S = 0.5
"""How long a grandchild may go on writing to the stdout of an agent that has ended."""
KILL_STEP_S = 2.0


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended: an exit code, or the name of the signal (``SIGKILL``).

    Both are None when it could not be ended (a process stuck in the kernel). ``stderr_tail`` is
    redacted and safe to show.
    """

    code: int | None
    signal: str | None
    stderr_tail: str = ""


class Receiver(Protocol):
    """Who hears what a process does; called on the loop, in this order, never concurrently."""

    def output_received(self, data: bytes) -> None:
        """At most 256 KiB from stdout, cut anywhere."""

    def output_ended(self) -> None:
        """Nothing more comes from stdout; once, before ``exited``. The agent may live on."""

    def exited(self, status: ExitStatus) -> None:
        """The process has ended and was reaped; once, the last call."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process just started, with our ends of its pipes (not blocking)."""

    popen: subprocess.Popen[bytes]
    stdin: int
    stdout: int
    stderr: int
    pidfd: int | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may wait for stdin, and how much of stderr is kept, in bytes."""

    stdin_bytes: int
    stderr_bytes: int


@dataclass(slots=True)
class _Phase:
    """How far the end has come."""

    status: ExitStatus | None = None
    is_output_over: bool = False
    is_paused: bool = False
    finish_timer: asyncio.TimerHandle | None = None
    stopping: anyio.Event | None = None
    gone: anyio.Event = field(default_factory=anyio.Event)


class AgentProcess:
    """A running agent; made by a spawner, on the loop."""

    def __init__(
        self,
        child: Child,
        receiver: Receiver,
        *,
        tag: str,
        bounds: Bounds,
        secrets: Collection[str] = (),
    ) -> None:
        self.pid = child.popen.pid
        self.started_at = time.time()
        """Seconds since the epoch."""
        self.start_ticks = linux.start_ticks(self.pid)
        """Start in clock ticks since boot, 0 where it is unknown."""
        self.tag = tag
        self.exit: ExitStatus | None = None
        """Set before ``exited`` is called."""
        self._child = child
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._stdin = StdinPipe(self._loop, child.stdin, bounds.stdin_bytes)
        self._tail = Tail(bounds.stderr_bytes, secrets)
        self._phase = _Phase()
        self._watch()

    def __repr__(self) -> str:
        state = "alive" if self.is_alive else f"exited {self.exit}"
        return f"<AgentProcess {self.pid} {state}>"

    @property
    def is_alive(self) -> bool:
        """Whether no exit has been noticed yet."""
        return self._phase.status is None

    @property
    def stderr_tail(self) -> str:
        """The last of stderr, redacted, without control characters."""
        return self._tail.text()

    def write(self, data: bytes) -> None:
        """Send ``data`` to stdin; never blocks.

        Raises :class:`AgentError`: ``agent-exited`` when the agent has ended or closed its stdin,
        ``agent-protocol-error`` when more than the bound would wait unread (nothing is sent).
        """
        if not self.is_alive:
            raise AgentError("agent-exited", "The agent process has ended.")
        self._stdin.write(data)

    def pause(self) -> None:
        """Read no more of stdout, so that the agent has to wait; idempotent.

        What the agent had written when it ended is delivered in spite of it: at most a pipe full.
        """
        if not self._phase.is_paused:
            self._phase.is_paused = True
            self._loop.remove_reader(self._child.stdout)

    def resume(self) -> None:
        """Read stdout again; idempotent."""
        if self._phase.is_paused:
            self._phase.is_paused = False
            if not self._phase.is_output_over:
                self._loop.add_reader(self._child.stdout, self._read_output)

    async def wait(self) -> ExitStatus:
        """Until ``exited`` has been called."""
        await self._phase.gone.wait()
        return self.exit or self._unended()

    async def stop(self, step_s: float) -> ExitStatus:
        """End the agent and all its descendants, gently first; the same for every caller.

        Closes stdin, then sends SIGTERM, then SIGKILL to the group, each with ``step_s`` seconds
        to take effect, then the same to descendants that are left. Takes at most six steps; a
        cancelled caller still sees it through. Also to be called after the agent has exited.
        """
        return await self._end(step_s, is_gentle=True)

    async def kill(self) -> ExitStatus:
        """End the agent and all its descendants at once; hurries a ``stop`` that is under way."""
        if self._phase.stopping:
            self._signal_group(signal.SIGKILL)
        return await self._end(KILL_STEP_S, is_gentle=False)

    async def _end(self, step_s: float, *, is_gentle: bool) -> ExitStatus:
        if stopping := self._phase.stopping:
            await stopping.wait()
            return self.exit or self._unended()
        self._phase.stopping = stopping = anyio.Event()
        try:
            with CancelScope(shield=True):
                await self._take_steps(step_s, is_gentle=is_gentle)
        finally:
            stopping.set()
        return self.exit or self._unended()

    async def _take_steps(self, step_s: float, *, is_gentle: bool) -> None:
        # Looked for before each signal: parentage is lost with the parent.
        family = await self._family()
        if is_gentle:
            self._stdin.finish()
            if not await self._is_gone_within(step_s):
                family |= await self._family()
                self._signal_group(signal.SIGTERM)
                await self._is_gone_within(step_s)
                family |= await self._family()
        self._signal_group(signal.SIGKILL)
        self._stdin.close()
        # Before the wait, because one of these may be what keeps stdout open.
        signals = (signal.SIGTERM, signal.SIGKILL) if is_gentle else (signal.SIGKILL,)
        await to_thread.run_sync(linux.end, family, step_s, signals)
        await self._is_gone_within(step_s)
        left = await self._family()
        await to_thread.run_sync(linux.end, left, step_s, (signal.SIGKILL,))

    @property
    def _identity(self) -> linux.Identity:
        return linux.Identity(self.pid, self.start_ticks)

    async def _family(self) -> set[linux.Identity]:
        """What is below it; nothing while there is no descriptor to look with.

        The group is signalled all the same, and what that gives back lets the last look succeed.
        """
        try:
            return await to_thread.run_sync(find_family, self._identity, self.tag)
        except OSError as error:
            logger.error("the descendants of an agent cannot be looked for: %s", error)
            return set()

    async def _is_gone_within(self, limit_s: float) -> bool:
        with anyio.move_on_after(limit_s):
            await self._phase.gone.wait()
        return self._phase.gone.is_set()

    def _unended(self) -> ExitStatus:
        return ExitStatus(None, None, self.stderr_tail)

    def _signal_group(self, number: signal.Signals) -> None:
        if self.exit is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _watch(self) -> None:
        self._loop.add_reader(self._child.stdout, self._read_output)
        self._loop.add_reader(self._child.stderr, self._read_stderr)
        if self._child.pidfd is not None:
            self._loop.add_reader(self._child.pidfd, self._exit_noticed)
            return
        thread = threading.Thread(target=self._await_exit, name=f"exit-{self.pid}", daemon=True)
        thread.start()

    def _await_exit(self) -> None:
        """In a thread of its own, where no pidfd tells of the exit."""
        self._child.popen.wait()
        # The loop may be closed already.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._exit_noticed)

    def _read_output(self) -> None:
        data = read_some(self._child.stdout)
        if data:
            self._tell(self._receiver.output_received, data)
        elif data is not None:
            self._end_output()

    def _end_output(self) -> None:
        if not self._phase.is_output_over:
            self._phase.is_output_over = True
            self._loop.remove_reader(self._child.stdout)
            self._tell(self._receiver.output_ended)
        if not self.is_alive:
            self._finish()

    def _read_stderr(self) -> None:
        data = read_some(self._child.stderr)
        if data:
            self._tail.feed(data)
        elif data is not None:
            self._loop.remove_reader(self._child.stderr)

    def _exit_noticed(self) -> None:
        if self._child.pidfd is not None:
            self._loop.remove_reader(self._child.pidfd)
        self._phase.status = self._read_status()
        self._stdin.close()
        # The timer first: the end of stdout, found in the next line, takes it back.
        self._phase.finish_timer = self._loop.call_later(AFTER_EXIT_S, self._finish)
        self._read_what_is_left()

    def _read_status(self) -> ExitStatus:
        """The status without reaping where that can be, so that the pid stays taken."""
        popen = self._child.popen
        if popen.returncode is None:
            result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            if result and result.si_code == os.CLD_EXITED:
                return ExitStatus(result.si_status, None)
            return ExitStatus(None, _signal_name(result.si_status if result else 0))
        if popen.returncode < 0:
            return ExitStatus(None, _signal_name(-popen.returncode))
        return ExitStatus(popen.returncode, None)

    def _read_what_is_left(self) -> None:
        """Deliver all that the agent left in the pipes; a grandchild may go on writing."""
        left = readable_bytes(self._child.stderr)
        while left > 0 and (data := read_some(self._child.stderr)):
            self._tail.feed(data)
            left -= len(data)
        left = readable_bytes(self._child.stdout)
        while left > 0 and (data := read_some(self._child.stdout)):
            self._tell(self._receiver.output_received, data)
            left -= len(data)
        if self._phase.is_output_over:
            self._finish()
        else:
            self._read_output()

    def _finish(self) -> None:
        if self.exit is not None or not self._phase.status:
            return
        if self._phase.finish_timer:
            self._phase.finish_timer.cancel()
        self._signal_group(signal.SIGTERM)
        status = self._phase.status
        self.exit = ExitStatus(status.code, status.signal, self.stderr_tail)
        self._child.popen.wait()
        self._end_output()
        self._loop.remove_reader(self._child.stderr)
        for fd in (self._child.stdout, self._child.stderr, self._child.pidfd):
            if fd is not None:
                os.close(fd)
        self._tell(self._receiver.exited, self.exit)
        self._phase.gone.set()

    def _tell(self, call: Callable[..., None], *args: object) -> None:
        """A receiver that fails must not keep the exit from being told."""
        try:
            call(*args)
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": f"receiver of {self!r} failed", "exception": error}
            )


def find_family(agent: linux.Identity, tag: str) -> set[linux.Identity]:
    """The descendants of an agent: by the tag, and by parentage and group until it is reaped.

    Scans the process table: for a worker thread. Zombies of the agent's group that were left to
    us are among them, to be reaped.
    """
    processes = linux.table()
    me = os.getpid()
    leader = processes.get(agent.pid)
    is_unreaped = leader is not None and leader.identity == agent
    below = linux.descendants(processes, agent.pid) if is_unreaped else set()
    return {
        process.identity
        for process in processes.values()
        if process.pid not in (agent.pid, me)
        and (
            process.pid in below
            or (process.group == agent.pid and (is_unreaped or _is_left_to(me, process)))
            or linux.environment_value(process.pid, RUN_TAG) == tag
        )
    }


def _is_left_to(me: int, process: linux.Process) -> bool:
    """Once the agent is reaped its group's number may be taken by others, but not as our child."""
    return process.is_zombie and process.ppid == me


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
