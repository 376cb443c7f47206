"""Permissions as agents ask for them: their options, their ids, and how many at once.

Every docstring names where the fact comes from.
"""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

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


# -- permissions --------------------------------------------------------------------------------


@case("permission")
async def test_an_option_is_chosen_by_kind_and_named_as_the_agent_named_it(stage: Stage) -> None:
    """Wire captures: hyphens in ``optionId``, underscores in ``kind``, no ``reject_always``."""
    session_id, turn, request = await asked(stage, "run")
    assert request["allowedOptionIds"] == ["allow-once", "reject-once"]
    for kind in ("reject_always", "allow_always"):
        reply = {"outcome": "selected", "kind": kind}
        answer = await stage.caller.reply(session_id, request["requestId"], reply)
        assert (answer.status_code, answer.json()["code"]) == (422, "reply-not-valid")
    await stage.caller.reply(session_id, request["requestId"], ONCE)
    await stage.caller.settled(session_id, turn["turnId"])
    outcome = {"outcome": "selected", "optionId": "allow-once"}
    assert stage.answers()[-1]["result"] == {"outcome": outcome}


@case("permission")
async def test_rejecting_may_end_the_turn_as_denied(stage: Stage) -> None:
    """Some agents end the turn as cancelled when a tool is rejected."""
    _, turn = await stage.play("denied", {"outcome": "selected", "kind": "reject_once"})
    assert (turn["status"], turn["outcome"], turn["cancelledBy"]) == (
        "cancelled",
        "denied",
        "agent",
    )


@case("permission")
async def test_two_options_of_one_kind_need_the_option_id(stage: Stage) -> None:
    """Agents that offer several ``allow_once``."""
    session_id, turn, request = await asked(stage, "two kinds")
    answer = await stage.caller.reply(session_id, request["requestId"], ONCE)
    assert (answer.status_code, answer.json()["code"]) == (422, "reply-not-valid")
    chosen = {"outcome": "selected", "optionId": "allow-folder"}
    assert (await stage.caller.reply(session_id, request["requestId"], chosen)).status_code == 200
    assert "allow-folder" in (await stage.caller.settled(session_id, turn["turnId"]))["text"]


@case("permission")
@pytest.mark.parametrize("word", ["no tool", "two at once", "run"])
async def test_permissions_come_without_a_tool_call_and_several_at_once(
    stage: Stage, word: str
) -> None:
    """zed-industries/zed#56535; agents that name a tool call nobody has seen."""
    _, turn = await stage.play(word, ONCE)
    assert (turn["status"], turn["outcome"]) == ("completed", "ok")


@case("permission")
async def test_an_error_after_a_withdrawn_permission_is_a_cancelled_turn(stage: Stage) -> None:
    """Answering ``cancelled`` may bring a JSON-RPC error on the prompt."""
    session_id, turn, _ = await asked(stage, "cancelled fails")
    ended_turn = await stage.cancel(session_id, turn)
    assert (ended_turn["status"], ended_turn["error"]) == ("cancelled", None)


@case("sizes")
async def test_more_permissions_at_once_than_may_wait_are_cancelled_with_a_warning(
    stage: Stage,
) -> None:
    """An agent must not fill the bridge with requests; each gets its one answer all the same."""
    session_id, turn, _ = await asked(stage, "asks 25")
    waiting = await stage.caller.pending(session_id)
    assert len(waiting) == 20
    assert await stage.warnings(session_id) == ["too-many-requests"] * 5
    for request in waiting:
        await stage.caller.reply(session_id, request["requestId"], ONCE)
    assert (await stage.caller.settled(session_id, turn["turnId"]))["text"] == "all answered"
    assert sorted(each["id"] for each in stage.answers()) == list(range(25))


# -- ids ----------------------------------------------------------------------------------------


@case("ids")
@pytest.mark.parametrize(
    ("word", "rpc_id"),
    [
        ("string", "s-1"),
        ("null", None),
        ("plain", 0),
        ("negative", -7),
        ("empty", ""),
        ("long", "i" * 300),
        ("fraction", 1.5),
        ("huge", 10**30),
    ],
)
async def test_ids_of_every_kind_are_answered_as_they_came(
    stage: Stage, word: str, rpc_id: Any
) -> None:
    """JonathanRiche/verde#115: ids begin at 0 and share their numbers with the client's."""
    _, turn = await stage.play(word, ONCE)
    chosen = {"outcome": "selected", "optionId": "allow-once"}
    assert json.loads(turn["text"]) == {"outcome": chosen}
    assert [each["id"] for each in stage.answers()] == [rpc_id]


@case("ids")
async def test_a_request_with_an_id_of_ours_in_flight_is_a_request(stage: Stage) -> None:
    """JonathanRiche/verde#115: whoever looks at the id first takes it for the prompt's end."""
    _, turn = await stage.play("ours", ONCE)
    assert (turn["status"], "allow-once" in turn["text"]) == ("completed", True)
    prompt = next(each for each in stage.received() if each.get("method") == "session/prompt")
    assert stage.answers()[0]["id"] == prompt["id"]


@case("ids")
async def test_two_requests_of_one_id_are_two_requests_with_an_answer_each(stage: Stage) -> None:
    """Agents that use one id all session long."""
    session_id, turn, _ = await asked(stage, "twice")
    with anyio.fail_after(10):
        while len(waiting := await stage.caller.pending(session_id)) < 2:
            pass
    one, two = waiting
    assert one["toolCall"]["toolCallId"] != two["toolCall"]["toolCallId"]
    await stage.caller.reply(session_id, one["requestId"], ONCE)
    reject = {"outcome": "selected", "kind": "reject_once"}
    await stage.caller.reply(session_id, two["requestId"], reject)
    assert (await stage.caller.settled(session_id, turn["turnId"]))["text"] == "both"
    assert [each["id"] for each in stage.answers()] == [5, 5]
    assert [each["result"]["outcome"]["optionId"] for each in stage.answers()] == [
        "allow-once",
        "reject-once",
    ]


@case("ids")
async def test_an_error_without_an_id_costs_a_warning_and_no_turn(stage: Stage) -> None:
    """JSON-RPC 2.0: what could not be parsed is answered without an id."""
    session_id, turn = await stage.play("error")
    assert turn["text"] == "went on"
    assert await stage.warnings(session_id) == ["not-a-message"]
