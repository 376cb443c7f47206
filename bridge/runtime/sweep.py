"""Ends what a bridge that was killed has left running, before anything is revived.

Rules: a process is taken only when it is surely ours. Either a row names its pid, start time and
boot, or it carries a run tag of this state folder in its environment; what descends from such a
process goes with it. Never this process, init, what is above us (a bridge may be started by an
agent of the one before it) or below us. Each is signalled by pid and start time.

Run tags are ``<state id>.<session part>``: the part before the dot names the state folder. Where
neither start times nor environments can be read (outside Linux) nothing is ended.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anyio import CancelScope, to_thread

from bridge.runtime import linux
from bridge.runtime.process import RUN_TAG

STEP_S = 2.0


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process as the tables remember it; start in clock ticks since that boot."""

    pid: int
    start_ticks: int
    boot_id: str
    tag: str


@dataclass(frozen=True, slots=True)
class Swept:
    """A process that was found. ``tag`` is empty for a descendant that carries none."""

    pid: int
    tag: str
    is_ended: bool


async def sweep(
    state_id: str, rows: Iterable[ProcessRow], *, step_s: float = STEP_S
) -> tuple[Swept, ...]:
    """End the leftovers of this state folder: SIGTERM, ``step_s`` seconds, then SIGKILL.

    Takes at most two steps, cancelled or not. Returns what was found, by pid.
    """
    found: tuple[Swept, ...] = ()
    with CancelScope(shield=True):
        found = await to_thread.run_sync(_sweep, state_id, tuple(rows), step_s)
    return found


def new_tag(state_id: str, part: str) -> str:
    """The run tag of one session's agent; neither part may hold a dot."""
    return f"{state_id}.{part}"


def choose(
    processes: Mapping[int, linux.Process],
    carried: Mapping[int, str],
    rows: Iterable[ProcessRow],
    *,
    state_id: str,
    boot: str,
    me: int,
) -> dict[linux.Identity, str]:
    """Whom to end, with the tag of each; decides only, signals nobody.

    ``carried`` are the run tags found in environments, by pid. What is kept never counts as a
    root either: all that runs descends from init.
    """
    kept = {0, 1, me} | linux.ancestors(processes, me) | linux.descendants(processes, me)
    named = _by_row(processes, rows, boot)
    tagged = {pid: tag for pid, tag in carried.items() if tag.partition(".")[0] == state_id}
    tags = {pid: tag for pid, tag in (named | tagged).items() if pid not in kept}
    for root in list(tags):
        for pid in linux.descendants(processes, root) - kept:
            tags.setdefault(pid, "")
    return {
        processes[pid].identity: tag
        for pid, tag in tags.items()
        if pid in processes and not processes[pid].is_zombie
    }


def _sweep(state_id: str, rows: tuple[ProcessRow, ...], step_s: float) -> tuple[Swept, ...]:
    processes = linux.table()
    carried = {
        pid: tag for pid in processes if (tag := linux.environment_value(pid, RUN_TAG)) is not None
    }
    targets = choose(
        processes, carried, rows, state_id=state_id, boot=linux.boot_id(), me=os.getpid()
    )
    left = linux.end(targets, step_s, (signal.SIGTERM, signal.SIGKILL))
    return tuple(
        Swept(target.pid, targets[target], target not in left)
        for target in sorted(targets, key=lambda target: target.pid)
    )


def _by_row(
    processes: Mapping[int, linux.Process], rows: Iterable[ProcessRow], boot: str
) -> dict[int, str]:
    return {
        row.pid: row.tag
        for row in rows
        if boot
        and row.boot_id == boot
        and row.start_ticks
        and (process := processes.get(row.pid))
        and process.start_ticks == row.start_ticks
    }
