"""What is kept for how long: entries by age and size, closed sessions and keys by age.

Entries go by whole segments, a session's transcript pages stay. The total budget is met by
unlinking the oldest segments of all sessions. A closed session goes altogether after the retention
time, and so does the tombstone of a purged one. Thousands of folders are looked at in a worker
thread, and what is to be done is done in small pieces, so that nobody waits for it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio.lowlevel
from anyio import to_thread

from bridge.errors import BridgeError
from bridge.runtime import recovery, rows
from bridge.runtime.keys import KEEP_S
from bridge.runtime.registry import PURGED, Registry
from bridge.runtime.services import Services

logger = logging.getLogger(__name__)

_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class File:
    """One file of a log: ``written_at`` in seconds since the epoch."""

    session_id: str
    written_at: float
    size: int


@dataclass(frozen=True, slots=True)
class Due:
    """What one round has to do: sessions with something to unlink, and the time before which.

    ``before`` is that of the age alone or, where all of it is too much, of the total budget.
    """

    sessions: tuple[str, ...]
    before: float


class Retention:
    """Keeps the state folder within its bounds."""

    def __init__(self, services: Services, registry: Registry) -> None:
        self._services = services
        self._registry = registry
        self._has_looked_for_strays = False

    async def keep(self) -> None:
        """One round. What the disk refuses is logged and tried again the next time."""
        services, now = self._services, self._services.clock()
        storage = services.settings.storage
        before = now - storage.retention_days * _DAY_S
        files = await to_thread.run_sync(list_files, services.store.root)
        due = choose(
            files,
            before=before,
            max_session_bytes=storage.max_session_bytes,
            max_total_bytes=storage.max_total_bytes,
            active=frozenset(self._registry.live),
        )
        for session_id in due.sessions:
            services.store.evict(
                session_id,
                before=due.before,
                max_bytes=storage.max_session_bytes,
                head=partial(self._head, session_id),
            )
            await anyio.lowlevel.checkpoint()
        await self._forget(before)
        if not self._has_looked_for_strays:
            await self._look_for_strays()

    def _head(self, session_id: str) -> bytes:
        """What only the first entries say of a session, should the tables be lost after them."""
        row = self._services.tables.session(session_id)
        return b"" if row is None or row.status == PURGED else rows.head_of(row)

    async def _forget(self, before: float) -> None:
        tables = self._services.tables
        try:
            tables.forget_keys(self._services.clock() - KEEP_S)
            for session_id in tables.closed_before(before):
                self._forget_session(session_id)
                await anyio.lowlevel.checkpoint()
        except rows.UNWRITABLE as error:
            logger.error("old rows stay for now: %s", error)

    async def _look_for_strays(self) -> None:
        """What a killed bridge left that no row leads to, once after each start.

        A purge that was cut short is finished; a log without a row is taken up by what it says.
        """
        services = self._services
        for session_id in await to_thread.run_sync(services.store.sessions):
            await anyio.lowlevel.checkpoint()
            row = services.tables.session(session_id)
            if row is not None and row.status == PURGED:
                services.store.purge(session_id)
            elif row is None and session_id not in self._registry.live:
                self._take_up(session_id)
        self._has_looked_for_strays = True

    def _take_up(self, session_id: str) -> None:
        try:
            recovery.take_up(self._services, self._registry, session_id)
        except BridgeError:
            logger.exception("a log cannot be taken up", extra={"session": session_id})

    def _forget_session(self, session_id: str) -> None:
        session = self._registry.live.get(session_id)
        if session is not None:
            self._registry.unload(session)
        if session_id in self._registry.live:
            return
        self._services.tables.forget_session(session_id)
        self._services.store.purge(session_id)


def list_files(root: Path) -> list[File]:
    """Every file of every log below ``root``. For a worker thread; what vanishes is left out."""
    return [file for folder in _entries(root) for file in _files_of(folder)]


def choose(
    files: Iterable[File],
    *,
    before: float,
    max_session_bytes: int,
    max_total_bytes: int,
    active: frozenset[str] = frozenset(),
) -> Due:
    """Decide what goes: by age, by size of a session, and the oldest of all beyond the total.

    ``active`` sessions keep the file that is being written: it cannot count as gone.
    """
    by_age = sorted(files, key=lambda file: file.written_at)
    sizes: dict[str, int] = {}
    for file in by_age:
        sizes[file.session_id] = sizes.get(file.session_id, 0) + file.size
    newest = {file.session_id: file for file in by_age if file.session_id in active}
    total = sum(sizes.values())
    limit = before
    for file in by_age:
        is_old = file.written_at < before
        if not is_old and total <= max_total_bytes:
            break
        if newest.get(file.session_id) is not file:
            total -= file.size
            limit = limit if is_old else max(limit, _just_after(file.written_at))
    due = {file.session_id for file in by_age if file.written_at < limit}
    due |= {session_id for session_id, size in sizes.items() if size > max_session_bytes}
    return Due(tuple(sorted(due)), limit)


def _just_after(time: float) -> float:
    """The log unlinks what was written *before* a time; clocks of files go by milliseconds."""
    return time + 0.001


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from (each for each in found if each.is_dir(follow_symlinks=False))
    except OSError as error:
        logger.error("a folder cannot be listed: %s", error)


def _files_of(folder: os.DirEntry[str]) -> Iterator[File]:
    try:
        with os.scandir(folder.path) as found:
            for each in found:
                if each.name.endswith(".seg"):
                    status = each.stat(follow_symlinks=False)
                    yield File(folder.name, status.st_mtime, status.st_size)
    except OSError:
        # Purged meanwhile.
        return
