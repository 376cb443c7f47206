"""A session's process: started, revived, hibernated, stopped.

Everything here waits, so everything here runs under the session's lock, is bounded by the limits
of the configuration, and leaves no process behind when it fails. What a process says meanwhile
goes through the inbox as always.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from bridge.errors import AgentError, BridgeError, CallerError
from bridge.protocol import acp, options
from bridge.runtime import agent_options, handshake, turn_flow
from bridge.runtime.inbox import Inbox
from bridge.runtime.launch import launch
from bridge.runtime.link import AgentLink
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession

_ATTEMPTS: Final = 2

Opening = Callable[[AgentLink], Awaitable[dict[str, Any]]]


async def open_link(session: LiveSession) -> AgentLink:
    """An initialised process for this session, counted against the limit; a warm one, if there is.

    Raises ``at-capacity`` where none may be started, ``AgentError`` where it fails.
    """
    services = session.services
    if (warm := services.processes.take_warm(session)) is not None:
        return warm
    slot = await services.processes.acquire(session)
    return await launch(
        services,
        slot,
        Inbox(session),
        agent=session.agent,
        owner=session.owner,
        cwd=session.cwd,
    )


async def discard(session: LiveSession, link: AgentLink) -> None:
    """End a process that is of no use; the session has none afterwards."""
    link.is_expected_to_end = True
    if session.link is link:
        session.link = None
    await link.stop(session.services)


class StartGivenUp(AgentError):
    """A hard cancel ended the agent while it was starting."""


async def start(session: LiveSession, opening: Opening) -> dict[str, Any]:
    """Start the agent and open a conversation; one more try on a new process if it may help.

    Returns the result of session/new or session/load. Raises ``AgentError``/``CapacityError``,
    ``path-outside-roots``, and ``StartGivenUp`` where :func:`end_hard` is called meanwhile.
    """
    with anyio.CancelScope() as session.start_scope:
        try:
            return await _start(session, opening)
        finally:
            session.start_scope = None
    raise StartGivenUp("agent-exited", "A hard cancel ended the agent while it was starting.")


async def _start(session: LiveSession, opening: Opening) -> dict[str, Any]:
    # The roots may be others than when the session was made.
    extra = session.private.get("additionalDirectories") or []
    session.services.hooks.roots.check([session.cwd, *extra])
    for attempt in range(_ATTEMPTS):
        link: AgentLink | None = None
        try:
            link = await open_link(session)
            _check_open(session)
            result = await opening(link)
            session.services.processes.warm.used(session)
            return result
        except BridgeError as error:
            if link is not None:
                await discard(session, link)
                link.explain(error)
            _check_open(session)
            if attempt + 1 == _ATTEMPTS or not handshake.is_transient(error):
                raise
        except BaseException:
            if link is not None:
                await discard(session, link)
            raise
    raise AssertionError("unreachable")


def _check_open(session: LiveSession) -> None:
    if session.is_closed:
        raise CallerError("session-closed", "This session was closed meanwhile.")


def new_params(session: LiveSession) -> bytes:
    """The parameters of session/new and session/load that the caller chose."""
    private = session.private
    return acp.new_session(
        session.cwd,
        private.get("mcpServers") or [],
        private.get("additionalDirectories") or [],
        private.get("meta"),
    )


def load_params(session: LiveSession, agent_session_id: str) -> bytes:
    """The same, for a conversation the agent has."""
    private = session.private
    return acp.load_session(
        agent_session_id,
        session.cwd,
        private.get("mcpServers") or [],
        private.get("additionalDirectories") or [],
        private.get("meta"),
    )


def opening_new(session: LiveSession) -> Opening:
    """Open a new conversation."""

    async def opening(link: AgentLink) -> dict[str, Any]:
        agent = session.services.agent(session.agent)
        limits = session.services.settings.limits
        result = await handshake.new_session(link, agent, limits, new_params(session))
        session.agent_session_id = result["sessionId"]
        return result

    return opening


def opening_load(session: LiveSession, agent_session_id: str, replay: str) -> Opening:
    """Take up a conversation behind the replay gate: ``drop`` or ``mark`` what is replayed.

    The replay may go on after the response (Emanuele-web04/synara#811), so the gate opens only
    once it has been quiet.
    """

    async def opening(link: AgentLink) -> dict[str, Any]:
        agent = session.services.agent(session.agent)
        limits = session.services.settings.limits
        session.agent_session_id = agent_session_id
        session.replay = replay
        try:
            params = load_params(session, agent_session_id)
            result = await handshake.load_session(link, agent, limits, params)
            await _until_quiet(link, limits.load_quiet_s, limits.load_session_s)
        finally:
            session.replay = "off"
        return result

    return opening


async def ensure_live(session: LiveSession, *, on_lost: str = "fail") -> None:
    """Bring back a hibernated or failed session. The caller holds the lock.

    Raises ``session-lost`` unless ``on_lost`` is ``new``, in which case a new conversation takes
    the old one's place, said by a ``bridge/warning``.
    """
    if session.is_live:
        return
    if session.link is not None:
        await discard(session, session.link)
    chosen = dict(session.projection.view)
    session.is_starting = True
    session.refresh()
    session.commit()
    try:
        result = await _reopen(session, on_lost)
        session.problem = None
        await _restore_options(session, result, chosen)
    finally:
        session.is_starting = False
        session.idle_since = session.services.monotonic()
        session.refresh()
        session.commit()


@asynccontextmanager
async def revived(session: LiveSession) -> AsyncIterator[None]:
    """The session with its process, under its lock, for what is no turn.

    Whether that succeeds or not: prompts that came meanwhile wait for nobody else. Raises as
    :func:`ensure_live`.
    """
    async with session.lock:
        try:
            await ensure_live(session)
            yield
        finally:
            if session.queue and session.turn is None:
                session.services.advance(session)


async def hibernate(session: LiveSession) -> None:
    """Stop the process of a session that is doing nothing; what it says last is still logged."""
    async with session.lock:
        link = session.link
        if link is None or session.turn is not None or session.queue or len(session.held):
            return
        if session.is_jammed:
            return
        link.is_expected_to_end = True
        await link.stop(session.services)
        session.projection.close_stretch()
        session.refresh()
        session.commit()


def end_hard(session: LiveSession) -> None:
    """End the whole process group at once; the running turn ends by the exit.

    From here on nothing begins on that process. A start that is under way is given up, whatever
    it waits for.
    """
    if session.start_scope is not None:
        session.start_scope.cancel()
    link = session.link
    if link is not None:
        link.is_expected_to_end = True
        link.is_stopping = True
        session.services.tasks.start_soon(kill, link, session.services)


async def kill(link: AgentLink, services: Services) -> None:
    """What :func:`end_hard` leaves to a task."""
    await link.stop(services, is_hard=True)


async def advance(session: LiveSession) -> None:
    """Begin queued turns, reviving the session inside the first of them where needed."""
    async with session.lock:
        while session.queue and session.turn is None and not session.is_closed:
            if session.services.is_draining:
                return
            turn_id = session.queue[0].turn_id
            asked = session.prompts.get(turn_id, {})
            try:
                await ensure_live(session, on_lost=asked.get("on_lost", "fail"))
                if mode := asked.get("mode"):
                    await agent_options.set_mode(session, mode)
                    asked["mode"] = None
            except BridgeError as error:
                _fail_queued(session, turn_id, error)
                continue
            if session.queue and session.queue[0].turn_id == turn_id and session.is_live:
                turn_flow.begin(session)
                session.commit()


def _fail_queued(session: LiveSession, turn_id: str, error: BridgeError) -> None:
    turn = session.projection.turn_of(turn_id)
    if turn is None or turn.has_ended:
        session.commit()
        return
    turn.error = session.services.describe(error)
    turn_flow.drop_queued(session, turn, "fail", "error")
    if error.code not in ("at-capacity", "draining"):
        session.problem = turn.error
    session.commit()


async def _reopen(session: LiveSession, on_lost: str) -> dict[str, Any]:
    known = session.agent_session_id
    if known is None:
        return await start(session, opening_new(session))
    try:
        return await start(session, opening_load(session, known, "drop"))
    except AgentError as error:
        if error.code != "session-lost" or on_lost != "new":
            raise
    session.note("session-lost", "The agent no longer had the conversation; a new one began.")
    return await start(session, opening_new(session))


async def _restore_options(
    session: LiveSession, result: dict[str, Any], chosen: dict[str, Any]
) -> None:
    """Mode, model and options as they were before, since a load forgets them."""
    fresh = options.from_result(result)
    session.change(**{name: value for name, value in fresh.items() if value})
    if session.link is not None:
        session.change(capabilities=session.link.capabilities)
    session.commit()
    await agent_options.restore(session, chosen)


async def _until_quiet(link: AgentLink, quiet_s: float, limit_s: float) -> None:
    """Raises ``agent-timeout``: what is still being replayed must not become the next turn's."""
    with anyio.move_on_after(limit_s):
        while link.is_alive:
            activity = link.activity
            with anyio.move_on_after(quiet_s) as pause:
                await activity.wait()
            if pause.cancelled_caught:
                return
        return
    raise AgentError(
        "agent-timeout", f"The agent was still replaying the conversation after {limit_s:g} s."
    )
