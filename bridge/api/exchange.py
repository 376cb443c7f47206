"""One request and its response as the guard sees them: reading headers, decorating, refusing.

Every response that leaves the bridge passes :meth:`Exchange.send` and gets its request id, its
cache and security headers and, for a configured origin, its CORS headers; streams, errors and
what starlette makes by itself included. A refusal is a problem document over HTTP and, where the
server has the ``websocket.http.response`` extension, for a WebSocket that was not accepted too.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import anyio
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from bridge.api import problems
from bridge.errors import BridgeError, CallerError
from bridge.principal import Principal

Fields = Sequence[tuple[bytes, bytes]]

_SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
API_POLICY = b"default-src 'none'; frame-ancestors 'none'"
_PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    b"font-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Fields = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""On every response, but for the content security policy, which pages have of their own."""
_OURS = frozenset({name for name, _ in SECURITY_HEADERS} | {b"x-request-id"})
ENDING = "cursor_bridge.ending"
"""The server's extension by which a connection ends, whether its caller reads or not: ``soon``
leaves it a moment to read what was sent to it, ``now`` does not."""
_STARTS = frozenset(
    {
        "http.response.start",
        "websocket.accept",
        "websocket.close",
        "websocket.http.response.start",
    }
)


class Exchange:
    """``receive`` and ``send`` are what the application gets in place of the server's own."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, body_bytes: int) -> None:
        self._receive = receive
        self._send = send
        self._body_left = body_bytes
        self.fields: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self.fields.setdefault(name, []).append(value)
        self.request_id = self._sane_id() or secrets.token_hex(16)
        state = {**scope.get("state", {}), "request_id": self.request_id}
        self.state: dict[str, Any] = state
        self.scope: Scope = {**scope, "state": state}
        self.while_live: Callable[[], AbstractContextManager[anyio.CancelScope]] | None = None
        """Set with the principal: what is awaited inside ends with its token."""
        self.is_live: Callable[[], bool] | None = None
        """Set with the principal: whether its token is still good."""
        self.cors: Fields = ()
        """Set once the origin is known to be a configured one."""
        self.status: int | None = None
        self.is_started = False
        self.is_complete = False

    @property
    def is_socket(self) -> bool:
        """Whether this is a WebSocket's opening handshake."""
        return bool(self.scope["type"] == "websocket")

    @property
    def method(self) -> str:
        """The request's method; a WebSocket begins with a GET."""
        return str(self.scope.get("method", "GET"))

    @property
    def path(self) -> str:
        """The decoded path, as the router sees it."""
        return str(self.scope["path"])

    @property
    def address(self) -> str:
        """Where the caller's connection comes from."""
        client = self.scope.get("client")
        return str(client[0]) if client else "unix"

    @property
    def principal(self) -> Principal | None:
        """Who is asking, once the token was checked."""
        found = self.state.get("principal")
        return found if isinstance(found, Principal) else None

    def only(self, name: bytes) -> bytes | None:
        """The value of a header that is there exactly once."""
        values = self.fields.get(name, ())
        return values[0] if len(values) == 1 else None

    async def receive(self) -> Message:
        """The server's next message; raises ``body-too-large`` as soon as it is.

        Raises ``unauthorized`` where a body was on its way for longer than its token was good.
        """
        message = await self._receive()
        if message["type"] == "http.request" and self.is_live is not None and not self.is_live():
            raise CallerError("unauthorized", "The token is not valid any more.")
        self._body_left -= len(message.get("body", b""))
        if self._body_left < 0:
            raise too_large()
        return message

    async def send(self, message: Message) -> None:
        """Pass ``message`` on, with our headers where it starts a response."""
        kind = message["type"]
        if kind == "websocket.close" and not self.is_started and self._can_refuse_sockets:
            # The router knows no such socket; the server would say 403, in words of its own.
            await self.refuse(CallerError("not-found", "There is no WebSocket at this path."))
            return
        if kind in _STARTS:
            self.is_started = True
            self.status = message.get("status", 0)
            message = {**message, "headers": self._decorated(message)}
        elif kind.endswith("response.body") and not message.get("more_body", False):
            self.is_complete = True
        await self._pass_on(message)

    def end(self, when: Literal["soon", "now"]) -> None:
        """End the connection, where the server can (see :data:`ENDING`)."""
        ending = self.scope.get("extensions", {}).get(ENDING)
        if ending is not None:
            ending[when]()

    async def _pass_on(self, message: Message) -> None:
        """A caller that does not read holds its response open no longer than its token lives."""
        if self.while_live is None:
            await self._send(message)
            return
        with self.while_live() as scope:
            if self.is_complete and scope.cancel_called:
                self.end("soon")
            await self._send(message)
        if scope.cancelled_caught:
            self.end("now")

    async def refuse(self, error: BridgeError) -> None:
        """Answer with the problem document of ``error``."""
        await self.respond(problems.respond(self.scope, error))

    async def respond(self, response: Response) -> None:
        """Send a whole response, also in place of a WebSocket's handshake."""
        if self.is_socket and not self._can_refuse_sockets:
            self.status = response.status_code
            await self.send({"type": "websocket.close", "code": 1008, "reason": ""})
            return
        prefix = "websocket." if self.is_socket else ""
        start = {"status": response.status_code, "headers": response.raw_headers}
        await self.send({"type": f"{prefix}http.response.start", **start})
        body = b"" if self.method == "HEAD" else bytes(response.body)
        await self.send({"type": f"{prefix}http.response.body", "body": body})

    @property
    def _can_refuse_sockets(self) -> bool:
        return "websocket.http.response" in self.scope.get("extensions", {})

    def _decorated(self, message: Message) -> list[tuple[bytes, bytes]]:
        ours: list[tuple[bytes, bytes]] = [(b"x-request-id", self.request_id.encode("ascii"))]
        if message["type"] == "websocket.accept":
            return [*message.get("headers", ()), *ours]
        theirs = [pair for pair in message.get("headers", ()) if pair[0].lower() not in _OURS]
        names = {name.lower(): value for name, value in theirs}
        if b"content-security-policy" not in names:
            is_page = names.get(b"content-type", b"").startswith(b"text/html")
            ours.append((b"content-security-policy", _PAGE_POLICY if is_page else API_POLICY))
        return [*theirs, *ours, *SECURITY_HEADERS, *self.cors]

    def _sane_id(self) -> str | None:
        given = self.only(b"x-request-id")
        return given.decode("ascii") if given and _SANE_ID.fullmatch(given) else None


def too_large() -> CallerError:
    """The error for a body above the limit."""
    return CallerError(
        "body-too-large",
        "The body is larger than the bridge takes.",
        hint="GET /v1/me shows limits.bodyBytes; the operator sets limits.body_bytes.",
    )
