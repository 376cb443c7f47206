"""Warm processes: started and initialised before anybody asks, so that a session begins at once.

Kept for those places that were used lately: an owner, an agent, a folder and the very environment
and command line that a start would have now. Nothing else fits: a process never passes to another
owner, nor to another folder, nor outlives a changed key. They count against the limit of
processes, are the first to go when room is needed, never make others hibernate, and end when
their place has not been used for long.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bridge.errors import BridgeError
from bridge.protocol.connection import Received
from bridge.runtime import environment
from bridge.runtime.launch import launch
from bridge.runtime.link import AgentLink
from bridge.runtime.process import ExitStatus
from bridge.runtime.session import LiveSession

if TYPE_CHECKING:
    from bridge.runtime.services import Services

logger = logging.getLogger(__name__)

MAX_PLACES: Final = 8
"""How many places are kept warm at most, whatever the limit of processes."""
IDLE_S: Final = 1800.0
_AFTER_FAILURE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """For whom a process was started; ``digest`` is over its command line and environment."""

    owner: str
    agent: str
    cwd: str
    digest: str


class Warm:
    """All warm processes of the bridge."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._ready: dict[AgentLink, Place] = {}
        self._used_at: OrderedDict[Place, float] = OrderedDict()
        self._starting: dict[Place, int] = {}
        self._not_before: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def links(self) -> list[AgentLink]:
        """Those that can be given up, the place that was used longest ago first."""
        order = {place: number for number, place in enumerate(self._used_at)}
        ready = [link for link in self._ready if link.is_alive]
        return sorted(ready, key=lambda link: order.get(self._ready[link], -1))

    def take(self, session: LiveSession) -> AgentLink | None:
        """A process for this session, which is nobody else's from now on."""
        if not self._is_wanted(session.agent):
            return None
        place = self._place(session)
        for link, kept_for in self._ready.items():
            if kept_for == place and link.is_alive:
                del self._ready[link]
                return link
        return None

    def used(self, session: LiveSession) -> None:
        """A session was begun here; the next one may find a process ready."""
        if not self._is_wanted(session.agent):
            return
        place = self._place(session)
        self._used_at[place] = self._services.monotonic()
        self._used_at.move_to_end(place)
        while len(self._used_at) > MAX_PLACES:
            self._used_at.popitem(last=False)
        self.refill()

    def refill(self) -> None:
        """Start what is missing, as far as there is room that nobody else needs."""
        if self._services.is_draining:
            return
        now = self._services.monotonic()
        for place in reversed(self._used_at):
            wanted = self._services.agent(place.agent).warm
            if self._not_before.get(place.agent, 0.0) > now or self._count(place) >= wanted:
                continue
            if not self._services.hooks.roots.has(place.cwd):
                continue
            self._starting[place] = self._starting.get(place, 0) + 1
            self._services.tasks.start_soon(self._start, place)

    def expired(self) -> list[AgentLink]:
        """Those whose place has not been used for long or is no longer what it was."""
        oldest = self._services.monotonic() - IDLE_S
        for place, used_at in list(self._used_at.items()):
            if used_at < oldest or not self._is_as_it_was(place):
                del self._used_at[place]
        return [link for link, place in self._ready.items() if place not in self._used_at]

    def _is_as_it_was(self, place: Place) -> bool:
        """What a start would have now is what it had, in a folder that sessions may work in."""
        is_same = self._digest(place.agent, place.owner) == place.digest
        return is_same and self._services.hooks.roots.has(place.cwd)

    # -- as the owner of their links ----------------------------------------------------------

    def link_started(self, link: AgentLink) -> None:
        """It runs."""

    def handle(self, link: AgentLink, received: list[Received]) -> None:
        """What it says without a session concerns nobody."""

    def link_broke(self, link: AgentLink) -> None:
        """It is of no use to anybody."""
        self._services.tasks.start_soon(link.stop, self._services)

    def link_ended(self, link: AgentLink, status: ExitStatus) -> None:
        """It has ended; whether that was wanted decides about the next one."""
        del status
        place = self._ready.pop(link, None)
        self._services.processes.ended(link)
        if place is not None and not link.is_expected_to_end:
            self._failed(place.agent)
        if not link.is_stopping:
            self._services.tasks.start_soon(link.stop, self._services)

    # -- starting -----------------------------------------------------------------------------

    async def _start(self, place: Place) -> None:
        try:
            slot = self._services.processes.try_acquire()
            if slot is None:
                return
            link = await launch(
                self._services,
                slot,
                self,
                agent=place.agent,
                owner=place.owner,
                cwd=place.cwd,
            )
        except BridgeError as error:
            logger.warning("no warm process of %s: %s", place.agent, error)
            self._failed(place.agent)
            return
        finally:
            self._starting[place] -= 1
            if not self._starting[place]:
                del self._starting[place]
        self._ready[link] = place
        if not link.is_alive or place not in self._used_at:
            link.is_expected_to_end = True
            await link.stop(self._services)

    def _failed(self, agent: str) -> None:
        """Not again at once: what fails would fail for ever in the background."""
        self._not_before[agent] = self._services.monotonic() + _AFTER_FAILURE_S

    def _count(self, place: Place) -> int:
        ready = sum(kept_for == place for kept_for in self._ready.values())
        return ready + self._starting.get(place, 0)

    def _is_wanted(self, agent: str) -> bool:
        return self._services.agent(agent).warm > 0

    def _place(self, session: LiveSession) -> Place:
        digest = self._digest(session.agent, session.owner)
        return Place(session.owner, session.agent, session.cwd, digest)

    def _digest(self, agent_name: str, owner_name: str) -> str:
        """Over all that a start depends on; empty, and so like no other, where it would fail."""
        services = self._services
        owner = services.settings.owners.get(owner_name)
        try:
            owner_env = environment.owner_variables(owner) if owner else {}
            argv = services.hooks.catalog.argv(agent_name)
        except BridgeError:
            return ""
        env = environment.build(services.agent(agent_name).env, owner_env, "")
        return _digest_of(argv, env)


def _digest_of(argv: tuple[str, ...], env: Mapping[str, str]) -> str:
    parts = [*argv, "", *(f"{name}={value}" for name, value in sorted(env.items()))]
    # Neither a word nor a variable can hold a NUL; surrogates stand for bytes that are no UTF-8.
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
