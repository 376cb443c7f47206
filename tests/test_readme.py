"""What the README shows works as it stands there, and what the pages link to exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import anyio.to_thread
import click
import pytest

from bridge.cli.main import main
from tests.e2e.harness import TOKEN, Subprocess

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.anyio
async def test_the_curl_session_of_the_readme_works(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    async with Subprocess(tmp_path, 'default_agent = "demo"\n', env=home) as bridge:
        await bridge.start()

        refused = await anyio.to_thread.run_sync(pasted, f"{bridge.url}/", "no token of anybody's")
        done = await anyio.to_thread.run_sync(pasted, f"{bridge.url}/", TOKEN)
    assert refused.returncode != 0 and '"unauthorized"' in refused.stderr
    assert "Traceback" not in refused.stderr
    assert done.returncode == 0, done.stderr
    assert "\nThe agent said: " in done.stdout
    events = [json.loads(data) for data in re.findall(r"^data: (.*)$", done.stdout, re.MULTILINE)]
    types = [event["type"] for event in events]
    asked = types.index("session/request_permission")
    resolved = types.index("bridge/request_resolved")
    ended = types.index("bridge/turn_ended")
    assert asked < resolved < ended < types.index("bridge/session_deleted")
    assert events[resolved]["params"]["request"]["resolution"]["by"] == "caller"
    assert events[ended]["params"]["turn"]["outcome"] == "ok"


def pasted(url: str, token: str) -> subprocess.CompletedProcess[str]:
    """The README's session, with what one puts into its variables."""
    (script,) = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    return subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "URL": url, "TOKEN": token},
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )


def test_everything_the_pages_link_to_exists() -> None:
    missing = [
        f"{page.name}: {link}"
        for page in PAGES
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
        if not (page.parent / link).exists()
    ]
    assert not missing


def test_the_scripts_that_the_readme_names_can_be_run() -> None:
    named = set(re.findall(r"\./(scripts/\w+)", README))
    assert {"scripts/run", "scripts/test"} <= named
    assert not [name for name in named if not os.access(ROOT / name, os.X_OK)]


def test_the_commands_that_the_pages_show_are_there_with_their_options() -> None:
    pages = "\n".join(page.read_text("utf-8") for page in PAGES)
    shown = re.findall(r"cursor-bridge ((?:serve|doctor|token|openapi)[^`\n#)]*)", pages)
    assert len(shown) > 8
    for words in (shlex.split(each.rstrip("\\")) for each in shown):
        command: click.Command = main
        while words and isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        known = {name for each in command.params for name in each.opts}
        assert {word for word in words if word.startswith("--")} <= known, command.name
