"""Sessions: their options, cancelling, and taking them up again."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from bridge.demo.dialogue import INITIALIZED
from tests.demo.peer import Peer, Refused, prompt_params, selected

pytestmark = pytest.mark.anyio

UNKNOWN = "00000000-0000-4000-8000-000000000000"


async def refusal(peer: Peer, method: str, /, **params: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as caught:
        await peer.call(method, **params)
    return caught.value.error


async def test_initialize_says_what_cursor_says_and_no_more(peer: Peer) -> None:
    result = await peer.call("initialize", protocolVersion=1, clientCapabilities={})
    assert result == INITIALIZED
    assert set(result) == {"protocolVersion", "agentCapabilities", "authMethods"}
    assert result["agentCapabilities"]["sessionCapabilities"] == {"list": {}}


async def test_a_new_session_shows_modes_models_and_options_in_step(peer: Peer) -> None:
    created = await peer.call("session/new", cwd="/nowhere", mcpServers=[])
    assert set(created) == {"sessionId", "modes", "models", "configOptions"}
    mode, model = created["configOptions"]
    assert mode["currentValue"] == created["modes"]["currentModeId"] == "agent"
    assert [o["value"] for o in mode["options"]] == ["agent", "plan", "ask"]
    assert model["currentValue"] == created["models"]["currentModelId"]
    models = created["models"]["availableModels"]
    assert {"modelId": "default[]", "name": "Auto"} in models
    assert [o["value"] for o in model["options"]] == [m["modelId"] for m in models]


async def test_commands_come_some_moments_after_the_session(peer: Peer) -> None:
    await peer.call("session/new", cwd="/nowhere", mcpServers=[])
    assert peer.updates("available_commands_update") == []
    await peer.settled()
    (update,) = peer.updates("available_commands_update")
    assert {"name", "description"} == set(update["availableCommands"][0])


async def test_setting_an_option_echoes_all_of_them(peer: Peer) -> None:
    session_id = await peer.open()
    for config_id, value in (("mode", "plan"), ("model", "default[]")):
        echoed = await peer.call(
            "session/set_config_option", sessionId=session_id, configId=config_id, value=value
        )
    assert [o["currentValue"] for o in echoed["configOptions"]] == ["plan", "default[]"]


async def test_modes_and_models_can_be_set_by_their_own_methods(peer: Peer) -> None:
    session_id = await peer.open()
    assert await peer.call("session/set_mode", sessionId=session_id, modeId="ask") == {}
    assert await peer.call("session/set_model", sessionId=session_id, modelId="default[]") == {}
    loaded = await peer.call("session/load", sessionId=session_id, cwd="/nowhere", mcpServers=[])
    assert loaded["modes"]["currentModeId"] == "agent"
    assert "sessionId" not in loaded


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/set_model", {"modelId": "auto"}),
        ("session/set_model", {"modelId": "gpt-5.3-codex"}),
        ("session/set_model", {"modelId": {"x": []}}),
        ("session/set_mode", {"modeId": "debug"}),
        ("session/set_mode", {}),
        ("session/set_config_option", {"configId": "mode", "value": "debug"}),
        ("session/set_config_option", {"configId": "fast", "value": "true"}),
    ],
)
async def test_an_unknown_value_is_invalid_params_with_a_message(
    peer: Peer, method: str, params: dict[str, Any]
) -> None:
    session_id = await peer.open()
    error = await refusal(peer, method, sessionId=session_id, **params)
    assert error["code"] == -32602
    assert isinstance(error["data"]["message"], str)


async def test_an_option_named_by_id_is_cursors_internal_error(peer: Peer) -> None:
    session_id = await peer.open()
    error = await refusal(
        peer, "session/set_config_option", sessionId=session_id, id="mode", value="ask"
    )
    assert (error["code"], error["data"][0]["path"]) == (-32603, ["configId"])


async def test_the_picker_splits_models_into_parameters_and_rebuilds_them(peer: Peer) -> None:
    session_id = await peer.open(_meta={"parameterizedModelPicker": True})

    async def choose(config_id: str, value: str) -> dict[str, Any]:
        echoed = await peer.call(
            "session/set_config_option", sessionId=session_id, configId=config_id, value=value
        )
        return {o["id"]: o["currentValue"] for o in echoed["configOptions"]}

    chosen = await choose("model", "gpt-5.4")
    assert chosen == {
        "mode": "agent",
        "model": "gpt-5.4",
        "reasoning": "medium",
        "context": "272k",
        "fast": "false",
    }
    assert (await choose("reasoning", "high"))["reasoning"] == "high"
    assert await choose("model", "default[]") == {"mode": "agent", "model": "default[]"}
    assert (await choose("model", "composer-2.5[fast=false]"))["fast"] == "false"


async def test_cursors_own_list_of_models_names_each_with_its_options(peer: Peer) -> None:
    listed = await peer.call("cursor/list_available_models")
    ids = {m["value"]: [o["id"] for o in m["configOptions"]] for m in listed["models"]}
    assert ids["default[]"] == []
    assert ids["composer-2.5"] == ["fast"]


async def test_cancel_ends_a_turn_and_leaves_its_tool_open(peer: Peer) -> None:
    session_id = await peer.open()
    turn = peer.begin("session/prompt", **prompt_params(session_id, "hang"))
    await peer.until(lambda m: m.get("params", {}).get("update", {}).get("status") == "in_progress")
    peer.cancel(session_id)
    assert await peer.answer_to(turn) == {"stopReason": "cancelled"}
    await peer.settled()
    assert peer.statuses() == ["pending", "in_progress"]
    assert peer.messages[-1]["id"] == turn


async def test_a_cancel_right_behind_its_prompt_is_answered(peer: Peer) -> None:
    session_id = await peer.open()
    prompt = {"method": "session/prompt", "params": prompt_params(session_id, "hang")}
    cancel = {"method": "session/cancel", "params": {"sessionId": session_id}}
    peer.send({"id": 1, **prompt}, cancel)
    assert await peer.answer_to(1) == {"stopReason": "cancelled"}
    assert (await peer.prompt(session_id, "recall"))["stopReason"] == "end_turn"


async def test_cancel_gets_through_a_flood(peer: Peer) -> None:
    session_id = await peer.open()
    turn = peer.begin("session/prompt", **prompt_params(session_id, "stream 1000000 0"))
    await peer.until(lambda m: m.get("method") == "session/update" and "100 " in str(m))
    peer.cancel(session_id)
    assert await peer.answer_to(turn) == {"stopReason": "cancelled"}
    assert len(peer.lines) < 100_000


async def test_cancel_drops_what_was_asked_and_late_answers_to_it(peer: Peer) -> None:
    session_id = await peer.open()
    turn = peer.begin("session/prompt", **prompt_params(session_id, "tool"))
    asked = await peer.until(lambda m: m.get("method") == "session/request_permission")
    peer.cancel(session_id)
    assert await peer.answer_to(turn) == {"stopReason": "cancelled"}
    peer.send({"id": asked["id"], "result": selected("allow-once")({})})
    await peer.settled()
    assert peer.statuses() == ["pending"]


async def test_a_stubborn_turn_ignores_cancel(peer: Peer) -> None:
    session_id = await peer.open()
    turn = peer.begin("session/prompt", **prompt_params(session_id, "stubborn 5"))
    await peer.until(lambda m: "Still here" in str(m))
    peer.cancel(session_id)
    assert await peer.answer_to(turn) == {"stopReason": "end_turn"}
    assert peer.text().count("Still here") == 5


async def test_a_cancelled_prompt_is_forgotten(peer: Peer) -> None:
    session_id = await peer.open()
    await peer.prompt(session_id, "First Thing")
    turn = peer.begin("session/prompt", **prompt_params(session_id, "hang"))
    peer.cancel(session_id)
    await peer.answer_to(turn)
    await peer.prompt(session_id, "recall")
    assert peer.text().endswith("I remember:\n1. First Thing")


async def test_a_second_prompt_on_a_running_session_is_refused(peer: Peer) -> None:
    session_id = await peer.open()
    turn = peer.begin("session/prompt", **prompt_params(session_id, "hang"))
    error = await refusal(peer, "session/prompt", **prompt_params(session_id, "hello"))
    assert error["code"] == -32600
    assert (await refusal(peer, "session/load", sessionId=session_id))["code"] == -32600
    peer.cancel(session_id)
    assert await peer.answer_to(turn) == {"stopReason": "cancelled"}


async def test_sessions_in_one_process_do_not_disturb_each_other(peer: Peer) -> None:
    first, second = await peer.open(), await peer.open()
    turn = peer.begin("session/prompt", **prompt_params(first, "hang"))
    assert (await peer.prompt(second, "Hi"))["stopReason"] == "end_turn"
    peer.cancel(second)
    await peer.call("session/set_mode", sessionId=second, modeId="ask")
    peer.cancel(first)
    assert await peer.answer_to(turn) == {"stopReason": "cancelled"}
    assert peer.text(first) == ""


async def test_the_first_prompt_names_the_session(peer: Peer) -> None:
    session_id = await peer.open()
    await peer.prompt(session_id, "Mend the Roof\nand more")
    await peer.prompt(session_id, "Again")
    assert [u["title"] for u in peer.updates("session_info_update")] == ["Mend the Roof"]
    (listed,) = (await peer.call("session/list", cwd="/nowhere"))["sessions"]
    assert (listed["sessionId"], listed["title"]) == (session_id, "Mend the Roof")
    assert (await peer.call("session/list", cwd="/elsewhere"))["sessions"] == []
    assert len((await peer.call("session/list"))["sessions"]) == 1


async def test_load_tells_a_conversation_again_coalesced_and_partly_late(
    peer: Peer, tmp_path: Path
) -> None:
    peer.answers["session/request_permission"] = selected("allow-once")
    session_id = await peer.open()
    await peer.prompt(session_id, "Good Morning")
    await peer.prompt(session_id, "run date")
    turn = peer.begin("session/prompt", **prompt_params(session_id, "hang"))
    await peer.until(lambda m: "for ever" in str(m))
    peer.cancel(session_id)
    await peer.answer_to(turn)

    other = Peer(peer.home)
    loading = other.begin("session/load", sessionId=session_id, cwd="/nowhere", mcpServers=[])
    result = await other.answer_to(loading)
    assert set(result) == {"modes", "models", "configOptions"}
    await other.settled()
    kinds = [u["sessionUpdate"] for u in other.updates(session_id=session_id)]
    replay = [kind for kind in kinds if kind != "available_commands_update"]
    assert replay == [
        "user_message_chunk",
        "agent_thought_chunk",
        "agent_message_chunk",
        "user_message_chunk",
        "tool_call",
        "agent_message_chunk",
    ]
    answered = next(n for n, m in enumerate(other.messages) if m.get("id") == loading)
    assert answered == 4
    (tool,) = other.updates("tool_call")
    assert (tool["toolCallId"], tool["status"]) == ("replay-2-1", "completed")
    assert "hang" not in str(other.messages[:answered])
    await other.prompt(session_id, "recall")
    assert "1. Good Morning\n2. run date" in other.text()
    await other.dialogue.close()


@pytest.mark.parametrize("session_id", [UNKNOWN, "../../etc/passwd", "", "x" * 10_000])
async def test_an_unknown_session_is_not_found(peer: Peer, session_id: str) -> None:
    for method in ("session/load", "session/prompt", "session/set_mode"):
        error = await refusal(peer, method, sessionId=session_id, cwd="/", prompt=[])
        assert error == {
            "code": -32602,
            "message": "Invalid params",
            "data": {"message": f'Session "{session_id}" not found'},
        }


async def test_what_is_kept_is_for_its_owner_alone(peer: Peer) -> None:
    await peer.prompt(await peer.open(), "Hi")
    (file,) = (peer.home / "sessions").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(peer.home.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


async def test_a_broken_line_in_a_kept_conversation_is_passed_over(peer: Peer) -> None:
    session_id = await peer.open()
    await peer.prompt(session_id, "Hi")
    (file,) = (peer.home / "sessions").iterdir()
    file.write_bytes(file.read_bytes() + b'\xff{"turn":\n[]\n{"turn":{"prompt":3}}\n{"tur')
    (peer.home / "sessions" / "other.jsonl").write_bytes(b"\xff\n")
    await peer.call("session/load", sessionId=session_id)
    assert len((await peer.call("session/list"))["sessions"]) == 1


async def test_a_home_that_cannot_be_written_is_an_error_not_an_end(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file in its place")
    peer = Peer(tmp_path / "home")
    error = await refusal(peer, "session/new", cwd="/nowhere", mcpServers=[])
    assert error["code"] == -32603


async def test_a_turn_that_cannot_be_kept_still_ends(peer: Peer) -> None:
    session_id = await peer.open()
    (file,) = (peer.home / "sessions").iterdir()
    file.unlink()
    file.mkdir()
    assert (await peer.prompt(session_id, "Hi"))["stopReason"] == "end_turn"
    assert b"could not keep the turn" in peer.stderr


async def test_a_login_is_asked_for_where_the_setup_says_so(tmp_path: Path) -> None:
    peer = Peer(tmp_path, login="needed")
    error = await refusal(peer, "session/new", cwd="/nowhere", mcpServers=[])
    assert (error["code"], error["message"]) == (-32000, "Authentication required")
    assert (await refusal(peer, "authenticate", methodId="magic"))["code"] == -32602
    assert await peer.call("authenticate", methodId="cursor_login") == {}
    assert "sessionId" in await peer.call("session/new", cwd="/nowhere", mcpServers=[])
    await peer.dialogue.close()


async def test_a_login_without_a_browser_fails(tmp_path: Path) -> None:
    peer = Peer(tmp_path, login="refused")
    error = await refusal(peer, "authenticate", methodId="cursor_login")
    assert "Failed to open browser" in error["data"]["message"]


async def test_the_end_of_input_drops_what_runs(peer: Peer) -> None:
    session_id = await peer.open()
    peer.is_held = True
    peer.begin("session/prompt", **prompt_params(session_id, "hello"))
    await peer.until(lambda m: "Reading" in str(m))
    await peer.dialogue.close()
    await peer.settled()
