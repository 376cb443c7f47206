"""Other people's agents, installed by ``tests/agents/install``, go through the whole bridge.

Which ones is said by ``CURSOR_BRIDGE_TEST_AGENT_NAMES`` (default: codex-acp agentao).
"""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from tests.agents.llm import StandIn
from tests.agents.real import RECIPES, prepare
from tests.e2e.harness import Caller, Json, Subprocess, serving

pytestmark = [pytest.mark.anyio, pytest.mark.agents, pytest.mark.timeout(180)]

PATIENCE_S = 90.0
LIMITS = {"initialize_s": PATIENCE_S}

NAMES = os.environ.get("CURSOR_BRIDGE_TEST_AGENT_NAMES", "codex-acp agentao").split()


async def session_of(caller: Caller) -> str:
    """A new session; the first start of a real agent may take longer than other tests allow."""
    caller.http.timeout = PATIENCE_S
    session_id: str = (await caller.session())["sessionId"]
    return session_id


async def play(caller: Caller, session_id: str, text: str, **body: str) -> Json:
    """Prompt and wait, however long the agent takes to start, until it has ended or asks."""
    turn = await caller.prompt(session_id, text, **body)
    with anyio.fail_after(PATIENCE_S):
        while turn["endedAt"] is None and turn["status"] != "waiting":
            turn = await caller.settled(session_id, turn["turnId"])
    return turn


async def reply_all(caller: Caller, session_id: str, turn: Json, kind: str) -> Json:
    """Answer every permission with this kind until the turn has ended."""
    with anyio.fail_after(PATIENCE_S):
        while turn["endedAt"] is None:
            for request in await caller.pending(session_id):
                assert request["kind"] == "permission", request
                option = next(
                    each["optionId"]
                    for each in request["params"]["options"]
                    if each["kind"] == kind
                )
                reply = {"outcome": "selected", "optionId": option}
                answer = await caller.reply(session_id, request["requestId"], reply)
                assert answer.status_code == 200, answer.text
            turn = await caller.settled(session_id, turn["turnId"])
    return turn


@pytest.mark.parametrize("name", NAMES)
async def test_a_real_agent_prompts_asks_cancels_and_goes_on(name: str, tmp_path: Path) -> None:
    with StandIn() as base:
        agents = {name: prepare(name, tmp_path / "home", base).table()}
        async with serving(tmp_path, agents, default_agent=name, limits=LIMITS) as bridge:
            caller = bridge.caller
            session_id = await session_of(caller)
            turn = await play(caller, session_id, "Say something.")
            assert (turn["status"], turn["outcome"]) == ("completed", "ok"), turn
            assert "stand-in speaking" in turn["text"]

            turn = await play(caller, session_id, f"PLEASE-RUN {RECIPES[name].shell}")
            assert turn["status"] == "waiting", turn
            turn = await reply_all(caller, session_id, turn, "allow_once")
            assert turn["status"] == "completed", turn

            turn = await caller.prompt(session_id, "PLEASE-COUNT 100 100")
            await caller.until(
                f"/v1/sessions/{session_id}/events",
                lambda event: "number 1" in str(event.data),
                params={"after": turn["afterSeq"]},
            )
            await caller.post(f"/v1/sessions/{session_id}/cancel")
            turn = await caller.settled(session_id, turn["turnId"])
            assert turn["status"] == "cancelled", turn

            turn = await play(caller, session_id, "And now?")
            assert turn["status"] == "completed", turn

            second = await session_of(caller)
            turn = await play(caller, second, "Hello beside.")
            assert turn["status"] == "completed"
            assert second not in str(await caller.log(session_id))


@pytest.mark.parametrize("name", NAMES)
async def test_a_real_agents_conversation_outlives_a_killed_bridge(
    name: str, tmp_path: Path
) -> None:
    with StandIn() as base:
        table = prepare(name, tmp_path / "home", base).table()
        async with Subprocess(tmp_path, toml(name, table)) as bridge:
            caller = await bridge.start()
            session_id = await session_of(caller)
            turn = await play(caller, session_id, "Remember this.")
            assert turn["status"] == "completed", turn
            turn = await caller.prompt(session_id, "PLEASE-COUNT 100 100")
            await caller.until(
                f"/v1/sessions/{session_id}/events",
                lambda event: "number 1" in str(event.data),
                params={"after": turn["afterSeq"]},
            )
            bridge.kill()
            caller = await bridge.start()
            ended = await caller.settled(session_id, turn["turnId"])
            assert ended["error"]["code"] == "bridge-restarted"
            turn = await play(caller, session_id, "Go on.")
            is_lost = turn["error"] is not None
            if RECIPES[name].can_load is not None:
                assert is_lost is not RECIPES[name].can_load, turn
            if is_lost:
                assert turn["error"]["code"] == "session-lost", turn
                turn = await play(caller, session_id, "Go on.", onLost="new")
            assert (turn["status"], turn["outcome"]) == ("completed", "ok"), turn
            assert turn["text"].count("stand-in speaking") == 1


def toml(name: str, table: Json) -> str:
    """The agent's table as a configuration file."""
    command = ", ".join(f'"{word}"' for word in table["command"])
    env = "\n".join(f'{key} = "{value}"' for key, value in table["env"].items())
    return (
        f'default_agent = "{name}"\nlimits.initialize_s = {PATIENCE_S}\n'
        f"[agents.{name}]\ncommand = [{command}]\n"
        f'dialect = "acp"\nauth_method = "{table["auth_method"]}"\n[agents.{name}.env]\n{env}\n'
    )
