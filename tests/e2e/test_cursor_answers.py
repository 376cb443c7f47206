"""What docs/cursor.md answers to integrators, on the running bridge.

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

IMAGE: Json = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}


async def prompted(stage: Stage, blocks: list[Json]) -> tuple[int, Json]:
    """The status and the body of a prompt made of blocks."""
    path = f"/v1/sessions/{await stage.session_id()}/prompt"
    answer = await stage.caller.post(path, {"prompt": blocks}, headers={"Prefer": "wait=15"})
    return answer.status_code, answer.json()


@case("basic")
async def test_an_image_reaches_the_agent_as_it_was_given(stage: Stage) -> None:
    """Wire captures of ``initialize``: images are taken, audio and embedded resources are not."""
    text = {"type": "text", "text": "what is this?"}
    status, turn = await prompted(stage, [text, IMAGE])
    assert (status, turn["text"]) == (200, "You said: what is this?")
    assert stage.received()[-1]["params"]["prompt"] == [text, IMAGE]


@case("basic")
@pytest.mark.parametrize(
    "block",
    [
        {"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "a"}},
    ],
)
async def test_what_the_agent_does_not_take_is_refused_with_what_it_takes(
    stage: Stage, block: Json
) -> None:
    """The same captures: ``audio`` and ``embeddedContext`` are false."""
    status, problem = await prompted(stage, [block])
    assert (status, problem["code"]) == (422, "content-not-supported")
    assert problem["available"] == ["text", "resource_link", "image"]
    assert "session/prompt" not in stage.methods()


@case("basic")
async def test_a_hand_over_to_the_cloud_is_text_like_any_other(stage: Stage) -> None:
    """Cursor's documentation: ``&`` in front sends a task to its cloud agents."""
    _, turn = await stage.play("& build it")
    assert turn["text"] == "You said: & build it"
    sent = stage.received()[-1]["params"]["prompt"]
    assert sent == [{"type": "text", "text": "& build it"}]


@case("load")
async def test_mcp_servers_reach_the_agent_at_the_start_and_again_at_a_load(stage: Stage) -> None:
    """repoprompt-ce#158, bb#2022: Cursor may still want its operator to approve of each."""
    headers = [{"name": "Authorization", "value": "Bearer of-the-server"}]
    server = {"type": "http", "name": "docs", "url": "https://mcp.example", "headers": headers}
    session = await stage.begin(mcpServers=[server])
    await stage.play("exit", session_id=session["sessionId"])
    await stage.play("again", session_id=session["sessionId"])
    opened = {
        each["method"]: each["params"]["mcpServers"]
        for each in stage.received()
        if each.get("method") in ("session/new", "session/load")
    }
    assert opened == {"session/new": [server], "session/load": [server]}
    assert "of-the-server" not in str(await stage.session(session["sessionId"]))


@case("basic")
async def test_an_mcp_server_that_is_a_command_needs_the_operator_s_leave(stage: Stage) -> None:
    """A command of a caller's would run on the box."""
    answer = await stage.ask(mcpServers=[{"name": "c", "command": "/bin/true"}])
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert "allow_mcp_stdio" in answer.json()["hint"]


@case("updates")
async def test_every_update_that_is_known_of_cursor_arrives_in_its_shape(stage: Stage) -> None:
    """kcap-cli's and other clients' wire captures, July to October 2026."""
    session_id, turn = await stage.play("all")
    assert (turn["text"], turn["usage"]) == ("done", None)
    events = await stage.caller.log(session_id)
    arrived = [e["params"]["update"] for e in events if e["type"] == "session/update"]
    assert [each["sessionUpdate"] for each in arrived] == [
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "tool_call_update",
        "tool_call",
        "tool_call_update",
        "plan",
        "available_commands_update",
        "session_info_update",
        "current_mode_update",
        "state_update",
        "agent_message_chunk",
    ]
    session = await stage.session(session_id)
    assert (session["title"], session["usage"]) == ("A title", None)
    assert [each["name"] for each in session["commands"]] == ["review"]
    run, edit = await stage.items(session_id, "tool")
    assert run["rawOutput"] == {"exitCode": 0, "stdout": "hi\n", "stderr": ""}
    assert edit["content"][0]["type"] == "diff"
