"""What grows with what is stored: starts and reads beside a long session, and beside many.

``session``: one session of a million entries. ``recovery``: a turn that was open when the bridge
was killed. ``sessions``: ten thousand of them, made in the state folder before the start, each
with a log of its own. A start is timed from the process to its first answer, an empty one beside
it, since most of a start is imports.
"""

from __future__ import annotations

import json
import signal
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.figures import in_ms, spread
from bench.machine import usage
from bench.serving import Served, end, start_bridge
from bridge.clock import rfc3339
from bridge.log.entry import Draft
from bridge.log.store import Store
from bridge.log.tables import Tables
from bridge.protocol.view import new_view
from bridge.runtime.rows import row_of

READS = 10
STARTS = 3


def session(entries: int, turns: int) -> dict[str, Any]:
    """A session of so many entries in so many turns: its reads, and starts that hold it."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        empty = _starts(folder, STARTS)
        served = start_bridge(folder)
        try:
            session_id = served.session()
            for _ in range(turns):
                served.turn(session_id, str(entries // turns))
            reads = _reads(served, session_id)
            peak_mb = usage(served.pid).peak_mb
        finally:
            end(served.process)
        starts = _starts(folder, STARTS)
        served = start_bridge(folder)
        try:
            cold = _reads(served, session_id)
        finally:
            end(served.process)
    return {
        "workload": "large-session",
        "entries": entries,
        "turns": turns,
        "start_s": {"empty": spread(empty), "with it": spread(starts)},
        "reads": reads,
        "reads_after_a_start": cold,
        "peak_mb": round(peak_mb, 1),
    }


def recovery(updates: int, size: int) -> dict[str, Any]:
    """SIGKILL in a turn of so many updates; the start that folds it again."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        empty = _starts(folder, STARTS)
        served = start_bridge(folder)
        try:
            session_id = served.session()
            served.prompt(session_id, f"{updates * 4} 1000000 {size}")
            path = f"/v1/sessions/{session_id}"
            while served.call("GET", path)["lastSeq"] < updates:
                time.sleep(0.1)
        finally:
            served.process.send_signal(signal.SIGKILL)
            end(served.process)
        began = time.perf_counter()
        served = start_bridge(folder)
        took_s = time.perf_counter() - began
        try:
            used = usage(served.pid)
            turn = served.call("GET", path)["turn"]
            reads = _reads(served, session_id)
        finally:
            end(served.process)
    return {
        "workload": "recovery",
        "updates": updates,
        "start_s": {"empty": spread(empty), "with it": round(took_s, 2)},
        "cpu_s": round(used.cpu_s, 2),
        "peak_mb": round(used.peak_mb, 1),
        "turn": turn["status"],
        "reads": reads,
    }


def sessions(count: int, is_damaged: bool) -> dict[str, Any]:
    """So many old sessions: starts, also after a kill, lists, a search, one of them.

    ``is_damaged``: in the end also a start that makes the tables again from all the logs.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        empty = _starts(folder, STARTS)
        last = _fill(folder, count)
        starts = _starts(folder, STARTS)
        served = start_bridge(folder)
        try:
            reads = {
                "list": _timed(served, "/v1/sessions?limit=50"),
                "list_of_200": _timed(served, "/v1/sessions?limit=200"),
                "search": _timed(served, f"/v1/sessions?q=number%20{count // 2}"),
                "search_for_nothing": _timed(served, "/v1/sessions?q=nowhere"),
                **_reads(served, last),
            }
            used = usage(served.pid)
        finally:
            served.process.send_signal(signal.SIGKILL)
            end(served.process)
        killed = _starts(folder, 1)
        rebuilt = None
        if is_damaged:
            (folder / "state" / "bridge.sqlite3").write_bytes(b"no database" * 1000)
            rebuilt = round(_starts(folder, 1)[0], 2)
    return {
        "workload": "many-sessions",
        "sessions": count,
        "start_s": {
            "empty": spread(empty),
            "with them": spread(starts),
            "after a kill": round(killed[0], 2),
            "with damaged tables": rebuilt,
        },
        "reads": reads,
        "peak_mb": round(used.peak_mb, 1),
    }


def _starts(folder: Path, count: int) -> list[float]:
    """Seconds from the start of the process to its first answer, again and again."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        served = start_bridge(folder)
        try:
            served.call("GET", "/readyz")
            times.append(time.perf_counter() - began)
        finally:
            end(served.process)
    return times


def _reads(served: Served, session_id: str) -> dict[str, dict[str, float]]:
    path = f"/v1/sessions/{session_id}"
    last = served.call("GET", path)["lastSeq"]
    oldest = f"{path}/transcript?limit=20"
    while before := served.call("GET", oldest)["nextBefore"]:
        oldest = f"{path}/transcript?limit=20&before={before}"
    return {
        "list": _timed(served, "/v1/sessions"),
        "session": _timed(served, path),
        "transcript_newest": _timed(served, f"{path}/transcript"),
        "transcript_oldest": _timed(served, oldest),
        "turns": _timed(served, f"{path}/turns"),
        "events_first": _timed(served, f"{path}/events?after=0&limit=100"),
        "events_middle": _timed(served, f"{path}/events?after={last // 2}&limit=100"),
        "events_newest": _timed(served, f"{path}/events?after={max(0, last - 100)}&limit=100"),
        "of_all_middle": _timed(served, f"/v1/events?after={last // 2}&limit=100"),
    }


def _timed(served: Served, path: str) -> dict[str, float]:
    times = []
    for _ in range(READS):
        began = time.perf_counter()
        served.call("GET", path)
        times.append(time.perf_counter() - began)
    return {"first_ms": round(times[0] * 1e3, 1)} | in_ms(times)


def _fill(folder: Path, count: int) -> str:
    """Closed stretches of so many sessions, as a bridge would have left them; the last one's id."""
    state = folder / "state"
    tables = Tables(state / "bridge.sqlite3")
    store = Store(state / "log", segment_bytes=4 << 20, clock=time.time)
    known = tables.max_last_id()
    store.start_ids(known)
    session_id = ""
    with tables.transaction():
        for number in range(count):
            session_id = f"ses_{number:032x}"
            view = _view(session_id, folder, number)
            store.append(session_id, list(_drafts(view)))
            log = store.log(session_id)
            row = row_of(
                view, private={}, last_seq=log.last_seq, last_id=log.last_id, is_open=False
            )
            tables.save_session(row)
    tables.close()
    store.close()
    return session_id


def _drafts(view: dict[str, Any]) -> Iterable[Draft]:
    yield Draft("bridge/session", json.dumps({"changed": view}).encode())
    for number in range(20):
        content = {"type": "text", "text": f"word {number} " * 10}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        yield Draft("session/update", json.dumps({"sessionId": "s", "update": update}).encode())


def _view(session_id: str, folder: Path, number: int) -> dict[str, Any]:
    return new_view(
        session_id,
        owner="local",
        agent="flood",
        cwd=str(folder),
        at=rfc3339(time.time() - number),
        status="hibernated",
        title=f"number {number}",
        agentSessionId=session_id,
    )
