"""One session flat out: the bridge against the bare loop, in pairs (A B A B), in one run.

The same agent program floods both; each subscriber is a process that counts what it gets and holds
the ids to having no gap. Only the ratio of a pair is a figure to trust: machines are shared.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.figures import spread
from bench.machine import usage
from bench.serving import ROOT, TOKEN, Served, bare, bridge


@dataclass(frozen=True, slots=True)
class Figure:
    """One run, from the first subscriber's first byte to the last one's last.

    ``mb_per_s`` is of all subscribers together; ``cpu_s`` and ``peak_mb`` are the server's.
    """

    events_per_s: float
    mb_per_s: float
    cpu_s: float
    peak_mb: float


Reader = subprocess.Popen[str]


def subscribe(port: int, path: str, events: int, *, pace: float = 0) -> Reader:
    """A subscriber whose stream has begun."""
    given = {"port": port, "path": path, "token": TOKEN, "events": events, "pace": pace}
    reader = subprocess.Popen(
        [sys.executable, "-m", "bench.reader", json.dumps(given)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    if reader.stdout.readline() != "ready\n":
        raise RuntimeError(f"a subscriber ended with {reader.wait()}")
    return reader


def told(reader: Reader, limit_s: float = 180) -> dict[str, Any]:
    """What a subscriber counted. Raises ``RuntimeError`` where it found a gap."""
    out, _ = reader.communicate(timeout=limit_s)
    if reader.returncode:
        raise RuntimeError(f"a subscriber ended with {reader.returncode}")
    counted: dict[str, Any] = json.loads(out)
    return counted


def run(
    served: Served, path: str, prompt: Callable[[], object], events: int, subscribers: int
) -> Figure:
    """One flood, everybody reading."""
    readers = [subscribe(served.port, path, events) for _ in range(subscribers)]
    before = usage(served.pid)
    prompt()
    counted = [told(reader) for reader in readers]
    after = usage(served.pid)
    if missing := [each for each in counted if each["updates"] != events]:
        raise RuntimeError(f"events are missing: {missing}")
    took = max(each["last"] for each in counted) - min(each["first"] for each in counted)
    size = sum(each["bytes"] for each in counted)
    return Figure(events / took, size / took / 1e6, after.cpu_s - before.cpu_s, after.peak_mb)


def run_bridge(events: int, subscribers: int) -> Figure:
    """The bridge once, with a log that is empty."""
    with bridge() as served:
        session_id = served.session()
        path = f"/v1/sessions/{session_id}/events?after=latest"
        return run(
            served, path, lambda: served.prompt(session_id, str(events)), events, subscribers
        )


def run_bare(events: int, subscribers: int) -> Figure:
    """The bare loop once."""
    with bare() as served:
        body = {"prompt": str(events)}
        prompt = lambda: served.call("POST", "/prompt", body)  # noqa: E731
        return run(served, "/events", prompt, events, subscribers)


def measure(events: int, subscribers: int, rounds: int) -> dict[str, Any]:
    """Pairs of runs and their ratios."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(run_bridge(events, subscribers))
        theirs.append(run_bare(events, subscribers))
    ratios = [a.events_per_s / b.events_per_s for a, b in zip(ours, theirs, strict=True)]
    return {
        "workload": "flat-out",
        "subscribers": subscribers,
        "events": events,
        "rounds": rounds,
        "bridge": _summary(ours),
        "bare": _summary(theirs),
        "ratio": spread(ratios),
    }


def _summary(figures: list[Figure]) -> dict[str, float]:
    return {
        "events_per_s": round(statistics.median(each.events_per_s for each in figures)),
        "mb_per_s": round(statistics.median(each.mb_per_s for each in figures), 1),
        "cpu_s": round(statistics.median(each.cpu_s for each in figures), 2),
        "peak_mb": round(max(each.peak_mb for each in figures), 1),
    }
