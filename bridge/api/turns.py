"""Prompts and turns, in the three forms a caller may ask for, and cancelling."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from bridge.api import events, reading, schemas
from bridge.api.context import Context, context_of
from bridge.api.json import JsonResponse
from bridge.api.negotiation import prefers_stream
from bridge.principal import Principal
from bridge.runtime.commands import Cancel, CancelTurn, Outcome, Prompt


async def prompt(request: Request) -> Response:
    """POST /v1/sessions/{sessionId}/prompt"""
    context = context_of(request)
    raw, value = await reading.required_body(request)
    body = reading.checked(schemas.PromptBody, value)
    principal = reading.principal_of(request)
    is_stream = prefers_stream(request)
    command = Prompt(
        principal=principal,
        session_id=request.path_params["sessionId"],
        prompt=body.blocks(),
        on_busy=body.on_busy,
        on_lost=body.on_lost,
        resend_cancelled=body.resend_cancelled,
        meta=body.meta,
        idempotency=reading.key_of(request, raw),
    )
    with ExitStack() as held:
        # Before the turn is made: what cannot be held open is refused, not begun.
        if is_stream or reading.wait_of(request) is not None:
            held.enter_context(context.counted(principal))
        outcome = await context.running.submit(command)
        assert outcome.value is not None
        if is_stream:
            return events.turn_stream(request, outcome.value, held.pop_all())
        return await _turn_response(request, outcome)


async def page(request: Request) -> Response:
    """GET /v1/sessions/{sessionId}/turns"""
    shown = context_of(request).running.queries.turns(
        reading.principal_of(request),
        request.path_params["sessionId"],
        cursor=request.query_params.get("cursor"),
        limit=reading.limit_of(request),
    )
    return JsonResponse(shown)


async def read(request: Request) -> Response:
    """GET /v1/sessions/{sessionId}/turns/{turnId}"""
    context = context_of(request)
    principal = reading.principal_of(request)
    session_id, turn_id = request.path_params["sessionId"], request.path_params["turnId"]
    shown = context.running.queries.turn(principal, session_id, turn_id)
    wait_s = reading.wait_of(request)
    if wait_s is None:
        return JsonResponse(shown)
    with context.counted(principal):
        shown = await _settled(context, principal, shown, wait_s)
    return JsonResponse(shown, headers={"Preference-Applied": f"wait={wait_s:.0f}"})


async def cancel(request: Request) -> Response:
    """POST /v1/sessions/{sessionId}/cancel"""
    body = await reading.body_of(request, schemas.CancelBody, is_optional=True)
    outcome = await context_of(request).running.submit(
        Cancel(
            reading.principal_of(request),
            request.path_params["sessionId"],
            body.turn_id,
            body.hard,
        )
    )
    return _cancelled(outcome)


async def cancel_turn(request: Request) -> Response:
    """POST /v1/sessions/{sessionId}/turns/{turnId}/cancel"""
    body = await reading.body_of(request, schemas.CancelTurnBody, is_optional=True)
    principal = reading.principal_of(request)
    session_id, turn_id = request.path_params["sessionId"], request.path_params["turnId"]
    context = context_of(request)
    context.running.queries.turn(principal, session_id, turn_id)
    outcome = await context.running.submit(CancelTurn(principal, session_id, turn_id, body.hard))
    return _cancelled(outcome)


def _cancelled(outcome: Outcome) -> Response:
    return JsonResponse({"turn": outcome.value}, status_code=200 if outcome.value is None else 202)


async def _turn_response(request: Request, outcome: Outcome) -> Response:
    """202 at once, or after waiting 200 for a turn that has ended meanwhile."""
    shown = outcome.value
    assert shown is not None
    headers = {"Location": f"/v1/sessions/{outcome.session_id}/turns/{shown['turnId']}"}
    wait_s = reading.wait_of(request)
    if wait_s is None:
        return JsonResponse(shown, status_code=202, headers=headers)
    headers["Preference-Applied"] = f"wait={wait_s:.0f}"
    context = context_of(request)
    shown = await _settled(context, reading.principal_of(request), shown, wait_s)
    is_over = shown["endedAt"] is not None
    return JsonResponse(shown, status_code=200 if is_over else 202, headers=headers)


async def _settled(
    context: Context, principal: Principal, shown: dict[str, Any], wait_s: float
) -> dict[str, Any]:
    """The turn once it has ended or waits for a person, or as it is when the time is up."""
    queries = context.running.queries
    session_id, turn_id = shown["sessionId"], shown["turnId"]
    with context.waiting(principal, wait_s):
        while shown["status"] in ("queued", "running"):
            session = queries.live(session_id)
            if session is None:
                break
            settled = session.settled
            shown = queries.turn(principal, session_id, turn_id)
            if shown["status"] not in ("queued", "running"):
                break
            await settled.wait()
    context.check_live(principal)
    return queries.turn(principal, session_id, turn_id)
