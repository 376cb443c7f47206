"""Every SQL statement that reads or writes the tables, by name.

Rules: each finds its rows by an index, however many there are; the tests explain all of them.
Columns stand in the order of the fields in ``rows.py``. What a statement filters by that may be
absent is compared with ``NULL`` inside it, so that the text never depends on a caller's words. A
``+`` before a column keeps SQLite from taking the index of that one.
"""

from __future__ import annotations

from typing import Final

SAVE_SESSION: Final = """
INSERT INTO sessions (
    session_id, owner, agent, agent_session_id, cwd, title, status, created_at, updated_at,
    last_seq, last_id, projected_seq, is_open, closed_at, shelf, searched
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session_id) DO UPDATE SET
    owner = excluded.owner, agent = excluded.agent,
    agent_session_id = excluded.agent_session_id, cwd = excluded.cwd, title = excluded.title,
    status = excluded.status, created_at = excluded.created_at,
    updated_at = excluded.updated_at, last_seq = excluded.last_seq, last_id = excluded.last_id,
    projected_seq = excluded.projected_seq, is_open = excluded.is_open,
    closed_at = excluded.closed_at, shelf = excluded.shelf, searched = excluded.searched
"""
SAVE_SESSION_BODY: Final = """
INSERT INTO session_bodies (session_id, view, private) VALUES (?, ?, ?)
ON CONFLICT (session_id) DO UPDATE SET view = excluded.view, private = excluded.private
"""
TOUCH_SESSION: Final = """
UPDATE sessions SET updated_at = ?, last_seq = ?, last_id = ? WHERE session_id = ?
"""
MARK_OPEN: Final = "UPDATE sessions SET is_open = 1 WHERE session_id = ?"
SESSION: Final = """
SELECT s.session_id, owner, agent, agent_session_id, cwd, title, status, created_at, updated_at,
    last_seq, last_id, projected_seq, is_open, closed_at, view, private
FROM sessions AS s JOIN session_bodies AS b ON b.session_id = s.session_id
WHERE s.session_id = ?
"""
OPEN_SESSIONS: Final = "SELECT session_id FROM sessions WHERE is_open = 1 ORDER BY session_id"
MAX_LAST_ID: Final = "SELECT MAX(last_id) FROM sessions"
OWNER_OF: Final = "SELECT owner, agent, cwd FROM sessions WHERE session_id = ?"
BY_AGENT_SESSION: Final = """
SELECT session_id, owner, agent, status FROM sessions
WHERE agent = ? AND agent_session_id = ? ORDER BY row_id
"""
SESSIONS_AFTER: Final = """
SELECT session_id FROM sessions
WHERE last_id > :last_id AND shelf < 2
    AND +owner IN (SELECT value FROM json_each(:owners))
    AND (:agents IS NULL OR agent IN (SELECT value FROM json_each(:agents)))
    AND (:roots IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:roots) WHERE substr(cwd || '/', 1, length(value)) = value
    ))
ORDER BY last_id
"""
CLOSED_BEFORE: Final = """
SELECT session_id FROM sessions WHERE closed_at < ? ORDER BY closed_at
"""
COUNT_SESSIONS: Final = "SELECT COUNT(*) FROM sessions WHERE owner = ? AND shelf = 0"
LIST_SESSIONS: Final = """
SELECT updated_at, session_id FROM sessions
WHERE owner = :owner AND shelf = :shelf
    AND (updated_at, session_id) < (:time, :tie)
    AND (:status IS NULL OR status = :status)
    AND (:agent IS NULL OR agent = :agent)
    AND (:agents IS NULL OR agent IN (SELECT value FROM json_each(:agents)))
    AND (:query IS NULL OR instr(searched, :query) > 0)
    AND (:roots IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:roots) WHERE substr(cwd || '/', 1, length(value)) = value
    ))
ORDER BY updated_at DESC, session_id DESC LIMIT :limit
"""
WORDS: Final = "SELECT rowid FROM session_words WHERE session_words MATCH ? LIMIT ?"
SEARCH_SESSIONS: Final = """
SELECT updated_at, session_id FROM sessions
WHERE row_id IN (SELECT value FROM json_each(:candidates))
    AND instr(searched, :query) > 0
    AND +owner = :owner AND shelf = :shelf
    AND (updated_at, session_id) < (:time, :tie)
    AND (:status IS NULL OR status = :status)
    AND (:agent IS NULL OR agent = :agent)
    AND (:agents IS NULL OR agent IN (SELECT value FROM json_each(:agents)))
    AND (:roots IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:roots) WHERE substr(cwd || '/', 1, length(value)) = value
    ))
ORDER BY updated_at DESC, session_id DESC LIMIT :limit
"""
FORGET_SESSION: Final = "DELETE FROM sessions WHERE session_id = ?"
FORGET_SESSION_BODY: Final = "DELETE FROM session_bodies WHERE session_id = ?"
FORGET_TURNS: Final = "DELETE FROM turns WHERE session_id = ?"
FORGET_REQUESTS: Final = "DELETE FROM requests WHERE session_id = ?"
FORGET_PAGES: Final = "DELETE FROM pages WHERE session_id = ?"
FORGET_KEYS_OF: Final = "DELETE FROM keys WHERE session_id = ?"

