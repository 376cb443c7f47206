"""The processes of the pool: who has which, how one makes room, how all end.

Keeps the rows by which the next start finds what a killed bridge left behind. A full disk costs
that row alone: the run tag finds the process too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from bridge.log.rows import ProcessRow
from bridge.runtime import lifecycle, linux, rows
from bridge.runtime.inbox import Inbox
from bridge.runtime.link import AgentLink
from bridge.runtime.pool import GiveUp, Hibernate, Pool, Slot, Take
from bridge.runtime.session import LiveSession
from bridge.runtime.warm import Warm

if TYPE_CHECKING:
    from bridge.runtime.registry import Registry
    from bridge.runtime.services import Services

logger = logging.getLogger(__name__)

LAST_STEP_S: Final = 0.3
"""Each step of stopping the agents when the bridge itself ends: whoever waits may kill it soon."""


class Processes:
    """All live agent processes of the bridge."""

    def __init__(self, services: Services, pool: Pool, registry: Registry) -> None:
        self.warm = Warm(services)
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

    @property
    def pids(self) -> set[int]:
        """Their pids: the children that nobody else may reap."""
        return {link.process.pid for link in self._slots if link.process is not None}

    def take_warm(self, session: LiveSession) -> AgentLink | None:
        """A process that is ready for this session; it is the session's from now on."""
        link = self.warm.take(session)
        if link is None:
            return None
        self._slots[link].session_id = session.session_id
        link.owner = Inbox(session)
        link.owner.link_started(link)
        return link

    async def acquire(self, session: LiveSession | None) -> Slot:
        """A slot for one process, made free by whoever can spare its own.

        Raises ``at-capacity``.
        """
        async with self._making_room:
            while True:
                live = self._registry.live.values()
                match self._pool.decide(session, live, self.warm.links):
                    case Take(slot):
                        return slot
                    case GiveUp(link):
                        await self.give_up(link)
                    case Hibernate(victim):
                        await lifecycle.hibernate(victim)

    def try_acquire(self) -> Slot | None:
        """A slot that is free anyway."""
        return self._pool.take(None)

    def check_room(self, session: LiveSession) -> None:
        """Whether a process could be started now. Raises ``at-capacity``."""
        self._pool.check(session, self._registry.live.values(), self.warm.links)

    async def give_up(self, link: AgentLink) -> None:
        """End a warm process."""
        link.is_expected_to_end = True
        await link.stop(self._services)

    def release_slot(self, slot: Slot) -> None:
        """Nothing was started after all."""
        self._pool.release(slot)

    def started(self, link: AgentLink, slot: Slot, tag: str) -> None:
        """A process runs: remember how to find it after a crash."""
        self._slots[link] = slot
        process = link.process
        assert process is not None
        row = ProcessRow(
            pid=process.pid,
            start_ticks=process.start_ticks,
            boot_id=linux.boot_id(),
            session_id=slot.session_id or "",
            tag=tag,
            started_at=self._services.clock(),
        )
        try:
            self._services.tables.save_process(row)
        except rows.UNWRITABLE as error:
            logger.error("a process is known by its tag alone: %s", error)

    def ended(self, link: AgentLink) -> None:
        """It is gone; its slot and its row are free."""
        slot = self._slots.pop(link, None)
        if slot is None:
            return
        self._pool.release(slot)
        if link.process is None:
            return
        try:
            self._services.tables.drop_process(link.process.pid, link.process.start_ticks)
        except rows.UNWRITABLE as error:
            logger.error("the row of an ended process stays: %s", error)

    async def stop_all(self) -> None:
        """End every process, all at once, each within its bounded steps.

        What they say from here on belongs to no turn: reading it would only keep the loop from
        everything else, so those that go on have to wait.
        """
        async with anyio.create_task_group() as tasks:
            for link in self.links:
                link.is_expected_to_end = True
                if link.process is not None:
                    link.process.pause()
                tasks.start_soon(self._stop_last, link)

    async def _stop_last(self, link: AgentLink) -> None:
        link.is_stopping = True
        step_s = min(LAST_STEP_S, self._services.settings.limits.stop_step_s)
        if link.process is not None:
            with anyio.CancelScope(shield=True):
                await link.process.stop(step_s)
