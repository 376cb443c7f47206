"""Sessions: made, listed, read, changed, closed; their modes, models, options and extensions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from bridge.api import reading, schemas
from bridge.api.context import context_of
from bridge.api.json import JsonResponse
from bridge.errors import CallerError
from bridge.runtime.commands import (
    CallExtension,
    CreateSession,
    DeleteSession,
    PatchSession,
    SetConfig,
    SetMode,
    SetModel,
)

_STATUSES = ("starting", "idle", "running", "waiting", "hibernated", "failed", "closed")


async def create(request: Request) -> Response:
    """POST /v1/sessions"""
    raw, value = await reading.required_body(request)
    body = reading.checked(schemas.CreateSessionBody, value)
    is_async = reading.prefers_async(request)
    outcome = await context_of(request).running.submit(
        CreateSession(
            principal=reading.principal_of(request),
            agent=body.agent,
            cwd=body.cwd,
            title=body.title,
            mode=body.mode,
            model=body.model,
            config=body.config,
            additional_directories=tuple(body.additional_directories),
            mcp_servers=tuple(body.mcp_servers),
            metadata=body.metadata,
            permissions=body.permissions,
            resume=body.resume,
            meta=body.meta,
            is_async=is_async,
            idempotency=reading.key_of(request, raw),
        )
    )
    headers = {"Location": f"/v1/sessions/{outcome.session_id}"}
    if is_async:
        headers["Preference-Applied"] = "respond-async"
    return JsonResponse(outcome.value, status_code=202 if is_async else 201, headers=headers)


async def page(request: Request) -> Response:
    """GET /v1/sessions"""
    query = request.query_params
    status = query.get("status")
    if status is not None and status not in _STATUSES:
        raise CallerError("invalid-request", "There is no such status.", available=list(_STATUSES))
    shown = context_of(request).running.queries.sessions(
        reading.principal_of(request),
        status=status,
        agent=query.get("agent"),
        query=query.get("q"),
        cursor=query.get("cursor"),
        limit=reading.limit_of(request),
    )
    return JsonResponse(shown)


async def read(request: Request) -> Response:
    """GET /v1/sessions/{sessionId}"""
    queries = context_of(request).running.queries
    return JsonResponse(
        queries.session(reading.principal_of(request), request.path_params["sessionId"])
    )


async def patch(request: Request) -> Response:
    """PATCH /v1/sessions/{sessionId}"""
    body = await reading.body_of(request, schemas.PatchSessionBody)
    outcome = await context_of(request).running.submit(
        PatchSession(
            reading.principal_of(request),
            request.path_params["sessionId"],
            body.model_dump(include=body.model_fields_set, by_alias=False),
        )
    )
    return JsonResponse(outcome.value)


async def delete(request: Request) -> Response:
    """DELETE /v1/sessions/{sessionId}"""
    is_purge = reading.flag(request.query_params.get("purge"), False)
    await context_of(request).running.submit(
        DeleteSession(reading.principal_of(request), request.path_params["sessionId"], is_purge)
    )
    return Response(status_code=204)


async def set_mode(request: Request) -> Response:
    """PUT /v1/sessions/{sessionId}/mode"""
    body = await reading.body_of(request, schemas.ModeBody)
    command = SetMode(reading.principal_of(request), request.path_params["sessionId"], body.mode_id)
    return JsonResponse((await context_of(request).running.submit(command)).value)


async def set_model(request: Request) -> Response:
    """PUT /v1/sessions/{sessionId}/model"""
    body = await reading.body_of(request, schemas.ModelBody)
    command = SetModel(
        reading.principal_of(request), request.path_params["sessionId"], body.model_id
    )
    return JsonResponse((await context_of(request).running.submit(command)).value)


async def set_config(request: Request) -> Response:
    """PUT /v1/sessions/{sessionId}/config/{configId}"""
    body = await reading.body_of(request, schemas.ConfigBody)
    command = SetConfig(
        reading.principal_of(request),
        request.path_params["sessionId"],
        request.path_params["configId"],
        body.value,
    )
    return JsonResponse((await context_of(request).running.submit(command)).value)


async def extend(request: Request) -> Response:
    """POST /v1/sessions/{sessionId}/ext"""
    body = await reading.body_of(request, schemas.ExtensionBody)
    command = CallExtension(
        reading.principal_of(request),
        request.path_params["sessionId"],
        body.method,
        body.params,
    )
    return JsonResponse((await context_of(request).running.submit(command)).value)


async def transcript(request: Request) -> Response:
    """GET /v1/sessions/{sessionId}/transcript"""
    before = reading.number(request.query_params.get("before"), "before")
    shown = context_of(request).running.queries.transcript(
        reading.principal_of(request),
        request.path_params["sessionId"],
        before=before,
        limit=reading.limit_of(request, default=20),
    )
    return JsonResponse(shown)
