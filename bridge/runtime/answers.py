"""Held requests of a session: taken in, decided by rule, replied to, withdrawn, timed out.

Each request is answered exactly once: the table in ``protocol/held`` lets it leave ``pending``
once, and whoever makes it leave puts the one answer into the session's outbox, which is written
after the commit. Nothing here resolves to *allow* unless a caller or a caller's rule said so.
"""

from __future__ import annotations

from typing import Any, Literal

import anyio.lowlevel

from bridge.clock import parse_rfc3339, rfc3339
from bridge.errors import CallerError
from bridge.ids import new_id
from bridge.protocol import acp, replies, rules
from bridge.protocol.connection import Requested
from bridge.protocol.held import (
    Answer,
    HeldRequest,
    Kind,
    Proceed,
    allowed_option_ids,
    auto_answer,
    decoded,
    kind_of,
    withdrawn_answer,
)
from bridge.protocol.subject import Steps
from bridge.runtime import agent_options
from bridge.runtime.commands import Reply
from bridge.runtime.session import LiveSession

METHOD_NOT_FOUND = -32601

WithdrawnBy = Literal["cancel", "agent-exit", "agent-cancelled", "turn-ended", "session-deleted"]


def requested(session: LiveSession, message: Requested, subagent: str | None) -> None:
    """An agent request: answered at once, refused, or held until somebody replies."""
    kind = kind_of(message.method)
    if kind is None:
        _answer_at_once(session, message, subagent)
        return
    if len(session.held) >= session.services.settings.limits.max_pending_requests:
        session.pass_on(message.method, message.params, subagent=subagent)
        _write(session, message.rpc_id, withdrawn_answer(kind))
        detail = "Too many requests wait already; this one was cancelled."
        session.emit("bridge/warning", {"code": "too-many-requests", "detail": detail})
        return
    _hold(session, message, kind, subagent)


def withdraw_all(session: LiveSession, by: WithdrawnBy, *, turn_id: str | None = None) -> None:
    """Give up what waits (of one turn, if named) and tell the agent, where it still lives."""
    for request in session.held.pending(turn_id=turn_id):
        _withdraw(session, request, by)


def agent_cancelled(session: LiveSession, params: bytes) -> None:
    """ACP's ``$/cancel_request``: the agent no longer waits for an answer."""
    told = decoded(params)
    if "requestId" not in told:
        return
    request = session.held.by_rpc_id(session.session_id, acp.dumps(told["requestId"]))
    if request is not None:
        _withdraw(session, request, "agent-cancelled")


def reply(session: LiveSession, command: Reply) -> tuple[HeldRequest, Proceed | None]:
    """A caller's reply: checked, settled, and to be committed by our caller before it is sent.

    Returns the settled request, and what is to follow an accepted plan.
    """
    request = session.held.get(command.request_id)
    principal = command.principal
    allow_always = session.services.settings.permissions.allow_always
    answer = replies.check(request, command.body, allow_always=allow_always)
    if answer.proceed is not None and not (
        principal.may("prompt") and principal.is_own(session.owner)
    ):
        raise CallerError("forbidden", "`proceed` prompts, which this token may not.")
    if answer.proceed is not None and answer.proceed.mode_id is not None:
        agent_options.check_choices(
            session.services, session.agent, principal, answer.proceed.mode_id, {}
        )
        agent_options.check_mode(session, answer.proceed.mode_id)
    settled = settle(session, request, answer, "caller", principal.token_name)
    session.services.act(
        "reply.given",
        principal,
        session.session_id,
        request=request.request_id,
        outcome=_told(answer),
    )
    return settled, answer.proceed


def settle(
    session: LiveSession,
    request: HeldRequest,
    answer: Answer,
    by: Literal["caller", "policy", "timeout"],
    token: str | None,
) -> HeldRequest:
    """Answer a pending request; the bytes go out after the commit."""
    settled = session.held.answer(request.request_id, answer, by, token, session.now)
    _write(session, request.rpc_id, answer)
    session.was_refused = session.was_refused or answer.is_refusal
    _resolved(session, settled)
    return settled


def apply_rules(session: LiveSession) -> None:
    """The rules changed: they hold for what already waits, and so do their time limits.

    Where that takes many steps the rest follows in a task, so that others are served in between.
    """
    waiting = session.held.pending()
    for request in waiting:
        session.held.set_expiry(request.request_id, _expiry(session, request.created_at))
    left = _apply(session, [each.request_id for each in waiting])
    if left:
        session.services.tasks.start_soon(_apply_left, session, left)


def _apply(session: LiveSession, request_ids: list[str]) -> list[str]:
    """Decide these, as far as they still wait; returns those for which it took too long."""
    steps = Steps()
    waiting = {each.request_id: each for each in session.held.pending()}
    left = [request_id for request_id in request_ids if request_id in waiting]
    while left and not steps.are_many:
        request = waiting[left.pop(0)]
        if decided := _decide(session, request, steps):
            _settle_by_rule(session, request, decided)
    session.refresh()
    schedule_expiry(session)
    return left


async def _apply_left(session: LiveSession, request_ids: list[str]) -> None:
    while request_ids:
        await anyio.lowlevel.checkpoint()
        request_ids = _apply(session, request_ids)
        session.commit()


def expire(session: LiveSession) -> None:
    """Answer what has waited for too long, as the rules say; never with allow of our own."""
    session.expiry_timer = None
    for request in session.held.due(rfc3339(session.services.clock())):
        answer = rules.on_timeout(
            session.permissions,
            request,
            allow_always=session.services.settings.permissions.allow_always,
        )
        if answer is not None:
            _settle_by_rule(session, request, answer, "timeout")
        else:
            session.held.set_expiry(request.request_id, None)
    session.commit()
    schedule_expiry(session)


