"""What a session's agent says, in wire order: the pump's sans-await end.

Every message of one read becomes entries, and one commit follows. Updates pass on as they came;
only what the bridge acts on is decoded.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

from bridge.protocol import acp, held, view
from bridge.protocol.connection import (
    Notified,
    Received,
    Refused,
    Requested,
    Responded,
    Warned,
)
from bridge.redact import redact
from bridge.runtime import answers, turn_flow
from bridge.runtime.link import AgentLink, exit_error
from bridge.runtime.process import ExitStatus
from bridge.runtime.session import LiveSession

MAX_WARNINGS: Final = 1000
"""Warnings one process may cause; a flood of them is not worth a log of its own."""

_REPLAYED_STATE: Final = view.FOLDED_UPDATES - {"plan"}


class Inbox:
    """The owner of one link on behalf of one session."""

    def __init__(self, session: LiveSession) -> None:
        self._session = session
        self._warnings = 0

    def handle(self, link: AgentLink, received: list[Received]) -> None:
        """Messages of one read."""
        session = self._session
        if session.link is not link:
            return
        session.last_output = session.services.monotonic()
        for message in received:
            # Nearly all are updates: they are spared the table.
            if type(message) is Notified:
                self._notified(message)
            else:
                self._take(link, message)
        session.commit()
        if session.is_jammed and link.process is not None:
            link.process.pause()
        self._go_on()

    def _take(self, link: AgentLink, message: Received) -> None:
        match message:
            case Notified():
                self._notified(message)
            case Requested():
                self._requested(message)
            case Responded():
                self._responded(link, message)
            case Warned():
                self._warned(link, message)
            case Refused():
                pass
            case _:
                assert_never(message)

    def link_started(self, link: AgentLink) -> None:
        """From here on the session's agent is this one."""
        self._session.link = link

    def link_broke(self, link: AgentLink) -> None:
        """Its stdout is closed or it never reads: end it, the exit says the rest."""
        self._session.services.tasks.start_soon(link.stop, self._session.services)

    def link_ended(self, link: AgentLink, status: ExitStatus) -> None:
        """The process is gone: what ran or waited ends now, with that as the reason."""
        session = self._session
        session.services.processes.ended(link)
        if not link.is_stopping:
            session.services.tasks.start_soon(link.stop, session.services)
        if session.link is not link:
            return
        session.link = None
        if session.is_starting or session.is_provisional:
            return
        if not link.is_expected_to_end or session.turn is not None:
            session.emit(
                "bridge/agent_exited",
                {
                    "exitCode": status.code,
                    "signal": status.signal,
                    "stderrTail": status.stderr_tail,
                },
            )
        turn_flow.stop_ended(session, exit_error(status))
        session.refresh()
        session.commit()
        self._go_on()

    def _go_on(self) -> None:
        """The next queued turn: at once where that needs no waiting."""
        session = self._session
        if turn_flow.begin_next(session):
            session.commit()
        if session.queue and session.turn is None and not session.is_starting:
            session.services.advance(session)

    def _subagent(self, session_id: str | None) -> str | None:
        own = self._session.agent_session_id
        return session_id if session_id and own and session_id != own else None

    def _notified(self, message: Notified) -> None:
        session = self._session
        if message.method == "session/update":
            peek = acp.peek_update(message.params)
            is_own = peek.session_id == session.agent_session_id
            subagent = None if is_own else self._subagent(peek.session_id)
            if session.replay == "drop":
                self._fold_replayed(peek.kind, message.params, subagent)
                return
            session.pass_on("session/update", message.params, subagent=subagent, peek=peek)
            if peek.kind in view.FOLDED_UPDATES:
                self._folded(peek.kind)
            return
        if message.method == "$/cancel_request":
            answers.agent_cancelled(session, message.params)
            return
        session.pass_on(
            message.method,
            message.params,
            subagent=self._subagent(acp.peek_session_id(message.params)),
            file_url=answers.file_url(session, message.method, message.params),
        )
        session.settle_view()

    def _folded(self, kind: str) -> None:
        """The view changed; a title that a caller gave stays the caller's."""
        title = self._session.private.get("callerTitle")
        if kind == "session_info_update" and title:
            self._session.change(title=title)
        self._session.settle_view()

    def _fold_replayed(self, kind: str, params: bytes, subagent: str | None) -> None:
        """Of a replay that is in the log already, only the present state counts."""
        if subagent is not None or kind not in _REPLAYED_STATE:
            return
        update: Any = held.decoded(params).get("update")
        conveyed, implied = view.fold_update(self._session.upcoming, update)
        if self._session.private.get("callerTitle"):
            conveyed.pop("title", None)
        self._session.change(**conveyed, **implied)

    def _requested(self, message: Requested) -> None:
        subagent = self._subagent(acp.peek_session_id(message.params))
        answers.requested(self._session, message, subagent)
        if message.method.removeprefix("_") == "cursor/update_todos":
            self._session.settle_view()

    def _responded(self, link: AgentLink, message: Responded) -> None:
        session = self._session
        if message.call_id == session.prompt_call:
            turn_flow.prompt_answered(session, message)
        elif message.call_id == link.opening_call and message.result is not None:
            session.agent_session_id = acp.peek_session_id(message.result) or None

    def _warned(self, link: AgentLink, message: Warned) -> None:
        self._warnings += 1
        if self._warnings < MAX_WARNINGS:
            self._session.note(message.code, redact(message.detail, link.secrets))
        elif self._warnings == MAX_WARNINGS:
            self._session.note(
                "too-many-warnings", "Further warnings of this process are not kept."
            )
