"""What a start does before anything else: end what was left running, take up what was stored.

Processes of a killed bridge are ended first. Then every session whose log may be ahead of its row
is folded again from the log, by the very projection that live sessions use; what was running or
queued has failed (``bridge-restarted``), its requests are withdrawn, its tools closed, and the
session is hibernated. Sessions whose row is known to be whole are not touched, so that a start
with thousands of old ones is quick.
"""

from __future__ import annotations

import logging
from typing import Any

from bridge.clock import rfc3339
from bridge.log.entry import Entry, decode_frames
from bridge.log.rows import SessionRow
from bridge.protocol import rules
from bridge.protocol.acp import loads
from bridge.protocol.projection import Applied, Projection
from bridge.runtime import rows, turn_flow
from bridge.runtime.registry import Registry
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession
from bridge.runtime.sweep import ProcessRow, sweep

logger = logging.getLogger(__name__)


async def sweep_processes(services: Services) -> None:
    """End what an earlier bridge of this state folder left running."""
    left = services.tables.processes()
    ended = await sweep(
        services.state_tag,
        [ProcessRow(row.pid, row.start_ticks, row.boot_id, row.tag) for row in left],
    )
    for row in left:
        services.tables.drop_process(row.pid, row.start_ticks)
    if ended:
        logger.warning(
            "ended processes of an earlier run", extra={"pids": [each.pid for each in ended]}
        )


def recover(services: Services, registry: Registry) -> None:
    """Bring every open session to rest; afterwards ids go on after the last one used."""
    tables, store = services.tables, services.store
    left_open = tables.open_sessions()
    last_id = tables.max_last_id()
    for session_id in left_open:
        last_id = max(last_id, store.log(session_id).last_id)
    store.start_ids(last_id)
    for session_id in left_open:
        row = tables.session(session_id)
        if row is not None:
            _bring_to_rest(services, registry, row)


def _bring_to_rest(services: Services, registry: Registry, row: SessionRow) -> None:
    log = services.store.log(row.session_id)
    if log.last_seq == 0:
        services.tables.forget_session(row.session_id)
        services.store.purge(row.session_id)
        return
    projection, private = _fold(services, row)
    session = LiveSession(
        services,
        row.session_id,
        projection=projection,
        private=private,
        permissions=rules.parse(
            projection.view.get("permissions") or {"rules": []}, allow_always=True
        ),
    )
    registry.add(session)
    session.private["isOpen"] = True
    _withdraw_pending(session)
    turn_flow.fail_all(
        session, "bridge-restarted", "The bridge was restarted before the turn ended."
    )
    session.refresh()
    session.commit()
    registry.unload(session)


def _fold(services: Services, row: SessionRow) -> tuple[Projection, dict[str, Any]]:
    """The state at the end of the log, from the row and the entries after it.

    The view goes on from the row; the transcript and the texts of an open turn go on from the
    last finished page.
    """
    tables = services.tables
    page = tables.last_page(row.session_id)
    private = rows.private_of(row)
    view = rows.view_of(row) if row.projected_seq else {}
    projection = Projection.resume(view)
    after = min(row.projected_seq, page.last_seq if page else 0)
    for record in services.store.log(row.session_id).records(after):
        _fold_meta(services, row.session_id, private, record.meta, record.time)
        for entry in decode_frames(record.body):
            if entry.seq <= after:
                continue
            _fold_entry(projection, entry, is_known=entry.seq <= row.projected_seq)
        projection.touch(rfc3339(record.time))
    with tables.transaction():
        rows.save_turns(tables, projection)
        rows.save_pages(tables, row.session_id, projection)
        for shown in projection.changed_requests.values():
            rows.save_request(tables, shown)
    projection.changed_requests = {}
    return projection, private


def _fold_entry(projection: Projection, entry: Entry, *, is_known: bool) -> None:
    """``is_known``: the row's view has it already, only texts and transcript want it."""
    before = projection.view if is_known else None
    if is_known:
        projection.view = dict(projection.view)
    projection.apply(
        Applied(
            entry.seq,
            entry.time,
            entry.type,
            entry.params,
            entry.turn_id,
            entry.request_id,
            entry.is_replay,
            entry.subagent,
        )
    )
    if before is not None:
        projection.view = before
    pending = projection.view.get("pendingRequests") or []
    projection.requests = {each["requestId"]: each for each in pending}


def _fold_meta(
    services: Services, session_id: str, private: dict[str, Any], meta: bytes, time: float
) -> None:
    if not meta:
        return
    told = loads(meta)
    if "private" in told:
        private.update(told["private"])
    if "key" in told:
        rows.save_key(services.tables, session_id, told["key"], time)


def _withdraw_pending(session: LiveSession) -> None:
    """What waited for a person cannot be answered any more: the process is gone."""
    for shown in session.projection.requests.values():
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
