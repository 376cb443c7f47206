"""What each command does to a session that exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.errors import AgentError, CallerError, StorageError
from bridge.principal import Principal
from bridge.protocol import acp, handed, replies, rules
from bridge.protocol.held import Followup, held_from_json, settled_error
from bridge.protocol.turns import Turn
from bridge.runtime import agent_options, answers, closing, lifecycle, turn_flow
from bridge.runtime.commands import (
    CallExtension,
    Cancel,
    CancelTurn,
    DeleteSession,
    Outcome,
    PatchSession,
    Prompt,
    Reply,
    SetConfig,
    SetMode,
    SetModel,
)
from bridge.runtime.creation import check_allowing
from bridge.runtime.keys import Claim
from bridge.runtime.registry import PURGED, Registry, check_room
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession


class Handlers:
    """Carries out every command but :class:`~bridge.runtime.commands.CreateSession`."""

    def __init__(self, services: Services, registry: Registry) -> None:
        self._services = services
        self._registry = registry

    # -- prompting ----------------------------------------------------------------------------

    def prompt(self, command: Prompt, claim: Claim) -> Outcome:
        """Begin or queue a turn; it is committed before this returns."""
        session = self._registry.open(command.principal, command.session_id, "prompt")
        handed.check_blocks(command.prompt, session.projection.view.get("capabilities"))
        is_busy = session.turn is not None or bool(session.queue)
        self._check_busy(session, command, is_busy)
        if is_busy and command.on_busy == "interrupt":
            self._interrupt(session)
        turn = turn_flow.queue_turn(
            session,
            command.prompt,
            is_first=command.on_busy == "interrupt",
            on_lost=command.on_lost,
            resend_cancelled=command.resend_cancelled,
            meta=dict(command.meta) if command.meta else None,
        )
        turn_flow.begin_next(session)
        session.commit(claim.meta({"turnId": turn.turn_id}))
        return self._prompted(session, command, turn.turn_id)

    def _check_busy(self, session: LiveSession, command: Prompt, is_busy: bool) -> None:
        if is_busy and command.on_busy == "reject":
            current = session.turn or session.queue[0]
            raise CallerError(
                "turn-in-progress",
                "A turn is running or queued on this session.",
                turnId=current.turn_id,
                hint="Wait for it, cancel it, or send onBusy: queue or interrupt.",
            )
        if len(session.queue) >= self._services.settings.limits.max_queue:
            raise CallerError("turn-in-progress", "The queue of this session is full.")
        if not is_busy and not session.is_live and not session.is_starting:
            self._services.processes.check_room(session)

    def _prompted(self, session: LiveSession, command: Prompt, turn_id: str) -> Outcome:
        self._services.act("prompt.sent", command.principal, session.session_id, turn=turn_id)
        turn = session.projection.turn_of(turn_id)
        if turn is None or (turn.error or {}).get("code") == "storage-full":
            raise StorageError("storage-full", "The disk is full; nothing was begun.")
        self._begin_queue(session)
        return Outcome(session.session_id, turn.as_full_json())

    def _begin_queue(self, session: LiveSession) -> None:
        """What could not begin at once begins in a task: a revival, a mode."""
        if session.turn is None and session.queue and not session.is_starting:
            self._services.advance(session)

    def _interrupt(self, session: LiveSession) -> None:
        if session.turn is not None:
            self._soft_cancel(session)
        elif session.is_starting and session.queue:
            turn_flow.drop_queued(session, session.queue[0], "cancel", "cancelled")

    # -- cancelling ---------------------------------------------------------------------------

    def cancel(self, command: Cancel | CancelTurn) -> Outcome:
        """Cancel the running turn, or drop a queued one."""
        may_approve = command.principal.may("approve")
        self._registry.find(
            command.principal, command.session_id, "approve" if may_approve else "prompt"
        )
        session = self._registry.load(command.session_id)
        turn = self._to_cancel(session, command)
        if turn is None:
            return Outcome(session.session_id, None)
        self._services.act(
            "turn.cancelled", command.principal, session.session_id, turn=turn.turn_id
        )
        is_current = turn.turn_id == _current_id(session)
        if session.turn is not None and is_current:
            self._soft_cancel(session)
        else:
            turn_flow.drop_queued(session, turn, "cancel", "cancelled")
        session.commit()
        if command.is_hard and is_current:
            lifecycle.end_hard(session)
        shown = session.projection.turn_of(turn.turn_id) or turn
        return Outcome(session.session_id, shown.as_full_json())

    def _to_cancel(self, session: LiveSession, command: Cancel | CancelTurn) -> Turn | None:
        running = _current_id(session)
        match command:
            case Cancel():
                wanted = running if command.turn_id in (None, running) else None
            case CancelTurn():
                wanted = command.turn_id
        turn = session.projection.turn_of(wanted) if wanted is not None else None
        return turn if turn is not None and not turn.has_ended else None

    def _soft_cancel(self, session: LiveSession) -> None:
        turn_flow.cancel_running(session)
        if session.cancel_timer is None and session.link is not None:
            link = session.link

            def give_up() -> None:
                if session.link is link:
                    lifecycle.end_hard(session)

            session.cancel_timer = self._services.timers.after(
                self._services.settings.limits.cancel_grace_s, give_up
            )

    # -- replying -----------------------------------------------------------------------------

    def reply(self, command: Reply, claim: Claim) -> Outcome:
        """The first valid reply wins; an equal one of the winner's token is fine."""
        session = self._registry.live.get(command.session_id)
        if session is None or command.request_id not in session.held:
            return self._reply_to_row(command)
        request = session.held.get(command.request_id)
        if request.status != "pending":
            shown = request.as_json(session.reference())
            return self._reply_again(command, shown, settled_error(request))
        check_room(session)
        settled, proceed = answers.reply(session, command)
        if proceed is not None:
            followup = Followup(proceed, settled.request_id, command.principal.token_name)
            turn_flow.proceed(session, followup, turn_id=settled.turn_id)
        session.commit(claim.meta({"requestId": command.request_id}))
        self._begin_queue(session)
        return Outcome(command.session_id, settled.as_json(session.reference()))

    def _reply_to_row(self, command: Reply) -> Outcome:
        """A request of the past: its row says how it ended."""
        row = self._services.tables.request(command.request_id)
        if row is None or row.session_id != command.session_id:
            raise CallerError("request-not-found", "There is no such request.")
        shown = acp.loads(row.body)
        if row.status == "answered":
            error = CallerError(
                "request-already-answered",
                "This request already has its answer.",
                resolution=shown["resolution"],
            )
        else:
            error = CallerError(
                "request-withdrawn",
                "The agent no longer waits for this request.",
                resolution=shown["resolution"],
            )
        return self._reply_again(command, shown, error)

    def _reply_again(self, command: Reply, shown: dict[str, Any], error: CallerError) -> Outcome:
        """An equal reply of the winner's token changes nothing, so it is no conflict."""
        is_repeat = replies.is_repeat(
            held_from_json(shown),
            command.body,
            command.principal.token_name,
            allow_always=self._services.settings.permissions.allow_always,
        )
        if not is_repeat:
            raise error
        return Outcome(command.session_id, shown, is_repeat=True)

    # -- the session itself -------------------------------------------------------------------

    def patch(self, command: PatchSession) -> Outcome:
        """Title, metadata (RFC 7396) and permissions."""
        session = self._registry.open(command.principal, command.session_id, "prompt")
        fields = command.fields
        if "permissions" in fields:
            self._set_permissions(session, command.principal, fields["permissions"])
        if "title" in fields:
            session.private["callerTitle"] = fields["title"]
            session.change(title=fields["title"])
        if "metadata" in fields:
            merged = merge_patch(session.projection.view.get("metadata"), fields["metadata"])
            session.change(metadata=merged if isinstance(merged, dict) else {})
        session.commit({"private": session.private})
        return Outcome(session.session_id, session.snapshot())

    def _set_permissions(self, session: LiveSession, principal: Principal, raw: Any) -> None:
        allow_always = self._services.settings.permissions.allow_always
        parsed = rules.parse(raw or {"rules": []}, allow_always=allow_always)
        check_allowing(principal.may("approve"), parsed)
        session.permissions = parsed
        session.change(permissions=parsed.as_json())
        self._services.act(
            "permissions.set", principal, session.session_id, isAllowing=parsed.is_allowing
        )
        answers.apply_rules(session)

    async def delete(self, command: DeleteSession) -> Outcome:
        """Close (and purge) a session; repeating it is fine."""
        self._registry.find(command.principal, command.session_id, "prompt")
        row = self._services.tables.session(command.session_id)
        if row is not None and row.status == PURGED:
            return Outcome(command.session_id, None)
        session = self._registry.load(command.session_id)
        if not session.is_closed:
            await closing.close(session, self._registry, is_purge=command.purge)
        if command.purge:
            closing.purge(session, self._registry)
        self._services.act(
            "session.deleted", command.principal, session.session_id, purged=command.purge
        )
        return Outcome(command.session_id, None)

    # -- the agent's options ------------------------------------------------------------------

    async def choose(self, command: SetMode | SetModel | SetConfig) -> Outcome:
        """Set a mode, a model or an option; a hibernated session is revived for it."""
        session = self._registry.open(command.principal, command.session_id, "prompt")
        self._check_choice(session, command)
        if session.turn is not None:
            await self._set(session, command)
        else:
            async with lifecycle.revived(session):
                await self._set(session, command)
        self._services.act("option.set", command.principal, session.session_id, **_chosen(command))
        return Outcome(session.session_id, session.snapshot())

    def _check_choice(self, session: LiveSession, command: SetMode | SetModel | SetConfig) -> None:
        """A mode may approve by itself, whichever way it is chosen."""
        mode = command.mode_id if isinstance(command, SetMode) else None
        config = {command.config_id: command.value} if isinstance(command, SetConfig) else {}
        listed = session.projection.view.get("configOptions")
        agent_options.check_choices(
            self._services, session.agent, command.principal, mode, config, listed
        )

    async def _set(self, session: LiveSession, command: SetMode | SetModel | SetConfig) -> None:
        match command:
            case SetMode():
                await agent_options.set_mode(session, command.mode_id)
            case SetModel():
                await agent_options.set_model(session, command.model_id)
            case SetConfig():
                await agent_options.set_option(session, command.config_id, command.value)

    async def extend(self, command: CallExtension) -> Outcome:
        """Call one of the agent's own methods."""
        session = self._registry.open(command.principal, command.session_id, "prompt")
        if not command.method.startswith(("cursor/", "_")):
            raise CallerError(
                "method-not-allowed",
                "Only extension methods (cursor/…, _…) can be called.",
                hint="Core ACP methods have endpoints of their own.",
            )
        if session.turn is None:
            async with lifecycle.revived(session):
                pass
        link = session.link
        if link is None:
            raise AgentError("agent-exited", "The agent process has ended.")
        limit_s = self._services.settings.limits.call_s
        self._services.act(
            "extension.called", command.principal, session.session_id, method=command.method
        )
        result = await link.call(command.method, acp.dumps(command.params), limit_s=limit_s)
        return Outcome(session.session_id, {"result": result})


def _current_id(session: LiveSession) -> str | None:
    """The turn that runs, or that is first in the queue: a revival happens inside of it."""
    running = session.turn or (session.queue[0] if session.queue else None)
    return running.turn_id if running is not None else None


def _chosen(command: SetMode | SetModel | SetConfig) -> dict[str, Any]:
    match command:
        case SetMode():
            return {"option": "mode", "value": command.mode_id}
        case SetModel():
            return {"option": "model", "value": command.model_id}
        case SetConfig():
            return {"option": command.config_id, "value": command.value}


def merge_patch(known: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(known) if isinstance(known, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged
