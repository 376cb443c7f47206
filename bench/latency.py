"""From the agent's write to the subscriber's read, at a pace a person could watch.

The agent puts the moment of writing into each text; the subscriber, here, compares it with its
own, both of the system's monotonic clock. Beside it stand sessions that do nothing.
"""

from __future__ import annotations

import re
import socket
import time
from typing import Any

from bench.figures import in_ms
from bench.machine import usage
from bench.reader import begun, connect
from bench.serving import TOKEN, bridge

_WRITTEN = re.compile(rb'"text":"t=(\d+) ')


def measure(updates: int, rate: float, idle: int) -> dict[str, Any]:
    """``updates`` at ``rate`` a second, ``idle`` other sessions with their agents and streams."""
    with bridge(processes=idle + 8) as served:
        others = []
        for _ in range(idle):
            path = f"/v1/sessions/{served.session()}/events"
            others.append(connect(served.port, path, TOKEN))
            begun(others[-1])
        session_id = served.session()
        path = f"/v1/sessions/{session_id}/events?after=latest"
        before = usage(served.pid)
        with connect(served.port, path, TOKEN) as stream:
            begun(stream)
            served.prompt(session_id, f"{updates} {rate}")
            late = delays(stream, updates)
        after = usage(served.pid)
        for other in others:
            other.close()
    return {
        "workload": "latency",
        "rate": rate,
        "idle_sessions": idle,
        "latency": in_ms(late),
        "cpu_s": round(after.cpu_s - before.cpu_s, 2),
        "rss_mb": round(after.rss_mb, 1),
    }


def delays(stream: socket.socket, updates: int) -> list[float]:
    """How late each of so many updates of a paced turn comes out of its stream, in seconds."""
    late: list[float] = []
    rest = b""
    while len(late) < updates:
        data = stream.recv(1 << 16)
        now = time.monotonic_ns()
        if not data:
            raise RuntimeError("the stream ended")
        whole, _, tail = (rest + data).rpartition(b"\n\n")
        late += [(now - int(each)) / 1e9 for each in _WRITTEN.findall(whole)]
        rest = tail if whole else rest + data
    return late
