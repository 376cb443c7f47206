"""The regular round: idle sessions hibernate, silent turns are said, old entries go, room returns.

One task, one round every few seconds; each part is cheap where nothing is to be done.
"""

from __future__ import annotations

import logging
from typing import Final, NoReturn

import anyio

from bridge.errors import BridgeError
from bridge.runtime import lifecycle, pool
from bridge.runtime.keys import KEEP_S
from bridge.runtime.processes import Processes
from bridge.runtime.registry import Registry
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession

logger = logging.getLogger(__name__)

ROUND_S: Final = 1.0
_RETENTION_EVERY_S: Final = 600.0
_UNLOAD_AFTER_S: Final = 60.0


class Keeper:
    """Looks after the sessions of a runtime."""

    def __init__(self, services: Services, registry: Registry, processes: Processes) -> None:
        self._services = services
        self._registry = registry
        self._processes = processes
        self._retained_at = 0.0

    async def run(self) -> NoReturn:
        """Go round until cancelled."""
        while True:
            await anyio.sleep(ROUND_S)
            await self.go_round()

    async def go_round(self) -> None:
        """One round; a part that fails is logged and does not keep the others from theirs."""
        for part in (self._regain_room, self._watch_turns, self._keep_retention):
            try:
                part()
            except BridgeError:
                logger.exception("a part of the regular round failed")
        await self._hibernate_idle()
        self._unload()

    def _regain_room(self) -> None:
        """After a full disk: go on by ourselves once there is room."""
        store = self._services.store
        if not store.is_full or not store.recover():
            return
        for session in list(self._registry.live.values()):
            if session.is_jammed and session.retry() and session.link is not None:
                if session.link.process is not None:
                    session.link.process.resume()

    def _watch_turns(self) -> None:
        """Say when an agent has been silent for long in a turn that waits for nobody."""
        limits = self._services.settings.limits
        now = self._services.clock()
        for session in list(self._registry.live.values()):
            turn = session.turn
            if turn is None or turn.status != "running":
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
        self._services.tasks.start_soon(lifecycle.end_hard, session)

    async def _hibernate_idle(self) -> None:
        limit_s = self._services.settings.limits.idle_hibernate_s
        if not limit_s:
            return
        now = self._services.clock()
        for session in list(self._registry.live.values()):
            if pool.is_idle(session) and now - session.idle_since >= limit_s:
                await lifecycle.hibernate(session)

    def _unload(self) -> None:
        """Sessions without a process need no memory once nobody works with them."""
        now = self._services.clock()
        for session in list(self._registry.live.values()):
            is_at_rest = (
                session.link is None
                and not session.is_provisional
                and not session.is_starting
                and not session.is_jammed
                and not session.queue
                and not session.lock.statistics().locked
            )
            if is_at_rest and now - session.idle_since >= _UNLOAD_AFTER_S:
                self._registry.unload(session)

    def _keep_retention(self) -> None:
        now = self._services.clock()
        if now - self._retained_at < _RETENTION_EVERY_S:
            return
        self._retained_at = now
        storage = self._services.settings.storage
        before = now - storage.retention_days * 86400
        self._services.tables.forget_keys(now - KEEP_S)
        for session_id in self._services.store.sessions():
            self._services.store.evict(
                session_id, before=before, max_bytes=storage.max_session_bytes
            )
