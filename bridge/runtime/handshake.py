"""The first exchange with a new agent process, and what its failures mean.

``initialize`` → ``session/new`` or ``session/load`` → ``authenticate`` only when the agent answers
-32000: asking for it needlessly opens browsers or hangs (pingdotgg/t3code#7244, #7245). Login
links never reach a caller. Each step has its own time limit.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable
from typing import Any, Final

from bridge.config import Agent, Limits
from bridge.errors import AgentError, BridgeError
from bridge.protocol import acp
from bridge.redact import redact, without_links
from bridge.runtime.find import login_argv
from bridge.runtime.link import AUTH_REQUIRED, AgentLink

_TRANSIENT_CODE: Final = -32603
_NOT_FOUND: Final = re.compile(
    r"\b(?:session|conversation|thread|resource)\b.{0,120}(?:not found|does not exist)"
    r"|unknown session|no such session|\bno (?:\w+ )?sessions?\b|invalid session id",
    re.IGNORECASE,
)
"""Every agent has words and a code of its own for it; the words are more alike than the codes."""

Call = Callable[[], Awaitable[Any]]


async def initialize(link: AgentLink, agent: Agent, limits: Limits, version: str) -> None:
    """Agree on the protocol and learn what the agent can do.

    Builds that leave out ``protocolVersion`` speak version 1. Raises ``AgentError``.
    """
    params = acp.initialize(
        version, has_model_picker=agent.dialect == "cursor" and agent.model_picker
    )
    result = await link.call("initialize", params, limit_s=limits.initialize_s)
    if not isinstance(result, dict):
        raise AgentError("agent-protocol-error", "The agent's answer to initialize is no object.")
    if result.get("protocolVersion") not in (None, 1):
        raise AgentError(
            "agent-protocol-error",
            f"The agent speaks ACP version {result['protocolVersion']!r}; the bridge speaks 1.",
        )
    capabilities = result.get("agentCapabilities")
    link.initialized = result
    link.capabilities = capabilities if isinstance(capabilities, dict) else {}


async def new_session(
    link: AgentLink, agent: Agent, limits: Limits, params: bytes
) -> dict[str, Any]:
    """``session/new``; returns its result, which names the session. Raises ``AgentError``."""

    async def ask() -> Any:
        return await link.call("session/new", params, limit_s=limits.new_session_s)

    result = await _with_login(link, agent, limits, ask)
    if not isinstance(result, dict) or not isinstance(result.get("sessionId"), str):
        raise AgentError("agent-protocol-error", "The agent's session/new names no session.")
    return result


async def load_session(
    link: AgentLink, agent: Agent, limits: Limits, params: bytes
) -> dict[str, Any]:
    """``session/load``; returns its result, which may be empty.

    Raises ``session-lost`` where the agent no longer has the conversation, or cannot load any.
    """
    if link.capabilities.get("loadSession") is not True:
        raise AgentError(
            "session-lost",
            "This agent cannot take up an earlier conversation.",
            hint="Prompt again with onLost: new to go on without its memory.",
        )

    async def ask() -> Any:
        return await link.call("session/load", params, limit_s=limits.load_session_s)

    try:
        result = await _with_login(link, agent, limits, ask)
    except AgentError as error:
        if _says_not_found(error):
            raise AgentError(
                "session-lost",
                "The agent no longer has this conversation.",
                hint="Prompt again with onLost: new to go on without its memory.",
                agentError=error.extra.get("agentError"),
            ) from None
        raise
    return result if isinstance(result, dict) else {}


def is_transient(error: BridgeError) -> bool:
    """Whether a new process may do better (zed-industries/zed#57035, riteway#440)."""
    if error.code == "agent-exited":
        return True
    return error.code == "agent-error" and _code_of(error) == _TRANSIENT_CODE


async def _with_login(link: AgentLink, agent: Agent, limits: Limits, ask: Call) -> Any:
    try:
        return await ask()
    except AgentError as error:
        if _code_of(error) != AUTH_REQUIRED:
            raise
        if not agent.auth_method:
            raise login_needed(link, agent) from None
    params = acp.authenticate(agent.auth_method)
    try:
        await link.call("authenticate", params, limit_s=limits.authenticate_s)
        return await ask()
    except AgentError as error:
        if error.code == "agent-exited":
            raise
        raise login_needed(link, agent, cause=error) from None


def login_needed(link: AgentLink, agent: Agent, cause: AgentError | None = None) -> AgentError:
    """The problem of an agent that nobody is logged in to, with the command that mends it."""
    offered = link.initialized.get("authMethods")
    methods = [
        each.get("id")
        for each in (offered if isinstance(offered, list) else [])
        if isinstance(each, dict)
    ]
    if agent.dialect == "cursor":
        words = login_argv(link.program, agent.endpoint, agent.insecure_tls)
        hint = (
            f"Run `{shlex.join(words)}` on the bridge's box, or set CURSOR_API_KEY for the agent."
        )
    else:
        hint = "Log in with the agent's own command on the bridge's box, or set `auth_method`."
    extra: dict[str, Any] = {"authMethods": methods}
    if cause is not None:
        extra["reason"] = without_links(redact(cause.detail, ()))
    return AgentError("agent-auth-required", "The agent asks for a login.", hint=hint, **extra)


def _says_not_found(error: AgentError) -> bool:
    agent_error = error.extra.get("agentError")
    if not isinstance(agent_error, dict):
        return False
    return _NOT_FOUND.search(f"{agent_error.get('message')} {agent_error.get('data')}") is not None


def _code_of(error: BridgeError) -> Any:
    agent_error = error.extra.get("agentError")
    return agent_error.get("code") if isinstance(agent_error, dict) else None
