"""Agents that say odd things: the bridge goes on, warns where something is wrong, loses nothing.

Each case is plausible: a library that spells out both members of a response, a build that says
something late, a wrapper that prints in between. What is wrong with it is said by JSON-RPC 2.0
(https://www.jsonrpc.org/specification) or ACP (https://agentclientprotocol.com/protocol/schema).
"""

from __future__ import annotations

import json

import anyio
import pytest

from tests.e2e.contract import CONTRACT
from tests.e2e.harness import CASES, Json, ended
from tests.e2e.stage import (  # noqa: F401
    ONCE,
    Stage,
    case,
    module_backend,
    module_limits,
    module_playhouse,
    one_stage,
)

pytestmark = pytest.mark.anyio


async def turns_of(stage: Stage, *words: str) -> tuple[str, list[Json]]:
    """One session in which each word was prompted, and the turns."""
    session_id = await stage.session_id()
    return session_id, [(await stage.play(word, session_id=session_id))[1] for word in words]


async def is_sound(stage: Stage, session_id: str) -> list[Json]:
    """The session works on and everything shown of it is as documented; its events."""
    assert (await stage.play("go on", session_id=session_id))[1]["status"] == "completed"
    session = await stage.session(session_id)
    CONTRACT.holds("Session", session)
    events = await stage.caller.log(session_id)
    for event in events:
        CONTRACT.event_holds(event)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    path = f"/v1/sessions/{session_id}/transcript"
    CONTRACT.holds("Transcript", (await stage.caller.get(path)).json())
    return events


def sent_updates(case_name: str, word: str) -> list[Json]:
    """The updates that a case sends for a word, as it has them."""
    scripts = json.loads((CASES / f"{case_name}.json").read_text())["prompts"]
    steps = next(each["steps"] for each in scripts if each["match"] == f"^{word}$")
    return [step["update"] for step in steps if "update" in step]


# -- the prompt's answer ------------------------------------------------------------------------


@case("odd_answers")
async def test_a_second_answer_to_a_prompt_changes_nothing_and_is_told(stage: Stage) -> None:
    """JSON-RPC: one response a request; what comes later has no call to belong to."""
    session_id, (turn,) = await turns_of(stage, "twice")
    assert (turn["status"], turn["stopReason"], turn["text"]) == ("completed", "end_turn", "one")
    assert await stage.warnings(session_id) == ["unknown-response"] * 2
    await is_sound(stage, session_id)


@case("odd_answers")
async def test_of_a_result_and_an_error_the_error_counts_unless_it_is_null(stage: Stage) -> None:
    """JSON-RPC: either member, not both; some libraries spell out the other one as null."""
    _, (both, spelled) = await turns_of(stage, "both", "null error")
    assert (both["status"], both["error"]["agentError"]["message"]) == ("failed", "both")
    assert (spelled["status"], spelled["stopReason"]) == ("completed", "end_turn")


@case("odd_answers")
async def test_an_error_of_any_shape_is_told_with_all_there_is_to_it(stage: Stage) -> None:
    """JSON-RPC: a number as code and a text as message; agents send 400, names, or a text alone."""
    expected = {
        "no message": (-32603, "", "The agent gave no reason."),
        "text code": (-32603, "no (E_AUTH)", "The agent says: no (E_AUTH)"),
        "text error": (-32603, "it is broken", "The agent says: it is broken"),
        "empty error": (-32603, "", "The agent gave no reason."),
        "list error": (-32603, "[1, 2]", "The agent says: [1, 2]"),
        "huge code": (-32603, f"no ({10**30})", f"The agent says: no ({10**30})"),
        "odd data": (1, '{"a": 1}', 'The agent says: {"a": 1} (text)'),
    }
    session_id, turns = await turns_of(stage, *expected)
    for turn, (code, message, detail) in zip(turns, expected.values(), strict=True):
        assert (turn["status"], turn["outcome"]) == ("failed", "error")
        assert (turn["error"]["code"], turn["error"]["detail"]) == ("agent-error", detail)
        told = turn["error"]["agentError"]
        assert (told["code"], told["message"]) == (code, message)
    await is_sound(stage, session_id)


