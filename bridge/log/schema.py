"""The tables' layout, as the steps that led to it.

Rules: a step that was released never changes, a new layout is a new step at the end.
``PRAGMA user_version`` counts the steps a file has been through. Nothing newer than SQLite 3.24
is used.

Blobs live apart from what is searched and often updated: SQLite rewrites a whole row whenever a
column of it changes, and a search would read past every blob.

``shelf`` says where a session is listed: 0 among the present ones, 1 among the closed, 2 nowhere
(the tombstone of a purged one).
"""

from __future__ import annotations

from typing import Final

_FIRST: Final = (
    """CREATE TABLE sessions (
        row_id INTEGER PRIMARY KEY,
        session_id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        agent TEXT NOT NULL,
        agent_session_id TEXT,
        cwd TEXT NOT NULL,
        title TEXT,
        status TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        last_seq INTEGER NOT NULL,
        last_id INTEGER NOT NULL,
        projected_seq INTEGER NOT NULL,
        is_open INTEGER NOT NULL,
        closed_at REAL,
        shelf INTEGER NOT NULL,
        searched TEXT NOT NULL
    )""",
    """CREATE INDEX sessions_by_activity
        ON sessions (owner, shelf, updated_at DESC, session_id DESC, status, agent)""",
    "CREATE INDEX sessions_by_last_id ON sessions (last_id)",
    """CREATE INDEX sessions_by_agent_session ON sessions (agent, agent_session_id)
        WHERE agent_session_id IS NOT NULL""",
    "CREATE INDEX sessions_open ON sessions (session_id) WHERE is_open = 1",
    "CREATE INDEX sessions_closed ON sessions (closed_at) WHERE closed_at IS NOT NULL",
    """CREATE TABLE session_bodies (
        session_id TEXT NOT NULL UNIQUE,
        view BLOB NOT NULL,
        private BLOB NOT NULL
    )""",
    """CREATE TABLE turns (
        turn_id TEXT NOT NULL UNIQUE,
        session_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        status TEXT NOT NULL,
        first_seq INTEGER,
        last_seq INTEGER,
        created_at REAL NOT NULL,
        body BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX turns_by_number ON turns (session_id, number)",
    """CREATE INDEX turns_open ON turns (session_id, number)
        WHERE status IN ('queued', 'running', 'waiting')""",
    """CREATE TABLE requests (
        row_id INTEGER PRIMARY KEY,
        request_id TEXT NOT NULL UNIQUE,
        session_id TEXT NOT NULL,
        owner TEXT NOT NULL,
        agent TEXT NOT NULL,
        turn_id TEXT,
        status TEXT NOT NULL,
        created_at REAL NOT NULL,
        body BLOB NOT NULL,
        winner TEXT,
        reply_hash TEXT
    )""",
    "CREATE INDEX requests_of_session ON requests (session_id, created_at, row_id)",
    "CREATE INDEX requests_of_owner ON requests (owner, created_at, row_id)",
    """CREATE INDEX requests_pending_of_session ON requests (session_id, created_at, row_id)
        WHERE status = 'pending'""",
    """CREATE INDEX requests_pending_of_owner ON requests (owner, created_at, row_id)
        WHERE status = 'pending'""",
    """CREATE TABLE keys (
        owner TEXT NOT NULL,
        method TEXT NOT NULL,
        path TEXT NOT NULL,
        key TEXT NOT NULL,
        body_hash TEXT NOT NULL,
        session_id TEXT NOT NULL,
        ref BLOB NOT NULL,
        created_at REAL NOT NULL,
        UNIQUE (owner, method, path, key)
    )""",
    "CREATE INDEX keys_by_time ON keys (created_at)",
    "CREATE INDEX keys_of_session ON keys (session_id)",
    """CREATE TABLE processes (
        pid INTEGER NOT NULL,
        start_ticks INTEGER NOT NULL,
        boot_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        tag TEXT NOT NULL,
        started_at REAL NOT NULL,
        UNIQUE (pid, start_ticks)
    )""",
    """CREATE TABLE pages (
        session_id TEXT NOT NULL,
        turn_id TEXT,
        first_seq INTEGER NOT NULL,
        last_seq INTEGER NOT NULL,
        items BLOB NOT NULL,
        UNIQUE (session_id, first_seq)
    )""",
)

STEPS: Final[tuple[tuple[str, ...], ...]] = (_FIRST,)
