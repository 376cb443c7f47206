"""Locating Cursor's command line agent and asking its version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.runtime.find import Found, cursor_argv, find_cursor, probe_version

VERSION = "2026.10.22-1a2b3c4"


class Box:
    """A home folder and a folder on PATH, with scripts in them."""

    def __init__(self, root: Path) -> None:
        self.on_path = root / "bin"
        self.local = root / "home/.local/bin"
        self.on_path.mkdir()
        self.local.mkdir(parents=True)
        self.env = {"PATH": f"{self.on_path}:{os.defpath}", "HOME": str(root / "home"), "KEY": "k"}

    def install(self, folder: Path, name: str, says: str = VERSION) -> str:
        return self.script(folder / name, f'[ "$*" = --version ] && echo "{says}"')

    def script(self, path: Path, body: str) -> str:
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_cursor_agent_comes_before_agent_and_path_before_the_home_folder(box: Box) -> None:
    found: list[Found | None] = [find_cursor(env=box.env)]
    expected: list[Found | None] = [None]
    for folder, name in (
        (box.local, "agent"),
        (box.local, "cursor-agent"),
        (box.on_path, "agent"),
        (box.on_path, "cursor-agent"),
    ):
        expected.append(Found(box.install(folder, name), VERSION))
        found.append(find_cursor(env=box.env))
    assert found == expected


def test_another_tool_called_agent_is_passed_over(box: Box) -> None:
    box.install(box.on_path, "agent", says="agent 1.2.3")
    assert find_cursor(env=box.env) is None
    path = box.install(box.local, "agent")
    assert find_cursor(env=box.env) == Found(path, VERSION)


def test_cursor_agent_is_taken_though_its_version_is_strange(box: Box) -> None:
    path = box.install(box.on_path, "cursor-agent", says="next")
    assert find_cursor(env=box.env) == Found(path, None)


def test_a_configured_path_is_taken_or_nothing(box: Box) -> None:
    box.install(box.on_path, "cursor-agent")
    path = box.install(box.local, "mine", says="mine 1")
    assert find_cursor(path, box.env) == Found(path, None)
    assert find_cursor(path + "-gone", box.env) is None


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (VERSION, VERSION),
        ("2026.10.22-13-05-59-1a2b3c4", "2026.10.22-13-05-59-1a2b3c4"),
        ("v2026.10.22-1a2b3c4", None),
        ("2026.10.22", None),
        ("", None),
        ("2026.10.22-1a2b3c4\nand more", None),
    ],
)
def test_only_versions_of_the_known_shape_count(box: Box, says: str, expected: str | None) -> None:
    assert probe_version(box.install(box.on_path, "a", says), box.env) == expected


def test_a_probe_that_never_answers_ends_with_all_it_started(box: Box) -> None:
    path = box.script(box.on_path / "agent", "yes & sleep 600")
    assert probe_version(path, box.env) is None


def test_a_probe_sees_the_listed_environment_alone(box: Box) -> None:
    path = box.script(box.on_path / "a", f'[ -z "$KEY$CURSOR_BRIDGE_RUN" ] && echo {VERSION}')
    assert probe_version(path, box.env | {"CURSOR_BRIDGE_RUN": "x"}) == VERSION


def test_what_cannot_be_run_has_no_version(tmp_path: Path) -> None:
    assert (probe_version(str(tmp_path)), probe_version("/no\0where")) == (None, None)


def test_flags_stand_before_acp() -> None:
    assert cursor_argv("/bin/c") == ("/bin/c", "acp")
    assert cursor_argv("/bin/c", ("--model", "auto"), "https://e", True) == (
        *("/bin/c", "--model", "auto", "-e", "https://e", "-k", "acp"),
    )
