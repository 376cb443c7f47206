"""The contract's requests that wait for a person: kinds, replies, races, rules, time limits."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.contract import module_backend, module_bridge, module_tidy  # noqa: F401
from tests.e2e.harness import Bridge, Json, ended, serving
from tests.e2e.test_contract_around import problem_of
from tests.e2e.test_contract_sessions import path_of, shown
from tests.faults.rig import PERMISSION, case

pytestmark = pytest.mark.anyio

ONCE = {"outcome": "selected", "kind": "allow_once"}


class Asked:
    """A session whose turn waits for a person."""

    def __init__(self, bridge: Bridge, session: Json, turn: Json, request: Json) -> None:
        self.bridge = bridge
        self.session = session
        self.turn = turn
        self.request = request

    @property
    def path(self) -> str:
        """The request's address."""
        return f"{path_of(self.session)}/requests/{self.request['requestId']}"

    async def reply(self, body: Any, **headers: str) -> Any:
        """Reply with a body."""
        return await self.bridge.caller.post(f"{self.path}/reply", body, headers=headers)

    async def ended(self) -> Json:
        """The turn at its end."""
        turn_id = self.turn["turnId"]
        await self.bridge.caller.until(f"{path_of(self.session)}/events", ended(turn_id))
        found: Json = (
            await self.bridge.caller.get(f"{path_of(self.session)}/turns/{turn_id}")
        ).json()
        return found

    async def read(self) -> Json:
        """The request as it is now."""
        found: Json = (await self.bridge.caller.get(self.path)).json()
        return found


async def ask(bridge: Bridge, word: str, **session: Any) -> Asked:
    """Prompt for something that needs a person."""
    made = await bridge.caller.session(**session)
    turn = await bridge.caller.turn(made["sessionId"], word)
    assert turn["status"] == "waiting", turn
    return Asked(bridge, made, turn, (await bridge.caller.pending(made["sessionId"]))[0])


# -- what they are -----------------------------------------------------------------------------


async def test_a_request_says_whose_it_is_and_what_it_asks(bridge: Bridge) -> None:
    asked = await ask(bridge, "tool", title="whose")
    request = asked.request
    assert request["session"] == {
        "title": "whose",
        "cwd": asked.session["cwd"],
        "agent": "demo",
        "owner": "local",
    }
    assert (request["kind"], request["method"]) == ("permission", "session/request_permission")
    assert request["turnId"] == asked.turn["turnId"] and request["status"] == "pending"
    assert request["toolCall"]["kind"] == "execute" and request["toolCall"]["toolCallId"]
    offered = [option["optionId"] for option in request["params"]["options"]]
    assert "allow-always" in offered and "allow-always" not in request["allowedOptionIds"]
    assert request["expiresAt"] is None and request["resolution"] is None
    session = await shown(bridge, asked.session)
    assert session["status"] == "waiting" and session["pendingRequests"] == [request]
    assert await asked.read() == request


async def test_requests_are_listed_over_all_sessions_and_by_status(bridge: Bridge) -> None:
    asked = await ask(bridge, "tool")
    wanted = asked.request["requestId"]
    everywhere = (await bridge.caller.get("/v1/requests?limit=200")).json()
    assert wanted in [each["requestId"] for each in everywhere["requests"]]
    assert everywhere["lastId"] > 0 and everywhere["nextCursor"] is None
    await asked.reply(ONCE)
    await asked.ended()
    path = f"{path_of(asked.session)}/requests"
    assert (await bridge.caller.get(path)).json()["requests"] == []
    listed = (await bridge.caller.get(f"{path}?status=all")).json()["requests"]
    assert [each["status"] for each in listed] == ["answered"]
    problem_of(await bridge.caller.get(f"{path}?status=odd"), 422, "invalid-request")
    problem_of(await bridge.caller.get(f"{path}/req_none"), 404, "request-not-found")
    answer = await bridge.caller.post(f"{path}/req_none/reply", ONCE)
    problem_of(answer, 404, "request-not-found")


