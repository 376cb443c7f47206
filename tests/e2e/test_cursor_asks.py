"""What Cursor and other agents ask: extensions, questions, plans, permissions, forms.

Every docstring names where the fact comes from.
"""

from __future__ import annotations

import json

import pytest

from tests.e2e.harness import Json, ended
from tests.e2e.stage import (  # noqa: F401
    ONCE,
    Stage,
    asked,
    case,
    module_backend,
    module_limits,
    module_playhouse,
    one_stage,
)

pytestmark = pytest.mark.anyio


async def todos_of(stage: Stage, session_id: str) -> list[tuple[str, str]]:
    """The session's todos, each as its text and its status."""
    todos = (await stage.session(session_id))["todos"]
    return [(each["content"], each["status"]) for each in todos]


# -- cursor/* that wants no person --------------------------------------------------------------


@case("cursor_requests")
@pytest.mark.parametrize("word", ["todos", "underscore todos"])
async def test_todos_arrive_as_requests_and_are_merged(stage: Stage, word: str) -> None:
    """xintaofei/codeg#783: with an id; patches of ids alone; ``title`` for ``content``.

    Some ACP libraries put an underscore in front.
    """
    session_id, turn = await stage.play(word)
    assert json.loads(turn["text"])["outcome"]["outcome"] == "accepted"
    todos = [("one", "completed"), ("two", "pending")]
    expected = todos if word == "todos" else [("one", "pending")]
    assert await todos_of(stage, session_id) == expected


@case("cursor_requests")
@pytest.mark.parametrize(
    ("word", "status"), [("todos notify", "pending"), ("todos tool", "in_progress")]
)
async def test_todos_arrive_as_notifications_and_as_tools_too(
    stage: Stage, word: str, status: str
) -> None:
    """pingdotgg/t3code#11170: a tool call with ``TODO_STATUS_*``; the documents: a notification."""
    session_id, _ = await stage.play(word)
    assert await todos_of(stage, session_id) == [("one", status)]


@case("cursor_requests")
async def test_todos_told_in_more_than_one_way_are_one_list_without_doubles(stage: Stage) -> None:
    """codeg#783 counted requests in the month in which t3code#11170 saw tool calls alone."""
    session_id, _ = await stage.play("both todos")
    assert await todos_of(stage, session_id) == [("one", "completed"), ("two", "in_progress")]
    items = await stage.items(session_id, "todos")
    assert [len(item["todos"]) for item in items] == [2]


@case("cursor_requests")
async def test_what_cannot_be_read_is_rejected_and_never_accepted(stage: Stage) -> None:
    """xintaofei/codeg#785: malformed input never becomes ``accepted``."""
    session_id, turn = await stage.play("odd todos")
    assert json.loads(turn["text"]) == {"outcome": {"outcome": "rejected"}}
    assert await todos_of(stage, session_id) == []
    _, turn = await stage.play("image none")
    assert json.loads(turn["text"]) == {"outcome": {"outcome": "rejected"}}


@case("cursor_requests")
@pytest.mark.parametrize(
    ("word", "outcome"),
    [
        ("task", {"outcome": "completed", "agentId": "a-1", "durationMs": 12}),
        ("underscore task", {"outcome": "completed", "agentId": "a-2"}),
    ],
)
async def test_a_task_is_answered_at_once_with_its_own_numbers(
    stage: Stage, word: str, outcome: Json
) -> None:
    """kandev#2867: an id, an object for subagentType, no sessionId; LodyAI/Lody#264: with one."""
    session_id, turn = await stage.play(word)
    assert json.loads(turn["text"]) == {"outcome": outcome}
    event = next(e for e in await stage.caller.log(session_id) if e["type"].endswith("task"))
    expected = {"custom": {"unspecified": {}}} if word == "task" else "explore"
    assert event["params"]["subagentType"] == expected
    assert "subagent" not in event and "requestId" not in event


