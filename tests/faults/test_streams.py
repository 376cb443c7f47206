"""Streams under stress: cut anywhere, flooded, frozen, many; nobody misses or doubles anything."""

from __future__ import annotations

import hashlib
import random
import re
import signal
import time
from bisect import bisect_right
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.abc import SocketStream

from tests.e2e.harness import Caller, Subprocess, parse_frame, serving
from tests.faults.rig import agent, configured, demo_agent, eventually, resident_bytes, tagged
from tests.faults.wire import Reader, connect

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.timeout(400)]

UPDATES = 400_000
GROWTH_BYTES = 150 * 1024 * 1024
FROZEN, SLOW, GOOD = 50, 20, 3
SUBSCRIBERS = 300
_ID = re.compile(rb"^id: (\d+)$", re.MULTILINE)


async def _body(url: str, path: str, *headers: str, until: bytes) -> bytes:
    """The body of a stream up to the end of the frame that holds ``until``."""
    stream = await connect(url, path, *headers)
    async with stream:
        reader, body = Reader(stream), b""
        with anyio.fail_after(60):
            while until not in body or not body.endswith(b"\n\n"):
                piece = await reader.read()
                assert piece
                body += piece
    return body


def _events(body: bytes) -> list[bytes]:
    return [frame for frame in body.split(b"\n\n")[:-1] if b"\ndata: " in frame]


async def test_a_stream_cut_at_any_byte_is_resumed_to_the_exact_log(tmp_path: Path) -> None:
    agents = {
        "fake": agent(
            tmp_path,
            prompts=[{"match": "", "steps": [{"repeat": 490, "steps": [{"text": "word "}]}]}],
        )
    }
    async with serving(tmp_path, agents, default_agent="fake") as bridge:
        session_id = (await bridge.caller.session())["sessionId"]
        await bridge.caller.turn(session_id, "go")
        path = f"/v1/sessions/{session_id}/events"
        log = await bridge.caller.log(session_id)
        end = b'"seq":%d,' % log[-1]["seq"]
        url = bridge.caller.url
        whole = await _body(url, path, until=end)
        events = _events(whole)
        assert [parse_frame(frame).data for frame in events] == log and len(log) >= 495

        rests: dict[bytes, list[bytes]] = {}
        for last in {b"0", *_ID.findall(whole)}:
            if last != b"%d" % log[-1]["seq"]:
                header = f"Last-Event-ID: {last.decode()}"
                rests[last] = _events(await _body(url, path, header, until=end))
        rests[b"%d" % log[-1]["seq"]] = []
        # What a reader has at a cut: the events that came whole, and the id of the last of them.
        frame_ends = [0, *(found.end() for found in re.finditer(rb"\n\n", whole))]
        right: set[int] = set()
        for cut in range(len(whole) + 1):
            complete = frame_ends[bisect_right(frame_ends, cut) - 1]
            if complete not in right:
                prefix = whole[:complete]
                last = _ID.findall(prefix)[-1] if complete else b"0"
                assert _events(prefix) + rests[last] == events, cut
                right.add(complete)
        await _cut_for_real(url, path, whole, events, end)


async def _cut_for_real(url: str, path: str, whole: bytes, events: list[bytes], end: bytes) -> None:
    """The same with connections that are really dropped there."""
    chance = random.Random(7)
    for cut in sorted(chance.randrange(1, len(whole)) for _ in range(100)):
        stream = await connect(url, path)
        async with stream:
            reader, body = Reader(stream), b""
            while len(body) < cut:
                body += await reader.read()
        complete = body[:cut].rfind(b"\n\n") + 2
        prefix = body[:complete] if complete > 1 else b""
        last = _ID.findall(prefix)[-1].decode() if prefix else "0"
        if last == str(len(events)):
            continue
        rest = await _body(url, path, f"Last-Event-ID: {last}", until=end)
        assert _events(prefix) + _events(rest) == events


async def _read_all(url: str, path: str, count: list[int], digests: list[str]) -> None:
    """A good reader: how many events it got, and a digest over all of them."""
    stream = await connect(url, path)
    async with stream:
        reader, rest, digest = Reader(stream), b"", hashlib.sha256()
        seen = 0
        while True:
            piece = await reader.read()
            assert piece, "a good reader was dropped"
            digest.update(piece.replace(b": \n\n", b""))
            body = rest + piece
            seen += body.count(b"\ndata: ")
            rest = body[-8:] if not body.endswith(b"\n\n") else b""
            seen -= rest.count(b"\ndata: ")
            if b"event: bridge/turn_ended" in body and b'"status":"idle"' in body[-4000:]:
                break
    count.append(seen)
    digests.append(digest.hexdigest())