# -- replies by kind ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "body", "outcome", "said"),
    [
        ("tool", ONCE, {"outcome": "selected", "optionId": "allow-once"}, "answered"),
        (
            "tool",
            {"outcome": "selected", "optionId": "reject-once"},
            {"outcome": "selected", "optionId": "reject-once"},
            "",
        ),
        ("tool", {"outcome": "cancelled"}, {"outcome": "cancelled"}, ""),
        ("question", {"outcome": "skipped", "reason": "why"}, None, "You skipped it: why"),
        ("question", {"outcome": "cancelled"}, None, "User cancelled the question"),
        (
            "question",
            {
                "outcome": "answered",
                "answers": [
                    {"questionId": "database", "selectedOptionIds": ["sqlite"]},
                    {"questionId": "checks", "selectedOptionIds": ["types", "tests"]},
                ],
            },
            None,
            "database: sqlite; checks: types, tests",
        ),
        ("plan", {"outcome": "accepted", "planUri": "file:///p"}, None, ""),
        ("plan", {"outcome": "rejected", "reason": "no"}, None, "You rejected the plan: no"),
        ("plan", {"outcome": "cancelled"}, None, "User cancelled the plan"),
        ("elicit", {"action": "accept", "content": {"name": "Ada"}}, None, "accept"),
        ("elicit", {"action": "decline"}, None, "decline"),
        ("elicit url", {"action": "cancel"}, None, "cancel"),
        ("vendor", {"result": {"fine": 1}}, None, "'fine': 1"),
        ("vendor", {"error": {"code": -7, "message": "no"}}, None, "the error -7"),
    ],
)
async def test_a_reply_is_the_inner_outcome_and_reaches_the_agent_as_it_needs_it(
    bridge: Bridge, word: str, body: Json, outcome: Json | None, said: str
) -> None:
    asked = await ask(bridge, word)
    answer = await asked.reply(body)
    assert answer.status_code == 200, answer.text
    resolution = answer.json()["resolution"]
    assert answer.json()["status"] == "answered"
    assert resolution["outcome"] == (outcome or body)
    me = (await bridge.caller.get("/v1/me")).json()
    assert (resolution["by"], resolution["token"]) == ("caller", me["token"]["name"])
    turn = await asked.ended()
    assert turn["endedAt"] and said in turn["text"]


@pytest.mark.parametrize(
    ("word", "body"),
    [
        ("tool", {}),
        ("tool", []),
        ("tool", {"outcome": "selected"}),
        ("tool", {"outcome": "selected", "optionId": "none"}),
        ("tool", {"outcome": "selected", "optionId": "allow-always"}),
        ("tool", {"outcome": "selected", "kind": "allow_always"}),
        ("tool", {"outcome": "selected", "kind": "allow_once", "optionId": "allow-once"}),
        ("tool", {"action": "accept"}),
        ("tool", {"outcome": "accepted"}),
        ("tool", {"outcome": {"outcome": "selected", "optionId": "allow-once"}}),
        ("question", {"outcome": "answered", "answers": []}),
        ("question", ONCE),
        ("plan", {"outcome": "accepted", "proceed": {"modeId": "agent"}}),
        ("plan", {"outcome": "skipped"}),
        ("elicit", {"action": "accept", "content": {"name": ""}}),
        ("elicit", {"action": "accept", "content": {"name": "x", "times": 99}}),
        ("vendor", {"result": 1, "error": {"code": 1, "message": "x"}}),
        ("vendor", {"outcome": "cancelled"}),
    ],
)
async def test_a_reply_that_does_not_fit_is_refused_and_the_request_still_waits(
    bridge: Bridge, word: str, body: Any
) -> None:
    asked = await ask(bridge, word)
    assert problem_of(await asked.reply(body), 422, "reply-not-valid")["available"]
    assert (await asked.read())["status"] == "pending"


async def test_a_kind_that_fits_two_options_must_be_named_by_its_option(bridge: Bridge) -> None:
    asked = await ask(bridge, "two kinds", agent="permission")
    problem_of(await asked.reply(ONCE), 422, "reply-not-valid")


async def test_an_accepted_plan_can_be_gone_on_with_ahead_of_the_queue(bridge: Bridge) -> None:
    asked = await ask(bridge, "plan", mode="plan")
    session_id = asked.session["sessionId"]
    queued = await bridge.caller.prompt(session_id, "hello queued", onBusy="queue")
    nowhere = {"modeId": "nowhere", "prompt": "hello"}
    refused = await asked.reply({"outcome": "accepted", "proceed": nowhere})
    problem = problem_of(refused, 422, "mode-not-available")
    assert "agent" in problem["available"] and (await asked.read())["status"] == "pending"
    proceed = {"modeId": "agent", "prompt": "hello proceed"}
    answer = await asked.reply({"outcome": "accepted", "proceed": proceed})
    assert answer.json()["resolution"]["outcome"]["proceed"] == proceed
    await bridge.caller.settled(session_id, queued["turnId"])
    turns = (await bridge.caller.get(f"{path_of(asked.session)}/turns")).json()["turns"]
    caused = next(each for each in turns if each["causedBy"])
    assert caused["causedBy"] == asked.request["requestId"]
    events = await bridge.caller.log(session_id)
    order = [event["turnId"] for event in events if event["type"] == "bridge/turn_started"]
    assert order == [asked.turn["turnId"], caused["turnId"], queued["turnId"]]
    assert (await shown(bridge, asked.session))["mode"]["current"] == "agent"


# -- races -------------------------------------------------------------------------------------


