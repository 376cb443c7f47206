"""A session from its start to its end, over a real socket with a real agent process."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.e2e.harness import demo, ended, serving

pytestmark = pytest.mark.anyio


def agents(folder: Path) -> dict[str, object]:
    """The demo agent with a home of its own."""
    env = {"CURSOR_DEMO_PACE": "0", "CURSOR_DEMO_HOME": str(folder / "demo")}
    return {"demo": {"command": demo(), "dialect": "cursor", "env": env}}


async def test_a_prompt_is_answered_and_its_turn_holds_the_text(tmp_path: Path) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="demo") as bridge:
        session = await bridge.caller.session()
        turn = await bridge.caller.turn(session["sessionId"], "hello bridge")
        assert turn["status"] == "completed"
        assert turn["outcome"] == "ok"
        assert "hello bridge" in turn["text"]


async def test_a_permission_waits_until_somebody_replies(tmp_path: Path) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="demo") as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        turn = await caller.turn(session_id, "tool")
        assert turn["status"] == "waiting"
        request = (await caller.pending(session_id))[0]
        answer = await caller.reply(
            session_id, request["requestId"], {"outcome": "selected", "kind": "allow_once"}
        )
        assert answer.status_code == 200
        assert (await caller.settled(session_id, turn["turnId"]))["status"] == "completed"


async def test_a_stream_is_the_log_and_a_resumed_one_is_its_rest(tmp_path: Path) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="demo") as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        turn = await caller.prompt(session_id, "stream 20 0")
        path = f"/v1/sessions/{session_id}/events"
        events = await caller.until(path, ended(turn["turnId"]), params={"after": 0})
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        for cut in range(len(events)):
            rest = (
                await caller.until(
                    path,
                    lambda event: event.seq == events[-1].seq,
                    headers={"Last-Event-ID": str(cut)},
                )
                if cut < len(events)
                else []
            )
            assert [event.raw for event in rest] == [event.raw for event in events[cut:]]


async def test_a_cancelled_turn_ends_and_the_next_prompt_works(tmp_path: Path) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="demo") as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        turn = await caller.prompt(session_id, "hang")
        answer = await caller.post(f"/v1/sessions/{session_id}/cancel")
        assert answer.status_code == 202
        settled = await caller.settled(session_id, turn["turnId"])
        assert (settled["status"], settled["cancelledBy"]) == ("cancelled", "caller")
        assert (await caller.turn(session_id, "hello"))["status"] == "completed"


async def test_two_sessions_beside_each_other_do_not_mix(tmp_path: Path) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="demo") as bridge:
        caller = bridge.caller
        first = (await caller.session())["sessionId"]
        second = (await caller.session())["sessionId"]
        texts: dict[str, str] = {}

        async def ask(session_id: str, word: str) -> None:
            texts[session_id] = (await caller.turn(session_id, f"hello {word}"))["text"]

        with anyio.fail_after(15):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, first, "alpha")
                tasks.start_soon(ask, second, "omega")
        assert "alpha" in texts[first] and "omega" not in texts[first]
        assert "omega" in texts[second] and "alpha" not in texts[second]
