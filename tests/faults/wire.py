"""Subscribers on bare sockets: cheap enough to read hundreds of megabytes, or to read nothing."""

from __future__ import annotations

import asyncio
import re
import socket
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketStream

from tests.e2e.harness import TOKEN

_CHUNK = re.compile(rb"([0-9a-f]+)\r\n")


def request(url: str, path: str, *headers: str) -> bytes:
    """A GET of an event stream."""
    host = urlsplit(url).netloc
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        f"Authorization: Bearer {TOKEN}",
        "Accept: text/event-stream",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def connect(url: str, path: str, *headers: str, buffer: int | None = None) -> SocketStream:
    """A connection on which a stream was asked for; ``buffer`` bounds what the kernel keeps."""
    split = urlsplit(url)
    plain = socket.socket()
    if buffer is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    plain.setblocking(False)
    with anyio.fail_after(20):
        loop = asyncio.get_running_loop()
        await loop.sock_connect(plain, (split.hostname, split.port))
    stream = await SocketStream.from_socket(plain)
    await stream.send(request(url, path, *headers))
    return stream


class Reader:
    """Reads a stream's body and keeps of it what was asked for."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._raw = bytearray()
        self._has_head = False
        self._left = 0
        self.is_over = False

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end."""
        while not self.is_over:
            if piece := self._take():
                return piece
            try:
                self._raw += await self._stream.receive(262_144)
            except anyio.EndOfStream:
                self.is_over = True
        return b""

    def _take(self) -> bytes:
        """The chunks that are there, without their sizes."""
        if not self._has_head:
            end = self._raw.find(b"\r\n\r\n")
            if end < 0:
                return b""
            assert self._raw.startswith(b"HTTP/1.1 200"), bytes(self._raw[:end])
            del self._raw[: end + 4]
            self._has_head = True
        parts = []
        while self._raw and not self.is_over:
            if not self._left and not self._begin_chunk():
                break
            part = bytes(self._raw[: self._left])
            del self._raw[: len(part)]
            # The last two bytes of a chunk are its line's end.
            parts.append(part[: max(0, self._left - 2)])
            self._left -= len(part)
        return b"".join(parts)

    def _begin_chunk(self) -> bool:
        """Whether the size of the next one is there."""
        found = _CHUNK.match(bytes(self._raw[:32]))
        if found is None:
            return False
        self._left = int(found[1], 16) + 2
        del self._raw[: found.end()]
        self.is_over = self._left == 2
        return not self.is_over
