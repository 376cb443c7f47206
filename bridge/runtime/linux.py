"""What the operating system tells about processes, and the signals that are safe to send.

Owns the process table (``/proc``, or ``ps`` where there is none), the identity of a process and
the three ``prctl`` switches. Rules: a process is named by pid *and* start time, because a pid
alone may belong to a stranger by the time a signal arrives; children are reaped by pid, never
with ``waitpid(-1)``, which would steal the exit status of somebody else's child. Everything here
is synchronous and bounded; callers on the loop use a worker thread for scans.

Knows nothing of agents, tags' meaning or the loop. Outside Linux start times are 0 and the
switches do nothing (``False`` is returned).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

IS_LINUX = sys.platform == "linux"
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PS_LIMIT_S = 5.0
_POLL_S = 0.02
_NO_PIDFD = (errno.ENOSYS, errno.EPERM, errno.EACCES)


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that a reused pid cannot pass for: the pid and its start, in clock ticks."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table."""

    pid: int
    ppid: int
    group: int
    start_ticks: int
    is_zombie: bool

    @property
    def identity(self) -> Identity:
        """What to keep of it for later."""
        return Identity(self.pid, self.start_ticks)


def set_dumpable(is_dumpable: bool) -> bool:
    """Allow or forbid other processes of this user to read our memory and environment.

    True when it took effect. See prctl(2), ``PR_SET_DUMPABLE``.
    """
    return _prctl(_PR_SET_DUMPABLE, int(is_dumpable))


def set_child_subreaper(is_subreaper: bool) -> bool:
    """Have orphans among our descendants become our children instead of init's.

    True when it took effect. Whoever turns it on must reap them, see :class:`AdoptedReaper`.
    """
    return _prctl(_PR_SET_CHILD_SUBREAPER, int(is_subreaper))


def boot_id() -> str:
    """The id of this boot: start times count from it. Empty where it is unknown."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


def start_ticks(pid: int) -> int:
    """When ``pid`` started, in clock ticks since boot; 0 when it is gone or not to be known."""
    process = _read_stat(pid)
    return process.start_ticks if process else 0


def table() -> dict[int, Process]:
    """All processes by pid. Those that vanish meanwhile are left out."""
    if not IS_LINUX:
        return table_by_ps()
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    found = (_read_stat(pid) for pid in pids)
    return {process.pid: process for process in found if process}


def descendants(processes: Mapping[int, Process], root: int) -> set[int]:
    """The pids below ``root`` by parentage, without itself."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.ppid, []).append(process.pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        fresh = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(fresh)
        waiting += fresh
    return found - {root}


def ancestors(processes: Mapping[int, Process], pid: int) -> set[int]:
    """The pids above ``pid`` by parentage, without itself."""
    found: set[int] = set()
    at = processes.get(pid)
    while at and at.ppid not in found and at.ppid > 0:
        found.add(at.ppid)
        at = processes.get(at.ppid)
    return found


def environment_value(pid: int, name: str) -> str | None:
    """The variable ``name`` that ``pid`` was started with; None when it is not to be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            _, found, rest = (b"\0" + file.read()).partition(b"\0" + name.encode() + b"=")
    except OSError:
        return None
    return rest.partition(b"\0")[0].decode(errors="replace") if found else None


def send_signal(target: Identity, number: signal.Signals) -> bool:
    """Signal ``target`` unless its pid has passed to another.

    False when it is not there, or when nothing can be told of it for want of descriptors. Never
    signals this process, init or a process whose start time is unknown on Linux.
    """
    if target.pid in (0, 1, os.getpid()) or (IS_LINUX and not target.start_ticks):
        return False
    try:
        handle = open_pidfd(target.pid)
        try:
            # The handle is opened first: what is checked through it cannot be reused any more.
            if start_ticks(target.pid) != target.start_ticks:
                return False
            if handle is None:
                os.kill(target.pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
        finally:
            if handle is not None:
                os.close(handle)
    except OSError:
        return False
    return True


def open_pidfd(pid: int) -> int | None:
    """A handle that becomes readable when ``pid`` ends; None where the system has none.

    Raises ``ProcessLookupError`` when there is no such process and ``OSError`` (EMFILE).
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        # Kernels before 5.3 and some sandboxes.
        if error.errno in _NO_PIDFD:
            return None
        raise


