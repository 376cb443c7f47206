"""Finds sessions by any part of their title or folder, without reading all of them.

Owns an index over every three characters in a row (SQLite's FTS5 with its trigram tokenizer). It
is made anew in memory at each opening and kept up by triggers of this connection, about a second
for 100,000 sessions: so the file needs no FTS5 to be written by another SQLite, and the index can
be neither stale nor damaged. Shorter words, or an SQLite without it, are left to a plain search.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from bridge.log.database import Database

SHORTEST: Final = 3

_MAKE: Final = "CREATE VIRTUAL TABLE temp.session_words USING fts5 (searched, content='', tokenize="
_FILL: Final = """
INSERT INTO temp.session_words (rowid, searched) SELECT row_id, searched FROM sessions
"""
_KEEP_UP: Final = (
    """CREATE TEMP TRIGGER words_added AFTER INSERT ON main.sessions BEGIN
        INSERT INTO session_words (rowid, searched) VALUES (new.row_id, new.searched);
    END""",
    """CREATE TEMP TRIGGER words_removed AFTER DELETE ON main.sessions BEGIN
        INSERT INTO session_words (session_words, rowid, searched)
            VALUES ('delete', old.row_id, old.searched);
    END""",
    """CREATE TEMP TRIGGER words_changed AFTER UPDATE OF searched ON main.sessions
    WHEN new.searched <> old.searched BEGIN
        INSERT INTO session_words (session_words, rowid, searched)
            VALUES ('delete', old.row_id, old.searched);
        INSERT INTO session_words (rowid, searched) VALUES (new.row_id, new.searched);
    END""",
)


def make_index(database: Database, tokenizer: str) -> bool:
    """Index all sessions there are; ``False`` where this SQLite cannot."""
    try:
        database.write(f"{_MAKE}'{tokenizer}')")
    except sqlite3.OperationalError:
        return False
    with database.transaction():
        database.write(_FILL)
        for trigger in _KEEP_UP:
            database.write(trigger)
    return True


def phrase(text: str) -> str:
    """``text`` as FTS5 wants what is to be found as it stands."""
    quoted = text.replace('"', '""')
    return f'"{quoted}"'


def folded(text: str) -> str:
    """For comparing whatever the case. Without line breaks: one parts the title from the folder."""
    return plain(text).replace("\0", " ").replace("\n", " ").casefold()


def plain(text: str) -> str:
    """Without the lone surrogates that an agent's half emoji or an odd folder name brings."""
    return text.encode("utf-8", "replace").decode()
