"""Habits of other people's agents, and what the bridge makes of them.

Every docstring names where the fact comes from; "several agents" are those of which other clients'
authors tell, and those that go through this bridge in tests/agents/test_real.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from tests.e2e.harness import Json, scripted, serving
from tests.e2e.stage import (  # noqa: F401
    Stage,
    case,
    module_backend,
    module_playhouse,
    one_stage,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", name="limits")
def short_limits() -> Json:
    """Agents that hang are given up soon; their start may take its time on a busy box."""
    return {
        "authenticate_s": 1.0,
        "new_session_s": 2.0,
        "cancel_grace_s": 1.0,
        "stop_step_s": 0.5,
        "max_processes": 24,
    }


# -- agents that hang ---------------------------------------------------------------------------


async def test_an_agent_that_never_answers_initialize_is_given_up(tmp_path: Path) -> None:
    """Very old builds (zuse#90)."""
    agents = {"fake": {"command": scripted("never_answers")}}
    limits = {"initialize_s": 3.0}
    async with serving(tmp_path, agents, default_agent="fake", limits=limits) as bridge:
        answer = await bridge.caller.post("/v1/sessions", {})
        assert (answer.status_code, answer.json()["code"]) == (504, "agent-timeout")
        assert answer.json()["stderrTail"].strip() == "waiting for a keychain"
        assert (await bridge.caller.get("/v1/sessions")).json()["sessions"] == []


@case("new_hangs")
async def test_an_agent_that_never_makes_a_session_is_given_up(stage: Stage) -> None:
    """t3code#3791: a request that is dropped in silence."""
    answer = await stage.ask()
    assert (answer.status_code, answer.json()["code"]) == (504, "agent-timeout")
    assert "session/new" in answer.json()["detail"]
    assert stage.methods() == ["initialize", "session/new"]
    assert await stage.listed() == []


@case("new_asks")
async def test_a_caller_who_cannot_see_what_is_asked_is_told_how_to(stage: Stage) -> None:
    """Some ask before there is a session: whether a folder is to be trusted."""
    problem = (await stage.ask()).json()
    assert (problem["code"], "respond-async" in problem["hint"]) == ("agent-timeout", True)


@case("auth_hangs", auth_method="cursor_login")
async def test_a_login_that_hangs_is_given_up(stage: Stage) -> None:
    """screenpipe#6455: nothing came back for 15 s."""
    with anyio.fail_after(10):
        answer = await stage.ask()
    assert answer.json()["code"] == "agent-auth-required"


# -- processes ----------------------------------------------------------------------------------


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@case("stays")
@pytest.mark.parametrize("word", ["setsid", "deaf"])
async def test_an_agent_that_minds_neither_its_stdin_nor_sigterm_is_gone_with_its_session(
    stage: Stage, word: str
) -> None:
    """cursor/cursor#3588: helpers outlive a forced exit; one agent ignores SIGTERM to the group."""
    session_id = await stage.session_id()
    turn = await stage.caller.prompt(session_id, word)
    if word == "setsid":
        await stage.caller.settled(session_id, turn["turnId"])
    pids = stage.pids()
    assert all(is_running(pid) for pid in pids)
    with anyio.fail_after(15):
        answer = await stage.caller.http.delete(f"/v1/sessions/{session_id}")
    assert answer.status_code == 204
    assert not [pid for pid in pids if is_running(pid)]
    mine = f"FAKE_AGENT_STATE={stage.state}".encode()
    assert not [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if has(pid, mine)]


def has(pid: int, variable: bytes) -> bool:
    """Whether a living process has this variable in its environment."""
    try:
        found = variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return found and is_running(pid)


@case("same_id")
async def test_two_processes_with_the_same_session_id_do_not_mix(stage: Stage) -> None:
    """Agents that give every process the same id."""
    first, one = await stage.play("first")
    second, two = await stage.play("second")
    assert (one["text"], two["text"]) == ("You said: first", "You said: second")
    logs = [await stage.caller.log(first), await stage.caller.log(second)]
    assert "second" not in str(logs[0]) and "first" not in str(logs[1]).replace("firstSeq", "")
    turn = await stage.caller.prompt(first, "hang on")
    await stage.caller.prompt(second, "hang too")
    assert (await stage.cancel(first, turn))["status"] == "cancelled"
    assert (await stage.session(second))["status"] == "running"


# -- updates ------------------------------------------------------------------------------------


@case("unknown")
async def test_what_nobody_knows_arrives_unchanged(stage: Stage) -> None:
    """Updates, fields and wrong types of later versions; hapi: ``state_update`` ends no turn."""
    session_id, turn = await stage.play("x")
    assert turn["text"] == "end"
    updates = [e["params"] for e in await stage.caller.log(session_id)]
    assert any(u.get("update") == "no object" and u.get("extra") == 1 for u in updates)
    state = {"sessionUpdate": "state_update", "state": "running", "_meta": {"x": [1, {"y": None}]}}
    assert any(u.get("update") == state for u in updates)


@case("early_and_late")
async def test_updates_before_and_behind_everything_find_their_place(stage: Stage) -> None:
    """Seen on agents of several vendors."""
    session_id, turn = await stage.play("x")
    assert turn["text"] == "in the turn"
    await stage.until(session_id, lambda e: "usage_update" in str(e.data))
    session = await stage.session(session_id)
    assert session["commands"] == [{"name": "early", "description": "E"}]
    assert session["title"] == "From the agent"
    assert session["usage"]["used"] == 5


@case("echoing")
async def test_a_prompt_that_is_echoed_is_said_once_in_the_transcript(stage: Stage) -> None:
    """Some agents send the prompt back as ``user_message_chunk``."""
    session_id, _ = await stage.play("say it once")
    assert [item["text"] for item in await stage.items(session_id, "user")] == ["say it once"]


@case("sizes")
async def test_a_line_of_20_mb_arrives_whole(stage: Stage) -> None:
    """pingdotgg/t3code#11216: lines beyond 16 MiB."""
    session_id, turn = await stage.play("big 20000000")
    assert turn["textTruncated"] is True
    events = await stage.until(session_id, lambda e: len(e.raw) > 20_000_000)
    update = events[-1].params["update"]
    assert update["content"]["text"] == "x" * 20_000_000


@case("sizes")
async def test_a_flood_of_small_updates_arrives_whole_and_in_order(stage: Stage) -> None:
    """Thousands of chunks a second, as some agents send them."""
    session_id, turn = await stage.play("flood 3000")
    assert len(turn["text"]) == 3000 * 80
    updates = [e for e in await stage.caller.log(session_id) if e["type"] == "session/update"]
    assert len(updates) == 3000
