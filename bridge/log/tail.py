"""The latest records of all sessions, in memory and shared by all who read them live.

Bounded in bytes. Records stand in the order of their ids, which is the order of their commits, and
each stands in its session's own run too; what is dropped leaves both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from bridge.log.record import Record

_TRIM_AT: Final = 64
_DROPPED: Final = Record("", 0, 0, 0, 0.0, frozenset(), b"", b"")
_OVERHEAD_BYTES: Final = 512
"""About what a record costs beside its body, so that many tiny ones are bounded too."""


class Run:
    """Records in order: added behind, dropped in front, found by bisection."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._records) - self._start

    @property
    def first(self) -> Record | None:
        """The oldest one."""
        return self._records[self._start] if len(self) else None

    def add(self, record: Record) -> None:
        """Take one in behind the others."""
        self._records.append(record)

    def drop(self) -> None:
        """Let go of the oldest one."""
        self._records[self._start] = _DROPPED
        self._start += 1
        if self._start >= _TRIM_AT and self._start * 2 >= len(self._records):
            del self._records[: self._start]
            self._start = 0

    def clear(self) -> None:
        """Let go of all."""
        self._records, self._start = [], 0

    def after_seq(self, seq: int) -> Iterator[Record]:
        """The records with an entry beyond a position of their session."""
        return self._from(bisect_right(self._records, seq, lo=self._start, key=_last_seq))

    def after_id(self, number: int) -> Iterator[Record]:
        """The records with an entry beyond an id."""
        return self._from(bisect_right(self._records, number, lo=self._start, key=_last_id))

    def _from(self, index: int) -> Iterator[Record]:
        records = self._records
        for at in range(index, len(records)):
            yield records[at]


class Tail:
    """At least the last record, however large, and otherwise ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._all = Run()
        self._recents: deque[Run] = deque()
        self._bytes = 0
        self._shared = (_DROPPED, b"")

    def __len__(self) -> int:
        return len(self._all)

    @property
    def first_id(self) -> int | None:
        """The id of the first entry that is here."""
        first = self._all.first
        return None if first is None else first.first_id

    def add(self, record: Record, recent: Run) -> None:
        """Take a record in, also into its session's own ``recent`` ones."""
        self._all.add(record)
        self._recents.append(recent)
        recent.add(record)
        self._bytes += len(record.body) + _OVERHEAD_BYTES
        while self._bytes > self._max_bytes and len(self._all) > 1:
            self._drop()

    def after(self, number: int) -> Iterator[Record]:
        """The records with an entry beyond the id ``number``; none are missing between them."""
        return self._all.after_id(number)

    def shared(self, record: Record, make: Callable[[Record], bytes]) -> bytes:
        """What ``make`` makes of a record, once for all who want it at about the same time."""
        if self._shared[0] is not record:
            self._shared = (record, make(record))
        return self._shared[1]

    def _drop(self) -> None:
        record, recent = self._all.first, self._recents.popleft()
        assert record is not None
        self._bytes -= len(record.body) + _OVERHEAD_BYTES
        self._all.drop()
        if recent.first is record:
            recent.drop()


def _last_seq(record: Record) -> int:
    return record.last_seq


def _last_id(record: Record) -> int:
    return record.last_id
