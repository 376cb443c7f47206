"""Ending what a killed bridge left, and nothing else; the facts it rests on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import anyio
import pytest

from bridge.runtime import linux
from bridge.runtime.process import RUN_TAG
from bridge.runtime.sweep import ProcessRow, Swept, choose, new_tag, sweep
from tests.runtime.processes import LIMIT_S, end_for_good, has_ended, identity

pytestmark = pytest.mark.anyio
STATE = f"sweep{os.getpid()}"
OTHER = f"{STATE}0"
STEP_S = 0.2
ORPHAN = (
    "import os, signal, sys, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if 'deaf' in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print(os.getpid(), flush=True)\n"
    "if 'bare' in sys.argv: os.execve('/bin/sleep', ['sleep', '600'], {})\n"
    "time.sleep(600)\n"
)


class Orphans:
    """Processes whose parent has gone, as after the death of a bridge."""

    def __init__(self) -> None:
        self.made: list[linux.Identity] = []

    def make(self, tag: str, *how: str) -> int:
        command = (sys.executable, "-I", "-S", "-c", ORPHAN, *how)
        with subprocess.Popen(command, env={RUN_TAG: tag}, stdout=subprocess.PIPE) as parent:
            assert parent.stdout
            self.made.append(identity(int(parent.stdout.readline())))
        return self.made[-1].pid

    def is_alive(self, pid: int) -> bool:
        return (process := linux.table().get(pid)) is not None and not process.is_zombie


@pytest.fixture
def orphans() -> Iterator[Orphans]:
    made = Orphans()
    yield made
    end_for_good(*made.made)


def row(pid: int) -> ProcessRow:
    return ProcessRow(pid, linux.start_ticks(pid), linux.boot_id(), new_tag(STATE, "row"))


async def test_an_orphan_is_found_by_its_tag_and_one_that_ignores_sigterm_is_killed(
    orphans: Orphans,
) -> None:
    mild = orphans.make(new_tag(STATE, "a"))
    deaf = orphans.make(new_tag(STATE, "b"), "deaf")
    with anyio.fail_after(LIMIT_S):
        swept = await sweep(STATE, (), step_s=STEP_S)
        assert await has_ended(mild)
        assert await has_ended(deaf)
    tags = {mild: new_tag(STATE, "a"), deaf: new_tag(STATE, "b")}
    assert swept == tuple(Swept(pid, tags[pid], True) for pid in sorted(tags))


async def test_an_orphan_without_a_tag_is_found_by_its_row(orphans: Orphans) -> None:
    pid = orphans.make(new_tag(STATE, "a"), "bare")
    with anyio.fail_after(LIMIT_S):
        await _until_it_has_no_tag(pid)
        assert await sweep(STATE, ()) == ()
        assert await sweep(STATE, [row(pid)]) == (Swept(pid, new_tag(STATE, "row"), True),)
        assert await has_ended(pid)


async def test_processes_of_other_state_folders_are_left_alone(orphans: Orphans) -> None:
    pid = orphans.make(new_tag(OTHER, "a"))
    with anyio.fail_after(LIMIT_S):
        assert await sweep(STATE, ()) == ()
    assert orphans.is_alive(pid)


async def test_a_pid_that_has_passed_to_another_is_left_alone(orphans: Orphans) -> None:
    pid = orphans.make(new_tag(OTHER, "a"))
    true = row(pid)
    rows = [
        replace(true, start_ticks=true.start_ticks + 1),
        replace(true, start_ticks=0),
        replace(true, boot_id="another boot"),
        replace(true, boot_id=""),
        replace(true, pid=2**22 + 1),
    ]
    with anyio.fail_after(LIMIT_S):
        for stale in rows:
            assert await sweep(STATE, [stale]) == ()
    assert orphans.is_alive(pid)


def made_up(pid: int, ppid: int, *, is_zombie: bool = False) -> linux.Process:
    return linux.Process(pid, ppid, pid, pid * 10, is_zombie)


# init ── shell ── old agent ── this bridge ── probe
#      │               └─ worker
#      └─ orphan ── child, zombie                      stranger under init
TABLE = {
    process.pid: process
    for process in (
        made_up(1, 0),
        made_up(20, 1),
        made_up(30, 20),
        made_up(40, 30),
        made_up(41, 40),
        made_up(31, 30),
        made_up(50, 1),
        made_up(51, 50),
        made_up(52, 50, is_zombie=True),
        made_up(60, 1),
    )
}
ME = 40


def chosen(rows: list[int], carried: dict[int, str] | None = None) -> dict[int, str]:
    found = choose(
        TABLE,
        carried or {},
        [ProcessRow(pid, pid * 10, "boot", "s.row") for pid in rows],
        state_id="s",
        boot="boot",
        me=ME,
    )
    assert all(TABLE[target.pid].identity == target for target in found)
    return {target.pid: tag for target, tag in found.items()}


def test_rows_that_name_init_us_or_what_is_above_or_below_us_choose_nobody() -> None:
    assert chosen([0, 1, 20, 30, ME, 41]) == {}


def test_the_same_tag_on_us_above_us_and_below_us_chooses_none_of_these() -> None:
    carried = dict.fromkeys((1, 20, 30, ME, 41, 31), "s.old")
    assert chosen([], carried) == {31: "s.old"}


def test_what_descends_from_a_leftover_goes_with_it() -> None:
    assert chosen([50]) == {50: "s.row", 51: ""}
    assert chosen([], {50: "s.tag", 60: "s2.tag"}) == {50: "s.tag", 51: ""}


def test_one_that_vanished_meanwhile_is_not_chosen() -> None:
    assert chosen([70], {71: "s.gone"}) == {}


async def test_the_sweep_spares_the_bridge_s_own_children() -> None:
    with _child(new_tag(STATE, "a")) as child:
        with anyio.fail_after(LIMIT_S):
            assert await sweep(STATE, ()) == ()
        assert child.poll() is None


def test_a_signal_goes_to_the_process_that_was_meant_or_to_nobody(orphans: Orphans) -> None:
    pid = orphans.make(new_tag(OTHER, "a"))
    started = linux.start_ticks(pid)
    refused = [(pid, started + 1), (pid, 0), (2**22 + 1, 1)]
    refused += [(other, linux.start_ticks(other)) for other in (1, os.getpid())]
    for target in refused:
        # One that does no harm should the refusal ever break.
        assert not linux.send_signal(linux.Identity(*target), signal.SIGCONT)
    assert orphans.is_alive(pid)
    assert linux.send_signal(linux.Identity(pid, started), signal.SIGKILL)


def test_a_process_name_cannot_forge_its_line_of_the_table() -> None:
    code = "open('/proc/self/comm','w').write('a) Z 1 1 1 ('); print(1, flush=True); input()"
    command = (sys.executable, "-I", "-S", "-c", code)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        seen = linux.table()[child.pid]
        child.kill()
    assert (seen.ppid, seen.group, seen.is_zombie) == (os.getpid(), os.getpgrp(), False)


def test_without_proc_the_table_comes_from_ps() -> None:
    command = ("sleep", "600")
    with subprocess.Popen(command) as child:
        by_ps = linux.table_by_ps()
        child.kill()
    has_ps = os.path.exists("/bin/ps")
    assert (child.pid in by_ps) == has_ps
    assert all(process.start_ticks == 0 for process in by_ps.values())


def test_a_subreaper_collects_what_it_adopted_and_no_child_that_is_waited_for() -> None:
    """In a process of its own, since adoption is for good."""
    code = (
        "import os, subprocess\n"
        "from bridge.runtime import linux\n"
        "assert linux.set_child_subreaper(True)\n"
        "sh = 'sh -c \"exec sleep 0\" & echo $!'\n"
        "adopted = int(subprocess.run(['sh', '-c', sh], stdout=-1, check=True).stdout)\n"
        "os.waitid(os.P_PID, adopted, os.WEXITED | os.WNOWAIT)\n"
        "own = subprocess.Popen(['true'])\n"
        "os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)\n"
        "reaper = linux.AdoptedReaper()\n"
        "assert reaper.reap({own.pid}) == set()\n"
        "assert reaper.reap({own.pid}) == {adopted}\n"
        "assert reaper.reap({own.pid}) == set()\n"
        "assert linux.reap_adopted([1, adopted]) == set()\n"
        "own.wait()\n"
    )
    subprocess.run((sys.executable, "-c", code), check=True, timeout=LIMIT_S)


def test_a_process_that_is_not_dumpable_stays_so_until_it_is_told_otherwise() -> None:
    code = (
        "import ctypes\n"
        "from bridge.runtime import linux\n"
        "dumpable = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)\n"
        "assert linux.set_dumpable(False) and dumpable() == 0\n"
        "assert linux.set_dumpable(True) and dumpable() == 1\n"
    )
    subprocess.run((sys.executable, "-c", code), check=True, timeout=LIMIT_S)


@contextmanager
def _child(tag: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(("sleep", "600"), env={RUN_TAG: tag}) as child:
        try:
            yield child
        finally:
            child.kill()


async def _until_it_has_no_tag(pid: int) -> None:
    while linux.environment_value(pid, RUN_TAG) is not None:
        await anyio.lowlevel.checkpoint()
