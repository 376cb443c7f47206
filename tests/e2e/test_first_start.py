"""What a newcomer reads at the terminal: where to go, with which token, and what is in the way."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from bridge.cli.listen import listen
from bridge.cli.serve import read_settings, serve
from bridge.cli.words import program
from bridge.tokens import StartupError, TokenStore
from tests.e2e.harness import LIMIT_S, Subprocess

pytestmark = pytest.mark.anyio


async def test_a_first_start_that_fails_does_not_use_up_the_only_token(tmp_path: Path) -> None:
    env = {"CURSOR_BRIDGE_LOG_LEVEL": "info"}
    async with Subprocess(tmp_path, "", "--agent", "demo", env=env, has_token=False) as bridge:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            bridge.begin("--port", str(port))
            assert await anyio.to_thread.run_sync(bridge.wait) == 2
        said = (tmp_path / "bridge.log").read_text()
        assert said == f"cursor-bridge: port {port} is taken; choose another with --port\n"
        assert not (tmp_path / "state" / "tokens.json").exists()

        await bridge.start()
        assert re.match(r"Open http://127\.0\.0\.1:\d+/#token=cab_\S+\n", bridge.lines[-1])
        assert (tmp_path / "bridge.log").read_text() == said
        bridge.stop()

        await bridge.start()
        told = re.fullmatch(
            r"Open http://127\.0\.0\.1:\d+/ with a token you have; `(.+)` makes another\.\n",
            bridge.lines[-1],
        )
        assert told is not None, bridge.lines
        done = await anyio.to_thread.run_sync(lambda: _typed(told[1]))
    store = TokenStore(tmp_path / "state" / "tokens.json", time.time)
    assert store.lookup(done.strip().encode()) is not None


def _typed(command: str) -> str:
    done = subprocess.run(
        shlex.split(command), capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    return done.stdout


def test_what_is_no_address_of_this_machine_is_said_in_a_line() -> None:
    with pytest.raises(StartupError, match=r"'192\.0\.2\.1' is no address to listen on .*--host"):
        listen("192.0.2.1", 0)


def test_rules_of_an_agent_that_do_not_fit_are_named_at_the_start(tmp_path: Path) -> None:
    (config := tmp_path / "bridge.toml").write_text(
        '[agents.mine]\ncommand = ["x"]\n'
        '[[agents.mine.permissions.rules]]\nreply = "yes"\nmatch = {}\n'
    )
    with pytest.raises(StartupError, match=r"agents\.mine\.permissions\.rules\.0\.reply is one of"):
        read_settings(config)


def test_a_root_of_the_command_line_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(serve, ["--root", "/nope", "--state-dir", str(tmp_path / "state")])
    assert (done.exit_code, done.output) == (2, "cursor-bridge: --root /nope is no folder.\n")


@pytest.mark.parametrize("is_on_path", [True, False])
def test_the_program_is_named_as_it_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on_path: bool
) -> None:
    installed = tmp_path / "cursor-bridge"
    installed.write_text("#!/bin/sh\n")
    installed.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) if is_on_path else os.defpath)
    assert program(str(installed)) == ("cursor-bridge" if is_on_path else str(installed))
    assert program("/x/bridge/cli/main.py") == f"{sys.executable} -m bridge.cli.main"
