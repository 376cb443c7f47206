"""Bounds on what an agent is waited for, and on how far it gets ahead of the log."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from bridge.log.record import Record
from bridge.log.store import Store
from bridge.runtime.pipes import READ_BYTES
from bridge.runtime.spawn import PIPE_BYTES
from tests.e2e.harness import Bridge, Json, serving
from tests.faults.rig import agent, eventually, is_gapless, tagged

pytestmark = pytest.mark.anyio

NEVER: list[Json] = [{"wait_cancel": True}]


@asynccontextmanager
async def _bridge(folder: Path, limits: Json, **members: Any) -> AsyncIterator[Bridge]:
    agents = {"fake": agent(folder, **members)}
    async with serving(folder, agents, default_agent="fake", limits=limits) as bridge:
        yield bridge


async def _without_process(bridge: Bridge) -> str:
    """A session whose agent has gone, so that the next prompt loads the conversation."""
    session_id = str((await bridge.caller.session())["sessionId"])
    turn = await bridge.caller.turn(session_id, "exit")
    assert turn["error"]["code"] == "agent-exited"
    return session_id


async def test_an_agent_that_never_loads_a_conversation_is_given_up(tmp_path: Path) -> None:
    hangs = {"on": {"session/load": {"before": [{"text": "old"}, *NEVER]}}}
    async with _bridge(tmp_path, {"load_session_s": 0.5}, **hangs) as bridge:
        session_id = await _without_process(bridge)
        with anyio.fail_after(10):
            turn = await bridge.caller.turn(session_id, "hello")
        assert (turn["status"], turn["error"]["code"]) == ("failed", "agent-timeout")
        assert "session/load" in turn["error"]["detail"]
        shown = (await bridge.caller.get(f"/v1/sessions/{session_id}")).json()
        assert shown["status"] == "failed"
        await eventually(lambda: not tagged(tmp_path / "state"))
        assert not len(bridge.application.context.running.pool)


@pytest.mark.parametrize("call", ["extension", "mode"])
async def test_a_call_that_an_agent_never_answers_is_given_up(tmp_path: Path, call: str) -> None:
    modes = {"currentModeId": "a", "availableModes": [{"id": "a", "name": "A"}]}
    modes["availableModes"].append({"id": "b", "name": "B"})  # type: ignore[attr-defined]
    new = {"result": {"sessionId": "{sessionId}", "modes": modes}}
    hangs = {"session/new": new, "_probe": {"before": NEVER}, "session/set_mode": {"before": NEVER}}
    async with _bridge(tmp_path, {"call_s": 0.3}, sessionId="s", on=hangs) as bridge:
        session_id = (await bridge.caller.session())["sessionId"]
        path = f"/v1/sessions/{session_id}"
        with anyio.fail_after(10):
            if call == "mode":
                answer = await bridge.caller.http.put(f"{path}/mode", json={"modeId": "b"})
            else:
                answer = await bridge.caller.post(f"{path}/ext", {"method": "_probe", "params": {}})
        assert (answer.status_code, answer.json()["code"]) == (504, "agent-timeout")
        assert (await bridge.caller.turn(session_id, "hello"))["text"] == "You said: hello"


async def test_a_replay_that_never_becomes_quiet_is_given_up_and_becomes_no_turn(
    tmp_path: Path,
) -> None:
    babble = [{"repeat": 100_000, "steps": [{"text": "old"}, {"sleep": 10}]}]
    limits = {"load_session_s": 1.0}
    async with _bridge(tmp_path, limits, on={"session/load": {"after": babble}}) as bridge:
        session_id = await _without_process(bridge)
        turn = await bridge.caller.turn(session_id, "hello")
        assert (turn["status"], turn["error"]["code"], turn["text"]) == (
            "failed",
            "agent-timeout",
            "",
        )


class SlowStore:
    """A store that takes its time, and notes how far the agent has got meanwhile."""

    def __init__(self, store: Store, pid: int, line_bytes: int) -> None:
        self.store = store
        self.ahead_bytes = 0
        self._line_bytes = line_bytes
        self._pid = pid
        self._logged = _written_bytes(pid)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def append(self, session_id: str, drafts: Any, **options: Any) -> Record:
        """One slow append."""
        time.sleep(0.02)
        self.ahead_bytes = max(self.ahead_bytes, _written_bytes(self._pid) - self._logged)
        self._logged += self._line_bytes * sum(each.type == "session/update" for each in drafts)
        return self.store.append(session_id, drafts, **options)


def _written_bytes(pid: int) -> int:
    """What a process has handed to the kernel, to its pipes too."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


async def test_an_agent_faster_than_the_log_is_held_back_by_its_pipe_and_loses_nothing(
    tmp_path: Path,
) -> None:
    lines = 25_000
    async with _bridge(tmp_path, {}) as bridge:
        runtime = bridge.application.context.running
        session_id = (await bridge.caller.session())["sessionId"]
        session = runtime.registry.live[session_id]
        assert session.link is not None and session.link.process is not None
        pid = session.link.process.pid
        written = [_written_bytes(pid)]
        for prompt in ("flood 1000", "flood 2000"):
            await bridge.caller.turn(session_id, prompt)
            written.append(_written_bytes(pid))
        line_bytes = (written[2] - written[1] - (written[1] - written[0])) // 1000
        slow = SlowStore(runtime.services.store, pid, line_bytes)
        runtime.services.store = cast("Store", slow)
        turn = await bridge.caller.prompt(session_id, f"flood {lines}")
        with anyio.fail_after(60):
            while not (await bridge.caller.settled(session_id, turn["turnId"]))["endedAt"]:
                pass
        runtime.services.store = slow.store
        events = [
            each
            for each in await bridge.caller.log(session_id)
            if each.get("turnId") == turn["turnId"] and each["type"] == "session/update"
        ]
        assert len(events) == lines and is_gapless(events)
        assert READ_BYTES < slow.ahead_bytes < PIPE_BYTES + 2 * READ_BYTES
        assert lines * line_bytes > 2 * slow.ahead_bytes
