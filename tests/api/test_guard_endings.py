"""What a token holds open ends with it, also where its caller does not read."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from starlette.types import Receive, Scope, Send

from bridge.api.server import BridgeServer
from tests.api.door import Door
from tests.api.serving import LIMIT_S, lifespan, serving, settings_with

pytestmark = pytest.mark.anyio

WITHIN_S = 1.0
PIECE = b"x" * 1_000_000
SOCKET = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


class Clocked(Door):
    """A door whose time passes."""

    def clock(self) -> float:
        return time.time()


class Endless:
    """Sends without end, over HTTP and WebSocket; a caller that does not read holds it up.

    ``/short`` sends what fills the buffers between it and its caller, and ends with its token.
    """

    def __init__(self, door: Door) -> None:
        self._door = door
        self.sent = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
        else:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/short":
            await self._short(scope, send)
            return
        while True:
            await self._piece(scope, send)
            await anyio.lowlevel.checkpoint()

    async def _piece(self, scope: Scope, send: Send) -> None:
        self.sent.set()
        if scope["type"] == "websocket":
            await send({"type": "websocket.send", "bytes": PIECE})
        else:
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})

    async def _short(self, scope: Scope, send: Send) -> None:
        await self._piece(scope, send)
        with self._door.tokens.while_live(scope["state"]["principal"]):
            await anyio.sleep_forever()
        await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def connected(server: BridgeServer) -> AsyncIterator[SocketStream]:
    """A caller whose kernel keeps as little as it can."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect(("127.0.0.1", int(server.address.rpartition(":")[2])))
    plain.setblocking(False)
    async with await SocketStream.from_socket(plain) as stream:
        yield stream


async def gone(server: BridgeServer) -> None:
    """Until the server has no connection any more."""
    while server.server_state.connections:  # noqa: ASYNC110 - uvicorn tells nobody
        await anyio.sleep(0.01)


@pytest.mark.parametrize(
    ("path", "more"),
    [(b"/v1/events", b""), (b"/v1/events", SOCKET), (b"/short", b"")],
    ids=["stream", "socket", "written"],
)
@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_caller_that_does_not_read_is_cut_off_with_its_token(
    tmp_path: Path, path: bytes, more: bytes, how: str
) -> None:
    door = Clocked(tmp_path)
    expires_at = door.clock() + 0.3 if how == "expired" else None
    token = door.tokens.create("phone", expires_at=expires_at).encode()
    door.app = app = Endless(door)
    async with serving(door.guard(), settings_with()) as server, connected(server) as stream:
        request = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n%s\r\n"
        await stream.send(request % (path, token, more))
        with anyio.fail_after(LIMIT_S):
            await app.sent.wait()
        await anyio.wait_all_tasks_blocked()
        assert server.server_state.connections
        if how == "revoked":
            door.tokens.revoke("phone")
        with anyio.fail_after(0.3 + WITHIN_S):
            await gone(server)


async def test_a_caller_that_reads_gets_the_end_of_its_answer(tmp_path: Path) -> None:
    door = Clocked(tmp_path)
    token = door.tokens.create("phone").encode()
    door.app = app = Endless(door)
    async with serving(door.guard(), settings_with()) as server, connected(server) as stream:
        await stream.send(
            b"GET /short HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n" % token
        )
        await app.sent.wait()
        said = b""
        with anyio.fail_after(LIMIT_S):
            while len(said) < len(PIECE):
                said += await stream.receive()
            door.tokens.revoke("phone")
            async for part in stream:
                said += part
        assert said.endswith(b"\r\n0\r\n\r\n")