async def test_of_twenty_replies_at_once_one_wins_and_equal_ones_are_fine(bridge: Bridge) -> None:
    asked = await ask(bridge, "tool")
    bodies = [ONCE, {"outcome": "selected", "kind": "reject_once"}] * 10
    answers: list[tuple[Json, Any]] = []

    async def reply(body: Json) -> None:
        answers.append((body, await asked.reply(body)))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for body in bodies:
                tasks.start_soon(reply, body)
    won = (await asked.read())["resolution"]
    kind = "allow_once" if won["outcome"]["optionId"] == "allow-once" else "reject_once"
    for body, answer in answers:
        if body["kind"] == kind:
            assert answer.status_code == 200 and answer.json()["resolution"] == won
        else:
            problem = problem_of(answer, 409, "request-already-answered")
            assert problem["resolution"] == won
    await asked.ended()
    log = await bridge.caller.log(asked.session["sessionId"])
    assert [event["type"] for event in log].count("bridge/request_resolved") == 1


async def test_a_withdrawn_request_is_gone(bridge: Bridge) -> None:
    for word in ("tool", "vendor", "elicit"):
        asked = await ask(bridge, word)
        await bridge.caller.post(f"{path_of(asked.session)}/cancel")
        await asked.ended()
        problem = problem_of(
            await asked.reply(ONCE if word == "tool" else {"action": "decline"}),
            410,
            "request-withdrawn",
        )
        assert problem["resolution"]["by"] == "cancel"
        assert (await asked.read())["status"] == "withdrawn"


async def test_what_the_agent_no_longer_waits_for_is_withdrawn_with_its_process(
    bridge: Bridge,
) -> None:
    asked = await ask(bridge, "tool")
    live = bridge.application.context.running.queries.live(asked.session["sessionId"])
    assert live is not None and live.link is not None and live.link.process is not None
    os.kill(live.link.process.pid, signal.SIGKILL)
    turn = await asked.ended()
    assert turn["error"]["code"] == "agent-exited"
    assert (await asked.read())["resolution"]["by"] == "agent-exit"


async def test_a_repeated_reply_finds_its_answer(bridge: Bridge) -> None:
    asked = await ask(bridge, "tool")
    key = {"Idempotency-Key": uuid.uuid4().hex}
    first = await asked.reply(ONCE, **key)
    second = await asked.reply(ONCE, **key)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["resolution"] == second.json()["resolution"]
    other = await asked.reply({"outcome": "cancelled"}, **key)
    problem_of(other, 422, "idempotency-key-reused")


# -- rules -------------------------------------------------------------------------------------


def rules(*each: Json, **more: Any) -> Json:
    """Permissions with these rules."""
    return {"rules": list(each), **more}


async def play(bridge: Bridge, word: str, permissions: Json, agent: str = "permission") -> Json:
    """A turn of a session with rules, as far as it gets by itself."""
    session = await bridge.caller.session(agent=agent, permissions=permissions)
    return await bridge.caller.turn(session["sessionId"], word)


async def test_the_first_rule_that_fits_answers_without_anybody(bridge: Bridge) -> None:
    allow = {"match": {"kind": "execute"}, "reply": "allow_once"}
    refuse = {"match": {}, "reply": "reject_once"}
    session = await bridge.caller.session(permissions=rules(allow, refuse))
    turn = await bridge.caller.turn(session["sessionId"], "tool")
    assert turn["status"] == "completed"
    listed = await bridge.caller.get(f"{path_of(session)}/requests?status=all")
    resolution = listed.json()["requests"][0]["resolution"]
    assert (resolution["by"], resolution["token"]) == ("policy", None)
    assert resolution["outcome"]["optionId"] == "allow-once"


@pytest.mark.parametrize(
    ("word", "path", "is_decided"),
    [
        ("edit inside", "**", True),
        ("edit inside", "/**", True),
        ("edit dots", "{cwd}/**", False),
        ("edit several", "{cwd}/**", False),
        ("edit several", "/**", True),
        ("no tool", "**", False),
        ("two kinds", "**", False),
        ("another before", "**", False),
        ("another before", "/**", True),
    ],
)
async def test_a_path_must_fit_wherever_the_request_really_leads(
    bridge: Bridge, word: str, path: str, is_decided: bool
) -> None:
    pattern = path.replace("{cwd}", str(bridge.workspace))
    turn = await play(bridge, word, rules({"match": {"path": pattern}, "reply": "allow_once"}))
    assert (turn["status"] == "completed") is is_decided, turn


async def test_a_tool_that_was_told_as_another_kind_before_is_allowed_as_neither(
    bridge: Bridge,
) -> None:
    for kind in ("read", "execute"):
        allowing = rules({"match": {"kind": kind}, "reply": "allow_once"})
        assert (await play(bridge, "another before", allowing))["status"] == "waiting"
        refusing = rules({"match": {"kind": kind}, "reply": "reject_once"})
        assert (await play(bridge, "another before", refusing))["status"] == "completed"


