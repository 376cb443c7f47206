"""The regular rounds: idle sessions hibernate, silent turns are said, old entries go, room returns.

One quick round every second and two slow ones beside it (retention, orphans); each part is cheap
where nothing is to be done, and one that fails is logged and does not keep the others from theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio import to_thread

from bridge.errors import BridgeError
from bridge.runtime import lifecycle, pool, recovery
from bridge.runtime.linux import AdoptedReaper
from bridge.runtime.processes import Processes
from bridge.runtime.registry import Registry
from bridge.runtime.retention import Retention
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession

logger = logging.getLogger(__name__)

ROUND_S: Final = 1.0
RETENTION_EVERY_S: Final = 60.0
REAP_EVERY_S: Final = 30.0
RECOVER_EVERY_S: Final = 60.0
UNLOAD_AFTER_S: Final = 60.0

Round = Callable[[], Awaitable[None]]


class Keeper:
    """Looks after the sessions and processes of a runtime."""

    def __init__(self, services: Services, registry: Registry, processes: Processes) -> None:
        self.retention = Retention(services, registry)
        self._services = services
        self._registry = registry
        self._processes = processes
        self._reaper = AdoptedReaper()

    async def run(self) -> None:
        """Go round until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_repeat, self.retention.keep, RETENTION_EVERY_S)
            tasks.start_soon(_repeat, self.reap, REAP_EVERY_S)
            tasks.start_soon(_repeat, self.recover, RECOVER_EVERY_S)
            tasks.start_soon(_repeat, self.go_round, ROUND_S)

    async def go_round(self) -> None:
        """The quick round."""
        for part in (self._regain_room, self._watch_turns, self._processes.warm.refill):
            try:
                part()
            except BridgeError:
                logger.exception("a part of the regular round failed")
        self._hibernate_idle()
        for link in self._processes.warm.expired():
            self._services.tasks.start_soon(self._processes.give_up, link)
        self._unload()

    async def reap(self) -> None:
        """Collect orphans of agents that became our children and have ended."""
        await to_thread.run_sync(self._reaper.reap, self._processes.pids)

    async def recover(self) -> None:
        """Try again what the start could not bring to rest."""
        recovery.retry(self._services, self._registry)

    def _regain_room(self) -> None:
        """After a full disk: go on by ourselves once there is room."""
        if not self._services.store.recover():
            return
        for session in list(self._registry.live.values()):
            if session.is_jammed and not session.retry():
                continue
            if session.session_id in self._services.behind:
                session.project()
            if session.link is not None and session.link.process is not None:
                session.link.process.resume()

    def _watch_turns(self) -> None:
        """Say when an agent has been silent for long in a turn that waits for nobody."""
        limits = self._services.settings.limits
        now = self._services.monotonic()
        for session in list(self._registry.live.values()):
            turn = session.turn
            if turn is None:
                continue
            if turn.status != "running":
                # It waits for a person; the agent's silence begins after the answer.
                session.last_output = now
                continue
            silent_s = now - session.last_output
            if limits.stall_fail_s and silent_s >= limits.stall_fail_s:
                self._end_stalled(session, silent_s)
            elif limits.stall_warn_s and silent_s >= limits.stall_warn_s:
                self._warn_stalled(session, turn.turn_id, silent_s)

    def _warn_stalled(self, session: LiveSession, turn_id: str, silent_s: float) -> None:
        if session.stall_warned == turn_id:
            return
        session.stall_warned = turn_id
        session.note("turn-stalled", f"The agent has said nothing for {silent_s:.0f} s.")
        session.commit()

    def _end_stalled(self, session: LiveSession, silent_s: float) -> None:
        turn = session.turn
        if turn is None or turn.error is not None:
            return
        turn.error = self._services.describe(
            BridgeError("turn-stalled", f"The agent said nothing for {silent_s:.0f} s.")
        )
        lifecycle.end_hard(session)

    def _hibernate_idle(self) -> None:
        limit_s = self._services.settings.limits.idle_hibernate_s
        if not limit_s:
            return
        now = self._services.monotonic()
        for session in list(self._registry.live.values()):
            if pool.is_idle(session) and now - session.idle_since >= limit_s:
                self._services.tasks.start_soon(lifecycle.hibernate, session)

    def _unload(self) -> None:
        """Sessions without a process need no memory once nobody works with them."""
        now = self._services.monotonic()
        for session in list(self._registry.live.values()):
            if is_at_rest(session) and now - session.idle_since >= UNLOAD_AFTER_S:
                self._registry.unload(session)


def is_at_rest(session: LiveSession) -> bool:
    """Whether nothing of a session is going on or held back."""
    return (
        session.link is None
        and not session.is_provisional
        and not session.is_starting
        and not session.is_jammed
        and not session.queue
        and not session.lock.statistics().locked
    )


async def _repeat(go_round: Round, every_s: float) -> None:
    """A round that fails is tried again the next time."""
    while True:
        await anyio.sleep(every_s)
        try:
            await go_round()
        except Exception:
            logger.exception("a regular round failed")
