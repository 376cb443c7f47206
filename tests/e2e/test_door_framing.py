"""Raw bytes against a bridge in a process of its own: framing, size, time, and what is no JSON.

S2, S14, S15 and S16, each over real sockets, with the memory of that process measured.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from bridge.api.access import declared
from bridge.api.operations import routes
from tests.e2e.doors import bearer, code_of, raw, status_of
from tests.e2e.harness import LIMIT_S, TOKEN, Caller, Subprocess, scripted
from tests.e2e.test_door_routes import path_of

pytestmark = pytest.mark.anyio

HOST = b"Host: 127.0.0.1\r\n"
AUTH = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
JSON = b"Content-Type: application/json\r\n"
SLACK_BYTES = 24 * 1024 * 1024
"""What a process may grow by serving anything at all."""


def config(**server: float) -> str:
    """A bridge with these server settings."""
    command = ", ".join(f'"{word}"' for word in scripted("basic"))
    lines = [f"{name} = {value}" for name, value in server.items()]
    return "\n".join(
        [
            'default_agent = "fake"',
            "[server]",
            *lines,
            "[limits]",
            "body_bytes = 1000000",
            "failed_logins_per_minute = 1000000",
            "sessions_per_minute = 1000000",
            "[agents.fake]",
            f"command = [{command}]",
        ]
    )


@pytest.fixture
async def bridge(tmp_path: Path) -> AsyncIterator[tuple[Subprocess, Caller]]:
    """A bridge whose deadlines are short."""
    settings = config(header_timeout_s=1, body_timeout_s=1)
    async with Subprocess(tmp_path, settings) as process:
        yield process, await process.start()


def memory_of(process: Subprocess) -> int:
    """Resident bytes."""
    assert process.process is not None
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    line = next(each for each in status.splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


async def is_well(caller: Caller) -> None:
    """It still answers, and with what it should."""
    with anyio.fail_after(2):
        assert (await caller.get("/v1/me")).status_code == 200


SMUGGLED = (
    b"GET /v1/me HTTP/1.1\r\n" + AUTH,
    b"GET /v1/me HTTP/1.0\r\n" + AUTH,
    b"GET /v1/me HTTP/1.1\r\n" + HOST + HOST + AUTH,
    b"GET /v1/me HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n" + AUTH,
    b"GET http://evil.example/v1/me HTTP/1.1\r\n" + HOST + AUTH,
    b"POST /v1/sessions HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n"
    + HOST
    + AUTH
    + JSON,
    b"POST /v1/sessions HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n" + HOST + AUTH,
    b"POST /v1/sessions HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 9\r\n" + HOST + AUTH,
    b"GET /v1/me HTTP/1.1\r\nX-A: b\r\n c\r\n" + HOST + AUTH,
    b"GET /v1/me\r\n",
)


async def test_s2_what_can_be_framed_in_two_ways_is_400_and_ends_the_connection(
    bridge: tuple[Subprocess, Caller],
) -> None:
    process, caller = bridge
    behind = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
    for head in SMUGGLED:
        answer = await raw(process.url, head + b"\r\n{}" + behind)
        assert status_of(answer) == 400, head
        assert answer.count(b"HTTP/1.1 ") == 1, "what came behind was read"
        assert b"connection: close" in answer.lower()
    await is_well(caller)


async def test_s14_bodies_over_the_limit_are_refused_while_they_come_in_flat_memory(
    bridge: tuple[Subprocess, Caller],
) -> None:
    process, caller = bridge
    await is_well(caller)
    before = memory_of(process)
    head = b"POST /v1/sessions HTTP/1.1\r\n" + HOST + AUTH + JSON
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    for _ in range(3):
        declared_only = await raw(process.url, head + b"Content-Length: 999999999999\r\n\r\n")
        assert status_of(declared_only) == 413
        chunked = [head + b"Transfer-Encoding: chunked\r\n\r\n", *[piece] * 400]
        assert status_of(await raw(process.url, chunked)) == 413
        squeezed = zlib.compress(b"[" * 10_000_000)
        length = b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(squeezed)
        assert status_of(await raw(process.url, head + length + squeezed, is_ended=True)) == 415
    await is_well(caller)
    assert memory_of(process) - before < SLACK_BYTES


async def test_s14_heads_over_the_limit_are_refused_while_they_come_in_flat_memory(
    bridge: tuple[Subprocess, Caller],
) -> None:
    process, caller = bridge
    await is_well(caller)
    before = memory_of(process)
    get = b"GET /v1/me HTTP/1.1\r\n" + HOST
    for _ in range(20):
        many = get + b"".join(b"X-%d: y\r\n" % n for n in range(10_000))
        assert status_of(await raw(process.url, many + b"\r\n")) == 431
        long = b"GET /v1/me?" + b"a" * 100_000 + b" HTTP/1.1\r\n" + HOST + AUTH
        assert status_of(await raw(process.url, long + b"\r\n")) == 414
        token = get + b"Authorization: Bearer " + b"a" * 1_000_000 + b"\r\n\r\n"
        assert status_of(await raw(process.url, token)) == 401
        endless = [get, *[b"X: " + b"y" * 60_000 + b"\r\n"] * 40]
        assert status_of(await raw(process.url, endless)) == 431
    await is_well(caller)
    assert memory_of(process) - before < SLACK_BYTES


async def test_s15_the_slow_are_let_go_and_nobody_else_notices(
    bridge: tuple[Subprocess, Caller],
) -> None:
    process, caller = bridge
    session = await caller.session()
    host, _, port = process.url.removeprefix("http://").partition(":")
    post = b"POST /v1/sessions HTTP/1.1\r\n" + HOST + AUTH + JSON + b"Content-Length: 100\r\n\r\n{"
    async with (
        AsyncExitStack() as stack,
        caller.stream(f"/v1/sessions/{session['sessionId']}/events?after=latest") as events,
    ):
        sockets = []
        for number in range(500):
            stream = await stack.enter_async_context(await anyio.connect_tcp(host, int(port)))
            # Silent, in the middle of its head, in the middle of its body.
            await stream.send((b"", b"GET /v1/me HTTP/1.1\r\nHo", post)[number % 3])
            sockets.append(stream)
        await is_well(caller)
        with anyio.fail_after(LIMIT_S):
            for stream in sockets:
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    while True:
                        await stream.receive()
        # The stream has outlived every deadline, and shows what happens next.
        await caller.turn(session["sessionId"], "still there?")
        with anyio.fail_after(LIMIT_S):
            assert (await anext(events)).kind == "bridge/turn_queued"


async def test_s15_a_slow_upload_that_moves_is_taken(bridge: tuple[Subprocess, Caller]) -> None:
    process, _ = bridge
    body = b'{"title": "' + b"x" * 40 + b'"}'
    head = b"POST /v1/sessions HTTP/1.1\r\nConnection: close\r\n" + HOST + AUTH + JSON
    host, _, port = process.url.removeprefix("http://").partition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        await stream.send(head + b"Content-Length: %d\r\n\r\n" % len(body))
        began = anyio.current_time()
        for index in range(len(body)):
            await stream.send(body[index : index + 1])
            # Slower all in all than the time limit, which is for standing still.
            await anyio.sleep_until(began + (index + 1) * 0.04)
        answer = b"".join([part async for part in stream])
    assert status_of(answer) == 201
    assert anyio.current_time() - began > 1


NO_JSON = (
    b"{",
    b"nul",
    b'{"title": NaN}',
    b'{"title": Infinity}',
    b'{"metadata": {"a": 1e999}}',
    b'{"metadata": {"a": ' + b"9" * 5000 + b"}}",
    b'{"title": "\\ud83d"}',
    b'{"title": "\xff"}',
    b'{"title": "a", "title": "b"}',
    b'{"metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b"[" * 100_000,
    b"\xef\xbb\xbf{}",
    b"\x00",
)


async def test_s16_what_is_no_json_is_400_on_every_route_that_reads_any(
    bridge: tuple[Subprocess, Caller],
) -> None:
    process, caller = bridge
    session_id = (await caller.session())["sessionId"]
    known = f"/v1/sessions/{session_id}"
    asked = 0
    for route in routes():
        methods = (route.methods or set()) & {"POST", "PUT", "PATCH"}
        if declared(route).is_public or not methods:
            continue
        path = path_of(route)
        if route.path.endswith(("/prompt", "/ext", "/mode", "/cancel")) or "PATCH" in methods:
            path = known + route.path.removeprefix("/v1/sessions/{sessionId}")
            path = path if "{" not in path else path_of(route)
        for body in NO_JSON:
            answer = await caller.http.request(
                min(methods),
                path,
                content=body,
                headers={**bearer(), "Content-Type": "application/json"},
            )
            where = (min(methods), path, body[:40])
            assert answer.status_code == 400, (*where, answer.status_code)
            assert code_of(answer) == "invalid-request", where
            asked += 1
    assert asked >= 10 * len(NO_JSON)
    await is_well(caller)
    assert process.process is not None and process.process.poll() is None
