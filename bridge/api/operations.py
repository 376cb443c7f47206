"""Every operation of the HTTP surface in one table: path, method, endpoint, access, words.

The router, the guard and the OpenAPI document are all made from it, so that none can say
something the others do not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from bridge.api import access, around, events, requests, schemas, sessions, turns
from bridge.api.access import Access, GuardedRoute
from bridge.errors import Code

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path.

    ``body`` is the model of the request body; ``answers`` maps a status to the name of the schema
    of its JSON body (``""``: no body); ``problems`` are the codes of its own, beside those that
    any request may meet; ``query`` names its query parameters.
    """

    method: str
    path: str
    endpoint: Endpoint
    access: Access
    name: str
    summary: str
    answers: dict[int, str]
    body: type[BaseModel] | None = None
    is_body_optional: bool = False
    problems: tuple[Code, ...] = ()
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    is_stream: bool = False
    tag: str = "sessions"
    notes: str = field(default="")


_SESSION = "/v1/sessions/{sessionId}"
_AGENT_PROBLEMS: Final[tuple[Code, ...]] = (
    "agent-error",
    "agent-auth-required",
    "agent-protocol-error",
    "agent-exited",
    "agent-unavailable",
    "agent-timeout",
    "at-capacity",
    "draining",
    "storage-full",
)
_LIST: Final = ("limit", "cursor")
_WAKES: Final[tuple[Code, ...]] = ("session-not-found", "session-closed", "session-lost")

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/v1/me",
        around.me,
        access.READ,
        "getMe",
        "Who is asking, and what this bridge allows",
        {200: "Me"},
        tag="bridge",
    ),
    Operation(
        "GET",
        "/v1/agents",
        around.agents,
        access.READ,
        "listAgents",
        "The agents that sessions can have",
        {200: "AgentList"},
        tag="agents",
    ),
    Operation(
        "GET",
        "/v1/agents/{agentId}",
        around.agent,
        access.READ,
        "getAgent",
        "One agent",
        {200: "Agent"},
        problems=("agent-not-found",),
        tag="agents",
    ),
    Operation(
        "GET",
        "/v1/agents/{agentId}/sessions",
        around.agent_sessions,
        access.PROMPT,
        "listAgentSessions",
        "The agent's own conversations, to take one up with `resume`",
        {200: "AgentSessionList"},
        problems=("agent-not-found", "not-supported", "path-outside-roots", *_AGENT_PROBLEMS),
        query=("cwd", "cursor"),
        tag="agents",
    ),
    Operation(
        "GET",
        "/v1/folders",
        around.folders,
        access.READ,
        "listFolders",
        "Folders inside the roots",
        {200: "FolderList"},
        problems=("path-outside-roots",),
        query=("path",),
        tag="bridge",
    ),
    Operation(
        "POST",
        "/v1/sessions",
        sessions.create,
        Access("prompt", rate="sessions"),
        "createSession",
        "Start a session",
        {201: "Session", 202: "Session"},
        body=schemas.CreateSessionBody,
        problems=(
            "agent-not-found",
            "path-outside-roots",
            "session-already-open",
            "session-lost",
            "mode-not-available",
            "model-not-available",
            "config-not-available",
            "idempotency-conflict",
            "idempotency-key-reused",
            *_AGENT_PROBLEMS,
        ),
        headers=("Idempotency-Key", "Prefer"),
    ),
    Operation(
        "GET",
        "/v1/sessions",
        sessions.page,
        access.READ,
        "listSessions",
        "Sessions, latest activity first",
        {200: "SessionList"},
        query=("status", "agent", "q", *_LIST),
    ),
    Operation(
        "GET",
        _SESSION,
        sessions.read,
        access.READ,
        "getSession",
        "One session",
        {200: "Session"},
        problems=("session-not-found",),
    ),
    Operation(
        "PATCH",
        _SESSION,
        sessions.patch,
        access.PROMPT,
        "patchSession",
        "Change title, metadata or permissions",
        {200: "Session"},
        body=schemas.PatchSessionBody,
        problems=("session-not-found", "session-closed"),
    ),
    Operation(
        "DELETE",
        _SESSION,
        sessions.delete,
        access.PROMPT,
        "deleteSession",
        "Close a session, or purge it",
        {204: ""},
        query=("purge",),
        problems=("session-not-found",),
    ),
    Operation(
        "POST",
        f"{_SESSION}/prompt",
        turns.prompt,
        Access("prompt", rate="prompts"),
        "prompt",
        "Begin a turn",
        {200: "Turn", 202: "Turn"},
        body=schemas.PromptBody,
        problems=(
            "session-not-found",
            "session-closed",
            "turn-in-progress",
            "content-not-supported",
            "idempotency-conflict",
            "idempotency-key-reused",
            "at-capacity",
            "draining",
            "storage-full",
        ),
        headers=("Idempotency-Key", "Prefer"),
        is_stream=True,
        tag="turns",
    ),
    Operation(
        "GET",
        f"{_SESSION}/turns",
        turns.page,
        access.READ,
        "listTurns",
        "Turns, newest first",
        {200: "TurnList"},
        problems=("session-not-found",),
        query=_LIST,
        tag="turns",
    ),
    Operation(
        "GET",
        f"{_SESSION}/turns/{{turnId}}",
        turns.read,
        access.READ,
        "getTurn",
        "One turn; with `Prefer: wait` once it has ended or waits for a person",
        {200: "Turn"},
        problems=("session-not-found", "turn-not-found"),
        headers=("Prefer",),
        tag="turns",
    ),
    Operation(
        "POST",
        f"{_SESSION}/turns/{{turnId}}/cancel",
        turns.cancel_turn,
        access.CANCEL,
        "cancelTurn",
        "Cancel this turn, also a queued one",
        {200: "CancelResult", 202: "CancelResult"},
        body=schemas.CancelTurnBody,
        is_body_optional=True,
        problems=("session-not-found", "turn-not-found"),
        tag="turns",
    ),
    Operation(
        "POST",
        f"{_SESSION}/cancel",
        turns.cancel,
        access.CANCEL,
        "cancel",
        "Cancel the running turn",
        {200: "CancelResult", 202: "CancelResult"},
        body=schemas.CancelBody,
        is_body_optional=True,
        problems=("session-not-found",),
        tag="turns",
    ),
    Operation(
        "PUT",
        f"{_SESSION}/mode",
        sessions.set_mode,
        access.PROMPT,
        "setMode",
        "Choose one of the agent's modes",
        {200: "Session"},
        body=schemas.ModeBody,
        problems=(*_WAKES, "mode-not-available", *_AGENT_PROBLEMS),
    ),
    Operation(
        "PUT",
        f"{_SESSION}/model",
        sessions.set_model,
        access.PROMPT,
        "setModel",
        "Choose one of the agent's models",
        {200: "Session"},
        body=schemas.ModelBody,
        problems=(*_WAKES, "model-not-available", *_AGENT_PROBLEMS),
    ),
    Operation(
        "PUT",
        f"{_SESSION}/config/{{configId}}",
        sessions.set_config,
        access.PROMPT,
        "setConfig",
        "Set one of the agent's options",
        {200: "Session"},
        body=schemas.ConfigBody,
        problems=(*_WAKES, "config-not-available", *_AGENT_PROBLEMS),
    ),
    Operation(
        "POST",
        f"{_SESSION}/ext",
        sessions.extend,
        access.PROMPT,
        "callExtension",
        "Call an extension method of the agent",
        {200: "ExtensionResult"},
        body=schemas.ExtensionBody,
        problems=(*_WAKES, "method-not-allowed", *_AGENT_PROBLEMS),
    ),
    Operation(
        "GET",
        f"{_SESSION}/requests",
        requests.page,
        access.READ,
        "listSessionRequests",
        "What the agent asks of people",
        {200: "RequestList"},
        problems=("session-not-found",),
        query=("status", *_LIST),
        tag="requests",
    ),
    Operation(
        "GET",
        f"{_SESSION}/requests/{{requestId}}",
        requests.read,
        access.READ,
        "getRequest",
        "One request",
        {200: "Request"},
        problems=("session-not-found", "request-not-found"),
        tag="requests",
    ),
    Operation(
        "POST",
        f"{_SESSION}/requests/{{requestId}}/reply",
        requests.reply,
        access.APPROVE,
        "reply",
        "Answer a request; the first valid reply wins",
        {200: "Request"},
        body=schemas.ReplyBody,
        problems=(
            "session-not-found",
            "request-not-found",
            "request-already-answered",
            "request-withdrawn",
            "reply-not-valid",
            "idempotency-conflict",
            "idempotency-key-reused",
            "storage-full",
        ),
        headers=("Idempotency-Key",),
        tag="requests",
    ),
    Operation(
        "GET",
        "/v1/requests",
        requests.page,
        access.READ,
        "listRequests",
        "What waits for people, over all sessions",
        {200: "RequestList"},
        query=("status", *_LIST),
        tag="requests",
    ),
    Operation(
        "GET",
        f"{_SESSION}/events",
        events.of_session,
        access.READ,
        "streamSessionEvents",
        "The session's events, as a stream or a page",
        {200: "EventPage", 204: ""},
        problems=("session-not-found", "rate-limited"),
        query=("after", "limit", "wait", "types", "named", "format"),
        headers=("Last-Event-ID",),
        is_stream=True,
        tag="events",
    ),
    Operation(
        "GET",
        "/v1/events",
        events.of_all,
        access.READ,
        "streamEvents",
        "The events of all sessions, as a stream or a page",
        {200: "EventPage"},
        problems=("rate-limited",),
        query=("after", "limit", "wait", "types", "named", "format", "sessions"),
        headers=("Last-Event-ID",),
        is_stream=True,
        tag="events",
    ),
    Operation(
        "GET",
        f"{_SESSION}/transcript",
        sessions.transcript,
        access.READ,
        "getTranscript",
        "What a person reads, folded from the log",
        {200: "Transcript"},
        problems=("session-not-found",),
        query=("before", "limit"),
    ),
    Operation(
        "GET",
        f"{_SESSION}/files",
        around.file,
        access.READ,
        "getFile",
        "A file of the session's folder, as attachment",
        {200: "binary"},
        problems=("session-not-found", "not-found"),
        query=("path",),
    ),
    Operation(
        "GET",
        "/healthz",
        around.healthz,
        access.PUBLIC,
        "healthz",
        "Whether the bridge is alive",
        {200: "Health"},
        tag="bridge",
    ),
    Operation(
        "GET",
        "/readyz",
        around.readyz,
        access.PUBLIC,
        "readyz",
        "Whether it can take a session",
        {200: "Health", 503: "Health"},
        tag="bridge",
    ),
    Operation(
        "GET",
        "/metrics",
        around.metrics,
        access.READ,
        "metrics",
        "Prometheus metrics",
        {200: "text"},
        tag="bridge",
    ),
    Operation(
        "GET",
        "/openapi.json",
        around.openapi,
        access.PUBLIC,
        "openapi",
        "This document",
        {200: "object"},
        tag="bridge",
    ),
    Operation(
        "GET",
        "/docs",
        around.docs,
        access.PUBLIC,
        "docs",
        "This document for people",
        {200: "html"},
        tag="bridge",
    ),
    Operation(
        "GET",
        "/",
        around.index,
        access.PUBLIC,
        "index",
        "The web page",
        {200: "html"},
        tag="bridge",
    ),
)


def routes() -> list[GuardedRoute]:
    """The router's table."""
    return [
        GuardedRoute(
            each.path,
            each.endpoint,
            access=each.access,
            methods=[each.method],
            name=each.name,
        )
        for each in OPERATIONS
    ]