@case("odd_answers")
async def test_an_answer_without_a_known_stop_reason_ends_the_turn_with_a_warning(
    stage: Stage,
) -> None:
    """ACP: five stop reasons; the turn is over all the same, since the agent answered."""
    words = [
        *("unknown reason", "no reason", "null reason", "number reason"),
        *("list result", "text result", "nothing", "neither", "big number"),
    ]
    session_id, turns = await turns_of(stage, *words)
    for word, turn in zip(words, turns, strict=True):
        assert (turn["status"], turn["outcome"]) == ("completed", "ok"), word
    assert turns[0]["stopReason"] == "because"
    assert turns[0]["result"] == {"stopReason": "because", "extra": [1]}
    events = await is_sound(stage, session_id)
    told = [e["params"] for e in events if e["type"] == "bridge/warning"]
    unknown = [each["detail"] for each in told if each["code"] == "stop-reason-unknown"]
    assert len(unknown) == len(words)
    assert '"because"' in unknown[0] and '"done"' in unknown[5]


@case("odd_answers")
async def test_a_usage_that_is_none_and_numbers_that_are_none_do_no_harm(stage: Stage) -> None:
    """RFC 8259: NaN is no JSON, and a line with it is no answer; the next one is."""
    session_id, (usage, nan) = await turns_of(stage, "odd usage", "nan")
    assert (usage["usage"], usage["result"]["usage"]) == (None, "none")
    assert (nan["status"], nan["stopReason"]) == ("completed", "end_turn")
    assert (await stage.warnings(session_id)).count("not-a-message") == 1


# -- updates ------------------------------------------------------------------------------------


@case("odd_updates")
async def test_what_is_said_behind_a_turn_is_kept_in_no_turn(stage: Stage) -> None:
    """Agents go on talking, start tools and ask behind the answer to the prompt."""
    session_id, (turn,) = await turns_of(stage, "behind")
    assert turn["text"] == "in the turn"
    await stage.until(session_id, lambda e: "very late" in str(e.data))
    (request,) = await stage.caller.pending(session_id)
    assert request["turnId"] is None
    assert (await stage.session(session_id))["status"] == "idle"
    assert (await stage.caller.reply(session_id, request["requestId"], ONCE)).status_code == 200
    events = await is_sound(stage, session_id)
    late = [e for e in events if e["turnId"] is None and e["type"].startswith("session/")]
    assert len(late) == 4
    assert [item["text"] for item in await stage.items(session_id, "message")][:3] == [
        "in the turn",
        "behind",
        "very late",
    ]


@case("odd_updates")
async def test_updates_of_odd_shapes_arrive_as_they_came_and_the_view_keeps_its_own(
    stage: Stage,
) -> None:
    """ACP's schema grows; a client that raises on what it does not know loses the rest."""
    words = ["blocks", "tools", "plans", "commands", "views"]
    session_id, turns = await turns_of(stage, *words)
    assert {turn["text"] for turn in turns} == {"end"}
    events = await is_sound(stage, session_id)
    arrived = [e["params"]["update"] for e in events if e["type"] == "session/update"]
    for word in words:
        for update in sent_updates("odd_updates", word):
            assert update in arrived, update
    session = await stage.session(session_id)
    assert session["mode"] == {"current": None, "available": []}
    assert session["model"]["available"] == [{"id": "a", "name": "A"}]
    assert session["plan"][-1]["content"] == "do it"
    assert session["commands"][-1]["name"] == "ok"
    assert session["title"] is None
    tools = {tool["toolCallId"]: tool for tool in await stage.items(session_id, "tool")}
    assert (tools["early"]["title"], tools["early"]["status"]) == ("Early", "completed")
    answer = await stage.put(session_id, "config/odd", value="x")
    assert (answer.status_code, answer.json()["code"]) == (422, "config-not-available")


@case("odd_updates")
async def test_todos_of_odd_shapes_are_listed_as_far_as_they_say_something(stage: Stage) -> None:
    """Todos without ids or texts; ``merge`` that is no boolean replaces the list."""
    session_id, _ = await turns_of(stage, "todos")
    await is_sound(stage, session_id)
    todos = (await stage.session(session_id))["todos"]
    assert [(each["content"], each["status"]) for each in todos] == [
        ("", "pending"),
        ("", "pending"),
        ("x", "completed"),
    ]


# -- requests -----------------------------------------------------------------------------------


