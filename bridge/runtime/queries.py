"""Everything that can be read, as the contract shows it.

A snapshot carries the positions it was read at, taken in the same tick: whoever goes on from them
misses nothing and sees nothing twice. Who may see what is decided by the registry.
"""

from __future__ import annotations

from typing import Any

from bridge.errors import CallerError
from bridge.log.pages import PAGE_BYTES
from bridge.log.rows import RequestRow, TurnRow
from bridge.log.session_log import SessionLog
from bridge.principal import Principal
from bridge.protocol.acp import loads, loads_but
from bridge.protocol.turns import Turn
from bridge.runtime.catalog import Catalog
from bridge.runtime.registry import PURGED, Registry, not_found
from bridge.runtime.roots import Roots
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession

MAX_PAGE = 200

_NOT_IN_LISTS = ("configOptions", "commands")
_TEXTS = ("text", "finalText", "textTruncated")


class Queries:
    """Reads for one caller at a time."""

    def __init__(
        self, services: Services, registry: Registry, catalog: Catalog, roots: Roots
    ) -> None:
        self._services = services
        self._registry = registry
        self._catalog = catalog
        self._roots = roots

    # -- sessions -----------------------------------------------------------------------------

    def session(self, principal: Principal, session_id: str) -> dict[str, Any]:
        """One Session."""
        self._registry.find(principal, session_id)
        return self._registry.snapshot(session_id)

    def sessions(
        self,
        principal: Principal,
        *,
        status: str | None = None,
        agent: str | None = None,
        query: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> dict[str, Any]:
        """A page of sessions, latest activity first."""
        self._registry.flush()
        found, following = self._services.tables.list_sessions(
            owners=principal.owners,
            agents=principal.agents,
            status=status,
            agent=agent,
            query=query,
            cursor=cursor,
            limit=limit,
            roots=principal.roots,
        )
        shown = [_in_list(self._registry.shown(row)) for row in found if row.status != PURGED]
        return {"sessions": shown, "nextCursor": following, "lastId": self.last_id}

    def folder(self, principal: Principal, session_id: str) -> str:
        """Where the session's files are; raises ``path-outside-roots`` where that was a root."""
        cwd: str = self.session(principal, session_id)["cwd"]
        self._roots.check([cwd])
        return cwd

    @property
    def last_id(self) -> int:
        """The latest position over the whole bridge."""
        return self._services.store.last_id

    # -- turns --------------------------------------------------------------------------------

    def turn(self, principal: Principal, session_id: str, turn_id: str) -> dict[str, Any]:
        """One Turn, with its texts."""
        self.check_present(principal, session_id)
        if session := self._registry.live.get(session_id):
            known = session.projection.turn_of(turn_id)
            if known is not None and not known.has_ended:
                return known.as_full_json()
            for turn in session.projection.ended:
                # Its row is not written yet: the tables are behind.
                if turn.turn_id == turn_id:
                    return turn.as_full_json()
        row = self._services.tables.turn(turn_id)
        if row is None or row.session_id != session_id:
            raise CallerError("turn-not-found", "There is no such turn.")
        return _full(row)

    def turns(
        self, principal: Principal, session_id: str, *, cursor: str | None, limit: int
    ) -> dict[str, Any]:
        """A page of turns without their texts, newest first."""
        self.check_present(principal, session_id)
        found, following = self._services.tables.turns(session_id, cursor=cursor, limit=limit)
        return {"turns": [_brief(row) for row in found], "nextCursor": following}

    # -- requests -----------------------------------------------------------------------------

    def request(self, principal: Principal, session_id: str, request_id: str) -> dict[str, Any]:
        """One Request."""
        self.check_present(principal, session_id)
        session = self._registry.live.get(session_id)
        if session is not None and request_id in session.held:
            return session.held.get(request_id).as_json(session.reference())
        row = self._services.tables.request(request_id)
        if row is None or row.session_id != session_id:
            raise CallerError("request-not-found", "There is no such request.")
        return _shown(row)

    def requests(
        self,
        principal: Principal,
        *,
        session_id: str | None = None,
        status: str = "pending",
        cursor: str | None = None,
        limit: int = 50,
    ) -> dict[str, Any]:
        """A page of requests, oldest first: of one session, or of all the caller sees."""
        if session_id is not None:
            self.check_present(principal, session_id)
        found, following = self._services.tables.requests(
            session_id=session_id,
            owners=principal.owners,
            agents=principal.agents,
            status="pending" if status == "pending" else None,
            cursor=cursor,
            limit=limit,
            roots=principal.roots,
        )
        return {
            "requests": [_shown(row) for row in found],
            "nextCursor": following,
            "lastId": self.last_id,
        }

    # -- transcript ---------------------------------------------------------------------------

    def transcript(
        self, principal: Principal, session_id: str, *, before: int | None, limit: int
    ) -> dict[str, Any]:
        """The latest ``limit`` turns before ``before``, folded to what a person reads.

        Fewer where they are large; one at least.
        """
        self.check_present(principal, session_id)
        positions = self._registry.snapshot(session_id)
        items: list[dict[str, Any]] = []
        session = self._registry.live.get(session_id)
        room, size = limit, 0
        oldest = following = None
        if session is not None:
            page = session.projection.open_page()
            # A stretch without an item is no page yet: it must not stand in a shown one's place.
            if page is not None and page.items and (before is None or page.first_seq < before):
                items, oldest = page.items, page.first_seq
                room -= 1
        for row in self._services.tables.each_page(session_id, before, room + 1):
            if room <= 0 or size >= PAGE_BYTES:
                following = oldest
                break
            items = [*loads(row.items), *items]
            oldest = row.first_seq
            room, size = room - 1, size + len(row.items)
        return {
            "sessionId": session_id,
            "firstSeq": positions["firstSeq"],
            "lastSeq": positions["lastSeq"],
            "lastId": positions["lastId"],
            "items": items,
            "nextBefore": following,
            "truncated": any(item.get("truncated") for item in items),
        }

    # -- agents and folders -------------------------------------------------------------------

    def agents(self, principal: Principal) -> dict[str, Any]:
        """The agents this caller may use."""
        names = [name for name in self._catalog.names() if _may_use(principal, name)]
        return {"agents": [self._catalog.as_json(name, principal.owner) for name in names]}

    def agent(self, principal: Principal, name: str) -> dict[str, Any]:
        """One Agent. Raises ``agent-not-found``."""
        if name not in self._catalog or not _may_use(principal, name):
            raise CallerError("agent-not-found", f"There is no agent {name!r}.")
        return self._catalog.as_json(name, principal.owner)

    def folders(self, principal: Principal, path: str | None) -> dict[str, Any]:
        """The folders below ``path``, inside the roots."""
        return self._roots.list(principal, path)

    def roots(self, principal: Principal) -> list[str]:
        """The folders this caller's sessions may work in."""
        return list(self._roots.of(principal))

    # -- waiting ------------------------------------------------------------------------------

    def live(self, session_id: str) -> LiveSession | None:
        """The session in memory, for those who wait for a change of it."""
        return self._registry.live.get(session_id)

    def sees(self, principal: Principal, session_id: str) -> bool:
        """Whether the session's events belong into this caller's stream."""
        return self._registry.sees(principal, session_id)

    def sessions_after(self, principal: Principal, last_id: int) -> list[str]:
        """The visible sessions with entries after a position."""
        self._registry.flush()
        return self._services.tables.sessions_after(
            last_id, principal.owners, principal.agents, principal.roots
        )

    def log(self, principal: Principal, session_id: str) -> SessionLog:
        """The session's entries; closed for good where the session is, also after a restart."""
        self.check_present(principal, session_id)
        log = self._services.store.log(session_id)
        if not log.is_closed and self._is_closed(session_id):
            log.close()
        return log

    def _is_closed(self, session_id: str) -> bool:
        if session := self._registry.live.get(session_id):
            return session.is_closed
        row = self._services.tables.session(session_id)
        return row is not None and row.status == "closed"

    def check_present(self, principal: Principal, session_id: str) -> None:
        """Raises ``session-not-found``, also where only the tombstone is left."""
        self._registry.find(principal, session_id)
        row = (
            None if session_id in self._registry.live else self._services.tables.session(session_id)
        )
        if row is not None and row.status == PURGED:
            raise not_found()


def _may_use(principal: Principal, agent: str) -> bool:
    return principal.agents is None or agent in principal.agents


def _in_list(shown: dict[str, Any]) -> dict[str, Any]:
    brief = {name: value for name, value in shown.items() if name not in _NOT_IN_LISTS}
    if brief.get("model"):
        brief["model"] = {"current": brief["model"].get("current")}
    return brief


def _full(row: TurnRow) -> dict[str, Any]:
    shown: dict[str, Any] = loads(row.body)
    if "text" not in shown:
        shown = Turn.from_json(shown).as_full_json()
    return shown


def _brief(row: TurnRow) -> dict[str, Any]:
    """A turn without its texts, of which a long list would decode megabytes for nothing."""
    return loads_but(row.body, _TEXTS)


def _shown(row: RequestRow) -> dict[str, Any]:
    shown: dict[str, Any] = loads(row.body)
    return shown
