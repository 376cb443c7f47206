"""A session's rows in the tables, brought up to date after a commit, and read back.

The tables are a projection of the log: everything here could be made again from its entries and
the private meta of its records. ``private`` is what callers never see: MCP servers with their
secrets, the prompt that was cancelled last, the title's origin.

Rules: what is to be stored leaves the projection only once it is stored, so that a full disk
costs nothing but a later try. Meta is ``{"private": …, "key": …, "keys": [...]}``, all optional.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from bridge.clock import parse_rfc3339
from bridge.errors import StorageError
from bridge.log.rows import KeyRow, RequestRow, SessionRow, TurnRow
from bridge.protocol.acp import dumps, loads
from bridge.protocol.projection import Projection
from bridge.protocol.turns import Turn

if TYPE_CHECKING:
    from bridge.log.tables import Tables
    from bridge.runtime.session import LiveSession


logger = logging.getLogger(__name__)

UNWRITABLE: Final = (StorageError, sqlite3.Error)
"""What the tables raise where the disk is full or refuses; never a reason to fail a caller."""


def project(session: LiveSession) -> bool:
    """One transaction: the session's row, and what its turns, requests and pages became.

    ``False`` where the tables cannot take it: nothing is lost, all of it waits for the next try.
    """
    tables = session.services.tables
    try:
        with tables.transaction():
            tables.save_session(session_row(session))
            _save_requests(session)
            save_folded(tables, session.session_id, session.projection)
            for key in session.writer.owed_keys:
                save_key(tables, session.session_id, key, key["at"])
    except UNWRITABLE as error:
        logger.error(
            "the tables are behind the log: %s", error, extra={"session": session.session_id}
        )
        return False
    session.writer.owed_keys = []
    forget_folded(session.projection)
    return True


def save_folded(tables: Tables, session_id: str, projection: Projection) -> None:
    """Turns, requests and pages as a projection has them; it still has them afterwards."""
    for turn in _turns_of(projection):
        tables.save_turn(_turn_row(turn))
    for shown in projection.changed_requests.values():
        save_request(tables, shown)
    for page in projection.pages:
        tables.save_page(session_id, page.turn_id, page.first_seq, page.last_seq, dumps(page.items))


def forget_folded(projection: Projection) -> None:
    """It is stored: the projection need not keep it any longer."""
    projection.ended = []
    projection.pages = []
    projection.changed_requests = {}


def merged_meta(metas: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The meta of one record that carries what several commits wanted to."""
    if len(metas) <= 1:
        return metas[0] if metas else None
    merged: dict[str, Any] = {}
    for meta in metas:
        merged |= {name: value for name, value in meta.items() if name not in ("key", "keys")}
    keys = [key for meta in metas for key in keys_of(meta)]
    return merged | {"keys": keys} if keys else merged


def keys_of(meta: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The idempotency keys that a record's meta carries."""
    if not meta:
        return []
    return [meta["key"]] if "key" in meta else list(meta.get("keys", ()))


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
    is_closed = view["status"] in ("closed", "purged")
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


def head_of(row: SessionRow) -> bytes:
    """What a row says of its session, to be kept beside a log that loses its first entries."""
    return dumps(
        {"view": view_of(row), "private": private_of(row), "projectedSeq": row.projected_seq}
    )


def head_from(data: bytes) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The view, what callers never see, and the last entry both know of; empty without a head."""
    try:
        told = loads(data)
        return dict(told["view"]), dict(told["private"]), int(told["projectedSeq"])
    except (ValueError, TypeError, KeyError):
        return {}, {}, 0


def _turns_of(projection: Projection) -> list[Turn]:
    """The ended ones for good, the open ones as they are.

    A turn that had ended before the session was loaded is not among them: its row has its texts,
    which the view it was taken from has not.
    """
    turn = projection.turn
    current = [turn] if turn is not None and not turn.has_ended else []
    return [*projection.ended, *current, *projection.queue]


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
            created_at=now,
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
    for request in session.held.pending():
        save_request(session.services.tables, request.as_json(session.reference()))


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
