"""Starting agents: what a child gets, what a failed start leaves, and dying with the bridge."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from bridge.errors import AgentError, BridgeError, CapacityError
from bridge.runtime import linux
from bridge.runtime.process import RUN_TAG
from bridge.runtime.spawn import LocalSpawner, SpawnPlan, Stagger, death_signal_prefix
from tests.runtime.processes import (
    LIMIT_S,
    TAG,
    Recorder,
    end_for_good,
    free_descriptors,
    has_ended,
    identity,
    open_fds,
    plan,
    python,
)

pytestmark = pytest.mark.anyio
STEP_S = 5.0
DETAILS = (
    "import os\n"
    "fds = sorted(int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) < 3 or\n"
    "             os.path.exists('/proc/self/fd/' + fd))\n"
    "print(fds, os.getpid() == os.getsid(0) == os.getpgrp(), os.getcwd(), os.environ)\n"
)
BRIDGE = (
    "import anyio, sys\n"
    "from bridge.runtime.spawn import LocalSpawner, SpawnPlan, death_signal_prefix\n"
    "class Deaf:\n"
    "    def output_received(self, data): pass\n"
    "    def output_ended(self): pass\n"
    "    def exited(self, status): pass\n"
    "async def main():\n"
    "    plan = SpawnPlan(('sleep', '600'), '/', {}, sys.argv[1], 1, 1)\n"
    "    process = await LocalSpawner(death_signal_prefix())(plan, Deaf())\n"
    "    print(process.pid, flush=True)\n"
    "    await process.wait()\n"
    "anyio.run(main, backend_options={'use_uvloop': True})\n"
)


async def test_a_child_gets_three_descriptors_its_own_session_and_the_plan_s_environment(
    tmp_path: Path,
) -> None:
    heard = Recorder()
    inherited = os.dup2(1, os.dup(1), inheritable=True)
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner(death_signal_prefix())(
            plan(*python(DETAILS), cwd=str(tmp_path), env={"A": "1"}), heard
        )
        await process.wait()
        await process.stop(STEP_S)
    os.close(inherited)
    expected = f"[0, 1, 2] True {tmp_path} environ({ {'A': '1', RUN_TAG: TAG} })"
    assert heard.output.decode().replace(", 'LC_CTYPE': 'C.UTF-8'", "").strip() == expected


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (plan("no-such-agent"), "not found"),
        (plan("/etc/passwd"), "not found"),
        (plan("/"), "not found"),
        (plan("cat", cwd="/no/such/folder"), "folder cannot be used: No such file"),
        (plan("cat", cwd="/etc/passwd"), "folder cannot be used: Not a directory"),
        (plan("cat", cwd="/tmp\0"), "not valid"),
        (plan("cat", "\ud83d"), "not valid"),
        (plan("cat", "x" * 5_000_000), "Argument list too long"),
    ],
    ids=["missing", "no program", "a folder", "cwd gone", "cwd a file", "nul", "no text", "long"],
)
async def test_a_start_that_cannot_be_says_why_and_leaves_nothing(
    bad: SpawnPlan, said: str
) -> None:
    spawn = LocalSpawner(death_signal_prefix())
    before = open_fds()
    with pytest.raises(AgentError, match=said) as refused:
        await spawn(bad, Recorder())
    assert refused.value.code == "agent-unavailable"
    assert (open_fds(), _children()) == (before, set())


async def test_without_descriptors_a_start_is_refused_for_want_of_room_and_leaves_nothing() -> None:
    spawn = LocalSpawner()
    before = open_fds()
    errors: list[BridgeError] = []
    with anyio.fail_after(LIMIT_S):
        for free in range(20):
            with free_descriptors(free):
                try:
                    process = await spawn(plan("cat"), Recorder())
                except BridgeError as error:
                    errors.append(error)
                    continue
            await process.stop(STEP_S)
            break
    assert len(errors) >= 7, "each pipe, the start itself and the pidfd were refused once"
    assert {(type(error), error.code) for error in errors} == {(CapacityError, "at-capacity")}
    assert (open_fds(), _children()) == (before, set())


async def test_an_agent_is_gone_when_its_bridge_is_killed() -> None:
    with _bridge() as bridge:
        assert bridge.stdout
        agent = identity(int(bridge.stdout.readline()))
        try:
            assert agent.start_ticks > 0
            bridge.kill()
            with anyio.fail_after(LIMIT_S):
                assert await has_ended(agent.pid)
        finally:
            end_for_good(agent)
    assert bridge.returncode == -signal.SIGKILL


@contextmanager
def _bridge() -> Iterator[subprocess.Popen[bytes]]:
    """A process that starts an agent, says its pid and waits for it."""
    with subprocess.Popen((sys.executable, "-c", BRIDGE, TAG), stdout=subprocess.PIPE) as bridge:
        try:
            yield bridge
        finally:
            bridge.kill()


async def test_starts_are_let_through_in_order_and_apart() -> None:
    gate = Stagger(0.02)
    passed: list[tuple[int, float]] = []

    async def start(number: int) -> None:
        await gate.wait()
        passed.append((number, anyio.current_time()))

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(start, number)
    assert [number for number, _ in passed] == [0, 1, 2, 3]
    times = [moment for _, moment in passed]
    assert all(later - sooner >= 0.02 for sooner, later in pairwise(times))


async def test_a_start_that_is_given_up_passes_its_turn_on() -> None:
    gate = Stagger(0.05)
    with anyio.fail_after(LIMIT_S):
        await gate.wait()
        first = anyio.current_time()
        with anyio.move_on_after(0) as given_up:
            await gate.wait()
        await gate.wait()
    assert given_up.cancelled_caught
    assert 0.04 < anyio.current_time() - first < LIMIT_S


def _children() -> set[int]:
    me = os.getpid()
    return {process.pid for process in linux.table().values() if process.ppid == me}
