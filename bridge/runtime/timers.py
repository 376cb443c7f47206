"""All deadlines of the runtime, swept by one task.

A deadline is a row with a time and a synchronous action, never a task of its own. Actions run on
the loop in the order of their times; cancelling a row is dropping it.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable
from typing import NoReturn

import anyio

logger = logging.getLogger(__name__)

Action = Callable[[], None]


class Timer:
    """A deadline that may still be called off."""

    __slots__ = ("action", "at")

    def __init__(self, at: float, action: Action) -> None:
        self.at = at
        self.action: Action | None = action

    def cancel(self) -> None:
        """The action will not run; harmless when it already has."""
        self.action = None


class Timers:
    """``clock`` gives monotonic seconds; :meth:`run` is owned by the runtime's task group."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()
        self._earlier = anyio.Event()

    def after(self, delay_s: float, action: Action) -> Timer:
        """Run ``action`` once in ``delay_s`` seconds."""
        timer = Timer(self._clock() + delay_s, action)
        heapq.heappush(self._heap, (timer.at, next(self._count), timer))
        if self._heap[0][2] is timer:
            self._earlier.set()
        return timer

    def sweep(self) -> float | None:
        """Run what is due; returns the seconds until the next deadline, ``None`` without one."""
        while self._heap:
            at, _, timer = self._heap[0]
            if timer.action is not None and at > self._clock():
                return at - self._clock()
            heapq.heappop(self._heap)
            self._run(timer)
        return None

    async def run(self) -> NoReturn:
        """Sweep whenever something is due, until cancelled."""
        while True:
            self._earlier = anyio.Event()
            wait_s = self.sweep()
            with anyio.move_on_after(wait_s if wait_s is not None else 3600):
                await self._earlier.wait()

    def _run(self, timer: Timer) -> None:
        action, timer.action = timer.action, None
        if action is None:
            return
        try:
            action()
        except Exception:
            logger.exception("a deadline's action failed")
