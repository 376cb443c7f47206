"""Several sessions' files, read as one in the order of the global ids.

Each session is a lane with a few of its next records; the lane whose next entry has the smallest id
stands on top. Nothing is open in between, one read brings as many records as a lane's share of the
memory holds, and what a lane finds missing is told. Lanes are made some at a time, since there may
be thousands, and what finding records costs beside reading them is counted. Knows nothing of who
may see what.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from bridge.log.segments import Place
from bridge.log.session_log import SessionLog, by_id

LANES_BYTES: Final = 2 * 1024 * 1024
"""What all lanes together read ahead."""
_LEAST_READ_BYTES: Final = 4096
_MOST_READ_BYTES: Final = 65536
_OPENING_BYTES: Final = 65536
"""What it costs to look into a session's folder for the first time, in bytes read."""
_ASKING_BYTES: Final = 8192
"""What it costs to open a file once more."""


@dataclass(slots=True, eq=False)
class Lane:
    """One session; ``seq`` is the position up to which it has been read."""

    log: SessionLog
    seq: int
    places: deque[Place] = field(default_factory=deque)
    has_lost: bool = False
    """Whether entries after ``seq`` were gone, which is to be told once."""
    _behind: Place | None = None
    _read_bytes: int = _LEAST_READ_BYTES

    def pass_over(self, number: int) -> bool:
        """Let go of what the id ``number`` is beyond; whether the files must be asked."""
        while self.places and self.places[0].last_id <= number:
            self._behind = self.places.popleft()
            self.seq = self._behind.last_seq
        return not self.places

    def read(self, most_bytes: int) -> None:
        """Read what comes next, of so many bytes at most but for one record. Raises ``OSError``."""
        size = min(self._read_bytes, most_bytes)
        for place in self.log.places(self.seq, read_bytes=size, behind=self._behind):
            self.places.append(place)
            size -= place.head.size
            if size <= 0:
                break
        self._read_bytes = min(self._read_bytes * 2, _MOST_READ_BYTES)

    def look(self) -> Place | None:
        """The first place; ``None``: there is none."""
        self._look_for_gap()
        return self.places[0] if self.places else None

    def look_again(self) -> None:
        """What was read is damaged."""
        self.places.clear()
        self._behind = None

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
        self._cost = 0

    def spent(self) -> int:
        """What has been looked at since the last time only to find records, in bytes."""
        cost, self._cost = self._cost, 0
        return cost

    @property
    def unopened(self) -> int:
        """How many sessions have not been looked at."""
        return len(self._unopened)

    def take_unopened(self) -> str:
        """A session whose lane is to be opened."""
        return self._unopened.popleft()

    def open(self, log: SessionLog, number: int) -> None:
        """A lane for a session, from the id ``number`` on. Raises ``OSError``."""
        self._cost += _OPENING_BYTES + log.unscanned_bytes(number, by_id)
        lane = Lane(log, log.seq_at(number), has_lost=log.evicted_id > number)
        self._order += 1
        lane.read(_LEAST_READ_BYTES)
        place = lane.look()
        if lane.has_lost:
            heapq.heappush(self._heap, (0, self._order, lane))
        elif place is not None:
            heapq.heappush(self._heap, (max(place.first_id, number + 1), self._order, lane))

    def next(self, number: int) -> Lane | Place | None:
        """What comes after the id ``number``: a place, or a lane that has lost entries before it.

        Such a lane is returned once. ``None``: nothing is left. Raises ``OSError``.
        """
        while self._heap and self._heap[0][0] <= self.end:
            known, order, lane = self._heap[0]
            if lane.pass_over(number):
                self._cost += _ASKING_BYTES + lane.log.unscanned_bytes(lane.seq + 1)
                lane.read(max(_LEAST_READ_BYTES, LANES_BYTES // len(self._heap)))
            place = lane.look()
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
        self._heap[0][2].look_again()
