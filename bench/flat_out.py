"""One session flat out: the bridge against the bare loop, in pairs, in one run."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SUBSCRIBER = (sys.executable, "-m", "bench.subscriber")
TOKEN = "bench-token-0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Figure:
    """One run: the slowest subscriber's events a second, all subscribers' MB a second."""

    events_per_s: float
    mb_per_s: float
    cpu_s: float


def free_port() -> int:
    """A port nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def call(url: str, body: Any) -> Any:
    """POST JSON and return the JSON that comes back."""
    request = urllib.request.Request(
        url,
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


@contextlib.contextmanager
def started(command: list[str], ready: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has said ``ready``; ended by its pid."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
    )
    assert process.stdout is not None
    try:
        while ready and ready not in process.stdout.readline():
            if process.poll() is not None:
                raise RuntimeError(f"{command} ended")
        yield process
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def bridge(folder: Path) -> Iterator[tuple[str, int]]:
    """A bridge with the flood agent; gives its host and port."""
    port = free_port()
    config = folder / "bench.toml"
    command = json.dumps([sys.executable, str(ROOT / "bench" / "flood_agent.py")])
    config.write_text(
        f'default_agent = "flood"\nlog_level = "error"\n[agents.flood]\ncommand = {command}\n'
    )
    arguments = ["--config", str(config), "--port", str(port), "--root", str(folder)]
    state = ["--state-dir", str(folder / "state")]
    serve = [sys.executable, "-m", "bridge.cli.main", "serve", *arguments, *state]
    with started(serve, "http://", CURSOR_BRIDGE_TOKEN=TOKEN):
        yield "127.0.0.1", port


def subscribe(port: int, path: str, events: int, count: int) -> list[subprocess.Popen[str]]:
    """``count`` subscribers whose streams have begun."""
    readers = [
        subprocess.Popen(
            [*SUBSCRIBER, "127.0.0.1", str(port), path, TOKEN, str(events)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    for reader in readers:
        assert reader.stdout is not None
        reader.stdout.readline()
    return readers


def collect(readers: list[subprocess.Popen[str]], events: int) -> Figure:
    """What the subscribers measured."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = []
    for reader in readers:
        out, _ = reader.communicate(timeout=180)
        told.append(json.loads(out))
    if any(each["events"] < events for each in told):
        raise RuntimeError(f"events are missing: {told}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    slowest = max(each["seconds"] for each in told)
    size = sum(each["bytes"] for each in told)
    return Figure(events / slowest, size / slowest / 1e6, after.ru_utime - before.ru_utime)


def run_bridge(events: int, subscribers: int) -> Figure:
    """The bridge once."""
    with tempfile.TemporaryDirectory() as name, bridge(Path(name)) as (host, port):
        url = f"http://{host}:{port}/v1/sessions"
        session_id = call(url, {})["sessionId"]
        path = f"/v1/sessions/{session_id}/events?after=latest"
        readers = subscribe(port, path, events, subscribers)
        call(f"{url}/{session_id}/prompt", {"prompt": str(events)})
        return collect(readers, events)


def run_bare(events: int, subscribers: int) -> Figure:
    """The bare loop once."""
    port = free_port()
    with started([sys.executable, "-m", "bench.bare", str(port)], ""):
        wait_for(port)
        readers = subscribe(port, "/events", events, subscribers)
        call(f"http://127.0.0.1:{port}/prompt", {"prompt": str(events)})
        return collect(readers, events)


def wait_for(port: int, tries: int = 200) -> None:
    """Until somebody listens."""
    for _ in range(tries):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
            return
        subprocess.run(["sleep", "0.05"], check=True)
    raise RuntimeError("nobody listens")


def measure(events: int, subscribers: int, rounds: int) -> dict[str, Any]:
    """Pairs of runs, A B A B, and their ratios."""
    ours, bare = [], []
    for _ in range(rounds):
        ours.append(run_bridge(events, subscribers))
        bare.append(run_bare(events, subscribers))
    ratios = [a.events_per_s / b.events_per_s for a, b in zip(ours, bare, strict=True)]
    return {
        "workload": "flat-out",
        "subscribers": subscribers,
        "events": events,
        "rounds": rounds,
        "bridge_events_per_s": round(statistics.median(each.events_per_s for each in ours)),
        "bridge_mb_per_s": round(statistics.median(each.mb_per_s for each in ours), 1),
        "bare_events_per_s": round(statistics.median(each.events_per_s for each in bare)),
        "ratio_min": round(min(ratios), 2),
        "ratio_median": round(statistics.median(ratios), 2),
        "ratio_max": round(max(ratios), 2),
    }
