"""What agents ask of people: listed, read, replied to."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from bridge.api import reading
from bridge.api.context import context_of
from bridge.api.json import JsonResponse
from bridge.errors import CallerError
from bridge.runtime.commands import Reply


async def page(request: Request) -> Response:
    """GET /v1/sessions/{sessionId}/requests and GET /v1/requests"""
    status = request.query_params.get("status", "pending")
    if status not in ("pending", "all"):
        raise CallerError(
            "invalid-request", "There is no such status.", available=["pending", "all"]
        )
    shown = context_of(request).running.queries.requests(
        reading.principal_of(request),
        session_id=request.path_params.get("sessionId"),
        status=status,
        cursor=request.query_params.get("cursor"),
        limit=reading.limit_of(request),
    )
    return JsonResponse(shown)


async def read(request: Request) -> Response:
    """GET /v1/sessions/{sessionId}/requests/{requestId}"""
    shown = context_of(request).running.queries.request(
        reading.principal_of(request),
        request.path_params["sessionId"],
        request.path_params["requestId"],
    )
    return JsonResponse(shown)


async def reply(request: Request) -> Response:
    """POST /v1/sessions/{sessionId}/requests/{requestId}/reply"""
    raw, value = await reading.required_body(request)
    outcome = await context_of(request).running.submit(
        Reply(
            reading.principal_of(request),
            request.path_params["sessionId"],
            request.path_params["requestId"],
            value,
            reading.key_of(request, raw),
        )
    )
    return JsonResponse(outcome.value)
