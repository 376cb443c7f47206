"""The latest records of all sessions, in memory and shared by all who read them live.

Bounded in bytes. Records stand in the order of their ids, which is the order of their commits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from bridge.log.record import Record

_TRIM_AT = 1024
_DROPPED = Record("", 0, 0, 0, 0.0, frozenset(), b"", b"")


class Tail:
    """At least the last record, however large, and otherwise ``max_bytes`` of bodies."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._records: list[Record] = []
        self._recents: list[deque[Record]] = []
        self._start = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records) - self._start

    @property
    def first_id(self) -> int | None:
        """The id of the first entry that is here."""
        return self._records[self._start].first_id if len(self) else None

    def add(self, record: Record, recent: deque[Record]) -> None:
        """Take a record in, also into its session's own ``recent`` ones."""
        self._records.append(record)
        self._recents.append(recent)
        recent.append(record)
        self._bytes += len(record.body)
        while self._bytes > self._max_bytes and len(self) > 1:
            self._drop()

    def after(self, number: int) -> int:
        """The index of the first record with an entry beyond the id ``number``."""
        found = bisect_right(
            self._records, number, lo=self._start, key=lambda record: record.last_id
        )
        return found - self._start

    def at(self, index: int) -> Record:
        """The record at an index of :meth:`after`."""
        return self._records[self._start + index]

    def _drop(self) -> None:
        record, recent = self._records[self._start], self._recents[self._start]
        self._bytes -= len(record.body)
        self._records[self._start] = _DROPPED
        if recent and recent[0] is record:
            recent.popleft()
        self._start += 1
        if self._start >= _TRIM_AT:
            del self._records[: self._start]
            del self._recents[: self._start]
            self._start = 0
