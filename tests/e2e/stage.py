"""One bridge a module, with the scripted agent in every case that its tests name.

``@case(NAME, …)`` gives a test a ``stage``: that bridge, seen by somebody who uses one agent only,
the scripted one with the case NAME of tests/agents/cases and the values of its configuration. What
a test began is deleted behind it, so that the next one finds the bridge as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.e2e.harness import LIMIT_S, Bridge, Event, Json, scripted, serving

ONCE = {"outcome": "selected", "kind": "allow_once"}
LIMITS: Json = {
    "cancel_grace_s": 1.0,
    "prompts_per_minute": 100_000,
    "sessions_per_minute": 100_000,
    "max_processes": 24,
    "max_pending_requests": 20,
}

_NAMED: dict[str, Json] = {}
"""The agents that test modules have named: their tables by the agent's name."""


class Stage:
    """A bridge, as a caller sees it who uses one scripted agent."""

    def __init__(self, bridge: Bridge, agent: str, folder: Path) -> None:
        self.bridge = bridge
        self.caller = bridge.caller
        self.agent = agent
        self.state = folder / agent
        self._wire = folder / f"{agent}.wire"
        self._seen = self._wire.stat().st_size if self._wire.exists() else 0
        self.started: list[str] = []

    async def ask(self, **body: Any) -> httpx.Response:
        """Ask for a session, whatever comes of it."""
        answer = await self.caller.post("/v1/sessions", {"agent": self.agent, **body})
        if answer.status_code < 300:
            self.started.append(answer.json()["sessionId"])
        return answer

    async def begin(self, **body: Any) -> Json:
        """A new session."""
        answer = await self.ask(**body)
        assert answer.status_code == 201, answer.text
        session: Json = answer.json()
        return session

    async def session_id(self, **body: Any) -> str:
        """The id of a new session."""
        return str((await self.begin(**body))["sessionId"])

    async def play(
        self, text: str, reply: Any = None, session_id: str | None = None, **body: Any
    ) -> tuple[str, Json]:
        """Prompt, reply the same to whatever waits, and return the ended turn."""
        session_id = session_id or await self.session_id()
        turn = await self.caller.turn(session_id, text, **body)
        with anyio.fail_after(LIMIT_S):
            while turn["status"] == "waiting" and reply is not None:
                for request in await self.caller.pending(session_id):
                    answer = await self.caller.reply(session_id, request["requestId"], reply)
                    assert answer.status_code == 200, answer.text
                turn = await self.caller.settled(session_id, turn["turnId"])
        return session_id, turn

    async def session(self, session_id: str) -> Json:
        """The Session now."""
        shown: Json = (await self.caller.get(f"/v1/sessions/{session_id}")).json()
        return shown

    async def put(self, session_id: str, what: str, **body: Any) -> httpx.Response:
        """Set a mode, a model or an option."""
        return await self.caller.http.put(f"/v1/sessions/{session_id}/{what}", json=body)

    async def cancel(self, session_id: str, turn: Json) -> Json:
        """Cancel a turn and return its end."""
        await self.caller.post(f"/v1/sessions/{session_id}/cancel")
        return await self.caller.settled(session_id, turn["turnId"])

    async def until(self, session_id: str, wanted: Callable[[Event], bool]) -> list[Event]:
        """The session's events up to the first wanted one."""
        path = f"/v1/sessions/{session_id}/events"
        return await self.caller.until(path, wanted, params={"after": 0})

    async def warnings(self, session_id: str) -> list[str]:
        """The codes of the session's warnings."""
        events = await self.caller.log(session_id)
        return [e["params"]["code"] for e in events if e["type"] == "bridge/warning"]

    async def items(self, session_id: str, kind: str) -> list[Json]:
        """The items of a kind in the session's transcript."""
        answer = await self.caller.get(f"/v1/sessions/{session_id}/transcript")
        return [item for item in answer.json()["items"] if item["type"] == kind]

    async def listed(self) -> list[Json]:
        """The agent's sessions that are listed."""
        answer = await self.caller.get("/v1/sessions", params={"agent": self.agent})
        found: list[Json] = answer.json()["sessions"]
        return found

    def received(self) -> list[Json]:
        """The messages that reached the agent in this test, in order."""
        return [json.loads(line["line"]) for line in self._lines() if line["dir"] == "in"]

    def pids(self) -> set[int]:
        """The processes that played the agent in this test."""
        return {line["pid"] for line in self._lines()}

    def _lines(self) -> list[Json]:
        text = self._wire.read_bytes()[self._seen :].decode()
        return [json.loads(line) for line in text.splitlines()]

    def methods(self) -> list[str]:
        """The methods that reached the agent, in order."""
        return [message["method"] for message in self.received() if "method" in message]

    def answers(self) -> list[Json]:
        """The answers that reached the agent, in order."""
        return [message for message in self.received() if "method" not in message]


async def asked(stage: Stage, text: str) -> tuple[str, Json, Json]:
    """A session whose turn waits, the turn, and the first request."""
    session_id, turn = await stage.play(text)
    assert turn["status"] == "waiting", turn
    return session_id, turn, (await stage.caller.pending(session_id))[0]


def case(name: str, **values: Any) -> pytest.MarkDecorator:
    """Play this case, with these values in the agent's configuration (dialect ``cursor``)."""
    said = " ".join(f"{key} {value}" for key, value in values.items())
    agent = re.sub("[^a-z0-9]+", "-", f"{name} {said}".strip().lower()).strip("-")
    _NAMED[agent] = {"case": name, "dialect": "cursor", **values}
    return pytest.mark.parametrize("stage", [agent], indirect=True, ids=[agent])


@pytest.fixture(scope="module", name="anyio_backend")
def module_backend() -> str:
    """One loop for a module, so that its tests can share a bridge."""
    return "asyncio"


@pytest.fixture(scope="module", name="limits")
def module_limits() -> Json:
    """What the module's bridge allows; a module may say otherwise."""
    return LIMITS


@pytest.fixture(scope="module", name="playhouse")
async def module_playhouse(
    tmp_path_factory: pytest.TempPathFactory, limits: Json
) -> AsyncIterator[tuple[Bridge, Path]]:
    """The module's bridge, and the folder in which its agents leave what reached them."""
    folder = tmp_path_factory.mktemp("stage")
    agents = {name: _table(name, folder) for name in _NAMED}
    async with serving(folder, agents, default_agent=next(iter(_NAMED)), limits=limits) as bridge:
        yield bridge, folder


def _table(agent: str, folder: Path) -> Json:
    values = dict(_NAMED[agent])
    env = {
        "FAKE_AGENT_STATE": str(folder / agent),
        "FAKE_AGENT_LOG": str(folder / f"{agent}.wire"),
        **values.pop("env", {}),
    }
    return {"command": scripted(values.pop("case")), "env": env, **values}


@pytest.fixture(name="stage")
async def one_stage(
    request: pytest.FixtureRequest, playhouse: tuple[Bridge, Path]
) -> AsyncIterator[Stage]:
    """The bridge with the agent that ``@case(…)`` names."""
    bridge, folder = playhouse
    stage = Stage(bridge, request.param, folder)
    yield stage
    async with anyio.create_task_group() as tasks:
        for session_id in stage.started:
            tasks.start_soon(bridge.caller.http.delete, f"/v1/sessions/{session_id}")
