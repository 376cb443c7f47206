"""Event streams: one cursor per subscriber, sent in slices, with a heartbeat between events.

The only module that imports sse-starlette. Its ping can land inside an event that is sent in
slices, so it is off and the heartbeat is ours; its send time-out drops readers that have frozen;
its chunk logger would write every event at debug level.

The loop: take the change signal, send everything after the cursor, wait on the signal. Nothing
can slip between, a slow reader costs its own lag, and every round yields to the loop.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import anyio
import anyio.lowlevel
from sse_starlette.sse import EventSourceResponse
from starlette.types import Receive, Scope, Send

logging.getLogger("sse_starlette").setLevel(logging.WARNING)

HEARTBEAT_S: Final = 15.0
SEND_TIMEOUT_S: Final = 30
SLICE_BYTES: Final = 65536

STREAM_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

_HEARTBEAT: Final = b": \n\n"

Hold = Callable[[float], AbstractContextManager[Any]]


class Signal(Protocol):
    """Set when something has been appended."""

    async def wait(self) -> Any:
        """Until then."""


class Cursor(Protocol):
    """A subscriber's place in a log."""

    @property
    def is_at_end(self) -> bool:
        """Whether everything committed has been taken."""

    def preamble(self) -> bytes:
        """What a stream begins with."""

    def take(self, max_bytes: int = ...) -> bytes:
        """The next piece of SSE text; empty when nothing is left."""


class Source:
    """What a stream follows: a cursor, the signal of its log, and how it can end."""

    def __init__(
        self,
        cursor: Cursor,
        changed: Callable[[], Signal],
        *,
        is_over: Callable[[], bool] = lambda: False,
        is_allowed: Callable[[], bool] = lambda: True,
        hold: Hold = anyio.move_on_after,
    ) -> None:
        """``hold`` bounds a wait in seconds, and ends it early where the stream is to end."""
        self.cursor = cursor
        self.changed = changed
        self.is_over = is_over
        self.is_allowed = is_allowed
        self.hold = hold


async def follow(source: Source, ended: anyio.Event) -> AsyncIterator[bytes]:
    """SSE text until forbidden, or until the source is over or ``ended`` is set: then to its end.

    Whoever stops the bridge waits for that, but not for long: a reader may be far behind.
    """
    cursor = source.cursor
    yield cursor.preamble()
    while source.is_allowed():
        signal = source.changed()
        is_over = ended.is_set() or source.is_over()
        if piece := cursor.take(SLICE_BYTES * 4):
            yield piece
            await anyio.lowlevel.checkpoint()
            continue
        if not cursor.is_at_end:
            await anyio.lowlevel.checkpoint()
            continue
        if is_over:
            return
        is_quiet = True
        with source.hold(HEARTBEAT_S):
            await signal.wait()
            is_quiet = False
        if is_quiet and source.is_allowed():
            yield _HEARTBEAT


class EventStream(EventSourceResponse):
    """The response of a stream; its bytes are final, nothing is encoded here."""

    def __init__(
        self,
        content: AsyncIterator[bytes],
        *,
        headers: dict[str, str] | None = None,
        held: AbstractContextManager[Any],
    ) -> None:
        """``held`` has been entered already, and is left when the stream has ended."""
        self._held = held
        super().__init__(
            content,
            headers=STREAM_HEADERS | (headers or {}),
            ping=0,
            sep="\n",
            send_timeout=SEND_TIMEOUT_S,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream."""
        with self._held:
            await super().__call__(scope, receive, send)

    @staticmethod
    async def _listen_for_exit_signal() -> None:
        """The library's own drain is off: it would end streams before the turns they show."""
        await anyio.sleep_forever()
