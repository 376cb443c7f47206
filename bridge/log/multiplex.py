"""A subscriber's place over all sessions it sees, counted in global ids.

Live it reads the shared tail, whose records stand in the order of their ids. Behind the tail it
merges the sessions' files by id, up to where the tail begins, and then goes over to it; should it
fall behind the tail again, it goes back to the files. At every moment its position says exactly
what it has handed out, so that nothing is lost or doubled on the way between the two.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable

from bridge.log import forms
from bridge.log.cursor import CHUNK_BYTES, Page
from bridge.log.entry import data_of, split_frames
from bridge.log.forms import Form
from bridge.log.record import Record
from bridge.log.store import Store

_RECORDS_AT_ONCE = 500

Sees = Callable[[str], bool]
SessionsAfter = Callable[[int], Iterable[str]]


class BridgeCursor:
    """``after_id``: the last id the reader has. ``sees`` and ``sessions_after`` say what it may."""

    def __init__(
        self,
        store: Store,
        *,
        after_id: int,
        sees: Sees,
        sessions_after: SessionsAfter,
        form: Form,
    ) -> None:
        self.form = form
        self.is_finished = False
        self.position = after_id
        self._store = store
        self._sees = sees
        self._sessions_after = sessions_after
        self._resets: list[tuple[bytes, bytes]] = []
        self._rest: memoryview | None = None
        self._rest_id = 0
        self._merge: list[tuple[int, str]] | None = None
        self._merge_end = 0
        self._begin()

    def __repr__(self) -> str:
        return f"<BridgeCursor at {self.position}>"

    @property
    def is_at_end(self) -> bool:
        """Whether everything committed has been taken."""
        is_taken = self._rest is None and not self._resets
        return is_taken and self.position >= self._store.last_id

    def preamble(self) -> bytes:
        """What a stream begins with."""
        return b"retry: 1000\nid: %d\n\n" % self.position

    def take(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        """The next piece of the stream, ``b""`` where nothing is left for now."""
        if self._rest is not None:
            return self._take_rest(max_bytes)
        if self._resets:
            frame = self._resets.pop(0)[0]
            return frame if self.form.named else forms.unnamed(frame)
        return self._take_records(max_bytes)

    def _take_records(self, max_bytes: int) -> bytes:
        pieces: list[bytes] = []
        room, told = max_bytes, self.position
        for _ in range(_RECORDS_AT_ONCE):
            record = self._next()
            if record is None:
                break
            piece = self._rendered(record)
            if len(piece) > room:
                if not pieces:
                    self._rest, self._rest_id = memoryview(piece), record.last_id
                    return self._take_rest(max_bytes)
                break
            self.position = record.last_id
            if piece:
                pieces.append(piece)
                told = self.position
                room -= len(piece)
        if told < self.position:
            pieces.append(b"id: %d\n\n" % self.position)
        return b"".join(pieces)

    def _rendered(self, record: Record) -> bytes:
        return b"".join(
            forms.render(frame, self.form, has_global_id=True) for frame in self._wanted(record)
        )

    def page(self, limit: int) -> Page:
        """Up to ``limit`` events; resets come first."""
        events = [data for _, data in self._resets]
        self._resets = []
        while (record := self._next()) is not None:
            for frame in self._wanted(record):
                if len(events) >= limit:
                    return Page(events, self.position, True)
                events.append(data_of(b"\n" + frame.data))
                self.position = frame.number
            self.position = record.last_id
        return Page(events, self.position, self.position < self._store.last_id)

    # -- what comes next ----------------------------------------------------------------------

    def _begin(self) -> None:
        """What is ahead of the end or was removed is said first."""
        store, now = self._store, time.time()
        if self.position > store.last_id:
            self.position = store.last_id
            self._resets.append(
                forms.reset(None, now, "ahead", self.position, lastId=store.last_id)
            )
            return
        if self.position == store.last_id:
            return
        for session_id in self._sessions_after(self.position):
            log = store.log(session_id)
            if log.evicted_id > self.position and self._sees(session_id):
                told = {"firstSeq": log.first_seq, "lastSeq": log.last_seq}
                self._resets.append(forms.reset(session_id, now, "evicted", self.position, **told))

    def _wanted(self, record: Record) -> list[forms.Frame]:
        """The frames of a record beyond the position that this reader sees and wants."""
        if not any(map(self.form.wants_type, record.types)) or not self._sees(record.session_id):
            return []
        skipped = max(0, self.position + 1 - record.first_id)
        frames = map(forms.take_apart, split_frames(record.body)[skipped:])
        return [frame for frame in frames if forms.is_wanted(frame, self.form)]

    def _take_rest(self, max_bytes: int) -> bytes:
        assert self._rest is not None
        piece = bytes(self._rest[:max_bytes])
        self._rest = self._rest[max_bytes:]
        if not self._rest:
            self._rest = None
            self.position = self._rest_id
        return piece

    def _next(self) -> Record | None:
        """The first record with an entry beyond the position, of whichever session."""
        store = self._store
        if self.position >= store.last_id:
            return None
        first = store.tail.first_id
        if first is not None and first <= self.position + 1:
            self._merge = None
            index = store.tail.after(self.position)
            return store.tail.at(index) if index < len(store.tail) else None
        return self._next_of_files(store.last_id if first is None else first - 1)

    def _next_of_files(self, end: int) -> Record | None:
        """The next record of the merge, or of the tail once the merge has come to its end."""
        if self._merge is None:
            self._merge_end = end
            self._merge = []
            for session_id in self._sessions_after(self.position):
                self._push(session_id)
        while self._merge and self._merge[0][0] <= self._merge_end:
            number, session_id = heapq.heappop(self._merge)
            record = self._read(session_id)
            if record is None:
                continue
            first = max(record.first_id, self.position + 1)
            heapq.heappush(self._merge, (first, session_id))
            if first == number:
                return record
        self._merge = None
        self.position = max(self.position, self._merge_end)
        return self._next()

    def _push(self, session_id: str) -> None:
        """``(first id beyond the position, session)`` stands in the heap for each session."""
        assert self._merge is not None
        record = self._read(session_id)
        if record is not None:
            first = max(record.first_id, self.position + 1)
            heapq.heappush(self._merge, (first, session_id))

    def _read(self, session_id: str) -> Record | None:
        log = self._store.log(session_id)
        seq = log.seq_after_id(self.position)
        if seq is None:
            return None
        return next(log.records(seq), None)
