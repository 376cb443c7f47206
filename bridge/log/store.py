"""The store: where entries are committed, and from where everything is read.

Owns the session logs, the global ids, the shared tail and the reserve for a full disk. Rules:

* ``append`` is synchronous and its one write is the commit point; what it could not write whole
  is cut off again, and nothing of it was ever shown;
* ids go up over all sessions, positions go up by one in each;
* subscribers read from the shared tail where they can and from the files where they must;
* a descriptor is kept only for sessions that are being written, and only for so many of them;
* while the disk is full only the ends of what runs are taken, out of the reserve.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn
from weakref import WeakValueDictionary

import anyio
from anyio import to_thread

from bridge.clock import rfc3339
from bridge.errors import StorageError
from bridge.log.entry import Draft, encode_frames, spelled
from bridge.log.files import Files
from bridge.log.record import Record, pack
from bridge.log.reserve import Reserve
from bridge.log.segments import PASSING, Segment, evictable, find_segments, unreadable
from bridge.log.session_log import SessionLog
from bridge.log.tail import Tail

logger = logging.getLogger(__name__)

LARGE_BYTES: Final = 128 * 1024
"""An entry of this size gets a record of its own, so that it can be sent in slices."""
RECORD_BYTES: Final = 256 * 1024
"""Smaller ones share records of about this size, so that a reader can stop between them."""
MAX_OPEN: Final = 128
SYNC_EVERY_S: Final = 0.5

_FRAME_BYTES: Final = 256
"""About what an entry takes beside its params and its type."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""What concerns the whole disk, and not one file of it."""


