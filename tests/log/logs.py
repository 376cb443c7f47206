"""What the log's tests share: stores with small bounds, readers that parse like a browser."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.log.cursor import SessionCursor
from bridge.log.entry import Draft
from bridge.log.files import Files
from bridge.log.multiplex import BridgeCursor
from bridge.log.store import Store

Cursor = SessionCursor | BridgeCursor


class Clock:
    """A clock that stands where it is put."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class BadFiles(Files):
    """A disk with so much room, that fails as it is told and writes as little as it is told."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.errno = errno.ENOSPC
        self.most: int | None = None
        self.refuses_truncate = False
        self.synced: list[int] = []
        self.on_sync: Callable[[], None] = lambda: None

    def write(self, fd: int, pieces: Sequence[bytes | memoryview]) -> int:
        data = b"".join(pieces)
        if self.most is not None:
            data = data[: self.most]
        if self.room is not None:
            data = data[: self.room]
            if not data:
                raise OSError(self.errno, "told so")
            self.room -= len(data)
        return super().write(fd, [data]) if data else 0

    def truncate(self, fd: int, size: int) -> None:
        if self.refuses_truncate:
            raise OSError(errno.EIO, "told so")
        super().truncate(fd, size)

    def allocate(self, fd: int, size: int) -> None:
        if self.room is not None and self.room < size:
            raise OSError(errno.ENOSPC, "told so")
        super().allocate(fd, size)

    def sync(self, fd: int) -> None:
        self.synced.append(fd)
        self.on_sync()
        super().sync(fd)


def open_store(root: Path, **options: Any) -> Store:
    """A store with small segments."""
    values: dict[str, Any] = {"segment_bytes": 4096, "clock": Clock()}
    store = Store(root, **(values | options))
    for session_id in store.sessions():
        store.start_ids(store.log(session_id).last_id)
    return store


def draft(text: str = "", kind: str = "session/update", **options: Any) -> Draft:
    """An entry that says something."""
    return Draft(kind, json.dumps({"text": text}).encode(), **options)


@dataclass
class Reader:
    """Parses Server-Sent Events as the HTML standard says, and knows its last event id."""

    last_id: int = 0
    kinds: list[str | None] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    _rest: bytes = b""

    def feed(self, data: bytes) -> None:
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        for block in blocks:
            self._dispatch(block)

    def cut(self) -> None:
        """The connection is gone; what was not whole was never seen."""
        self._rest = b""

    @property
    def resets(self) -> list[dict[str, Any]]:
        return [each["params"] for each in self.events if each["type"] == "bridge/reset"]

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [each for each in self.events if each["type"] != "bridge/reset"]

    @property
    def seqs(self) -> list[int]:
        return [each["seq"] for each in self.entries]

    def _dispatch(self, block: bytes) -> None:
        fields = [line.split(b": ", 1) for line in block.split(b"\n")]
        names = [name for name, _ in fields]
        assert names in (
            [b"id", b"event", b"data"],
            [b"id", b"data"],
            [b"id"],
            [b"retry", b"id"],
        ), block[:200]
        told = dict(fields)
        self.last_id = int(told[b"id"])
        if b"data" in told:
            self.events.append(json.loads(told[b"data"]))
            self.kinds.append(told[b"event"].decode() if b"event" in told else None)


def drain(cursor: Cursor, max_bytes: int = 65536) -> Iterator[bytes]:
    """All pieces to the end; fails where there is none."""
    for _ in range(200_000):
        if cursor.is_at_end:
            return
        yield cursor.take(max_bytes)
    raise AssertionError(f"{cursor!r} does not come to an end")


def read_all(cursor: Cursor, max_bytes: int = 65536) -> Reader:
    """What a reader gets of all that is there."""
    reader = Reader()
    reader.feed(cursor.preamble())
    for piece in drain(cursor, max_bytes):
        reader.feed(piece)
    return reader


def descriptors(root: Path) -> int:
    """How many descriptors of files below a folder are open, unlinked ones too."""
    links = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(each))
    return sum(link.startswith(f"{root}/") for link in links)
