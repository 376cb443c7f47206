"""What is around the sessions: the caller, agents, folders, health, metrics, documents."""

from __future__ import annotations

from typing import Final

from anyio import to_thread
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from bridge.api import pages, reading
from bridge.api.context import context_of
from bridge.api.json import JsonResponse
from bridge.clock import rfc3339

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