def schedule_expiry(session: LiveSession) -> None:
    """Wake up for the request that is due first."""
    if session.expiry_timer is not None:
        session.expiry_timer.cancel()
        session.expiry_timer = None
    due = [each.expires_at for each in session.held.pending() if each.expires_at]
    if due:
        delay_s = parse_rfc3339(min(due)) - session.services.clock()
        session.expiry_timer = session.services.timers.after(
            max(0.0, delay_s), lambda: expire(session)
        )


def _answer_at_once(session: LiveSession, message: Requested, subagent: str | None) -> None:
    assert session.link is not None
    connection = session.link.connection
    session.pass_on(
        message.method,
        message.params,
        subagent=subagent,
        file_url=file_url(session, message.method, message.params),
    )
    result = auto_answer(message.method, message.params)
    if result is not None:
        session.say(connection.answer(message.rpc_id, result))
        return
    text = f"Method not found: {message.method}"
    session.say(connection.refuse(message.rpc_id, METHOD_NOT_FOUND, text))


def _hold(session: LiveSession, message: Requested, kind: Kind, subagent: str | None) -> None:
    allow_always = session.services.settings.permissions.allow_always
    turn = session.turn
    request = HeldRequest(
        request_id=new_id("req"),
        session_id=session.session_id,
        turn_id=turn.turn_id if turn else None,
        kind=kind,
        method=message.method,
        params=message.params,
        rpc_id=message.rpc_id,
        created_at=session.now,
        expires_at=_expiry(session, session.now),
        tool_call=_tool_call(session, kind, message.params),
        allowed_option_ids=allowed_option_ids(kind, message.params, allow_always=allow_always),
    )
    session.held.hold(request)
    session.pass_on(
        message.method, message.params, request_id=request.request_id, subagent=subagent
    )
    decided = _decide(session, request)
    if decided is not None:
        _settle_by_rule(session, request, decided)
    elif turn is not None and turn.cancelled_by == "caller":
        _withdraw(session, request, "cancel")
    elif turn is not None and turn.status == "running":
        turn.move("wait")
    session.refresh()
    if request.expires_at:
        schedule_expiry(session)


def _decide(
    session: LiveSession, request: HeldRequest, steps: Steps | None = None
) -> Answer | None:
    tool_call_id = (request.tool_call or {}).get("toolCallId")
    return rules.decide(
        session.permissions,
        request,
        earlier=session.projection.known_tool(tool_call_id) if tool_call_id else None,
        steps=steps,
        cwd=session.cwd,
        resolve=session.services.resolve,
        allow_always=session.services.settings.permissions.allow_always,
    )


def _settle_by_rule(
    session: LiveSession,
    request: HeldRequest,
    answer: Answer,
    by: Literal["policy", "timeout"] = "policy",
) -> None:
    settle(session, request, answer, by, None)
    session.services.audit(
        "policy.decided",
        owner=session.owner,
        session=session.session_id,
        request=request.request_id,
        by=by,
        outcome=_told(answer),
    )


def _told(answer: Answer) -> Any:
    """What was decided, for the audit log: the option's id where there is one."""
    outcome = answer.outcome
    return outcome.get("optionId") or outcome.get("outcome") or outcome.get("action")


def _expiry(session: LiveSession, created_at: str) -> str | None:
    after_s = session.permissions.timeout_s
    return None if after_s is None else rfc3339(parse_rfc3339(created_at) + after_s)


def _withdraw(session: LiveSession, request: HeldRequest, by: WithdrawnBy) -> None:
    settled, answer = session.held.withdraw(request.request_id, by, session.now)
    _write(session, request.rpc_id, answer)
    _resolved(session, settled)


def _resolved(session: LiveSession, settled: HeldRequest) -> None:
    """Say it; the turn goes on once nothing of it waits any more."""
    shown = settled.as_json(session.reference())
    session.emit(
        "bridge/request_resolved",
        {"request": shown},
        turn_id=settled.turn_id,
        request_id=settled.request_id,
    )
    turn = session.turn
    if turn is not None and turn.status == "waiting":
        if not session.held.pending(turn_id=turn.turn_id):
            turn.move("go_on")


def _write(session: LiveSession, rpc_id: bytes, answer: Answer) -> None:
    if session.link is None or not session.link.is_alive:
        return
    connection = session.link.connection
    if answer.error is not None:
        session.say(connection.refuse(rpc_id, *answer.error))
    else:
        session.say(connection.answer(rpc_id, answer.result or b"null"))


def _tool_call(session: LiveSession, kind: Kind, params: bytes) -> dict[str, Any] | None:
    """The tool a permission speaks of: what the turn showed of it, and what the request adds."""
    given = decoded(params)
    named = given.get("toolCall") if kind == "permission" else given
    tool_call_id = named.get("toolCallId") if isinstance(named, dict) else None
    if not isinstance(tool_call_id, str):
        return dict(named) if kind == "permission" and isinstance(named, dict) else None
    known = session.projection.known_tool(tool_call_id) or {}
    added = named if kind == "permission" and isinstance(named, dict) else {}
    told = {name: value for name, value in added.items() if value is not None}
    return known | told or None


def file_url(session: LiveSession, method: str, params: bytes) -> str | None:
    """Where a generated image can be fetched, if it lies inside the session's folder."""
    if method.removeprefix("_") != "cursor/generate_image":
        return None
    path = decoded(params).get("filePath")
    if not isinstance(path, str):
        return None
    return session.services.file_url(session.session_id, session.cwd, path)
