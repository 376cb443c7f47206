"""An agent that another team's SDK speaks for understands the bridge, and is understood."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, ended, serving

pytestmark = pytest.mark.anyio

AGENTS = {"sdk": {"command": [sys.executable, str(ROOT / "tests/agents/sdk_agent.py")]}}


async def test_an_agent_on_the_official_sdk_goes_through_a_session(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENTS, default_agent="sdk") as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        turn = await caller.turn(session_id, "echo these words")
        assert (turn["status"], turn["text"]) == ("completed", "echo these words ")

        turn = await caller.turn(session_id, "permission please")
        assert turn["status"] == "waiting"
        request = (await caller.pending(session_id))[0]
        reply = {"outcome": "selected", "optionId": "yes"}
        assert (await caller.reply(session_id, request["requestId"], reply)).status_code == 200
        assert (await caller.settled(session_id, turn["turnId"]))["text"] == "chosen: yes"

        turn = await caller.prompt(session_id, "wait")
        await caller.until(
            f"/v1/sessions/{session_id}/events",
            lambda event: "waiting" in str(event.data),
            params={"after": turn["afterSeq"]},
        )
        await caller.post(f"/v1/sessions/{session_id}/cancel")
        assert (await caller.settled(session_id, turn["turnId"]))["status"] == "cancelled"
        assert (await caller.turn(session_id, "on"))["text"] == "on "


async def test_many_subscribers_get_the_same_and_a_silent_one_slows_nobody(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, AGENTS, default_agent="sdk") as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        path = f"/v1/sessions/{session_id}/events"
        headers = {"Accept": "text/event-stream"}
        async with caller.http.stream("GET", path, headers=headers, params={"after": 0}) as silent:
            assert silent.status_code == 200
            turn = await caller.prompt(session_id, "word " * 500)
            raws = [
                [
                    event.raw
                    for event in await caller.until(
                        path, ended(turn["turnId"]), params={"after": 0}
                    )
                ]
                for _ in range(8)
            ]
        assert all(raw == raws[0] for raw in raws)
        assert len(raws[0]) > 500