@case("odd_requests")
async def test_requests_of_odd_shapes_are_held_and_answered_once(stage: Stage) -> None:
    """A permission without options can only be cancelled; a question without questions skipped."""
    session_id = await stage.session_id()
    for word, reply, text in (
        ("permissions", {"outcome": "cancelled"}, "end"),
        ("question", {"outcome": "skipped"}, '{"outcome": {"outcome": "skipped"}}'),
        ("plan", {"outcome": "accepted"}, '{"outcome": {"outcome": "accepted"}}'),
        ("form", {"action": "decline"}, '{"action": "decline"}'),
    ):
        turn = await stage.caller.turn(session_id, word)
        waiting = await stage.caller.pending(session_id)
        for request in waiting:
            CONTRACT.holds("Request", request)
            answer = await stage.caller.reply(session_id, request["requestId"], {"kind": "x"})
            assert answer.status_code == 422
            CONTRACT.holds("Problem", answer.json())
            await stage.caller.reply(session_id, request["requestId"], reply)
        turn = await stage.caller.settled(session_id, turn["turnId"])
        assert (turn["status"], turn["text"]) == ("completed", text)
    assert len({json.dumps(each["id"]) for each in stage.answers()}) == len(stage.answers()) == 6
    await is_sound(stage, session_id)


@case("odd_requests")
async def test_a_request_without_params_is_held_and_one_with_other_params_refused(
    stage: Stage,
) -> None:
    """JSON-RPC: params are an object or a list, if there are any; ACP has objects alone."""
    session_id = await stage.session_id()
    turn = await stage.caller.prompt(session_id, "no params")
    await stage.until(session_id, ended(turn["turnId"]))
    answers = {each["id"]: each for each in stage.answers()}
    assert answers["y"]["error"]["code"] == -32602
    assert answers["x"]["result"] == {"outcome": {"outcome": "cancelled"}}
    assert await stage.warnings(session_id) == ["params-not-an-object"]
    await is_sound(stage, session_id)


@case("odd_requests")
async def test_odd_methods_and_calls_meant_for_an_agent_do_no_harm(stage: Stage) -> None:
    """An update with an id, cancels of nothing, names of the bridge's own events, no name."""
    session_id, turns = await turns_of(stage, "null id", "client methods", "methods", "cancels")
    assert {turn["status"] for turn in turns} == {"completed"}
    assert turns[0]["text"] == "as a requestend"
    assert turns[1]["text"].count("-32601") == 2
    events = await is_sound(stage, session_id)
    codes = [e["params"]["code"] for e in events if e["type"] == "bridge/warning"]
    assert codes == ["method-not-valid"] * 4 + ["not-a-message"]
    assert len([e for e in events if e["type"] == "bridge/turn_ended"]) == 5
    errors = [each["error"]["code"] for each in stage.answers() if "error" in each]
    assert errors == [-32601, -32601, -32601, -32600]


# -- lines --------------------------------------------------------------------------------------


@case("odd_lines")
async def test_lines_of_every_kind_are_read_as_far_as_they_are_messages(stage: Stage) -> None:
    """tiann/hapi#1085; RFC 8259 section 8.1: a mark of the byte order may stand in front."""
    session_id, turns = await turns_of(stage, "lines", "joined", "doubled")
    assert turns[0]["text"] == "behind a markwindowsindentedend"
    assert {turn["status"] for turn in turns} == {"completed"}
    assert await stage.warnings(session_id) == ["not-a-message"] * 10
    events = await is_sound(stage, session_id)
    assert [e["params"] for e in events if e["type"] == "x/two"] == [{"a": 3}]


@case("noise")
async def test_bad_lines_cost_one_warning_each_and_the_session_goes_on(stage: Stage) -> None:
    """tiann/hapi#1085: plain text on stdout; Node emits lone surrogates for split emoji."""
    session_id, turn = await stage.play("x")
    assert turn["text"] == 'onetwohalf \ud83dthree {"params":1}last'
    assert await stage.warnings(session_id) == [
        "not-a-message",
        "invalid-utf8",
        "unknown-response",
        "unknown-response",
        "params-not-an-object",
        "params-not-an-object",
        "not-a-message",
    ]


@case("sizes")
@pytest.mark.parametrize("depth", [900, 200_000])
async def test_a_line_nested_out_of_all_reason_costs_a_warning(stage: Stage, depth: int) -> None:
    """A parser that recurses would take the process with it."""
    session_id, turn = await stage.play(f"deep {depth}")
    assert (turn["status"], turn["text"]) == ("completed", "went on")
    assert len(await stage.warnings(session_id)) == 1


@case("sizes")
async def test_floods_on_stdout_and_stderr_at_once_lose_nothing(stage: Stage) -> None:
    """kcap: a stderr that is not drained blocks the agent; some write 2 MB there."""
    session_id, turn = await stage.play("mixed 5")
    assert (turn["status"], turn["text"][-4:]) == ("completed", "done")
    assert len(turn["text"]) == 5 * 1000 * 80 + 4
    assert (await stage.play("stderr 2000000", session_id=session_id))[1]["text"] == "done"


