"""A subscriber's place over all sessions it sees, counted in global ids.

Live it reads the shared tail, whose records stand in the order of their ids. Behind the tail it
merges the sessions' files by id, up to where the tail begins, and then goes over to it; should it
fall behind the tail again, it goes back to the files. At every moment its position says exactly
what it has handed out, so that nothing is lost or doubled on the way between the two. What has
been removed or is damaged is said by a ``bridge/reset`` of its session.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from bridge.log import forms
from bridge.log.cursor import CHUNK_BYTES, SCAN_BYTES
from bridge.log.entry import data_of, split_frames
from bridge.log.forms import Form, Reset
from bridge.log.merge import Lane, Merge
from bridge.log.pages import LOOK_BYTES, PAGE_BYTES, Page, PageDraft
from bridge.log.record import Record
from bridge.log.segments import Item, unreadable
from bridge.log.session_log import SessionLog
from bridge.log.slices import Slice
from bridge.log.store import Store

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
        self.position = after_id
        self._store = store
        self._sees = sees
        self._sessions_after = sessions_after
        self._resets: deque[Reset] = deque()
        self._slice: Slice | None = None
        self._merge: Merge | None = None
        self._rendered_id = 0
        self._visible: dict[str, bool] = {}
        """What ``sees`` said in this call; it may ask the tables, and be asked of each record."""

    def __repr__(self) -> str:
        return f"<BridgeCursor at {self.position}>"

    @property
    def is_at_end(self) -> bool:
        """Whether everything committed has been taken."""
        is_taken = self._slice is None and not self._resets
        return is_taken and self.position == self._store.last_id

    def preamble(self) -> bytes:
        """What a stream begins with."""
        return b"retry: 1000\nid: %d\n\n" % self.position

    def take(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        """The next piece of the stream: at most ``max_bytes`` and one small record.

        ``b""`` at the end, and where the loop should have its turn before the next call. Raises
        ``internal-error`` where the disk refuses: what was handed out may end within an event.
        """
        self._visible.clear()
        try:
            return self._take(max_bytes)
        except OSError as error:
            raise unreadable(error) from error

    def page(self, limit: int, max_bytes: int = PAGE_BYTES) -> Page:
        """Up to ``limit`` events, after the resets, which do not count. Raises as ``take``.

        An empty one that has not moved wants the loop to have its turn before the next call.
        """
        draft = PageDraft(limit, max_bytes)
        self._visible.clear()
        try:
            while not self.is_at_end and not draft.is_full:
                self._check()
                if not self._resets:
                    self._fill(draft)
                    if self._is_opening:
                        break
                elif draft.has_entries:
                    break
                else:
                    draft.events.append(self._resets.popleft().data)
                    draft.limit += 1
        except OSError as error:
            raise unreadable(error) from error
        return Page(draft.events, self.position, not self.is_at_end)

    def _check(self) -> None:
        """Say that the position is ahead of the end, and go on from there."""
        last_id = self._store.last_id
        if self.position > last_id:
            self.position = last_id
            self._reset(None, "ahead", lastId=last_id)

    # -- handing out --------------------------------------------------------------------------

    def _take(self, max_bytes: int) -> bytes:
        while not self.is_at_end:
            if self._slice is not None:
                piece = self._take_slice(self._slice, max_bytes)
                if piece is not None:
                    return piece
                continue
            self._check()
            if self._resets:
                return self._resets.popleft().rendered(self.form)
            piece = self._take_records(max_bytes)
            if piece or self._is_opening:
                return piece
        return b""

    def _take_records(self, max_bytes: int) -> bytes:
        """Whole records; ``b""`` where something else comes next."""
        pieces: list[bytes] = []
        room, budget, told = max_bytes, SCAN_BYTES, self.position
        for item, log in self._items():
            budget -= self._spent()
            if room <= 0 or budget <= 0:
                break
            budget -= item.body_bytes + LOOK_BYTES
            piece = self._piece(item, log, max_bytes)
            if piece is None or (pieces and len(piece) > room):
                break
            self.position = item.last_id
            if piece:
                pieces.append(piece)
                told = self._rendered_id
                room -= len(piece)
        if told < self.position:
            pieces.append(b"id: %d\n\n" % self.position)
        return b"".join(pieces)

    def _piece(self, item: Item, log: SessionLog | None, max_bytes: int) -> bytes | None:
        """An item in this form, empty where it is not wanted; ``None``: not now, not so."""
        if not self._wants(item, log):
            return b""
        if item.count == 1 and item.body_bytes > max_bytes:
            self._slice = Slice(item)
            return None
        record = self._whole(item, log)
        if record is None:
            return None
        if self.form.is_plain and record.first_id > self.position:
            self._rendered_id = record.last_id
            return self._store.tail.shared(record, forms.with_ids)
        return b"".join(self._rendered(record))

    def _wants(self, item: Item, log: SessionLog | None) -> bool:
        """Whether the reader sees the session of an item and may want its entries.

        A small one in a file is read whatever its types, which are only checked with the rest.
        """
        if isinstance(item, Record):
            return self.form.may_want(item.types) and self._is_visible(item.session_id)
        if log is None or not self._is_visible(log.session_id):
            return False
        return item.body_bytes <= CHUNK_BYTES or self.form.may_want(item.types)

    def _is_visible(self, session_id: str) -> bool:
        known = self._visible.get(session_id)
        if known is None:
            known = self._visible[session_id] = self._sees(session_id)
        return known

    def _whole(self, item: Item, log: SessionLog | None) -> Record | None:
        """The record of an item; ``None`` where it is damaged, which from then on is a gap."""
        if isinstance(item, Record):
            return item
        assert log is not None
        record = log.read(item)
        if record is None:
            self._look_again()
        return record

    def _rendered(self, record: Record) -> Iterator[bytes]:
        """The wanted entries' frames; the last of them is remembered."""
        for number, frame in self._frames(record):
            taken = forms.take_apart(frame)
            if forms.is_wanted(taken, self.form):
                self._rendered_id = number
                yield forms.render(taken, self.form, number)

    def _frames(self, record: Record) -> Iterable[tuple[int, bytes]]:
        """The frames of a record beyond the position, with their ids."""
        if not self.form.may_want(record.types):
            return ()
        skipped = max(0, self.position + 1 - record.first_id)
        return enumerate(split_frames(record.body)[skipped:], record.first_id + skipped)

    def _take_slice(self, part: Slice, max_bytes: int) -> bytes | None:
        """The next piece of a large record; ``None`` where it turns out to be none."""
        if not part.is_begun:
            is_intact = part.check(SCAN_BYTES)
            if is_intact is None:
                return b""
            if is_intact:
                return self._front(part)
            self._look_again()
            return None
        piece = part.take(max_bytes)
        if part.is_done:
            self.position = part.last_id
            self._slice = None
        return piece

    def _front(self, part: Slice) -> bytes:
        """The front of a large record's one frame, or a bare position where it is not wanted."""
        taken = forms.take_apart(part.front())
        if forms.is_wanted(taken, self.form):
            return forms.render(taken, self.form, part.last_id)
        self.position = part.last_id
        self._slice = None
        return b"id: %d\n\n" % self.position

    def _fill(self, draft: PageDraft) -> None:
        """Entries onto a page, up to where it is full or something is gone."""
        for item, log in self._items():
            draft.spend(self._spent())
            if draft.is_full:
                return
            if self._wants(item, log):
                record = self._whole(item, log)
                if record is None or not self._add(record, draft):
                    return
            draft.look_at(item.body_bytes)
            self.position = item.last_id

    def _add(self, record: Record, draft: PageDraft) -> bool:
        """The wanted entries of a record; whether there was room for all."""
        for number, frame in self._frames(record):
            if len(draft.events) >= draft.limit:
                return False
            self.position = number
            if forms.is_wanted(forms.take_apart(frame), self.form):
                draft.add(data_of(frame))
        return True

    # -- what comes next ----------------------------------------------------------------------

    @property
    def _is_opening(self) -> bool:
        return self._merge is not None and self._merge.unopened > 0

    def _spent(self) -> int:
        return 0 if self._merge is None else self._merge.spent()

    def _items(self) -> Iterator[tuple[Item, SessionLog | None]]:
        """What follows the position, which moves on as it is consumed; places with their logs.

        Ends where something is to be said first, and where sessions are still to be looked at.
        """
        store = self._store
        while self.position < store.last_id and not self._resets:
            first = store.tail.first_id
            if first is not None and first <= self.position + 1:
                self._merge = None
                for record in store.tail.after(self.position):
                    yield record, None
                return
            if self._merge is None:
                end = store.last_id if first is None else first - 1
                self._merge = Merge(end, self._sessions_after(self.position))
            self._open_lanes(self._merge)
            if self._is_opening:
                return
            yield from self._merged(self._merge)

    def _merged(self, merge: Merge) -> Iterator[tuple[Item, SessionLog | None]]:
        while (found := merge.next(self.position)) is not None:
            if isinstance(found, Lane):
                told = {"firstSeq": found.log.first_seq, "lastSeq": found.log.last_seq}
                self._reset(found.log.session_id, "evicted", **told)
                return
            yield found, merge.log
        self.position = max(self.position, merge.end)
        self._merge = None

    def _open_lanes(self, merge: Merge) -> None:
        budget = SCAN_BYTES
        while merge.unopened and budget > 0:
            session_id = merge.take_unopened()
            budget -= LOOK_BYTES
            if self._sees(session_id):
                merge.open(self._store.log(session_id), self.position)
                budget -= merge.spent()

    def _look_again(self) -> None:
        """An item turned out damaged: what comes instead is found anew."""
        assert self._merge is not None
        self._slice = None
        self._merge.look_again()

    def _reset(self, session_id: str | None, reason: str, **told: int) -> None:
        self._resets.append(forms.reset(session_id, time.time(), reason, self.position, **told))
