"""Prompts to sessions whose agent is not up yet: what is accepted, and what a hard cancel ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.contract import Checked
from tests.e2e.harness import Bridge, Json, serving
from tests.e2e.test_contract_around import problem_of
from tests.e2e.test_contract_sessions import path_of, shown, wait_for_status
from tests.faults.rig import agent, eventually, tagged

pytestmark = pytest.mark.anyio

ASYNC = {"Prefer": "respond-async"}
HARD = {"hard": True}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
HANGS: Json = {"before": [{"ignore_cancel": True}]}


@asynccontextmanager
async def _bridge(folder: Path, **on: Json) -> AsyncIterator[Bridge]:
    """A bridge whose agent answers these methods (``session_load``: ``session/load``) like this."""
    played = {name.replace("_", "/", 1): answer for name, answer in on.items()}
    env = {"FAKE_AGENT_STATE": str(folder / "state-of"), "FAKE_AGENT_LOG": str(folder / "wire")}
    agents = {"a": agent(folder, on=played) | {"env": env}}
    async with serving(folder, agents, default_agent="a") as bridge:
        plain, bridge.caller = bridge.caller, Checked(bridge.caller.url)
        try:
            yield bridge
        finally:
            await bridge.caller.http.aclose()
            bridge.caller = plain


async def _prompt(bridge: Bridge, session: Json, prompt: Any, **body: Any) -> Json:
    answer = await bridge.caller.post(f"{path_of(session)}/prompt", {"prompt": prompt, **body})
    assert answer.status_code == 202, answer.text
    turn: Json = answer.json()
    return turn


async def _asked(folder: Path, method: str) -> None:
    """Until the agent has been asked this."""

    def is_asked() -> bool:
        wire = folder / "wire"
        return wire.exists() and method in wire.read_text()

    await eventually(is_asked)


async def _hibernated(bridge: Bridge) -> Json:
    session = await bridge.caller.session()
    await bridge.caller.prompt(session["sessionId"], "hang")
    await bridge.caller.post(f"{path_of(session)}/cancel", HARD)
    await wait_for_status(bridge, session, "hibernated")
    return session


async def test_content_is_judged_once_a_starting_agent_has_said_what_it_takes(
    tmp_path: Path,
) -> None:
    async with _bridge(tmp_path, initialize={"before": [{"sleep": 400}]}) as bridge:
        answer = await bridge.caller.post("/v1/sessions", {}, headers=ASYNC)
        session = answer.json()
        assert (answer.status_code, session["capabilities"]) == (202, None)
        heard = await _prompt(bridge, session, [AUDIO])
        seen = await _prompt(bridge, session, [IMAGE], onBusy="queue")
        odd = await bridge.caller.post(f"{path_of(session)}/prompt", {"prompt": [{"type": "x"}]})
        problem_of(odd, 422, "content-not-supported")
        failed = await bridge.caller.settled(session["sessionId"], heard["turnId"])
        assert (failed["status"], failed["outcome"], failed["startedAt"]) == (
            "failed",
            "error",
            None,
        )
        assert failed["error"]["code"] == "content-not-supported"
        assert failed["error"]["available"] == ["text", "resource_link", "image"]
        done = await bridge.caller.settled(session["sessionId"], seen["turnId"])
        assert done["outcome"] == "ok"
        assert (await shown(bridge, session))["problem"] is None
        late = await bridge.caller.post(f"{path_of(session)}/prompt", {"prompt": [AUDIO]})
        problem_of(late, 422, "content-not-supported")


async def test_a_hard_cancel_of_a_turn_being_revived_ends_the_process_that_starts(
    tmp_path: Path,
) -> None:
    async with _bridge(tmp_path, session_load={"first": HANGS}) as bridge:
        session = await _hibernated(bridge)
        turn = await _prompt(bridge, session, "hello")
        await _asked(tmp_path, "session/load")
        assert len(tagged(tmp_path / "state")) == 1
        answer = await bridge.caller.post(f"{path_of(session)}/cancel", HARD)
        assert answer.status_code == 202 and answer.json()["turn"]["turnId"] == turn["turnId"]
        assert answer.json()["turn"]["status"] == "cancelled"
        await wait_for_status(bridge, session, "hibernated")
        await eventually(lambda: not tagged(tmp_path / "state"))
        assert (await shown(bridge, session))["problem"] is None
        assert (await bridge.caller.turn(session["sessionId"], "hello"))["outcome"] == "ok"


async def test_a_hard_cancel_ends_the_start_of_a_new_session_too_and_the_queue_stays(
    tmp_path: Path,
) -> None:
    async with _bridge(tmp_path, session_new={"first": HANGS}) as bridge:
        session = (await bridge.caller.post("/v1/sessions", {}, headers=ASYNC)).json()
        first = await _prompt(bridge, session, "hello")
        second = await _prompt(bridge, session, "hello", onBusy="queue")
        await _asked(tmp_path, "session/new")
        path = f"{path_of(session)}/turns/{first['turnId']}/cancel"
        answer = await bridge.caller.post(path, HARD)
        assert answer.json()["turn"]["status"] == "cancelled"
        done = await bridge.caller.settled(session["sessionId"], second["turnId"])
        assert done["outcome"] == "ok"
        assert len(tagged(tmp_path / "state")) == 1


async def test_prompts_behind_a_choice_whose_revival_is_given_up_are_not_forgotten(
    tmp_path: Path,
) -> None:
    async with _bridge(tmp_path, session_load={"first": HANGS}) as bridge:
        session = await _hibernated(bridge)
        answers: list[Any] = []

        async def choose() -> None:
            answers.append(
                await bridge.caller.http.put(f"{path_of(session)}/mode", json={"modeId": "plan"})
            )

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(choose)
            await _asked(tmp_path, "session/load")
            first = await _prompt(bridge, session, "hello")
            second = await _prompt(bridge, session, "hello", onBusy="queue")
            await bridge.caller.post(
                f"{path_of(session)}/cancel", HARD | {"turnId": first["turnId"]}
            )
        problem_of(answers[0], 424, "agent-exited")
        done = await bridge.caller.settled(session["sessionId"], second["turnId"])
        assert done["outcome"] == "ok"
