"""Tables that cannot be written: no caller notices, nothing is lost, and they catch up."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest

from bridge.errors import StorageError
from bridge.log.record import Record
from bridge.log.rows import SessionRow
from bridge.log.store import Store
from bridge.log.tables import Tables
from bridge.runtime.runtime import Runtime
from tests.e2e.harness import Bridge, serving
from tests.faults.rig import agent, is_gapless

pytestmark = pytest.mark.anyio


class Refusing:
    """Tables on a disk that is full until somebody makes room."""

    def __init__(self, tables: Tables) -> None:
        self.is_full = True
        self._tables = tables

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)

    def transaction(self) -> AbstractContextManager[None]:
        """What every projection begins with."""
        if self.is_full:
            raise StorageError("storage-full", "The disk is full.")
        return self._tables.transaction()

    def save_session(self, row: SessionRow) -> None:
        """How a session begins."""
        with self.transaction():
            self._tables.save_session(row)


def _refuse(bridge: Bridge) -> tuple[Runtime, Refusing]:
    runtime = bridge.application.context.running
    refusing = Refusing(runtime.services.tables)
    runtime.services.tables = cast("Tables", refusing)
    return runtime, refusing


async def test_full_tables_fail_no_running_turn_and_catch_up_with_keys_and_pages(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, {"fake": agent(tmp_path)}, default_agent="fake") as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        path = f"/v1/sessions/{session_id}"
        key = {"Idempotency-Key": "k"}
        runtime, refusing = _refuse(bridge)
        made = await caller.post(f"{path}/prompt", {"prompt": "hello"}, headers=key)
        assert made.status_code == 202
        turn = await caller.settled(session_id, made.json()["turnId"])
        assert (turn["status"], turn["text"]) == ("completed", "You said: hello")
        assert (await caller.get("/v1/sessions")).status_code == 200
        assert (await caller.get("/readyz")).json() == {"status": "storage-full"}
        refused = await caller.post(f"{path}/prompt", {"prompt": "more"})
        assert refused.status_code == 507

        refusing.is_full = False
        await runtime.keeper.go_round()
        assert (await caller.get("/readyz")).json() == {"status": "ready"}
        again = await caller.post(f"{path}/prompt", {"prompt": "hello"}, headers=key)
        assert again.json()["turnId"] == turn["turnId"]
        items = (await caller.get(f"{path}/transcript")).json()["items"]
        assert any("You said" in str(item) for item in items)
        assert (await caller.settled(session_id, turn["turnId"])) == turn
        assert is_gapless(await caller.log(session_id))


async def test_a_state_folder_that_is_taken_away_is_said_and_nothing_new_is_taken(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, {"fake": agent(tmp_path)}, default_agent="fake") as bridge:
        caller, runtime = bridge.caller, bridge.application.context.running
        session_id = (await caller.session())["sessionId"]
        log, elsewhere = tmp_path / "state" / "log", tmp_path / "elsewhere"
        log.rename(elsewhere)
        await runtime.keeper.go_round()
        ready = await caller.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"status": "storage-full"})
        for path in (f"/v1/sessions/{session_id}/prompt", "/v1/sessions"):
            refused = await caller.post(path, {"prompt": "hello"} if "prompt" in path else {})
            assert refused.status_code == 507 and "gone" in refused.json()["detail"]
        elsewhere.rename(log)
        await runtime.keeper.go_round()
        assert (await caller.turn(session_id, "hello"))["status"] == "completed"
        assert is_gapless(await caller.log(session_id))


class Failing:
    """A log whose disk fails, though it is not full, until somebody mends it."""

    def __init__(self, store: Store) -> None:
        self.is_failing = True
        self.tries = 0
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, session_id: str, drafts: Any, **options: Any) -> Record:
        """What the store says of an EIO."""
        if self.is_failing:
            self.tries += 1
            raise StorageError("storage-full", "The log cannot be written: Input/output error.")
        return self._store.append(session_id, drafts, **options)


async def test_a_session_held_back_by_a_failing_disk_goes_on_once_the_disk_does(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, {"fake": agent(tmp_path)}, default_agent="fake") as bridge:
        caller, runtime = bridge.caller, bridge.application.context.running
        session_id = (await caller.session())["sessionId"]
        turn = await caller.prompt(session_id, "hang")
        await caller.until(
            f"/v1/sessions/{session_id}/events", lambda event: "hanging" in str(event.params)
        )
        failing = Failing(runtime.services.store)
        runtime.services.store = cast("Store", failing)
        await caller.post(f"/v1/sessions/{session_id}/cancel", {})
        assert runtime.registry.live[session_id].is_jammed
        # Nothing is full, so others go on; this one is tried once a round, and refused meanwhile.
        assert (await caller.get("/readyz")).json() == {"status": "ready"}
        before = failing.tries
        await runtime.keeper.go_round()
        assert failing.tries == before + 1
        refused = await caller.post(f"/v1/sessions/{session_id}/prompt", {"prompt": "more"})
        assert refused.status_code == 507
        failing.is_failing = False
        await runtime.keeper.go_round()
        shown = await caller.settled(session_id, turn["turnId"])
        assert shown["error"]["code"] == "storage-full" and shown["endedAt"]
        assert is_gapless(await caller.log(session_id))
        answer = await caller.turn(session_id, "hello", onLost="new")
        assert answer["text"] == "You said: hello"


async def test_a_session_whose_rows_are_behind_is_not_forgotten_by_a_stop(tmp_path: Path) -> None:
    async with serving(tmp_path, {"fake": agent(tmp_path)}, default_agent="fake") as bridge:
        session_id = (await bridge.caller.session())["sessionId"]
        _refuse(bridge)
        turn = await bridge.caller.turn(session_id, "hello")
        events = await bridge.caller.log(session_id)
    async with serving(tmp_path, {"fake": agent(tmp_path)}, default_agent="fake") as bridge:
        assert (await bridge.caller.log(session_id))[: len(events)] == events
        assert (await bridge.caller.settled(session_id, turn["turnId"]))["text"] == turn["text"]
        shown = (await bridge.caller.get(f"/v1/sessions/{session_id}")).json()
        assert shown["status"] == "hibernated"


async def test_a_create_that_the_tables_refuse_leaves_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, {"fake": agent(tmp_path)}, default_agent="fake") as bridge:
        runtime, refusing = _refuse(bridge)
        answer = await bridge.caller.post("/v1/sessions", {})
        assert answer.status_code == 507 and answer.json()["code"] == "storage-full"
        assert not runtime.registry.live and not len(runtime.pool)
        assert runtime.services.store.sessions() == []
        refusing.is_full = False
        assert (await bridge.caller.post("/v1/sessions", {})).status_code == 201
