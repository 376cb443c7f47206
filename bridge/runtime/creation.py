"""Making a session: checked, begun with the agent, then committed; or nothing at all.

A session that is answered only after the handshake is provisional until then: it is in no list,
its entries wait in memory, and a failure leaves nothing behind. With ``is_async`` and ``resume``
it is committed first and its start is told as events.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from bridge.clock import rfc3339
from bridge.errors import AgentError, BridgeError, CallerError, CapacityError, StorageError
from bridge.ids import new_id
from bridge.protocol import handed, options, rules
from bridge.protocol.projection import Projection
from bridge.protocol.view import new_view
from bridge.runtime import agent_options, lifecycle, rows, turn_flow
from bridge.runtime.catalog import Catalog
from bridge.runtime.commands import CreateSession
from bridge.runtime.keys import Claim
from bridge.runtime.registry import Registry
from bridge.runtime.roots import Roots
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession

_RETRY_AFTER_S: Final = 60
_UNSEEN: Final = (
    "The agent asks for something before it makes a session. Create it with Prefer: respond-async, "
    "then the question is one of its requests."
)


class Creation:
    """Carries out :class:`CreateSession`."""

    def __init__(
        self, services: Services, registry: Registry, catalog: Catalog, roots: Roots
    ) -> None:
        self._services = services
        self._registry = registry
        self._catalog = catalog
        self._roots = roots

    async def create(self, command: CreateSession, claim: Claim) -> LiveSession:
        """A session of ``command``; the claim's key goes into the record that makes it.

        Raises ``CallerError``, ``AgentError``, ``CapacityError``; then no session is left.
        """
        session = self._prepare(command)
        self._registry.add(session)
        try:
            if command.resume is not None or command.is_async:
                await self._begin_committed(session, command, claim)
            else:
                await self._begin(session, command)
                self._accept(session, command, claim)
        except BaseException:
            if session.is_provisional or session.log.last_seq == 0:
                self._leave_nothing(session)
            else:
                self._registry.unload(session)
            if session.link is not None:
                await lifecycle.discard(session, session.link)
            raise
        return session

    def _leave_nothing(self, session: LiveSession) -> None:
        """Also of one whose first commit found the disk full."""
        self._registry.live.pop(session.session_id, None)
        if session.is_provisional:
            return
        self._services.store.purge(session.session_id)
        # Where the tables refuse too, the next start finds a row without a log and removes it.
        with contextlib.suppress(*rows.UNWRITABLE):
            self._services.tables.forget_session(session.session_id)

    def _prepare(self, command: CreateSession) -> LiveSession:
        principal = command.principal
        agent = command.agent or self._catalog.default
        if agent not in self._catalog or (
            principal.agents is not None and agent not in principal.agents
        ):
            raise CallerError(
                "agent-not-found",
                f"There is no agent {agent!r}.",
                available=[
                    name
                    for name in self._catalog.names()
                    if principal.agents is None or name in principal.agents
                ],
            )
        self._catalog.argv(agent)
        self._check_count(principal.owner)
        cwd = self._roots.folder(principal, command.cwd)
        more = command.additional_directories
        extra = [self._roots.folder(principal, each, "additionalDirectories") for each in more]
        servers = self._servers(command)
        self._check_meta(command, agent)
        agent_options.check_choices(
            self._services, agent, principal, command.mode, dict(command.config)
        )
        if command.resume is not None:
            self._check_unused(command, agent)
        permissions = self._permissions(command, agent)
        view = new_view(
            new_id("ses"),
            owner=principal.owner,
            agent=agent,
            cwd=cwd,
            at=rfc3339(self._services.clock()),
            title=command.title,
            permissions=permissions.as_json(),
            metadata=dict(command.metadata),
        )
        private = {
            "mcpServers": servers,
            "additionalDirectories": extra,
            "meta": dict(command.meta) if command.meta else None,
            "callerTitle": command.title,
        }
        return LiveSession(
            self._services,
            view["sessionId"],
            projection=Projection(view),
            private=private,
            permissions=permissions,
            is_provisional=True,
        )

    def _check_count(self, owner: str) -> None:
        """Also counts those whose handshake is under way, so that a burst gains nothing."""
        most = self._services.settings.limits.max_sessions_per_owner
        begun = [each for each in self._registry.live.values() if each.is_provisional]
        count = self._services.tables.count_sessions(owner)
        if count + sum(each.owner == owner for each in begun) >= most:
            raise CapacityError(
                "rate-limited",
                f"This owner has {most} open sessions, which is as many as are allowed.",
                hint="Delete sessions that are done, or raise limits.max_sessions_per_owner.",
                retry_after_s=_RETRY_AFTER_S,
            )

    def _permissions(self, command: CreateSession, agent: str) -> rules.Permissions:
        allow_always = self._services.settings.permissions.allow_always
        if command.permissions is None:
            configured = self._services.agent(agent).permissions or {"rules": []}
            return rules.parse(configured, allow_always=allow_always)
        parsed = rules.parse(dict(command.permissions), allow_always=allow_always)
        check_allowing(command.principal.may("approve"), parsed)
        return parsed

    def _servers(self, command: CreateSession) -> list[dict[str, Any]]:
        is_permitted = self._services.settings.permissions.allow_mcp_stdio
        if not is_permitted and any(map(handed.is_command, command.mcp_servers)):
            raise CallerError(
                "forbidden",
                "A stdio MCP server runs a command on the box, which is not permitted here.",
                hint="The operator may set permissions.allow_mcp_stdio.",
            )
        try:
            return [handed.completed_server(each) for each in command.mcp_servers]
        except ValueError as error:
            raise CallerError("invalid-request", str(error)) from None

    def _check_meta(self, command: CreateSession, agent: str) -> None:
        """Some agents take a mode out of ``_meta``, where nobody could judge it."""
        is_judged = self._services.agent(agent).safe_modes is not None
        if command.meta and is_judged and not command.principal.may("approve"):
            raise CallerError("forbidden", "`_meta` needs the scope 'approve' with this agent.")

    def _check_unused(self, command: CreateSession, agent: str) -> None:
        """A conversation stays its owner's, also after its session was closed or purged."""
        principal = command.principal
        for row in self._services.tables.by_agent_session(agent, command.resume or ""):
            is_over = row.status in ("closed", "purged")
            is_visible = self._registry.sees(principal, row.session_id)
            if is_visible and is_over and principal.is_own(row.owner):
                continue
            if is_visible and not is_over:
                raise CallerError(
                    "session-already-open",
                    "This conversation is one of the bridge's sessions already.",
                    sessionId=row.session_id,
                )
            raise CallerError("session-lost", "The agent has no such conversation for this owner.")

    async def _begin(self, session: LiveSession, command: CreateSession) -> None:
        """The handshake and what was asked for; the session stays provisional."""
        async with session.lock:
            session.is_starting = True
            try:
                result = await lifecycle.start(session, lifecycle.opening_new(session))
                await self._settle(session, command, result)
            except AgentError as error:
                if error.code == "agent-auth-required":
                    self._catalog.needs_login(session.agent, session.owner)
                if error.code == "agent-timeout" and len(session.held):
                    error.hint = _UNSEEN
                raise
            finally:
                session.is_starting = False

    async def _settle(
        self, session: LiveSession, command: CreateSession, result: dict[str, Any]
    ) -> None:
        fresh = options.from_result(result)
        assert session.link is not None
        # Only now is it known which option chooses the mode.
        agent_options.check_choices(
            self._services,
            session.agent,
            command.principal,
            command.mode,
            dict(command.config),
            fresh["configOptions"],
        )
        session.change(**fresh, capabilities=session.link.capabilities)
        session.commit()
        await agent_options.apply_defaults(session)
        await agent_options.apply_choices(
            session, mode=command.mode, model=command.model, config=dict(command.config)
        )
        await agent_options.leave_unsafe(session, command.principal)
        self._catalog.learn(session.agent, session.link.initialized)
        self._catalog.opened(session.agent, session.owner, session.projection.view)

    def _accept(self, session: LiveSession, command: CreateSession, claim: Claim) -> None:
        view = session.projection.view | {
            "agentSessionId": session.agent_session_id,
            "status": session.status,
            "updatedAt": session.now,
        }
        if command.title:
            view["title"] = command.title
        self._save_first_row(view)
        session.accept(view)
        meta = claim.meta({"sessionId": session.session_id}) or {}
        session.commit(meta | {"private": session.private})

    def _save_first_row(self, view: dict[str, Any]) -> None:
        """The row that makes the log findable, written before its first entry."""
        row = rows.row_of(view, private={}, last_seq=0, last_id=0, is_open=True)
        try:
            self._services.tables.save_session(row)
        except rows.UNWRITABLE as error:
            raise StorageError("storage-full", "The disk is full; nothing was begun.") from error

    async def _begin_committed(
        self, session: LiveSession, command: CreateSession, claim: Claim
    ) -> None:
        """The session is there at once; its start is told as events."""
        session.is_starting = True
        session.agent_session_id = command.resume
        self._accept(session, command, claim)
        if command.is_async:
            begin = self._begin_behind if command.resume is None else self._take_up_behind
            self._services.tasks.start_soon(begin, session, command)
        else:
            await self._take_up(session, command)

    async def _take_up(self, session: LiveSession, command: CreateSession) -> None:
        """Load a conversation, whose replay is logged; a load that fails closes the session."""
        try:
            async with session.lock:
                await self._settle(session, command, await self._load(session, command))
        except BridgeError as error:
            self._give_up(session, error)
            raise
        except BaseException:
            self._give_up(session, AgentError("agent-error", "The start was given up."))
            raise
        self._started(session)

    async def _load(self, session: LiveSession, command: CreateSession) -> dict[str, Any]:
        """Whatever words an agent refuses with, the conversation cannot be had."""
        assert command.resume is not None
        try:
            opening = lifecycle.opening_load(session, command.resume, "mark")
            return await lifecycle.start(session, opening)
        except AgentError as error:
            if error.code != "agent-error":
                raise
            raise AgentError("session-lost", error.detail, **error.extra) from None

    async def _take_up_behind(self, session: LiveSession, command: CreateSession) -> None:
        try:
            await self._take_up(session, command)
        except BridgeError:
            # It was said as events; only the process is left.
            if session.link is not None:
                await lifecycle.discard(session, session.link)
            self._registry.unload(session)

    async def _begin_behind(self, session: LiveSession, command: CreateSession) -> None:
        try:
            await self._begin(session, command)
        except BridgeError as error:
            link, session.link = session.link, None
            if not session.is_closed:
                given_up = isinstance(error, lifecycle.StartGivenUp)
                session.problem = None if given_up else self._services.describe(error)
                self._started(session)
            if link is not None:
                await lifecycle.discard(session, link)
        else:
            self._started(session)

    def _started(self, session: LiveSession) -> None:
        session.is_starting = False
        session.idle_since = self._services.monotonic()
        session.refresh()
        session.commit()
        if session.queue:
            self._services.advance(session)

    def _give_up(self, session: LiveSession, error: BridgeError) -> None:
        """Close what could not be taken up, unless somebody deleted it meanwhile."""
        session.is_starting = False
        if session.is_closed:
            return
        turn_flow.fail_all(session, error.code, error.detail)
        session.is_closed = True
        session.problem = self._services.describe(error)
        session.emit("bridge/session_deleted", {"purged": False})
        session.commit()
        session.log.close()


def check_allowing(may_approve: bool, permissions: rules.Permissions) -> None:
    """Rules that allow are an approval given ahead, so they need that scope."""
    if permissions.is_allowing and not may_approve:
        raise CallerError("forbidden", "Rules that allow need the scope 'approve' as well.")
