"""The fold: a Session is its events, a later transcript an earlier one and what came between."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from tests.e2e.contract import CONTRACT, module_backend, module_bridge, module_tidy  # noqa: F401
from tests.e2e.folding import fold_items, fold_session, without_positions
from tests.e2e.harness import Bridge, Caller, Json

pytestmark = pytest.mark.anyio

WORDS = (
    "hello",
    "stream 30 0",
    "emoji",
    "silent",
    "finish refusal",
    "finish max_tokens",
    "mode plan",
    "mode agent",
    "outline",
    "tool",
    "run ls",
    "tools 3",
    "edit a.txt",
    "subagent",
    "question",
    "plan",
    "todos",
    "elicit",
    "elicit url",
    "vendor",
    "hang",
    "fail auth",
    "error",
    "crash",
    "noise",
    "late",
    "todos then tool then hello",
    "image",
)
RULES: tuple[Json, ...] = (
    {"rules": []},
    {"rules": [{"match": {"kind": "execute"}, "reply": "allow_once"}]},
    {"rules": [{"match": {}, "reply": "reject_once"}]},
    {"rules": [{"match": {"method": "cursor/*"}, "reply": "cancel"}]},
    {"rules": [], "onTimeout": {"afterSeconds": 0.2, "reply": "cancel"}},
)
REPLIES: dict[str, list[Any]] = {
    "permission": [
        {"outcome": "selected", "kind": "allow_once"},
        {"outcome": "selected", "kind": "reject_once"},
        {"outcome": "cancelled"},
    ],
    "question": [
        {"outcome": "skipped", "reason": "no"},
        {"outcome": "cancelled"},
    ],
    "plan": [
        {"outcome": "accepted"},
        {"outcome": "accepted", "proceed": {"modeId": "agent", "prompt": "hello again"}},
        {"outcome": "rejected"},
    ],
    "elicitation": [{"action": "decline"}, {"action": "cancel"}],
    "extension": [{"result": {"fine": True}}, {"error": {"code": -1, "message": "no"}}],
}


@dataclass
class Watched:
    """A session as a caller follows it: its fold, and the transcript it once read."""

    caller: Caller
    session_id: str
    view: Json = field(default_factory=dict)
    seen: int = 0
    transcript: Json | None = None
    events: list[Json] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Its address."""
        return f"/v1/sessions/{self.session_id}"

    async def look(self) -> None:
        """A snapshot is the fold of the events up to its position."""
        snapshot = (await self.caller.get(self.path)).json()
        await self._catch_up(snapshot["lastSeq"])
        folded = fold_session(self.view, self._between(self.seen, snapshot["lastSeq"]))
        self.view, self.seen = folded, snapshot["lastSeq"]
        assert folded == without_positions(snapshot)

    async def read(self) -> None:
        """A transcript is the earlier one with the later events."""
        answer = await self.caller.get(f"{self.path}/transcript", params={"limit": 200})
        latest = answer.json()
        await self._catch_up(latest["lastSeq"])
        if self.transcript is not None:
            between = self._between(self.transcript["lastSeq"], latest["lastSeq"])
            assert fold_items(self.transcript["items"], between) == latest["items"]
        self.transcript = latest

    def _between(self, after: int, last: int) -> list[Json]:
        return [event for event in self.events if after < event["seq"] <= last]

    async def _catch_up(self, last: int) -> None:
        while (known := len(self.events)) < last:
            page = await self.caller.get(
                f"{self.path}/events", params={"after": known, "limit": 1000}
            )
            self.events += page.json()["events"]
        assert [event["seq"] for event in self.events] == list(range(1, len(self.events) + 1))


class Driver:
    """Random callers on some sessions."""

    def __init__(self, caller: Caller, seed: int) -> None:
        self.caller = caller
        self.random = random.Random(seed)
        self.watched: list[Watched] = []

    async def step(self, watched: Watched) -> None:
        """One thing that a caller may do; refusals are fine."""
        actions = (
            self._prompt,
            self._prompt,
            self._prompt,
            self._reply,
            self._reply,
            self._reply,
            self._cancel,
            self._patch,
            self._choose,
        )
        answer = await self.random.choice(actions)(watched)
        assert answer is None or answer.status_code < 500, answer.text

    async def _prompt(self, watched: Watched) -> Any:
        body = {
            "prompt": self.random.choice(WORDS),
            "onBusy": self.random.choice(("queue", "interrupt", "reject")),
            "resendCancelled": self.random.random() < 0.2,
        }
        headers = {"Prefer": "wait=1"} if self.random.random() < 0.3 else {}
        return await self.caller.post(f"{watched.path}/prompt", body, headers=headers)

    async def _reply(self, watched: Watched) -> Any:
        pending = await self.caller.pending(watched.session_id)
        if not pending:
            return None
        request = self.random.choice(pending)
        body = self.random.choice(REPLIES[request["kind"]])
        return await self.caller.reply(watched.session_id, request["requestId"], body)

    async def _cancel(self, watched: Watched) -> Any:
        return await self.caller.post(
            f"{watched.path}/cancel", {"hard": self.random.random() < 0.15}
        )

    async def _patch(self, watched: Watched) -> Any:
        body = self.random.choice(
            (
                {"title": f"title {self.random.random()}"},
                {"metadata": {"n": self.random.randint(0, 9), "gone": None}},
                {"permissions": self.random.choice(RULES)},
            )
        )
        return await self.caller.http.patch(watched.path, json=body)

    async def _choose(self, watched: Watched) -> Any:
        if self.random.random() < 0.5:
            mode = self.random.choice(("agent", "plan", "ask"))
            return await self.caller.http.put(f"{watched.path}/mode", json={"modeId": mode})
        model = self.random.choice(("default[]", "composer-2.5", "gpt-5.4"))
        return await self.caller.http.put(f"{watched.path}/model", json={"modelId": model})


@pytest.mark.parametrize("seed", range(4))
async def test_at_any_moment_a_session_and_its_transcript_are_the_fold_of_its_events(
    bridge: Bridge, seed: int
) -> None:
    driver = Driver(bridge.caller, seed)
    before = (await bridge.caller.get("/v1/sessions")).json()["lastId"]
    for _ in range(2):
        session = await bridge.caller.session()
        driver.watched.append(Watched(bridge.caller, session["sessionId"]))
    with anyio.fail_after(55):
        for _ in range(40):
            watched = driver.random.choice(driver.watched)
            await driver.step(watched)
            await driver.random.choice((watched.look, watched.read))()
        for watched in driver.watched:
            await bridge.caller.http.delete(watched.path)
            await watched.look()
            await watched.read()
    await _all_that_came_after(bridge.caller, before, driver.watched)


async def _all_that_came_after(caller: Caller, after: int, watched: list[Watched]) -> None:
    """The multiplexed events from a snapshot's ``lastId`` are exactly what came after it."""
    names = ",".join(each.session_id for each in watched)
    found: list[Json] = []
    more = True
    while more:
        answer = await caller.get(
            "/v1/events", params={"after": after, "limit": 1000, "sessions": names}
        )
        page = answer.json()
        found += page["events"]
        after, more = page["nextAfter"], page["more"]
    for event in found:
        CONTRACT.event_holds(event)
    expected = [event for each in watched for event in each.events]
    assert found == sorted(expected, key=lambda event: event["id"])
