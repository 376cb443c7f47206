"""What tests of kills, floods and limits share: agents, processes, subscribers.

``case`` writes what the scripted agent plays; ``configured`` the configuration of a bridge in a
process of its own. ``Follower`` is a subscriber that outlives bridges: it keeps what it has seen
and resumes at the next one. ``tagged`` finds every process that a state folder's bridge started.
Waiting is for events, inside time limits; a look at the process table is repeated until it is as
wanted or the time is up.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx

from bridge.runtime import linux
from bridge.runtime.process import RUN_TAG
from tests.e2e.harness import ROOT, Caller, Event, Json, demo, read_events

PERMISSION: Json = {
    "ask": "session/request_permission",
    "params": {
        "sessionId": "{sessionId}",
        "toolCall": {"toolCallId": "t1", "title": "`true`", "kind": "execute"},
        "options": [
            {"optionId": "allow-once", "name": "Allow", "kind": "allow_once"},
            {"optionId": "reject-once", "name": "Reject", "kind": "reject_once"},
        ],
    },
}
HANG: list[Json] = [{"wait_cancel": True}, {"respond": {"stopReason": "cancelled"}}]
PROMPTS: list[Json] = [
    {"match": "^ask", "steps": [{"text": "before "}, PERMISSION, {"text": "after"}]},
    {"match": "^hang", "steps": [{"text": "hanging"}, *HANG]},
    {"match": "^deaf", "steps": [{"text": "deaf"}, {"ignore_cancel": True}, *HANG[:1]]},
    {"match": "^mute", "steps": [{"close_stdout": True}, *HANG[:1]]},
    {"match": "^holder", "steps": [{"text": "held"}, {"spawn": "holder"}, {"signal": "SIGKILL"}]},
    {"match": "^daemon", "steps": [{"spawn": "daemon"}, {"text": "daemon"}, *HANG]},
    {"match": "^flood", "steps": [{"flood": "{n}"}]},
    {"match": "^big", "steps": [{"big": "{n}"}]},
    {"match": "^exit", "steps": [{"text": "bye"}, {"exit": 3}]},
]
"""Prompts by their first word; anything else is echoed."""


def case(folder: Path, name: str = "case", **members: Any) -> list[str]:
    """The command of the scripted agent with :data:`PROMPTS` and what ``members`` add."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"prompts": PROMPTS, **members}))
    return [sys.executable, str(ROOT / "tests" / "agents" / "scripted.py"), str(path)]


def agent(folder: Path, name: str = "case", **members: Any) -> Json:
    """Settings of that agent."""
    return {"command": case(folder, name, **members)}


def demo_agent(folder: Path, **values: Any) -> Json:
    """Settings of the demo agent, whose conversations are kept and whose pauses are none."""
    env = {"CURSOR_DEMO_PACE": "0", "CURSOR_DEMO_HOME": str(folder / "demo")}
    return {"command": demo(), "dialect": "cursor", "env": env, **values}


def configured(agents: Mapping[str, Json], **tables: Mapping[str, Any]) -> str:
    """A configuration file; the first agent is the default one."""
    limits = {"spawn_stagger_s": 0.0, "load_quiet_s": 0.05, "stop_step_s": 1.0}
    rates = {"prompts_per_minute": 100_000, "sessions_per_minute": 100_000}
    lines = [f"default_agent = {json.dumps(next(iter(agents)))}", "dumpable = true"]
    tables = {**tables, "limits": {**limits, **rates, **tables.get("limits", {})}}
    tables["storage"] = {"reserve_bytes": 65536, **tables.get("storage", {})}
    for name, values in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(each)}" for key, each in values.items())]
    for name, values in agents.items():
        env = values.get("env", {})
        plain = {key: each for key, each in values.items() if key != "env"}
        lines += [f"[agents.{name}]"]
        lines += [f"{key} = {json.dumps(each)}" for key, each in plain.items()]
        lines += [f"[agents.{name}.env]"]
        lines += [f"{key} = {json.dumps(each)}" for key, each in env.items()]
    return "\n".join(lines) + "\n"


def tagged(state_dir: Path) -> set[int]:
    """Every process that carries the run tag of a state folder, zombies aside."""
    state_id = (state_dir / "lock").read_text()
    found = set()
    for pid, process in linux.table().items():
        tag = linux.environment_value(pid, RUN_TAG)
        if tag is not None and tag.startswith(f"{state_id}.") and not process.is_zombie:
            found.add(pid)
    return found


async def eventually(is_so: Callable[[], bool], limit_s: float = 10.0) -> None:
    """Look until something outside this process is as wanted."""
    with anyio.fail_after(limit_s):
        while not is_so():  # noqa: ASYNC110 - nobody tells of other processes
            await anyio.sleep(0.02)


def descriptors(pid: int) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_bytes(pid: int, member: str = "VmRSS") -> int:
    """The memory a process takes (``VmHWM``: took at most)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{member}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {member}")


@dataclass
class Follower:
    """A subscriber of one session that goes on wherever it was cut off."""

    session_id: str
    events: list[Event] = field(default_factory=list)
    resets: list[Event] = field(default_factory=list)
    grew: anyio.Event = field(default_factory=anyio.Event)

    @property
    def last_seq(self) -> int:
        """The last position that was seen whole."""
        return self.events[-1].seq if self.events else 0

    async def follow(self, caller: Caller) -> None:
        """Read until the stream ends or breaks."""
        headers = {"Accept": "text/event-stream"}
        if self.events:
            headers["Last-Event-ID"] = str(self.last_seq)
        path = f"/v1/sessions/{self.session_id}/events"
        try:
            async with caller.http.stream("GET", path, headers=headers, timeout=30.0) as answer:
                if answer.status_code != 200:
                    return
                async for event in read_events(answer.aiter_bytes()):
                    self._take(event)
        except httpx.TransportError:
            return

    async def until(self, wanted: Callable[[Follower], bool], limit_s: float = 20.0) -> None:
        """Until what was seen is as wanted."""
        with anyio.fail_after(limit_s):
            while not wanted(self):
                await self.grew.wait()

    def saw(self, kind: str) -> bool:
        """Whether an event of a type has been seen."""
        return any(event.kind == kind for event in self.events)

    def _take(self, event: Event) -> None:
        assert event.data is not None
        if event.data["type"] == "bridge/reset":
            self.resets.append(event)
        else:
            self.events.append(event)
        self.grew.set()
        self.grew = anyio.Event()


def is_gapless(events: list[Json]) -> bool:
    """Positions go up by one, ids go up."""
    seqs = [event["seq"] for event in events]
    ids = [event["id"] for event in events]
    return seqs == list(range(seqs[0], seqs[0] + len(seqs))) and all(
        before < after for before, after in itertools.pairwise(ids)
    )
