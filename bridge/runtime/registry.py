"""Where sessions are looked up, and the one place where ownership is decided.

Live sessions are in memory; the others are rows, made live again by whoever wants to change them.
A session that the caller may not see answers like one that never was.
"""

from __future__ import annotations

import logging
from typing import Any

from bridge.errors import CallerError, StorageError
from bridge.ids import is_id
from bridge.log.rows import SessionRow
from bridge.principal import Principal, Scope
from bridge.runtime import refold, rest, rows
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession

logger = logging.getLogger(__name__)

PURGED = "purged"
"""The status of the row that is left of a purged session: its tombstone."""


class Registry:
    """The sessions of this bridge."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.live: dict[str, LiveSession] = {}

    def find(self, principal: Principal, session_id: str, scope: Scope = "read") -> None:
        """Check that the caller sees the session and may do this to it.

        Raises ``session-not-found`` where it is not to be seen, ``forbidden`` where the token
        only oversees it or lacks ``scope``.
        """
        owner, agent, cwd = self._owner_of(session_id)
        if not principal.sees(owner, agent, cwd):
            raise not_found()
        if not principal.may(scope):
            raise CallerError("forbidden", f"This token lacks the scope {scope!r}.")
        if scope == "prompt" and not principal.is_own(owner):
            raise CallerError("forbidden", "This token may see and approve here, not prompt.")

    def sees(self, principal: Principal, session_id: str) -> bool:
        """Whether a stream of this caller carries the session."""
        try:
            found = self._owner_of(session_id)
        except CallerError:
            return False
        return principal.sees(*found)

    def open(self, principal: Principal, session_id: str, scope: Scope) -> LiveSession:
        """The session, to be changed. Raises as :meth:`find`, and ``session-closed``.

        Raises ``storage-full`` while a full disk holds back what it has said already.
        """
        self.find(principal, session_id, scope)
        session = self.load(session_id)
        if session.is_closed:
            raise CallerError("session-closed", "This session is closed.")
        check_room(session)
        return session

    def load(self, session_id: str) -> LiveSession:
        """The session in memory, made from its row where it is not.

        One that the start could not bring to rest is brought to rest now.
        """
        if session := self.live.get(session_id):
            return session
        row = self._services.tables.session(session_id)
        if row is None or row.status == PURGED:
            raise not_found()
        session = (rest.take_up if row.is_open else refold.revive)(self._services, row)
        if session is None:
            raise not_found()
        self.live[session_id] = session
        return session

    def add(self, session: LiveSession) -> None:
        """A session that has just been made."""
        self.live[session.session_id] = session

    def unload(self, session: LiveSession) -> None:
        """Nothing of it needs memory any more; its row says all of it."""
        if self.live.get(session.session_id) is not session:
            return
        session.projection.close_stretch()
        self._services.store.release(session.session_id)
        if session.projection.view and not self._rest(session):
            return
        del self.live[session.session_id]

    def _rest(self, session: LiveSession) -> bool:
        """Whether its row says all of it now."""
        if session.is_jammed:
            return False
        was_open, session.private["isOpen"] = session.private.get("isOpen"), False
        if not session.project():
            session.private["isOpen"] = was_open
            return False
        return True

    def flush(self) -> None:
        """Bring the rows of sessions that are being written up to date, before a list.

        Where the tables cannot be written the list is a little old.
        """
        touched = [s for s in self.live.values() if s.is_touched and not s.is_provisional]
        try:
            with self._services.tables.transaction():
                for session in touched:
                    rows.touch(session)
        except rows.UNWRITABLE as error:
            logger.error("rows are not up to date: %s", error)
            return
        for session in touched:
            session.is_touched = False

    def snapshot(self, session_id: str) -> dict[str, Any]:
        """The committed Session with its positions."""
        if session := self.live.get(session_id):
            if session.is_provisional:
                raise not_found()
            return session.snapshot()
        row = self._services.tables.session(session_id)
        if row is None or row.status == PURGED:
            raise not_found()
        return self._of_row(row)

    def shown(self, row: SessionRow) -> dict[str, Any]:
        """The same of a row that was just read."""
        session = self.live.get(row.session_id)
        return self._of_row(row) if session is None else session.snapshot()

    def _of_row(self, row: SessionRow) -> dict[str, Any]:
        return rows.view_of(row) | {
            "firstSeq": self._services.store.first_seq(row.session_id, row.last_seq),
            "lastSeq": row.last_seq,
            "lastId": row.last_id,
        }

    def _owner_of(self, session_id: str) -> tuple[str, str, str]:
        if not is_id(session_id, "ses"):
            raise not_found()
        if session := self.live.get(session_id):
            if session.is_provisional:
                raise not_found()
            return session.owner, session.agent, session.cwd
        found = self._services.tables.owner_of(session_id)
        if found is None:
            raise not_found()
        return found


def check_room(session: LiveSession) -> None:
    """Nothing may be promised that cannot be committed. Raises ``storage-full``."""
    if session.is_jammed:
        raise StorageError("storage-full", "The disk is full; this session waits for room.")


def not_found() -> CallerError:
    """The same for a session that never was and one that is not this caller's."""
    return CallerError("session-not-found", "There is no such session.")
