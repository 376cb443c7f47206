"""A running agent: its output, its input, its exit and its stop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge.errors import AgentError
from bridge.runtime import linux
from bridge.runtime.process import find_family
from bridge.runtime.spawn import ExitStatus, LocalSpawner
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
    told,
)

pytestmark = pytest.mark.anyio
STEP_S = 5.0
SHORT_STEP_S = 0.1
WAITS = "import sys; print('ready'); sys.stdin.read()"
DEAF = (
    "import os, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "pid = os.fork()\n"
    "if pid: print(pid)\n"
    "while True: time.sleep(60)\n"
)
ESCAPES = (
    "import os, sys, time\n"
    "pid = os.fork()\n"
    "if pid == 0:\n"
    "    os.setsid()\n"
    "    if 'no-environment' in sys.argv:\n"
    "        os.execve('/bin/sleep', ['sleep', '600'], {})\n"
    "    if 'orphan' in sys.argv and (inner := os.fork()):\n"
    "        print(inner)\n"
    "        os._exit(0)\n"
    "    time.sleep(600)\n"
    "if 'orphan' in sys.argv: os.waitpid(pid, 0)\n"
    "else: print(pid)\n"
    "if 'leave' not in sys.argv: sys.stdin.read()\n"
)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture(params=[True, False], ids=["pidfd", "thread"])
def spawn(request: pytest.FixtureRequest) -> LocalSpawner:
    return LocalSpawner(use_pidfd=request.param)


async def test_output_is_delivered_before_the_exit_and_the_exit_comes_once(
    spawn: LocalSpawner,
) -> None:
    heard = Recorder()
    with anyio.fail_after(LIMIT_S):
        process = await spawn(plan("sh", "-c", "printf abc; printf oops >&2; exit 3"), heard)
        status = await process.wait()
    assert status == ExitStatus(3, None, "oops")
    assert (heard.output, heard.events[-2:]) == (b"abc", ["output ended", status])
    assert heard.events.count(status) == 1
    assert (process.exit, process.is_alive) == (status, False)
    await process.stop(STEP_S)


async def test_a_death_by_signal_is_named(spawn: LocalSpawner) -> None:
    with anyio.fail_after(LIMIT_S):
        process = await spawn(plan("sh", "-c", "kill -9 $$"), Recorder())
        status = await process.wait()
        await process.stop(STEP_S)
    assert (status.code, status.signal) == (None, "SIGKILL")


async def test_input_reaches_the_agent_whole_and_in_order(spawn: LocalSpawner) -> None:
    heard = Recorder()
    sent = [bytes([65 + n % 26]) * 10_000 for n in range(100)]
    with anyio.fail_after(LIMIT_S):
        process = await spawn(plan("cat"), heard)
        for part in sent:
            process.write(part)
        await heard.until(lambda: heard.received_bytes == 1_000_000)
        await process.stop(STEP_S)
    assert heard.output == b"".join(sent)


async def test_what_was_written_before_a_stop_is_still_read(spawn: LocalSpawner) -> None:
    heard = Recorder()
    with anyio.fail_after(LIMIT_S):
        process = await spawn(plan("cat"), heard)
        process.write(b"x" * 900_000)
        status = await process.stop(STEP_S)
    assert (status.code, len(heard.output)) == (0, 900_000)


async def test_an_agent_that_reads_nothing_meets_a_bound() -> None:
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(plan("sleep", "600", max_stdin_bytes=100_000), Recorder())
        with pytest.raises(AgentError) as refused:
            for _ in range(10):
                process.write(b"x" * 50_000)
        await process.kill()
    assert refused.value.code == "agent-protocol-error"


async def test_a_write_after_the_end_says_that_the_agent_has_exited() -> None:
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(plan("true"), Recorder())
        await process.wait()
        with pytest.raises(AgentError) as refused:
            process.write(b"x")
        await process.stop(STEP_S)
    assert refused.value.code == "agent-exited"


async def test_a_write_to_an_agent_that_closed_its_input_says_so() -> None:
    heard = Recorder()
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(
            plan("sh", "-c", "exec <&-; echo closed; exec sleep 600"), heard
        )
        await heard.line()
        with pytest.raises(AgentError) as refused:
            process.write(b"x")
        with pytest.raises(AgentError):
            process.write(b"x")
        await process.kill()
    assert refused.value.code == "agent-exited"


async def test_a_paused_agent_has_to_wait_and_loses_nothing(tmp_path: Path) -> None:
    """The agent itself says how much it could write before its stdout was full."""
    fifo = tmp_path / "full"
    os.mkfifo(fifo)
    code = (
        "import os, sys\n"
        "os.set_blocking(1, False)\n"
        "written = 0\n"
        "try:\n"
        "    while True: written += os.write(1, b'x' * 65536)\n"
        "except BlockingIOError: pass\n"
        "open(sys.argv[1], 'w').write(str(written))\n"
        "os.set_blocking(1, True)\n"
        "os.write(1, b'y' * 3_000_000)\n"
    )
    heard = Recorder()
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(plan(*python(code, str(fifo))), heard)
        process.pause()
        process.pause()
        written = int(await told(fifo))
        assert (heard.received_bytes, written <= 2 * 1024 * 1024) == (0, True)
        process.resume()
        process.resume()
        await process.wait()
        await process.stop(STEP_S)
    assert heard.output == b"x" * written + b"y" * 3_000_000
    assert max(len(event) for event in heard.events if isinstance(event, bytes)) <= 256 * 1024


async def test_what_an_agent_left_when_it_ended_is_delivered_though_it_is_paused() -> None:
    heard = Recorder()
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(plan("sh", "-c", "head -c 60000 /dev/zero"), heard)
        process.pause()
        await process.wait()
        process.resume()
        await process.stop(STEP_S)
    assert len(heard.output) == 60_000


async def test_a_flood_on_stdout_leaves_memory_flat() -> None:
    process = None

    def take(_: bytes) -> None:
        assert process is not None
        process.pause()
        process.resume()

    heard = Recorder(take)
    before = _resident_bytes()
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(plan("head", "-c", "200000000", "/dev/zero"), heard)
        await process.wait()
        await process.stop(STEP_S)
    assert heard.received_bytes == 200_000_000
    assert _resident_bytes() - before < 16_000_000


async def test_a_flood_on_stderr_blocks_nobody_and_only_its_end_is_kept() -> None:
    heard = Recorder()
    script = "head -c 100000000 /dev/zero | tr '\\0' e >&2; echo last words >&2; echo out"
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(plan("sh", "-c", script, max_stderr_bytes=1000), heard)
        status = await process.wait()
        await process.stop(STEP_S)
    assert (heard.output, status.stderr_tail) == (b"out\n", "words")


async def test_the_stderr_tail_is_readable_and_holds_no_key() -> None:
    said = "\\033[31mred\\033[0m \\007bell \\342\\200\\256rtl \\377 key=sk-abcdefghijkl hush-hush"
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(
            plan("sh", "-c", f"printf '{said}' >&2", secrets=("hush-hush",)), Recorder()
        )
        status = await process.wait()
        await process.stop(STEP_S)
    assert status.stderr_tail == "red bell rtl \ufffd key=[redacted] [redacted]"
    assert process.stderr_tail == status.stderr_tail


async def test_an_agent_that_closes_stdout_is_reported_and_lives_on() -> None:
    heard = Recorder()
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(plan("sh", "-c", "exec >&-; exec sleep 600"), heard)
        await heard.until(lambda: bool(heard.events))
        assert (heard.events, process.is_alive) == (["output ended"], True)
        process.resume()
        await process.kill()
    assert heard.events == ["output ended", process.exit]


async def test_a_grandchild_that_holds_stdout_open_does_not_hold_up_the_exit(
    spawn: LocalSpawner,
) -> None:
    heard = Recorder()
    script = "trap '' TERM; sleep 600 & echo $!"
    with anyio.fail_after(LIMIT_S):
        process = await spawn(plan("sh", "-c", script), heard)
        status = await process.wait()
        assert (status.code, heard.events[-2:]) == (0, ["output ended", status])
        await process.stop(SHORT_STEP_S)
        assert await has_ended(int(await heard.line()))


async def test_closing_stdin_is_enough_for_an_agent_that_behaves(spawn: LocalSpawner) -> None:
    heard = Recorder()
    with anyio.fail_after(LIMIT_S):
        process = await spawn(plan(*python(WAITS)), heard)
        await heard.line()
        status = await process.stop(STEP_S)
    assert (status.code, status.signal) == (0, None)


async def test_sigterm_ends_an_agent_that_does_not_mind_its_stdin() -> None:
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(plan("sleep", "600"), Recorder())
        status = await process.stop(SHORT_STEP_S)
    assert status.signal == "SIGTERM"


async def test_a_group_that_ignores_sigterm_is_killed(spawn: LocalSpawner) -> None:
    heard = Recorder()
    with anyio.fail_after(LIMIT_S):
        process = await spawn(plan(*python(DEAF)), heard)
        child = int(await heard.line())
        status = await process.stop(SHORT_STEP_S)
        assert status.signal == "SIGKILL"
        assert await has_ended(child)


@pytest.mark.parametrize("how", ["plain", "no-environment", "orphan", "leave"])
@pytest.mark.parametrize("is_gentle", [True, False], ids=["stop", "kill"])
async def test_a_descendant_in_a_session_of_its_own_goes_too(how: str, is_gentle: bool) -> None:
    """By parentage when it has no tag, by the tag when it was orphaned or the agent is gone."""
    heard = Recorder()
    escaped: list[linux.Identity] = []
    try:
        with anyio.fail_after(LIMIT_S):
            process = await LocalSpawner()(plan(*python(ESCAPES, how)), heard)
            pid = int(await heard.line())
            escaped.append(identity(pid))
            if how == "leave":
                await process.wait()
            await (process.stop(STEP_S) if is_gentle else process.kill())
            assert await has_ended(pid)
    finally:
        end_for_good(*escaped)
    assert find_family(linux.Identity(process.pid, process.start_ticks), TAG) == set()


async def test_concurrent_stops_share_one_and_a_kill_hurries_it() -> None:
    heard = Recorder()
    statuses: list[ExitStatus] = []
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(plan(*python(DEAF)), heard)
        await heard.line()

        async def end(how: Callable[[], Any]) -> None:
            statuses.append(await how())

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(end, lambda: process.stop(10 * LIMIT_S))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(end, process.kill)
        assert await process.stop(STEP_S) == process.exit
    assert statuses == [process.exit] * 4
    assert process.exit and process.exit.signal == "SIGKILL"


async def test_an_agent_is_ended_though_there_is_no_descriptor_left() -> None:
    heard = Recorder()
    escaped: list[linux.Identity] = []
    try:
        with anyio.fail_after(LIMIT_S):
            process = await LocalSpawner()(plan(*python(ESCAPES, "leave")), heard)
            pid = int(await heard.line())
            escaped.append(identity(pid))
            deaf = await LocalSpawner()(plan(*python(DEAF), tag=f"{TAG}2"), heard_too := Recorder())
            await heard_too.line()
            # A thread that is started while nothing can be opened would not come back.
            await process.wait()
            with free_descriptors(0):
                status = await deaf.stop(SHORT_STEP_S)
                await process.stop(SHORT_STEP_S)
            assert status.signal == "SIGKILL"
            assert await has_ended(pid)
    finally:
        end_for_good(*escaped)


async def test_a_cancelled_stop_is_seen_through() -> None:
    heard = Recorder()
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(plan(*python(DEAF)), heard)
        child = int(await heard.line())
        with anyio.CancelScope() as scope:
            scope.cancel()
            await process.stop(SHORT_STEP_S)
        assert (process.is_alive, await has_ended(child)) == (False, True)


async def test_descriptors_and_children_are_back_to_base_after_many_agents(
    spawn: LocalSpawner,
) -> None:
    with anyio.fail_after(LIMIT_S):
        warm = await spawn(plan("true"), Recorder())
        await warm.stop(STEP_S)
        before = len(open_fds())
        for number in range(20):
            process = await spawn(plan("cat"), Recorder())
            if number % 2:
                os.kill(process.pid, signal.SIGKILL)
                await process.wait()
            await process.stop(STEP_S)
            assert linux.start_ticks(process.pid) == 0, "a zombie"
    assert len(open_fds()) == before


async def test_a_receiver_that_fails_does_not_keep_the_exit_back() -> None:
    failures: list[str] = []

    def fail(data: bytes) -> None:
        raise ValueError(data)

    with anyio.fail_after(LIMIT_S):
        _on_loop_errors(failures)
        process = await LocalSpawner()(plan("echo", "hi"), heard := Recorder(fail))
        status = await process.wait()
        await process.stop(STEP_S)
    assert heard.events == ["output ended", status]
    assert len(failures) == 1


async def test_an_agent_is_identified_by_its_start_and_shown_by_its_state() -> None:
    with anyio.fail_after(LIMIT_S):
        process = await LocalSpawner()(plan("cat"), Recorder())
        assert process.start_ticks == linux.start_ticks(process.pid) > 0
        assert repr(process) == f"<AgentProcess {process.pid} alive>"
        await process.kill()
    assert "SIGKILL" in repr(process)


def _on_loop_errors(failures: list[str]) -> None:
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: failures.append(context["message"])
    )


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
