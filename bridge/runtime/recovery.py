"""What a start does before anything else: end what was left running, take up what was stored.

Processes of a killed bridge are ended first. Then every session whose log may be ahead of its row
is folded again; what was running or queued has failed (``bridge-restarted``), its requests are
withdrawn, its tools closed, and the session is hibernated. Sessions whose row is known to be whole
are not touched, so that a start with thousands of old ones is quick.

Rows know which logs may be ahead, and that outlives a killed bridge. It does not outlive a power
cut, nor damaged tables: then all logs are looked at. One session that cannot be recovered is said
and passed over; it never keeps the others from starting.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Final

from bridge.errors import StorageError
from bridge.log.rows import SessionRow
from bridge.runtime import linux, refold, rows, turn_flow
from bridge.runtime.registry import PURGED, Registry
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession
from bridge.runtime.sweep import ProcessRow, sweep

logger = logging.getLogger(__name__)

RUNNING: Final = "running"
"""The file that says in which boot of the machine a bridge runs, or was when it was killed."""


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
    is_doubtful = tables.damaged is not None or _was_cut_off(marker)
    to_do = _behind(services) if is_doubtful else tables.open_sessions()
    last_id = tables.max_last_id()
    for session_id in to_do:
        with contextlib.suppress(StorageError):
            last_id = max(last_id, store.log(session_id).last_id)
    store.start_ids(last_id)
    for session_id in to_do:
        try:
            _recover(services, registry, session_id)
        except Exception:
            logger.exception("a session cannot be recovered", extra={"session": session_id})
    _mark(marker)


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


def _mark(marker: Path) -> None:
    try:
        marker.write_text(linux.boot_id(), "ascii")
    except OSError as error:
        logger.error("a power cut would not be noticed: %s", error)


def _behind(services: Services) -> list[str]:
    """Every session whose log is ahead of its row, behind it, or has none."""
    found = set(services.tables.open_sessions())
    for session_id in services.store.sessions():
        row = services.tables.session(session_id)
        try:
            last_seq = services.store.log(session_id).last_seq
        except StorageError:
            logger.exception("a log cannot be opened", extra={"session": session_id})
            continue
        if row is None or (row.status != PURGED and row.projected_seq != last_seq):
            found.add(session_id)
    return sorted(found)


def _recover(services: Services, registry: Registry, session_id: str) -> None:
    row = services.tables.session(session_id)
    log = services.store.log(session_id)
    if row is None:
        session = refold.rebuild(services, session_id)
        if session is None:
            logger.error("a log does not say whose it is", extra={"session": session_id})
            return
    elif log.last_seq == 0 and row.projected_seq == 0:
        services.tables.forget_session(session_id)
        services.store.purge(session_id)
        return
    else:
        session = refold.revive(services, row)
    _bring_to_rest(registry, session, row)


def _bring_to_rest(registry: Registry, session: LiveSession, row: SessionRow | None) -> None:
    registry.add(session)
    session.private["isOpen"] = True
    if row is not None and row.projected_seq > session.log.last_seq:
        # A power cut took the end of the log: say again what it had said.
        session.emit("bridge/session", {"changed": dict(session.projection.view)})
    _withdraw_pending(session)
    turn_flow.fail_all(
        session, "bridge-restarted", "The bridge was restarted before the turn ended."
    )
    session.refresh()
    session.commit()
    registry.unload(session)


def _withdraw_pending(session: LiveSession) -> None:
    """What waited for a person cannot be answered any more: the process is gone."""
    for shown in list(session.projection.requests.values()):
        resolution = {
            "by": "agent-exit",
            "token": None,
            "outcome": {"outcome": "cancelled"},
            "at": session.now,
        }
        resolved = shown | {"status": "withdrawn", "resolution": resolution}
        session.emit(
            "bridge/request_resolved",
            {"request": resolved},
            turn_id=shown["turnId"],
            request_id=shown["requestId"],
        )
    session.refresh()
