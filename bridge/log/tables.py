"""The tables: what is searched and listed, a projection of the log.

Owns the rows of sessions, turns, requests, idempotency keys, processes and transcript pages.
Everything in them but the processes can be made again from the log; JSON in them is the
runtime's and never looked into.

Rules: synchronous, on the event loop, each call one short statement or two; only lists take
longer than a tenth of a millisecond. What belongs together goes into one :meth:`transaction`.
Writes raise ``StorageError`` (``storage-full``) where the disk is full. Lists are paged by keyset.

Knows nothing of ACP, HTTP, or who may see what.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from bridge.log import keyset, statements
from bridge.log.database import Database
from bridge.log.rows import (
    KeyRow,
    PageRow,
    ProcessRow,
    RequestRow,
    SessionHead,
    SessionRow,
    TurnRow,
)
from bridge.log.search import SHORTEST, folded, make_index, phrase, plain

# Their fields in order, which is the order of the statements' parameters.
_OF_TURN: Final = attrgetter(*TurnRow.__slots__[:-1])
_OF_REQUEST: Final = attrgetter(*RequestRow.__slots__)
_OF_KEY: Final = attrgetter(*KeyRow.__slots__)
_OF_PROCESS: Final = attrgetter(*ProcessRow.__slots__)
_MANY: Final = 500
_PRESENT: Final = 0
_SHELVES: Final = {"closed": 1, "purged": 2}


class Tables:
    """All tables in the file at ``path``, which is made where it is missing.

    ``damaged``: where a file that could not be read was moved to; the tables began empty then and
    want to be made again from the log. ``max_pages`` bounds the file, in pages of 4 KiB; searches
    go row by row where SQLite lacks ``tokenizer``.
    """

    def __init__(
        self, path: Path, *, max_pages: int | None = None, tokenizer: str = "trigram"
    ) -> None:
        """Raises ``StorageError`` (full disk, layout of a newer version) and ``OSError``."""
        self._database = Database(path, max_pages=max_pages)
        self._is_indexed = make_index(self._database, tokenizer)

    @property
    def damaged(self) -> str | None:
        """The path a damaged file was moved to at this opening."""
        return self._database.damaged

    def close(self) -> None:
        """Close the file. May be repeated."""
        self._database.close()

    def transaction(self) -> AbstractContextManager[None]:
        """All that is written inside is kept together or not at all; inner ones join."""
        return self._database.transaction()

    # -- sessions -----------------------------------------------------------------------------

    def save_session(self, row: SessionRow) -> None:
        """Insert or replace a session."""
        agent_session_id = row.agent_session_id
        with self.transaction():
            self._database.write(
                statements.SAVE_SESSION,
                (
                    row.session_id,
                    row.owner,
                    row.agent,
                    None if agent_session_id is None else plain(agent_session_id),
                    plain(row.cwd),
                    None if row.title is None else plain(row.title),
                    row.status,
                    row.created_at,
                    row.updated_at,
                    row.last_seq,
                    row.last_id,
                    row.projected_seq,
                    row.is_open,
                    row.closed_at,
                    _SHELVES.get(row.status, _PRESENT),
                    f"{folded(row.title or '')}\n{folded(row.cwd)}",
                ),
            )
            self._database.write(
                statements.SAVE_SESSION_BODY, (row.session_id, row.view, row.private)
            )

    def touch_session(
        self, session_id: str, updated_at: float, last_seq: int, last_id: int
    ) -> None:
        """Only its time and positions: what streamed text changes. ``projected_seq`` stays."""
        self._database.write(statements.TOUCH_SESSION, (updated_at, last_seq, last_id, session_id))

    def mark_open(self, session_id: str) -> None:
        """From now on its log may be ahead of its row, until it is saved with ``is_open`` off."""
        self._database.write(statements.MARK_OPEN, (session_id,))

    def session(self, session_id: str) -> SessionRow | None:
        """One session."""
        found = self._database.one(statements.SESSION, (session_id,))
        return None if found is None else _session(found)

    def owner_of(self, session_id: str) -> tuple[str, str, str] | None:
        """The owner, the agent and the folder of a session."""
        found = self._database.one(statements.OWNER_OF, (session_id,))
        return None if found is None else (found[0], found[1], found[2])

    def open_sessions(self) -> list[str]:
        """The sessions whose log may be ahead of their row."""
        return self._ids(statements.OPEN_SESSIONS)

    def max_last_id(self) -> int:
        """The highest position over the whole bridge that any row knows of, else 0."""
        found = self._database.one(statements.MAX_LAST_ID)
        return 0 if found is None or found[0] is None else int(found[0])

    def by_agent_session(self, agent: str, agent_session_id: str) -> list[SessionHead]:
        """The sessions (closed ones too) that are or were this conversation of the agent."""
        found = self._database.all(statements.BY_AGENT_SESSION, (agent, plain(agent_session_id)))
        return [SessionHead(*each) for each in found]

    def sessions_after(
        self,
        last_id: int,
        owners: frozenset[str],
        agents: frozenset[str] | None,
        roots: tuple[str, ...] | None = None,
    ) -> list[str]:
        """The sessions with an entry beyond ``last_id``, purged ones aside, by their last one."""
        wanted = {"owners": _array(owners), "agents": _array(agents), "roots": _folders(roots)}
        return self._ids(statements.SESSIONS_AFTER, {"last_id": last_id, **wanted})

    def closed_before(self, time: float) -> list[str]:
        """The sessions closed before ``time``, longest ago first."""
        return self._ids(statements.CLOSED_BEFORE, (time,))

    def count_sessions(self, owner: str) -> int:
        """How many sessions an owner has that are not closed."""
        found = self._database.one(statements.COUNT_SESSIONS, (owner,))
        return 0 if found is None else int(found[0])

    def list_sessions(
        self,
        owners: frozenset[str],
        agents: frozenset[str] | None,
        status: str | None = None,
        agent: str | None = None,
        query: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        roots: tuple[str, ...] | None = None,
    ) -> tuple[list[SessionRow], str | None]:
        """A page, latest activity first, and the cursor of the next one.

        ``agents`` and ``roots`` narrow what may be seen, ``agent`` what is wanted. ``query`` is
        looked for in title and folder, whatever the case. Closed sessions are found by
        ``status="closed"`` only, purged ones never. Raises ``invalid-request`` for a broken cursor.
        """
        time, tie = keyset.after_session(cursor)
        looked_for = folded(query) if query else None
        candidates = self._candidates(looked_for)
        wanted: dict[str, Any] = {
            "shelf": _SHELVES["closed"] if status == "closed" else _PRESENT,
            "status": status,
            "agent": agent,
            "agents": _array(agents),
            "roots": _folders(roots),
            "query": looked_for,
            "candidates": json.dumps(candidates),
            "time": time,
            "tie": tie,
        }
        statement = statements.LIST_SESSIONS if candidates is None else statements.SEARCH_SESSIONS
        keys, last = self._merged(statement, wanted, owners, limit, is_descending=True)
        rows = [row for key in keys if (row := self.session(key[1])) is not None]
        return rows, None if last is None else keyset.session_cursor(*last)

    def forget_session(self, session_id: str) -> None:
        """Remove every row of a session but those of its processes.

        Those stay until the process has ended: a start after a crash finds it by them.
        """
        with self.transaction():
            for statement in (
                statements.FORGET_SESSION,
                statements.FORGET_SESSION_BODY,
                statements.FORGET_TURNS,
                statements.FORGET_REQUESTS,
                statements.FORGET_PAGES,
                statements.FORGET_KEYS_OF,
            ):
                self._database.write(statement, (session_id,))

    # -- turns --------------------------------------------------------------------------------

    def save_turn(self, row: TurnRow) -> None:
        """Insert or replace a turn. A new one gets the session's next number; it keeps it."""
        self._database.write(statements.SAVE_TURN, _OF_TURN(row))

    def turn(self, turn_id: str) -> TurnRow | None:
        """One turn."""
        found = self._database.one(statements.TURN, (turn_id,))
        return None if found is None else TurnRow(*found)

    def turns(
        self, session_id: str, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[TurnRow], str | None]:
        """A page of a session's turns, newest first, and the cursor of the next one."""
        below = keyset.after_turn(cursor)
        found = self._database.all(statements.TURNS, (session_id, below, _room(limit)))
        page, last = keyset.cut([TurnRow(*each) for each in found], limit)
        return page, None if last is None else keyset.turn_cursor(last.number)

    def open_turns(self, session_id: str) -> list[TurnRow]:
        """The turns that have not ended, oldest first."""
        return [TurnRow(*each) for each in self._database.all(statements.OPEN_TURNS, (session_id,))]

    # -- requests -----------------------------------------------------------------------------

    def save_request(self, row: RequestRow) -> None:
        """Insert or replace a request. ``winner`` and ``reply_hash``, once set, are kept."""
        self._database.write(statements.SAVE_REQUEST, _OF_REQUEST(row))

    def request(self, request_id: str) -> RequestRow | None:
        """One request."""
        found = self._database.one(statements.REQUEST, (request_id,))
        return None if found is None else RequestRow(*found)

    def requests(
        self,
        session_id: str | None = None,
        owners: frozenset[str] = frozenset(),
        agents: frozenset[str] | None = None,
        status: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        roots: tuple[str, ...] | None = None,
    ) -> tuple[list[RequestRow], str | None]:
        """A page of requests, oldest first, and the cursor of the next one.

        Of ``session_id``, or without it of all of ``owners`` with ``agents`` in ``roots``; only
        pending ones for ``status="pending"``. Raises ``invalid-request`` for a broken cursor.
        """
        time, tie = keyset.after_request(cursor)
        wanted: dict[str, Any] = {"time": time, "tie": tie}
        is_pending = status == "pending"
        if session_id is None:
            statement = statements.PENDING_OF_OWNER if is_pending else statements.REQUESTS_OF_OWNER
            wanted |= {"agents": _array(agents), "roots": _folders(roots)}
            keys, last = self._merged(statement, wanted, owners, limit, is_descending=False)
        else:
            statement = (
                statements.PENDING_OF_SESSION if is_pending else statements.REQUESTS_OF_SESSION
            )
            wanted |= {"session_id": session_id, "limit": _room(limit)}
            keys, last = keyset.cut(self._database.all(statement, wanted), limit)
        rows = [row for key in keys if (row := self.request(key[2])) is not None]
        return rows, None if last is None else keyset.request_cursor(last[0], last[1])

    # -- idempotency keys ---------------------------------------------------------------------

    def save_key(self, row: KeyRow) -> None:
        """Remember a key. Where it is known already the later use stays.

        So a key that has run out but is not yet forgotten can be used anew, and folding an old
        log again undoes nothing.
        """
        self._database.write(statements.SAVE_KEY, _OF_KEY(row))

    def key(self, owner: str, method: str, path: str, key: str) -> KeyRow | None:
        """What the first use of a key made."""
        found = self._database.one(statements.KEY, (owner, method, path, key))
        return None if found is None else KeyRow(*found)

    def forget_keys(self, before: float) -> int:
        """Remove the keys used before a time; how many."""
        return self._database.write(statements.FORGET_KEYS, (before,))

    # -- processes ----------------------------------------------------------------------------

    def save_process(self, row: ProcessRow) -> None:
        """Remember a process that runs."""
        self._database.write(statements.SAVE_PROCESS, _OF_PROCESS(row))

    def drop_process(self, pid: int, start_ticks: int) -> None:
        """It has ended."""
        self._database.write(statements.DROP_PROCESS, (pid, start_ticks))

    def processes(self) -> list[ProcessRow]:
        """All that run, or ran when the bridge was killed."""
        return [ProcessRow(*each) for each in self._database.all(statements.PROCESSES)]

    # -- transcript pages ---------------------------------------------------------------------

    def save_page(
        self, session_id: str, turn_id: str | None, first_seq: int, last_seq: int, items: bytes
    ) -> None:
        """Insert a page, or replace the one that begins at the same entry."""
        self._database.write(
            statements.SAVE_PAGE, (session_id, turn_id, first_seq, last_seq, items)
        )

    def pages(self, session_id: str, before_seq: int | None, limit: int) -> list[PageRow]:
        """The pages that begin before an entry, newest first."""
        return list(self.each_page(session_id, before_seq, limit))

    def each_page(self, session_id: str, before_seq: int | None, limit: int) -> Iterator[PageRow]:
        """The same, read one by one: they may be large, and not all of them wanted."""
        below = keyset.MAX_INTEGER if before_seq is None else min(before_seq, keyset.MAX_INTEGER)
        for each in self._database.each(statements.PAGES, (session_id, below, max(limit, 0))):
            yield PageRow(*each)

    def last_page(self, session_id: str) -> PageRow | None:
        """The newest page of a session."""
        return next(iter(self.pages(session_id, None, 1)), None)

    def _ids(self, statement: str, parameters: Any = ()) -> list[str]:
        return [each[0] for each in self._database.all(statement, parameters)]

    def _candidates(self, looked_for: str | None) -> list[int] | None:
        """The only rows that can hold a text; ``None`` where going through the list is as good.

        A text that many have is soon met in the list itself, a full page of it at least.
        """
        if not self._is_indexed or looked_for is None or len(looked_for) < SHORTEST:
            return None
        found = self._database.all(statements.WORDS, (phrase(looked_for), _MANY + 1))
        return None if len(found) > _MANY else [each[0] for each in found]

    def _merged(
        self,
        statement: str,
        wanted: dict[str, Any],
        owners: Iterable[str],
        limit: int,
        *,
        is_descending: bool,
    ) -> tuple[list[tuple[Any, ...]], tuple[Any, ...] | None]:
        """One owner at a time, each from the index in order: no sorting of all there is."""
        found = [
            self._database.all(statement, wanted | {"owner": owner, "limit": _room(limit)})
            for owner in owners
        ]
        return keyset.cut(keyset.merge(found, _room(limit), is_descending=is_descending), limit)


def _session(found: tuple[Any, ...]) -> SessionRow:
    values = (*found[:12], bool(found[12]), *found[13:])
    return SessionRow(*values)


def _room(limit: int) -> int:
    """One more than is shown, to know whether there is a next page."""
    return max(limit, 0) + 1


def _array(names: frozenset[str] | None) -> str | None:
    return None if names is None else json.dumps(sorted(names))


def _folders(roots: tuple[str, ...] | None) -> str | None:
    """With a slash at the end, so that ``/ws-evil`` does not begin like ``/ws``."""
    return None if roots is None else json.dumps([plain(each.rstrip("/") + "/") for each in roots])
