"""How turns come and go: queued, begun, ended, cancelled. Synchronous; the caller commits.

A turn ends here and nowhere else, in the order of the contract: its requests resolved, its tools
closed, the turn, the session. Whatever happens to the process, :func:`fail_all` or :func:`finish`
is what makes it end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from bridge.errors import AgentError, BridgeError, CallerError, Code
from bridge.ids import new_id
from bridge.protocol import acp, cursor, handed
from bridge.protocol.connection import Responded
from bridge.protocol.held import Followup
from bridge.protocol.turns import STOP_REASONS, Turn, Verb, judge
from bridge.redact import redact, redact_all
from bridge.runtime import answers
from bridge.runtime.link import rpc_failure
from bridge.runtime.session import LiveSession

_KEPT_PROMPT_BYTES: Final = 1024 * 1024
_SHOWN_BYTES: Final = 200
_SILENCE: Final = (
    "The agent ended the turn without a word: something failed in silence, or it answers late, "
    "as some do behind a cancel."
)

WithdrawnBy = Literal["cancel", "agent-exit", "agent-cancelled", "turn-ended", "session-deleted"]


def queue_turn(
    session: LiveSession,
    blocks: Sequence[Any],
    *,
    is_first: bool = False,
    caused_by: str | None = None,
    **asked: Any,
) -> Turn:
    """Make a turn and say so; ``asked`` is kept until it begins (``on_lost``, ``mode``, …)."""
    turn = Turn(
        new_id("turn"),
        session.session_id,
        session.now,
        after_seq=session.next_seq - 1,
        caused_by=caused_by,
        first_seq=session.next_seq,
    )
    session.prompts[turn.turn_id] = {"blocks": list(blocks), **asked}
    session.emit("bridge/turn_queued", {"turn": turn.as_json()}, turn_id=turn.turn_id)
    made = session.queue[-1]
    if is_first:
        session.queue.insert(0, session.queue.pop())
    return made


def can_begin(session: LiveSession) -> bool:
    """Whether the first queued turn can begin this very moment, without any waiting."""
    if session.turn is not None or not session.queue or not session.is_live:
        return False
    if session.services.is_draining or session.is_jammed:
        return False
    return not session.prompts[session.queue[0].turn_id].get("mode")


def begin_next(session: LiveSession) -> bool:
    """Begin the first queued turn that the agent can take now; whether anything happened."""
    if not can_begin(session):
        return False
    while can_begin(session):
        begin(session)
    return True


def begin(session: LiveSession) -> None:
    """Send the first queued prompt to the agent, which is idle.

    It may have been accepted before anybody knew what the agent takes: then it fails here.
    """
    assert session.link is not None
    turn = session.queue[0]
    asked = session.prompts.pop(turn.turn_id)
    blocks = asked["blocks"]
    if asked.get("resend_cancelled"):
        blocks = [*(session.private.get("lastCancelled") or []), *blocks]
    try:
        handed.check_blocks(blocks, session.link.capabilities)
    except CallerError as error:
        turn.error = session.services.describe(error)
        drop_queued(session, turn, "fail", "error")
        return
    turn.move("start")
    turn.started_at = session.now
    session.was_refused = False
    session.private["lastCancelled"] = None
    session.emit(
        "bridge/turn_started", {"turn": turn.as_json(), "prompt": blocks}, turn_id=turn.turn_id
    )
    session.sent = {"blocks": blocks, "meta": asked.get("meta"), "tries": 0}
    _send_prompt(session)


def _send_prompt(session: LiveSession) -> None:
    assert session.link is not None and session.sent is not None
    sent = session.sent
    params = acp.prompt(session.agent_session_id or "", sent["blocks"], sent["meta"])
    session.prompt_call, wire = session.link.connection.call("session/prompt", params)
    session.say(wire)
    session.last_output = session.services.monotonic()


def prompt_answered(session: LiveSession, message: Responded) -> None:
    """The agent's response to the prompt: the turn is over."""
    turn = session.turn
    session.prompt_call = None
    if turn is None:
        return
    was_cancelled = turn.cancelled_by == "caller"
    if message.error is not None:
        if was_cancelled:
            finish(session, "cancel", "cancelled")
        else:
            turn.error = session.services.describe(rpc_failure(message.error, _secrets(session)))
            finish(session, "fail", "error")
        return
    result = _result_of(message)
    stop_reason = result.get("stopReason")
    turn.result = result
    turn.stop_reason = stop_reason if isinstance(stop_reason, str) else None
    turn.usage = result["usage"] if isinstance(result.get("usage"), dict) else None
    if turn.stop_reason not in STOP_REASONS:
        _warn_of_reason(session, message)
    verdict = judge(
        turn.stop_reason or "", was_cancelled=was_cancelled, was_refused=session.was_refused
    )
    turn.cancelled_by = verdict.cancelled_by
    outcome = verdict.outcome
    if outcome == "ok" and _looks_failed(session, turn):
        if _may_try_again(session, turn):
            _try_again(session, turn)
            return
        outcome = "suspected-error"
    elif outcome == "ok" and not session.projection.has_heard:
        session.note("nothing-heard", _SILENCE)
    finish(session, verdict.verb, outcome)