@case("cursor_requests")
@pytest.mark.parametrize(
    ("word", "outcome", "has_url"),
    [("image", "generated", True), ("image outside", "generated", False)],
)
async def test_an_image_can_be_fetched_where_it_lies_inside_the_workspace(
    stage: Stage, word: str, outcome: str, has_url: bool
) -> None:
    """xintaofei/codeg#785: generated where a path is present."""
    (stage.bridge.workspace / "cat.png").write_bytes(b"\x89PNG")
    session_id, turn = await stage.play(word)
    assert outcome in turn["text"]
    events = await stage.caller.log(session_id)
    url = next(e for e in events if e["type"] == "cursor/generate_image").get("fileUrl")
    assert (url is not None) is has_url
    if url is not None:
        assert (await stage.caller.get(url)).content == b"\x89PNG"


@case("cursor_requests")
async def test_what_is_documented_as_a_notification_may_come_as_one(stage: Stage) -> None:
    """Cursor's own page; nothing is answered then, and a file can be fetched all the same."""
    (stage.bridge.workspace / "cat.png").write_bytes(b"\x89PNG")
    session_id, turn = await stage.play("notified")
    assert turn["outcome"] == "ok"
    assert stage.answers() == []
    events = {e["type"]: e for e in await stage.caller.log(session_id)}
    assert events["cursor/task"]["params"]["subagentType"] == "explore"
    url = events["_cursor/generate_image"]["fileUrl"]
    assert (await stage.caller.get(url)).content == b"\x89PNG"


# -- methods nobody knows -----------------------------------------------------------------------


@case("cursor_requests")
@pytest.mark.parametrize("word", ["extension", "vendor"])
async def test_requests_nobody_knows_are_held_as_extensions(stage: Stage, word: str) -> None:
    """Cursor adds methods without notice; a vendor's begin with an underscore (ACP)."""
    session_id, waiting, request = await asked(stage, word)
    assert (request["kind"], request["params"]) == ("extension", {"x": 1})
    _, turn = await stage.play(word, {"result": {"chosen": 1}})
    assert turn["text"] == '{"chosen": 1}'
    assert (await stage.cancel(session_id, waiting))["status"] == "cancelled"
    assert stage.answers()[-1]["error"]["code"] == -32800


@case("cursor_requests")
@pytest.mark.parametrize(("word", "count"), [("fs", 2), ("craft", 1)])
async def test_core_requests_that_are_not_served_are_refused(
    stage: Stage, word: str, count: int
) -> None:
    """kcap-cli#308: Cursor never calls fs/* or terminal/*; some agents do though not offered."""
    _, turn = await stage.play(word)
    assert turn["text"].count("-32601") == count


@case("fs_terminal")
@pytest.mark.parametrize("word", ["read", "write", "terminal", "everything"])
async def test_an_agent_that_wants_the_client_s_files_and_terminals_gets_none(
    stage: Stage, word: str
) -> None:
    """Agents of several vendors write through the client though that was not offered."""
    (stage.bridge.workspace / "a.txt").write_text("what nobody may read")
    session_id, turn = await stage.play(word)
    refused = [json.loads(line) for line in turn["text"].splitlines()]
    assert {each["code"] for each in refused} == {-32601}
    assert len(refused) == (7 if word == "everything" else 1)
    assert not (stage.bridge.workspace / "written.txt").exists()
    assert not (stage.bridge.workspace / "run.txt").exists()
    assert not await stage.caller.pending(session_id)


@case("cursor_requests")
async def test_notifications_of_a_vendor_s_own_arrive_as_they_are(stage: Stage) -> None:
    """``qwen/notify/…``: names and fields that no protocol has."""
    session_id, turn = await stage.play("notify")
    assert turn["outcome"] == "ok"
    events = {e["type"]: e["params"] for e in await stage.caller.log(session_id)}
    assert events["qwen/notify/progress"] == {"_meta": {"a": 1}, "deep": {"b": [1, 2]}}


@case("cursor_requests")
async def test_a_request_the_agent_gives_up_is_withdrawn(stage: Stage) -> None:
    """ACP: ``$/cancel_request``."""
    session_id = await stage.session_id()
    turn = await stage.caller.prompt(session_id, "withdraw")
    await stage.until(session_id, ended(turn["turnId"]))
    assert (await stage.caller.settled(session_id, turn["turnId"]))["text"] == "withdrawn"
    requests = await stage.caller.get(f"/v1/sessions/{session_id}/requests?status=all")
    assert requests.json()["requests"][0]["resolution"]["by"] == "agent-cancelled"


