"""How many processes there may be, and who gives up its own for another.

Each decision is one synchronous method; what follows from it is done by the caller. Warm processes
that nobody has yet go first. Then a session that does nothing (no turn, no queue, nothing pending)
is asked to hibernate, the one that has done nothing for longest. A slot is taken before a process
is started and given back when it has ended, so the limit holds while processes come and go.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bridge.errors import CapacityError
from bridge.runtime.link import AgentLink
from bridge.runtime.session import LiveSession

_RETRY_AFTER_S = 5


@dataclass(eq=False, slots=True)
class Slot:
    """Leave to run one process; ``session_id`` is ``None`` while no session has it."""

    session_id: str | None


@dataclass(frozen=True, slots=True)
class Take:
    """There is room."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class GiveUp:
    """There will be room once this warm process has ended."""

    link: AgentLink


@dataclass(frozen=True, slots=True)
class Hibernate:
    """There will be room once this session has given up its process."""

    victim: LiveSession


class Pool:
    """The slots; ``limit`` may change while the bridge runs."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._slots: set[Slot] = set()

    def __repr__(self) -> str:
        return f"<Pool {len(self._slots)} of {self.limit}>"

    def __len__(self) -> int:
        return len(self._slots)

    def take(self, session: LiveSession | None) -> Slot | None:
        """A slot, if one is free."""
        if len(self._slots) >= self.limit:
            return None
        slot = Slot(session.session_id if session is not None else None)
        self._slots.add(slot)
        return slot

    def decide(
        self,
        session: LiveSession | None,
        live: Collection[LiveSession],
        warm: Sequence[AgentLink] = (),
    ) -> Take | GiveUp | Hibernate:
        """Take a slot, or name who must go first. Raises ``at-capacity``.

        ``warm`` are the processes that nobody has, the one to give up first in front.
        """
        slot = self.take(session)
        if slot is not None:
            return Take(slot)
        if warm:
            return GiveUp(warm[0])
        idle = _others_idle(session, live)
        if not idle:
            raise self._no_room()
        return Hibernate(min(idle, key=lambda each: each.idle_since))

    def check(
        self,
        session: LiveSession,
        live: Collection[LiveSession],
        warm: Sequence[AgentLink] = (),
    ) -> None:
        """Whether a slot could be had, those aside that others were promised already.

        Raises ``at-capacity``.
        """
        having = {slot.session_id for slot in self._slots}
        promised = sum(
            bool(each.queue) and each.link is None and each.session_id not in having
            for each in live
            if each is not session
        )
        spare = self.limit - len(self._slots) + len(warm) + len(_others_idle(session, live))
        if spare <= promised:
            raise self._no_room()

    def release(self, slot: Slot) -> None:
        """The process has ended (or never began)."""
        self._slots.discard(slot)

    def _no_room(self) -> CapacityError:
        return CapacityError(
            "at-capacity",
            f"All {self.limit} agent processes are busy.",
            hint="Wait for a turn to end, close a session, or raise limits.max_processes.",
            retry_after_s=_RETRY_AFTER_S,
        )


def is_idle(session: LiveSession) -> bool:
    """Whether its process could be stopped without anybody noticing."""
    return (
        session.is_live
        and not session.is_provisional
        and not session.is_jammed
        and session.turn is None
        and not session.queue
        and not len(session.held)
        and not session.lock.statistics().locked
    )


def _others_idle(session: LiveSession | None, live: Collection[LiveSession]) -> list[LiveSession]:
    return [each for each in live if each is not session and is_idle(each)]
