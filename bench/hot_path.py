"""A line's way through the bridge without processes and sockets: processor time for each.

From the bytes of a read of the agent's pipe to the commit and one subscriber's cursor, in this
process: what is measured is the code between the pipe and the socket, and processor time instead
of the clock, so that a busy machine disturbs it less. Figures of two versions compare only when
taken in turns.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from bench.figures import spread
from bench.flood_agent import SESSION, TEXT, update
from bridge.log.cursor import SessionCursor
from bridge.log.forms import Form
from bridge.log.store import Store
from bridge.protocol.projection import Projection
from bridge.protocol.rules import Permissions
from bridge.protocol.turns import Turn
from bridge.runtime.inbox import Inbox
from bridge.runtime.link import AgentLink
from bridge.runtime.pipes import READ_BYTES
from bridge.runtime.session import LiveSession

LINE_BYTES = 64 * 1024 * 1024
SEGMENT_BYTES = 4 * 1024 * 1024


async def measure(lines: int, rounds: int) -> dict[str, Any]:
    """Microseconds of processor time a line, of several rounds."""
    data = update(TEXT) * lines
    reads = [data[at : at + READ_BYTES] for at in range(0, len(data), READ_BYTES)]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        store = Store(Path(name) / "log", segment_bytes=SEGMENT_BYTES, clock=time.time)
        link, cursor = _hot_session(store)
        times = []
        for _ in range(rounds):
            began = time.process_time()
            size = _pass(link, cursor, reads)
            times.append((time.process_time() - began) / lines * 1e6)
        store.close()
    return {
        "workload": "hot-path",
        "lines": lines,
        "line_bytes": len(data) // lines,
        "sent_bytes": size // lines,
        "cpu_us_a_line": spread(times),
    }


def _hot_session(store: Store) -> tuple[AgentLink, SessionCursor]:
    """A session in the middle of a turn, as far as lines of text need one."""
    turn = Turn("turn_bench", "ses_bench", "2026-01-01T00:00:00Z", 0, status="running")
    view = {"agentSessionId": SESSION, "status": "running", "turn": turn.as_json()}
    services = SimpleNamespace(store=store, clock=time.time, monotonic=time.monotonic)
    session = LiveSession(
        cast("Any", services),
        "ses_bench",
        projection=Projection.resume(view),
        private={"isOpen": True},
        permissions=Permissions(()),
    )
    session.link = AgentLink(Inbox(session), max_line_bytes=LINE_BYTES)
    return session.link, SessionCursor(session.log, after=0, form=Form())


def _pass(link: AgentLink, cursor: SessionCursor, reads: list[bytes]) -> int:
    size = 0
    for data in reads:
        link.output_received(data)
        while piece := cursor.take():
            size += len(piece)
    return size
