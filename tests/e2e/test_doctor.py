"""``cursor-bridge doctor`` tells what works and how to mend what does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bridge.state import StateDir
from tests.e2e.harness import demo, scripted


def doctor(folder: Path, command: list[str], *arguments: str) -> tuple[int, dict[str, str]]:
    """The exit status and the verdict on each thing, of a box with this agent."""
    config = folder / "bridge.toml"
    config.write_text(
        f'default_agent = "it"\nroots = ["{folder}"]\n[agents.it]\n'
        f"command = {json.dumps(command)}\n[agents.it.env]\n"
        f'CURSOR_DEMO_PACE = "0"\nCURSOR_DEMO_HOME = "{folder}/demo"\n'
    )
    call = [sys.executable, "-m", "bridge.cli.main", "doctor", "--config", str(config)]
    state = ["--state-dir", str(folder / "state"), "--json", *arguments]
    done = subprocess.run([*call, *state], capture_output=True, text=True, timeout=50, check=False)
    findings = json.loads(done.stdout)["findings"]
    bad = [each for each in findings if each["verdict"] != "ok"]
    assert all(each["mend"] for each in bad)
    return done.returncode, {each["what"]: each["verdict"] for each in findings}


def test_a_box_on_which_sessions_start_is_well(tmp_path: Path) -> None:
    status, found = doctor(tmp_path, demo())
    assert status == 0
    assert (found["it: program"], found["it: session"]) == ("ok", "ok")


def test_a_program_that_is_missing_is_told(tmp_path: Path) -> None:
    status, found = doctor(tmp_path, ["/no/such/agent", "acp"])
    assert (status, found["it"]) == (1, "fail")


def test_a_login_that_is_missing_is_told(tmp_path: Path) -> None:
    status, found = doctor(tmp_path, scripted("auth_refused"))
    assert (status, found["it: program"], found["it: session"]) == (1, "ok", "fail")


def test_agents_are_left_alone_while_a_bridge_runs(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    try:
        status, found = doctor(tmp_path, demo())
    finally:
        state.close()
    assert (status, found["state folder"]) == (0, "warn")
    assert "it: session" not in found
