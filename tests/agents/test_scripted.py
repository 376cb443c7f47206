"""The scripted agent does what its cases say: tests elsewhere can only be as good as it is."""

from __future__ import annotations

import ast
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.scripted import Play

Json = dict[str, Any]

FOLDER = Path(__file__).parent
CASES = sorted(FOLDER.glob("cases/*.json"))
LIMIT_S = 30


class Peer:
    """The other end of a scripted agent."""

    def __init__(self, case: str | Path, **env: str) -> None:
        path = case if isinstance(case, Path) else FOLDER / "cases" / f"{case}.json"
        self.process = subprocess.Popen(
            [sys.executable, str(FOLDER / "scripted.py"), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def send(self, method: str, rpc_id: Any = None, **params: Any) -> None:
        """A request, or a notification without an id."""
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.write(message if rpc_id is None else {**message, "id": rpc_id})

    def write(self, message: Json) -> None:
        """Any message."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def prompt(self, text: str, session_id: str = "s", rpc_id: Any = 1) -> None:
        """Begin a turn."""
        prompt = [{"type": "text", "text": text}]
        self.send("session/prompt", rpc_id, sessionId=session_id, prompt=prompt)

    def read(self) -> Json:
        """The next message."""
        assert self.process.stdout is not None
        message: Json = json.loads(self.process.stdout.readline())
        return message

    def until_answer(self, rpc_id: Any = 1) -> list[Json]:
        """All messages up to an answer."""
        messages = [self.read()]
        while "method" in messages[-1] or messages[-1]["id"] != rpc_id:
            messages.append(self.read())
        return messages


def text_of(messages: list[Json]) -> str:
    """What an agent said in updates."""
    return "".join(each["params"]["update"]["content"]["text"] for each in messages[:-1])


def steps_in(value: Any, key: str = "") -> Iterator[Json]:
    """Every step of a case, wherever steps may stand; not what only looks like one in a payload."""
    if key in ("params", "update", "result", "respond", "error", "fail"):
        return
    if isinstance(value, list):
        if key in ("steps", "before", "after", "start"):
            yield from value
        for each in value:
            yield from steps_in(each)
    elif isinstance(value, dict):
        for name, inside in value.items():
            yield from steps_in(inside, "steps" if key == "then" else name)


def case_of(folder: Path, *steps: Json, **case: Any) -> Path:
    """A case file whose prompts play these steps."""
    path = folder / "case.json"
    path.write_text(json.dumps({"prompts": [{"match": None, "steps": steps}], **case}))
    return path


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case_has_only_steps_that_can_be_played(path: Path) -> None:
    case = json.loads(path.read_text())
    assert not [step for step in steps_in(case) if not hasattr(Play, f"do_{next(iter(step))}")]


def words_in(path: Path) -> Iterator[str]:
    """Every text of a module of tests, and every piece of a text that is put together."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_case_and_every_prompt_of_one_is_played_by_a_test() -> None:
    """A case is named by a text of its name, its prompts by texts of the same module."""
    modules = {path: set(words_in(path)) for path in FOLDER.parent.rglob("*.py")}
    unplayed = []
    for path in CASES:
        said = [words for words in modules.values() if path.stem in words]
        words = {word for each in said for word in each if "\n" not in word}
        if not said:
            unplayed.append(path.stem)
        for script in json.loads(path.read_text()).get("prompts", []):
            match = script["match"]
            if match is not None and not any(re.search(match, word) for word in words):
                unplayed.append(f"{path.stem}: {match}")
    assert unplayed == []


def test_a_step_that_nobody_knows_ends_the_agent(tmp_path: Path) -> None:
    with Peer(case_of(tmp_path, {"txet": "hi"})) as peer:
        peer.prompt("x")
        assert peer.process.wait(LIMIT_S) == 2
        assert peer.process.stderr is not None
        assert b"txet" in peer.process.stderr.read()


def test_what_is_known_is_filled_in_once_and_only_where_it_stands(tmp_path: Path) -> None:
    with Peer(case_of(tmp_path, {"text": "{sessionId} {promptId} {n} {prompt}"})) as peer:
        peer.prompt("7 {cwd} {n}", "one", "p")
        assert text_of(peer.until_answer("p")) == "one p 7 7 {cwd} {n}"


def test_a_flood_has_as_many_updates_as_asked_for() -> None:
    with Peer("sizes") as peer:
        peer.prompt("flood 12345")
        assert len(peer.until_answer()) == 12346


def test_a_large_update_is_one_line() -> None:
    with Peer("sizes") as peer:
        peer.prompt("big 20000000")
        messages = peer.until_answer()
        assert len(messages) == 4 and len(text_of(messages)) == 20_000_002


def test_a_cancel_ends_the_prompt_of_its_session_alone() -> None:
    with Peer("basic") as peer:
        peer.prompt("slow", "a", "pa")
        peer.prompt("slow", "b", "pb")
        peer.send("session/cancel", sessionId="b")
        assert peer.until_answer("pb")[-1]["result"] == {"stopReason": "cancelled"}
        peer.send("session/cancel", sessionId="a")
        assert peer.until_answer("pa")[-1]["result"] == {"stopReason": "cancelled"}


def test_an_answer_waited_for_later_is_the_one_to_that_request(tmp_path: Path) -> None:
    path = case_of(
        tmp_path,
        {"ask": "x/one", "id": "one", "wait": False},
        {"ask": "x/two", "id": "two", "wait": False},
        {"await": "one", "then": {"-32601": [{"text": "refused"}], "else": [{"text": "not"}]}},
        {"await": "two", "then": {"-32601": [{"text": "not"}], "else": [{"text": "{answer}"}]}},
    )
    with Peer(path) as peer:
        peer.prompt("x")
        assert [peer.read()["id"], peer.read()["id"]] == ["one", "two"]
        peer.write({"jsonrpc": "2.0", "id": "two", "result": {"a": 1}})
        peer.write({"jsonrpc": "2.0", "id": "one", "error": {"code": -32601, "message": "?"}})
        assert text_of(peer.until_answer()) == 'refused{"a": 1}'


def test_the_log_has_every_line_of_every_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        Peer("same_id", FAKE_AGENT_LOG=str(log)) as one,
        Peer("same_id", FAKE_AGENT_LOG=str(log)) as two,
    ):
        for peer in (one, two):
            peer.send("session/new", 1, cwd="/", mcpServers=[])
            assert peer.until_answer()[-1]["result"] == {"sessionId": "the-same-id"}
            peer.prompt("x" * 200_000, "the-same-id", 2)
            assert len(text_of(peer.until_answer(2))) > 200_000
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        lines_in = [each for each in entries if each["dir"] == "in"]
        pids = sorted((one.process.pid, two.process.pid))
        assert sorted(each["pid"] for each in lines_in) == [pids[0], pids[0], pids[1], pids[1]]
        assert max(len(each["line"]) for each in lines_in) > 200_000


def test_the_first_try_of_all_processes_is_played_once(tmp_path: Path) -> None:
    answers = []
    for _ in range(3):
        with Peer("transient", FAKE_AGENT_STATE=str(tmp_path / "state")) as peer:
            peer.send("session/new", 1, cwd="/", mcpServers=[])
            answers.append("result" in peer.read())
    assert answers == [False, True, True]


def test_an_agent_whose_flood_nobody_reads_still_ends_with_its_stdin() -> None:
    with Peer("sizes") as peer:
        peer.prompt("flood 100000")
        assert peer.read()["method"] == "session/update"
        assert peer.process.stdin is not None
        peer.process.stdin.close()
        assert peer.process.wait(LIMIT_S) == 0
        peer.process.stdin = None


def test_an_agent_that_stays_outlives_its_stdin_and_a_sigterm(tmp_path: Path) -> None:
    with Peer(case_of(tmp_path, {"flood": "{n}"}, start=[{"stay": True}])) as peer:
        peer.prompt("50000 are more than a pipe holds")
        assert peer.read()["method"] == "session/update"
        assert peer.process.stdin is not None
        peer.process.stdin.close()
        peer.process.stdin = None
        peer.process.terminate()
        assert len(peer.until_answer()) == 50_000
        peer.process.kill()
        assert peer.process.wait(LIMIT_S) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("word", "status"),
    [("status 9", 9), ("kill", -signal.SIGKILL), ("term", -signal.SIGTERM), ("half", 1)],
)
def test_an_agent_ends_as_the_prompt_says(word: str, status: int) -> None:
    with Peer("dying") as peer:
        peer.prompt(word)
        assert peer.process.wait(LIMIT_S) == status


def test_what_is_no_json_is_answered_without_an_id() -> None:
    with Peer("basic") as peer:
        assert peer.process.stdin is not None
        peer.process.stdin.write(b"nonsense\n")
        peer.process.stdin.flush()
        answer = peer.read()
        assert (answer["id"], answer["error"]["code"]) == (None, -32700)