# -- questions and plans ------------------------------------------------------------------------


@case("question")
@pytest.mark.parametrize("word", ["?", "underscore"])
@pytest.mark.parametrize(
    "reply",
    [
        {
            "outcome": "answered",
            "answers": [
                {"questionId": "colour", "selectedOptionIds": ["red"]},
                {"questionId": "sizes", "selectedOptionIds": ["s", "m"]},
            ],
        },
        {"outcome": "skipped", "reason": "no idea"},
        {"outcome": "cancelled"},
    ],
)
async def test_a_question_is_answered_with_a_nested_outcome(
    stage: Stage, word: str, reply: Json
) -> None:
    """tiann/hapi#1044: a flat outcome reads as the user's cancel."""
    _, turn = await stage.play(word, reply)
    assert json.loads(turn["text"]) == {"outcome": reply}


@case("question")
async def test_a_question_that_is_cancelled_with_its_turn_is_answered_first(stage: Stage) -> None:
    """t3code#7820: a stop leaves questions open; what waits is answered before the cancel."""
    session_id, turn, _ = await asked(stage, "?")
    assert (await stage.cancel(session_id, turn))["status"] == "cancelled"
    answer, cancel = stage.received()[-2:]
    assert answer["result"] == {"outcome": {"outcome": "cancelled"}}
    assert cancel["method"] == "session/cancel"
    events = await stage.caller.log(session_id)
    resolved = [e["params"]["request"] for e in events if e["type"] == "bridge/request_resolved"]
    assert [each["resolution"]["by"] for each in resolved] == ["cancel"]


@case("plan")
@pytest.mark.parametrize("word", ["plan", "underscore"])
async def test_an_accepted_plan_proceeds_in_another_turn(stage: Stage, word: str) -> None:
    """tiann/hapi#1097: accepting only ends the turn; some clients send a leading underscore."""
    proceed = {"modeId": "plan", "prompt": "go on"}
    session_id, turn = await stage.play(word, {"outcome": "accepted", "proceed": proceed})
    assert turn["status"] == "completed"
    turns = (await stage.caller.get(f"/v1/sessions/{session_id}/turns")).json()["turns"]
    followed = await stage.caller.settled(session_id, turns[0]["turnId"])
    assert followed["text"] == "went on"
    assert followed["causedBy"].startswith("req_")
    assert (await stage.session(session_id))["mode"]["current"] == "plan"
    # The mode is the bridge's business: the agent hears of the outcome alone.
    assert stage.answers() == [
        {"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "accepted"}}}
    ]
    assert stage.methods()[-2:] == ["session/set_config_option", "session/prompt"]


@case("plan")
@pytest.mark.parametrize("mode", [{}, {"modeId": "plan"}])
async def test_a_plan_outside_of_a_turn_is_gone_on_with_at_once(stage: Stage, mode: Json) -> None:
    """Cursor asks in a turn; nothing in its documents says that it must."""
    session_id, turn = await stage.play("late plan")
    assert turn["status"] == "completed"
    await stage.until(session_id, lambda event: event.kind == "cursor/create_plan")
    (request,) = await stage.caller.pending(session_id)
    assert request["turnId"] is None
    reply = f"/v1/sessions/{session_id}/requests/{request['requestId']}/reply"
    proceed = {"prompt": "go on", **mode}
    answer = await stage.caller.post(reply, {"outcome": "accepted", "proceed": proceed})
    assert answer.status_code == 200
    (caused, _) = (await stage.caller.get(f"/v1/sessions/{session_id}/turns")).json()["turns"]
    assert caused["causedBy"] == request["requestId"]
    assert (await stage.caller.settled(session_id, caused["turnId"]))["text"] == "went on"
    expected = mode.get("modeId", "agent")
    assert (await stage.session(session_id))["mode"]["current"] == expected


@case("plan")
@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ({"outcome": "rejected", "reason": "no"}, "rejected"),
        ({"outcome": "accepted", "planUri": "file:///p.md"}, "planned"),
        ({"outcome": "cancelled"}, '{"outcome": {"outcome": "cancelled"}}'),
    ],
)
async def test_a_rejected_plan_is_an_outcome_and_no_error(
    stage: Stage, reply: Json, text: str
) -> None:
    """sesori#332; getpaseo/paseo#3645: an error strands the plan and the agent goes idle."""
    session_id, turn = await stage.play("plan", reply)
    assert turn["text"] == text
    assert stage.answers()[-1]["result"] == {"outcome": reply}
    turns = (await stage.caller.get(f"/v1/sessions/{session_id}/turns")).json()["turns"]
    assert len(turns) == 1


