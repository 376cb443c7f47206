"""Rows to fill the tables with in tests; what a test does not speak of has a plain value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bridge.log.rows import KeyRow, ProcessRow, RequestRow, SessionRow, TurnRow

_SESSION = SessionRow(
    session_id="ses_1",
    owner="ada",
    agent="cursor",
    agent_session_id=None,
    cwd="/home/ada/projects/engine",
    title="Punch the cards",
    status="idle",
    created_at=100.0,
    updated_at=100.0,
    last_seq=1,
    last_id=1,
    projected_seq=1,
    is_open=False,
    closed_at=None,
    view=b'{"sessionId":"ses_1"}',
    private=b"{}",
)
_TURN = TurnRow(
    turn_id="turn_1",
    session_id="ses_1",
    status="running",
    first_seq=None,
    last_seq=None,
    created_at=100.0,
    body=b"{}",
)
_REQUEST = RequestRow(
    request_id="req_1",
    session_id="ses_1",
    owner="ada",
    agent="cursor",
    turn_id="turn_1",
    status="pending",
    created_at=100.0,
    body=b"{}",
)
_KEY = KeyRow(
    owner="ada",
    method="POST",
    path="/v1/sessions",
    key="k",
    body_hash="h",
    session_id="ses_1",
    ref=b"{}",
    created_at=100.0,
)
_PROCESS = ProcessRow(
    pid=4242, start_ticks=7, boot_id="boot", session_id="ses_1", tag="s.1", started_at=100.0
)


def session(session_id: str = "ses_1", **changed: Any) -> SessionRow:
    """A session, idle and owned by ada unless told otherwise."""
    return replace(_SESSION, session_id=session_id, **changed)


def turn(turn_id: str = "turn_1", **changed: Any) -> TurnRow:
    """A running turn of ``ses_1``."""
    return replace(_TURN, turn_id=turn_id, **changed)


def request(request_id: str = "req_1", **changed: Any) -> RequestRow:
    """A pending request of ``ses_1``."""
    return replace(_REQUEST, request_id=request_id, **changed)


def key(**changed: Any) -> KeyRow:
    """An idempotency key that made ``ses_1``."""
    return replace(_KEY, **changed)


def process(**changed: Any) -> ProcessRow:
    """A process of ``ses_1``."""
    return replace(_PROCESS, **changed)