def _warn_of_reason(session: LiveSession, message: Responded) -> None:
    """The turn is over, since the agent answered; how it went is anybody's guess."""
    shown = (message.result or b"null")[:_SHOWN_BYTES].decode(errors="replace")
    detail = f"The prompt was answered without a stop reason of ACP's: {shown}"
    session.note("stop-reason-unknown", redact(detail, _secrets(session)))


def finish(
    session: LiveSession, verb: Verb, outcome: str, *, by: WithdrawnBy = "turn-ended"
) -> None:
    """End the running turn, in the contract's order."""
    turn = session.turn
    if turn is None:
        return
    if session.cancel_timer is not None:
        session.cancel_timer.cancel()
        session.cancel_timer = None
    answers.withdraw_all(session, by, turn_id=turn.turn_id)
    closing = "completed" if verb == "complete" else "failed"
    for tool_call_id in list(session.projection.open_tools):
        closed = {"toolCallId": tool_call_id, "status": closing}
        session.emit("bridge/tool_closed", closed, turn_id=turn.turn_id)
    _end(session, turn, verb, outcome)
    session.prompt_call = None
    session.idle_since = session.services.monotonic()
    if verb == "cancel":
        session.private["lastCancelled"] = _keepable(session.projection.last_cancelled)
    _follow_up(session, verb)


def drop_queued(session: LiveSession, turn: Turn, verb: Verb, outcome: str) -> None:
    """End a turn that never began."""
    session.prompts.pop(turn.turn_id, None)
    _end(session, turn, verb, outcome)


def proceed(session: LiveSession, followup: Followup, *, turn_id: str | None) -> None:
    """Go on from an accepted plan: when its turn has completed, at once where it had none."""
    if turn_id is not None:
        session.followup = followup
        return
    _go_on(session, followup)
    begin_next(session)


def fail_all(session: LiveSession, code: Code, detail: str) -> None:
    """End the running turn and every queued one with the same problem."""
    error = session.services.describe(AgentError(code, detail))
    by: WithdrawnBy = "agent-exit" if code in ("agent-exited", "bridge-restarted") else "turn-ended"
    if (turn := session.turn) is not None:
        turn.error = error
        finish(session, "fail", "error", by=by)
    for queued in list(session.queue):
        queued.error = error
        drop_queued(session, queued, "fail", "error")
    answers.withdraw_all(session, by)


def cancel_running(session: LiveSession) -> None:
    """Ask the agent to stop: what it waits for is withdrawn first, then ``session/cancel``."""
    turn = session.turn
    if turn is None or session.link is None:
        return
    turn.cancelled_by = "caller"
    answers.withdraw_all(session, "cancel", turn_id=turn.turn_id)
    params = acp.cancel(session.agent_session_id or "")
    session.say(session.link.connection.notify("session/cancel", params))
    session.refresh()


