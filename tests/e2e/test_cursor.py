"""Cursor as it really is: each known quirk, played by the scripted agent.

Every docstring names where the fact comes from.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.harness import Bridge, Json, ended, scripted, serving

pytestmark = pytest.mark.anyio

ONCE = {"outcome": "selected", "kind": "allow_once"}
IN_BAND = [
    ("auth", "auth"),
    ("plan", "plan"),
    ("payment", "plan"),
    ("settings", "other"),
    ("network", "network"),
    ("loop", "loop"),
    ("unauthenticated", "auth"),
    ("dns", "network"),
    ("ping", "network"),
    ("ended", "network"),
    ("internal", "other"),
    ("model", "model"),
]


def agent(case: str, folder: Path, **values: Any) -> Json:
    """An agent of the dialect ``cursor`` that plays a case."""
    return {
        "command": scripted(case),
        "dialect": "cursor",
        "env": {"FAKE_AGENT_STATE": str(folder / case), "FAKE_AGENT_LOG": str(folder / "wire")},
        **values,
    }


class Stage:
    """A bridge with one scripted agent."""

    def __init__(self, bridge: Bridge, folder: Path) -> None:
        self.caller = bridge.caller
        self.bridge = bridge
        self._wire = folder / "wire"

    async def play(
        self, text: str, reply: Any = None, session_id: str | None = None, **body: Any
    ) -> tuple[str, Json]:
        """Prompt, reply the same to whatever waits, and return the ended turn."""
        if session_id is None:
            session_id = str((await self.caller.session())["sessionId"])
        turn = await self.caller.turn(session_id, text, **body)
        with anyio.fail_after(20):
            while turn["status"] == "waiting" and reply is not None:
                for request in await self.caller.pending(session_id):
                    answer = await self.caller.reply(session_id, request["requestId"], reply)
                    assert answer.status_code == 200, answer.text
                turn = await self.caller.settled(session_id, turn["turnId"])
        return session_id, turn

    async def session(self, session_id: str) -> Json:
        """The Session now."""
        shown: Json = (await self.caller.get(f"/v1/sessions/{session_id}")).json()
        return shown

    def sent(self) -> str:
        """Everything that reached the agent."""
        return self._wire.read_text("utf-8")

    def methods(self) -> list[str]:
        """The methods that reached the agent, in order."""
        lines = [json.loads(line) for line in self.sent().splitlines()]
        messages = [json.loads(line["line"]) for line in lines if line["dir"] == "in"]
        return [message["method"] for message in messages if "method" in message]


@pytest.fixture
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """The bridge with the case that ``@case(...)`` names."""
    name, values = request.param
    limits = {"cancel_grace_s": 0.3, "initialize_s": 1.0, "authenticate_s": 1.0}
    agents = {"fake": agent(name, tmp_path, **values)}
    async with serving(tmp_path, agents, default_agent="fake", limits=limits) as bridge:
        yield Stage(bridge, tmp_path)


def case(name: str, **values: Any) -> pytest.MarkDecorator:
    """Play this case, with these values in the agent's configuration."""
    return pytest.mark.parametrize("stage", [(name, values)], indirect=True, ids=[name])


# -- the handshake ------------------------------------------------------------------------------


@case("auth", auth_method="fake_login")
async def test_authenticate_is_sent_only_after_minus_32000(stage: Stage) -> None:
    """pingdotgg/t3code#7244: a needless authenticate opens a browser or hangs."""
    await stage.caller.session()
    assert stage.methods() == ["initialize", "session/new", "authenticate", "session/new"]


@case("basic", auth_method="fake_login")
async def test_an_agent_that_is_logged_in_is_never_asked_to_authenticate(stage: Stage) -> None:
    """Screenpipe#6455 and Cursor's own behaviour: a key or login at start is enough."""
    await stage.caller.session()
    assert "authenticate" not in stage.methods()


