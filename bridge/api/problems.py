"""Errors as problem documents (RFC 9457); the only module that knows HTTP status codes.

One table gives every code of the contract its status and title, in the contract's order.
Everything that can go wrong ends here: errors of the bridge, the router's own exceptions, and
exceptions nobody foresaw. A document never carries a stack trace, and every text in it is
redacted, whoever wrote it. The runtime stores problems without status (``{code, detail, hint?,
extra?}``); :func:`complete_problem` makes of them what a Session or a Turn shows.

``invalid-request`` has two statuses: a request that cannot be read at all is raised as
:class:`MalformedRequest` (400), one that does not fit is any other error of that code (422).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, cast

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from bridge.errors import BridgeError, CallerError, Code
from bridge.redact import redact, redact_all

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:cursor-acp-bridge:problem:"


class Kind(NamedTuple):
    """What a code is over HTTP."""

    status: int
    title: str


KINDS: dict[Code, Kind] = {
    "invalid-request": Kind(422, "The request does not fit"),
    "unauthorized": Kind(401, "A valid token is needed"),
    "forbidden": Kind(403, "The token does not allow this"),
    "path-outside-roots": Kind(403, "The path lies outside the roots"),
    "origin-not-allowed": Kind(403, "This origin may not call the bridge"),
    "method-not-allowed": Kind(403, "This agent method may not be called"),
    "session-not-found": Kind(404, "No such session"),
    "turn-not-found": Kind(404, "No such turn"),
    "request-not-found": Kind(404, "No such request"),
    "agent-not-found": Kind(404, "No such agent"),
    "not-found": Kind(404, "Nothing is here"),
    "http-method-not-allowed": Kind(405, "The resource has no such method"),
    "not-acceptable": Kind(406, "No acceptable form"),
    "turn-in-progress": Kind(409, "A turn is in progress"),
    "request-already-answered": Kind(409, "The request has been answered"),
    "session-closed": Kind(409, "The session is closed"),
    "session-already-open": Kind(409, "The conversation is open already"),
    "idempotency-conflict": Kind(409, "The same request is still being worked on"),
    "request-withdrawn": Kind(410, "The request was withdrawn"),
    "session-lost": Kind(410, "The agent no longer has the conversation"),
    "body-too-large": Kind(413, "The body is too large"),
    "uri-too-long": Kind(414, "The URL is too long"),
    "unsupported-media-type": Kind(415, "The body is of the wrong type"),
    "host-not-allowed": Kind(421, "The bridge does not go by this host name"),
    "mode-not-available": Kind(422, "The agent has no such mode"),
    "model-not-available": Kind(422, "The agent has no such model"),
    "config-not-available": Kind(422, "The agent has no such option or value"),
    "content-not-supported": Kind(422, "The agent does not take this content"),
    "reply-not-valid": Kind(422, "The reply does not answer the request"),
    "idempotency-key-reused": Kind(422, "The idempotency key belongs to another request"),
    "agent-error": Kind(424, "The agent answered with an error"),
    "agent-auth-required": Kind(424, "The agent needs to be logged in"),
    "agent-protocol-error": Kind(424, "The agent broke the protocol"),
    "agent-exited": Kind(424, "The agent ended"),
    "rate-limited": Kind(429, "Too many requests"),
    "headers-too-large": Kind(431, "The headers are too large"),
    "internal-error": Kind(500, "The bridge failed"),
    "not-supported": Kind(501, "Not supported"),
    "agent-unavailable": Kind(503, "The agent cannot be started"),
    "at-capacity": Kind(503, "No capacity is free"),
    "draining": Kind(503, "The bridge is stopping"),
    "agent-timeout": Kind(504, "The agent did not answer in time"),
    "storage-full": Kind(507, "The disk is full"),
    "bridge-restarted": Kind(503, "The bridge was restarted"),
    "turn-stalled": Kind(504, "The turn stalled"),
}
_BY_STATUS: dict[int, Code] = {
    400: "invalid-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "http-method-not-allowed",
    406: "not-acceptable",
    413: "body-too-large",
    415: "unsupported-media-type",
}
_DETAILS: dict[Code, str] = {
    "not-found": "There is nothing at this path.",
    "http-method-not-allowed": "This path exists, but not with this method.",
}


class MalformedRequest(CallerError):
    """The request cannot be read at all: 400 ``invalid-request``, rather than 422."""

    def __init__(self, detail: str, *, hint: str | None = None, **extra: Any) -> None:
        super().__init__("invalid-request", detail, hint=hint, **extra)


class NotAllowed(CallerError):
    """405; ``methods`` become the ``Allow`` header (RFC 9110, 15.5.6)."""

    def __init__(self, methods: set[str]) -> None:
        super().__init__("http-method-not-allowed", _DETAILS["http-method-not-allowed"])
        self.methods = methods


def status_of(error: BridgeError) -> int:
    """The HTTP status ``error`` is answered with."""
    return 400 if isinstance(error, MalformedRequest) else KINDS[error.code].status


def complete_problem(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The Problem object for a ``{code, detail, hint?, extra?}`` that the runtime has stored.

    Shape: ``{type, title, status, detail, code, hint?, …extra}``. A code this version does not
    know keeps its name and gets the status of an internal error.
    """
    code = stored["code"]
    kind = KINDS.get(code, KINDS["internal-error"])
    document: dict[str, Any] = {
        "type": TYPE_PREFIX + code,
        "title": kind.title,
        "status": kind.status,
        "detail": stored["detail"],
        "code": code,
    }
    if stored.get("hint"):
        document["hint"] = stored["hint"]
    extra = {k: v for k, v in (stored.get("extra") or {}).items() if k not in document}
    return cast("dict[str, Any]", redact_all(document | extra))


