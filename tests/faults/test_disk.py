"""A really full disk: nothing seen is lost, turns end by name, and it goes on by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.e2e.harness import Caller, Json, Subprocess, ended
from tests.faults.rig import Follower, agent, configured, is_gapless
from tests.faults.small import Disk, fill, small_disk

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.timeout(120)]

RECOVERY_S = 5.0


@pytest.fixture(name="disk")
def _disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "state", 24) as disk:
        yield disk


async def _readiness(caller: Caller) -> str:
    return str((await caller.get("/readyz")).json()["status"])


async def _until_ready(caller: Caller) -> float:
    began = time.monotonic()
    with anyio.fail_after(RECOVERY_S + 5):
        while await _readiness(caller) != "ready":
            pass
    return time.monotonic() - began


async def test_a_full_disk_ends_turns_by_name_refuses_new_work_and_recovers_by_itself(
    tmp_path: Path, disk: Disk
) -> None:
    config = configured({"fake": agent(tmp_path)}, storage={"reserve_bytes": 1048576})
    async with Subprocess(tmp_path, config, prefix=disk.prefix) as process:
        caller = await process.start()
        running, waiting, idle = [(await caller.session())["sessionId"] for _ in range(3)]
        asked = await caller.turn(waiting, "ask")
        assert asked["status"] == "waiting"
        follower = Follower(running)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follower.follow, caller)
            await follower.until(lambda seen: seen.last_seq > 0)
            # Enough that the log meets the end of the disk in the middle of the turn.
            turn = await caller.prompt(running, "flood 200000")
            await follower.until(lambda seen: seen.last_seq > 100)
            fill(disk.folder / "ballast", leave=262144)
            events = await _end_of(follower, turn)
            tasks.cancel_scope.cancel()
        assert events["error"]["code"] == "storage-full"
        ready = await caller.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "storage-full")
        refused = [
            await caller.post("/v1/sessions", {}),
            await caller.post(f"/v1/sessions/{idle}/prompt", {"prompt": "hello"}),
            await caller.http.patch(f"/v1/sessions/{idle}", json={"title": "new"}),
        ]
        assert [each.status_code for each in refused] == [507] * 3
        assert (await caller.get(f"/v1/sessions/{idle}")).status_code == 200
        assert (await caller.get("/v1/sessions")).status_code == 200

        (disk.folder / "ballast").unlink()
        took_s = await _until_ready(caller)
        assert took_s <= RECOVERY_S
        answer = await caller.turn(idle, "hello")
        assert answer["text"] == "You said: hello"
        log = await caller.log(running)
        assert is_gapless(log)
        assert [each.data for each in follower.events] == log[: len(follower.events)]
        shown = await caller.settled(running, turn["turnId"])
        assert shown["error"]["code"] == "storage-full"
        assert (await caller.turn(running, "hello"))["status"] == "completed"
        print(f"ready {took_s:.2f} s after there was room")  # noqa: T201


async def _end_of(follower: Follower, turn: Json) -> Json:
    is_end = ended(turn["turnId"])
    found: list[Json] = []
    looked_at = 0

    def has_ended(seen: Follower) -> bool:
        nonlocal looked_at
        # However much came at once, and behind the end.
        found.extend(each.params["turn"] for each in seen.events[looked_at:] if is_end(each))
        looked_at = len(seen.events)
        return bool(found)

    await follower.until(has_ended, 60)
    return found[0]


async def test_beyond_the_reserve_output_waits_and_goes_on_where_it_stopped(
    tmp_path: Path, disk: Disk
) -> None:
    config = configured({"fake": agent(tmp_path)}, storage={"reserve_bytes": 0})
    async with Subprocess(tmp_path, config, prefix=disk.prefix) as process:
        caller = await process.start()
        session_id = (await caller.session())["sessionId"]
        follower = Follower(session_id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follower.follow, caller)
            turn = await caller.prompt(session_id, "hang")
            await follower.until(lambda seen: "hanging" in str(seen.events[-1:]))
            fill(disk.folder / "ballast")
            await caller.post(f"/v1/sessions/{session_id}/cancel", {"hard": True})
            with anyio.fail_after(10):
                while await _readiness(caller) != "storage-full":
                    pass
            before = follower.last_seq
            reply = await caller.post(f"/v1/sessions/{session_id}/prompt", {"prompt": "more"})
            assert reply.status_code == 507
            (disk.folder / "ballast").unlink()
            took_s = await _until_ready(caller)
            end = await _end_of(follower, turn)
            tasks.cancel_scope.cancel()
        assert took_s <= RECOVERY_S
        assert end["status"] in ("failed", "cancelled") and follower.last_seq > before
        assert is_gapless(await caller.log(session_id))
        assert (await caller.turn(session_id, "hello", onLost="new"))["status"] == "completed"


async def test_a_bridge_killed_on_a_full_disk_starts_again_with_all_that_was_seen(
    tmp_path: Path, disk: Disk
) -> None:
    config = configured({"fake": agent(tmp_path)})
    async with Subprocess(tmp_path, config, prefix=disk.prefix) as process:
        caller = await process.start()
        session_id = (await caller.session())["sessionId"]
        turn = await caller.prompt(session_id, "hang")
        await caller.until(
            f"/v1/sessions/{session_id}/events", lambda event: event.kind == "session/update"
        )
        seen = await caller.log(session_id)
        fill(disk.folder / "ballast")
        process.kill()
        caller = await process.start()
        assert (await caller.log(session_id))[: len(seen)] == seen
        assert (await caller.get("/v1/sessions")).status_code == 200
        (disk.folder / "ballast").unlink()
        await _until_ready(caller)
        with anyio.fail_after(10):
            while (shown := await caller.settled(session_id, turn["turnId"]))["endedAt"] is None:
                pass
        assert shown["error"]["code"] in ("bridge-restarted", "storage-full")
        assert is_gapless(await caller.log(session_id))
