"""How many processes there may be, and which session gives up its own for another.

The decision is one synchronous method; what follows from it is done by the caller. Only a session
that does nothing (no turn, no queue, nothing pending) is asked to hibernate, the one that has done
nothing for longest first. A slot is taken before a process is started and given back when it has
ended, so the limit holds while processes come and go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bridge.errors import CapacityError
from bridge.runtime.session import LiveSession

_RETRY_AFTER_S = 5


@dataclass(eq=False, slots=True)
class Slot:
    """Leave to run one process."""

    session_id: str | None


@dataclass(frozen=True, slots=True)
class Take:
    """There is room."""

    slot: Slot


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

    def decide(self, session: LiveSession | None, live: Iterable[LiveSession]) -> Take | Hibernate:
        """Take a slot, or name who must hibernate first. Raises ``at-capacity``."""
        if len(self._slots) < self.limit:
            slot = Slot(session.session_id if session is not None else None)
            self._slots.add(slot)
            return Take(slot)
        idle = [each for each in live if is_idle(each) and each is not session]
        if not idle:
            raise CapacityError(
                "at-capacity",
                f"All {self.limit} agent processes are busy.",
                hint="Wait for a turn to end, close a session, or raise limits.max_processes.",
                retry_after_s=_RETRY_AFTER_S,
            )
        return Hibernate(min(idle, key=lambda each: each.idle_since))

    def release(self, slot: Slot) -> None:
        """The process has ended (or never began)."""
        self._slots.discard(slot)


def is_idle(session: LiveSession) -> bool:
    """Whether its process could be stopped without anybody noticing."""
    return (
        session.is_live
        and session.turn is None
        and not session.queue
        and not len(session.held)
        and not session.lock.statistics().locked
    )
