"""``cursor-bridge doctor`` tells what works and how to mend what does not."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bridge.cli.doctor import doctor
from bridge.state import StateDir
from tests.e2e.harness import demo, scripted

Found = dict[str, tuple[str, str, str | None]]


class Box:
    """A box with one configured agent, and a folder on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.state = folder / "state"
        self.config = folder / "bridge.toml"
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(folder)}

    def configure(
        self, command: Sequence[str], *, initialize_s: float = 20.0, **values: Any
    ) -> None:
        """One agent, named ``it``."""
        table = {"command": list(command), **values}
        lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
        self.config.write_text(
            f'default_agent = "it"\nroots = ["{self.folder}"]\n'
            f"limits.initialize_s = {initialize_s}\n"
            "[agents.it]\n" + "\n".join(lines) + "\n[agents.it.env]\n"
            f'CURSOR_DEMO_PACE = "0"\nCURSOR_DEMO_HOME = "{self.folder}/demo"\n'
        )

    def install(self, name: str, version: str) -> None:
        """A program on PATH that tells a version and nothing else."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\necho {version}\n")
        path.chmod(0o755)

    def run(self, *arguments: str) -> tuple[int, str]:
        """The exit status and the text."""
        config = ["--config", str(self.config)] if self.config.exists() else []
        call = [*config, "--state-dir", str(self.state), *arguments]
        done = CliRunner(env=self.env).invoke(doctor, call)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.output

    def find(self, *arguments: str) -> tuple[int, Found]:
        """The exit status and the findings: verdict, detail and mend of each."""
        status, text = self.run("--json", *arguments)
        told = json.loads(text)
        assert told["ok"] is (status == 0)
        findings: Found = {
            each["what"]: (each["verdict"], each["detail"], each["mend"])
            for each in told["findings"]
        }
        assert all(mend for verdict, _, mend in findings.values() if verdict != "ok")
        return status, findings


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_a_box_on_which_sessions_start_is_well(box: Box) -> None:
    box.configure(demo())
    status, found = box.find()
    assert status == 0
    steps = ["program", "handshake", "login", "session"]
    assert [found[f"it: {step}"][0] for step in steps] == ["ok"] * 4
    assert "mode agent" in found["it: session"][1]
    status, text = box.run()
    assert (status, text.splitlines()[-1]) == (0, "Sessions start here.")


def test_a_box_without_cursor_says_so_and_what_it_has_instead(box: Box) -> None:
    status, found = box.find()
    assert status == 0
    assert (
        found["configuration"][1] == "default agent: the first that can be started of cursor, demo"
    )
    verdict, detail, mend = found["cursor: program"]
    assert (verdict, "not on this box" in detail) == ("warn", True)
    assert mend is not None and "cursor.com" in mend
    status, found = box.find("--agent", "cursor")
    assert (status, found["cursor: program"][0]) == (1, "fail")
    assert box.run("--agent", "cursor")[1].endswith(
        "No session would start: mend what failed above.\n"
    )


def test_the_agent_that_the_bridge_would_choose_decides_whether_all_is_well(box: Box) -> None:
    box.configure(demo())
    text = box.config.read_text().replace('default_agent = "it"\n', "")
    box.config.write_text(text)
    status, found = box.find()
    assert (status, found["cursor: program"][0], found["it: session"][0]) == (0, "warn", "ok")
    assert found["configuration"][1].endswith("can be started of cursor, it")


def test_another_program_called_agent_is_named(box: Box) -> None:
    box.install("agent", "agent 1.2")
    _, found = box.find("--agent", "cursor")
    assert f"{box.bin}/agent is another program" in found["cursor: program"][1]


def test_a_program_of_cursors_name_with_a_strange_version_is_pointed_at(box: Box) -> None:
    box.install("cursor-agent", "next")
    status, found = box.find("--agent", "cursor")
    assert status == 1
    assert found["cursor: program"][:2] == ("ok", f"{box.bin}/cursor-agent acp")
    assert found["cursor: version"][0] == "warn"
    verdict, detail, mend = found["cursor: handshake"]
    assert (verdict, "(agent-exited)" in detail) == ("fail", True)
    assert mend is not None and mend.endswith(f"{box.bin}/cursor-agent acp")


def test_a_program_that_is_missing_is_told(box: Box) -> None:
    box.configure(["/no/such/agent", "acp"])
    status, found = box.find()
    assert (status, found["it: program"][0]) == (1, "fail")
    assert "/no/such/agent" in found["it: program"][1]


def test_a_login_that_is_missing_is_told_with_the_command(box: Box) -> None:
    box.configure(scripted("auth_refused"), dialect="cursor", auth_method="cursor_login")
    status, found = box.find()
    assert (status, found["it: handshake"][0], found["it: login"][0]) == (1, "ok", "fail")
    assert "`cursor-agent login`" in (found["it: login"][2] or "")
    assert "loginDeepControl" not in str(found)


def test_a_key_that_is_refused_is_told_with_what_it_may_be(box: Box) -> None:
    """zed-industries/zed#57035: a wrong key and a dead proxy look the same."""
    box.configure(scripted("always_failing"), dialect="cursor")
    _, found = box.find()
    verdict, detail, mend = found["it: login"]
    assert (verdict, "[unauthenticated] Error" in detail) == ("fail", True)
    assert "CURSOR_API_KEY" in (mend or "") and "proxy" in (mend or "")


