"""The judge of a run's logs finds what was planted, and a whole run fails by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import canaries

ROOT = Path(__file__).resolve().parents[1]
SECRET = canaries.secret("planted")
TOKEN = "cab_" + "a1B2" * 10
CONFTEST = """
from tests.run_log import RunLog

def pytest_configure(config):
    config.pluginmanager.register(RunLog())
"""


def line(message: str, level: str = "debug") -> str:
    return (
        json.dumps({"time": "t", "level": level, "logger": "bridge.x", "message": message}) + "\n"
    )


def test_a_secret_is_found_at_every_level_and_where_it_is_glued_to_something(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bridge-1.log"
    told = [f"x={SECRET}&y", f"Traceback {TOKEN}", "https://x/loginDeepControl?a"]
    path.write_text(line("fine") + line(told[0]) + told[1] + "\n" + line(told[2], "error"))
    found = list(canaries.leaks(tmp_path))
    assert [(leak.path, leak.line) for leak in found] == [(path, 2), (path, 3), (path, 4)]
    assert str(found[0]) == f"{path}:2: {SECRET}"
    assert [leak.found for leak in found[1:]] == [TOKEN, "loginDeepControl"]


def test_a_text_is_found_above_debug_level_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(canaries.FOLDER, str(tmp_path))
    text = 'a text of "somebody"\n\u2028 that goes on' + "x" * 200
    canaries.said(text, "short", None, text)
    log = tmp_path / "bridge-1.log"
    log.write_text(line(f"said {text}"))
    assert list(canaries.leaks(tmp_path)) == []
    log.write_text(line(f"said {text}", "info") + line("short", "info"))
    assert [leak.line for leak in canaries.leaks(tmp_path)] == [1]


def run(folder: Path, body: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(body)
    base = {name: value for name, value in os.environ.items() if name != canaries.FOLDER}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:schemathesis",
            ),
            *("-c", os.devnull, "--rootdir", str(folder), *options, str(folder)),
        ],
        env={**base, "PYTHONPATH": path, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "with workers"])
def test_a_run_whose_tests_all_pass_fails_by_what_was_logged(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    body = (
        "import logging\n\n"
        f"def test_it():\n    logging.getLogger('bridge.x').debug('%s', '{SECRET}')\n"
    )
    done = run(tmp_path, body, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed" in done.stdout and f".log:1: {SECRET}" in done.stdout
    clean = run(tmp_path, body.replace(SECRET, "nothing"), *options)
    assert clean.returncode == 0, clean.stdout
    # The logs of the first run are kept, those of the second are not.
    assert len(list(tmp_path.glob("bridge-run-*"))) == 1