@case("auth_refused", auth_method="cursor_login")
async def test_a_login_link_is_never_shown_to_a_caller(stage: Stage) -> None:
    """pingdotgg/t3code#7245: the error of a headless login carries a login link."""
    answer = await stage.caller.post("/v1/sessions", {})
    assert answer.status_code == 424
    problem = answer.json()
    assert problem["code"] == "agent-auth-required"
    assert "cursor-agent login" in problem["hint"]
    assert "loginDeepControl" not in answer.text


@case("auth_hangs", auth_method="cursor_login")
async def test_a_login_that_hangs_is_given_up(stage: Stage) -> None:
    """screenpipe#6455: nothing came back for 15 s."""
    with anyio.fail_after(10):
        answer = await stage.caller.post("/v1/sessions", {})
    assert answer.json()["code"] == "agent-auth-required"


@case("version_missing")
async def test_a_missing_protocol_version_is_version_one(stage: Stage) -> None:
    """Some builds leave ``protocolVersion`` out (sesori's client)."""
    assert (await stage.play("hi"))[1]["status"] == "completed"


@case("transient")
async def test_a_transient_failure_gets_one_new_process(stage: Stage) -> None:
    """zed-industries/zed#57035: ``[unauthenticated] Error`` that is gone on the next start."""
    assert (await stage.play("hi"))[1]["status"] == "completed"


@case("always_failing")
async def test_a_failure_that_stays_is_told_with_the_agents_words(stage: Stage) -> None:
    """zed-industries/zed#57035."""
    problem = (await stage.caller.post("/v1/sessions", {})).json()
    assert problem["code"] == "agent-error"
    assert problem["agentError"]["data"]["details"] == "[unauthenticated] Error"
    assert (await stage.caller.get("/v1/sessions")).json()["sessions"] == []


@case("exits_early")
async def test_an_early_exit_is_told_with_what_stderr_said(stage: Stage) -> None:
    """pingdotgg/t3code#12451: a bad key in .cursor/cli.json ends the process before initialize."""
    problem = (await stage.caller.post("/v1/sessions", {})).json()
    assert problem["code"] == "agent-exited"
    assert "schema error" in problem["stderrTail"]


@case("never_answers")
async def test_an_agent_that_never_answers_initialize_is_given_up(stage: Stage) -> None:
    """Very old builds (zuse#90)."""
    answer = await stage.caller.post("/v1/sessions", {})
    assert (answer.status_code, answer.json()["code"]) == (504, "agent-timeout")


@case("basic")
async def test_cursor_is_told_of_the_model_picker_and_that_no_browser_may_open(
    stage: Stage,
) -> None:
    """zed-industries/zed#57571: variants cannot be chosen without parameterizedModelPicker."""
    await stage.caller.session()
    assert "parameterizedModelPicker" in stage.sent()


# -- models and modes ---------------------------------------------------------------------------


@case("models", default_model="default[]")
async def test_the_configured_model_is_chosen_at_the_start(stage: Stage) -> None:
    """donovan-yohan/relay-ide#1590: the last choice on the box was billed."""
    session = await stage.caller.session()
    assert session["model"]["current"] == "default[]"
    model = next(each for each in session["configOptions"] if each["id"] == "model")
    assert model["currentValue"] == "default[]"


@case("models")
@pytest.mark.parametrize("name", ["auto", "gpt-5.4", "Composer 2.5"])
async def test_a_name_of_cursors_command_line_is_no_model(stage: Stage, name: str) -> None:
    """OpenMausBot#361, alookai/alook#631: two namespaces that do not mix."""
    answer = await stage.caller.post("/v1/sessions", {"model": name})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "model-not-available")
    assert "default[]" in problem["available"]
    assert (await stage.caller.get("/v1/sessions")).json()["sessions"] == []


