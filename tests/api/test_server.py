"""The server's deadlines, framing and bounds, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from bridge.api.server import BridgeServer
from tests.api.serving import (
    LIMIT_S,
    Caller,
    Probe,
    ask,
    calling,
    outlast,
    problem_of,
    serving,
    settings_with,
)

pytestmark = pytest.mark.anyio

HOST = b"Host: 127.0.0.1\r\n"
CLOSE = b"Connection: close\r\n"
GET_BIG = b"GET /big HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n"


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture
async def server(probe: Probe) -> AsyncIterator[BridgeServer]:
    async with serving(probe, settings_with(header_timeout_s=5, body_timeout_s=5)) as running:
        yield running
        probe.release.set()


@pytest.fixture
async def hasty(probe: Probe) -> AsyncIterator[BridgeServer]:
    async with serving(probe, settings_with(header_timeout_s=0.2, body_timeout_s=0.2)) as running:
        yield running
        probe.release.set()


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n",
        b"GET / HTTP/1.0\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + HOST,
        b"GET / HTTP/1.0\r\n" + HOST + HOST,
        b"GET / HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\n" + HOST,
        b"GET http://127.0.0.1@evil.example/ HTTP/1.1\r\n" + HOST,
        b"GET evil HTTP/1.1\r\n" + HOST,
        b"OPTIONS * HTTP/1.1\r\n" + HOST,
        b"CONNECT evil.example:443 HTTP/1.1\r\n" + HOST,
        b"GET / HTTP/2.0\r\n" + HOST,
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n" + HOST,
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n" + HOST,
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n" + HOST,
        b"POST / HTTP/1.1\r\nContent-Length: 2, 2\r\n" + HOST,
        b"POST / HTTP/1.1\r\nContent-Length: +2\r\n" + HOST,
        b"POST / HTTP/1.1\r\nContent-Length: -2\r\n" + HOST,
        b"POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\n" + HOST,
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n" + HOST,
        b"GET / HTTP/1.1\r\nX-A: b\r\n\tc\r\n" + HOST,
        b"GET / HTTP/1.1\r\nX A: b\r\n" + HOST,
        b"GET / HTTP/1.1\r\nX-A: b\0c\r\n" + HOST,
        b"GET / HTTP/1.1\r\nX-A: b\x1b[31mc\r\n" + HOST,
        b"GET / HTTP/1.1\r\nX-A: b\x01c\r\n" + HOST,
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"get\r\n",
    ],
)
async def test_what_can_be_read_in_two_ways_is_refused_and_the_connection_closed(
    server: BridgeServer, probe: Probe, head: bytes
) -> None:
    problem_of(await ask(server, head + b"\r\n"), 400, "invalid-request")
    assert probe.scopes == []


async def test_an_absolute_target_for_the_same_authority_is_an_ordinary_request(
    server: BridgeServer, probe: Probe
) -> None:
    answer = await ask(server, b"GET http://127.0.0.1/a?b HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert (probe.scopes[0]["path"], probe.scopes[0]["query_string"]) == ("/a", b"b")
    await ask(server, b"GET HTTP://127.0.0.1 HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")
    assert probe.scopes[1]["path"] == "/"


async def test_http_1_0_with_a_host_is_served_and_closed(server: BridgeServer) -> None:
    answer = await ask(server, b"GET / HTTP/1.0\r\n" + HOST + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nserver:" not in answer.lower()
    assert b"\r\ndate:" in answer.lower()


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 10_000, 431, "headers-too-large"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 101, 431, "headers-too-large"),
        (
            b"GET / HTTP/1.1\r\nAuthorization: Bearer x\r\n" + HOST + b"a: b\r\n" * 10_000,
            431,
            "headers-too-large",
        ),
        (
            b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"b" * 70_000 + b"\r\n",
            431,
            "headers-too-large",
        ),
        (
            b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"b" * 2_000_000 + b"\r\n",
            431,
            "headers-too-large",
        ),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + HOST, 414, "uri-too-long"),
        (b"GET /" + b"a" * 2_000_000, 414, "uri-too-long"),
        (
            b"GET / HTTP/1.1\r\n" + HOST + b"Authorization: Bearer " + b"a" * 1_000_000 + b"\r\n",
            401,
            "unauthorized",
        ),
    ],
)
async def test_heads_above_a_limit_are_refused_before_anything_reads_them(
    server: BridgeServer, probe: Probe, head: bytes, status: int, code: str
) -> None:
    problem_of(await ask(server, head + b"\r\n"), status, code)
    assert probe.scopes == []


async def test_a_head_that_never_ends_is_refused_while_it_is_still_coming(
    server: BridgeServer,
) -> None:
    async with calling(server) as caller:
        await caller.send(b"GET / HTTP/1.1\r\n" + HOST)
        for _ in range(20):
            await caller.send(b"x: " + b"y" * 5000 + b"\r\n")
        problem_of(await caller.rest(), 431, "headers-too-large")


async def test_a_head_may_come_byte_by_byte(server: BridgeServer) -> None:
    async with calling(server) as caller:
        for byte in b"GET / HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n":
            await caller.send(bytes([byte]))
        assert (await caller.rest()).endswith(b"ok 0\r\n0\r\n\r\n")


async def test_a_silent_connection_is_closed(hasty: BridgeServer) -> None:
    async with calling(hasty) as caller:
        assert await caller.rest() == b""


async def test_a_trickling_head_does_not_move_its_deadline(hasty: BridgeServer) -> None:
    async with calling(hasty) as caller, anyio.create_task_group() as tasks:
        tasks.start_soon(trickle, caller, b"GET / HTTP/1.1\r\nX: ")
        assert await caller.rest() == b""
        tasks.cancel_scope.cancel()


async def trickle(caller: Caller, start: bytes, drop: bytes = b"a") -> None:
    await caller.send(start)
    while True:
        with anyio.CancelScope(shield=True):
            await caller.send(drop)
        await anyio.sleep(0.02)


async def test_a_second_request_that_trickles_has_the_same_deadline(hasty: BridgeServer) -> None:
    async with calling(hasty) as caller, anyio.create_task_group() as tasks:
        await caller.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        await caller.until(b"\r\n0\r\n\r\n")
        tasks.start_soon(trickle, caller, b"GET / HTTP/1.1\r\nX: ")
        assert await caller.rest() == b""
        tasks.cancel_scope.cancel()


async def test_a_body_that_stands_still_is_closed_and_the_application_told(
    hasty: BridgeServer, probe: Probe
) -> None:
    request = b"POST / HTTP/1.1\r\nContent-Length: 9\r\n" + HOST + b"\r\nabc"
    assert await ask(hasty, request) == b""
    with anyio.fail_after(LIMIT_S):
        await probe.disconnected.wait()


async def test_a_slow_body_that_moves_is_served(hasty: BridgeServer) -> None:
    async with calling(hasty) as caller:
        head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST + CLOSE + b"\r\n"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trickle, caller, head, b"1\r\na\r\n")
            await outlast(hasty)
            await outlast(hasty)
            tasks.cancel_scope.cancel()
        await caller.send(b"0\r\n\r\n")
        assert b"ok " in await caller.rest()


async def test_a_body_the_application_does_not_read_yet_is_not_the_callers_fault(
    hasty: BridgeServer, probe: Probe
) -> None:
    size = 4_000_000
    async with calling(hasty) as caller, anyio.create_task_group() as tasks:
        head = b"POST /wait HTTP/1.1\r\nContent-Length: %d\r\n" % size + HOST + CLOSE + b"\r\n"
        tasks.start_soon(caller.send, head + b"a" * size)
        await outlast(hasty)
        await outlast(hasty)
        probe.release.set()
        assert b"ok %d" % size in await caller.rest()


async def test_a_caller_that_waits_for_100_continue_is_waited_for(
    hasty: BridgeServer, probe: Probe
) -> None:
    async with calling(hasty) as caller:
        await caller.send(
            b"POST /wait HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
            + HOST
            + CLOSE
            + b"\r\n"
        )
        await outlast(hasty)
        await outlast(hasty)
        probe.release.set()
        assert b"100 Continue" in await caller.until(b"\r\n\r\n")
        await caller.send(b"{}")
        assert b"ok 2" in await caller.rest()


async def test_a_stream_outlives_every_deadline(hasty: BridgeServer, probe: Probe) -> None:
    async with calling(hasty) as caller:
        await caller.send(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n")
        await caller.until(b"+")
        await outlast(hasty)
        await outlast(hasty)
        probe.release.set()
        assert b"ok 0" in await caller.until(b"0\r\n\r\n")


async def test_a_refusal_reaches_a_caller_that_is_still_sending(server: BridgeServer) -> None:
    size = 3_000_000
    async with calling(server) as caller:
        await caller.send(
            b"POST /deaf HTTP/1.1\r\nContent-Length: %d\r\n" % size + HOST + CLOSE + b"\r\n"
        )
        await caller.send(b"a" * size)
        assert b"ok 0" in await caller.rest()


async def test_the_rest_of_an_unwanted_body_is_read_away_for_a_moment_only(
    hasty: BridgeServer,
) -> None:
    async with calling(hasty) as caller:
        await caller.send(b"POST /deaf HTTP/1.1\r\nContent-Length: 3000000\r\n" + HOST + b"\r\n")
        await caller.until(b"0\r\n\r\n")
        assert await caller.rest() == b""


async def test_a_connection_goes_on_after_an_unwanted_body_has_come_to_its_end(
    server: BridgeServer,
) -> None:
    async with calling(server) as caller:
        await caller.send(b"POST /deaf HTTP/1.1\r\nContent-Length: 3\r\n" + HOST + b"\r\n")
        await caller.until(b"0\r\n\r\n")
        await caller.send(b"abcGET / HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")
        assert b"ok 0" in await caller.rest()


async def test_requests_in_one_packet_are_answered_in_order_and_a_bad_one_ends_them(
    server: BridgeServer,
) -> None:
    good = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
    answer = await ask(server, good + good + b"GET / HTTP/1.1\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert b"HTTP/1.1 400 " in answer


async def test_bad_chunks_end_a_request_the_application_is_reading(
    server: BridgeServer, probe: Probe
) -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST + b"\r\n"
    problem_of(await ask(server, head + b"zz\r\n"), 400, "invalid-request")
    with anyio.fail_after(LIMIT_S):
        await probe.disconnected.wait()


async def test_bad_chunks_behind_a_response_that_has_begun_cut_it_off(
    server: BridgeServer, probe: Probe
) -> None:
    async with calling(server) as caller:
        await caller.send(
            b"POST /deaf HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST + b"\r\n1\r\na\r\n"
        )
        await caller.until(b"0\r\n\r\n")
        await caller.send(b"zz\r\n")
        assert await caller.rest() == b""


async def test_above_its_bound_the_longest_idle_connection_makes_room(probe: Probe) -> None:
    async with serving(probe, settings_with(max_connections=2)) as server:
        async with calling(server) as oldest, calling(server) as busy:
            await busy.send(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n")
            await busy.until(b"+")
            answer = await ask(server, b"GET / HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert await oldest.rest() == b""
            probe.release.set()
            await busy.until(b"ok 0")


async def test_a_bridge_whose_connections_are_all_busy_refuses_more(probe: Probe) -> None:
    async with serving(probe, settings_with(max_connections=1)) as server:
        async with calling(server) as busy:
            await busy.send(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n")
            await busy.until(b"+")
            answer = await ask(server, b"GET / HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")
            problem_of(answer, 503, "at-capacity")
            assert b"\r\nretry-after: 5\r\n" in answer.lower()
            probe.release.set()
            await busy.until(b"ok 0")


async def test_five_hundred_silent_connections_hold_nobody_up(server: BridgeServer) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(500):
            tasks.start_soon(hold, server)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(LIMIT_S):
            answer = await ask(server, b"GET / HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")
        tasks.cancel_scope.cancel()


async def hold(server: BridgeServer) -> None:
    async with calling(server):
        await anyio.sleep_forever()


# -- responses that nobody reads --------------------------------------------------------------


@pytest.fixture
async def impatient(probe: Probe) -> AsyncIterator[BridgeServer]:
    async with serving(probe, settings_with(unread_timeout_s=0.6)) as running:
        yield running
        probe.release.set()


async def test_a_response_that_nobody_reads_is_dropped(impatient: BridgeServer) -> None:
    """By a caller that has no need of a token: it could hold all connections there are."""
    async with calling(impatient) as caller:
        await caller.send(GET_BIG)
        with anyio.fail_after(LIMIT_S):
            while not impatient.server_state.connections:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            while impatient.server_state.connections:  # noqa: ASYNC110 - uvicorn tells nobody
                await anyio.sleep(0.01)


async def test_a_response_that_is_read_slowly_is_sent_to_its_end(impatient: BridgeServer) -> None:
    async with calling(impatient) as caller:
        began = anyio.current_time()
        await caller.send(GET_BIG)
        said = 0
        with anyio.fail_after(LIMIT_S):
            while piece := await caller.some(1_000_000):
                said += len(piece)
                # Slower all in all than the time limit, which is for reading nothing.
                await anyio.sleep_until(began + said / 10_000_000)
        assert said > 20_000_000