@pytest.mark.parametrize(
    "permissions",
    [
        rules({"match": {"title": "ls"}, "reply": "allow_once"}),
        rules({"match": {}, "reply": "allow_always"}),
        rules({"match": {"method": "cursor/*"}, "reply": "allow_once"}),
        rules({"match": {"colour": "red"}, "reply": "ask"}),
        rules({"match": {}, "reply": "perhaps"}),
        rules(onTimeout={"afterSeconds": 0, "reply": "cancel"}),
        rules(onTimeout={"afterSeconds": 5, "reply": "allow_always"}),
        {"rule": []},
    ],
)
async def test_rules_that_must_not_be_are_refused(bridge: Bridge, permissions: Json) -> None:
    answer = await bridge.caller.post("/v1/sessions", {"permissions": permissions})
    problem_of(answer, 422, "invalid-request")


async def test_questions_know_only_cancel_and_ask(bridge: Bridge) -> None:
    cancel = {"match": {"method": "cursor/ask_question"}, "reply": "cancel"}
    session = await bridge.caller.session(permissions=rules(cancel))
    turn = await bridge.caller.turn(session["sessionId"], "question")
    assert "User cancelled the question" in turn["text"]


async def test_changed_rules_hold_for_what_already_waits(bridge: Bridge) -> None:
    asked = await ask(bridge, "tool")
    patched = await bridge.caller.http.patch(
        path_of(asked.session),
        json={"permissions": rules({"match": {}, "reply": "reject_once"})},
    )
    assert patched.json()["pendingRequests"] == []
    assert (await asked.read())["resolution"]["by"] == "policy"
    await asked.ended()


async def test_rules_that_take_long_reach_all_that_waits_with_others_served_between(
    tmp_path: Path,
) -> None:
    asking = {**PERMISSION["params"], "toolCall": {"toolCallId": "t", "title": "a" * 9000}}
    steps = [PERMISSION | {"params": asking, "id": f"r{n}", "wait": False} for n in range(9)]
    many = {"match": "^many", "steps": [*steps, {"wait_answers": 9}]}
    command = case(tmp_path, prompts=[many])
    async with serving(tmp_path, {"a": {"command": command}}, default_agent="a") as bridge:
        session = await bridge.caller.session()
        turn = await bridge.caller.prompt(session["sessionId"], "many")
        async with bridge.caller.stream(f"{path_of(session)}/events") as events:
            asked = 0
            async for event in events:
                asked += event.kind == "session/request_permission"
                if asked == 9:
                    break
        slow = [{"match": {"title": f"*a*{n}"}, "reply": "cancel"} for n in range(2)]
        changed = rules(*slow, {"match": {}, "reply": "reject_once"})
        patched = await bridge.caller.http.patch(path_of(session), json={"permissions": changed})
        assert patched.status_code == 200
        assert 0 < len(patched.json()["pendingRequests"]) < 9
        ended = await bridge.caller.settled(session["sessionId"], turn["turnId"])
        assert ended["status"] == "completed", ended
        listed = await bridge.caller.get(f"{path_of(session)}/requests?status=all")
        assert {each["resolution"]["by"] for each in listed.json()["requests"]} == {"policy"}


async def test_a_time_limit_counts_from_the_beginning_and_answers_as_told(bridge: Bridge) -> None:
    asked = await ask(bridge, "tool")
    limit = rules(onTimeout={"afterSeconds": 0.3, "reply": "reject_once"})
    patched = await bridge.caller.http.patch(path_of(asked.session), json={"permissions": limit})
    assert patched.status_code == 200
    turn = await asked.ended()
    request = await asked.read()
    assert turn["endedAt"] and request["resolution"]["by"] == "timeout"
    assert request["resolution"]["outcome"]["optionId"] == "reject-once"
    assert request["createdAt"] < request["expiresAt"]


# -- what the bridge answers by itself ---------------------------------------------------------


async def test_notifications_in_the_form_of_requests_are_answered_at_once(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    turn = await bridge.caller.turn(session["sessionId"], "todos")
    assert turn["status"] == "completed"
    events = await bridge.caller.log(session["sessionId"])
    updates = [event for event in events if event["type"] == "cursor/update_todos"]
    assert updates and all("requestId" not in event for event in updates)
    todos = (await shown(bridge, session))["todos"]
    assert [each["status"] for each in todos] == ["completed"] * 3


async def test_an_image_inside_the_folder_has_an_address(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    await bridge.caller.turn(session["sessionId"], "image")
    events = await bridge.caller.log(session["sessionId"])
    image = next(event for event in events if event["type"] == "cursor/generate_image")
    answer = await bridge.caller.get(image["fileUrl"])
    assert answer.status_code == 200 and answer.content.startswith(b"\x89PNG")
