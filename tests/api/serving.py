"""What the server tests share: the bridge's server on a loopback port, and raw sockets to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.api.server import BridgeServer, make_config
from bridge.config import Limits, Server, Settings

LIMIT_S = 8
"""How long a test waits for what must come; nothing waits for it to pass."""


def settings_with(**server: Any) -> Settings:
    """Settings for a free port, with short deadlines where ``server`` says so."""
    return Settings(server=Server(port=0, **server), limits=Limits(body_bytes=1000))


class Probe:
    """An application that echoes, and can be looked into and held up.

    ``/stream`` answers its head and a byte and then waits for :attr:`release`; ``/wait`` waits
    for :attr:`release` before it reads the body; ``/ws`` accepts and echoes; ``/deaf`` answers
    without reading the body; ``/big`` answers with more than any buffer takes.
    """

    def __init__(self) -> None:
        self.release = anyio.Event()
        self.received = anyio.Event()
        self.disconnected = anyio.Event()
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await _echo(receive, send)
            return
        self.received.set()
        if scope["path"] == "/wait":
            await self.release.wait()
        body = b"" if scope["path"] == "/deaf" else await self._body(receive)
        if body is None:
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"+", "more_body": True})
            await self.release.wait()
        filling = b"x" * 20_000_000 if scope["path"] == "/big" else b""
        await send({"type": "http.response.body", "body": filling + b"ok %d" % len(body)})

    async def _body(self, receive: Receive) -> bytes | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnected.set()
                return None
            body += message["body"]
            if not message["more_body"]:
                return bytes(body)


async def lifespan(receive: Receive, send: Send) -> None:
    """An application's part in starting and stopping."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def _echo(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


@asynccontextmanager
async def serving(app: ASGIApp, settings: Settings) -> AsyncIterator[BridgeServer]:
    """``app`` on a loopback port, stopped at the end."""
    server = BridgeServer(make_config(app, settings), takes_signals=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        with anyio.fail_after(LIMIT_S):
            await server.listening.wait()
        try:
            yield server
        finally:
            server.stop()


class Caller:
    """A raw connection."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self.stream = stream

    async def send(self, data: bytes) -> None:
        """Send; that the other side has gone is seen when reading."""
        try:
            await self.stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def until(self, end: bytes) -> bytes:
        """Read until ``end`` has come."""
        data = b""
        with anyio.fail_after(LIMIT_S):
            while end not in data:
                data += await self.stream.receive()
        return data

    async def some(self, most_bytes: int) -> bytes:
        """What has come, nothing at the end."""
        try:
            return await self.stream.receive(most_bytes)
        except anyio.EndOfStream:
            return b""

    async def rest(self) -> bytes:
        """Read until the bridge closes."""
        data = b""
        with anyio.fail_after(LIMIT_S):
            try:
                async for part in self.stream:
                    data += part
            except anyio.BrokenResourceError:
                pass
        return data


@asynccontextmanager
async def calling(server: BridgeServer) -> AsyncIterator[Caller]:
    """One connection to ``server``."""
    port = int(server.address.rpartition(":")[2])
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        yield Caller(stream)


async def outlast(server: BridgeServer) -> None:
    """Return when a connection that began now has met its deadline."""
    async with calling(server) as caller:
        await caller.rest()


async def ask(server: BridgeServer, request: bytes) -> bytes:
    """All the bridge says to ``request`` before it closes."""
    async with calling(server) as caller:
        await caller.send(request)
        return await caller.rest()


def problem_of(answer: bytes, status: int, code: str) -> dict[str, object]:
    """The problem of a raw answer that refuses, with all that it must carry."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0].startswith(b"http/1.1 %d " % status), answer[:200]
    assert b"content-type: application/problem+json" in lines
    assert b"cache-control: no-store" in lines
    assert b"connection: close" in lines
    assert b"x-content-type-options: nosniff" in lines
    assert any(line.startswith(b"x-request-id: ") for line in lines)
    assert not any(line.startswith(b"server:") for line in lines)
    document = json.loads(body)
    assert (document["status"], document["code"]) == (status, code)
    assert isinstance(document, dict)
    return document