# -- the start ----------------------------------------------------------------------------------


@case("early_requests")
async def test_what_is_asked_and_said_before_there_is_a_session_is_kept(stage: Stage) -> None:
    """Requests during ``initialize``, updates and requests before the answer to ``session/new``."""
    session_id, _ = await turns_of(stage, "hi")
    first, second = await stage.caller.pending(session_id)
    assert (first["method"], first["params"]) == ("_x/ask", {"early": True})
    assert second["method"] == "session/request_permission"
    await stage.caller.reply(session_id, first["requestId"], {"result": {}})
    await stage.caller.reply(session_id, second["requestId"], ONCE)
    events = await is_sound(stage, session_id)
    types = [e["type"] for e in events]
    assert types.index("x/hello") < types.index("x/ask") < types.index("session/update")
    assert await stage.warnings(session_id) == ["not-a-message"]
    errors = [each["error"]["code"] for each in stage.answers() if "error" in each]
    assert errors == [-32601, -32601]


@case("odd_handshake")
async def test_a_handshake_of_odd_shapes_makes_a_session_that_works(stage: Stage) -> None:
    """What cannot be read counts as not offered: no capabilities, no modes, no models."""
    session_id, _ = await turns_of(stage, "hi")
    session = await stage.session(session_id)
    assert (session["capabilities"], session["model"]) == ({}, {"current": None, "available": []})
    assert session["mode"] == {"current": "agent", "available": []}
    for what, body in (("mode", {"modeId": "x"}), ("config/none", {"value": "x"})):
        assert (await stage.put(session_id, what, **body)).status_code == 422
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    answer = await stage.caller.post(f"/v1/sessions/{session_id}/prompt", {"prompt": [image]})
    assert answer.json()["code"] == "content-not-supported"
    await is_sound(stage, session_id)
    CONTRACT.holds("Agent", (await stage.caller.get(f"/v1/agents/{stage.agent}")).json())


@case("odd_login")
async def test_a_login_that_is_asked_for_in_odd_shapes_is_still_a_login(stage: Stage) -> None:
    """ACP: -32000 means a login, whatever stands beside it."""
    answer = await stage.ask()
    assert (answer.status_code, answer.json()["code"]) == (424, "agent-auth-required")
    CONTRACT.holds("Problem", answer.json())


@case("new_asks")
async def test_what_an_agent_asks_before_it_makes_a_session_can_be_answered(stage: Stage) -> None:
    """Some ask whether a folder is to be trusted; ``Prefer: respond-async`` shows the question."""
    body = {"agent": stage.agent}
    headers = {"Prefer": "respond-async"}
    session = (await stage.caller.post("/v1/sessions", body, headers=headers)).json()
    session_id = session["sessionId"]
    stage.started.append(session_id)
    await stage.until(session_id, lambda e: e.kind == "elicitation/create")
    (request,) = await stage.caller.pending(session_id)
    reply = {"action": "accept", "content": {}}
    assert (await stage.caller.reply(session_id, request["requestId"], reply)).status_code == 200
    with anyio.fail_after(10):
        assert (await stage.play("hi", session_id=session_id, onBusy="queue"))[1]["text"]
    await is_sound(stage, session_id)


@case("odd_texts")
async def test_an_image_whose_name_is_half_a_character_is_told_without_an_address(
    stage: Stage,
) -> None:
    """JSON's escapes can make a lone surrogate (RFC 8259, 8.2), which is no file name in UTF-8."""
    session_id, turns = await turns_of(stage, "ask", "tell")
    assert [turn["finalText"] for turn in turns] == ["drawn", "drawn"]
    events = await is_sound(stage, session_id)
    images = [each for each in events if each["type"] == "cursor/generate_image"]
    assert len(images) == 2 and not any("fileUrl" in each for each in images)


@case("odd_texts")
async def test_conversations_that_nobody_can_name_are_left_out_of_the_agents_list(
    stage: Stage,
) -> None:
    """An id is a text (ACP, session/list), and one with a lone surrogate cannot be sent back."""
    answer = await stage.caller.get(f"/v1/agents/{stage.agent}/sessions")
    assert answer.status_code == 200, answer.text
    assert [each["sessionId"] for each in answer.json()["sessions"]] == ["homeless"]
