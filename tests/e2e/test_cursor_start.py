"""Cursor as it really is, until its first session: found, started, logged in or not.

Every docstring names where the fact comes from.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from bridge.config import Agent
from bridge.runtime.catalog import Catalog
from tests.e2e.harness import Json, Subprocess, scripted, serving, settings_for
from tests.e2e.stage import (  # noqa: F401
    Stage,
    case,
    module_backend,
    module_limits,
    module_playhouse,
    one_stage,
)
from tests.faults.rig import eventually

pytestmark = pytest.mark.anyio

CURSOR = """#!{python}
import json, os, sys
with open({notes!r}, "a") as notes:
    notes.write(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ)}}) + "\\n")
if sys.argv[1:] == ["--version"]:
    print("2026.10.22-1a2b3c4")
else:
    os.execv(sys.executable, {command!r})
"""
"""A program that tells its version as Cursor's does, and plays the scripted agent as ``acp``."""


class Installed:
    """A stand-in for Cursor's command line agent, with notes of how it was called."""

    def __init__(self, folder: Path, case: str, name: str = "cursor-agent") -> None:
        self._notes = folder / "calls"
        self.path = folder / name
        command = scripted(case)
        notes = str(self._notes)
        self.path.write_text(CURSOR.format(python=sys.executable, notes=notes, command=command))
        self.path.chmod(0o755)

    def calls(self) -> list[Json]:
        """The arguments and the environment of each call, in order."""
        return [json.loads(line) for line in self._notes.read_text().splitlines()]


# -- finding and starting it --------------------------------------------------------------------


async def test_while_a_session_lives_nothing_calls_it_for_its_version(tmp_path: Path) -> None:
    """tiann/hapi#832: another call can end a live one. Nothing is configured here.

    Settings read again, a doctor and a second bridge beside it find out without it.
    """
    (places := tmp_path / "bin").mkdir()
    cursor = Installed(places, "basic")
    env = {"PATH": f"{places}:{os.environ['PATH']}", "CURSOR_BRIDGE_LOG_LEVEL": "info"}
    async with Subprocess(tmp_path, "", env=env) as bridge:
        caller = await bridge.start()
        assert (await caller.session())["agent"] == "cursor"
        begun = [call["argv"] for call in cursor.calls()]
        bridge.signal(signal.SIGHUP)
        log = tmp_path / "bridge.log"
        await eventually(lambda: "read again" in log.read_text())
        for command in (["doctor"], ["serve", "--port", "0"]):
            words = [sys.executable, "-m", "bridge.cli.main", *command]
            await anyio.run_process(
                [*words, "--state-dir", str(tmp_path / "state")],
                check=False,
                env={**os.environ, **env},
            )
        assert begun == [["--version"], ["acp"]]
        assert [call["argv"] for call in cursor.calls()] == begun


@pytest.mark.parametrize("arguments", [[], ["acp"]])
async def test_it_is_called_once_for_its_version_and_then_with_flags_before_acp(
    tmp_path: Path, arguments: list[str]
) -> None:
    """tiann/hapi#832: another call ends a live one; relay-ide#1590: flags stand before ``acp``.

    Keys in arguments are seen by every user of the box (``ps``), so they are not there.
    """
    cursor = Installed(tmp_path, "basic")
    agent = {
        "command": [str(cursor.path), *arguments],
        "dialect": "cursor",
        "root_flags": ["--model", "auto"],
        "endpoint": "https://cursor.example",
        "insecure_tls": True,
        "env": {"CURSOR_API_KEY": "key-of-this-test"},
    }
    async with serving(tmp_path, {"cursor": agent}, default_agent="cursor") as bridge:
        for _ in range(2):
            session = await bridge.caller.session()
            turn = await bridge.caller.turn(session["sessionId"], "hi")
            assert turn["text"] == "You said: hi"
        shown = (await bridge.caller.get("/v1/agents/cursor")).json()
    assert (shown["version"], shown["authenticated"]) == ("2026.10.22-1a2b3c4", True)
    version, *started = cursor.calls()
    flags = ["--model", "auto", "-e", "https://cursor.example", "-k", "acp"]
    assert version["argv"] == ["--version"]
    assert [call["argv"] for call in started] == [flags, flags]
    assert {call["env"]["CURSOR_API_KEY"] for call in started} == {"key-of-this-test"}
    assert {call["env"]["NO_OPEN_BROWSER"] for call in started} == {"1"}


async def test_another_program_called_agent_is_never_started(tmp_path: Path) -> None:
    """``agent`` is a name of other tools too; only a version of Cursor's shape is Cursor."""
    folder = tmp_path / "bin"
    folder.mkdir()
    other = folder / "agent"
    other.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho agent 1.2\n')
    other.chmod(0o755)
    env = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(tmp_path)}
    agents = {"cursor": {"dialect": "cursor", "env": env}}
    async with serving(tmp_path, agents, default_agent="cursor") as bridge:
        shown = (await bridge.caller.get("/v1/agents/cursor")).json()
        answer = await bridge.caller.post("/v1/sessions", {})
    assert (shown["available"], "not on this box" in shown["problem"]) == (False, True)
    assert (answer.status_code, answer.json()["code"]) == (503, "agent-unavailable")
    assert (tmp_path / "calls").read_text() == "--version\n"


async def test_flags_without_an_acp_to_put_them_before_are_refused_and_not_forgotten(
    tmp_path: Path,
) -> None:
    """An endpoint that is silently left out would send a key to another one."""
    command = (sys.executable, "-m", "something")
    agents = {"it": Agent(command=command, dialect="cursor", endpoint="https://cursor.example")}
    catalog = Catalog(settings_for(tmp_path, agents))
    await catalog.look()
    assert "ends in acp" in catalog.as_json("it", "local")["problem"]
    wrapped = {"it": agents["it"].model_copy(update={"command": (*command, "acp")})}
    catalog = Catalog(settings_for(tmp_path, wrapped))
    await catalog.look()
    assert catalog.argv("it") == (*command, "-e", "https://cursor.example", "acp")