def as_json(error: BridgeError) -> dict[str, Any]:
    """``error`` as the Problem object of a Session or Turn, without any request around it."""
    return complete_problem(
        {"code": error.code, "detail": error.detail, "hint": error.hint, "extra": error.extra}
    ) | {"status": status_of(error)}


def problem(error: BridgeError, *, instance: str, request_id: str) -> Response:
    """The response for ``error``.

    ``instance`` is the request's path, never its query: people put tokens there.
    """
    document = as_json(error) | {"instance": redact(instance)}
    # A lone surrogate in a detail is no UTF-8; it must not turn a 422 into a 500.
    body = json.dumps(document, ensure_ascii=False, default=str).encode("utf-8", "replace")
    headers = {"Cache-Control": "no-store", "X-Request-Id": request_id}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.code == "unauthorized":
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, NotAllowed):
        headers["Allow"] = ", ".join(sorted(error.methods))
    return Response(body, status_of(error), headers, MEDIA_TYPE)


def internal_error() -> BridgeError:
    """What a caller is told of an exception nobody foresaw: nothing."""
    return BridgeError(
        "internal-error",
        "Something went wrong inside the bridge.",
        hint="The bridge's log has the details under this request id.",
    )


def respond(scope: Mapping[str, Any], error: BridgeError) -> Response:
    """:func:`problem` for the request in ``scope``; leaves the code there for the audit log."""
    state = scope.get("state", {})
    state["problem"] = error.code
    return problem(error, instance=scope["path"], request_id=state.get("request_id", ""))


async def on_bridge_error(request: Request, error: Exception) -> Response:
    """Starlette's handler for :class:`BridgeError`."""
    return respond(request.scope, cast("BridgeError", error))


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's handler for what its router and static files raise."""
    status = cast("HTTPException", error).status_code
    if status == 405:
        return respond(request.scope, NotAllowed(_methods_of(request)))
    if status == 400:
        return respond(request.scope, MalformedRequest("The request cannot be read."))
    code = _BY_STATUS.get(status, "internal-error")
    if code == "internal-error":
        return respond(request.scope, internal_error())
    return respond(request.scope, CallerError(code, _DETAILS.get(code, KINDS[code].title + ".")))


async def on_exception(request: Request, error: Exception) -> Response:
    """Starlette's handler of last resort; the guard, outside of it, writes the log entry."""
    return respond(request.scope, internal_error())


async def on_disconnect(request: Request, error: Exception) -> None:
    """Starlette's handler for a caller that left while its body was read: nobody to answer."""


HANDLERS: dict[Any, Callable[[Request, Exception], Awaitable[Any]]] = {
    BridgeError: on_bridge_error,
    ClientDisconnect: on_disconnect,
    HTTPException: on_http_exception,
    Exception: on_exception,
}
"""For ``Starlette(exception_handlers=HANDLERS)``."""


def _methods_of(request: Request) -> set[str]:
    """All methods of this path: the router itself names only those of the first route."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return found