class Store:
    """All session logs below one folder."""

    def __init__(
        self,
        root: Path,
        *,
        segment_bytes: int,
        reserve_bytes: int = 0,
        tail_bytes: int = 8 * 1024 * 1024,
        clock: Callable[[], float],
        files: Files | None = None,
    ) -> None:
        """Raises ``OSError`` where the folder cannot be made."""
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root = root
        self._place = os.stat(root)
        self.last_id = 0
        self.is_full = False
        self._changed: anyio.Event | None = None
        self.tail = Tail(tail_bytes)
        self._files = files or Files()
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._reserve = Reserve(root / "reserve", reserve_bytes, self._files)
        self._logs: WeakValueDictionary[str, SessionLog] = WeakValueDictionary()
        self._open: OrderedDict[str, SessionLog] = OrderedDict()
        self._dirty: dict[str, SessionLog] = {}
        self._again: set[Path] = set()
        self._stamped = (0.0, rfc3339(0.0))

    def __repr__(self) -> str:
        return f"<Store last_id={self.last_id} open={len(self._open)} full={self.is_full}>"

    @property
    def changed(self) -> anyio.Event:
        """Set at the next append to any session."""
        if self._changed is None:
            self._changed = anyio.Event()
        return self._changed

    def start_ids(self, last_id: int) -> None:
        """Ids go on after ``last_id``, the last one that was ever used."""
        self.last_id = max(self.last_id, last_id)

    def log(self, session_id: str) -> SessionLog:
        """The log of a session; an empty one where there is none yet.

        Raises ``internal-error`` where its folder cannot be read: it may only look empty.
        """
        log = self._logs.get(session_id)
        if log is None or log.fault is not None:
            try:
                log = SessionLog(session_id, self.root / session_id, self._files)
            except OSError as error:
                raise unreadable(error) from error
            self._logs[session_id] = log
        return log

    def first_seq(self, session_id: str, last_seq: int) -> int:
        """The position of the first entry kept of a session whose last one is ``last_seq``.

        Told by the names of its files: lists show many sessions, of which none is to be opened.
        One whose folder cannot be read has none. Raises as :meth:`log` for want of descriptors.
        """
        log = self._logs.get(session_id)
        if log is not None:
            return log.first_seq
        found: list[Segment] = []
        try:
            found = find_segments(self.root / session_id)
        except OSError as error:
            if error.errno in PASSING:
                raise unreadable(error) from error
        return found[0].first_seq if found else last_seq + 1

    def append(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        *,
        meta: bytes = b"",
        is_essential: bool = False,
    ) -> Record:
        """Commit at least one entry; returns the last record they went into.

        Raises ``storage-full`` and then has written nothing. ``is_essential``: the end of what
        runs may use the reserve.
        """
        if not drafts:
            raise ValueError("an append needs an entry")
        if self.is_full and not is_essential:
            raise StorageError(
                "storage-full", "The log cannot be written: the disk is full or gone."
            )
        log = self._writable(session_id)
        records = self._records(log, drafts, meta)
        pieces = [piece for record in records for piece in pack(record)]
        self._write(log, records, pieces, is_essential)
        self.last_id = records[-1].last_id
        self._dirty[session_id] = log
        for record in records:
            self.tail.add(record, log.recent)
        log.wake()
        if self._changed is not None:
            self._changed.set()
            self._changed = None
        return records[-1]

    def recover(self) -> bool:
        """Whether the disk takes what is new: after a full one, once there is room for the reserve.

        Never where the folder has been taken away: what is written into files without a name is
        gone with the process.
        """
        if not self._is_in_place():
            if not self.is_full:
                logger.critical("the folder %s is gone; nothing new is taken", self.root)
            self.is_full = True
        elif self.is_full and self._reserve.restore() and self._reserve.has_room():
            self.is_full = False
        return not self.is_full

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.root), self._place)
        except OSError:
            return False

    def sessions(self) -> list[str]:
        """The sessions that have a folder."""
        with os.scandir(self.root) as found:
            return [each.name for each in found if each.is_dir(follow_symlinks=False)]

    def evict(
        self,
        session_id: str,
        *,
        before: float | None,
        max_bytes: int | None,
        head: Callable[[], bytes] = bytes,
    ) -> bool:
        """Unlink the oldest segments: last written before a time, or beyond a size in bytes.

        The segment that is being written stays. Returns whether anything went; a log in which
        nothing is that old is not even opened. ``head`` is asked before anything goes, and kept
        beside the log: what the entries that go have said and no later one may say again.
        """
        try:
            if session_id not in self._logs:
                found = find_segments(self.root / session_id)
                if not evictable(found, before=before, max_bytes=max_bytes):
                    return False
            return self.log(session_id).evict(before=before, max_bytes=max_bytes, head=head)
        except (OSError, StorageError):
            logger.exception("a log cannot be listed", extra={"session": session_id})
            return False

    def purge(self, session_id: str) -> None:
        """Remove a session's log altogether. Whoever reads it gets what is in memory, and ends."""
        log = self._logs.pop(session_id, None)
        self._open.pop(session_id, None)
        self._dirty.pop(session_id, None)
        if log is not None:
            log.forget()
            log.close()
        shutil.rmtree(self.root / session_id, ignore_errors=True)

    def release(self, session_id: str) -> None:
        """Nothing will be written for a while: give the descriptor back."""
        log = self._open.pop(session_id, None)
        if log is not None:
            log.release()

    def close(self) -> None:
        """Sync and close everything."""
        for session_id in list(self._open):
            self.release(session_id)
        self._again = self._sync(self._take_unsynced())

    async def sync_forever(self) -> NoReturn:
        """Put to disk what was written, within a second, off the loop."""
        while True:
            await anyio.sleep(SYNC_EVERY_S)
            if self._dirty or self._again:
                with anyio.CancelScope(shield=True):
                    self._again = await to_thread.run_sync(self._sync, self._take_unsynced())

    def _take_unsynced(self) -> set[Path]:
        dirty, self._dirty = self._dirty, {}
        return self._again.union(*(log.take_unsynced() for log in dirty.values()))

    def _sync(self, paths: set[Path]) -> set[Path]:
        """Sync files and folders, by path, so that nothing is kept open for it.

        Returns those that could not even be opened, for another time; what was purged is done.
        """
        again = set()
        for path in paths:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            except OSError:
                again.add(path)
                continue
            try:
                self._files.sync(fd)
            except OSError:
                logger.exception("a log could not be put to disk")
            finally:
                os.close(fd)
        return again

    def _writable(self, session_id: str) -> SessionLog:
        log = self._open.get(session_id)
        if log is None:
            log = self.log(session_id)
            while len(self._open) >= MAX_OPEN:
                self.release(next(iter(self._open)))
            self._open[session_id] = log
        else:
            self._open.move_to_end(session_id)
        return log

    def _records(self, log: SessionLog, drafts: Sequence[Draft], meta: bytes) -> list[Record]:
        now, time = self._stamp()
        records: list[Record] = []
        seq, number = log.last_seq + 1, self.last_id + 1
        for group in _groups(drafts):
            body = encode_frames(
                group,
                session_id=log.session_id,
                time=time,
                first_seq=seq,
                first_id=number,
            )
            types = frozenset(map(spelled, {draft.type for draft in group}))
            count = len(group)
            records.append(Record(log.session_id, seq, number, count, now, types, meta, body))
            meta = b""
            seq += count
            number += count
        return records

    def _stamp(self) -> tuple[float, str]:
        """Now, and how it is spelled; within a millisecond the same, since spelling takes long."""
        now = self._clock()
        if int(now * 1000) != int(self._stamped[0] * 1000):
            self._stamped = (now, rfc3339(now))
        return self._stamped

    def _write(
        self, log: SessionLog, records: list[Record], pieces: list[bytes], is_essential: bool
    ) -> None:
        for is_last_try in (False, True):
            try:
                log.write(records, pieces, self._segment_bytes)
            except OSError as error:
                is_full = error.errno in _FULL
                self.is_full |= is_full
                if is_last_try or not (is_full and is_essential and self._reserve.release()):
                    raise StorageError(
                        "storage-full",
                        f"The log cannot be written: {os.strerror(error.errno or 0)}.",
                    ) from error
            else:
                return


def _groups(drafts: Sequence[Draft]) -> list[Sequence[Draft]]:
    """One record's entries each: large ones alone, the others together as far as they fit."""
    sizes = [len(draft.params) + len(draft.type) for draft in drafts]
    if sum(sizes) + len(sizes) * _FRAME_BYTES < LARGE_BYTES:
        return [drafts]
    groups: list[list[Draft]] = [[]]
    room = RECORD_BYTES
    for draft, size in zip(drafts, sizes, strict=True):
        needed = RECORD_BYTES if size >= LARGE_BYTES else size + _FRAME_BYTES
        if needed > room:
            groups.append([])
            room = RECORD_BYTES
        groups[-1].append(draft)
        room -= needed
    return [group for group in groups if group]
