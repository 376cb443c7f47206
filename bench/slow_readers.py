"""Good readers beside slow and frozen ones: what they lose by them.

The same number of good readers first alone, then beside the others, in one run. A frozen one
never reads what it asked for; a slow one takes 20 kB a second, each in a process or socket of its
own.
"""

from __future__ import annotations

import contextlib
from typing import Any

from bench.flat_out import Figure, run, subscribe
from bench.reader import connect
from bench.serving import TOKEN, Served, bridge

SLOW_BYTES_PER_S = 20_000.0


def measure(events: int, good: int, slow: int, frozen: int) -> dict[str, Any]:
    """Both runs, and the ratio of the second to the first."""
    with bridge() as served:
        alone = _flood(served, events, good)
    with bridge() as served:
        session_id = served.session()
        path = f"/v1/sessions/{session_id}/events?after=latest"
        with contextlib.ExitStack() as stack:
            for _ in range(frozen):
                stack.enter_context(connect(served.port, path, TOKEN, receive_bytes=4096))
            for _ in range(slow):
                reader = subscribe(served.port, path, events, pace=SLOW_BYTES_PER_S)
                stack.callback(reader.wait)
                stack.callback(reader.kill)
                if reader.stdout is not None:
                    stack.callback(reader.stdout.close)
            beside = _flood(served, events, good, session_id)
    return {
        "workload": "slow-readers",
        "events": events,
        "good": good,
        "slow": slow,
        "frozen": frozen,
        "alone": _summary(alone),
        "beside": _summary(beside),
        "ratio": round(beside.events_per_s / alone.events_per_s, 2),
    }


def _flood(served: Served, events: int, good: int, session_id: str = "") -> Figure:
    session_id = session_id or served.session()
    path = f"/v1/sessions/{session_id}/events?after=latest"
    return run(served, path, lambda: served.prompt(session_id, str(events)), events, good)


def _summary(figure: Figure) -> dict[str, float]:
    return {
        "events_per_s": round(figure.events_per_s),
        "cpu_s": round(figure.cpu_s, 2),
        "peak_mb": round(figure.peak_mb, 1),
    }