@case("models")
async def test_an_update_of_the_agents_keeps_all_three_in_step(stage: Stage) -> None:
    """Cursor says modes, models and configOptions at once; any of them may change."""
    session_id, _ = await stage.play("mode")
    session = await stage.session(session_id)
    assert session["mode"]["current"] == "plan"
    assert session["configOptions"][0]["currentValue"] == "plan"
    await stage.play("options", session_id=session_id)
    session = await stage.session(session_id)
    assert (session["mode"]["current"], session["model"]["current"]) == ("ask", "default[]")


@case("modes_only")
async def test_set_mode_and_set_model_serve_agents_without_options(stage: Stage) -> None:
    """ACP: session modes; session/set_model is Cursor's."""
    session_id = (await stage.caller.session())["sessionId"]
    answer = await stage.caller.http.put(f"/v1/sessions/{session_id}/mode", json={"modeId": "plan"})
    assert answer.json()["mode"]["current"] == "plan"
    answer = await stage.caller.http.put(
        f"/v1/sessions/{session_id}/model", json={"modelId": "default[]"}
    )
    assert answer.json()["model"]["current"] == "default[]"
    assert stage.methods()[-2:] == ["session/set_mode", "session/set_model"]


@case("options_only")
async def test_modes_and_models_are_read_from_options_alone(stage: Stage) -> None:
    """Agents that have configOptions only; the response echoes all of them."""
    session = await stage.caller.session()
    assert session["mode"]["current"] == "agent"
    assert session["model"]["current"] == "composer-2.5[fast=true]"
    answer = await stage.caller.http.put(
        f"/v1/sessions/{session['sessionId']}/mode", json={"modeId": "plan"}
    )
    assert (answer.json()["mode"]["current"], answer.json()["model"]["current"]) == (
        "plan",
        "default[]",
    )


# -- cursor/* -----------------------------------------------------------------------------------


@case("cursor_requests")
async def test_todos_arrive_as_requests_and_are_merged(stage: Stage) -> None:
    """xintaofei/codeg#783: with an id; patches of ids alone; ``title`` for ``content``."""
    session_id, turn = await stage.play("todos")
    assert '"accepted"' in turn["text"]
    todos = (await stage.session(session_id))["todos"]
    assert [(each["content"], each["status"]) for each in todos] == [
        ("one", "completed"),
        ("two", "pending"),
    ]


@case("cursor_requests")
@pytest.mark.parametrize(("word", "status"), [("notify", "pending"), ("tool", "in_progress")])
async def test_todos_arrive_as_notifications_and_as_tools_too(
    stage: Stage, word: str, status: str
) -> None:
    """pingdotgg/t3code#11170: a tool call with ``TODO_STATUS_*``; the documents: a notification."""
    session_id, _ = await stage.play(f"todos {word}")
    todos = (await stage.session(session_id))["todos"]
    assert [(each["content"], each["status"]) for each in todos] == [("one", status)]


@case("cursor_requests")
async def test_a_task_is_answered_at_once_with_its_own_numbers(stage: Stage) -> None:
    """kandev#2867: an id, an object for subagentType, no sessionId."""
    _, turn = await stage.play("task")
    assert '"outcome": {"outcome": "completed", "agentId": "a-1", "durationMs": 12}' in turn["text"]


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
@pytest.mark.parametrize("word", ["extension", "vendor"])
async def test_requests_nobody_knows_are_held_as_extensions(stage: Stage, word: str) -> None:
    """Cursor adds methods without notice; a vendor's begin with an underscore (ACP)."""
    _, turn = await stage.play(word, {"result": {"chosen": 1}})
    assert turn["text"] == '{"chosen": 1}'


@case("cursor_requests")
async def test_core_requests_that_are_not_served_are_refused(stage: Stage) -> None:
    """kcap-cli#308: Cursor never calls fs/* or terminal/*; some agents do though not offered."""
    _, turn = await stage.play("fs")
    assert turn["text"].count("-32601") == 2


