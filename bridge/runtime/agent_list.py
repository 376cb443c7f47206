"""The agent's own ``session/list``: asked of a process that is there, or of one for the purpose.

What belongs to a session of another owner is left out, and what lies outside the caller's roots:
an agent that shares one home among owners shows all of them everything.
"""

from __future__ import annotations

from typing import Any

from bridge.errors import CallerError
from bridge.principal import Principal
from bridge.protocol import acp
from bridge.protocol.connection import Received
from bridge.runtime.launch import launch
from bridge.runtime.link import AgentLink
from bridge.runtime.process import ExitStatus
from bridge.runtime.registry import Registry
from bridge.runtime.roots import is_inside, is_path
from bridge.runtime.services import Services


class Errand:
    """The owner of a process that is started for one question."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def link_started(self, link: AgentLink) -> None:
        """It runs."""

    def handle(self, link: AgentLink, received: list[Received]) -> None:
        """Nothing it says by itself matters here."""

    def link_broke(self, link: AgentLink) -> None:
        """End it."""
        self._services.tasks.start_soon(link.stop, self._services)

    def link_ended(self, link: AgentLink, status: ExitStatus) -> None:
        """Its slot is free."""
        del status
        self._services.processes.ended(link)


async def agent_sessions(
    services: Services,
    registry: Registry,
    principal: Principal,
    *,
    agent: str,
    cwd: str,
    roots: tuple[str, ...],
    is_narrowed: bool,
    cursor: str | None,
) -> dict[str, Any]:
    """The result of session/list; ``is_narrowed`` asks for ``cwd`` alone.

    Raises ``not-supported`` where the agent has no list, ``AgentError``, ``CapacityError``.
    """
    link, is_borrowed = _borrow(registry, principal, agent), True
    if link is None:
        slot = await services.processes.acquire(None)
        errand = Errand(services)
        link = await launch(services, slot, errand, agent=agent, owner=principal.owner, cwd=cwd)
        is_borrowed = False
    try:
        result = await _ask(services, link, cwd if is_narrowed else None, cursor)
    finally:
        if not is_borrowed:
            link.is_expected_to_end = True
            await link.stop(services)
    listed = result.get("sessions")
    result["sessions"] = [
        each
        for each in (listed if isinstance(listed, list) else [])
        if _is_visible(services, principal, agent, each) and _is_in(services, roots, each)
    ]
    return result


async def _ask(
    services: Services, link: AgentLink, cwd: str | None, cursor: str | None
) -> dict[str, Any]:
    offered = link.capabilities.get("sessionCapabilities")
    if not isinstance(offered, dict) or offered.get("list") is None:
        raise CallerError("not-supported", "This agent cannot list its conversations.")
    params = acp.list_sessions(cwd, cursor)
    result = await link.call("session/list", params, limit_s=services.settings.limits.call_s)
    return dict(result) if isinstance(result, dict) else {}


def _borrow(registry: Registry, principal: Principal, agent: str) -> AgentLink | None:
    for session in registry.live.values():
        is_fitting = session.agent == agent and session.owner == principal.owner
        if is_fitting and session.is_live and session.link is not None:
            return session.link
    return None


def _is_visible(services: Services, principal: Principal, agent: str, listed: Any) -> bool:
    if not isinstance(listed, dict):
        return False
    session_id = listed.get("sessionId")
    if not isinstance(session_id, str) or not is_path(session_id):
        return False
    owners = [row.owner for row in services.tables.by_agent_session(agent, session_id)]
    return not owners or principal.owner in owners


def _is_in(services: Services, roots: tuple[str, ...], listed: dict[str, Any]) -> bool:
    """Where the agent names no folder, ``resume`` decides by its own."""
    cwd = listed.get("cwd")
    if not isinstance(cwd, str) or not is_path(cwd):
        return cwd is None
    return any(is_inside(services.resolve(cwd), root) for root in roots)
