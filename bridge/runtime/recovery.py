"""What a start does before anything else: end what was left running, take up what was stored.

Processes of a killed bridge are ended first. Then every session whose log may be ahead of its row
is folded again and brought to rest. Sessions whose row is known to be whole are not touched, so
that a start with thousands of old ones is quick.

Rows know which logs may be ahead, and that outlives a killed bridge. It does not outlive a power
cut, nor damaged tables: then all logs are looked at. One session that cannot be recovered is said
and passed over; it never keeps the others from starting, its row goes on to say that it is not at
rest, and it is tried again: by whoever wants it, and once a minute.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Final

from bridge.errors import BridgeError, StorageError
from bridge.log.session_log import SessionLog
from bridge.runtime import linux, refold, rest, rows
from bridge.runtime.registry import PURGED, Registry
from bridge.runtime.services import Services
from bridge.runtime.sweep import ProcessRow, sweep

logger = logging.getLogger(__name__)

RUNNING: Final = "running"
"""The file that says in which boot of the machine a bridge runs, or was when it was killed."""
DOUBTFUL: Final = "doubtful"
"""What it says instead while rows may not be what the logs are."""
_AT_ONCE: Final = 100
"""How many sessions share a transaction: each of its own would cost as much as what it holds."""
_UNKNOWN_IDS: Final = 2**32
"""More than one session can have given out beyond what the others know."""


async def sweep_processes(services: Services) -> None:
    """End what an earlier bridge of this state folder left running."""
    left = services.tables.processes()
    ended = await sweep(
        services.state_tag,
        [ProcessRow(row.pid, row.start_ticks, row.boot_id, row.tag) for row in left],
    )
    for row in left:
        # On a full disk the row stays; it names nothing that runs any more.
        with contextlib.suppress(*rows.UNWRITABLE):
            services.tables.drop_process(row.pid, row.start_ticks)
    if ended:
        logger.warning(
            "ended processes of an earlier run", extra={"pids": [each.pid for each in ended]}
        )


def recover(services: Services, registry: Registry) -> None:
    """Bring every open session to rest; afterwards ids go on after the last one used."""
    tables, store = services.tables, services.store
    marker = services.settings.state_dir / RUNNING
    known_id = tables.max_last_id()
    is_empty = not known_id and bool(store.sessions())
    if is_doubtful := tables.damaged is not None or is_empty or _was_cut_off(marker):
        # Until all are looked at: a start that is killed meanwhile leaves the doubt to the next.
        _mark(marker, DOUBTFUL)
    to_do = _behind(services) if is_doubtful else _opened(services, tables.open_sessions())
    last_id = max([known_id, *(log.last_id for log in to_do.values() if log is not None)])
    # What an unreadable log has given out is not known, and must not be given out again.
    store.start_ids(last_id + (_UNKNOWN_IDS if None in to_do.values() else 0))
    names = sorted(to_do)
    for start in range(0, len(names), _AT_ONCE):
        batch = names[start : start + _AT_ONCE]
        _take_up_all(services, registry, batch)
        for session_id in batch:
            del to_do[session_id]
    _mark(marker, linux.boot_id())


def _take_up_all(services: Services, registry: Registry, session_ids: list[str]) -> None:
    """Bring sessions to rest in one transaction, or each in its own where that one fails.

    Their rows are then as they were, and what was said in their logs is only found said.
    """
    try:
        with services.tables.transaction():
            for session_id in session_ids:
                _try(services, registry, session_id)
    except Exception:
        logger.exception("sessions are recovered one by one")
        for session_id in session_ids:
            registry.live.pop(session_id, None)
            services.behind.discard(session_id)
            _try(services, registry, session_id)


def _try(services: Services, registry: Registry, session_id: str) -> None:
    """Bring a session to rest; where that fails, say so and let its row say so."""
    try:
        take_up(services, registry, session_id)
    except Exception:
        logger.exception("a session cannot be recovered", extra={"session": session_id})
        # On a full disk it is found by its files.
        with contextlib.suppress(*rows.UNWRITABLE):
            services.tables.mark_open(session_id)


def take_up(services: Services, registry: Registry, session_id: str) -> None:
    """Bring a session to rest by its row, or where there is none by its log alone.

    Raises ``StorageError`` where its log cannot be read now.
    """
    row = services.tables.session(session_id)
    if row is None:
        session = refold.rebuild(services, session_id)
        if session is None:
            logger.error(
                "a log does not say whose session it is: nobody can see it, and its files go "
                "when they are older than storage.retention_days",
                extra={"session": session_id},
            )
            return
        rest.bring_to_rest(session)
    else:
        taken_up = rest.take_up(services, row)
        if taken_up is None:
            return
        session = taken_up
    registry.add(session)
    registry.unload(session)


def retry(services: Services, registry: Registry) -> None:
    """Another try for sessions that could not be brought to rest at the start."""
    for session_id in services.tables.open_sessions():
        if session_id in registry.live:
            continue
        try:
            registry.unload(registry.load(session_id))
        except BridgeError as error:
            logger.error(
                "a session is still not recovered: %s", error, extra={"session": session_id}
            )


def ended_well(services: Services) -> None:
    """The bridge has stopped in order: the next start may trust the rows."""
    with contextlib.suppress(OSError):
        (services.settings.state_dir / RUNNING).unlink(missing_ok=True)


def _was_cut_off(marker: Path) -> bool:
    """Whether the machine went down under a running bridge: rows may be older than the logs."""
    try:
        return marker.read_text("ascii") != linux.boot_id()
    except OSError:
        return False


def _mark(marker: Path, text: str) -> None:
    try:
        marker.write_text(text, "ascii")
    except OSError as error:
        logger.error("a power cut would not be noticed: %s", error)


def _opened(services: Services, session_ids: list[str]) -> dict[str, SessionLog | None]:
    """The logs of sessions, which stay open for what is done with them next."""
    return {session_id: _log(services, session_id) for session_id in session_ids}


def _log(services: Services, session_id: str) -> SessionLog | None:
    """The log of a session; ``None`` where it cannot be read."""
    try:
        log = services.store.log(session_id)
    except StorageError:
        logger.exception("a log cannot be opened", extra={"session": session_id})
        return None
    return None if log.fault is not None else log


def _behind(services: Services) -> dict[str, SessionLog | None]:
    """Every session whose log is ahead of its row, behind it, or has none, with that log."""
    found = _opened(services, services.tables.open_sessions())
    for session_id in services.store.sessions():
        if session_id in found:
            continue
        log, row = _log(services, session_id), services.tables.session(session_id)
        last_seq = None if log is None else log.last_seq
        if row is None or (row.status != PURGED and row.projected_seq != last_seq):
            found[session_id] = log
    return found
