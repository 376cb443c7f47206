"""What is around the sessions: the caller, agents, folders, files, health, metrics, documents."""

from __future__ import annotations

import os
from typing import Final

from anyio import to_thread
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.api import pages, reading
from bridge.api.context import context_of
from bridge.api.json import JsonResponse
from bridge.clock import rfc3339
from bridge.errors import CallerError

FEATURES: Final = (
    "sessions",
    "queue",
    "requests",
    "permissions",
    "transcript",
    "files",
    "multiplexed-events",
    "idempotency",
)


class WholeFile(FileResponse):
    """A file in one piece: ranges bring statuses and error bodies of their own, which nobody needs.

    RFC 9110, 14.2: a server may ignore the Range header.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it as if no part had been asked for."""
        headers = [pair for pair in scope["headers"] if pair[0] not in (b"range", b"if-range")]
        self.headers["accept-ranges"] = "none"
        await super().__call__({**scope, "headers": headers}, receive, send)


async def me(request: Request) -> Response:
    """GET /v1/me"""
    context = context_of(request)
    principal = reading.principal_of(request)
    roots = context.running.queries.roots(principal)
    limits = context.settings.limits
    return JsonResponse(
        {
            "owner": principal.owner,
            "token": {
                "name": principal.token_name,
                "scopes": sorted(principal.scopes),
                "agents": sorted(principal.agents) if principal.agents is not None else None,
                "roots": list(principal.roots) if principal.roots is not None else None,
                "expiresAt": rfc3339(principal.expires_at) if principal.expires_at else None,
            },
            "roots": roots,
            "limits": {
                "bodyBytes": limits.body_bytes,
                "maxProcesses": limits.max_processes,
                "maxQueue": limits.max_queue,
                "streamsPerToken": limits.streams_per_token,
                "promptsPerMinute": limits.prompts_per_minute,
                "sessionsPerMinute": limits.sessions_per_minute,
                "maxWaitSeconds": int(reading.MAX_WAIT_S),
            },
            "version": context.version,
            "features": list(FEATURES),
        }
    )


async def agents(request: Request) -> Response:
    """GET /v1/agents"""
    return JsonResponse(context_of(request).running.queries.agents(reading.principal_of(request)))


async def agent(request: Request) -> Response:
    """GET /v1/agents/{agentId}"""
    queries = context_of(request).running.queries
    return JsonResponse(
        queries.agent(reading.principal_of(request), request.path_params["agentId"])
    )


async def agent_sessions(request: Request) -> Response:
    """GET /v1/agents/{agentId}/sessions"""
    shown = await context_of(request).running.agent_sessions(
        reading.principal_of(request),
        request.path_params["agentId"],
        request.query_params.get("cwd"),
        request.query_params.get("cursor"),
    )
    return JsonResponse(shown)


async def folders(request: Request) -> Response:
    """GET /v1/folders"""
    queries = context_of(request).running.queries
    return JsonResponse(
        queries.folders(reading.principal_of(request), request.query_params.get("path"))
    )


async def file(request: Request) -> Response:
    """GET /v1/sessions/{sessionId}/files"""
    context = context_of(request)
    shown = context.running.queries.session(
        reading.principal_of(request), request.path_params["sessionId"]
    )
    path = _inside(shown["cwd"], request.query_params.get("path") or "")
    return WholeFile(
        path,
        filename=os.path.basename(path),
        content_disposition_type="attachment",
        headers={"Content-Security-Policy": "sandbox"},
    )


async def healthz(request: Request) -> Response:
    """GET /healthz"""
    del request
    return JsonResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    """GET /readyz"""
    runtime = context_of(request).runtime
    status = "starting" if runtime is None else runtime.readiness
    return JsonResponse({"status": status}, status_code=200 if status == "ready" else 503)


async def metrics(request: Request) -> Response:
    """GET /metrics"""
    context = context_of(request)
    return Response(
        generate_latest(context.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
    )


async def openapi(request: Request) -> Response:
    """GET /openapi.json"""
    text, _ = await to_thread.run_sync(request.app.state.described)
    return Response(text, media_type="application/json")


async def docs(request: Request) -> Response:
    """GET /docs"""
    _, page = await to_thread.run_sync(request.app.state.described)
    return HTMLResponse(page)


async def index(request: Request) -> Response:
    """GET /"""
    del request
    return HTMLResponse(pages.INDEX)


def _inside(cwd: str, path: str) -> str:
    """The resolved path of a file below ``cwd``; anything else is not there."""
    missing = CallerError("not-found", "There is no such file in the session's folder.")
    if not path or "\0" in path or os.path.isabs(path):
        raise missing
    try:
        base = os.path.realpath(cwd)
        target = os.path.realpath(os.path.join(base, path))
        is_below = os.path.commonpath([target, base]) == base
    except (OSError, ValueError):
        raise missing from None
    if not is_below or not os.path.isfile(target):
        raise missing
    return target