# -- forms and links ----------------------------------------------------------------------------


@case("elicitation")
async def test_a_form_is_checked_and_handed_on(stage: Stage) -> None:
    """ACP: elicitation; Cursor has none so far, others have."""
    session_id, _, request = await asked(stage, "form")
    bad = {"action": "accept", "content": {"age": 1}}
    answer = await stage.caller.reply(session_id, request["requestId"], bad)
    assert (answer.status_code, answer.json()["code"]) == (422, "reply-not-valid")
    reply = {"action": "accept", "content": {"name": "Ada", "age": 36}}
    _, turn = await stage.play("form", reply)
    assert json.loads(turn["text"]) == reply


@case("elicitation")
async def test_a_link_is_shown_accepted_and_told_to_be_done(stage: Stage) -> None:
    """ACP: elicitation of the mode ``url``; its end comes as ``elicitation/complete``."""
    session_id, turn, request = await asked(stage, "url")
    assert (request["kind"], request["params"]["mode"]) == ("elicitation", "url")
    assert request["params"]["url"] == "https://example.org/sign-in?code=1"
    reply = {"action": "accept"}
    assert (await stage.caller.reply(session_id, request["requestId"], reply)).status_code == 200
    assert json.loads((await stage.caller.settled(session_id, turn["turnId"]))["text"]) == reply
    events = await stage.caller.log(session_id)
    told = [e["params"] for e in events if e["type"] == "elicitation/complete"]
    assert told == [{"elicitationId": "e-1"}]


# -- subagents ----------------------------------------------------------------------------------


@case("subagents")
async def test_updates_of_subagents_reach_the_stream_marked(stage: Stage) -> None:
    """escouade-acp, 2026.10.22: a subagent speaks under its own session id."""
    session_id, turn = await stage.play("x")
    assert turn["text"] == "parent"
    events = await stage.caller.log(session_id)
    assert [e["subagent"] for e in events if "subagent" in e] == ["sub-1", "sub-1"]
    assert (await stage.session(session_id))["mode"] is None


@case("subagents")
async def test_tools_of_a_subagent_are_shown_as_its_own_and_hold_no_turn_open(
    stage: Stage,
) -> None:
    """escouade-acp: ``subagent_spawned`` and then tool calls under another session id."""
    session_id, turn = await stage.play("spawned")
    assert (turn["status"], turn["text"]) == ("completed", "parent")
    tools = await stage.items(session_id, "tool")
    assert [(each["toolCallId"], each["subagent"]) for each in tools] == [("sub-tool", "sub-2")]
    updates = [e["params"].get("update", {}) for e in await stage.caller.log(session_id)]
    assert any(each.get("sessionUpdate") == "subagent_spawned" for each in updates)


@case("subagents")
async def test_a_permission_of_a_subagent_is_its_parent_s_to_answer(stage: Stage) -> None:
    """Requests may come from subagents, and block for ever if nobody hears of them."""
    session_id, turn = await stage.play("asks", ONCE)
    assert (turn["status"], "allow-once" in turn["text"]) == ("completed", True)
    events = await stage.caller.log(session_id)
    request = next(e for e in events if e["type"] == "session/request_permission")
    assert (request["subagent"], request["turnId"]) == ("sub-3", turn["turnId"])