@case("cursor_requests")
async def test_a_request_the_agent_gives_up_is_withdrawn(stage: Stage) -> None:
    """ACP: ``$/cancel_request``."""
    session_id = (await stage.caller.session())["sessionId"]
    turn = await stage.caller.prompt(session_id, "withdraw")
    await stage.caller.until(
        f"/v1/sessions/{session_id}/events", ended(turn["turnId"]), params={"after": 0}
    )
    assert (await stage.caller.settled(session_id, turn["turnId"]))["text"] == "withdrawn"
    requests = await stage.caller.get(f"/v1/sessions/{session_id}/requests?status=all")
    assert requests.json()["requests"][0]["resolution"]["by"] == "agent-cancelled"


@case("question")
async def test_a_question_is_answered_with_a_nested_outcome(stage: Stage) -> None:
    """tiann/hapi#1044: a flat outcome reads as the user's cancel."""
    answers = [
        {"questionId": "colour", "selectedOptionIds": ["red"]},
        {"questionId": "sizes", "selectedOptionIds": ["s", "m"]},
    ]
    _, turn = await stage.play("?", {"outcome": "answered", "answers": answers})
    assert turn["text"].startswith('{"outcome": {"outcome": "answered"')


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


@case("plan")
async def test_a_rejected_plan_is_an_outcome_and_no_error(stage: Stage) -> None:
    """sesori#332."""
    _, turn = await stage.play("plan", {"outcome": "rejected", "reason": "no"})
    assert turn["text"] == "rejected"


# -- failures as text ---------------------------------------------------------------------------


@case("in_band")
@pytest.mark.parametrize(("word", "kind"), IN_BAND)
async def test_a_failure_that_comes_as_text_is_named_and_left_as_it_is(
    stage: Stage, word: str, kind: str
) -> None:
    """pingdotgg/t3code#7830, #12374; Cursor forum 163218, 155812."""
    session_id, turn = await stage.play(word)
    assert turn["outcome"] == "suspected-error"
    assert turn["suspectedError"]["kind"] == kind
    assert turn["suspectedError"]["text"] in turn["text"]
    warnings = [e for e in await stage.caller.log(session_id) if e["type"] == "bridge/warning"]
    assert [e["params"]["code"] for e in warnings] == ["suspected-error"]


@case("in_band")
@pytest.mark.parametrize("word", ["print", "middle"])
async def test_a_person_may_ask_for_such_a_line(stage: Stage, word: str) -> None:
    """Only the last chunk counts, from its start."""
    _, turn = await stage.play(word)
    assert (turn["outcome"], turn["suspectedError"]) == ("ok", None)


@case("in_band", retry_in_band=2)
async def test_a_lost_network_is_tried_again_where_that_is_configured(stage: Stage) -> None:
    """pingdotgg/t3code#12940: Cursor's own retries are off in ACP."""
    session_id, turn = await stage.play("dns")
    assert turn["outcome"] == "suspected-error"
    codes = [
        e["params"]["code"]
        for e in await stage.caller.log(session_id)
        if e["type"] == "bridge/warning"
    ]
    assert codes.count("retrying") == 2


@case("in_band", retry_in_band=2)
async def test_nothing_is_tried_again_after_a_tool_ran(stage: Stage) -> None:
    """HAPI's cursorAutoRetry: a second run might do the work twice."""
    session_id, _ = await stage.play("after tool")
    events = await stage.caller.log(session_id)
    assert not [e for e in events if e["params"].get("code") == "retrying"]


# -- cancelling ---------------------------------------------------------------------------------


