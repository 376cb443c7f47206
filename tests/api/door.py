"""What the guard's tests share: an application behind a guard, asked in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from bridge.api import access, problems
from bridge.api.body import read_body
from bridge.api.guard import Guard
from bridge.api.rates import Rates
from bridge.config import Limits, Settings
from bridge.errors import AgentError
from bridge.tokens import TokenStore
from tests.canaries import secret

Fields = Sequence[tuple[bytes, bytes]]

FIXED = secret("fixed")
HOST = (b"host", b"127.0.0.1:8765")
TOKEN = (b"authorization", b"Bearer " + FIXED.encode())
JSON = (b"content-type", b"application/json")
APP = "https://app.example"


async def hello(request: Request) -> Response:
    principal = request.scope["state"].get("principal")
    return JSONResponse({"owner": principal.owner if principal else None})


async def page(request: Request) -> Response:
    return HTMLResponse("<!doctype html>")


async def file(request: Request) -> Response:
    return Response(b"", headers={"Content-Security-Policy": "sandbox", "Cache-Control": "public"})


async def echo(request: Request) -> Response:
    raw, value = await read_body(request)
    return JSONResponse({"size": len(raw), "value": value})


async def stream(request: Request) -> Response:
    async def parts() -> Any:
        yield b"data: 1\n\n"

    return StreamingResponse(parts(), media_type="text/event-stream")


async def broken(request: Request) -> Response:
    raise RuntimeError("secret detail")


async def refused(request: Request) -> Response:
    raise AgentError("agent-exited", "It ended.", stderrTail="Bearer abcdefghijkl")


async def gone(request: Request) -> Response:
    raise ClientDisconnect


async def socket(socket: WebSocket) -> None:
    await socket.accept()
    await socket.close()


async def held_socket(socket: WebSocket) -> None:
    await socket.accept()
    await anyio.sleep_forever()


async def cut_off(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise RuntimeError("in the middle")


async def refused_late(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise AgentError("agent-exited", "It ended.")


async def afterthought(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(b"done")(scope, receive, send)
    raise RuntimeError("after the end")


def route(path: str, endpoint: Any, who: access.Access, *methods: str) -> access.GuardedRoute:
    return access.GuardedRoute(path, endpoint, access=who, methods=list(methods or ("GET",)))


ROUTES = [
    route("/", page, access.PUBLIC),
    route("/docs", page, access.PUBLIC),
    route("/healthz", hello, access.PUBLIC),
    route("/v1/me", hello, access.ANY_TOKEN),
    route("/v1/sessions", hello, access.READ),
    route("/v1/sessions", echo, access.Access("prompt", rate="sessions"), "POST"),
    route("/v1/prompt", echo, access.Access("prompt", rate="prompts"), "POST"),
    route("/v1/reply", echo, access.APPROVE, "POST", "PATCH", "DELETE"),
    route("/v1/admin", hello, access.ADMIN),
    route("/v1/file", file, access.READ),
    route("/v1/events", stream, access.READ),
    route("/v1/broken", broken, access.READ),
    route("/v1/refused", refused, access.READ),
    route("/v1/gone", gone, access.READ),
    access.GuardedSocket("/acp", socket, access=access.PROMPT),
    access.GuardedSocket("/held", held_socket, access=access.READ),
    access.GuardedSocket("/open", socket, access=access.PUBLIC),
    access.GuardedMount("/assets", Response(b"asset"), access=access.PUBLIC),
]
EVERY_GUARDED_PATH = [
    "/v1/me",
    "/v1/sessions",
    "/v1/prompt",
    "/v1/reply",
    "/v1/admin",
    "/v1/events",
    "/v1/broken",
    "/v1/nothing",
    "/metrics",
    "/assets/../v1/me",
    "//",
]


class Answer:
    """What came out of the application for one scope."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        start = next((m for m in messages if m["type"].endswith("response.start")), None)
        self.status = start["status"] if start else None
        pairs = start["headers"] if start else ()
        self.headers = {name.decode(): value.decode() for name, value in pairs}
        self.names = [name for name, _ in pairs]
        parts = [m.get("body", b"") for m in messages if m["type"].endswith("response.body")]
        self.body = b"".join(parts)

    @property
    def code(self) -> Any:
        """The problem's code."""
        assert self.headers["content-type"] == "application/problem+json"
        document = json.loads(self.body)
        assert document["status"] == self.status
        return document["code"]


class Door:
    """A guard with what a test needs to look at."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.now = 1000.0
        self.audit: list[tuple[str, dict[str, Any]]] = []
        self.tokens = TokenStore(folder / "tokens.json", self.clock, fixed=FIXED)
        self.settings = Settings(
            limits=settings.pop(
                "limits",
                Limits(body_bytes=100, prompts_per_minute=2, sessions_per_minute=1),
            ),
            **settings,
        )
        self.app: Any = Starlette(routes=ROUTES, exception_handlers=problems.HANDLERS)

    def clock(self) -> float:
        return self.now

    def guard(self) -> Guard:
        limits = self.settings.limits
        return Guard(
            self.app,
            settings=self.settings,
            access=access.resolver(ROUTES),
            tokens=self.tokens,
            rates=Rates(
                failed_logins=limits.failed_logins_per_minute,
                prompts=limits.prompts_per_minute,
                sessions=limits.sessions_per_minute,
                clock=self.clock,
            ),
            audit=lambda event, **fields: self.audit.append((event, fields)),
        )

    async def ask(
        self,
        path: str,
        *fields: tuple[bytes, bytes],
        method: str = "GET",
        body: Sequence[bytes] = (),
        host: tuple[bytes, bytes] | None = HOST,
        guard: Guard | None = None,
        **scope: Any,
    ) -> Answer:
        headers = [*([host] if host else []), *fields]
        full: Scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": path,
            "query_string": b"",
            "headers": headers,
            "server": ("127.0.0.1", 8765),
            "client": ("192.0.2.7", 4711),
            **scope,
        }
        incoming: list[Message] = [
            {"type": "http.request", "body": part, "more_body": index < len(body)}
            for index, part in enumerate(body or (b"",), 1)
        ]
        if full["type"] == "websocket":
            incoming = [{"type": "websocket.connect"}]
        sent: list[Message] = []

        async def receive() -> Message:
            return incoming.pop(0) if incoming else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await (guard or self.guard())(full, receive, send)
        return Answer(sent)

    async def open_socket(self, *fields: tuple[bytes, bytes], **scope: Any) -> Answer:
        extensions: dict[str, Any] = {"websocket.http.response": {}}
        scope = {"extensions": extensions} | scope
        return await self.ask("/acp", *fields, **(scope | {"type": "websocket", "scheme": "ws"}))