# -- the handshake ------------------------------------------------------------------------------


@case("auth", auth_method="fake_login")
async def test_authenticate_is_sent_only_after_minus_32000(stage: Stage) -> None:
    """pingdotgg/t3code#7244: a needless authenticate opens a browser or hangs."""
    await stage.begin()
    assert stage.methods() == ["initialize", "session/new", "authenticate", "session/new"]
    assert stage.received()[2]["params"] == {"methodId": "fake_login"}


@case("auth_refused")
async def test_without_a_configured_method_nothing_is_tried(stage: Stage) -> None:
    """Which of an agent's ``authMethods`` works without a person, only its operator knows."""
    problem = (await stage.ask()).json()
    assert (problem["code"], problem["authMethods"]) == ("agent-auth-required", ["fake_login"])
    assert "authenticate" not in stage.methods()


@case("basic", auth_method="fake_login")
async def test_an_agent_that_is_logged_in_is_never_asked_to_authenticate(stage: Stage) -> None:
    """screenpipe#6455 and Cursor's own behaviour: a key or login at start is enough."""
    await stage.begin()
    assert "authenticate" not in stage.methods()


@case("auth_refused", auth_method="cursor_login")
async def test_a_login_link_is_never_shown_to_a_caller(stage: Stage) -> None:
    """pingdotgg/t3code#7245: the error of a headless login carries a login link."""
    answer = await stage.ask()
    assert answer.status_code == 424
    problem = answer.json()
    assert problem["code"] == "agent-auth-required"
    assert "`cursor-agent login`" in problem["hint"]
    assert "loginDeepControl" not in answer.text and "device?code" not in answer.text
    assert "Failed to open browser" in problem["reason"] and "to log in" in problem["stderrTail"]
    shown = (await stage.caller.get(f"/v1/agents/{stage.agent}")).json()
    assert shown["authenticated"] is False


async def test_the_command_that_logs_in_is_the_one_that_is_installed(tmp_path: Path) -> None:
    """A login at another endpoint, or by a name that is not there, would help nobody."""
    cursor = Installed(tmp_path, "auth_refused", "agent")
    agent = {
        "command": [str(cursor.path)],
        "dialect": "cursor",
        "endpoint": "https://cursor.example",
    }
    async with serving(tmp_path, {"cursor": agent}, default_agent="cursor") as bridge:
        problem = (await bridge.caller.post("/v1/sessions", {})).json()
    assert "`agent -e https://cursor.example login`" in problem["hint"]


@case("version_missing")
async def test_a_missing_protocol_version_is_version_one(stage: Stage) -> None:
    """Some builds leave ``protocolVersion`` out (sesori's client)."""
    assert (await stage.play("hi"))[1]["status"] == "completed"


@case("transient")
async def test_a_transient_failure_gets_one_new_process(stage: Stage) -> None:
    """zed-industries/zed#57035: ``[unauthenticated] Error`` that is gone on the next start."""
    assert (await stage.play("hi"))[1]["status"] == "completed"
    assert stage.methods().count("initialize") == 2


@case("always_failing")
async def test_a_failure_that_stays_is_told_with_the_agents_words(stage: Stage) -> None:
    """zed-industries/zed#57035: a bad key and a dead proxy look the same."""
    problem = (await stage.ask()).json()
    assert problem["code"] == "agent-error"
    assert problem["agentError"]["data"]["details"] == "[unauthenticated] Error"
    assert stage.methods().count("initialize") == 2
    assert await stage.listed() == []


@case("exits_early")
async def test_an_early_exit_is_told_with_what_stderr_said(stage: Stage) -> None:
    """pingdotgg/t3code#12451: a bad key in .cursor/cli.json ends the process before initialize."""
    problem = (await stage.ask()).json()
    assert problem["code"] == "agent-exited"
    assert "schema error" in problem["stderrTail"]


@case("new_dies")
async def test_an_exit_instead_of_a_session_is_told_with_what_stderr_said(stage: Stage) -> None:
    """kcap#714: Cursor may die at any step."""
    answer = await stage.ask()
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["exitCode"]) == (424, "agent-exited", 1)
    assert problem["stderrTail"].strip() == "no such project"
    assert await stage.listed() == []


@case("new_odd")
async def test_a_session_without_a_name_is_no_session(stage: Stage) -> None:
    """ACP: ``sessionId`` is a text; nothing could be sent to a session without one."""
    problem = (await stage.ask()).json()
    assert problem["code"] == "agent-protocol-error"
    assert problem["stderrTail"].strip() == "warning: key=[redacted]"
    assert await stage.listed() == []


@case("basic")
async def test_the_model_picker_is_announced_and_files_and_terminals_are_not(stage: Stage) -> None:
    """zed-industries/zed#57571: no variants without it; kcap-cli#308: fs/* is never called."""
    await stage.begin()
    told = stage.received()[0]["params"]["clientCapabilities"]
    assert told["_meta"] == {"parameterizedModelPicker": True}
    assert told["fs"] == {"readTextFile": False, "writeTextFile": False}
    assert told["terminal"] is False


@case("basic", model_picker=False)
async def test_the_model_picker_can_be_left_out(stage: Stage) -> None:
    """getpaseo/paseo#1952: clients that know the flat list of models only."""
    await stage.begin()
    assert "_meta" not in stage.received()[0]["params"]["clientCapabilities"]