@case("hanging")
async def test_a_tool_left_open_by_a_cancel_is_closed(stage: Stage) -> None:
    """Hezaerd/noyau#64: an in_progress tool never gets an end."""
    session_id = (await stage.caller.session())["sessionId"]
    turn = await stage.caller.prompt(session_id, "open")
    await stage.caller.until(
        f"/v1/sessions/{session_id}/events", lambda e: e.kind == "session/update"
    )
    await stage.caller.post(f"/v1/sessions/{session_id}/cancel")
    ended = await stage.caller.settled(session_id, turn["turnId"])
    assert (ended["status"], ended["cancelledBy"]) == ("cancelled", "caller")
    kinds = [e["type"] for e in await stage.caller.log(session_id)]
    assert kinds[-3:] == ["bridge/tool_closed", "bridge/turn_ended", "bridge/session"]


@case("hanging")
async def test_an_agent_that_ignores_a_cancel_is_ended_and_can_go_on(stage: Stage) -> None:
    """Clients wait about 5 s and then end the process (tiann/hapi)."""
    session_id = (await stage.caller.session())["sessionId"]
    turn = await stage.caller.prompt(session_id, "stubborn")
    await stage.caller.post(f"/v1/sessions/{session_id}/cancel")
    ended = await stage.caller.settled(session_id, turn["turnId"])
    assert (ended["status"], ended["text"]) in (("cancelled", "so far"), ("cancelled", ""))
    assert (await stage.play("hi", session_id=session_id))[1]["status"] == "completed"


@case("hanging")
async def test_text_that_comes_after_a_cancelled_turn_is_not_the_next_ones(stage: Stage) -> None:
    """Some agents say ``cancelled`` at once and go on talking for seconds."""
    session_id = (await stage.caller.session())["sessionId"]
    turn = await stage.caller.prompt(session_id, "late")
    await stage.caller.post(f"/v1/sessions/{session_id}/cancel")
    assert (await stage.caller.settled(session_id, turn["turnId"]))["text"] == ""
    await stage.caller.until(
        f"/v1/sessions/{session_id}/events",
        lambda e: e.kind == "session/update" and e.data is not None and e.data["turnId"] is None,
    )


@case("hanging")
async def test_an_end_turn_after_a_cancel_is_still_a_cancelled_turn(stage: Stage) -> None:
    """Agents that end with ``end_turn`` once their model call is over."""
    session_id = (await stage.caller.session())["sessionId"]
    turn = await stage.caller.prompt(session_id, "ends")
    await stage.caller.post(f"/v1/sessions/{session_id}/cancel")
    ended = await stage.caller.settled(session_id, turn["turnId"])
    assert (ended["status"], ended["stopReason"]) == ("cancelled", "end_turn")


@case("basic")
async def test_a_cancelled_prompt_can_be_sent_again_in_front(stage: Stage) -> None:
    """diodeme/Gold-Band#130: Cursor forgets a cancelled prompt."""
    session_id = (await stage.caller.session())["sessionId"]
    turn = await stage.caller.prompt(session_id, "slow thing")
    await stage.caller.post(f"/v1/sessions/{session_id}/cancel")
    await stage.caller.settled(session_id, turn["turnId"])
    _, turn = await stage.play("and this", session_id=session_id, resendCancelled=True)
    events = await stage.caller.log(session_id)
    started = [e for e in events if e["type"] == "bridge/turn_started"][-1]
    texts = [block["text"] for block in started["params"]["prompt"]]
    assert texts == ["slow thing", "and this"]


# -- session/load -------------------------------------------------------------------------------


@case("load", default_model="default[]")
async def test_a_revived_session_does_not_mix_the_replay_into_the_next_turn(
    stage: Stage,
) -> None:
    """Emanuele-web04/synara#811: the replay goes on after the response."""
    session_id = (await stage.caller.session(mode="plan"))["sessionId"]
    await stage.play("exit", session_id=session_id)
    before = len(await stage.caller.log(session_id))
    _, turn = await stage.play("again", session_id=session_id)
    assert turn["text"] == "new answer to again"
    later = (await stage.caller.log(session_id))[before:]
    assert not [e for e in later if "replay" in str(e["params"]) or "old " in str(e["params"])]
    session = await stage.session(session_id)
    assert (session["mode"]["current"], session["model"]["current"]) == ("plan", "default[]")


