"""The bridge is killed with SIGKILL in streaming turns, again and again."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import anyio
import httpx
import pytest

from tests.e2e.harness import Caller, Event, Subprocess, demo

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.timeout(400)]

ROUNDS = 50


def config(folder: Path) -> str:
    """The demo agent, without pauses of its own."""
    return (
        f'default_agent = "demo"\n[agents.demo]\ncommand = {json.dumps(demo())}\n'
        f'dialect = "cursor"\n[agents.demo.env]\nCURSOR_DEMO_PACE = "0"\n'
        f'CURSOR_DEMO_HOME = "{folder}/demo"\n[limits]\nload_quiet_s = 0.05\n'
    )


def agents_of(folder: Path) -> list[int]:
    """The pids of agents of this test that still run."""
    mark = f"CURSOR_DEMO_HOME={folder}/demo".encode()
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if mark in environ.split(b"\0"):
            found.append(int(pid))
    return found


class Reader:
    """A subscriber that keeps what it has seen and comes back where it broke off."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.seen: list[Event] = []

    @property
    def position(self) -> int:
        """The last position it has."""
        return self.seen[-1].seq if self.seen else 0

    async def read(self, caller: Caller, goal: anyio.Event | None = None, count: int = 0) -> None:
        """Read until the stream breaks; ``goal`` is set after ``count`` more events."""
        left = count
        try:
            async with caller.stream(
                self.path, headers={"Last-Event-ID": str(self.position)}
            ) as stream:
                async for event in stream:
                    self.seen.append(event)
                    left -= 1
                    if goal is not None and left <= 0:
                        goal.set()
        except httpx.HTTPError:
            return


async def test_nothing_seen_is_lost_however_often_the_bridge_is_killed(tmp_path: Path) -> None:
    chance = random.Random(4)
    async with Subprocess(tmp_path, config(tmp_path)) as bridge:
        caller = await bridge.start()
        session_id = (await caller.session())["sessionId"]
        path = f"/v1/sessions/{session_id}/events"
        readers = [Reader(path) for _ in range(3)]
        for _ in range(ROUNDS):
            goal = anyio.Event()
            count = chance.randrange(1, 120)
            async with anyio.create_task_group() as tasks:
                for reader in readers:
                    is_first = reader is readers[0]
                    tasks.start_soon(reader.read, caller, goal if is_first else None, count)
                turn = await caller.prompt(session_id, "stream 400 1")
                with anyio.fail_after(30):
                    await goal.wait()
                bridge.kill()
            caller = await bridge.start()
            ended = await caller.settled(session_id, turn["turnId"])
            assert ended["error"]["code"] == "bridge-restarted"
            assert not agents_of(tmp_path)
        log = await caller.log(session_id)
        assert [entry["seq"] for entry in log] == list(range(1, len(log) + 1))
        ids = [entry["id"] for entry in log]
        assert ids == sorted(set(ids))
        for reader in readers:
            assert [event.data for event in reader.seen] == log[: len(reader.seen)]
        turns = (await caller.get(f"/v1/sessions/{session_id}/turns?limit=200")).json()["turns"]
        assert len(turns) == ROUNDS
        assert all(turn["endedAt"] for turn in turns)


async def test_requests_of_a_killed_bridge_are_withdrawn_and_stay_so(tmp_path: Path) -> None:
    async with Subprocess(tmp_path, config(tmp_path)) as bridge:
        caller = await bridge.start()
        session_id = (await caller.session())["sessionId"]
        turn = await caller.turn(session_id, "tool")
        assert turn["status"] == "waiting"
        request_id = (await caller.pending(session_id))[0]["requestId"]
        bridge.kill()
        caller = await bridge.start()
        late = await caller.reply(
            session_id, request_id, {"outcome": "selected", "kind": "allow_once"}
        )
        assert (late.status_code, late.json()["code"]) == (410, "request-withdrawn")
        assert late.json()["resolution"]["by"] == "agent-exit"


async def test_a_cut_at_any_byte_and_a_resume_give_the_exact_log(tmp_path: Path) -> None:
    async with Subprocess(tmp_path, config(tmp_path)) as bridge:
        caller = await bridge.start()
        session_id = (await caller.session())["sessionId"]
        turn = await caller.prompt(session_id, "stream 490 0")
        await caller.settled(session_id, turn["turnId"])
        path = f"/v1/sessions/{session_id}/events"
        log = await caller.log(session_id)
        whole = await whole_stream(caller, path, len(log))
        # Whatever byte a stream is cut at, what its reader has are the whole events before it:
        # so one resume behind each event stands for every cut up to the next one's end.
        frames = whole.partition(b"\n\n")[2].split(b"\n\n")[:-1]
        assert len(frames) == len(log)
        for kept in range(len(frames)):
            tail = await whole_stream(caller, path, len(log), kept)
            assert tail.partition(b"\n\n")[2].split(b"\n\n")[:-1] == frames[kept:]


async def whole_stream(caller: Caller, path: str, last: int, after: int = 0) -> bytes:
    """The bytes of a stream from a position to the end of the log."""
    if after >= last:
        return b"retry: 1000\nid: %d\n\n" % after
    data = b""
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    end = b"id: %d\nevent: " % last
    async with caller.http.stream("GET", path, headers=headers) as answer:
        async for chunk in answer.aiter_bytes():
            data += chunk
            if end in data and data.endswith(b"\n\n"):
                return data
    raise AssertionError("the stream ended")
