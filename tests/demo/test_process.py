"""The demo agent as a process: pipes, signals, exit statuses."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

LIMIT_S = 20.0
READ_BYTES = 256 * 1024


class Process:
    """A running demo agent; every wait is bounded."""

    def __init__(self, home: Path, *args: str, **env: str) -> None:
        self._running = subprocess.Popen(
            [sys.executable, "-m", "bridge.demo", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.defpath, "CURSOR_DEMO_HOME": str(home), "CURSOR_DEMO_PACE": "0", **env},
        )
        self._rest = b""
        self.lines: list[bytes] = []
        self.pid = self._running.pid

    def send(self, **message: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        stdin = _pipe(self._running.stdin)
        stdin.write(data)
        stdin.flush()

    def close_stdin(self) -> None:
        _pipe(self._running.stdin).close()

    def call(self, method: str, /, **params: Any) -> Any:
        """Send a request, wait for its answer."""
        self.send(id=method, method=method, params=params)
        return self.until(b'"id":"' + method.encode() + b'"')

    def until(self, wanted: bytes) -> Any:
        """Read until a line holds ``wanted``; that line, decoded."""
        stdout = _pipe(self._running.stdout).fileno()
        until = time.monotonic() + LIMIT_S
        while True:
            ready, _, _ = select.select([stdout], [], [], max(0.0, until - time.monotonic()))
            data = os.read(stdout, READ_BYTES) if ready else b""
            assert data, f"no {wanted!r} came"
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.lines += lines
            for line in lines:
                if wanted in line:
                    return json.loads(line)

    def open(self, cwd: Path) -> str:
        self.call("initialize", protocolVersion=1, clientCapabilities={})
        created = self.call("session/new", cwd=str(cwd), mcpServers=[])
        return str(created["result"]["sessionId"])

    def prompt(self, session_id: str, text: str) -> None:
        params = {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
        self.send(id="prompt", method="session/prompt", params=params)

    def wait(self) -> int:
        return self._running.wait(LIMIT_S)

    def stderr(self) -> bytes:
        return _pipe(self._running.stderr).read()

    def kill(self) -> None:
        self._running.kill()
        self._running.wait(LIMIT_S)
        for pipe in (self._running.stdin, self._running.stdout, self._running.stderr):
            _pipe(pipe).close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


@contextmanager
def running(home: Path, *args: str, **env: str) -> Iterator[Process]:
    process = Process(home, *args, **env)
    try:
        yield process
    finally:
        process.kill()


def test_the_end_of_input_is_exit_0_even_in_a_turn(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.prompt(process.open(tmp_path), "hang")
        process.until(b'"in_progress"')
        process.close_stdin()
        assert process.wait() == 0
        assert process.stderr() == b""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_at_once(tmp_path: Path, number: signal.Signals, status: int) -> None:
    with running(tmp_path) as process:
        process.prompt(process.open(tmp_path), "stubborn")
        process.until(b"Still here")
        os.kill(process.pid, number)
        assert process.wait() == status


def test_a_signal_ends_it_when_nobody_reads_its_output(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.prompt(process.open(tmp_path), "stream 1000000 0")
        process.until(b'"1000 "')
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 143


def test_the_end_of_input_ends_it_when_nobody_reads_its_output(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.prompt(process.open(tmp_path), "stream 1000000 0")
        process.until(b'"1000 "')
        process.close_stdin()
        assert process.wait() == 0


def test_crash_exits_with_3_after_what_was_said(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.prompt(process.open(tmp_path), "crash")
        process.until(b'"in_progress"')
        assert process.wait() == 3
        assert b"fatal" in process.stderr()


def test_a_conversation_is_taken_up_by_another_process_after_a_kill(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        session_id = process.open(tmp_path)
        process.prompt(session_id, "Remember the Milk")
        process.until(b'"stopReason":"end_turn"')
        process.prompt(session_id, "hang")
        process.until(b'"in_progress"')
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with running(tmp_path) as process:
        loaded = process.call("session/load", sessionId=session_id, cwd="/", mcpServers=[])
        assert loaded["result"]["modes"]["currentModeId"] == "agent"
        process.prompt(session_id, "recall")
        process.until(b'"stopReason":"end_turn"')
        said = b"".join(process.lines)
        assert b"Remember the Milk" in said
        assert b"sleep infinity" not in said


def test_a_flood_comes_whole_and_in_order(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.prompt(process.open(tmp_path), "stream 20000 0")
        process.until(b'"stopReason"')
        chunks = [line for line in process.lines if b"agent_message_chunk" in line]
        said = [json.loads(line)["params"]["update"]["content"]["text"] for line in chunks]
        assert said == [f"{n} " for n in range(1, 20_001)]


def test_broken_lines_do_not_end_it(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.write(b"\xff\n\n{\n[1]\n" + b"[" * 100_000 + b'\n{"id":0,"result":1}\n')
        assert "result" in process.call("initialize", protocolVersion=1)
        assert sum(b'"error"' in line for line in process.lines) == 4


def test_it_is_called_as_cursors_agent_is(tmp_path: Path) -> None:
    with running(tmp_path, "--model", "auto", "acp") as process:
        created = process.call("session/new", cwd="/", mcpServers=[])
        assert created["result"]["models"]["currentModelId"] == "default[]"


def test_an_unknown_model_is_exit_1_with_the_reason(tmp_path: Path) -> None:
    with running(tmp_path, "--model", "grok-4.6[fast=false]", "acp") as process:
        assert process.wait() == 1
        assert process.stderr() == b"Cannot use this model: grok-4.6[fast=false].\n"


def test_it_tells_a_version_in_cursors_form(tmp_path: Path) -> None:
    with running(tmp_path, "--version") as process:
        assert process.wait() == 0
        assert process.stderr() == b""


def test_it_asks_for_a_login_when_told_to(tmp_path: Path) -> None:
    with running(tmp_path, CURSOR_DEMO_LOGIN="needed") as process:
        refused = process.call("session/new", cwd="/", mcpServers=[])
        assert refused["error"]["code"] == -32000


def test_files_can_stand_in_for_the_pipes(tmp_path: Path) -> None:
    asked, answered = tmp_path / "in", tmp_path / "out"
    asked.write_text('{"jsonrpc":"2.0","id":1,"method":"initialize"}')
    with asked.open("rb") as stdin, answered.open("wb") as stdout:
        argv = [sys.executable, "-m", "bridge.demo"]
        subprocess.run(argv, stdin=stdin, stdout=stdout, check=True, timeout=LIMIT_S)
    assert json.loads(answered.read_bytes())["id"] == 1