@case("load")
async def test_a_conversation_taken_up_from_elsewhere_is_logged_as_replay(stage: Stage) -> None:
    """ACP: session/load streams the conversation back."""
    session = await stage.caller.session(resume="begun-elsewhere")
    events = await stage.caller.log(session["sessionId"])
    replayed = [e for e in events if e.get("replay")]
    assert len(replayed) >= 3
    answer = await stage.caller.post("/v1/sessions", {"resume": "begun-elsewhere"})
    assert (answer.status_code, answer.json()["code"]) == (409, "session-already-open")
    assert answer.json()["sessionId"] == session["sessionId"]


@case("load_lost")
async def test_a_lost_conversation_is_told_and_never_silently_new(stage: Stage) -> None:
    """openclaw/acpx#161, freebuddy#108: -32602 with ``Session "x" not found``."""
    session_id, _ = await stage.play("exit")
    _, turn = await stage.play("again", session_id=session_id)
    assert (turn["status"], turn["error"]["code"]) == ("failed", "session-lost")
    _, turn = await stage.play("again", session_id=session_id, onLost="new")
    assert turn["text"] == "You said: again"


@case("no_load")
async def test_an_agent_without_load_loses_its_conversation_with_its_process(
    stage: Stage,
) -> None:
    """openabdev/openab#493: builds before June 2026."""
    session_id, _ = await stage.play("exit")
    _, turn = await stage.play("again", session_id=session_id)
    assert turn["error"]["code"] == "session-lost"


# -- what else agents do ------------------------------------------------------------------------


@case("subagents")
async def test_updates_of_subagents_reach_the_stream_marked(stage: Stage) -> None:
    """escouade-acp, 2026.10.22: a subagent speaks under its own session id."""
    session_id, turn = await stage.play("x")
    assert turn["text"] == "parent"
    events = await stage.caller.log(session_id)
    assert [e["subagent"] for e in events if "subagent" in e] == ["sub-1", "sub-1"]
    assert (await stage.session(session_id))["mode"] is None


@case("unknown")
async def test_what_nobody_knows_arrives_unchanged(stage: Stage) -> None:
    """Updates, fields and wrong types of later versions."""
    session_id, turn = await stage.play("x")
    assert turn["text"] == "end"
    updates = [e["params"] for e in await stage.caller.log(session_id)]
    assert any(u.get("update") == "no object" and u.get("extra") == 1 for u in updates)


@case("early_and_late")
async def test_updates_before_and_behind_everything_find_their_place(stage: Stage) -> None:
    """Seen on agents of several vendors."""
    session_id, turn = await stage.play("x")
    assert turn["text"] == "in the turn"
    await stage.caller.until(
        f"/v1/sessions/{session_id}/events",
        lambda e: e.params.get("update", {}).get("sessionUpdate") == "usage_update",
    )
    session = await stage.session(session_id)
    assert session["commands"] == [{"name": "early", "description": "E"}]
    assert session["title"] == "From the agent"
    assert session["usage"]["used"] == 5


@case("ids")
@pytest.mark.parametrize("word", ["string", "null", "ours", "plain", "error"])
async def test_ids_of_every_kind_are_answered_as_they_came(stage: Stage, word: str) -> None:
    """JonathanRiche/verde#115: ids begin at 0 and may equal one of ours in flight."""
    _, turn = await stage.play(word, ONCE)
    assert turn["text"] in (
        "went on",
        '{"outcome": {"outcome": "selected", "optionId": "allow-once"}}',
    )


