"""The loop of an event stream: what is sent before it ends."""

from __future__ import annotations

from contextlib import nullcontext

import anyio
import pytest

from bridge.api.stream import Source, follow

pytestmark = pytest.mark.anyio


class Pieces:
    """A cursor over pieces that are added meanwhile."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    @property
    def is_at_end(self) -> bool:
        return not self.pieces

    def preamble(self) -> bytes:
        return b"begin"

    def take(self, max_bytes: int = 0) -> bytes:
        del max_bytes
        return self.pieces.pop(0) if self.pieces else b""


async def _all(source: Source, ended: anyio.Event) -> list[bytes]:
    with anyio.fail_after(5):
        return [piece async for piece in follow(source, ended)]


async def test_what_was_committed_before_streams_end_is_sent_first() -> None:
    ended = anyio.Event()
    ended.set()
    source = Source(Pieces(b"one", b"two"), anyio.Event)
    assert await _all(source, ended) == [b"begin", b"one", b"two"]


async def test_what_is_committed_while_a_stream_is_told_to_end_is_sent_too() -> None:
    ended, cursor = anyio.Event(), Pieces()

    def hold(limit_s: float) -> nullcontext[None]:
        """The last entries come in the very moment in which the wait is broken off."""
        assert limit_s > 0
        cursor.pieces.append(b"last")
        ended.set()
        woken.set()
        return nullcontext()

    woken = anyio.Event()
    assert await _all(Source(cursor, lambda: woken, hold=hold), ended) == [b"begin", b"last"]


async def test_a_forbidden_stream_ends_with_entries_unsent() -> None:
    ended = anyio.Event()
    ended.set()
    source = Source(Pieces(b"secret"), anyio.Event, is_allowed=lambda: False)
    assert await _all(source, ended) == [b"begin"]