def end(
    targets: Iterable[Identity], step_s: float, signals: Iterable[signal.Signals]
) -> set[Identity]:
    """Send each signal in turn to those still there, waiting at most ``step_s`` after each.

    Blocks: for a worker thread. Those that became our own children are reaped. Returns those
    that are left.
    """
    left = set(targets)
    for number in signals:
        left = {target for target in left if send_signal(target, number)}
        left = _await_ends(left, step_s)
    return left


def reap_adopted(pids: Iterable[int]) -> set[int]:
    """Collect those of ``pids`` that are our children and have ended; returns them.

    Must not be called with the pid of a child that somebody else waits for.
    """
    reaped: set[int] = set()
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                reaped.add(pid)
    return reaped


class AdoptedReaper:
    """Reaps orphans that a subreaper inherits, such as a daemon an agent left behind.

    Whose child a zombie is cannot be read from the table, so a child is taken only when it was
    already a zombie at the call before: one that is waited for is collected long before that.
    """

    def __init__(self) -> None:
        self._seen: set[Identity] = set()

    def reap(self, own: Collection[int]) -> set[int]:
        """Collect what was a zombie last time too and is not among ``own``; returns the pids."""
        me = os.getpid()
        zombies = {
            process.identity
            for process in table().values()
            if process.ppid == me and process.is_zombie and process.pid not in own
        }
        reaped = reap_adopted(zombie.pid for zombie in zombies & self._seen)
        self._seen = {zombie for zombie in zombies if zombie.pid not in reaped}
        return reaped


def _prctl(option: int, value: int) -> bool:
    if not IS_LINUX:
        return False
    library = ctypes.CDLL(None, use_errno=True)
    return int(library.prctl(option, value, 0, 0, 0)) == 0


def _read_stat(pid: int) -> Process | None:
    # Not by Path: a scan opens hundreds of these.
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read()
    except OSError:
        return None
    # The name stands in parentheses and may hold any byte, parentheses and spaces included.
    state, ppid, group, *rest = text[text.rfind(b")") + 2 :].split()
    return Process(pid, int(ppid), int(group), int(rest[16]), state in (b"Z", b"X"))


def table_by_ps() -> dict[int, Process]:
    try:
        answer = subprocess.run(
            ("/bin/ps", "-axo", "pid=,ppid=,pgid=,stat="),
            capture_output=True,
            check=False,
            timeout=_PS_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    rows = (line.split() for line in answer.stdout.decode(errors="replace").splitlines())
    return {
        int(row[0]): Process(int(row[0]), int(row[1]), int(row[2]), 0, row[3].startswith("Z"))
        for row in rows
        if len(row) >= 4
    }


def _await_ends(targets: Collection[Identity], limit_s: float) -> set[Identity]:
    """Wait until all have ended or the time is up; returns those that are left."""
    until = time.monotonic() + limit_s
    left = set(targets)
    while left and (remaining := until - time.monotonic()) > 0:
        _await_one(next(iter(left)), remaining)
        left = {target for target in left if _is_there(target)}
    reap_adopted(target.pid for target in targets)
    return {target for target in left if _is_there(target)}


def _await_one(target: Identity, limit_s: float) -> None:
    try:
        handle = open_pidfd(target.pid)
    except OSError:
        handle = None
    if handle is None:
        time.sleep(min(_POLL_S, limit_s))
        return
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        waiting.poll(limit_s * 1000)
    finally:
        os.close(handle)


def _is_there(target: Identity) -> bool:
    if not IS_LINUX:
        with contextlib.suppress(OSError):
            os.kill(target.pid, 0)
            return True
        return False
    process = _read_stat(target.pid)
    return bool(process and process.start_ticks == target.start_ticks and not process.is_zombie)
