"""Several sessions' files, read as one in the order of the global ids.

Each session is a lane with a few of its next places; the lane whose next entry has the smallest id
stands on top. Nothing is open in between, and what a lane finds missing is told. Lanes are made
some at a time, since there may be thousands. Knows nothing of who may see what.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from bridge.log.segments import Place
from bridge.log.session_log import SessionLog

_MOST_PLACES: Final = 64


@dataclass(slots=True, eq=False)
class Lane:
    """One session; ``seq`` is the position up to which it has been read."""

    log: SessionLog
    seq: int
    places: deque[Place] = field(default_factory=deque)
    has_lost: bool = False
    """Whether entries after ``seq`` were gone, which is to be told once."""
    _wanted: int = 1

    def next(self, number: int) -> Place | None:
        """The first place with an entry beyond the id ``number``. Raises ``OSError``."""
        while self.places and self.places[0].last_id <= number:
            self.seq = self.places.popleft().last_seq
        if not self.places:
            self.places.extend(islice(self.log.places(self.seq), self._wanted))
            self._wanted = min(self._wanted * 2, _MOST_PLACES)
        self._look_for_gap()
        return self.places[0] if self.places else None

    def _look_for_gap(self) -> None:
        before = self.places[0].first_seq - 1 if self.places else self.log.last_seq
        if before > self.seq:
            self.has_lost = True
            self.seq = before


class Merge:
    """The places of some sessions with entries beyond an id, up to the id ``end``."""

    def __init__(self, end: int, session_ids: Iterable[str]) -> None:
        self.end = end
        self._unopened = deque(session_ids)
        self._heap: list[tuple[int, int, Lane]] = []
        self._order = 0

    @property
    def unopened(self) -> int:
        """How many sessions have not been looked at."""
        return len(self._unopened)

    def take_unopened(self) -> str:
        """A session whose lane is to be opened."""
        return self._unopened.popleft()

    def open(self, log: SessionLog, number: int) -> None:
        """A lane for a session, from the id ``number`` on. Raises ``OSError``."""
        lane = Lane(log, log.seq_at(number), has_lost=log.evicted_id > number)
        self._order += 1
        heapq.heappush(self._heap, (0, self._order, lane))

    def next(self, number: int) -> Lane | Place | None:
        """What comes after the id ``number``: a place, or a lane that has lost entries before it.

        Such a lane is returned once. ``None``: nothing is left. Raises ``OSError``.
        """
        while self._heap and self._heap[0][0] <= self.end:
            known, order, lane = self._heap[0]
            place = lane.next(number)
            if lane.has_lost:
                lane.has_lost = False
                return lane
            if place is None:
                heapq.heappop(self._heap)
                continue
            first = max(place.first_id, number + 1)
            if first == known:
                return place
            heapq.heapreplace(self._heap, (first, order, lane))
        return None

    @property
    def log(self) -> SessionLog:
        """The log of the place that was returned last."""
        return self._heap[0][2].log

    def look_again(self) -> None:
        """The place that was returned last is damaged: what comes instead is read anew."""
        self._heap[0][2].places.clear()
