"""Sessions that a start could not take up, or that no row leads to: none is lost in silence."""

from __future__ import annotations

import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.runtime.recovery import DOUBTFUL, RUNNING
from tests.e2e.harness import Bridge, Json, Subprocess, serving
from tests.faults.rig import agent, configured, eventually, is_gapless

pytestmark = pytest.mark.anyio

DAY_S = 86_400.0


@asynccontextmanager
async def _bridge(folder: Path, **storage: Any) -> AsyncIterator[Bridge]:
    agents = {"fake": agent(folder)}
    async with serving(folder, agents, default_agent="fake", storage=storage) as bridge:
        yield bridge


async def _keep(bridge: Bridge, later_s: float = 0.0) -> None:
    runtime = bridge.application.context.running
    clock = runtime.services.clock
    runtime.services.clock = lambda: clock() + later_s
    await runtime.keeper.retention.keep()
    runtime.services.clock = clock


async def _shown(bridge: Bridge, session_id: str) -> Json:
    shown: Json = (await bridge.caller.get(f"/v1/sessions/{session_id}")).json()
    return shown


async def _kept(bridge: Bridge, session_id: str) -> list[Json]:
    """Its entries, without what is said of those that are gone."""
    return [each for each in await bridge.caller.log(session_id) if "seq" in each]


def _damage(folder: Path) -> None:
    (folder / "state" / "bridge.sqlite3").write_bytes(b"no database at all" * 1000)


# -- a start that fails for one session -----------------------------------------------------------


async def _cut_off(folder: Path) -> tuple[str, str, Json]:
    """The state of a bridge killed in a turn that waits; its session's folder cannot be read."""
    async with _bridge(folder) as bridge:
        session_id = str((await bridge.caller.session())["sessionId"])
        await bridge.caller.turn(session_id, "ask")
        queued = await bridge.caller.prompt(session_id, "later", onBusy="queue")
        request = (await bridge.caller.pending(session_id))[0]
        shutil.copytree(folder / "state", folder / "killed")
    shutil.rmtree(folder / "state")
    shutil.move(folder / "killed", folder / "state")
    log = folder / "state" / "log"
    shutil.move(log / session_id, folder / "elsewhere")
    # A folder that cannot be listed, whoever asks.
    (log / session_id).write_bytes(b"")
    return session_id, queued["turnId"], request


def _mend(folder: Path, session_id: str) -> None:
    path = folder / "state" / "log" / session_id
    path.unlink()
    shutil.move(folder / "elsewhere", path)


async def test_a_session_that_could_not_be_recovered_is_brought_to_rest_when_it_is_wanted(
    tmp_path: Path,
) -> None:
    session_id, queued, request = await _cut_off(tmp_path)
    async with _bridge(tmp_path) as bridge:
        path = f"/v1/sessions/{session_id}"
        refused = await bridge.caller.post(f"{path}/prompt", {"prompt": "hello"})
        assert (refused.status_code, refused.json()["code"]) == (500, "internal-error")
        assert (await bridge.caller.get("/v1/sessions")).status_code == 200
        other = await bridge.caller.session()
        _mend(tmp_path, session_id)
        answer = await bridge.caller.turn(session_id, "hello", onLost="new")
        assert answer["text"] == "You said: hello"
        shown = (await bridge.caller.get(f"{path}/turns")).json()["turns"]
        codes = {each["turnId"]: (each["error"] or {}).get("code") for each in shown}
        assert codes[queued] == codes[request["turnId"]] == "bridge-restarted"
        late = await bridge.caller.reply(
            session_id, request["requestId"], {"outcome": "selected", "optionId": "allow-once"}
        )
        assert late.status_code == 410
        events = await bridge.caller.log(session_id)
        assert is_gapless(events) and events[-1]["id"] > other["lastId"]


async def test_a_session_that_could_not_be_recovered_is_tried_again_by_itself(
    tmp_path: Path,
) -> None:
    session_id, queued, _ = await _cut_off(tmp_path)
    async with _bridge(tmp_path) as bridge:
        keeper = bridge.application.context.running.keeper
        await keeper.recover()
        assert (await _shown(bridge, session_id))["status"] == "waiting"
        _mend(tmp_path, session_id)
        await keeper.recover()
        shown = await _shown(bridge, session_id)
        assert (shown["status"], shown["pendingRequests"]) == ("hibernated", [])
        turn = await bridge.caller.settled(session_id, queued)
        assert turn["error"]["code"] == "bridge-restarted"