SAVE_TURN: Final = """
INSERT INTO turns (turn_id, session_id, status, first_seq, last_seq, created_at, body, number)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7,
    (SELECT COALESCE(MAX(number), 0) + 1 FROM turns WHERE session_id = ?2)
)
ON CONFLICT (turn_id) DO UPDATE SET
    status = excluded.status, first_seq = excluded.first_seq, last_seq = excluded.last_seq,
    created_at = excluded.created_at, body = excluded.body
"""
TURN: Final = """
SELECT turn_id, session_id, status, first_seq, last_seq, created_at, body, number
FROM turns WHERE turn_id = ?
"""
TURNS: Final = """
SELECT turn_id, session_id, status, first_seq, last_seq, created_at, body, number
FROM turns WHERE session_id = ? AND number < ? ORDER BY number DESC LIMIT ?
"""
OPEN_TURNS: Final = """
SELECT turn_id, session_id, status, first_seq, last_seq, created_at, body, number
FROM turns WHERE session_id = ? AND status IN ('queued', 'running', 'waiting') ORDER BY number
"""

SAVE_REQUEST: Final = """
INSERT INTO requests (
    request_id, session_id, owner, agent, turn_id, status, created_at, body, winner, reply_hash
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (request_id) DO UPDATE SET
    status = excluded.status, turn_id = excluded.turn_id, created_at = excluded.created_at,
    body = excluded.body, winner = COALESCE(excluded.winner, winner),
    reply_hash = COALESCE(excluded.reply_hash, reply_hash)
"""
REQUEST: Final = """
SELECT request_id, session_id, owner, agent, turn_id, status, created_at, body, winner, reply_hash
FROM requests WHERE request_id = ?
"""
REQUESTS_OF_SESSION: Final = """
SELECT created_at, row_id, request_id FROM requests
WHERE session_id = :session_id AND (created_at, row_id) > (:time, :tie)
ORDER BY created_at, row_id LIMIT :limit
"""
PENDING_OF_SESSION: Final = """
SELECT created_at, row_id, request_id FROM requests
WHERE session_id = :session_id AND status = 'pending' AND (created_at, row_id) > (:time, :tie)
ORDER BY created_at, row_id LIMIT :limit
"""
REQUESTS_OF_OWNER: Final = """
SELECT created_at, row_id, request_id FROM requests
WHERE owner = :owner AND (created_at, row_id) > (:time, :tie)
    AND (:agents IS NULL OR agent IN (SELECT value FROM json_each(:agents)))
    AND (:roots IS NULL OR EXISTS (
        SELECT 1 FROM sessions AS s, json_each(:roots) AS root
        WHERE s.session_id = requests.session_id
            AND substr(s.cwd || '/', 1, length(root.value)) = root.value
    ))
ORDER BY created_at, row_id LIMIT :limit
"""
PENDING_OF_OWNER: Final = """
SELECT created_at, row_id, request_id FROM requests
WHERE owner = :owner AND status = 'pending' AND (created_at, row_id) > (:time, :tie)
    AND (:agents IS NULL OR agent IN (SELECT value FROM json_each(:agents)))
    AND (:roots IS NULL OR EXISTS (
        SELECT 1 FROM sessions AS s, json_each(:roots) AS root
        WHERE s.session_id = requests.session_id
            AND substr(s.cwd || '/', 1, length(root.value)) = root.value
    ))
ORDER BY created_at, row_id LIMIT :limit
"""

SAVE_KEY: Final = """
INSERT INTO keys (owner, method, path, key, body_hash, session_id, ref, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, method, path, key) DO UPDATE SET
    body_hash = excluded.body_hash, session_id = excluded.session_id, ref = excluded.ref,
    created_at = excluded.created_at
WHERE excluded.created_at > keys.created_at
"""
KEY: Final = """
SELECT owner, method, path, key, body_hash, session_id, ref, created_at
FROM keys WHERE owner = ? AND method = ? AND path = ? AND key = ?
"""
FORGET_KEYS: Final = "DELETE FROM keys WHERE created_at < ?"

SAVE_PROCESS: Final = """
INSERT OR REPLACE INTO processes (pid, start_ticks, boot_id, session_id, tag, started_at)
VALUES (?, ?, ?, ?, ?, ?)
"""
DROP_PROCESS: Final = "DELETE FROM processes WHERE pid = ? AND start_ticks = ?"
PROCESSES: Final = """
SELECT pid, start_ticks, boot_id, session_id, tag, started_at
FROM processes ORDER BY pid, start_ticks
"""

SAVE_PAGE: Final = """
INSERT INTO pages (session_id, turn_id, first_seq, last_seq, items) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (session_id, first_seq) DO UPDATE SET
    turn_id = excluded.turn_id, last_seq = excluded.last_seq, items = excluded.items
"""
PAGES: Final = """
SELECT session_id, turn_id, first_seq, last_seq, items
FROM pages WHERE session_id = ? AND first_seq < ? ORDER BY first_seq DESC LIMIT ?
"""
