"""Kill a bridge with SIGKILL at random moments of a turn, again and again, and look what is left.

    python -m tests.faults.kills [ROUNDS] [SEED]

``run`` raises ``AssertionError`` at the first thing that was lost, changed, reused or left over.
A moment is the number of events that a subscriber has seen, so that a seed names it.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx

from tests.e2e.harness import Caller, Json, Subprocess
from tests.faults.rig import PERMISSION, Follower, agent, configured, is_gapless, tagged

SUBSCRIBERS = 3
_BEFORE, _AFTER = 20, 80
_PAUSED: Json = {"steps": [{"text": "some text "}, {"sleep": 2}]}
_MIXED: list[Json] = [
    {"repeat": _BEFORE, **_PAUSED},
    PERMISSION | {"wait": False},
    {"repeat": _AFTER, **_PAUSED},
]
LAST_MOMENT = _BEFORE + _AFTER + 8
"""A little later than the end of the turn."""


@dataclass
class Report:
    """What came of it."""

    rounds: int = 0
    seen: int = 0
    turns: int = 0
    requests: int = 0
    slowest_start_s: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.rounds} kills, {self.seen} events seen by {SUBSCRIBERS} subscribers, "
            f"{self.turns} turns {self.statuses}, {self.requests} requests, "
            f"slowest start {self.slowest_start_s:.2f} s"
        )


async def run(folder: Path, rounds: int, seed: int) -> Report:
    """``rounds`` kills of one bridge with one session."""
    report, chance = Report(), random.Random(seed)
    config = configured({"fake": agent(folder, prompts=[{"match": "", "steps": _MIXED}])})
    async with Subprocess(folder, config) as process:
        caller = await _start(process, report)
        session_id = (await caller.session())["sessionId"]
        followers = [Follower(session_id) for _ in range(SUBSCRIBERS)]
        for _ in range(rounds):
            await _round(process, caller, followers, chance.randrange(LAST_MOMENT))
            orphans = tagged(folder / "state")
            caller = await _start(process, report)
            assert not orphans & tagged(folder / "state"), "an agent outlived its bridge"
            report.rounds += 1
            await _check(caller, followers)
        await _look_at_turns(caller, session_id, report)
        report.seen = sum(len(each.events) for each in followers)
    return report


async def _start(process: Subprocess, report: Report) -> Caller:
    began = time.monotonic()
    caller = await process.start()
    report.slowest_start_s = max(report.slowest_start_s, time.monotonic() - began)
    return caller


async def _round(
    process: Subprocess, caller: Caller, followers: list[Follower], moment: int
) -> None:
    """Prompt, and kill once the first subscriber has seen so many events of it."""
    session_id = followers[0].session_id
    async with anyio.create_task_group() as tasks:
        for follower in followers:
            tasks.start_soon(follower.follow, caller)
        turn = await caller.prompt(session_id, "mixed")
        wanted = turn["afterSeq"] + moment
        await followers[0].until(
            lambda seen: seen.last_seq >= wanted or _has_ended(seen, turn["turnId"])
        )
        process.kill()


def _has_ended(seen: Follower, turn_id: str) -> bool:
    last = seen.events[-20:]
    return any(each.kind == "bridge/turn_ended" and turn_id in str(each.data) for each in last)


async def _check(caller: Caller, followers: list[Follower]) -> None:
    """All that anybody has seen is in the log as it was, and the log goes on without a gap."""
    log = await caller.log(followers[0].session_id)
    assert is_gapless(log) and log[0]["seq"] == 1
    for follower in followers:
        assert not follower.resets
        assert [each.data for each in follower.events] == log[: len(follower.events)]


async def _look_at_turns(caller: Caller, session_id: str, report: Report) -> None:
    """Every turn has an end, every request a resolution, and no late reply is taken."""
    log = await caller.log(session_id)
    ended = {
        each["params"]["turn"]["turnId"]: each["params"]["turn"]["status"]
        for each in log
        if each["type"] == "bridge/turn_ended"
    }
    queued = [each["turnId"] for each in log if each["type"] == "bridge/turn_queued"]
    assert set(queued) == set(ended) and len(queued) == len(ended)
    report.turns = len(queued)
    for status in ended.values():
        report.statuses[status] = report.statuses.get(status, 0) + 1
    asked = [each["requestId"] for each in log if each["type"] == "session/request_permission"]
    told = [each["requestId"] for each in log if each["type"] == "bridge/request_resolved"]
    assert sorted(asked) == sorted(told) and len(set(told)) == len(told)
    report.requests = len(asked)
    for request_id in asked:
        await _is_gone(caller, session_id, request_id)
    for turn_id in queued:
        assert (await caller.settled(session_id, turn_id))["endedAt"]


async def _is_gone(caller: Caller, session_id: str, request_id: str) -> None:
    body: Any = {"outcome": "selected", "optionId": "allow-once"}
    answer: httpx.Response = await caller.reply(session_id, request_id, body)
    assert answer.status_code == 410 and answer.json()["resolution"]["by"]


def main() -> None:
    """The command line."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as folder:
        report = anyio.run(partial(run, Path(folder), rounds, seed))
    sys.stdout.write(f"seed {seed}: {report}\n")


if __name__ == "__main__":
    main()
