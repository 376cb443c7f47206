"""What the tables hold, one frozen value per row.

Owns the shape of rows and nothing else. ``bytes`` fields are JSON made by the runtime and handed
back as they came; the other fields are what is searched. Times are seconds since the epoch.
Text that SQLite cannot hold (lone surrogates) comes back with ``?`` in their place: the JSON
beside it has the truth.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session. ``projected_seq``: the last entry that ``view`` and the other tables know of.

    ``is_open``: the log may be ahead of this row. ``private`` is what callers never see.
    """

    session_id: str
    owner: str
    agent: str
    agent_session_id: str | None
    cwd: str
    title: str | None
    status: str
    created_at: float
    updated_at: float
    last_seq: int
    last_id: int
    projected_seq: int
    is_open: bool
    closed_at: float | None
    view: bytes
    private: bytes


@dataclass(frozen=True, slots=True)
class SessionHead:
    """As much of a session as tells whose it is and whether it still counts."""

    session_id: str
    owner: str
    agent: str
    status: str


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn. ``number`` counts a session's turns from 1; the table gives it, once."""

    turn_id: str
    session_id: str
    status: str
    first_seq: int | None
    last_seq: int | None
    created_at: float
    body: bytes
    number: int = 0


@dataclass(frozen=True, slots=True)
class RequestRow:
    """What an agent asked. ``winner`` and ``reply_hash`` name the reply that settled it."""

    request_id: str
    session_id: str
    owner: str
    agent: str
    turn_id: str | None
    status: str
    created_at: float
    body: bytes
    winner: str | None = None
    reply_hash: str | None = None


@dataclass(frozen=True, slots=True)
class KeyRow:
    """An idempotency key and, in ``ref`` (JSON), what its first use made."""

    owner: str
    method: str
    path: str
    key: str
    body_hash: str
    session_id: str
    ref: bytes
    created_at: float


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process that was started; ``start_ticks`` are clock ticks since the boot ``boot_id``."""

    pid: int
    start_ticks: int
    boot_id: str
    session_id: str
    tag: str
    started_at: float


@dataclass(frozen=True, slots=True)
class PageRow:
    """The folded items (a JSON list) of the entries from ``first_seq`` to ``last_seq``."""

    session_id: str
    turn_id: str | None
    first_seq: int
    last_seq: int
    items: bytes
