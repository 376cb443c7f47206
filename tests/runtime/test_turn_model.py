"""A model of session, turn, queue and requests: whatever happens, each request gets one answer.

The synchronous core runs as it is, over a real log and real tables in a folder; the process is a
list of lines, and what would wait (a revival, a hard end) is done by the model when it likes.
What the events must tell of turns is ``turn_story``'s; here is what callers and agents do, only
where it can matter, since random steps seldom get deep by themselves.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from anyio.abc import TaskGroup
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bridge.clock import rfc3339
from bridge.config import load
from bridge.errors import AgentError, CallerError
from bridge.log.cursor import SessionCursor
from bridge.log.forms import Form
from bridge.log.store import Store
from bridge.log.tables import Tables
from bridge.principal import Principal
from bridge.protocol.held import HeldRequest, withdrawn_answer
from bridge.protocol.projection import Projection
from bridge.protocol.rules import parse
from bridge.protocol.view import new_view
from bridge.runtime import closing, lifecycle, recovery, rows, turn_flow
from bridge.runtime.commands import Cancel, CancelTurn, PatchSession, Prompt, Reply
from bridge.runtime.handlers import Handlers
from bridge.runtime.inbox import Inbox
from bridge.runtime.keys import Keys
from bridge.runtime.link import AgentLink
from bridge.runtime.process import ExitStatus
from bridge.runtime.registry import Registry
from bridge.runtime.roots import Roots
from bridge.runtime.services import Hooks, Services
from bridge.runtime.session import LiveSession
from bridge.runtime.spawn import Spawner
from bridge.runtime.timers import Timers
from tests.e2e.folding import fold_session, without_positions
from tests.runtime.turn_story import Story

# A limit in seconds would fall anywhere on a busy machine, and Hypothesis, which runs a failing
# example again, would call that flaky. The number of steps is bounded instead.
pytestmark = pytest.mark.timeout(0)

Json = dict[str, Any]

ASKED: dict[str, tuple[str, Json]] = {
    "permission": (
        "session/request_permission",
        {
            "toolCall": {"toolCallId": "t", "title": "x", "kind": "execute"},
            "options": [
                {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
                {"optionId": "no", "name": "No", "kind": "reject_once"},
            ],
        },
    ),
    "plan": ("cursor/create_plan", {"toolCallId": "p", "name": "n", "plan": "x", "todos": []}),
    "elicitation": ("elicitation/create", {"mode": "url", "url": "x", "elicitationId": "e"}),
    "extension": ("_vendor/ask", {}),
}
PROCEED: Json = {"outcome": "accepted", "proceed": {"prompt": "go on"}}
REPLIES: dict[str, list[Json]] = {
    "permission": [
        {"outcome": "selected", "optionId": "yes"},
        {"outcome": "selected", "kind": "reject_once"},
        {"outcome": "cancelled"},
    ],
    "plan": [
        {"outcome": "accepted"},
        PROCEED,
        {"outcome": "rejected"},
    ],
    "elicitation": [{"action": "accept"}, {"action": "decline"}],
    "extension": [{"result": {}}, {"error": {"code": 1, "message": "no"}}],
}
RULES: list[Json] = [
    {"rules": []},
    {"rules": [{"match": {}, "reply": "reject_once"}]},
    {"rules": [{"match": {"kind": "execute"}, "reply": "allow_once"}]},
    {"rules": [], "onTimeout": {"afterSeconds": 60, "reply": "cancel"}},
]


class Process:
    """What an agent was told, line by line."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.lines: list[Json] = []

    def write(self, data: bytes) -> None:
        """Lines for the agent."""
        self.lines += [json.loads(line) for line in data.splitlines()]

    def pause(self) -> None:
        """The disk is full."""

    async def stop(self, step_s: float) -> None:
        """Its session was closed."""

    def told(self, method: str) -> list[Json]:
        """What it was told under this name."""
        return [each for each in self.lines if each.get("method") == method]

    def unanswered(self, asked: list[tuple[Process, int]]) -> list[int]:
        """Its requests that got no answer."""
        return [rpc_id for by, rpc_id in asked if by is self and not self.answers_to(rpc_id)]

    def answers_to(self, rpc_id: int) -> list[Json]:
        """The answers that reached the agent under its id."""
        return [each for each in self.lines if "method" not in each and each.get("id") == rpc_id]


