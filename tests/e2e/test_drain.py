"""SIGTERM and SIGHUP: turns get their ends before anything is closed; settings are read again."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.e2e.harness import Caller, Json, Subprocess
from tests.faults.rig import Follower, agent, configured, eventually, tagged

pytestmark = pytest.mark.anyio

GRACE_S = 1.0
BEYOND_S = 5.0


def _config(folder: Path, **limits: Any) -> str:
    return configured({"fake": agent(folder)}, limits={"drain_grace_s": GRACE_S, **limits})


async def _begin(caller: Caller, text: str) -> tuple[str, Json]:
    """A turn of which the agent has said something."""
    session_id = (await caller.session())["sessionId"]
    turn = await caller.prompt(session_id, text)
    path = f"/v1/sessions/{session_id}/events"
    await caller.until(path, lambda event: event.kind == "session/update")
    return session_id, turn


async def _exit(process: Subprocess, limit_s: float) -> float:
    """How long it took to end by itself, which it must within the limit."""
    began = time.monotonic()
    status = await anyio.to_thread.run_sync(process.wait, limit_s)
    assert status == 0
    return time.monotonic() - began


async def test_draining_refuses_new_work_cancels_after_the_grace_time_and_ends_streams_last(
    tmp_path: Path,
) -> None:
    async with Subprocess(tmp_path, _config(tmp_path)) as process:
        caller = await process.start()
        session_id, turn = await _begin(caller, "hang")
        follower = Follower(session_id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follower.follow, caller)
            await follower.until(lambda seen: seen.last_seq > 0)
            process.signal(signal.SIGTERM)
            with anyio.fail_after(GRACE_S):
                while (ready := await caller.get("/readyz")).status_code != 503:
                    pass
            refused = [
                await caller.post(f"/v1/sessions/{session_id}/prompt", {"prompt": "more"}),
                await caller.post("/v1/sessions", {}),
            ]
            await _exit(process, GRACE_S + BEYOND_S)
        assert ready.json() == {"status": "draining"}
        assert [each.status_code for each in refused] == [503, 503]
        assert all(each.json()["code"] == "draining" for each in refused)
        assert all(each.headers["retry-after"] for each in refused)
        shown = [event.params["turn"] for event in follower.events if "turn_ended" in event.kind]
        assert [(each["turnId"], each["status"]) for each in shown] == [
            (turn["turnId"], "cancelled")
        ]
        assert not tagged(tmp_path / "state")


async def test_a_turn_that_ends_within_the_grace_time_completes(tmp_path: Path) -> None:
    async with Subprocess(tmp_path, _config(tmp_path, drain_grace_s=15)) as process:
        caller = await process.start()
        session_id, turn = await _begin(caller, "ask")
        request = (await caller.pending(session_id))[0]
        process.signal(signal.SIGTERM)
        answer = await caller.reply(
            session_id, request["requestId"], {"outcome": "selected", "optionId": "allow-once"}
        )
        assert answer.status_code == 200
        assert await _exit(process, 10) < 10
        caller = await process.start()
        shown = await caller.settled(session_id, turn["turnId"])
        assert (shown["status"], shown["text"]) == ("completed", "before after")


async def test_an_agent_that_ignores_everything_does_not_keep_the_bridge(tmp_path: Path) -> None:
    async with Subprocess(tmp_path, _config(tmp_path)) as process:
        caller = await process.start()
        session_id, turn = await _begin(caller, "deaf")
        process.signal(signal.SIGTERM)
        await _exit(process, GRACE_S + BEYOND_S)
        await eventually(lambda: not tagged(tmp_path / "state"))
        caller = await process.start()
        shown = await caller.settled(session_id, turn["turnId"])
        assert shown["status"] == "cancelled"


async def test_a_second_sigterm_does_not_wait_for_the_grace_time(tmp_path: Path) -> None:
    async with Subprocess(tmp_path, _config(tmp_path, drain_grace_s=60)) as process:
        caller = await process.start()
        await _begin(caller, "hang")
        process.signal(signal.SIGTERM)
        with anyio.fail_after(5):
            while (await caller.get("/readyz")).status_code != 503:
                pass
        process.signal(signal.SIGTERM)
        await _exit(process, BEYOND_S)
        await eventually(lambda: not tagged(tmp_path / "state"))


async def test_a_queued_turn_does_not_begin_while_draining(tmp_path: Path) -> None:
    async with Subprocess(tmp_path, _config(tmp_path)) as process:
        caller = await process.start()
        session_id, _ = await _begin(caller, "hang")
        queued = await caller.prompt(session_id, "later", onBusy="queue")
        process.signal(signal.SIGTERM)
        await _exit(process, GRACE_S + BEYOND_S)
        caller = await process.start()
        shown = await caller.settled(session_id, queued["turnId"])
        assert shown["error"]["code"] == "bridge-restarted" and shown["startedAt"] is None


def _file(folder: Path, roots: list[Path], *, connections: int = 1000, **limits: Any) -> str:
    """A configuration whose roots come from nowhere else."""
    names = ", ".join(f'"{root}"' for root in roots)
    text = _config(folder, **limits)
    return f"roots = [{names}]\n{text}\n[server]\nmax_connections = {connections}\n"


async def test_sighup_reads_roots_and_limits_again_and_names_what_needs_a_restart(
    tmp_path: Path,
) -> None:
    old, fresh = tmp_path / "ws", tmp_path / "fresh"
    for each in (old, fresh):
        each.mkdir()
    async with Subprocess(tmp_path, _file(tmp_path, [old]), has_root=False) as process:
        caller = await process.start()
        refused = await caller.post("/v1/sessions", {"cwd": str(fresh)})
        assert refused.json()["code"] == "path-outside-roots"
        running, turn = await _begin(caller, "hang")
        config, log = tmp_path / "bridge.toml", tmp_path / "bridge.log"

        config.write_text("no toml at all [")
        process.signal(signal.SIGHUP)
        await eventually(lambda: "The settings stay as they were" in log.read_text())
        assert (await caller.get("/v1/me")).json()["roots"] == [str(old)]

        config.write_text(_file(tmp_path, [fresh], connections=1001, max_queue=1, body_bytes=1000))
        process.signal(signal.SIGHUP)
        await eventually(lambda: "from the next start on" in log.read_text())
        assert "limits.body_bytes, server.max_connections." in log.read_text()
        shown = (await caller.get("/v1/me")).json()
        assert (shown["roots"], shown["limits"]["maxQueue"]) == ([str(fresh)], 1)
        made = await caller.session(cwd=str(fresh), title="x" * 200)
        assert made["cwd"] == str(fresh)
        gone = await caller.post("/v1/sessions", {"cwd": str(old)})
        assert gone.json()["code"] == "path-outside-roots"
        # What runs goes on, also in a folder that is no root any more.
        path = f"/v1/sessions/{running}"
        for expected in (202, 409):
            body = {"prompt": "more", "onBusy": "queue"}
            assert (await caller.post(f"{path}/prompt", body)).status_code == expected
        await caller.post(f"{path}/cancel", {})
        assert (await caller.settled(running, turn["turnId"]))["status"] == "cancelled"


async def test_tokens_are_current_without_a_restart(tmp_path: Path) -> None:
    async with Subprocess(tmp_path, _config(tmp_path)) as process:
        await process.start()

        async def token(*words: str) -> list[str]:
            command = [sys.executable, "-m", "bridge.cli.main", "token", *words]
            made = await anyio.run_process([*command, "--state-dir", str(tmp_path / "state")])
            return made.stdout.decode().split()

        fresh = Caller(process.url, (await token("create", "--name", "phone"))[-1])
        async with fresh.http:
            assert (await fresh.get("/v1/me")).status_code == 200
            await token("revoke", "phone")
            with anyio.fail_after(10):
                while (await fresh.get("/v1/me")).status_code != 401:
                    pass
