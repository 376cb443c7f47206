"""A session's rows in the tables, brought up to date after a commit, and read back.

The tables are a projection of the log: everything here could be made again from its entries and
the private meta of its records. ``private`` is what callers never see: MCP servers with their
secrets, the prompt that was cancelled last, the title's origin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.clock import parse_rfc3339
from bridge.log.rows import KeyRow, RequestRow, SessionRow, TurnRow
from bridge.protocol.acp import dumps, loads
from bridge.protocol.projection import Projection
from bridge.protocol.turns import Turn

if TYPE_CHECKING:
    from bridge.log.tables import Tables
    from bridge.runtime.session import LiveSession


def project(session: LiveSession, meta: dict[str, Any] | None) -> None:
    """One transaction: the session's row, and what its turns, requests and pages became."""
    tables = session.services.tables
    projection = session.projection
    with tables.transaction():
        tables.save_session(session_row(session))
        save_turns(tables, projection)
        _save_requests(session)
        save_pages(tables, session.session_id, projection)
        if meta and "key" in meta:
            save_key(tables, session.session_id, meta["key"], session.services.clock())


def session_row(session: LiveSession) -> SessionRow:
    """The row of a session as it is now."""
    view = session.projection.view
    return row_of(
        view,
        private=session.private,
        last_seq=session.log.last_seq,
        last_id=session.log.last_id,
        is_open=bool(session.private.get("isOpen")),
    )


def touch(session: LiveSession) -> None:
    """Only the positions and the time: what a stream of text changes."""
    session.services.tables.touch_session(
        session.session_id,
        parse_rfc3339(session.projection.view["updatedAt"]),
        session.log.last_seq,
        session.log.last_id,
    )


def row_of(
    view: dict[str, Any], *, private: dict[str, Any], last_seq: int, last_id: int, is_open: bool
) -> SessionRow:
    """A row from a folded view."""
    updated_at = parse_rfc3339(view["updatedAt"])
    is_closed = view["status"] == "closed"
    return SessionRow(
        session_id=view["sessionId"],
        owner=view["owner"],
        agent=view["agent"],
        agent_session_id=view.get("agentSessionId"),
        cwd=view["cwd"],
        title=view.get("title"),
        status=view["status"],
        created_at=parse_rfc3339(view["createdAt"]),
        updated_at=updated_at,
        last_seq=last_seq,
        last_id=last_id,
        projected_seq=last_seq,
        is_open=is_open,
        closed_at=updated_at if is_closed else None,
        view=dumps(view),
        private=dumps({name: value for name, value in private.items() if name != "isOpen"}),
    )


def view_of(row: SessionRow) -> dict[str, Any]:
    """The stored view of a row."""
    view = loads(row.view)
    assert isinstance(view, dict)
    return view


def private_of(row: SessionRow) -> dict[str, Any]:
    """What callers never see."""
    private = loads(row.private) if row.private else {}
    assert isinstance(private, dict)
    return private


def save_turns(tables: Tables, projection: Projection) -> None:
    """The open turns as they are, the ended ones for good."""
    current = [projection.turn] if projection.turn is not None else []
    for turn in [*projection.ended, *current, *projection.queue]:
        tables.save_turn(_turn_row(turn))
    projection.ended = []


def save_pages(tables: Tables, session_id: str, projection: Projection) -> None:
    """The transcript's finished pages."""
    for page in projection.pages:
        tables.save_page(session_id, page.turn_id, page.first_seq, page.last_seq, dumps(page.items))
    projection.pages = []


def save_key(tables: Tables, session_id: str, key: dict[str, Any], now: float) -> None:
    """An idempotency key and what its first use made."""
    tables.save_key(
        KeyRow(
            owner=key["owner"],
            method=key["method"],
            path=key["path"],
            key=key["key"],
            body_hash=key["bodyHash"],
            session_id=session_id,
            ref=dumps(key["ref"]),
            created_at=key.get("at", now),
        )
    )


def save_request(tables: Tables, shown: dict[str, Any]) -> None:
    """A request as the contract shows it."""
    tables.save_request(
        RequestRow(
            request_id=shown["requestId"],
            session_id=shown["sessionId"],
            owner=shown["session"]["owner"],
            agent=shown["session"]["agent"],
            turn_id=shown["turnId"],
            status=shown["status"],
            created_at=parse_rfc3339(shown["createdAt"]),
            body=dumps(shown),
        )
    )


def _save_requests(session: LiveSession) -> None:
    tables = session.services.tables
    changed = session.projection.changed_requests
    for request in session.held.pending():
        changed[request.request_id] = request.as_json(session.reference())
    for shown in changed.values():
        save_request(tables, shown)
    session.projection.changed_requests = {}


def _turn_row(turn: Turn) -> TurnRow:
    return TurnRow(
        turn_id=turn.turn_id,
        session_id=turn.session_id,
        status=turn.status,
        first_seq=turn.first_seq,
        last_seq=turn.last_seq,
        created_at=parse_rfc3339(turn.created_at),
        body=dumps(turn.as_full_json() if turn.has_ended else turn.as_json()),
    )