async def test_ids_that_an_unreadable_log_gave_out_are_not_given_out_again(tmp_path: Path) -> None:
    # The row hears of none of these: a flood touches no table until its turn ends.
    steps: list[Json] = [{"flood": 5000}, {"wait_cancel": True}]
    agents = {"fake": agent(tmp_path, prompts=[{"match": "flood", "steps": steps}])}
    async with serving(tmp_path, agents, default_agent="fake") as bridge:
        session_id = str((await bridge.caller.session())["sessionId"])
        await bridge.caller.prompt(session_id, "flood")
        await bridge.caller.until(
            f"/v1/sessions/{session_id}/events", lambda event: event.seq > 4000
        )
        shutil.copytree(tmp_path / "state", tmp_path / "killed")
    shutil.rmtree(tmp_path / "state")
    shutil.move(tmp_path / "killed", tmp_path / "state")
    log = tmp_path / "state" / "log"
    shutil.move(log / session_id, tmp_path / "elsewhere")
    (log / session_id).write_bytes(b"")
    async with _bridge(tmp_path) as bridge:
        first = (await bridge.caller.session())["lastId"]
        _mend(tmp_path, session_id)
        kept = [each for each in await bridge.caller.log(session_id) if each["seq"] <= 4000]
        assert len(kept) == 4000 and kept[-1]["id"] < first


# -- tables that are lost -------------------------------------------------------------------------


@pytest.mark.parametrize("is_all", [False, True], ids=["the first entries", "all entries"])
async def test_lost_tables_are_made_again_though_entries_have_been_evicted(
    tmp_path: Path, is_all: bool
) -> None:
    async with _bridge(tmp_path, segment_bytes=8192) as bridge:
        caller = bridge.caller
        made = await caller.post("/v1/sessions", {"title": "kept", "metadata": {"a": 1}})
        session_id = made.json()["sessionId"]
        for number in range(6):
            await caller.turn(session_id, f"flood {20 + number}")
    size = 0 if is_all else 20_000
    async with _bridge(tmp_path, segment_bytes=8192, max_session_bytes=size or 10**9) as bridge:
        await _keep(bridge, 31 * DAY_S if is_all else 0)
        before = await _shown(bridge, session_id)
        events = await _kept(bridge, session_id)
        assert before["firstSeq"] > 1
    _damage(tmp_path)
    async with _bridge(tmp_path, segment_bytes=8192) as bridge:
        listed = (await bridge.caller.get("/v1/sessions?q=kept")).json()["sessions"]
        assert [each["sessionId"] for each in listed] == [session_id]
        assert await _shown(bridge, session_id) == before
        assert await _kept(bridge, session_id) == events
        answer = await bridge.caller.turn(session_id, "hello", onLost="new")
        assert answer["text"] == "You said: hello"


@pytest.mark.faults
async def test_a_start_killed_while_it_makes_the_tables_again_leaves_the_rest_to_the_next(
    tmp_path: Path,
) -> None:
    config = configured({"fake": agent(tmp_path)})
    async with Subprocess(tmp_path, config) as process:
        caller = await process.start()
        sessions = [(await caller.session())["sessionId"] for _ in range(3)]
        for session_id in sessions:
            await caller.turn(session_id, "flood 15000")
        last_id = (await caller.get("/v1/sessions")).json()["lastId"]
        process.kill()
        _damage(tmp_path)
        process.begin()
        marker = tmp_path / "state" / RUNNING
        await eventually(lambda: marker.read_text() == DOUBTFUL, 20)
        process.kill()
        caller = await process.start()
        listed = (await caller.get("/v1/sessions")).json()
        assert {each["sessionId"] for each in listed["sessions"]} == set(sessions)
        assert listed["lastId"] >= last_id
        assert marker.read_text() != DOUBTFUL


async def test_a_log_that_tells_nothing_of_its_session_is_said_and_goes_with_its_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _bridge(tmp_path, segment_bytes=8192) as bridge:
        session_id = str((await bridge.caller.session())["sessionId"])
        for _ in range(3):
            await bridge.caller.turn(session_id, "flood 40")
    folder = tmp_path / "state" / "log" / session_id
    min(folder.glob("*.seg")).unlink()
    _damage(tmp_path)
    with caplog.at_level(logging.ERROR):
        async with _bridge(tmp_path) as bridge:
            assert (await bridge.caller.get(f"/v1/sessions/{session_id}")).status_code == 404
            await _keep(bridge, 31 * DAY_S)
            assert not list(folder.glob("*.seg"))
    assert any(
        "does not say whose session it is" in each.message
        and getattr(each, "session", None) == session_id
        for each in caplog.records
    )


async def test_a_log_without_a_row_is_taken_up_after_a_start(tmp_path: Path) -> None:
    async with _bridge(tmp_path) as bridge:
        session_id = str((await bridge.caller.session(title="found"))["sessionId"])
        await bridge.caller.turn(session_id, "hello")
        events = await bridge.caller.log(session_id)
    async with _bridge(tmp_path) as bridge:
        bridge.application.context.running.services.tables.forget_session(session_id)
        await _keep(bridge)
        listed = (await bridge.caller.get("/v1/sessions?q=found")).json()["sessions"]
        assert [each["sessionId"] for each in listed] == [session_id]
        assert (await bridge.caller.log(session_id))[: len(events)] == events
