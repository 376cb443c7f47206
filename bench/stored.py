"""Reading what is stored: the replay of a long session, and its transcript's first page."""

from __future__ import annotations

import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.figures import in_ms
from bench.flat_out import subscribe, told
from bench.latency import delays
from bench.machine import usage
from bench.reader import Counter, begun, connect
from bench.serving import TOKEN, Served, bridge

PAGES = 20
UPDATES, RATE = 600, 200.0


def resume(entries: int, rounds: int) -> dict[str, Any]:
    """A session of that many entries in one turn, read from its first one by a new subscriber."""
    with bridge() as served:
        session_id = served.session()
        turn = served.turn(session_id, str(entries))
        if turn["status"] != "completed":
            raise RuntimeError(f"the turn did not complete: {turn}")
        path = f"/v1/sessions/{session_id}/events?after=0"
        firsts, rates, events = [], [], []
        before = usage(served.pid)
        for _ in range(rounds):
            firsts.append(_first_byte(served.port, path))
            counted = told(subscribe(served.port, path, entries))
            took = counted["last"] - counted["first"]
            rates.append(counted["bytes"] / took / 1e6)
            events.append(entries / took)
        after = usage(served.pid)
    return {
        "workload": "resume",
        "entries": entries,
        "mb_per_s": round(max(rates), 1),
        "mb_per_s_least": round(min(rates), 1),
        "events_per_s": round(max(events)),
        "first_byte": in_ms(firsts),
        "cpu_s_each": round((after.cpu_s - before.cpu_s) / rounds, 2),
        "peak_mb": round(after.peak_mb, 1),
    }


def transcript(entries: int, turns: int) -> dict[str, Any]:
    """The first page of a session of many turns: again and again, after a restart, beside a stream.

    The stream is another session's at a pace; how late its updates come says what pages cost it.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with bridge(folder=folder) as served:
            session_id = served.session()
            for _ in range(turns):
                served.turn(session_id, str(entries // turns))
            path = f"/v1/sessions/{session_id}/transcript"
            page = served.call("GET", path)
            size = len(served.exchange("GET", path)[2])
            warm = [_page(served, path) for _ in range(PAGES)]
        with bridge(folder=folder) as served:
            cold = _page(served, path)
            alone, _ = _beside(served, None)
            late, times = _beside(served, path)
    return {
        "workload": "transcript",
        "entries": entries,
        "turns": turns,
        "cold_ms": round(cold * 1e3, 2),
        "page": in_ms(warm),
        "items": len(page["items"]),
        "page_bytes": size,
        "page_beside_a_stream": in_ms(times),
        "stream_alone": in_ms(alone),
        "stream_beside_pages": in_ms(late),
    }


def _page(served: Served, path: str) -> float:
    """Seconds from asking for a page to having it all."""
    began = time.perf_counter()
    served.exchange("GET", path)
    return time.perf_counter() - began


def _beside(served: Served, path: str | None) -> tuple[list[float], list[float]]:
    """How late a paced stream's updates come, and what pages took that were asked for meanwhile."""
    session_id = served.session()
    has_ended = threading.Event()
    stream_path = f"/v1/sessions/{session_id}/events?after=latest"
    with connect(served.port, stream_path, TOKEN) as stream, ThreadPoolExecutor(1) as pool:
        begun(stream)
        served.prompt(session_id, f"{UPDATES} {RATE}")
        asked = pool.submit(_pages_until, has_ended, served, path) if path else None
        try:
            late = delays(stream, UPDATES)
        finally:
            has_ended.set()
        return late, asked.result() if asked else []


def _pages_until(has_ended: threading.Event, served: Served, path: str) -> list[float]:
    times = []
    while not has_ended.is_set():
        times.append(_page(served, path))
    return times


def _first_byte(port: int, path: str) -> float:
    """Seconds from asking to the first event's first bytes."""
    began = time.perf_counter()
    with connect(port, path, TOKEN) as stream:
        counter = Counter()
        data = begun(stream)
        while b"\nevent: " not in data:
            data += stream.recv(1 << 16)
        counter.feed(data)
        return time.perf_counter() - began
