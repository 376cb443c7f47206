"""Bounds and watchdogs: what is refused leaves nothing, what is silent or gone is noticed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from bridge.runtime import linux
from bridge.runtime.inbox import MAX_WARNINGS
from tests.e2e.harness import Bridge, Event, Json, ended, serving, settings_for
from tests.faults.rig import Follower, agent, eventually, tagged

pytestmark = pytest.mark.anyio

SLOW_START: Json = {"on": {"session/new": {"before": [{"sleep": 1500}]}}}


@asynccontextmanager
async def _bridge(folder: Path, limits: Json, **members: Any) -> AsyncIterator[Bridge]:
    agents = {"fake": agent(folder, **members), "gone": {"command": ["/no/such/agent"]}}
    agents["dying"] = agent(folder, "dying", start=[{"exit": 1}])
    rates = {"sessions_per_minute": 100_000, "prompts_per_minute": 100_000}
    async with serving(folder, agents, default_agent="fake", limits=rates | limits) as bridge:
        yield bridge


# -- the limit of processes -----------------------------------------------------------------------


async def test_one_create_too_many_at_once_is_refused_and_nothing_leaks(tmp_path: Path) -> None:
    async with _bridge(tmp_path, {"max_processes": 4}, **SLOW_START) as bridge:
        answers: list[httpx.Response] = []

        async def create() -> None:
            answers.append(await bridge.caller.post("/v1/sessions", {}))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(create)
        assert sorted(each.status_code for each in answers) == [201, 201, 201, 201, 503]
        refused = next(each for each in answers if each.status_code == 503)
        assert refused.json()["code"] == "at-capacity" and int(refused.headers["retry-after"]) > 0
        runtime = bridge.application.context.running
        assert len(runtime.pool) == len(runtime.processes) == 4
        assert len(runtime.registry.live) == len(tagged(tmp_path / "state")) == 4


async def test_prompts_beyond_the_limit_are_refused_before_a_turn_is_made(tmp_path: Path) -> None:
    async with _bridge(tmp_path, {"max_processes": 2}) as bridge:
        caller = bridge.caller
        sessions = [(await caller.session())["sessionId"] for _ in range(4)]
        statuses: list[int] = []

        async def prompt(session_id: str) -> None:
            answer = await caller.post(f"/v1/sessions/{session_id}/prompt", {"prompt": "hang"})
            statuses.append(answer.status_code)

        async with anyio.create_task_group() as tasks:
            for session_id in sessions:
                tasks.start_soon(prompt, session_id)
        assert sorted(statuses) == [202, 202, 503, 503]
        turns = [
            (await caller.get(f"/v1/sessions/{each}/turns")).json()["turns"] for each in sessions
        ]
        assert sorted(len(each) for each in turns) == [0, 0, 1, 1]


async def test_a_lowered_limit_and_other_roots_count_at_once(tmp_path: Path) -> None:
    async with _bridge(tmp_path, {"max_processes": 3}) as bridge:
        (fresh := tmp_path / "fresh").mkdir()
        first = (await bridge.caller.session())["sessionId"]
        settings = settings_for(tmp_path, {}, roots=(str(fresh),), limits={"max_processes": 1})
        bridge.application.reload(settings)
        assert (await bridge.caller.get("/v1/me")).json()["roots"] == [str(fresh)]
        assert (await bridge.caller.session())["cwd"] == str(fresh)
        shown = (await bridge.caller.get(f"/v1/sessions/{first}")).json()
        assert shown["status"] == "hibernated"
        refused = await bridge.caller.post("/v1/sessions", {"cwd": str(bridge.workspace)})
        assert refused.json()["code"] == "path-outside-roots"


# -- what agents do -------------------------------------------------------------------------------


async def _turn_of(bridge: Bridge, prompt: str) -> tuple[Json, list[Event]]:
    session_id = (await bridge.caller.session())["sessionId"]
    turn = await bridge.caller.prompt(session_id, prompt)
    events = await bridge.caller.until(f"/v1/sessions/{session_id}/events", ended(turn["turnId"]))
    shown: Json = events[-1].params["turn"]
    return shown, events


async def test_a_silent_turn_is_warned_of_once_and_ended_where_that_is_configured(
    tmp_path: Path,
) -> None:
    async with _bridge(tmp_path, {"stall_warn_s": 0.5, "stall_fail_s": 3}) as bridge:
        turn, events = await _turn_of(bridge, "hang")
        assert (turn["status"], turn["error"]["code"]) == ("failed", "turn-stalled")
        warnings = [each.params["code"] for each in events if each.kind == "bridge/warning"]
        assert warnings == ["turn-stalled"]
        await eventually(lambda: not tagged(tmp_path / "state"))


async def test_a_clock_that_is_set_makes_no_turn_silent_and_no_session_idle(
    tmp_path: Path,
) -> None:
    limits = {"stall_warn_s": 900, "stall_fail_s": 1800, "idle_hibernate_s": 1800}
    async with _bridge(tmp_path, limits) as bridge:
        runtime, caller = bridge.application.context.running, bridge.caller
        running, idle = [(await caller.session())["sessionId"] for _ in range(2)]
        turn = await caller.prompt(running, "hang")
        pids = set(runtime.processes.pids)
        clock = runtime.services.clock
        for jump_s in (86_400.0, -86_400.0):
            runtime.services.clock = lambda jump_s=jump_s: clock() + jump_s  # type: ignore[misc]
            await runtime.keeper.go_round()
            # Had anything been ended, this would be another process.
            assert (await caller.turn(idle, "go on"))["status"] == "completed"
            assert set(runtime.processes.pids) == pids
            shown = await caller.get(f"/v1/sessions/{running}/turns/{turn['turnId']}")
            assert shown.json()["status"] == "running"
        events = await caller.log(running)
        assert not [each for each in events if each["type"] == "bridge/warning"]


async def test_a_turn_that_waits_for_a_person_is_not_stalled(tmp_path: Path) -> None:
    async with _bridge(tmp_path, {"stall_warn_s": 0.2, "stall_fail_s": 0.5}) as bridge:
        waiting = (await bridge.caller.session())["sessionId"]
        asked = await bridge.caller.turn(waiting, "ask")
        assert asked["status"] == "waiting"
        await _turn_of(bridge, "hang")
        request = (await bridge.caller.pending(waiting))[0]
        reply = {"outcome": "selected", "optionId": "allow-once"}
        assert (await bridge.caller.reply(waiting, request["requestId"], reply)).is_success
        shown = await bridge.caller.settled(waiting, asked["turnId"])
        assert (shown["status"], shown["text"]) == ("completed", "before after")


async def test_an_agent_that_ends_silently_ends_its_turn_with_that_reason(tmp_path: Path) -> None:
    async with _bridge(tmp_path, {}) as bridge:
        with anyio.fail_after(5):
            turn, _ = await _turn_of(bridge, "exit")
        assert turn["error"]["code"] == "agent-exited" and turn["error"]["exitCode"] == 3


async def test_an_agent_that_lives_on_with_its_stdout_closed_is_ended(tmp_path: Path) -> None:
    async with _bridge(tmp_path, {}) as bridge:
        turn, _ = await _turn_of(bridge, "mute")
        assert turn["error"]["code"] == "agent-exited"
        await eventually(lambda: not tagged(tmp_path / "state"))


async def test_a_grandchild_that_holds_the_pipes_delays_nothing_and_is_ended(
    tmp_path: Path,
) -> None:
    async with _bridge(tmp_path, {}) as bridge:
        with anyio.fail_after(8):
            turn, events = await _turn_of(bridge, "holder")
        assert turn["error"]["signal"] == "SIGKILL"
        assert any("held" in str(each.params) for each in events)
        await eventually(lambda: not tagged(tmp_path / "state"))


async def test_a_daemon_that_left_the_group_ends_with_its_session(tmp_path: Path) -> None:
    async with _bridge(tmp_path, {}) as bridge:
        session_id = (await bridge.caller.session())["sessionId"]
        follower = Follower(session_id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follower.follow, bridge.caller)
            await bridge.caller.prompt(session_id, "daemon")
            await follower.until(
                lambda seen: any("daemon" in str(e.data) for e in seen.events[-3:])
            )
            await eventually(lambda: len(tagged(tmp_path / "state")) == 2)
            await bridge.caller.http.delete(f"/v1/sessions/{session_id}")
            await eventually(lambda: not tagged(tmp_path / "state"))


async def test_orphans_that_a_subreaper_inherits_are_reaped(tmp_path: Path) -> None:
    async with _bridge(tmp_path, {}) as bridge:
        runtime = bridge.application.context.running
        assert linux.set_child_subreaper(True)
        try:
            await bridge.caller.session()
            command = "(exec sleep 0.05) & exec true"
            orphans_before = _zombies()
            process = await asyncio.create_subprocess_exec("sh", "-c", command)
            await process.wait()
            await eventually(lambda: len(_zombies() - orphans_before) == 1)
            await runtime.keeper.reap()
            await runtime.keeper.reap()
            assert not _zombies() - orphans_before
            assert len(tagged(tmp_path / "state")) == 1
        finally:
            linux.set_child_subreaper(False)


def _zombies() -> set[int]:
    me = os.getpid()
    return {each.pid for each in linux.table().values() if each.is_zombie and each.ppid == me}


# -- queues ---------------------------------------------------------------------------------------


async def test_a_full_queue_and_too_many_requests_are_refused(tmp_path: Path) -> None:
    ask: Json = {"ask": "session/request_permission", "params": {"options": []}, "wait": False}
    prompts = [{"match": "many", "steps": [{"repeat": 5, "steps": [ask]}, {"wait_cancel": True}]}]
    limits = {"max_queue": 2, "max_pending_requests": 3}
    async with _bridge(tmp_path, limits, prompts=prompts) as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        path = f"/v1/sessions/{session_id}"
        await caller.prompt(session_id, "many")
        await caller.until(
            f"{path}/events",
            lambda event: event.params.get("code") == "too-many-requests",
        )
        assert len(await caller.pending(session_id)) == 3
        for expected in (202, 202, 409):
            body = {"prompt": "more", "onBusy": "queue"}
            assert (await caller.post(f"{path}/prompt", body)).status_code == expected


async def test_sessions_of_one_owner_are_bounded(tmp_path: Path) -> None:
    async with _bridge(tmp_path, {"max_sessions_per_owner": 2}) as bridge:
        for expected in (201, 201, 429):
            assert (await bridge.caller.post("/v1/sessions", {})).status_code == expected


async def test_streams_and_waits_of_one_token_are_bounded(tmp_path: Path) -> None:
    async with _bridge(tmp_path, {"streams_per_token": 1}) as bridge:
        session_id = (await bridge.caller.session())["sessionId"]
        other_id = (await bridge.caller.session())["sessionId"]
        path, other = f"/v1/sessions/{session_id}", f"/v1/sessions/{other_id}"
        turn = await bridge.caller.prompt(session_id, "hang")
        stream, wait = {"Accept": "text/event-stream"}, {"Prefer": "wait=50"}
        prompt = {"prompt": "hello"}

        async def all_else_is_refused() -> None:
            last_seq = (await bridge.caller.get(path)).json()["lastSeq"]
            for answer in (
                await bridge.caller.get(f"{path}/events", headers=stream),
                await bridge.caller.get("/v1/events", headers=stream),
                await bridge.caller.get(f"{path}/events?after={last_seq}&wait=50"),
                await bridge.caller.get(f"{path}/turns/{turn['turnId']}", headers=wait),
                await bridge.caller.post(f"{other}/prompt", prompt, headers=stream),
                await bridge.caller.post(f"{other}/prompt", prompt, headers=wait),
            ):
                assert (answer.status_code, answer.json()["code"]) == (429, "rate-limited")
            assert (await bridge.caller.get(f"{other}/turns")).json()["turns"] == []
            # What is answered at once is no such thing.
            assert (await bridge.caller.get(f"{path}/events?after=0&wait=50")).status_code == 200

        async with bridge.caller.stream(f"{path}/events") as events:
            await anext(events)
            await all_else_is_refused()
        await eventually(lambda: not bridge.application.context.streams)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bridge.caller.settled, session_id, turn["turnId"])
            await eventually(lambda: bool(bridge.application.context.streams))
            await all_else_is_refused()
            await bridge.caller.post(f"{path}/cancel", {})
        assert not bridge.application.context.streams
        for form in (wait, stream):
            answer = await bridge.caller.post(f"{other}/prompt", prompt, headers=form)
            assert answer.status_code == 200
        await eventually(lambda: not bridge.application.context.streams)


async def test_a_flood_of_garbage_is_kept_as_so_many_warnings(tmp_path: Path) -> None:
    flood = {"repeat": MAX_WARNINGS + 200, "steps": [{"raw": "?"}]}
    prompts = [{"match": "", "steps": [{"text": "so far"}, flood]}]
    async with _bridge(tmp_path, {}, prompts=prompts) as bridge:
        turn, events = await _turn_of(bridge, "go")
        warnings = [each.params["code"] for each in events if each.kind == "bridge/warning"]
        assert len(warnings) == MAX_WARNINGS and warnings[-1] == "too-many-warnings"
        assert turn["status"] == "completed"


async def test_an_agent_that_never_opens_a_session_is_given_up(tmp_path: Path) -> None:
    never = {"on": {"session/new": {"before": [{"wait_cancel": True}]}}}
    async with _bridge(tmp_path, {"new_session_s": 0.5}, **never) as bridge:
        answer = await bridge.caller.post("/v1/sessions", {})
        assert answer.status_code == 504 and answer.json()["code"] == "agent-timeout"
        await eventually(lambda: not tagged(tmp_path / "state"))
        assert not len(bridge.application.context.running.pool)
