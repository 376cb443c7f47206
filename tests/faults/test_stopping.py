"""SIGTERM with streams open and turns running."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import anyio
import httpx
import pytest

from tests.e2e.harness import Subprocess, demo
from tests.faults.test_killed_bridge import agents_of

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.timeout(200)]

GRACE_S = 2.0


async def test_a_stop_with_streams_and_turns_is_bounded_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    config = (
        f'default_agent = "demo"\n[agents.demo]\ncommand = {json.dumps(demo())}\n'
        f'dialect = "cursor"\n[agents.demo.env]\nCURSOR_DEMO_PACE = "0"\n'
        f'CURSOR_DEMO_HOME = "{tmp_path}/demo"\n[limits]\ndrain_grace_s = {GRACE_S}\n'
    )
    async with Subprocess(tmp_path, config) as bridge:
        caller = await bridge.start()
        sessions = [(await caller.session())["sessionId"] for _ in range(10)]
        turns = {each: await caller.prompt(each, "hang") for each in sessions}
        ends: dict[str, int] = dict.fromkeys(sessions, 0)
        opened = anyio.Event()
        count = 0

        async def follow(session_id: str) -> None:
            nonlocal count
            try:
                async with caller.stream(
                    f"/v1/sessions/{session_id}/events", params={"after": 0}
                ) as stream:
                    count += 1
                    if count == 100:
                        opened.set()
                    async for event in stream:
                        ends[session_id] += event.kind == "bridge/turn_ended"
            except httpx.HTTPError:
                return

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(follow, sessions[number % 10])
            with anyio.fail_after(30):
                await opened.wait()
            began = time.monotonic()
            bridge.signal(signal.SIGTERM)
            status = await anyio.to_thread.run_sync(bridge.wait)
            took = time.monotonic() - began
        assert status == 0
        assert took <= GRACE_S + 5
        assert all(number == 10 for number in ends.values())
        assert not agents_of(tmp_path)
        caller = await bridge.start()
        for session_id, turn in turns.items():
            shown = await caller.settled(session_id, turn["turnId"])
            assert shown["endedAt"] is not None
