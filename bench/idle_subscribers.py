"""A thousand subscribers that hear nothing: what they cost, and whether they are forgotten."""

from __future__ import annotations

import time
from typing import Any

from bench.figures import in_ms
from bench.machine import usage
from bench.reader import begun, connect
from bench.serving import TOKEN, Served, bridge

REQUESTS = 200


def measure(subscribers: int) -> dict[str, Any]:
    """Memory and descriptors before, with them and after; another request's time beside them."""
    with bridge() as served:
        session_id = served.session()
        path = f"/v1/sessions/{session_id}"
        alone = _request_times(served, path)
        before = usage(served.pid)
        streams = []
        for _ in range(subscribers):
            streams.append(connect(served.port, f"{path}/events?after=latest", TOKEN))
            begun(streams[-1])
        during = usage(served.pid)
        beside = _request_times(served, path)
        for stream in streams:
            stream.close()
        after_s = _back_to(served, before.fds)
        after = usage(served.pid)
    return {
        "workload": "idle-subscribers",
        "subscribers": subscribers,
        "kb_each": round((during.rss_mb - before.rss_mb) * 1024 / subscribers, 1),
        "request_alone": in_ms(alone),
        "request_beside": in_ms(beside),
        "fds": {"before": before.fds, "during": during.fds, "after": after.fds},
        "fds_back_s": round(after_s, 2),
    }


def _request_times(served: Served, path: str) -> list[float]:
    times = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        served.call("GET", path)
        times.append(time.perf_counter() - began)
    return times


def _back_to(served: Served, fds: int, limit_s: float = 30) -> float:
    """Seconds until the server has no more descriptors than that, bounded."""
    began = time.monotonic()
    while usage(served.pid).fds > fds and time.monotonic() - began < limit_s:
        time.sleep(0.02)
    return time.monotonic() - began
