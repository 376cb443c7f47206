"""A session in memory: its projection, what is about to be committed, and its agent.

Owns the one way in which anything becomes visible: ``emit``/``pass_on`` collect entries and
``commit`` appends them in one record, then brings the tables up to date. Between reading a line
and its commit there is no await. What changed of the Session itself is said by one
``bridge/session`` at the end of each commit, computed here, so that the view is always the fold of
the events.

``turn_flow``, ``answers`` and ``lifecycle`` hold what is done with a session; this module knows
nothing of prompts, permissions or processes beyond their places.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio

from bridge.clock import rfc3339
from bridge.errors import StorageError
from bridge.log.entry import Draft
from bridge.protocol.acp import UpdatePeek, dumps
from bridge.protocol.held import Followup, HeldRequests
from bridge.protocol.projection import Applied, Projection
from bridge.protocol.rules import Permissions
from bridge.protocol.turns import Turn
from bridge.runtime import rows
from bridge.runtime.services import Services
from bridge.runtime.timers import Timer
from bridge.runtime.writer import Writer

if TYPE_CHECKING:
    from bridge.runtime.link import AgentLink

logger = logging.getLogger(__name__)

_MISSING: Final = object()
_FIRST: Final = Draft("bridge/session", b"{}")


class LiveSession:
    """One session that is being worked with. Made by the registry, from a row or anew."""

    def __init__(
        self,
        services: Services,
        session_id: str,
        *,
        projection: Projection,
        private: dict[str, Any],
        permissions: Permissions,
        is_provisional: bool = False,
    ) -> None:
        self.services = services
        self.session_id = session_id
        self.projection = projection
        self.private = private
        self.permissions = permissions
        self.held = HeldRequests()
        self.lock = anyio.Lock()
        self.link: AgentLink | None = None
        self.settled = anyio.Event()
        self.start_scope: anyio.CancelScope | None = None
        self.agent_session_id: str | None = projection.view.get("agentSessionId")
        self.problem: dict[str, Any] | None = projection.view.get("problem")
        self.is_starting = False
        self.is_closed = projection.view.get("status") == "closed"
        self.is_provisional = is_provisional
        self.is_jammed = False
        self.is_touched = False
        self.replay: str = "off"
        self.idle_since = services.monotonic()
        self.prompt_call: str | None = None
        self.cancel_timer: Timer | None = None
        self.expiry_timer: Timer | None = None
        self.was_refused = False
        self.prompts: dict[str, dict[str, Any]] = {}
        self.sent: dict[str, Any] | None = None
        self.followup: Followup | None = None
        self.stall_warned: str | None = None
        self.last_output = 0.0
        self.outbox: list[bytes] = []
        self._drafts: list[Draft] = [_FIRST] if is_provisional else []
        self._early: list[Applied] = []
        self._changes: dict[str, Any] = {}
        self._is_cold = False
        self._time = ""
        self.log = services.store.log(session_id)
        self.writer = Writer(services, session_id, private)
        self.committed: dict[str, Any] = dict(projection.view)

    def __repr__(self) -> str:
        return f"<LiveSession {self.session_id} {self.status} drafts={len(self._drafts)}>"

    # -- what it is ---------------------------------------------------------------------------

    @property
    def owner(self) -> str:
        """Whose session it is."""
        return str(self.projection.view["owner"])

    @property
    def agent(self) -> str:
        """The name of its agent in the configuration."""
        return str(self.projection.view["agent"])

    @property
    def cwd(self) -> str:
        """The resolved folder the agent works in."""
        return str(self.projection.view["cwd"])

    @property
    def turn(self) -> Turn | None:
        """The turn that runs or waits, if any."""
        turn = self.projection.turn
        return turn if turn is not None and not turn.has_ended else None

    @property
    def queue(self) -> list[Turn]:
        """Turns that have not begun."""
        return self.projection.queue

    @property
    def is_live(self) -> bool:
        """Whether its agent can be spoken to."""
        return self.link is not None and self.link.is_alive and not self.is_starting

    @property
    def status(self) -> str:
        """The Session's status as it follows from its parts."""
        if self.is_closed:
            return "closed"
        if self.is_starting:
            return "starting"
        if (turn := self.turn) is not None:
            return "waiting" if turn.status == "waiting" else "running"
        if self.queue:
            return "starting"
        if self.problem is not None:
            return "failed"
        return "idle" if self.link is not None and self.link.is_alive else "hibernated"

    @property
    def next_seq(self) -> int:
        """The position the next entry will get."""
        return self.log.last_seq + len(self._drafts) + 1

    @property
    def now(self) -> str:
        """The time of the commit that is being collected."""
        if not self._time:
            self._time = rfc3339(self.services.clock())
        return self._time

    def snapshot(self) -> dict[str, Any]:
        """The committed Session with its positions, as the contract shows it."""
        return self.committed | {
            "updatedAt": self.projection.view.get("updatedAt"),
            "firstSeq": self.log.first_seq,
            "lastSeq": self.log.last_seq,
            "lastId": self.log.last_id,
        }

    def reference(self) -> dict[str, Any]:
        """What a Request says of its session."""
        view = self.projection.view
        return {name: view.get(name) for name in ("title", "cwd", "agent", "owner")}

    # -- collecting ---------------------------------------------------------------------------

    def emit(
        self,
        kind: str,
        params: dict[str, Any],
        *,
        turn_id: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """An entry of the bridge's own; always followed by what it changes of the Session."""
        draft = Draft(kind, dumps(params), turn_id, request_id)
        self._is_cold = True
        self._add(draft, parsed=params)

    def pass_on(
        self,
        method: str,
        params: bytes,
        *,
        request_id: str | None = None,
        subagent: str | None = None,
        file_url: str | None = None,
        peek: UpdatePeek | None = None,
    ) -> None:
        """An entry that carries what the agent sent, byte for byte."""
        turn = self.turn
        draft = Draft(
            method,
            params,
            turn.turn_id if turn else None,
            request_id,
            self.replay == "mark",
            subagent,
            file_url,
        )
        self._add(draft, peek=peek)

    def note(self, code: str, detail: str) -> None:
        """A ``bridge/warning``; it changes nothing of the Session."""
        turn = self.turn
        params = {"code": code, "detail": detail}
        draft = Draft("bridge/warning", dumps(params), turn.turn_id if turn else None)
        self._add(draft, parsed=params)

    def settle_view(self) -> None:
        """An agent's update changed the view: the stored row follows with this commit."""
        self._is_cold = True

    def change(self, **members: Any) -> None:
        """Members of the Session that are different from now on."""
        self._changes.update(members)
        self._is_cold = True

    @property
    def upcoming(self) -> dict[str, Any]:
        """The Session's members as they will be with the next commit."""
        return self.projection.view | self._changes

    def refresh(self) -> None:
        """The status or the queue may have changed: say so with the next commit."""
        self._is_cold = True

    def _add(self, draft: Draft, *, parsed: Any = None, peek: UpdatePeek | None = None) -> None:
        applied = Applied(
            self.log.last_seq + len(self._drafts) + 1,  # next_seq, without a call for each line
            self._time or self.now,
            draft.type,
            draft.params,
            draft.turn_id,
            draft.request_id,
            draft.is_replay,
            draft.subagent,
            parsed,
            peek,
        )
        self._drafts.append(draft)
        if self.is_provisional:
            self._early.append(applied)
        if implied := self.projection.apply(applied):
            self._imply(implied)

    def _imply(self, implied: Mapping[str, Any]) -> None:
        """An update changes more than it conveys: said right behind it.

        Were it said at the commit's end, it would undo what the agent says in between.
        """
        self._is_cold = True
        self._say_changed(implied)

    # -- committing ---------------------------------------------------------------------------

    def accept(self, view: Mapping[str, Any]) -> None:
        """The provisional session becomes one: its first entry carries all of it.

        What the agent said before that follows it. Folding that once more may undo what was
        chosen since, so the difference is said again.
        """
        wanted = self.projection.view | dict(view) | self._changes
        self._changes = {}
        self.is_provisional = False
        self._drafts[0] = Draft("bridge/session", dumps({"changed": wanted}))
        folded = Projection(wanted)
        for applied in self._early:
            folded.apply(applied)
        self._early = []
        self.projection.view = folded.view
        self.change(**wanted)

    def commit(self, meta: dict[str, Any] | None = None) -> None:
        """Append what was collected, in one record, and bring the tables up to date.

        A full disk ends the running turn with ``storage-full`` out of the reserve; if even that
        does not fit, the entries wait here and the agent's output is paused. Only the first commit
        raises ``storage-full``: then there is no session. The tables may fall behind for a while.
        """
        if self.is_provisional:
            self.projection.view.update(self._changes)
            self._changes = {}
            self._send()
            return
        if is_cold := self._is_cold:
            self._publish()
        self.writer.carry(meta)
        if self.is_jammed:
            return
        if not self._drafts:
            self._send()
            return
        try:
            self._append(is_essential=False)
        except StorageError:
            if self.log.last_seq == 0:
                raise
            self._commit_in_need()
            is_cold = True
        if is_cold and not self.is_jammed:
            self._settle()
        self._send()

    def retry(self) -> bool:
        """Commit what a full disk held back; ``False`` while there is no room."""
        try:
            self._append(is_essential=True)
        except StorageError:
            return False
        self.is_jammed = False
        self._settle()
        self._send()
        return True

    def project(self) -> bool:
        """Bring the tables up to date; ``False`` where they cannot take it now."""
        if rows.project(self):
            self.services.behind.discard(self.session_id)
            return True
        self.services.behind.add(self.session_id)
        return False

    def _settle(self) -> None:
        """It is committed: from now on it is shown."""
        self.committed = dict(self.projection.view)
        self.project()
        self._wake()

    def say(self, wire: bytes) -> None:
        """Bytes for the agent, written once what they follow from is committed."""
        self.outbox.append(wire)

    def _send(self) -> None:
        if self.outbox and not self.is_jammed:
            wire, self.outbox = b"".join(self.outbox), []
            if self.link is not None:
                self.link.write(wire)

    def _append(self, *, is_essential: bool) -> None:
        record = self.writer.append(self._drafts, is_essential=is_essential)
        self._drafts = []
        self._time = ""
        self.is_touched = True
        self.projection.touch(rfc3339(record.time))

    def _commit_in_need(self) -> None:
        """The end of what runs, out of the reserve; the agent must not go on unheard."""
        is_cut_short = self.turn is not None
        self.services.hooks.fail_all(
            self, "storage-full", "The disk is full; the turn could not go on."
        )
        self._publish()
        self.writer.drop_turns()
        try:
            self._append(is_essential=True)
        except StorageError:
            logger.exception("the reserve is used up", extra={"session": self.session_id})
            self.is_jammed = True
        if is_cut_short and self.link is not None:
            self.services.tasks.start_soon(self.link.stop, self.services)

    def _publish(self) -> None:
        """Say what differs from the published view, as one ``bridge/session``."""
        self._is_cold = False
        turn = self.projection.turn
        wanted = self._changes | {
            "status": self.status,
            "problem": self.problem,
            "agentSessionId": self.agent_session_id,
            "turn": turn.as_json() if turn else None,
            "queue": [each.turn_id for each in self.queue],
            "pendingRequests": [each.as_json(self.reference()) for each in self.held.pending()],
        }
        self._changes = {}
        self._say_changed(wanted)

    def _say_changed(self, wanted: Mapping[str, Any]) -> None:
        view = self.projection.view
        changed = {
            name: value for name, value in wanted.items() if view.get(name, _MISSING) != value
        }
        if changed:
            self._add(
                Draft("bridge/session", dumps({"changed": changed})), parsed={"changed": changed}
            )

    def _wake(self) -> None:
        """Whoever waits for a turn or a status looks again."""
        self.settled.set()
        self.settled = anyio.Event()