async def test_a_flood_beside_frozen_and_slow_readers_stays_small_and_reaches_the_good_ones(
    tmp_path: Path,
) -> None:
    config = configured({"fake": agent(tmp_path)})
    async with Subprocess(tmp_path, config) as process:
        caller = await process.start()
        assert process.process is not None
        pid = process.process.pid
        session_id = (await caller.session())["sessionId"]
        path = f"/v1/sessions/{session_id}/events"
        before = resident_bytes(pid)
        count: list[int] = []
        digests: list[str] = []
        bad: list[SocketStream] = []
        began = time.monotonic()
        async with anyio.create_task_group() as good, anyio.create_task_group() as slow:
            for _ in range(FROZEN):
                bad.append(await connect(process.url, path, buffer=4096))
            for _ in range(SLOW):
                bad.append(await connect(process.url, path, buffer=4096))
                slow.start_soon(_read_slowly, bad[-1])
            for _ in range(GOOD):
                good.start_soon(_read_all, process.url, path, count, digests)
            turn = await caller.prompt(session_id, f"flood {UPDATES}")
            shown = await _ended(caller, session_id, turn["turnId"])
            took_s = time.monotonic() - began
            slow.cancel_scope.cancel()
        peak = resident_bytes(pid, "VmHWM")
        for stream in bad:
            await stream.aclose()
        last = (await caller.get(f"/v1/sessions/{session_id}")).json()["lastSeq"]
        print(  # noqa: T201
            f"{UPDATES} updates in {took_s:.1f} s, memory +{(peak - before) / 1048576:.0f} MB"
        )
        assert shown == "completed" and last >= UPDATES
        assert count == [last] * GOOD and len(set(digests)) == 1
        assert peak - before <= GROWTH_BYTES


async def _read_slowly(stream: SocketStream) -> None:
    while True:
        await stream.receive(2048)
        await anyio.sleep(0.05)


async def _ended(caller: Caller, session_id: str, turn_id: str, limit_s: float = 300.0) -> str:
    with anyio.fail_after(limit_s):
        while True:
            shown = await caller.settled(session_id, turn_id)
            if shown["endedAt"]:
                return str(shown["status"])


async def test_300_subscribers_of_one_session_get_the_same(tmp_path: Path) -> None:
    config = configured({"demo": demo_agent(tmp_path)}, limits={"streams_per_token": 400})
    async with Subprocess(tmp_path, config) as process:
        caller = await process.start()
        session_id = (await caller.session())["sessionId"]
        path = f"/v1/sessions/{session_id}/events"
        count: list[int] = []
        digests: list[str] = []
        async with anyio.create_task_group() as tasks:
            for _ in range(SUBSCRIBERS):
                tasks.start_soon(_read_all, process.url, path, count, digests)
            await caller.prompt(session_id, "stream 200 5")
        last = (await caller.get(f"/v1/sessions/{session_id}")).json()["lastSeq"]
        assert count == [last] * SUBSCRIBERS and len(set(digests)) == 1


ENDED = b"event: bridge/turn_ended"
SILENT = ("hang", "deaf")
"""Every other agent ignores the cancel, and the end of its stdin."""
TALKING = ("flood", "deaf with children")


@pytest.mark.parametrize(
    ("words", "readers"), [(SILENT, 100), (TALKING, 20)], ids=["silent", "talking"]
)
async def test_sigterm_with_100_streams_and_10_turns_ends_in_time_and_leaves_no_process(
    tmp_path: Path, words: tuple[str, str], readers: int
) -> None:
    grace_s = 2.0
    flood = {"repeat": 10**6, "steps": [{"flood": 50}, {"sleep": 1}]}
    family = [{"spawn": "daemon"}, {"spawn": "setsid"}, {"text": "x"}, {"ignore_cancel": True}]
    talking: dict[str, Any] = {
        "start": [{"stay": True}],
        "prompts": [{"match": "^flood", "steps": [flood]}, {"match": "^deaf", "steps": family}],
    }
    members: dict[str, Any] = talking if words is TALKING else {}
    config = configured({"fake": agent(tmp_path, **members)}, limits={"drain_grace_s": grace_s})
    async with Subprocess(tmp_path, config) as process:
        caller = await process.start()
        sessions = []
        for number in range(10):
            session_id = (await caller.session())["sessionId"]
            await caller.prompt(session_id, words[number % 2])
            await caller.until(
                f"/v1/sessions/{session_id}/events", lambda event: event.kind == "session/update"
            )
            sessions.append(session_id)
        ends: list[int] = []
        async with anyio.create_task_group() as tasks:
            for number in range(readers):
                path = f"/v1/sessions/{sessions[number % 10]}/events?after=latest"
                stream = await connect(process.url, path)
                tasks.start_soon(_count_ends, stream, ends)
            await _is_reached(caller, readers)
            assert len(tagged(tmp_path / "state")) >= 10
            began = time.monotonic()
            process.signal(signal.SIGTERM)
            status = await anyio.to_thread.run_sync(process.wait, grace_s + 5)
            took_s = time.monotonic() - began
        print(f"out in grace + {took_s - grace_s:.1f} s")  # noqa: T201
        assert status == 0 and took_s <= grace_s + 5
        assert ends == [1] * readers
        await eventually(lambda: not tagged(tmp_path / "state"))


async def _is_reached(caller: Caller, streams: int) -> None:
    with anyio.fail_after(20):
        while f"streams {streams}.0" not in (await caller.get("/metrics")).text:
            pass


async def _count_ends(stream: SocketStream, ends: list[int]) -> None:
    async with stream:
        reader, count, last = Reader(stream), 0, b""
        while piece := await reader.read():
            seam = last + piece
            count += seam.count(ENDED) - last.count(ENDED)
            last = seam[-len(ENDED) :]
    ends.append(count)
