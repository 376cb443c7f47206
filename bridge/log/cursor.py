"""A subscriber's place in one session's log. One for each, and no queue.

``take`` hands out what comes next, in bounded pieces: records from the shared tail as the very
objects they are, older ones from the files, large ones in slices. Whatever is dropped, evicted or
slow, a cursor gives every entry once and in order, or says what is gone by ``bridge/reset``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bridge.log import forms
from bridge.log.entry import data_of, split_frames
from bridge.log.forms import Form
from bridge.log.record import Record
from bridge.log.segments import Place, read_at
from bridge.log.session_log import SessionLog

CHUNK_BYTES: Final = 256 * 1024
_HEAD_BYTES: Final = 4096
_PAGE_BYTES: Final = 8 * 1024 * 1024
_SCAN_RECORDS: Final = 2000
"""Records a filter may skip before the loop gets its turn."""


@dataclass(frozen=True, slots=True)
class Page:
    """Events as JSON texts, and where the next page begins."""

    events: list[bytes]
    next_after: int
    more: bool


@dataclass(slots=True)
class Slice:
    """A large record that is being handed out in pieces."""

    place: Place | None
    body: bytes
    offset: int
    end: int
    last_seq: int
    is_end: bool = False

    def take(self, size: int) -> bytes:
        """The next piece."""
        stop = min(self.offset + size, self.end)
        if self.place is None:
            piece = self.body[self.offset : stop]
        else:
            piece = read_at(self.place.path, self.offset, stop - self.offset)
        self.offset += len(piece)
        return piece

    @property
    def is_done(self) -> bool:
        """Whether all of it has been taken."""
        return self.offset >= self.end


class SessionCursor:
    """``after``: the last position the reader has; ``None`` begins with the first entry kept."""

    def __init__(self, log: SessionLog, *, after: int | None, form: Form) -> None:
        self.log = log
        self.form = form
        self.is_finished = False
        self.position = log.first_seq - 1 if after is None else after
        self._resets: list[tuple[bytes, bytes]] = []
        self._slice: Slice | None = None
        self._told = self.position
        self._check()

    def __repr__(self) -> str:
        return f"<SessionCursor {self.log.session_id} at {self.position}>"

    @property
    def is_at_end(self) -> bool:
        """Whether everything committed has been taken."""
        if self.is_finished:
            return True
        return self._slice is None and not self._resets and self.position >= self.log.last_seq

    def preamble(self) -> bytes:
        """What a stream begins with: how soon to come back, and the position."""
        return b"retry: 1000\nid: %d\n\n" % self.position

    def take(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        """The next piece of the stream, ``b""`` where nothing is left for now."""
        if self.is_finished:
            return b""
        if self._slice is not None:
            return self._take_slice(max_bytes)
        if self._resets:
            frame = self._resets.pop(0)[0]
            return frame if self.form.named else forms.unnamed(frame)
        self._check()
        if self._resets:
            return self.take(max_bytes)
        if self.position >= self.log.last_seq:
            return b""
        return self._take_records(max_bytes)

    def page(self, limit: int, max_bytes: int = _PAGE_BYTES) -> Page:
        """Up to ``limit`` events; a reset is the first of them."""
        self._check()
        events = [data for _, data in self._resets]
        self._resets = []
        size = 0
        for record in self._records():
            for frame in split_frames(record.body):
                taken = forms.take_apart(frame)
                if taken.seq <= self.position:
                    continue
                is_wanted = forms.is_wanted(taken, self.form)
                if is_wanted and (len(events) >= limit or (size and size > max_bytes)):
                    return Page(events, self.position, True)
                if is_wanted:
                    events.append(data_of(frame))
                    size += len(frame)
                self.position = taken.seq
        return Page(events, self.position, self.position < self.log.last_seq)

    # -- where it stands ----------------------------------------------------------------------

    def _check(self) -> None:
        """Say what is gone or not there yet, and go on from where that is possible."""
        log = self.log
        if self.position > log.last_seq:
            self._reset("ahead", log.last_seq)
        elif self.position < log.first_seq - 1:
            self._reset("evicted", log.first_seq - 1)

    def _reset(self, reason: str, position: int) -> None:
        self.position = position
        told = {"firstSeq": self.log.first_seq, "lastSeq": self.log.last_seq}
        self._resets.append(forms.reset(self.log.session_id, time.time(), reason, position, **told))

    # -- reading ------------------------------------------------------------------------------

    def _take_slice(self, max_bytes: int) -> bytes:
        assert self._slice is not None
        piece = self._slice.take(max_bytes)
        if self._slice.is_done or not piece:
            self.position = self._told = self._slice.last_seq
            self.is_finished = self._slice.is_end
            self._slice = None
        return piece

    def _take_records(self, max_bytes: int) -> bytes:
        pieces: list[bytes] = []
        room = max_bytes
        for count, (record, place) in enumerate(self._places()):
            if self._is_large(record, place, max_bytes):
                return self._close(pieces) or self._begin_slice(record, place, max_bytes)
            whole = record or self._read(place)
            if whole is None or (len(whole.body) > room and pieces):
                break
            if piece := self._piece(whole):
                pieces.append(piece)
                room -= len(piece)
            if self.is_finished or room <= 0 or count >= _SCAN_RECORDS:
                break
        return self._close(pieces)

    def _close(self, pieces: list[bytes]) -> bytes:
        """What was taken, and the position where entries were passed over behind it."""
        if self._told < self.position and not self.is_finished:
            pieces.append(b"id: %d\n\n" % self.position)
            self._told = self.position
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _is_large(self, record: Record | None, place: Place | None, max_bytes: int) -> bool:
        """Whether a record goes out in slices; other forms take several entries apart whole."""
        if record is not None:
            count, size = record.count, len(record.body)
        else:
            assert place is not None
            count, size = place.head.count, place.head.body_bytes
        return size > max_bytes and (count == 1 or self.form.is_plain)

    def _read(self, place: Place | None) -> Record | None:
        """The record at a place; a damaged one is said, with all its segment."""
        assert place is not None
        record = self.log.read(place)
        if record is None:
            self._reset("evicted", self.log.first_after(place.path) - 1)
        return record

    def _piece(self, record: Record) -> bytes:
        """A whole record in this form, from the position on; moves the position."""
        if record.first_seq <= self.position or not self.form.is_plain:
            return self._filtered(record)
        self.position = self._told = record.last_seq
        return record.body

    def _filtered(self, record: Record) -> bytes:
        if not any(map(self.form.wants_type, record.types)):
            self.position = record.last_seq
            return b""
        pieces = []
        for frame in split_frames(record.body):
            taken = forms.take_apart(frame)
            if taken.seq <= self.position:
                continue
            self.position = taken.seq
            if forms.is_wanted(taken, self.form):
                pieces.append(forms.render(taken, self.form, has_global_id=False))
                self._told = taken.seq
            if self.form.until is not None and self.form.until(taken.data):
                self.is_finished = True
                break
        return b"".join(pieces)

    def _begin_slice(self, record: Record | None, place: Place | None, max_bytes: int) -> bytes:
        """The first piece of a large record, read from memory or from its file."""
        if record is not None:
            part = Slice(None, record.body, 0, len(record.body), record.last_seq)
            is_whole = record.first_seq > self.position
            head = record.body[:_HEAD_BYTES]
        else:
            assert place is not None
            start = place.offset + place.head.body_offset
            end = place.offset + place.head.size
            part = Slice(place, b"", start, end, place.head.last_seq)
            is_whole = place.head.first_seq > self.position
            head = read_at(place.path, start, _HEAD_BYTES)
        if not is_whole:
            whole = record or self._read(place)
            return b"" if whole is None else self._filtered(whole)
        return self._slice_of(part, head, max_bytes)

    def _slice_of(self, part: Slice, head: bytes, max_bytes: int) -> bytes:
        if self.form.is_plain:
            self._slice = part
            return self._take_slice(max_bytes)
        taken = forms.take_apart(head)
        if not forms.is_wanted(taken, self.form):
            self.position = part.last_seq
            return b""
        part.is_end = self.form.until is not None and self.form.until(taken.data)
        part.offset += len(head)
        self._slice = part
        return forms.render(taken, self.form, has_global_id=False)

    def _records(self) -> Iterator[Record]:
        for record, place in self._places():
            found = record
            if found is None and place is not None:
                found = self.log.read(place)
                if found is None:
                    continue
            assert found is not None
            yield found

    def _places(self) -> Iterator[tuple[Record | None, Place | None]]:
        """Records from the tail as they are, older ones as places in the files."""
        recent = self.log.recent
        if recent and recent[0].first_seq <= self.position + 1:
            fresh: list[Record] = []
            for record in reversed(recent):
                if record.last_seq <= self.position:
                    break
                fresh.append(record)
            for record in reversed(fresh):
                yield record, None
            return
        for place in self.log.places(self.position):
            if place.head.first_seq > self.position + 1:
                self._reset("evicted", place.head.first_seq - 1)
                return
            yield None, place
