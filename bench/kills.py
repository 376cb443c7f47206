"""SIGKILL in the middle of a flood, of the bridge or of the agent, many rounds.

What must hold: an event that a subscriber has seen is there afterwards, byte for byte; positions
have no gap; no agent outlives its bridge; a turn whose agent dies ends as failed, and the next one
works. Every round that breaks one of these ends the run with an error.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.figures import in_ms
from bench.machine import descendants, is_alive, usage
from bench.reader import begun, connect
from bench.serving import TOKEN, Served, bridge, end, start_bridge

SEED = 20260101
LIMIT_S = 30.0
UPDATES_PER_S = 20_000
_CHUNK = re.compile(rb"\r\n[0-9a-f]+\r\n")
_FRAME = re.compile(rb"id: (\d+)\nevent: [^\n]*\ndata: [^\n]*\n\n")


class Broken(Exception):
    """A promise was not kept."""


def kill_bridge(rounds: int) -> dict[str, Any]:
    """SIGKILL the bridge at a random moment of a turn and start it again, on one state folder."""
    chance = random.Random(SEED)
    seen = starts = 0
    times: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        served = start_bridge(folder)
        try:
            session_id = served.session()
            for _ in range(rounds):
                position = int(served.call("GET", f"/v1/sessions/{session_id}")["lastSeq"])
                frames, agents = _cut_off(served, session_id, position, chance.uniform(0, 0.3))
                began = time.perf_counter()
                served = start_bridge(folder)
                times.append(time.perf_counter() - began)
                starts += 1
                seen += _compare(served, session_id, position, frames)
                _await_end(agents)
        finally:
            end(served.process)
    return {
        "workload": "kill-bridge",
        "rounds": starts,
        "seen_events": seen,
        "lost": 0,
        "gaps": 0,
        "agents_left": 0,
        "restart": in_ms(times),
    }


def kill_agent(rounds: int) -> dict[str, Any]:
    """SIGKILL the agent at a random moment of a turn; the next turn brings it back."""
    chance = random.Random(SEED)
    times: list[float] = []
    with bridge() as served:
        session_id = served.session()
        served.turn(session_id, "1")
        before = usage(served.pid)
        for _ in range(rounds):
            turn = served.prompt(session_id, f"{UPDATES_PER_S} {UPDATES_PER_S}")
            pid = _agent_of(served, session_id, turn["turnId"])
            time.sleep(chance.uniform(0, 0.05))
            began = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            ended = _ended(served, session_id, turn["turnId"])
            times.append(time.perf_counter() - began)
            if ended["status"] != "failed" or ended["error"]["code"] != "agent-exited":
                raise Broken(f"the turn of a killed agent: {ended}")
        if (last := served.turn(session_id, "1"))["status"] != "completed":
            raise Broken(f"the turn after: {last}")
        last_seq = int(served.call("GET", f"/v1/sessions/{session_id}")["lastSeq"])
        _replayed(served, session_id, 0, last_seq)
        after = usage(served.pid)
        left = len(descendants(served.pid))
    if left > 1:
        raise Broken(f"{left} processes are left")
    return {
        "workload": "kill-agent",
        "rounds": rounds,
        "entries": last_seq,
        "gaps": 0,
        "until_the_turn_failed": in_ms(times),
        "fds": {"before": before.fds, "after": after.fds},
        "rss_mb": {"before": round(before.rss_mb, 1), "after": round(after.rss_mb, 1)},
        "processes_left": left,
    }


def _cut_off(
    served: Served, session_id: str, position: int, after_s: float
) -> tuple[dict[int, bytes], set[int]]:
    """Kill the bridge; the frames a subscriber had got whole, and the agents there were."""
    path = f"/v1/sessions/{session_id}/events?after={position}"
    data = b""
    with connect(served.port, path, TOKEN) as stream:
        data += begun(stream)
        served.prompt(session_id, f"{UPDATES_PER_S} {UPDATES_PER_S}")
        # From the first update on: before it there is nothing to lose.
        while b"\nevent: session/update" not in data:
            data += _more(stream)
        due = time.monotonic() + after_s
        while time.monotonic() < due:
            stream.settimeout(max(0.001, due - time.monotonic()))
            try:
                data += stream.recv(1 << 20)
            except TimeoutError:
                break
        agents = descendants(served.pid)
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
        stream.settimeout(LIMIT_S)
        data += _rest_of(stream)
    if served.process.stdout is not None:
        served.process.stdout.close()
    return _frames(data), agents


def _more(stream: socket.socket) -> bytes:
    if not (data := stream.recv(1 << 20)):
        raise Broken("a stream ended before anything was said")
    return data


def _rest_of(stream: socket.socket) -> bytes:
    pieces = []
    try:
        while piece := stream.recv(1 << 20):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


def _compare(served: Served, session_id: str, position: int, seen: dict[int, bytes]) -> int:
    """Hold what is there now to what was seen before; how many events that were."""
    last_seq = int(served.call("GET", f"/v1/sessions/{session_id}")["lastSeq"])
    now = _replayed(served, session_id, position, last_seq)
    for number, frame in seen.items():
        if now.get(number) != frame:
            raise Broken(f"event {number} was seen and is gone or another")
    return len(seen)


def _replayed(served: Served, session_id: str, position: int, last_seq: int) -> dict[int, bytes]:
    """The frames up to a position, held to having no gap."""
    path = f"/v1/sessions/{session_id}/events?after={position}"
    frames: dict[int, bytes] = {}
    with connect(served.port, path, TOKEN) as stream:
        rest = b"\n" + begun(stream)
        while max(frames, default=position) < last_seq:
            if not (data := stream.recv(1 << 20)):
                raise Broken("a replay ended early")
            whole, end_of_frame, rest = _CHUNK.sub(b"", rest + data).rpartition(b"\n\n")
            frames |= _frames(whole + end_of_frame)
    if sorted(frames)[: last_seq - position] != list(range(position + 1, last_seq + 1)):
        raise Broken(f"a gap behind {position}")
    return frames


def _frames(data: bytes) -> dict[int, bytes]:
    return {int(found[1]): found[0] for found in _FRAME.finditer(_CHUNK.sub(b"", data))}


def _await_end(pids: set[int]) -> None:
    due = time.monotonic() + LIMIT_S
    while alive := [pid for pid in pids if is_alive(pid)]:
        if time.monotonic() > due:
            raise Broken(f"agents outlived their bridge: {alive}")
        time.sleep(0.01)


def _agent_of(served: Served, session_id: str, turn_id: str) -> int:
    """The agent's process, once the turn runs."""
    due = time.monotonic() + LIMIT_S
    while time.monotonic() < due:
        path = f"/v1/sessions/{session_id}/turns/{turn_id}"
        if served.call("GET", path)["status"] == "running":
            if len(found := descendants(served.pid)) == 1:
                return found.pop()
        time.sleep(0.005)
    raise Broken("the turn does not begin")


def _ended(served: Served, session_id: str, turn_id: str) -> dict[str, Any]:
    path = f"/v1/sessions/{session_id}/turns/{turn_id}"
    status = "running"
    shown: dict[str, Any] = {}
    while status not in ("completed", "failed", "cancelled"):
        shown = served.call("GET", path)
        status = shown["status"]
    return shown