class Waiting:
    """The task group of the model: what is begun is kept until the model does it."""

    def __init__(self) -> None:
        self.begun: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def start_soon(self, func: Callable[..., Any], *args: Any, name: object = None) -> None:
        """Keep it."""
        self.begun.append((func, args))

    def take(self, func: Callable[..., Any]) -> list[tuple[Any, ...]]:
        """What was begun with this function."""
        found = [args for each, args in self.begun if each is func]
        self.begun = [pair for pair in self.begun if pair[0] is not func]
        return found


class Model(RuleBasedStateMachine):
    """One session over any number of processes and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.folder = Path(self.resources.enter_context(tempfile.TemporaryDirectory()))
        self.now = 1_800_000_000.0
        self.numbers = itertools.count()
        self.waiting = Waiting()
        self.principal = Principal("owner", "token", frozenset({"admin"}))
        self.asked: list[tuple[Process, int]] = []
        self.turns: list[str] = []
        self.story = Story()
        self.permissions: Json = {"rules": []}
        self.view: Json = {}
        self.seen = 0
        self.link: AgentLink | None = None

    @initialize(permissions=st.sampled_from(RULES))
    def open(self, permissions: Json) -> None:
        """A session with an agent that is idle."""
        self._start()
        view = new_view(
            f"ses_{'0' * 32}",
            owner="owner",
            agent="a",
            cwd=str(self.folder),
            at="2027-01-15T08:00:00.000Z",
            status="idle",
            agentSessionId="agent-session",
            capabilities={},
        )
        self.session_id = str(view["sessionId"])
        session = LiveSession(
            self.services,
            self.session_id,
            projection=Projection(view),
            private={},
            permissions=parse({"rules": []}, allow_always=False),
            is_provisional=True,
        )
        self.services.tables.save_session(
            rows.row_of(view, private={}, last_seq=0, last_id=0, is_open=True)
        )
        self.registry.add(session)
        self._connect(session)
        session.accept(view)
        session.commit({"private": {}})
        self.change_rules(permissions)

    def _start(self) -> None:
        """A bridge over what the folder holds."""
        configuration = load(
            None,
            roots=(str(self.folder),),
            agents={"a": {"command": ["a"]}},
            storage={"state_dir": self.folder, "reserve_bytes": 0},
        )
        store = Store(
            self.folder / "log", segment_bytes=65536, reserve_bytes=0, clock=lambda: self.now
        )
        self.resources.callback(store.close)
        tables = Tables(self.folder / "bridge.sqlite3")
        self.resources.callback(tables.close)
        self.services = Services(
            settings=configuration,
            store=store,
            tables=tables,
            timers=Timers(lambda: self.now),
            tasks=cast("TaskGroup", self.waiting),
            spawn=cast("Spawner", None),
            clock=lambda: self.now,
            state_tag="tag",
            version="0",
        )
        self.registry = Registry(self.services)
        self.services.hooks = Hooks(
            cast(
                "Any",
                SimpleNamespace(ended=lambda link: None, check_room=lambda session: None),
            ),
            cast("Any", None),
            Roots(["/"]),
            lifecycle.advance,
            turn_flow.fail_all,
        )
        self.handlers = Handlers(self.services, self.registry)
        self.keys = Keys(self.services)

    def _connect(self, session: LiveSession) -> None:
        self.link = AgentLink(Inbox(session), max_line_bytes=1 << 20)
        self.process = Process(next(self.numbers))
        self.link.process = cast("Any", self.process)
        session.link = self.link

    @property
    def session(self) -> LiveSession:
        """The session in memory."""
        return self.registry.load(self.session_id)

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs, waits or is queued."""
        return self.session.turn is not None or bool(self.session.queue)

    @property
    def is_stirring(self) -> bool:
        """Whether there is anything that an end could interrupt."""
        return self.is_busy or bool(self.session.held.pending())

    @property
    def is_answerable(self) -> bool:
        """Whether the agent is at a prompt that nobody cancelled."""
        turn = self.session.turn
        has_prompt = self.link is not None and self.session.prompt_call is not None
        return has_prompt and turn is not None and turn.cancelled_by is None

    @property
    def is_timed(self) -> bool:
        """Whether a time limit runs."""
        return self.session.cancel_timer is not None or self.session.expiry_timer is not None

    def _says(self, message: Json) -> None:
        assert self.link is not None
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        self.link.output_received(line)
        self._settle()

    def _settle(self) -> None:
        """Hard ends happen at once; revivals wait for their rule."""
        for link, _ in self.waiting.take(lifecycle.kill):
            if self.link is link:
                self._exit(ExitStatus(None, "SIGKILL"))

    def _exit(self, status: ExitStatus) -> None:
        link, self.link = self.link, None
        assert link is not None
        link.exited(status)

    # -- callers ---------------------------------------------------------------------------------

    @rule(
        on_busy=st.sampled_from(["reject", "queue", "interrupt"]),
        resend=st.booleans(),
        is_slow=st.sampled_from([False, False, False, True]),
    )
    def prompt(self, on_busy: Any, resend: bool, is_slow: bool) -> None:
        """A turn begins, waits, or is refused."""
        is_busy = self.is_busy
        text = str(next(self.numbers))
        command = Prompt(
            self.principal,
            self.session_id,
            ({"type": "text", "text": text},),
            on_busy,
            resend_cancelled=resend,
        )
        try:
            outcome = self.handlers.prompt(command, self.keys.claim("owner", None))
        except CallerError as error:
            assert error.code == "turn-in-progress" and is_busy and on_busy == "reject"
            return
        assert outcome.value is not None and not (is_busy and on_busy == "reject")
        turn_id = outcome.value["turnId"]
        self.turns.append(turn_id)
        self.story.texts[turn_id], self.story.resends[turn_id] = text, resend
        if on_busy == "interrupt":
            first = self.session.queue[0] if self.session.queue else self.session.turn
            assert first is not None and first.turn_id == turn_id
        self._settle()
        if not is_slow and self.session.queue and self.session.turn is None:
            self.revive(is_fine=True)

    @rule(is_hard=st.booleans())
    @precondition(lambda self: self.is_busy)
    def cancel(self, is_hard: bool) -> None:
        """Softly or hard."""
        turn, told = self.session.turn, len(self.process.told("session/cancel"))
        self.handlers.cancel(Cancel(self.principal, self.session_id, None, is_hard))
        assert turn is None or len(self.process.told("session/cancel")) == told + 1
        self._settle()
        assert not is_hard or self.link is None

    @rule(data=st.data())
    @precondition(lambda self: bool(self.turns) and self.is_busy)
    def cancel_turn(self, data: st.DataObject) -> None:
        """Any turn that ever was."""
        turn_id = data.draw(st.sampled_from(self.turns))
        self.handlers.cancel(CancelTurn(self.principal, self.session_id, turn_id))
        assert turn_id not in [turn.turn_id for turn in self.session.queue]
        self._settle()

    @rule(data=st.data())
    @precondition(lambda self: bool(self.session.held.pending()))
    def reply(self, data: st.DataObject) -> None:
        """The first valid reply wins; whatever comes later changes nothing."""
        request = data.draw(st.sampled_from(self.session.held.pending()))
        bodies = st.sampled_from(REPLIES[request.kind])
        self._replies(request, data.draw(bodies), data.draw(bodies))

    def _replies(self, request: HeldRequest, first: Json, second: Json) -> None:
        claim = self.keys.claim("owner", None)
        self.story.accepted(request.turn_id, request.request_id, first)
        self.handlers.reply(
            Reply(self.principal, self.session_id, request.request_id, first), claim
        )
        try:
            self.handlers.reply(
                Reply(self.principal, self.session_id, request.request_id, second), claim
            )
        except CallerError as error:
            assert error.code == "request-already-answered" and first != second
        self._settle()

    @rule(permissions=st.sampled_from(RULES))
    @precondition(lambda self: bool(self.session.held.pending()))
    def change_rules(self, permissions: Json) -> None:
        """They hold for what waits as well."""
        self.permissions = permissions
        fields = {"permissions": permissions}
        self.handlers.patch(PatchSession(self.principal, self.session_id, fields))
        self._settle()

    # -- the agent -------------------------------------------------------------------------------

    @rule(kinds=st.lists(st.sampled_from(sorted(ASKED)), min_size=1, max_size=3))
    @precondition(lambda self: self.link is not None)
    @precondition(lambda self: self.session.turn is not None or not self.is_stirring)
    def ask(self, kinds: list[str]) -> None:
        """The agent asks, in a turn or outside of one."""
        for kind in kinds:
            rpc_id = next(self.numbers)
            method, params = ASKED[kind]
            self.asked.append((self.process, rpc_id))
            self._says({"id": rpc_id, "method": method, "params": params})

    @rule(data=st.data())
    @precondition(lambda self: self.link is not None and bool(self.session.held.pending()))
    def give_up_asking(self, data: st.DataObject) -> None:
        """ACP's ``$/cancel_request``."""
        request = data.draw(st.sampled_from(self.session.held.pending()))
        params = {"requestId": json.loads(request.rpc_id)}
        self._says({"method": "$/cancel_request", "params": params})
        assert request.request_id not in [each.request_id for each in self.session.held.pending()]

    @rule(
        kind=st.sampled_from(["agent_message_chunk", "tool_call", "plan"]),
        by=st.sampled_from(["agent-session", "subagent"]),
    )
    @precondition(lambda self: self.link is not None)
    def update(self, kind: str, by: str) -> None:
        """Something to show, of its own or of a subagent's."""
        update: Json = {"sessionUpdate": kind, "entries": []}
        if kind == "agent_message_chunk":
            update["content"] = {"type": "text", "text": "t"}
        elif kind == "tool_call":
            update |= {"toolCallId": f"t{next(self.numbers)}", "status": "in_progress"}
        self._says({"method": "session/update", "params": {"sessionId": by, "update": update}})

    @rule(stop_reason=st.sampled_from(["end_turn", "cancelled", "refusal", None]))
    @precondition(lambda self: self.link is not None and self.session.prompt_call is not None)
    def end_turn(self, stop_reason: str | None) -> None:
        """The agent answers the prompt, with a stop reason or an error."""
        sent = self.process.told("session/prompt")
        answer: Json = {"result": {"stopReason": stop_reason}}
        if stop_reason is None:
            answer = {"error": {"code": -32603, "message": "no"}}
        self._says({"id": sent[-1]["id"], **answer})

    @rule(
        reply=st.sampled_from([PROCEED, PROCEED, *REPLIES["plan"]]),
        stop_reason=st.sampled_from(["end_turn", "end_turn", "cancelled", None]),
        is_cancelled=st.booleans(),
    )
    @precondition(lambda self: self.is_answerable)
    def plan_and_end(self, reply: Json, stop_reason: str | None, is_cancelled: bool) -> None:
        """A plan is judged, then its turn ends, in each of the ways it may."""
        self.ask(["plan"])
        self._replies(self.session.held.pending()[-1], reply, reply)
        if is_cancelled:
            self.cancel(is_hard=False)
        self.end_turn(stop_reason)

    @rule()
    @precondition(lambda self: self.link is not None and not self.is_stirring)
    def plan_outside_of_a_turn(self) -> None:
        """It is gone on with at once."""
        self.ask(["plan"])
        self._replies(self.session.held.pending()[-1], PROCEED, PROCEED)

    @rule(replies=st.sampled_from([[], [0], [1], [1], [2], [0, 1], [1, 0]]))
    @precondition(lambda self: self.is_answerable)
    def permissions_and_end(self, replies: list[int]) -> None:
        """Some agents end the turn as cancelled after a refusal."""
        for number in replies:
            known = len(self.session.held.pending())
            self.ask(["permission"])
            if len(self.session.held.pending()) > known:
                reply = REPLIES["permission"][number]
                self._replies(self.session.held.pending()[-1], reply, reply)
        self.end_turn("cancelled")

    @rule(seconds=st.sampled_from([1, 6, 40, 61]))
    @precondition(lambda self: self.is_timed)
    def wait(self, seconds: int) -> None:
        """Time limits run out."""
        turn, link = self.session.turn, self.link
        was_cancelled = turn is not None and turn.cancelled_by == "caller"
        self.now += seconds
        self.services.timers.sweep()
        self._settle()
        if seconds > self.services.settings.limits.cancel_grace_s and was_cancelled:
            assert turn is not None and turn.has_ended
        assert was_cancelled or self.link is link
        assert not self.session.held.due(rfc3339(self.now))

    @rule(code=st.sampled_from([0, 3]))
    @precondition(lambda self: self.link is not None and self.is_stirring)
    def exit(self, code: int) -> None:
        """The process is gone."""
        self._exit(ExitStatus(code, None, "tail"))
        self._settle()

    @rule(is_fine=st.booleans())
    @precondition(lambda self: bool(self.session.queue) and self.session.turn is None)
    def revive(self, is_fine: bool) -> None:
        """What a revival comes to, inside the first queued turn."""
        assert self.waiting.take(lifecycle.advance), "nobody would have begun the queue"
        session = self.session
        while session.queue and session.turn is None:
            if is_fine:
                if not session.is_live:
                    self._connect(session)
                turn_flow.begin(session)
                session.commit()
            else:
                turn = session.queue[0]
                turn.error = self.services.describe(AgentError("agent-timeout", "too slow"))
                turn_flow.drop_queued(session, turn, "fail", "error")
                session.problem = turn.error
                session.commit()

    @rule()
    @precondition(lambda self: self.is_stirring)
    def restart(self) -> None:
        """The bridge is killed and started again; its agent is ended first."""
        self.link = None
        self.waiting.begun.clear()
        self.services.store.close()
        self.services.tables.close()
        self._start()
        recovery.recover(self.services, self.registry)

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def each_request_has_one_answer_at_most(self) -> None:
        """And exactly one once it is settled and its agent lives."""
        waits = {request.rpc_id for request in self.session.held.pending()}
        for process, rpc_id in self.asked:
            answers = process.answers_to(rpc_id)
            assert len(answers) <= 1
            if self.link is not None and process is self.process:
                assert len(answers) == (str(rpc_id).encode() not in waits)

    @invariant()
    def the_status_follows_from_the_parts(self) -> None:
        """By the contract's table, and from committed state alone."""
        shown = self.registry.snapshot(self.session_id)
        turn = shown["turn"]
        is_open = turn is not None and turn["endedAt"] is None
        blocked = [
            each
            for each in shown["pendingRequests"]
            if is_open and each["turnId"] == turn["turnId"]
        ]
        assert not (is_open and turn["cancelledBy"] == "caller" and blocked)
        if is_open:
            assert shown["status"] == turn["status"] == ("waiting" if blocked else "running")
        elif shown["queue"]:
            assert shown["status"] == "starting"
        else:
            assert shown["status"] in ("idle", "hibernated", "failed")
            assert shown["status"] != "failed" or shown["problem"] is not None
        if self.link is None and not shown["queue"]:
            assert shown["pendingRequests"] == [] and not is_open

    @invariant()
    def the_session_is_the_fold_of_its_events(self) -> None:
        """Also over restarts."""
        shown = self.registry.snapshot(self.session_id)
        log = self.services.store.log(self.session_id)
        page = SessionCursor(log, after=self.seen, form=Form()).page(1000)
        events = [json.loads(event) for event in page.events]
        for event in events:
            self.story.take(event)
        self.story.holds_now()
        self.view = fold_session(self.view, events)
        self.seen = page.next_after
        assert self.seen == shown["lastSeq"] and self.view == without_positions(shown)

    @invariant()
    def what_rules_decide_waits_for_nobody(self) -> None:
        """Each of the rules here answers each permission there is."""
        kinds = [each.kind for each in self.session.held.pending()]
        assert not self.permissions["rules"] or "permission" not in kinds

    @invariant()
    def nothing_is_kept_of_turns_that_are_over(self) -> None:
        """What a prompt asked for is known until it begins or is dropped."""
        assert set(self.session.prompts) == {turn.turn_id for turn in self.session.queue}

    def teardown(self) -> None:
        """Whatever was left: every turn ends and every request is settled."""
        with self.resources:
            if hasattr(self, "session_id"):
                if next(self.numbers) % 2:
                    self._close()
                self.restart()
                self._all_has_ended()

    def _close(self) -> None:
        """Its deletion ends whatever is left of it, and tells the agent."""
        session, link = self.session, self.link
        running = [turn.turn_id for turn in [session.turn, *session.queue] if turn is not None]
        anyio.run(partial(closing.close, session, self.registry, is_purge=False))
        assert link is None or not self.process.unanswered(self.asked)
        self.link = None
        self.the_session_is_the_fold_of_its_events()
        assert self.view["status"] == "closed" and self.view["pendingRequests"] == []
        assert {self.story.ended[turn_id]["status"] for turn_id in running} <= {"cancelled"}

    def _all_has_ended(self) -> None:
        tables = self.services.tables
        found, _ = tables.turns(self.session_id, cursor=None, limit=1000)
        ended = {row.turn_id: json.loads(row.body) for row in found}
        assert set(self.turns) <= set(ended)
        assert all(turn["endedAt"] and turn["outcome"] for turn in ended.values())
        requests, _ = tables.requests(
            session_id=self.session_id, owners=frozenset({"owner"}), status=None, limit=1000
        )
        assert len(requests) == len(self.asked)
        assert all(row.status in ("answered", "withdrawn") for row in requests)
        for row in requests:
            shown = json.loads(row.body)
            if row.status == "withdrawn":
                told = withdrawn_answer(shown["kind"]).outcome
                assert shown["resolution"]["outcome"] == told


class LongModel(Model):
    """The same, for as long as it takes to get everywhere."""


def _settings(max_examples: int, steps: int) -> settings:
    return settings(
        max_examples=max_examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


Model.TestCase.settings = _settings(20, 60)
TestModel = Model.TestCase
LongModel.TestCase.settings = _settings(120, 100)
TestLongModel = pytest.mark.faults(LongModel.TestCase)
