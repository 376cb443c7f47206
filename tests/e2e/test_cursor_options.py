"""Models, modes and options as Cursor and others have them: three views that are kept in step.

Every docstring names where the fact comes from.
"""

from __future__ import annotations

import pytest

from tests.e2e.harness import Json
from tests.e2e.stage import (  # noqa: F401
    Stage,
    case,
    module_backend,
    module_limits,
    module_playhouse,
    one_stage,
)

pytestmark = pytest.mark.anyio


def value_of(session: Json, option: str) -> object:
    """The current value of an option."""
    return next(each["currentValue"] for each in session["configOptions"] if each["id"] == option)


@case("models", default_model="default[]")
async def test_the_configured_model_is_chosen_at_the_start(stage: Stage) -> None:
    """donovan-yohan/relay-ide#1590: the last choice on the box was billed."""
    session = await stage.begin()
    assert session["model"]["current"] == "default[]"
    assert value_of(session, "model") == "default[]"


@case("models", default_model="default[]", default_mode="ask")
async def test_a_caller_s_choice_goes_before_the_configured_one(stage: Stage) -> None:
    """relay-ide#1590: whoever names a model means it; the mode is the configuration's here."""
    session = await stage.begin(model="gpt-5.4[reasoning=medium]", config={"effort": "high"})
    assert (session["model"]["current"], session["mode"]["current"]) == (
        "gpt-5.4[reasoning=medium]",
        "ask",
    )
    assert value_of(session, "effort") == "high"


@case("models", default_model="gone[]")
async def test_a_configured_model_that_is_not_offered_is_told_and_keeps_nobody_out(
    stage: Stage,
) -> None:
    """The list of models changes from build to build (26 in April 2026, 38 later)."""
    session = await stage.begin()
    assert session["model"]["current"] == "composer-2.5[fast=true]"
    events = await stage.caller.log(session["sessionId"])
    warned = [e["params"] for e in events if e["type"] == "bridge/warning"]
    assert [each["code"] for each in warned] == ["default-not-offered"]
    assert "gone[]" in warned[0]["detail"]


@case("picker", default_model="gpt-5.4[]")
async def test_a_configured_model_is_found_by_its_base_where_the_picker_leaves_the_rest_out(
    stage: Stage,
) -> None:
    """tiann/hapi#967: ``composer-2.5[fast=true]`` becomes ``composer-2.5`` with the picker."""
    session = await stage.begin()
    assert session["model"]["current"] == "gpt-5.4"
    assert await stage.warnings(session["sessionId"]) == []


@case("models")
@pytest.mark.parametrize("name", ["auto", "gpt-5.4", "Composer 2.5", "default[]x"])
async def test_a_name_of_cursors_command_line_is_no_model(stage: Stage, name: str) -> None:
    """OpenMausBot#361, alookai/alook#631, tiann/hapi#1822: namespaces that do not mix."""
    answer = await stage.ask(model=name)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "model-not-available")
    assert problem["available"] == [
        "default[]",
        "composer-2.5[fast=true]",
        "gpt-5.4[reasoning=medium]",
    ]
    assert await stage.listed() == []


@case("models")
async def test_a_mode_or_option_that_is_not_offered_is_refused_with_what_is(stage: Stage) -> None:
    """HAPI: there is no debug mode in ACP (tiann/hapi#1013); unknown values bring -32602."""
    session_id = await stage.session_id()
    for what, body, code, offered in (
        ("mode", {"modeId": "debug"}, "mode-not-available", ["agent", "plan", "ask"]),
        ("model", {"modelId": "auto"}, "model-not-available", "default[]"),
        ("config/effort", {"value": "most"}, "config-not-available", ["low", "medium", "high"]),
        ("config/fast", {"value": "true"}, "config-not-available", ["mode", "model", "effort"]),
    ):
        answer = await stage.put(session_id, what, **body)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (422, code)
        assert offered == problem["available"] or offered in problem["available"]


@case("models")
async def test_an_update_of_the_agents_keeps_all_three_in_step(stage: Stage) -> None:
    """Cursor says modes, models and configOptions at once; any of them may change."""
    session_id, _ = await stage.play("mode")
    session = await stage.session(session_id)
    assert session["mode"]["current"] == value_of(session, "mode") == "plan"
    await stage.play("options", session_id=session_id)
    session = await stage.session(session_id)
    assert (session["mode"]["current"], session["model"]["current"]) == ("ask", "default[]")
    assert len(session["mode"]["available"]) == len(session["model"]["available"]) == 3


@case("models")
async def test_an_option_that_is_offered_is_set_as_such_and_all_three_follow(stage: Stage) -> None:
    """anyrobert/cursor-api-proxy#17: ``configId`` and ``value``, or -32603; no echo in some."""
    session_id = await stage.session_id()
    assert (await stage.put(session_id, "mode", modeId="plan")).status_code == 200
    assert (await stage.put(session_id, "config/model", value="default[]")).status_code == 200
    session = await stage.session(session_id)
    assert session["mode"]["current"] == value_of(session, "mode") == "plan"
    assert session["model"]["current"] == value_of(session, "model") == "default[]"
    sent = [each for each in stage.received() if each.get("method") not in ("initialize", None)]
    assert [each["method"] for each in sent[1:]] == ["session/set_config_option"] * 2
    assert [sorted(each["params"]) for each in sent[1:]] == [["configId", "sessionId", "value"]] * 2


@case("modes_only")
async def test_set_mode_and_set_model_serve_agents_without_options(stage: Stage) -> None:
    """ACP: session modes; session/set_model is Cursor's (OpenMausBot#361)."""
    session_id = await stage.session_id()
    answer = await stage.put(session_id, "mode", modeId="plan")
    assert answer.json()["mode"]["current"] == "plan"
    answer = await stage.put(session_id, "model", modelId="default[]")
    assert answer.json()["model"]["current"] == "default[]"
    assert stage.methods()[-2:] == ["session/set_mode", "session/set_model"]


@case("options_only")
async def test_modes_and_models_are_read_from_options_alone(stage: Stage) -> None:
    """Agents that have configOptions only; the response echoes all of them."""
    session = await stage.begin()
    assert session["mode"]["current"] == "agent"
    assert session["model"]["current"] == "composer-2.5[fast=true]"
    answer = await stage.put(session["sessionId"], "mode", modeId="plan")
    shown = answer.json()
    assert (shown["mode"]["current"], shown["model"]["current"]) == ("plan", "default[]")
    assert stage.methods()[-1] == "session/set_config_option"


@case("picker")
async def test_options_that_are_rebuilt_after_a_switch_of_models_are_what_counts(
    stage: Stage,
) -> None:
    """tiann/hapi#967, xintaofei/codeg#607: with the picker a model brings options of its own."""
    session = await stage.begin(model="gpt-5.4", config={"reasoning": "high"})
    assert [each["id"] for each in session["configOptions"]] == ["mode", "model", "reasoning"]
    assert value_of(session, "reasoning") == "high"
    answer = await stage.put(session["sessionId"], "config/fast", value="true")
    assert answer.json()["code"] == "config-not-available"


@case("no_models")
async def test_an_agent_that_names_no_models_works_with_its_own_choice(stage: Stage) -> None:
    """getpaseo/paseo#958: sometimes no models are reported at all."""
    session = await stage.begin()
    assert (session["mode"], session["model"], session["configOptions"]) == (None, None, [])
    answer = await stage.put(session["sessionId"], "model", modelId="default[]")
    assert (answer.status_code, answer.json()["available"]) == (422, [])
    assert (await stage.play("hi", session_id=session["sessionId"]))[1]["status"] == "completed"
