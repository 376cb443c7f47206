"""Sessions that were not left at rest: their bridge was killed, or their start failed.

A session at rest has a row that says all of it. Any other is folded from its log and brought to
rest before anybody works with it: its process is gone, so what ran or was queued has failed, what
waited for a person is withdrawn, and the session is hibernated.
"""

from __future__ import annotations

from bridge.log.rows import SessionRow
from bridge.protocol.held import withdrawn_answer
from bridge.runtime import refold, turn_flow
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession


def take_up(services: Services, row: SessionRow) -> LiveSession | None:
    """The session of a row that may be behind its log, at rest.

    ``None`` where it never began: its row was written, its first entry was not; nothing is left
    of it then. Raises ``StorageError`` where its log cannot be read now.
    """
    log = services.store.log(row.session_id)
    if log.last_seq == 0 and row.projected_seq == 0:
        services.tables.forget_session(row.session_id)
        services.store.purge(row.session_id)
        return None
    session = refold.revive(services, row)
    if row.projected_seq > log.last_seq:
        # A power cut took the end of the log: say again what it had said.
        session.emit("bridge/session", {"changed": dict(session.projection.view)})
    bring_to_rest(session)
    return session


def bring_to_rest(session: LiveSession) -> None:
    """End what cannot go on without the process that is gone; committed when this returns."""
    session.private["isOpen"] = True
    _withdraw_pending(session)
    turn_flow.fail_all(
        session, "bridge-restarted", "The bridge was restarted before the turn ended."
    )
    session.refresh()
    session.commit()


def _withdraw_pending(session: LiveSession) -> None:
    """What waited for a person cannot be answered any more: the process is gone."""
    for shown in list(session.projection.requests.values()):
        resolution = {
            "by": "agent-exit",
            "token": None,
            "outcome": withdrawn_answer(shown["kind"]).outcome,
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
