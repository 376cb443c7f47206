"""Every message that the bridge sends to an agent is one of ACP's, in the shape it asks for."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.canaries import secret
from tests.e2e.acp_shapes import misfit
from tests.e2e.harness import Caller, Json, demo, ended, scripted, serving

pytestmark = pytest.mark.anyio

REPLIES: dict[str, list[Json]] = {
    "tool": [
        {"outcome": "selected", "kind": "allow_once"},
        {"outcome": "selected", "optionId": "reject-once"},
        {"outcome": "cancelled"},
    ],
    "question": [
        {"outcome": "skipped", "reason": "x"},
        {"outcome": "cancelled"},
        {
            "outcome": "answered",
            "answers": [
                {"questionId": "database", "selectedOptionIds": ["sqlite"]},
                {"questionId": "checks", "selectedOptionIds": []},
            ],
        },
    ],
    "plan": [
        {"outcome": "accepted", "proceed": {"modeId": "agent", "prompt": "hello"}},
        {"outcome": "rejected", "reason": "x"},
        {"outcome": "cancelled"},
    ],
    "elicit": [
        {"action": "accept", "content": {"name": "Ada", "times": 2, "loud": True}},
        {"action": "decline"},
        {"action": "cancel"},
    ],
    "elicit url": [{"action": "accept"}],
    "vendor": [{"result": {"a": [1]}}, {"result": None}, {"error": {"code": 7, "message": "x"}}],
}
SERVERS: list[Json] = [
    {
        **{"type": "http", "name": "h", "url": "https://x"},
        "headers": [{"name": "A", "value": secret("mcp-header")}],
    },
    {"type": "sse", "name": "s", "url": "https://x"},
    {
        "name": "c",
        "command": "/bin/true",
        "args": ["a"],
        "env": [{"name": "K", "value": secret("mcp-env")}],
    },
]


def taped(command: list[str], folder: Path, name: str) -> list[str]:
    """The command, with everything that goes in and comes out kept in files."""
    inner = shlex.join(command)
    tapes = [shlex.quote(str(folder / f"{name}.{end}")) for end in ("in", "out")]
    return ["/bin/sh", "-c", f"tee -a {tapes[0]} | {inner} | tee -a {tapes[1]}"]


def tape(folder: Path, name: str, end: str) -> list[Json]:
    """The messages on a tape."""
    found = []
    for line in (folder / f"{name}.{end}").read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [each for each in found if isinstance(each, dict)]


async def tour(folder: Path) -> list[str]:
    """Have the bridge say everything it can; the names of the tapes."""
    agents = {
        "demo": {
            "command": taped(demo(), folder, "demo"),
            "dialect": "cursor",
            "env": {"CURSOR_DEMO_PACE": "0", "CURSOR_DEMO_HOME": str(folder / "demo")},
        },
        **{
            case: {
                "command": taped(scripted(case), folder, case),
                "auth_method": "fake_login",
                "env": {"FAKE_AGENT_STATE": str(folder / f"{case}.state")},
            }
            for case in ("auth", "options_only", "modes_only", "unknown")
        },
    }
    (folder / "ws").mkdir()
    (folder / "ws" / "more").mkdir()
    async with serving(
        folder,
        agents,
        default_agent="demo",
        permissions={"allow_mcp_stdio": True, "allow_always": True},
    ) as bridge:
        caller = bridge.caller
        await _converse(caller, str(folder / "ws" / "more"))
        await caller.get("/v1/agents/demo/sessions")
        session = await caller.session(agent="auth")
        await caller.turn(session["sessionId"], "hello")
        for agent in ("options_only", "modes_only"):
            session = await caller.session(agent=agent)
            for mode in (session["mode"] or {"available": []})["available"]:
                await caller.http.put(
                    f"/v1/sessions/{session['sessionId']}/mode", json={"modeId": mode["id"]}
                )
        session = await caller.session(agent="unknown")
        await caller.turn(session["sessionId"], "anything")
    return list(agents)


async def _converse(caller: Caller, more: str) -> None:
    session = await caller.session(
        mode="plan",
        model="gpt-5.4",
        config={"fast": "true"},
        additionalDirectories=[more],
        mcpServers=SERVERS,
        _meta={"a": 1},
    )
    session_id = session["sessionId"]
    blocks: list[Json] = [
        {"type": "text", "text": "hello"},
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "file:///x", "name": "x", "size": 1, "title": None},
        {"type": "text", "text": "!", "annotations": {"audience": ["user"], "priority": 1}},
    ]
    misshapen: list[Json] = [{"annotations": 5}, {"_meta": [1]}, {"size": "big"}, {"title": {}}]
    for odd in misshapen:
        answer = await caller.post(
            f"/v1/sessions/{session_id}/prompt", {"prompt": [*blocks[:2], {**blocks[2], **odd}]}
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    answer = await caller.post(f"/v1/sessions/{session_id}/prompt", {"prompt": blocks})
    await caller.settled(session_id, answer.json()["turnId"])
    await caller.http.put(f"/v1/sessions/{session_id}/mode", json={"modeId": "agent"})
    for word, replies in REPLIES.items():
        for reply in replies:
            await _played(caller, session_id, word, reply)
    for word in ("todos", "image", "subagent"):
        await caller.turn(session_id, word)
    for word in ("tool", "question", "plan", "elicit", "vendor", "hang"):
        turn = await caller.turn(session_id, word) if word != "hang" else None
        turn = turn or await caller.prompt(session_id, word)
        await caller.post(f"/v1/sessions/{session_id}/cancel")
        await caller.until(f"/v1/sessions/{session_id}/events", ended(turn["turnId"]))
    await caller.post(f"/v1/sessions/{session_id}/ext", {"method": "_x/y", "params": {"a": 1}})
    turn = await caller.prompt(session_id, "hang")
    await caller.post(f"/v1/sessions/{session_id}/cancel", {"hard": True})
    await caller.until(f"/v1/sessions/{session_id}/events", ended(turn["turnId"]))
    assert (await caller.turn(session_id, "hello"))["status"] == "completed"


async def _played(caller: Caller, session_id: str, word: str, reply: Json) -> None:
    turn = await caller.turn(session_id, word, onBusy="queue")
    for request in await caller.pending(session_id):
        answer = await caller.reply(session_id, request["requestId"], reply)
        assert answer.status_code == 200, answer.text
    await caller.until(f"/v1/sessions/{session_id}/events", ended(turn["turnId"]))


async def test_every_message_to_an_agent_has_its_shape(tmp_path: Path) -> None:
    methods: set[str] = set()
    for name in await tour(tmp_path):
        asked = {
            repr(each["id"]): each["method"]
            for each in tape(tmp_path, name, "out")
            if "method" in each and "id" in each
        }
        for message in tape(tmp_path, name, "in"):
            assert misfit(message, asked) is None, message
            methods.add(message.get("method", "an answer"))
    assert methods >= {
        "initialize",
        "authenticate",
        "session/new",
        "session/load",
        "session/list",
        "session/prompt",
        "session/cancel",
        "session/set_mode",
        "session/set_config_option",
        "an answer",
    }