def stop_ended(session: LiveSession, error: BridgeError) -> None:
    """The process is gone: the running turn ends as cancelled if that was asked, else failed."""
    turn = session.turn
    # Also what was asked outside of the turn: nobody is there to hear an answer.
    answers.withdraw_all(session, "agent-exit")
    if turn is None:
        return
    if turn.cancelled_by == "caller":
        finish(session, "cancel", "cancelled", by="agent-exit")
        return
    turn.error = turn.error or session.services.describe(error)
    finish(session, "fail", "error", by="agent-exit")


def _end(session: LiveSession, turn: Turn, verb: Verb, outcome: str) -> None:
    turn.move(verb)
    turn.outcome = outcome
    turn.ended_at = session.now
    turn.last_seq = session.next_seq
    if verb == "cancel" and turn.cancelled_by is None:
        turn.cancelled_by = "caller"
    session.emit("bridge/turn_ended", {"turn": turn.as_json()}, turn_id=turn.turn_id)


def _keepable(blocks: list[Any] | None) -> list[Any] | None:
    """A cancelled prompt is kept for ``resendCancelled`` unless it is very large."""
    return blocks if blocks and len(acp.dumps(blocks)) <= _KEPT_PROMPT_BYTES else None


def _follow_up(session: LiveSession, verb: Verb) -> None:
    """An accepted plan's ``proceed``, once its turn has completed; nothing else is followed."""
    followup, session.followup = session.followup, None
    if followup is not None and verb == "complete":
        _go_on(session, followup)


def _go_on(session: LiveSession, followup: Followup) -> None:
    """Prompt as was said with the reply, ahead of the queue."""
    block = {"type": "text", "text": followup.proceed.prompt}
    made = queue_turn(
        session,
        [block],
        is_first=True,
        caused_by=followup.request_id,
        mode=followup.proceed.mode_id,
        on_lost="fail",
    )
    session.services.audit(
        "prompt.sent",
        owner=session.owner,
        token=followup.token,
        session=session.session_id,
        turn=made.turn_id,
        request=followup.request_id,
    )


def _looks_failed(session: LiveSession, turn: Turn) -> bool:
    is_cursors = session.services.agent(session.agent).dialect == "cursor"
    if not is_cursors or turn.stop_reason != "end_turn":
        return False
    suspected = cursor.suspected_error(session.projection.last_chunk)
    if suspected is None:
        return False
    suspected = redact_all(suspected, _secrets(session))
    turn.suspected_error = suspected
    warning = {"code": "suspected-error", "detail": f"{suspected['kind']}: {suspected['text']}"}
    session.emit("bridge/warning", warning, turn_id=turn.turn_id)
    return True


def _secrets(session: LiveSession) -> tuple[str, ...]:
    return session.link.secrets if session.link is not None else ()


def _may_try_again(session: LiveSession, turn: Turn) -> bool:
    """Only a lost network, only when no tool ran, and only as often as is configured.

    Cursor's own retries are off in ACP (pingdotgg/t3code#12940).
    """
    allowed = session.services.agent(session.agent).retry_in_band
    kind = (turn.suspected_error or {}).get("kind")
    is_allowed = session.sent is not None and session.sent["tries"] < allowed
    return is_allowed and kind == "network" and not session.projection.has_run_tools


def _try_again(session: LiveSession, turn: Turn) -> None:
    assert session.sent is not None
    session.sent["tries"] += 1
    detail = f"Try {session.sent['tries'] + 1}: the agent lost its network."
    session.note("retrying", detail)
    turn.suspected_error = turn.result = turn.stop_reason = None
    session.projection.forget_words()
    _send_prompt(session)


def _result_of(message: Responded) -> dict[str, Any]:
    try:
        result = acp.loads(message.result or b"null")
    except ValueError:
        return {}
    return result if isinstance(result, dict) else {}
