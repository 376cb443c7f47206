"""What a commit costs: one-entry commits over many sessions at a pace, straight at the store.

In this process, without HTTP: it is the time for which the loop stands still. The syncing thread
runs beside it, as it does in the bridge.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.figures import in_ms
from bench.flood_agent import TEXT, update
from bridge.log.entry import Draft
from bridge.log.store import Store

SEGMENT_BYTES = 4 * 1024 * 1024


def measure(seconds: float, rate: int, sessions: int) -> dict[str, Any]:
    """``rate`` commits a second for that long, in turn over the sessions."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        store = Store(Path(name) / "log", segment_bytes=SEGMENT_BYTES, clock=time.time)
        times, took = asyncio.run(_commit(store, int(seconds * rate), rate, sessions))
        size = sum(each.stat().st_size for each in Path(name).rglob("*") if each.is_file())
        store.close()
    return {
        "workload": "commit",
        "sessions": sessions,
        "asked_per_s": rate,
        "reached_per_s": round(len(times) / took),
        "commit": in_ms(times),
        "bytes_each": round(size / len(times)),
    }


async def _commit(store: Store, count: int, rate: int, sessions: int) -> tuple[list[float], float]:
    drafts = [Draft("session/update", update(TEXT).rstrip(), "turn_bench")]
    syncing = asyncio.create_task(store.sync_forever())
    times: list[float] = []
    began = time.perf_counter()
    for number in range(count):
        due = began + number / rate
        if (ahead := due - time.perf_counter()) > 0.001:
            await asyncio.sleep(ahead)
        start = time.perf_counter()
        store.append(f"ses_{number % sessions}", drafts)
        times.append(time.perf_counter() - start)
    took = time.perf_counter() - began
    syncing.cancel()
    await asyncio.gather(syncing, return_exceptions=True)
    return times, took
