"""Reading what is stored: the replay of a long session, and its transcript's first page."""

from __future__ import annotations

import time
from typing import Any

from bench.figures import in_ms
from bench.flat_out import subscribe, told
from bench.machine import usage
from bench.reader import Counter, begun, connect
from bench.serving import TOKEN, bridge

PAGES = 20


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
    """The first page of a session of many turns; how long it takes, again and again."""
    with bridge() as served:
        session_id = served.session()
        for _ in range(turns):
            served.turn(session_id, str(entries // turns))
        path = f"/v1/sessions/{session_id}/transcript"
        times = []
        for _ in range(PAGES):
            began = time.perf_counter()
            page = served.call("GET", path)
            times.append(time.perf_counter() - began)
        size = len(served.exchange("GET", path)[2])
    return {
        "workload": "transcript",
        "entries": entries,
        "turns": turns,
        "first": round(times[0] * 1e3, 2),
        "page": in_ms(times),
        "items": len(page["items"]),
        "page_bytes": size,
    }


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
