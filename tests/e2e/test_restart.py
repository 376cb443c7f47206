"""A bridge that is killed and started again: what was there is there, what ran has failed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.harness import Bridge, Caller, Json, Subprocess, serving
from tests.faults.rig import agent, configured, eventually, is_gapless, tagged

pytestmark = pytest.mark.anyio


async def _until_pending(caller: Caller, session_id: str) -> Json:
    with anyio.fail_after(15):
        while not (pending := await caller.pending(session_id)):
            await caller.get(
                f"/v1/sessions/{session_id}/events", params={"after": "latest", "wait": 1}
            )
    return pending[0]


async def test_a_session_whose_agent_is_configured_no_more_is_told_so_and_harms_nobody(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, {"gone": agent(tmp_path)}, default_agent="gone") as bridge:
        session_id = (await bridge.caller.session())["sessionId"]
    async with serving(tmp_path, {"fake": agent(tmp_path)}, default_agent="fake") as bridge:
        turn = await bridge.caller.turn(session_id, "hello")
        assert turn["error"]["code"] == "agent-unavailable" and "'gone'" in turn["error"]["detail"]
        path = f"/v1/sessions/{session_id}"
        for name, body in (("mode", {"modeId": "ask"}), ("model", {"modelId": "m"})):
            answer = await bridge.caller.http.put(f"{path}/{name}", json=body)
            assert answer.json()["code"] == "agent-unavailable"
        called = await bridge.caller.post(f"{path}/ext", {"method": "_vendor/thing"})
        assert called.json()["code"] == "agent-unavailable"
        other = await bridge.caller.turn((await bridge.caller.session())["sessionId"], "hello")
        assert other["outcome"] == "ok"
        assert (await bridge.caller.http.delete(path)).status_code == 204


async def test_a_killed_bridge_comes_back_with_everything_ended_and_nothing_lost(
    tmp_path: Path,
) -> None:
    config = configured({"fake": agent(tmp_path)})
    async with Subprocess(tmp_path, config) as process:
        caller = await process.start()
        session_id = (await caller.session())["sessionId"]
        key = {"Idempotency-Key": "k1"}
        path = f"/v1/sessions/{session_id}/prompt"
        first = (await caller.post(path, {"prompt": "ask"}, headers=key)).json()
        request = await _until_pending(caller, session_id)
        queued = (await caller.post(path, {"prompt": "later", "onBusy": "queue"})).json()
        other_id = (await caller.session(title="untouched"))["sessionId"]
        seen = await caller.log(session_id)
        agents = tagged(tmp_path / "state")
        assert len(agents) == 2
        process.kill()
        caller = await process.start()

        assert not agents & tagged(tmp_path / "state")
        assert (await caller.log(session_id))[: len(seen)] == seen
        shown = (await caller.get(f"/v1/sessions/{session_id}")).json()
        assert (shown["status"], shown["pendingRequests"], shown["queue"]) == ("hibernated", [], [])
        for turn in (first, queued):
            ended = await caller.settled(session_id, turn["turnId"])
            assert ended["status"] == "failed" and ended["error"]["code"] == "bridge-restarted"
        assert (await caller.settled(session_id, first["turnId"]))["text"] == "before "
        late = await caller.reply(
            session_id, request["requestId"], {"outcome": "selected", "optionId": "allow-once"}
        )
        assert late.status_code == 410 and late.json()["resolution"]["by"] == "agent-exit"
        again = await caller.post(path, {"prompt": "ask"}, headers=key)
        assert again.json()["turnId"] == first["turnId"]
        other = await caller.log(other_id)
        assert other[-1]["type"] == "bridge/session"

        answer = await caller.turn(session_id, "hello", onLost="new")
        assert answer["text"] == "You said: hello"
        events = await caller.log(session_id)
        assert is_gapless(events)
        assert events[-1]["id"] > max(event["id"] for event in other)
        assert "later" not in [each["text"] for each in await _turns(caller, session_id)]


async def _turns(caller: Caller, session_id: str) -> list[Json]:
    listed = (await caller.get(f"/v1/sessions/{session_id}/turns")).json()["turns"]
    return [await caller.settled(session_id, each["turnId"]) for each in listed]


async def test_an_orphan_that_left_its_group_ends_before_the_next_start_takes_anything(
    tmp_path: Path,
) -> None:
    command = ["setsid", "--wait", *agent(tmp_path)["command"]]
    async with Subprocess(tmp_path, configured({"fake": {"command": command}})) as process:
        caller = await process.start()
        session_id = (await caller.session())["sessionId"]
        await caller.prompt(session_id, "daemon")
        await caller.until(
            f"/v1/sessions/{session_id}/events", lambda event: "daemon" in str(event.params)
        )
        orphans = tagged(tmp_path / "state")
        assert len(orphans) >= 2
        process.kill()
        assert orphans & tagged(tmp_path / "state")
        await process.start()
        await eventually(lambda: not orphans & tagged(tmp_path / "state"))


@asynccontextmanager
async def _bridge(folder: Path, **values: Any) -> AsyncIterator[Bridge]:
    async with serving(folder, {"fake": agent(folder)}, default_agent="fake", **values) as bridge:
        yield bridge


async def _use(bridge: Bridge, *prompts: str, **options: Any) -> str:
    session_id = str((await bridge.caller.session(**options))["sessionId"])
    for prompt in prompts:
        await bridge.caller.turn(session_id, prompt)
    return session_id


async def _state_of(bridge: Bridge, session_id: str) -> Json:
    path = f"/v1/sessions/{session_id}"
    shown: Json = (await bridge.caller.get(path)).json()
    transcript = (await bridge.caller.get(f"{path}/transcript")).json()
    return {
        "shown": {name: value for name, value in shown.items() if name != "lastId"},
        "transcript": transcript["items"],
        "turns": await _turns(bridge.caller, session_id),
    }


async def test_damaged_tables_are_made_again_from_the_logs(tmp_path: Path) -> None:
    async with _bridge(tmp_path) as bridge:
        session_id = await _use(bridge, "one", "two", title="kept", metadata={"a": 1})
        made = await bridge.caller.post(
            "/v1/sessions", {"title": "by key"}, headers={"Idempotency-Key": "k"}
        )
    async with _bridge(tmp_path) as bridge:
        before = await _state_of(bridge, session_id)
    (tmp_path / "state" / "bridge.sqlite3").write_bytes(b"no database at all" * 1000)
    async with _bridge(tmp_path) as bridge:
        after = await _state_of(bridge, session_id)
        assert after["turns"] == before["turns"] and after["transcript"] == before["transcript"]
        assert after["shown"] == before["shown"]
        listed = (await bridge.caller.get("/v1/sessions?q=kept")).json()["sessions"]
        assert [each["sessionId"] for each in listed] == [session_id]
        again = await bridge.caller.post(
            "/v1/sessions", {"title": "by key"}, headers={"Idempotency-Key": "k"}
        )
        assert again.json()["sessionId"] == made.json()["sessionId"]
        other = await bridge.caller.session()
        assert other["lastId"] > max(each["id"] for each in await bridge.caller.log(session_id))


async def test_a_power_cut_that_lost_rows_but_not_the_log_loses_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with _bridge(tmp_path) as bridge:
        session_id = await _use(bridge, "one")
    shutil.copy(state / "bridge.sqlite3", tmp_path / "old.sqlite3")
    async with _bridge(tmp_path) as bridge:
        await bridge.caller.turn(session_id, "two", onLost="new")
        events = await bridge.caller.log(session_id)
    shutil.copy(tmp_path / "old.sqlite3", state / "bridge.sqlite3")
    (state / "running").write_text("another boot of the machine")
    async with _bridge(tmp_path) as bridge:
        assert (await bridge.caller.log(session_id))[: len(events)] == events
        assert len(await _turns(bridge.caller, session_id)) == 2
        assert (await bridge.caller.session())["lastId"] > events[-1]["id"]


async def test_a_power_cut_that_lost_the_end_of_a_log_says_the_session_again(
    tmp_path: Path,
) -> None:
    async with _bridge(tmp_path) as bridge:
        session_id = await _use(bridge, "one")
        segment = next((tmp_path / "state" / "log" / session_id).glob("*.seg"))
        kept = segment.stat().st_size
        await bridge.caller.turn(session_id, "two")
        last_id = (await bridge.caller.get(f"/v1/sessions/{session_id}")).json()["lastId"]
    os.truncate(segment, kept)
    (tmp_path / "state" / "running").write_text("another boot of the machine")
    async with _bridge(tmp_path) as bridge:
        events = await bridge.caller.log(session_id)
        assert is_gapless(events) and events[-1]["id"] > last_id
        shown = (await bridge.caller.get(f"/v1/sessions/{session_id}")).json()
        assert events[-1]["params"]["changed"]["turn"] == shown["turn"]
        assert shown["lastSeq"] == events[-1]["seq"]


async def test_a_damaged_segment_costs_that_segment_and_never_the_start(tmp_path: Path) -> None:
    storage = {"segment_bytes": 4096}
    async with _bridge(tmp_path, storage=storage) as bridge:
        session_id = await _use(bridge, *(f"prompt {n}" for n in range(8)))
        events = await bridge.caller.log(session_id)
    segments = sorted((tmp_path / "state" / "log" / session_id).glob("*.seg"))
    assert len(segments) > 3
    segments[1].write_bytes(b"\xff" * segments[1].stat().st_size)
    connection = sqlite3.connect(tmp_path / "state" / "bridge.sqlite3")
    connection.execute("UPDATE sessions SET is_open = 1, projected_seq = 0")
    connection.execute("DELETE FROM pages")
    connection.commit()
    connection.close()
    async with _bridge(tmp_path, storage=storage) as bridge:
        kept = await bridge.caller.log(session_id)
        assert any(event["type"] == "bridge/reset" for event in kept)
        real = [event for event in kept if event["type"] != "bridge/reset"]
        assert real[-1]["seq"] >= events[-1]["seq"]
        assert {event["seq"] for event in events} - {event["seq"] for event in real}
        answer = await bridge.caller.turn(session_id, "still there", onLost="new")
        assert answer["text"] == "You said: still there"
