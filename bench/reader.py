"""A subscriber in a process of its own: reads one stream as it comes, counts, and checks it.

    python -m bench.reader '{"port": …, "path": …, "token": …, "events": …}'

``events`` is how many updates to wait for; ``pace`` (bytes a second, 0: none) makes it a slow
one. Prints ``ready`` once the stream has begun and at the end one line of JSON: updates, bytes,
first and last moment (the system's monotonic clock, so that processes can be compared). The ids
must go up by one without a gap, or it ends with an error. It does as little as that takes, because
it shares the processor with what it measures.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from typing import Any

_ID = b"\nid: "
_UPDATE = b"\nevent: session/update"
_READ_BYTES = 1 << 20
_CHUNK = re.compile(rb"\r\n[0-9a-f]+\r\n")
"""The framing of a chunked body; the events themselves have no raw CR."""


class Gap(Exception):
    """Ids did not go up by one."""


class Counter:
    """Counts the whole frames in what is fed, and holds their ids to having no gap."""

    def __init__(self) -> None:
        self.updates = 0
        self.last_id = -1
        self._rest = b"\n"

    def feed(self, data: bytes) -> None:
        """Bytes of the stream, cut anywhere. The frame that is not over waits for its end."""
        data = _CHUNK.sub(b"", self._rest + data)
        cut = data.rfind(_ID)
        if cut <= 0:
            self._rest = data
            return
        frames = data.count(_ID, 0, cut + 1)
        if frames:
            first, last = data.find(_ID, 0, cut), data.rfind(_ID, 0, cut)
            self._check(_number(data, first), _number(data, last), frames)
            self.updates += data.count(_UPDATE, 0, cut + 1)
        self._rest = data[cut:]

    def _check(self, first: int, last: int, frames: int) -> None:
        # A stream begins with the bare id of its position, which is no event's.
        expected = self.last_id + 1 if self.last_id >= 0 else first
        if first != expected or last - first + 1 != frames:
            raise Gap(f"{frames} ids from {first} to {last} behind {self.last_id}")
        self.last_id = last


def connect(port: int, path: str, token: str, receive_bytes: int = 0) -> socket.socket:
    """A connection on which a stream was asked for."""
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(180)
    connection.connect(("127.0.0.1", port))
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n"
    connection.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
    return connection


def begun(connection: socket.socket) -> bytes:
    """What comes up to and with the first piece of the body; without the head."""
    data = b""
    while not data.partition(b"\r\n\r\n")[2]:
        piece = connection.recv(_READ_BYTES)
        if not piece:
            raise ConnectionError(f"the stream ended: {data[:300]!r}")
        data += piece
    if b" 200 " not in data[:20]:
        raise ConnectionError(f"no stream: {data[:300]!r}")
    return data.partition(b"\r\n\r\n")[2]


def read(connection: socket.socket, wanted: int, pace: float) -> dict[str, Any]:
    """Until ``wanted`` updates were seen or the stream ends."""
    counter, size = Counter(), 0
    first = last = 0.0
    per_read = _READ_BYTES if not pace else max(1024, int(pace / 10))
    while counter.updates < wanted and (data := connection.recv(per_read)):
        last = time.monotonic()
        first = first or last
        size += len(data)
        counter.feed(data)
        if pace:
            time.sleep(len(data) / pace)
    return {"updates": counter.updates, "bytes": size, "first": first, "last": last}


def main() -> None:
    """See the module."""
    given = json.loads(sys.argv[1])
    with connect(given["port"], given["path"], given["token"]) as connection:
        begun(connection)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        told = read(connection, given["events"], given.get("pace", 0))
    sys.stdout.write(json.dumps(told) + "\n")


def _number(data: bytes, at: int) -> int:
    return int(data[at + len(_ID) : data.index(b"\n", at + len(_ID))])


if __name__ == "__main__":
    main()
