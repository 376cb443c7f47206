"""The opening of a WebSocket on the wire: whole, or refused in the bridge's own words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bridge.api.deadlines import BridgeSocket, BridgeState
from bridge.api.server import BridgeServer, make_config
from tests.api.serving import Probe, ask, calling, outlast, problem_of, serving, settings_with

pytestmark = pytest.mark.anyio

HOST = b"Host: 127.0.0.1\r\n"
UPGRADE = b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
VERSION = b"Sec-WebSocket-Version: 13\r\n"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
WHOLE = HOST + UPGRADE + VERSION + KEY


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture
async def server(probe: Probe) -> AsyncIterator[BridgeServer]:
    settings = settings_with(header_timeout_s=0.2, body_timeout_s=0.2)
    async with serving(probe, settings) as server:
        yield server


async def test_a_websocket_is_handed_over_and_freed_of_deadlines(server: BridgeServer) -> None:
    async with calling(server) as caller:
        await caller.send(b"GET /ws HTTP/1.1\r\n" + WHOLE + b"\r\n")
        assert b" 101 " in await caller.until(b"\r\n\r\n")
        await outlast(server)
        await outlast(server)
        await caller.send(b"\x81\x82\0\0\0\0hi")
        assert await caller.until(b"hi") == b"\x81\x02hi"


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"POST /ws HTTP/1.1\r\n" + WHOLE, 400, "invalid-request"),
        (b"GET /ws HTTP/1.0\r\n" + WHOLE, 400, "invalid-request"),
        (b"GET /ws HTTP/1.1\r\nContent-Length: 5\r\n" + WHOLE, 400, "invalid-request"),
        (b"GET /ws HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + WHOLE, 400, "invalid-request"),
        (b"GET /ws HTTP/1.1\r\n" + HOST + UPGRADE + VERSION, 400, "invalid-request"),
        (b"GET /ws HTTP/1.1\r\n" + WHOLE + KEY, 400, "invalid-request"),
        (b"GET /ws HTTP/1.1\r\n" + HOST + UPGRADE + KEY, 400, "invalid-request"),
        (b"GET /ws HTTP/1.1\r\n" + WHOLE + VERSION, 400, "invalid-request"),
        (
            b"GET /ws HTTP/1.1\r\nSec-WebSocket-Key: c2hvcnQ=\r\n" + HOST + UPGRADE + VERSION,
            400,
            "invalid-request",
        ),
        (b"GET /ws HTTP/1.1\r\nUpgrade: h2c\r\n" + WHOLE, 400, "invalid-request"),
        (b"GET /ws HTTP/1.1\r\nX: a\x01b\r\n" + WHOLE, 400, "invalid-request"),
        (
            b"GET /ws HTTP/1.1\r\nX: " + b"a" * 9000 + b"\r\n" + WHOLE,
            431,
            "headers-too-large",
        ),
        (b"GET /" + b"a" * 8185 + b" HTTP/1.1\r\n" + WHOLE, 414, "uri-too-long"),
    ],
)
async def test_an_opening_that_is_not_whole_is_a_problem_and_closed(
    server: BridgeServer, probe: Probe, head: bytes, status: int, code: str
) -> None:
    problem_of(await ask(server, head + b"\r\n"), status, code)
    assert probe.scopes == []


@pytest.mark.parametrize("upgrade", [b"Upgrade: h2c\r\n", b"Upgrade: h2c, TLS/1.0\r\n"])
async def test_another_protocol_is_not_taken_up_and_the_request_served(
    server: BridgeServer, upgrade: bytes
) -> None:
    """RFC 9110, 7.8."""
    head = b"POST / HTTP/1.1\r\nConnection: Upgrade, close\r\nContent-Length: 2\r\n"
    answer = await ask(server, head + upgrade + HOST + b"\r\n{}")
    assert answer.startswith(b"HTTP/1.1 200 ")


class Aborted(asyncio.Transport):
    """A connection that knows whether it was aborted."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def write(self, data: object) -> None:
        raise AssertionError("nobody is to be answered")


async def test_an_opening_that_the_library_cannot_read_holds_no_connection(probe: Probe) -> None:
    """By itself, without what is checked in front of it: no deadline would run any more."""
    config = make_config(probe, settings_with())
    config.load()
    socket, transport = BridgeSocket(config, BridgeState(), {}), Aborted()
    socket.connection_made(transport)
    socket.data_received(b"GET /ws HTTP/1.1\r\nContent-Length: 5\r\n" + WHOLE + b"\r\n")
    assert transport.is_aborted
