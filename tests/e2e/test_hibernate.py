"""Processes come and go behind a session: hibernated, revived, kept warm, given up for others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge.runtime.warm import IDLE_S
from tests.e2e.harness import Bridge, Caller, Event, Json, ended, serving
from tests.faults.rig import demo_agent, eventually, is_gapless, tagged

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def _bridge(
    folder: Path, *, agent: Json | None = None, **limits: Any
) -> AsyncIterator[Bridge]:
    agents = {"demo": demo_agent(folder, **(agent or {}))}
    async with serving(folder, agents, default_agent="demo", limits=limits) as bridge:
        yield bridge


def _is(status: str) -> Any:
    def wanted(event: Event) -> bool:
        changed: Json = event.params.get("changed", {})
        return event.kind == "bridge/session" and changed.get("status") == status

    return wanted


async def _status_of(caller: Caller, session_id: str) -> str:
    return str((await caller.get(f"/v1/sessions/{session_id}")).json()["status"])


async def test_an_idle_session_hibernates_and_the_next_prompt_brings_it_back_as_it_was(
    tmp_path: Path,
) -> None:
    async with _bridge(tmp_path, idle_hibernate_s=0.5) as bridge:
        caller = bridge.caller
        session_id = (await caller.session(mode="ask"))["sessionId"]
        path = f"/v1/sessions/{session_id}"
        await caller.turn(session_id, "hello one")
        await caller.until(f"{path}/events", _is("hibernated"))
        assert not tagged(tmp_path / "state")
        before = await caller.log(session_id)
        shown = (await caller.get(path)).json()
        answer = await caller.turn(session_id, "recall")
        assert answer["status"] == "completed" and "hello one" in answer["text"]
        after = await caller.log(session_id)
        assert is_gapless(after) and after[: len(before)] == before
        texts = [event for event in after if event["type"] == "session/update"]
        assert sum("hello one" in str(event) for event in texts) == sum(
            "hello one" in str(event) for event in before if event["type"] == "session/update"
        ) + sum(
            event["turnId"] == answer["turnId"] and "hello one" in str(event) for event in texts
        )
        again = (await caller.get(path)).json()
        for member in ("mode", "model", "configOptions", "title", "agentSessionId", "cwd"):
            assert again[member] == shown[member], member


async def test_a_turn_and_a_pending_request_keep_a_process_from_hibernation(
    tmp_path: Path,
) -> None:
    async with _bridge(tmp_path, idle_hibernate_s=0.2) as bridge:
        waiting = (await bridge.caller.session())["sessionId"]
        await bridge.caller.turn(waiting, "tool")
        idle = (await bridge.caller.session())["sessionId"]
        await bridge.caller.until(f"/v1/sessions/{idle}/events", _is("hibernated"))
        assert await _status_of(bridge.caller, waiting) == "waiting"
        request = (await bridge.caller.pending(waiting))[0]
        answer = await bridge.caller.reply(
            waiting, request["requestId"], {"outcome": "selected", "kind": "allow_once"}
        )
        assert answer.status_code == 200


async def test_at_the_limit_the_session_idle_for_longest_gives_up_its_process(
    tmp_path: Path,
) -> None:
    async with _bridge(tmp_path, max_processes=2) as bridge:
        caller = bridge.caller
        first, second, third = [(await caller.session())["sessionId"] for _ in range(3)]
        assert await _status_of(caller, first) == "hibernated"
        assert await _status_of(caller, second) == await _status_of(caller, third) == "idle"
        await caller.turn(first, "hello")
        assert await _status_of(caller, second) == "hibernated"
        assert len(bridge.application.context.running.processes) == 2


async def test_a_new_session_takes_the_warm_process_of_its_own_place_and_another_is_made(
    tmp_path: Path,
) -> None:
    async with _bridge(tmp_path, agent={"warm": 1}, max_processes=6) as bridge:
        processes = bridge.application.context.running.processes
        await bridge.caller.session()
        await eventually(lambda: len(processes.warm) == 1)
        ready = processes.warm.links[0]
        assert len(processes) == 2
        session_id = (await bridge.caller.session())["sessionId"]
        session = bridge.application.context.running.registry.live[session_id]
        assert session.link is ready
        await eventually(lambda: len(processes.warm) == 1)
        answer = await bridge.caller.turn(session_id, "hello")
        assert answer["status"] == "completed"


async def test_a_warm_process_never_passes_to_another_owner_or_folder(tmp_path: Path) -> None:
    async with _bridge(tmp_path, agent={"warm": 1}, max_processes=9) as bridge:
        processes = bridge.application.context.running.processes
        await bridge.caller.session()
        await eventually(lambda: len(processes.warm) == 1)
        ready = processes.warm.links[0]
        other = bridge.caller_with("other", owner="somebody")
        (bridge.workspace / "sub").mkdir()
        made = [
            await other.session(),
            await bridge.caller.session(cwd=str(bridge.workspace / "sub")),
        ]
        await other.http.aclose()
        live = bridge.application.context.running.registry.live
        assert all(live[session["sessionId"]].link is not ready for session in made)


async def test_warm_processes_are_the_first_to_go_when_room_is_needed(tmp_path: Path) -> None:
    async with _bridge(tmp_path, agent={"warm": 1}, max_processes=2) as bridge:
        processes = bridge.application.context.running.processes
        first = (await bridge.caller.session())["sessionId"]
        await eventually(lambda: len(processes.warm) == 1)
        (bridge.workspace / "sub").mkdir()
        await bridge.caller.session(cwd=str(bridge.workspace / "sub"))
        assert await _status_of(bridge.caller, first) == "idle"
        assert len(processes.warm) == 0 and len(processes) == 2


async def test_warm_processes_end_when_their_place_is_not_used_any_more(tmp_path: Path) -> None:
    async with _bridge(tmp_path, agent={"warm": 1}) as bridge:
        runtime = bridge.application.context.running
        session = await bridge.caller.session()
        await eventually(lambda: len(runtime.processes.warm) == 1)
        await bridge.caller.http.delete(f"/v1/sessions/{session['sessionId']}")
        now = runtime.services.monotonic
        runtime.services.monotonic = lambda: now() + IDLE_S + 60
        await runtime.keeper.go_round()
        await eventually(lambda: not len(runtime.pool) and not tagged(tmp_path / "state"))


async def test_a_revival_that_fails_ends_the_turn_and_the_next_prompt_tries_again(
    tmp_path: Path,
) -> None:
    async with _bridge(tmp_path, idle_hibernate_s=0.3) as bridge:
        session_id = (await bridge.caller.session())["sessionId"]
        path = f"/v1/sessions/{session_id}"
        await bridge.caller.until(f"{path}/events", _is("hibernated"))
        bridge.workspace.rename(tmp_path / "elsewhere")
        turn = await bridge.caller.prompt(session_id, "hello")
        events = await bridge.caller.until(f"{path}/events", ended(turn["turnId"]))
        assert events[-1].params["turn"]["status"] == "failed"
        await bridge.caller.until(f"{path}/events", _is("failed"))
        (tmp_path / "elsewhere").rename(bridge.workspace)
        answer = await bridge.caller.turn(session_id, "hello", onLost="new")
        assert answer["status"] == "completed"
        with anyio.fail_after(5):
            assert await _status_of(bridge.caller, session_id) in ("idle", "hibernated")