@case("noise")
async def test_bad_lines_cost_one_warning_each_and_the_session_goes_on(stage: Stage) -> None:
    """tiann/hapi#1085: plain text on stdout; Node emits lone surrogates for split emoji."""
    session_id, turn = await stage.play("x")
    assert turn["text"] == 'onetwohalf \ud83dthree {"params":1}last'
    events = await stage.caller.log(session_id)
    codes = [e["params"]["code"] for e in events if e["type"] == "bridge/warning"]
    assert codes == [
        "not-a-message",
        "invalid-utf8",
        "unknown-response",
        "unknown-response",
        "params-not-an-object",
        "params-not-an-object",
        "not-a-message",
    ]


@case("same_id")
async def test_two_processes_with_the_same_session_id_do_not_mix(stage: Stage) -> None:
    """Agents that give every process the same id."""
    first, one = await stage.play("first")
    second, two = await stage.play("second")
    assert (one["text"], two["text"]) == ("You said: first", "You said: second")
    logs = [await stage.caller.log(first), await stage.caller.log(second)]
    assert "second" not in str(logs[0]) and "first" not in str(logs[1]).replace("firstSeq", "")


@case("stop_reasons")
@pytest.mark.parametrize(
    ("word", "status", "outcome"),
    [
        ("max_tokens", "completed", "limit"),
        ("max_turn_requests", "completed", "limit"),
        ("refusal", "completed", "refused"),
        ("cancelled", "cancelled", "cancelled"),
        ("error", "failed", "error"),
        ("nothing", "completed", "ok"),
        ("odd", "completed", "ok"),
    ],
)
async def test_every_stop_reason_has_its_outcome(
    stage: Stage, word: str, status: str, outcome: str
) -> None:
    """ACP: stop reasons; one agent fails with the code 400."""
    _, turn = await stage.play(word)
    assert (turn["status"], turn["outcome"]) == (status, outcome)
    if word == "max_tokens":
        assert turn["usage"] == {"totalTokens": 3}


@case("messages")
async def test_the_text_of_a_turn_is_its_messages(stage: Stage) -> None:
    """Messages end at thoughts, tools and other ids."""
    _, turn = await stage.play("x")
    assert turn["text"] == "first message\n\nsecond\n\nthird\n\nfourth"
    assert turn["finalText"] == "fourth"


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
    session_id, turn = await stage.play("two kinds")
    request = (await stage.caller.pending(session_id))[0]
    answer = await stage.caller.reply(session_id, request["requestId"], ONCE)
    assert (answer.status_code, answer.json()["code"]) == (422, "reply-not-valid")
    chosen = {"outcome": "selected", "optionId": "allow-folder"}
    assert (await stage.caller.reply(session_id, request["requestId"], chosen)).status_code == 200
    assert "allow-folder" in (await stage.caller.settled(session_id, turn["turnId"]))["text"]


@case("sizes")
async def test_a_line_of_20_mb_arrives_whole(stage: Stage) -> None:
    """pingdotgg/t3code#11216: lines beyond 16 MiB."""
    session_id, turn = await stage.play("big 20000000")
    assert turn["textTruncated"] is True
    events = await stage.caller.until(
        f"/v1/sessions/{session_id}/events",
        lambda e: len(e.raw) > 20_000_000,
        params={"after": 0},
    )
    update = events[-1].params["update"]
    assert update["content"]["text"] == "x" * 20_000_000


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
    session_id, turn = await stage.play("cancelled fails")
    await stage.caller.post(f"/v1/sessions/{session_id}/cancel")
    ended = await stage.caller.settled(session_id, turn["turnId"])
    assert (ended["status"], ended["error"]) == ("cancelled", None)


@case("echoing")
async def test_a_prompt_that_is_echoed_is_said_once_in_the_transcript(stage: Stage) -> None:
    """Some agents send the prompt back as ``user_message_chunk``."""
    session_id, _ = await stage.play("say it once")
    answer = await stage.caller.get(f"/v1/sessions/{session_id}/transcript")
    said = [item["text"] for item in answer.json()["items"] if item["type"] == "user"]
    assert said == ["say it once"]
