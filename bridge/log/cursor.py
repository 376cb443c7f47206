"""A subscriber's place in one session's log. One for each, and no queue.

``take`` hands out what comes next, in bounded pieces: records from the shared tail as the very
objects they are, older ones from the files, large ones in slices. Whatever is dropped, evicted,
damaged or slow, a cursor gives every entry once and in order, or says what is gone by
``bridge/reset``. Neither a filter that wants nothing nor a large record costs more than a bounded
stretch of the log per call.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Final

from bridge.log import forms
from bridge.log.entry import data_of, split_frames
from bridge.log.forms import Form, Reset
from bridge.log.pages import LOOK_BYTES, PAGE_BYTES, Page, PageDraft
from bridge.log.record import Record
from bridge.log.segments import Item, unreadable
from bridge.log.session_log import SessionLog
from bridge.log.slices import Slice

CHUNK_BYTES: Final = 256 * 1024
SCAN_BYTES: Final = 1024 * 1024
"""What is looked at before the loop gets its turn."""
READ_BEYOND_BYTES: Final = 8192
"""What a record may take beside its frames, so that one read brings a chunk of them."""


class SessionCursor:
    """``after``: the last position the reader has; ``None`` begins with the first entry kept."""

    def __init__(self, log: SessionLog, *, after: int | None, form: Form) -> None:
        self.log = log
        self.form = form
        self.is_finished = False
        self.position = log.first_seq - 1 if after is None else after
        self._resets: deque[Reset] = deque()
        self._slice: Slice | None = None
        self._told = self._before_reset = self.position

    def __repr__(self) -> str:
        return f"<SessionCursor {self.log.session_id} at {self.position}>"

    @property
    def is_at_end(self) -> bool:
        """Whether everything committed has been taken."""
        if self.is_finished:
            return True
        return self._slice is None and not self._resets and self.position == self.log.last_seq

    def preamble(self) -> bytes:
        """What a stream begins with: how soon to come back, and the position.

        What is gone behind that position is said after it, and then again to whoever lost that.
        """
        return b"retry: 1000\nid: %d\n\n" % self.position

    def take(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        """The next piece of the stream: at most ``max_bytes`` and one small record.

        ``b""`` at the end, and where the loop should have its turn before the next call. Raises
        ``internal-error`` where the disk refuses: what was handed out may end within an event.
        """
        try:
            return self._take(max_bytes)
        except OSError as error:
            raise unreadable(error) from error

    def page(self, limit: int, max_bytes: int = PAGE_BYTES) -> Page:
        """Up to ``limit`` events; a reset is the first of its page. Raises as ``take``."""
        draft = PageDraft(limit, max_bytes)
        try:
            while not self.is_at_end and not draft.is_full:
                self._check()
                if not self._resets:
                    self._fill(draft)
                elif draft.events:
                    return Page(draft.events, self._before_reset, True)
                else:
                    draft.events.append(self._resets.popleft().data)
        except OSError as error:
            raise unreadable(error) from error
        return Page(draft.events, self.position, not self.is_at_end)

    # -- where it stands ----------------------------------------------------------------------

    def _check(self) -> None:
        """Say what is gone or not there yet, and go on from where that is possible."""
        log = self.log
        if self.position > log.last_seq:
            self._reset("ahead", log.last_seq)
        elif self.position < log.first_seq - 1:
            self._reset("evicted", log.first_seq - 1)

    def _reset(self, reason: str, position: int) -> None:
        self._before_reset = self.position
        self.position = self._told = position
        told = {"firstSeq": self.log.first_seq, "lastSeq": self.log.last_seq}
        self._resets.append(forms.reset(self.log.session_id, time.time(), reason, position, **told))

    def _is_gap(self, item: Item) -> bool:
        """Whether entries before an item are gone; says so."""
        if item.first_seq <= self.position + 1:
            return False
        self._reset("evicted", item.first_seq - 1)
        return True

    def _lose_rest(self) -> None:
        """The files have no more: what they should have had is gone."""
        first = self.log.recent.first
        end = self.log.last_seq if first is None else first.first_seq - 1
        if self.position < end:
            self._reset("evicted", end)

    # -- reading ------------------------------------------------------------------------------

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
            if piece := self._take_records(max_bytes):
                return piece
        return b""

    def _items(self, max_bytes: int) -> Iterable[Item]:
        """Records from the tail as they are, older ones as places in the files."""
        recent = self.log.recent
        if recent.first is not None and recent.first.first_seq <= self.position + 1:
            return recent.after_seq(self.position)
        return self.log.places(self.position, read_bytes=max_bytes + READ_BEYOND_BYTES)

    def _take_records(self, max_bytes: int) -> bytes:
        """Whole records; ``b""`` where something else comes next."""
        pieces: list[bytes] = []
        room, budget = max_bytes, SCAN_BYTES
        for item in self._items(max_bytes):
            if room <= 0 or budget <= 0 or self._stops_at(item, max_bytes, is_first=not pieces):
                break
            budget -= item.body_bytes + LOOK_BYTES
            if self._passes_over(item, max_bytes):
                continue
            record = self._whole(item)
            if record is None or (pieces and len(record.body) > room):
                break
            if piece := self._piece(record):
                pieces.append(piece)
                room -= len(piece)
        else:
            return self._close(pieces, is_exhausted=True)
        return self._close(pieces)

    def _stops_at(self, item: Item, max_bytes: int, *, is_first: bool) -> bool:
        """Whether an item is not to be taken with what came before it."""
        if self.is_finished or self._is_gap(item):
            return True
        is_large = item.body_bytes > max_bytes and (
            item.count == 1 or (self.form.is_plain and item.first_seq == self.position + 1)
        )
        if is_large and is_first and self.form.may_want(item.types):
            self._slice = Slice(item)
        return is_large and self.form.may_want(item.types)

    def _passes_over(self, item: Item, max_bytes: int) -> bool:
        """Whether a large item is unwanted by what stands at its beginning: it is not read."""
        if item.body_bytes <= max_bytes or self.form.may_want(item.types):
            return False
        self.position = item.last_seq
        return True

    def _close(self, pieces: list[bytes], *, is_exhausted: bool = False) -> bytes:
        """What was taken, and the position where entries were passed over behind it."""
        if self._told < self.position and not self.is_finished:
            pieces.append(b"id: %d\n\n" % self.position)
            self._told = self.position
        if is_exhausted and not self.is_finished:
            self._lose_rest()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _whole(self, item: Item) -> Record | None:
        """The record of an item; ``None`` where it is damaged, which from then on is a gap."""
        return item if isinstance(item, Record) else self.log.read(item)

    def _piece(self, record: Record) -> bytes:
        """A whole record in this form, from the position on; moves the position."""
        if record.first_seq <= self.position or not self.form.is_plain:
            return self._filtered(record)
        self.position = self._told = record.last_seq
        return record.body

    def _filtered(self, record: Record) -> bytes:
        if not self.form.may_want(record.types):
            self.position = record.last_seq
            return b""
        pieces = []
        for frame in split_frames(record.body)[self.position + 1 - record.first_seq :]:
            taken = forms.take_apart(frame)
            self.position += 1
            if forms.is_wanted(taken, self.form):
                pieces.append(forms.render(taken, self.form))
                self._told = self.position
            if self.form.until is not None and self.form.until(taken.data):
                self.is_finished = True
                break
        return b"".join(pieces)

    def _take_slice(self, part: Slice, max_bytes: int) -> bytes | None:
        """The next piece of a large record; ``None`` where it turns out to be none."""
        if not part.is_begun:
            is_intact = part.check(SCAN_BYTES)
            if is_intact is None:
                return b""
            if not is_intact:
                self._slice = None
                return None
            if not self.form.is_plain:
                return self._front(part)
        piece = part.take(max_bytes)
        if part.is_done:
            self.position = self._told = part.last_seq
            self.is_finished = part.is_end
            self._slice = None
        return piece

    def _front(self, part: Slice) -> bytes:
        """The front of a large record's one frame, or a bare position where it is not wanted."""
        taken = forms.take_apart(part.front())
        if not forms.is_wanted(taken, self.form):
            self.position = part.last_seq
            self._slice = None
            return self._close([])
        part.is_end = self.form.until is not None and self.form.until(taken.data)
        return forms.render(taken, self.form)

    def _fill(self, draft: PageDraft) -> None:
        """Entries onto a page, up to where it is full or something is gone."""
        for item in self._items(CHUNK_BYTES):
            if draft.is_full or self._is_gap(item):
                return
            if self._passes_over(item, CHUNK_BYTES):
                draft.look_at(0)
                continue
            record = self._whole(item)
            if record is None:
                return
            draft.look_at(item.body_bytes)
            self._add(record, draft)
        if not draft.is_full:
            self._lose_rest()

    def _add(self, record: Record, draft: PageDraft) -> None:
        if not self.form.may_want(record.types):
            self.position = record.last_seq
            return
        for frame in split_frames(record.body)[max(0, self.position + 1 - record.first_seq) :]:
            if len(draft.events) >= draft.limit:
                return
            self.position += 1
            if forms.is_wanted(forms.take_apart(frame), self.form):
                draft.add(data_of(frame))
