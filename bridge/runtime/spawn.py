"""Starts agent processes: pipes, process group, death with the bridge.

Rules
- ``subprocess.Popen`` on the loop's own thread, without ``preexec_fn``: so it uses vfork, and the
  start costs about the same however big the bridge is. Loops' own subprocess support does not.
- ``setpriv --pdeathsig KILL`` stands in front where it exists: an agent must not outlive a bridge
  that is killed. The signal comes when the *thread* that spawned ends (prctl(2)), which is why no
  worker thread may do this.
- The child gets descriptors 0 to 2, its environment is exactly the plan's, and it leads a session
  and process group of its own.
- A failed start leaves nothing behind: no descriptor, no process.

Knows nothing of what is spoken over the pipes; :class:`Spawner` is the seam that tests replace.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from bridge.errors import AgentError, BridgeError, CapacityError
from bridge.runtime import linux
from bridge.runtime.process import RUN_TAG, AgentProcess, Bounds, Child, ExitStatus, Receiver

__all__ = ["AgentProcess", "ExitStatus", "LocalSpawner", "Receiver", "SpawnPlan", "Spawner"]

PIPE_BYTES = 1024 * 1024
"""Size of the stdout pipe: large reads, and the agent seldom has to wait."""
_PROBE_LIMIT_S = 5.0
_RETRY_AFTER_S = 5
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class SpawnPlan:
    """All it takes to start one agent.

    ``argv`` holds no secrets (anybody on the box can read it); its first word is looked up on
    the plan's own ``PATH``. ``tag`` names the run, for the sweep. ``secrets`` are values to mask
    in what the agent writes to stderr. Sizes are in bytes.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    tag: str
    max_stdin_bytes: int
    max_stderr_bytes: int
    secrets: tuple[str, ...] = field(default=(), repr=False)


class Spawner(Protocol):
    """Starts an agent; ``receiver`` hears of it until ``exited``.

    Raises :class:`AgentError` ``agent-unavailable`` when the command or the folder is not usable,
    :class:`CapacityError` ``at-capacity`` when the system has no descriptor or process left.
    """

    async def __call__(self, plan: SpawnPlan, receiver: Receiver) -> AgentProcess: ...


class LocalSpawner:
    """Starts agents on this machine."""

    def __init__(self, prefix: tuple[str, ...] = (), *, use_pidfd: bool = True) -> None:
        """``prefix`` is put in front of each command line; see :func:`death_signal_prefix`.

        Without pidfd (as on macOS, whatever is asked for) a thread waits for each exit.
        """
        self._prefix = prefix
        self._use_pidfd = use_pidfd

    async def __call__(self, plan: SpawnPlan, receiver: Receiver) -> AgentProcess:
        """See :class:`Spawner`. Never waits, so it cannot be cancelled half-way."""
        argv = (*self._prefix, _locate(plan), *plan.argv[1:])
        try:
            child = _start(argv, plan, self._use_pidfd)
        except OSError as error:
            raise _spawn_error(error, plan) from error
        except ValueError as error:
            # A NUL, or text that is no UTF-8, in a word, a variable or the folder.
            raise AgentError(
                "agent-unavailable", "The agent's command line or folder is not valid."
            ) from error
        return AgentProcess(
            child,
            receiver,
            tag=plan.tag,
            bounds=Bounds(plan.max_stdin_bytes, plan.max_stderr_bytes),
            secrets=plan.secrets,
        )


class Stagger:
    """Lets starts through one at a time, at least ``gap_s`` apart.

    Two Cursor agents that start together race on the rename of its config file and one fails
    (riteway#440). One gate per agent command.
    """

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._lock = anyio.Lock()
        self._free_at = 0.0

    async def wait(self) -> None:
        """Until it is the caller's turn, first come first served; cancelling passes it on."""
        async with self._lock:
            await anyio.sleep_until(self._free_at)
            self._free_at = anyio.current_time() + self._gap_s


def death_signal_prefix() -> tuple[str, ...]:
    """The words in front of a command that make it die with us; none where that cannot be.

    Runs ``setpriv`` once, because not every one (BusyBox) knows the option: call it at start,
    not while serving.
    """
    if not linux.IS_LINUX or not (setpriv := shutil.which("setpriv")):
        return ()
    prefix = (setpriv, "--pdeathsig", "KILL", "--")
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run(
            (*prefix, setpriv, "--version"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_PROBE_LIMIT_S,
        )
        return prefix if answer.returncode == 0 else ()
    return ()


def _locate(plan: SpawnPlan) -> str:
    """The absolute path of the command.

    Looked up here because ``setpriv`` would start even if what it is to run is missing. A
    relative path counts from the bridge's folder: the session's is the caller's to choose.
    """
    name = plan.argv[0]
    found = shutil.which(name, path=plan.env.get("PATH", os.defpath))
    if not found:
        raise AgentError(
            "agent-unavailable",
            f"The agent command {name!r} was not found or may not be run.",
            hint="Install the agent, or set its command in the configuration.",
        )
    return os.path.abspath(found)


def _start(argv: tuple[str, ...], plan: SpawnPlan, use_pidfd: bool) -> Child:
    """Start it; raises ``OSError`` with everything given back."""
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        stdin, our_stdin = _pipe(theirs, ours)
        our_stdout, stdout = _pipe(ours, theirs)
        our_stderr, stderr = _pipe(ours, theirs)
        _enlarge(our_stdout)
        popen = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=plan.cwd,
            env={**plan.env, RUN_TAG: plan.tag},
            close_fds=True,
            start_new_session=True,
        )
        ours.callback(_abandon, popen)
        pidfd = linux.open_pidfd(popen.pid) if use_pidfd else None
        for fd in (our_stdin, our_stdout, our_stderr):
            os.set_blocking(fd, False)
        ours.pop_all()
        return Child(popen, our_stdin, our_stdout, our_stderr, pidfd)


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    read_end, write_end = os.pipe()
    reader.callback(os.close, read_end)
    writer.callback(os.close, write_end)
    return read_end, write_end


def _enlarge(fd: int) -> None:
    # A user may have only so much in pipes (pipe(7)); a small one serves too.
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _abandon(popen: subprocess.Popen[bytes]) -> None:
    """Undo a start for which there was no descriptor left to watch it."""
    os.killpg(popen.pid, signal.SIGKILL)
    popen.wait()


def _spawn_error(error: OSError, plan: SpawnPlan) -> BridgeError:
    if error.errno in _NO_ROOM:
        return CapacityError(
            "at-capacity",
            f"The system cannot start another process: {error.strerror}.",
            retry_after_s=_RETRY_AFTER_S,
        )
    what = "The session's folder" if error.filename == plan.cwd else f"The agent {plan.argv[0]!r}"
    return AgentError("agent-unavailable", f"{what} cannot be used: {error.strerror}.")
