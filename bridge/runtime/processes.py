"""The processes of the pool: who has which, how one makes room, how all end.

Keeps the rows by which the next start finds what a killed bridge left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from bridge.log.rows import ProcessRow
from bridge.runtime import lifecycle, linux
from bridge.runtime.link import AgentLink
from bridge.runtime.pool import Hibernate, Pool, Slot, Take
from bridge.runtime.session import LiveSession

if TYPE_CHECKING:
    from bridge.runtime.registry import Registry
    from bridge.runtime.services import Services


class Processes:
    """All live agent processes of the bridge."""

    def __init__(self, services: Services, pool: Pool, registry: Registry) -> None:
        self._services = services
        self._pool = pool
        self._registry = registry
        self._slots: dict[AgentLink, Slot] = {}
        self._making_room = anyio.Lock()

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def links(self) -> list[AgentLink]:
        """Every process that has not ended."""
        return list(self._slots)

    async def acquire(self, session: LiveSession | None) -> Slot:
        """A slot for one process, made free by hibernating the session idle for longest.

        Raises ``at-capacity``.
        """
        async with self._making_room:
            while True:
                decision = self._pool.decide(session, self._registry.live.values())
                match decision:
                    case Take(slot):
                        return slot
                    case Hibernate(victim):
                        await lifecycle.hibernate(victim)

    def check_room(self, session: LiveSession) -> None:
        """Whether a process could be started now. Raises ``at-capacity``."""
        decision = self._pool.decide(session, self._registry.live.values())
        if isinstance(decision, Take):
            self._pool.release(decision.slot)

    def release_slot(self, slot: Slot) -> None:
        """Nothing was started after all."""
        self._pool.release(slot)

    def started(self, link: AgentLink, slot: Slot, tag: str) -> None:
        """A process runs: remember how to find it after a crash."""
        self._slots[link] = slot
        process = link.process
        assert process is not None
        self._services.tables.save_process(
            ProcessRow(
                pid=process.pid,
                start_ticks=process.start_ticks,
                boot_id=linux.boot_id(),
                session_id=slot.session_id or "",
                tag=tag,
                started_at=self._services.clock(),
            )
        )

    def ended(self, link: AgentLink) -> None:
        """It is gone; its slot and its row are free."""
        slot = self._slots.pop(link, None)
        if slot is None:
            return
        self._pool.release(slot)
        if link.process is not None:
            self._services.tables.drop_process(link.process.pid, link.process.start_ticks)

    async def stop_all(self) -> None:
        """End every process, all at once, each within its bounded steps."""
        async with anyio.create_task_group() as tasks:
            for link in self.links:
                link.is_expected_to_end = True
                tasks.start_soon(link.stop, self._services)
