"""One SQLite file: opened, brought to the newest layout, written in transactions.

Owns the connection. Rules: one connection, used by one thread; write-ahead log, so that a killed
process loses nothing that was committed (a power cut may cost the last moments); nobody but the
user of the bridge may read the files. A file that SQLite calls damaged is moved aside, never
removed, and an empty one takes its place.

Knows nothing of what the tables mean.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bridge.errors import StorageError
from bridge.log.schema import STEPS

_BUSY_MS: Final = 2_000
_CACHE_KIB: Final = 8_192
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
# SQLite says "full" for ENOSPC alone; a quota or a size limit is a failed write to it, and no
# room for the shared memory has a code of its own.
_FULL: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
    }
)

Parameters = Sequence[Any] | Mapping[str, Any]


class Database:
    """``damaged`` is where a file that could not be read was moved to, else ``None``.

    ``max_pages`` bounds the file (pages of 4 KiB); without it the disk does.
    """

    def __init__(self, path: Path, *, max_pages: int | None = None) -> None:
        """Raises ``StorageError`` for a full disk or a newer layout, ``OSError`` for no access."""
        self.damaged: str | None = None
        self._depth = 0
        self._is_doomed = False
        try:
            self._connection = _open(path, max_pages)
        except sqlite3.DatabaseError as error:
            if _is_full(error):
                raise _no_room() from error
            if not _is_damage(error):
                raise
            self.damaged = str(_move_aside(path))
            self._connection = _open(path, max_pages)

    def close(self) -> None:
        """Fold the write-ahead log into the file and let go of it. May be repeated."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. An inner one joins the outer: if it fails, so does the whole.

        Raises ``StorageError`` where the disk is full; nothing of the transaction is kept then.
        """
        if self._depth:
            with self._joined():
                yield
            return
        self.write("BEGIN IMMEDIATE")
        self._is_doomed = False
        try:
            with self._joined():
                yield
            self._commit()
        except BaseException:
            # A full disk may have made SQLite roll back by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def write(self, statement: str, parameters: Parameters = ()) -> int:
        """Run a statement that changes rows; how many it changed. ``StorageError`` if no room."""
        try:
            return self._connection.execute(statement, parameters).rowcount
        except sqlite3.Error as error:
            self._is_doomed = True
            if _is_full(error):
                raise _no_room() from error
            raise

    def all(self, statement: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Every row a statement finds."""
        return self._connection.execute(statement, parameters).fetchall()

    def each(self, statement: str, parameters: Parameters = ()) -> Iterator[tuple[Any, ...]]:
        """The rows a statement finds, read as they are taken: nobody writes meanwhile."""
        yield from self._connection.execute(statement, parameters)

    def one(self, statement: str, parameters: Parameters = ()) -> tuple[Any, ...] | None:
        """The first row a statement finds."""
        found: tuple[Any, ...] | None = self._connection.execute(statement, parameters).fetchone()
        return found

    @contextmanager
    def _joined(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        except BaseException:
            self._is_doomed = True
            raise
        finally:
            self._depth -= 1

    def _commit(self) -> None:
        if self._is_doomed:
            raise RuntimeError("a failure inside this transaction was caught and passed over")
        self.write("COMMIT")


def _open(path: Path, max_pages: int | None) -> sqlite3.Connection:
    # SQLite gives its -wal and -shm the mode of the file itself, so no umask is needed.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
    finally:
        os.close(handle)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        if max_pages is not None:
            connection.execute(f"PRAGMA max_page_count = {max_pages:d}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        _migrate(connection)
        _check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection) -> None:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(STEPS):
        raise StorageError(
            "internal-error",
            f"The tables have layout {version}, this version of the bridge knows {len(STEPS)}.",
            hint="Start the newer version again, or give this one another state folder.",
        )
    for number, step in enumerate(STEPS[version:], version + 1):
        connection.execute("BEGIN IMMEDIATE")
        for statement in step:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number:d}")
        connection.execute("COMMIT")


def _check(connection: sqlite3.Connection) -> None:
    found: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        error = sqlite3.DatabaseError(found)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def _move_aside(path: Path) -> Path:
    """With its companions: a write-ahead log left behind would be played into the new file."""
    number = 1
    while (target := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for ending in ("-wal", "-shm", ""):
        companion = path.with_name(path.name + ending)
        if companion.exists():
            companion.rename(target.with_name(target.name + ending))
    return target


def _is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def _is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) in _FULL


def _no_room() -> StorageError:
    return StorageError(
        "storage-full",
        "The disk is full; nothing more can be stored.",
        hint="Free some space in the state folder's file system.",
    )
