"""The end of a session: closed for good, and purged where that is asked.

A closed session stays readable while its log is kept. A purged one leaves a tombstone, so that
repeating the deletion is fine, everything else finds nothing, and nobody but its owner can take up
what the agent itself still keeps of the conversation.
"""

from __future__ import annotations

from bridge.runtime import answers, lifecycle, rows, turn_flow
from bridge.runtime.registry import PURGED, Registry
from bridge.runtime.session import LiveSession

_KEPT = ("sessionId", "owner", "agent", "agentSessionId", "cwd", "createdAt", "updatedAt")


async def close(session: LiveSession, registry: Registry, *, is_purge: bool) -> None:
    """End its turns and requests, say so, then stop its process."""
    session.is_closed = True
    for queued in list(session.queue):
        turn_flow.drop_queued(session, queued, "cancel", "cancelled")
    answers.withdraw_all(session, "session-deleted")
    if session.turn is not None:
        turn_flow.cancel_running(session)
        turn_flow.finish(session, "cancel", "cancelled", by="session-deleted")
    session.emit("bridge/session_deleted", {"purged": is_purge})
    session.commit()
    session.log.close()
    if session.link is not None:
        await lifecycle.discard(session, session.link)
    registry.unload(session)


def purge(session: LiveSession, registry: Registry) -> None:
    """Remove its log and its rows, but for the tombstone."""
    view = session.projection.view
    tombstone = {name: view[name] for name in _KEPT} | {"status": PURGED}
    tables = session.services.tables
    with tables.transaction():
        tables.forget_session(session.session_id)
        tables.save_session(
            rows.row_of(
                tombstone,
                private={},
                last_seq=session.log.last_seq,
                last_id=session.log.last_id,
                is_open=False,
            )
        )
    registry.live.pop(session.session_id, None)
    session.services.behind.discard(session.session_id)
    session.services.store.purge(session.session_id)
