"""What each word plays."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from bridge.demo.scripts import SCRIPTS, chosen
from tests.demo.peer import Peer, Refused, outcome, selected

pytestmark = pytest.mark.anyio

ASKED = {
    "session/request_permission": selected("allow-once"),
    "cursor/ask_question": outcome("skipped"),
    "cursor/create_plan": outcome("accepted"),
    "cursor/update_todos": outcome("accepted", todos=[]),
    "cursor/task": outcome("completed"),
    "cursor/generate_image": outcome("generated"),
    "cursor/demo_choice": lambda _: {"colour": "blue"},
}
ENDLESS = {"hang", "crash", "error"}


def refuse(_: Any) -> Any:
    raise Refused({"code": -32601, "message": "Method not found"})


def is_picture(path: Path) -> bool:
    """Whether a PNG holds as many bytes as its header promises."""
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT") + 4
    (size,) = struct.unpack(">I", data[start - 8 : start - 4])
    return bool(len(zlib.decompress(data[start : start + size])) == height * (1 + 3 * width))


async def test_help_explains_every_word_of_the_table(peer: Peer) -> None:
    session_id = await peer.open()
    await peer.prompt(session_id, "help")
    for word, script in SCRIPTS.items():
        assert script.usage.split()[0] == word
        assert f"- `{script.usage}`: {script.about}" in peer.text()


@pytest.mark.parametrize("word", sorted(SCRIPTS.keys() - ENDLESS))
async def test_every_other_word_ends_its_turn(peer: Peer, tmp_path: Path, word: str) -> None:
    peer.answers.update(ASKED)
    session_id = await peer.open(tmp_path)
    assert await peer.prompt(session_id, word) == {"stopReason": "end_turn"}
    await peer.settled()


async def test_any_other_prompt_is_echoed_with_thoughts(peer: Peer) -> None:
    session_id = await peer.open()
    assert await peer.prompt(session_id, "Good Morning") == {"stopReason": "end_turn"}
    assert len(peer.updates("agent_thought_chunk")) == 3
    assert len(peer.updates("agent_message_chunk")) > 3
    assert "You said: Good Morning" in peer.text()


async def test_stream_sends_as_many_chunks_as_asked_in_order(peer: Peer) -> None:
    session_id = await peer.open()
    await peer.prompt(session_id, "stream 1000 0")
    assert peer.text().split() == [str(n) for n in range(1, 1001)]
    assert len(peer.updates("agent_message_chunk")) == 1000


async def test_a_tool_asks_then_runs_nothing_and_reports_a_result(peer: Peer) -> None:
    peer.answers["session/request_permission"] = selected("allow-once")
    session_id = await peer.open()
    await peer.prompt(session_id, "run echo one two")
    (asked,) = peer.requests("session/request_permission")
    assert asked["id"] == 0
    assert [(o["optionId"], o["kind"]) for o in asked["params"]["options"]] == [
        ("allow-once", "allow_once"),
        ("allow-always", "allow_always"),
        ("reject-once", "reject_once"),
    ]
    tool = asked["params"]["toolCall"]
    assert (tool["title"], tool["kind"], tool["status"]) == (
        "`echo one two`",
        "execute",
        "pending",
    )
    assert tool["content"][0]["content"]["text"] == "Not in allowlist: echo"
    assert peer.statuses() == ["pending", "in_progress", "completed"]
    done = peer.updates("tool_call_update")[-1]
    assert done["rawOutput"] == {"exitCode": 0, "stdout": "one two\n", "stderr": ""}
    assert "Nothing was run" in peer.text()


async def test_a_rejected_tool_is_completed_and_the_turn_goes_on(peer: Peer) -> None:
    peer.answers["session/request_permission"] = selected("reject-once")
    session_id = await peer.open()
    assert await peer.prompt(session_id, "tool") == {"stopReason": "end_turn"}
    assert peer.statuses() == ["pending", "completed"]
    assert peer.updates("tool_call_update")[-1]["rawOutput"]["rejected"] is True
    assert "Then I do without" in peer.text()


@pytest.mark.parametrize(
    "answer",
    [
        {"outcome": "selected", "optionId": "allow-once"},
        {"outcome": {"outcome": "cancelled"}},
        {},
        None,
        [],
    ],
)
async def test_a_permission_that_is_not_nested_or_cancelled_ends_the_turn_as_cancelled(
    peer: Peer, answer: Any
) -> None:
    peer.answers["session/request_permission"] = lambda _: answer
    session_id = await peer.open()
    assert await peer.prompt(session_id, "tool") == {"stopReason": "cancelled"}
    assert peer.statuses() == ["pending"]


@pytest.mark.parametrize("answer", [selected("no-such-option"), refuse])
async def test_an_unknown_option_or_an_error_never_allows(peer: Peer, answer: Any) -> None:
    peer.answers["session/request_permission"] = answer
    session_id = await peer.open()
    await peer.prompt(session_id, "tool")
    assert peer.statuses() == ["pending", "completed"]


async def test_allow_always_outlives_the_session_as_in_cursor(peer: Peer) -> None:
    peer.answers["session/request_permission"] = selected("allow-always")
    await peer.prompt(await peer.open(), "run make all")
    await peer.prompt(await peer.open(), "run make clean")
    assert len(peer.requests("session/request_permission")) == 1


async def test_several_tools_ask_at_the_same_time(peer: Peer) -> None:
    session_id = await peer.open()
    turn = peer.begin(
        "session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": "tools 3"}]
    )
    await peer.until(lambda m: m.get("id") == 2 and "method" in m)
    for request_id in (2, 0, 1):
        peer.send({"id": request_id, "result": selected("allow-once")({})})
    assert await peer.answer_to(turn) == {"stopReason": "end_turn"}
    assert peer.statuses().count("completed") == 3


async def test_one_cancelled_answer_of_several_ends_the_turn(peer: Peer) -> None:
    peer.answers["session/request_permission"] = outcome("cancelled")
    session_id = await peer.open()
    assert await peer.prompt(session_id, "tools 3") == {"stopReason": "cancelled"}


async def test_an_edit_shows_a_diff_and_writes_nothing(peer: Peer, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    session_id = await peer.open(folder)
    await peer.prompt(session_id, "edit notes.txt")
    diff = peer.updates("tool_call_update")[-1]["content"][0]
    assert diff["type"] == "diff"
    assert diff["path"] == str(folder / "notes.txt")
    assert list(folder.iterdir()) == []


async def test_write_writes_a_file_of_its_own_once_allowed(peer: Peer, tmp_path: Path) -> None:
    peer.answers["session/request_permission"] = selected("allow-once")
    session_id = await peer.open(tmp_path)
    await peer.prompt(session_id, "write notes.txt")
    await peer.prompt(session_id, "write notes.txt")
    assert (tmp_path / "notes.txt").read_text().startswith("Written by the demo agent.\n")
    first, second = peer.requests("session/request_permission")
    assert first["params"]["toolCall"]["content"][0]["oldText"] is None
    assert second["params"]["toolCall"]["content"][0]["oldText"]


async def test_write_writes_nothing_when_rejected(peer: Peer, tmp_path: Path) -> None:
    peer.answers["session/request_permission"] = selected("reject-once")
    session_id = await peer.open(tmp_path)
    await peer.prompt(session_id, "write notes.txt")
    assert not (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize("name", ["../out.txt", "/out.txt", "link/out.txt", "theirs.txt", "a\0b"])
async def test_write_never_leaves_the_folder_nor_takes_others_files(
    peer: Peer, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "theirs.txt").write_text("precious")
    (folder / "link").symlink_to(tmp_path)
    peer.answers["session/request_permission"] = selected("allow-once")
    session_id = await peer.open(folder)
    await peer.prompt(session_id, f"write {name}")
    assert "I only write files of my own" in peer.text()
    assert peer.requests("session/request_permission") == []
    assert (folder / "theirs.txt").read_text() == "precious"


@pytest.mark.parametrize("mode", ["ask", "plan"])
async def test_no_tools_outside_agent_mode(peer: Peer, mode: str) -> None:
    session_id = await peer.open()
    await peer.call("session/set_mode", sessionId=session_id, modeId=mode)
    await peer.prompt(session_id, "tool")
    assert peer.updates("tool_call") == []


async def test_an_image_is_a_real_picture_that_the_request_names(
    peer: Peer, tmp_path: Path
) -> None:
    peer.answers["cursor/generate_image"] = outcome("generated")
    session_id = await peer.open(tmp_path)
    await peer.prompt(session_id, "image")
    (asked,) = peer.requests("cursor/generate_image")
    assert "sessionId" not in asked["params"]
    assert asked["params"]["toolCallId"] == peer.updates("tool_call")[0]["toolCallId"]
    picture = Path(asked["params"]["filePath"])
    assert picture.parent == tmp_path
    assert is_picture(picture)


async def test_a_question_reports_what_was_answered(peer: Peer) -> None:
    answers = [
        {"questionId": "database", "selectedOptionIds": ["sqlite"]},
        {"questionId": "checks", "selectedOptionIds": ["types", "tests"]},
    ]
    peer.answers["cursor/ask_question"] = outcome("answered", answers=answers)
    session_id = await peer.open()
    await peer.prompt(session_id, "question")
    (asked,) = peer.requests("cursor/ask_question")
    assert "sessionId" not in asked["params"]
    assert [q.get("allowMultiple") for q in asked["params"]["questions"]] == [None, True]
    assert "database: sqlite; checks: types, tests" in peer.text()


@pytest.mark.parametrize("answer", [lambda _: {"outcome": "answered", "answers": []}, refuse])
async def test_a_flat_answer_or_an_error_reads_as_cancelled(peer: Peer, answer: Any) -> None:
    peer.answers["cursor/ask_question"] = answer
    session_id = await peer.open()
    assert await peer.prompt(session_id, "question") == {"stopReason": "end_turn"}
    assert "User cancelled" in peer.text()


async def test_an_accepted_plan_only_ends_the_turn(peer: Peer) -> None:
    peer.answers["cursor/create_plan"] = outcome("accepted")
    session_id = await peer.open()
    assert await peer.prompt(session_id, "plan") == {"stopReason": "end_turn"}
    assert peer.text() == ""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (outcome("rejected", reason="too long"), "rejected the plan: too long"),
        (outcome("cancelled"), "User cancelled the plan"),
        (lambda _: {"outcome": "accepted"}, "User cancelled the plan"),
        (refuse, ""),
    ],
)
async def test_a_plan_that_is_not_accepted_says_so(peer: Peer, answer: Any, said: str) -> None:
    peer.answers["cursor/create_plan"] = answer
    session_id = await peer.open()
    await peer.prompt(session_id, "plan")
    assert said in peer.text()
    assert bool(said) == bool(peer.text())


async def test_plan_mode_plans_what_is_no_word_of_the_table(peer: Peer) -> None:
    peer.answers["cursor/create_plan"] = outcome("accepted")
    session_id = await peer.open()
    await peer.call("session/set_mode", sessionId=session_id, modeId="plan")
    await peer.prompt(session_id, "Please do it")
    assert len(peer.requests("cursor/create_plan")) == 1


async def test_todos_come_as_requests_first_whole_then_as_patches(peer: Peer) -> None:
    peer.answers["cursor/update_todos"] = outcome("accepted")
    session_id = await peer.open()
    await peer.prompt(session_id, "todos")
    sent = [m["params"] for m in peer.requests("cursor/update_todos")]
    assert [each["merge"] for each in sent] == [False, True, True, True, True]
    known: dict[str, str] = {}
    for each in sent:
        known.update({todo["id"]: todo["status"] for todo in each["todos"]})
    assert set(known.values()) == {"completed"}
    assert all("content" not in todo for todo in sent[-1]["todos"])
    assert all("sessionId" not in each for each in sent)


@pytest.mark.parametrize("word", ["todos", "subagent", "image"])
async def test_a_client_that_knows_no_extensions_is_logged_and_the_turn_goes_on(
    peer: Peer, tmp_path: Path, word: str
) -> None:
    peer.answers.update(dict.fromkeys(ASKED, refuse))
    session_id = await peer.open(tmp_path)
    assert await peer.prompt(session_id, word) == {"stopReason": "end_turn"}
    assert b"ACP extension notification failed" in peer.stderr


async def test_a_subagent_speaks_under_its_own_session(peer: Peer) -> None:
    peer.answers["cursor/task"] = outcome("completed")
    session_id = await peer.open()
    await peer.prompt(session_id, "subagent")
    (task,) = peer.requests("cursor/task")
    assert task["params"]["subagentType"] == {"custom": {"unspecified": {}}}
    assert "tidy" in peer.text(task["params"]["agentId"])
    tool = peer.updates("tool_call")[0]
    assert tool["title"] == "Task: Look around"
    assert tool["rawInput"]["_toolName"] == "task"


async def test_a_failure_comes_as_text_and_the_turn_ends_well(peer: Peer) -> None:
    session_id = await peer.open()
    assert await peer.prompt(session_id, "fail auth") == {"stopReason": "end_turn"}
    last = peer.updates("agent_message_chunk")[-1]["content"]["text"]
    assert last == "\n\nPlease sign in to continue"


async def test_error_answers_the_prompt_with_one(peer: Peer) -> None:
    session_id = await peer.open()
    with pytest.raises(Refused) as caught:
        await peer.prompt(session_id, "error")
    assert caught.value.error["code"] == -32603
    assert (await peer.prompt(session_id, "recall"))["stopReason"] == "end_turn"


async def test_crash_exits_with_3_in_the_middle(peer: Peer) -> None:
    session_id = await peer.open()
    turn = peer.begin(
        "session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": "crash"}]
    )
    await peer.answer_to(turn)
    assert peer.exits == [3]
    assert peer.statuses() == ["pending", "in_progress"]


async def test_noise_is_no_message(peer: Peer) -> None:
    session_id = await peer.open()
    await peer.prompt(session_id, "noise 3")
    assert b"Using worktree: /tmp/demo-worktree" in peer.lines
    assert b"" in peer.lines
    assert len(peer.stderr) == 3 * 1024
    with pytest.raises(UnicodeDecodeError):
        peer.stderr.decode()


async def test_big_is_one_chunk_of_that_size(peer: Peer) -> None:
    session_id = await peer.open()
    await peer.prompt(session_id, "big 300")
    (chunk,) = peer.updates("agent_message_chunk")
    assert len(chunk["content"]["text"]) == 300 * 1024


async def test_half_an_emoji_leaves_as_an_escape(peer: Peer) -> None:
    session_id = await peer.open()
    await peer.prompt(session_id, "emoji")
    assert any(b"\\ud83d" in line for line in peer.lines)
    first, second = (u["content"]["text"] for u in peer.updates("agent_message_chunk"))
    assert first.endswith("\ud83d")
    assert second.startswith("\ude80")


async def test_the_agent_can_change_its_own_mode(peer: Peer) -> None:
    session_id = await peer.open()
    await peer.prompt(session_id, "mode ask")
    assert peer.updates("current_mode_update")[-1]["currentModeId"] == "ask"
    options = peer.updates("config_option_update")[-1]["configOptions"]
    assert options[0]["currentValue"] == "ask"
    await peer.prompt(session_id, "mode nonsense")
    assert "no mode nonsense" in peer.text()


async def test_elicitation_is_only_used_where_the_client_offers_it(peer: Peer) -> None:
    await peer.prompt(await peer.open(), "elicit")
    assert "does not offer elicitation by form" in peer.text()
    peer.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"name": "A"}}
    offering = await peer.open(elicitation={"form": {}, "url": {}})
    await peer.prompt(offering, "elicit")
    await peer.prompt(offering, "elicit url")
    form, url = peer.requests("elicitation/create")
    assert form["params"]["requestedSchema"]["required"] == ["name"]
    done = await peer.until(lambda m: m.get("method") == "elicitation/complete")
    assert done["params"]["elicitationId"] == url["params"]["elicitationId"]


async def test_an_unknown_request_is_answered_by_whatever_comes(peer: Peer) -> None:
    peer.answers["cursor/demo_choice"] = lambda _: {"colour": "blue"}
    session_id = await peer.open()
    await peer.prompt(session_id, "vendor")
    assert "blue" in peer.text()


async def test_finish_ends_with_the_reason_it_is_given(peer: Peer) -> None:
    session_id = await peer.open()
    assert await peer.prompt(session_id, "finish refusal") == {"stopReason": "refusal"}


async def test_late_says_something_after_the_end(peer: Peer) -> None:
    session_id = await peer.open()
    await peer.prompt(session_id, "late")
    await peer.settled()
    assert "late" in json.dumps(peer.messages[-1])


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("Please, play (todos).", [("todos", "")]),
        ("TOOL", [("hello", "")]),
        ("a retool of the planner", [("hello", "")]),
        ("run ls -l then count", [("run", " ls -l then count")]),
        ("todos then tool then hello", [("todos", ""), ("tool", ""), ("hello", "")]),
        ("stream 5 0\nthen plan", [("stream", " 5 0")]),
    ],
)
def test_the_first_word_of_the_table_decides_and_then_chains(
    prompt: str, words: list[tuple[str, str]]
) -> None:
    assert chosen(prompt, "agent") == words
