"""Where sessions are looked up, and the one place where ownership is decided.

Live sessions are in memory; the others are rows, made live again by whoever wants to change them.
A session that the caller may not see answers like one that never was.
"""

from __future__ import annotations

from typing import Any

from bridge.errors import CallerError
from bridge.ids import is_id
from bridge.principal import Principal, Scope
from bridge.protocol import rules
from bridge.protocol.projection import Projection
from bridge.protocol.rules import Permissions
from bridge.runtime import rows
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession

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
        """The session, to be changed. Raises as :meth:`find`, and ``session-closed``."""
        self.find(principal, session_id, scope)
        session = self.load(session_id)
        if session.is_closed:
            raise CallerError("session-closed", "This session is closed.")
        return session

    def load(self, session_id: str) -> LiveSession:
        """The session in memory, made from its row where it is not."""
        if session := self.live.get(session_id):
            return session
        row = self._services.tables.session(session_id)
        if row is None or row.status == PURGED:
            raise not_found()
        view = rows.view_of(row)
        session = LiveSession(
            self._services,
            session_id,
            projection=Projection.resume(view),
            private=rows.private_of(row),
            permissions=self._permissions(view.get("permissions")),
        )
        self.live[session_id] = session
        return session

    def add(self, session: LiveSession) -> None:
        """A session that has just been made."""
        self.live[session.session_id] = session

    def unload(self, session: LiveSession) -> None:
        """Nothing of it needs memory any more; its row says all of it."""
        if self.live.get(session.session_id) is not session:
            return
        del self.live[session.session_id]
        session.projection.close_stretch()
        session.private["isOpen"] = False
        if session.projection.view:
            rows.project(session, None)
        self._services.store.release(session.session_id)

    def flush(self) -> None:
        """Bring the rows of sessions that are being written up to date, before a list."""
        tables = self._services.tables
        with tables.transaction():
            for session in self.live.values():
                if not session.is_provisional and session.is_touched:
                    session.is_touched = False
                    rows.touch(session)

    def snapshot(self, session_id: str) -> dict[str, Any]:
        """The committed Session with its positions."""
        if session := self.live.get(session_id):
            if session.is_provisional:
                raise not_found()
            return session.snapshot()
        row = self._services.tables.session(session_id)
        if row is None or row.status == PURGED:
            raise not_found()
        log = self._services.store.log(session_id)
        return rows.view_of(row) | {
            "firstSeq": log.first_seq,
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

    def _permissions(self, shown: Any) -> Permissions:
        return rules.parse(shown or {"rules": []}, allow_always=True)


def not_found() -> CallerError:
    """The same for a session that never was and one that is not this caller's."""
    return CallerError("session-not-found", "There is no such session.")