@pytest.mark.parametrize(
    ("case", "words", "mend"),
    [
        ("never_answers", "waiting for a keychain (agent-timeout)", "wait for a person"),
        ("exits_early", "schema error in .cursor/cli.json (agent-exited)", "no ACP agent"),
        ("version_two", "version 2", "Another version"),
    ],
)
def test_a_handshake_that_fails_is_told_with_the_agents_words(
    box: Box, case: str, words: str, mend: str
) -> None:
    box.configure(scripted(case), initialize_s=4.0 if case == "never_answers" else 20.0)
    status, found = box.find()
    verdict, detail, told = found["it: handshake"]
    assert (status, verdict) == (1, "fail")
    assert words in detail
    assert mend in (told or "") and "scripted.py" in (told or "")


def test_a_session_that_cannot_be_made_is_told_apart_from_the_handshake(box: Box) -> None:
    box.configure(scripted("new_dies"))
    _, found = box.find()
    assert (found["it: handshake"][0], found["it: session"][0]) == ("ok", "fail")
    assert "no such project" in found["it: session"][1]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("nonsense = 1", "nonsense: there is no such setting"),
        ("nonsense = ", "cannot be read"),
        ('default_agent = "it"', "There is no agent 'it' in the configuration; there are cursor."),
    ],
)
def test_a_configuration_that_does_not_fit_is_told_in_words(
    box: Box, config: str, words: str
) -> None:
    box.config.write_text(config)
    status, found = box.find()
    assert (status, list(found)) == (1, ["configuration"])
    assert words in found["configuration"][1]


def test_two_doctors_at_once_leave_each_others_agents_alone(box: Box) -> None:
    """What carries the tag of a run that is over is ended; a doctor's is no other doctor's."""
    notes = box.folder / "tags"
    script = f"echo $CURSOR_BRIDGE_RUN >> {notes}; exec {shlex.join(demo())}"
    box.configure(["/bin/sh", "-c", script])
    for folder in ("one", "two"):
        box.state = box.folder / folder
        assert box.find()[0] == 0
    one, two = (line.split(".")[0] for line in notes.read_text().splitlines())
    assert one and two and one != two


def test_a_folder_that_is_missing_is_told(box: Box) -> None:
    box.configure(demo())
    text = box.config.read_text().replace(str(box.folder), f"{box.folder}/gone", 1)
    box.config.write_text(text)
    status, found = box.find()
    assert (status, found["root"][0]) == (1, "fail")


def test_agents_are_left_alone_while_a_bridge_runs(box: Box) -> None:
    box.configure([sys.executable, "-c", "raise SystemExit('started')"])
    state = StateDir(box.state)
    try:
        status, found = box.find()
        text = box.run()[1]
    finally:
        state.close()
    assert (status, found["state folder"][0]) == (0, "warn")
    assert not [what for what in found if what.startswith("it")]
    assert text.endswith("No agent was started, since a bridge is running.\n")
