"""Agents are killed, fall silent, flood, and are read by many, some of whom do not read."""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from pathlib import Path

import anyio
import pytest

from tests.e2e.harness import TOKEN, Bridge, Event, demo, ended, scripted, serving

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.timeout(300)]

ROUNDS = 100


def agents(folder: Path) -> dict[str, object]:
    """The demo agent and a scripted one."""
    env = {"CURSOR_DEMO_PACE": "0", "CURSOR_DEMO_HOME": str(folder / "demo")}
    return {
        "demo": {"command": demo(), "dialect": "cursor", "env": env},
        "sizes": {"command": scripted("sizes")},
    }


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))


def pid_of(bridge: Bridge, session_id: str) -> int:
    """The process of a session's agent."""
    runtime = bridge.application.context.running
    link = runtime.registry.live[session_id].link
    assert link is not None and link.process is not None
    return link.process.pid


async def test_a_turn_ends_within_a_second_of_its_agents_death(tmp_path: Path) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="demo") as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        path = f"/v1/sessions/{session_id}/events"
        took = []
        base = 0
        for number in range(ROUNDS):
            turn = await caller.prompt(session_id, "stream 100000 1")
            await caller.until(
                path, lambda e: e.kind == "session/update", params={"after": turn["afterSeq"]}
            )
            os.kill(pid_of(bridge, session_id), signal.SIGKILL)
            began = time.monotonic()
            await caller.until(path, ended(turn["turnId"]), params={"after": turn["afterSeq"]})
            took.append(time.monotonic() - began)
            shown = await caller.settled(session_id, turn["turnId"])
            assert shown["error"]["code"] == "agent-exited"
            if number == 4:
                gc.collect()
                base = descriptors()
        assert sorted(took)[int(ROUNDS * 0.99) - 1] <= 1.0
        assert (await caller.turn(session_id, "hello"))["status"] == "completed"
        gc.collect()
        assert descriptors() <= base + 8


async def test_a_flood_arrives_whole_beside_frozen_and_many_readers(tmp_path: Path) -> None:
    """400,000 updates flat out; 50 readers that never read; 300 subscribers afterwards."""
    async with serving(tmp_path, agents(tmp_path), default_agent="sizes") as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        path = f"/v1/sessions/{session_id}/events"
        host, port = bridge.server.url.removeprefix("http://").split(":")
        frozen = [frozen_reader(host, int(port), path) for _ in range(50)]
        before = resident_bytes()
        turn = await caller.prompt(session_id, "flood 400000")
        counts: list[int] = []

        async def count() -> None:
            seen, last = 0, turn["afterSeq"]
            with anyio.fail_after(200):
                async with caller.stream(path, params={"after": turn["afterSeq"]}) as stream:
                    async for event in stream:
                        assert event.seq == last + 1
                        last = event.seq
                        seen += event.kind == "session/update"
                        if event.kind == "bridge/turn_ended":
                            break
            counts.append(seen)

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(count)
        assert counts == [400000, 400000]
        assert resident_bytes() - before < 150 * 1024 * 1024
        for each in frozen:
            each.close()


async def test_three_hundred_subscribers_get_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="demo") as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        path = f"/v1/sessions/{session_id}/events"
        results: list[list[bytes]] = []
        turn = await caller.prompt(session_id, "stream 200 5")

        async def follow() -> None:
            events: list[Event] = await caller.until(
                path, ended(turn["turnId"]), params={"after": 0}
            )
            results.append([event.raw for event in events])

        async with anyio.create_task_group() as tasks:
            for _ in range(300):
                tasks.start_soon(follow)
        assert len(results) == 300
        assert all(result == results[0] for result in results)


async def test_a_flood_on_stderr_and_one_of_garbage_cost_no_memory(tmp_path: Path) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="sizes") as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        before = resident_bytes()
        turn = await caller.turn(session_id, "stderr 200000000")
        turn = await caller.settled(session_id, turn["turnId"])
        assert turn["text"] == "done"
        assert resident_bytes() - before < 50 * 1024 * 1024


def frozen_reader(host: str, port: int, path: str) -> socket.socket:
    """A subscriber that asks and never reads."""
    reader = socket.create_connection((host, port))
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    request = (
        f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n"
        f"Authorization: Bearer {TOKEN}\r\n\r\n"
    )
    reader.sendall(request.encode())
    return reader


def resident_bytes() -> int:
    """The memory of this process, the bridge and the callers together."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
