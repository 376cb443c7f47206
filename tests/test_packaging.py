"""What is built is the bridge and nothing else; releases, dependencies, decisions are on pages."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, built without the network."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=50,
    )
    return folder


def test_the_wheel_holds_the_package_and_its_licence_alone(built: Path) -> None:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
    about = f"cursor_acp_bridge-{PROJECT['version']}.dist-info"
    assert {name.split("/")[0] for name in names} == {"bridge", about}
    assert f"{about}/licenses/LICENSE" in names
    modules = {str(each.relative_to(ROOT)) for each in (ROOT / "bridge").rglob("*.py")}
    assert modules == {name for name in names if name.endswith(".py")}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_the_wheel_says_which_python_it_needs_and_brings_the_command(built: Path) -> None:
    (path,) = built.glob("*.whl")
    about = f"cursor_acp_bridge-{PROJECT['version']}.dist-info"
    with zipfile.ZipFile(path) as wheel:
        metadata = wheel.read(f"{about}/METADATA").decode()
        commands = wheel.read(f"{about}/entry_points.txt").decode()
    assert f"\nRequires-Python: {PROJECT['requires-python']}\n" in metadata
    assert "\nLicense-Expression: MIT\n" in metadata
    assert "cursor-bridge = bridge.cli.main:main" in commands


def test_the_source_distribution_can_be_built_again_from_itself(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "bridge/app.py"} <= names
    assert not [name for name in names if name.startswith(("tests/", ".agents/", ".venv/"))]


def test_the_changelog_dates_every_release_but_the_newest() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    heads = re.findall(r"^## \[([^\]]+)\] - (.+)$", text, re.MULTILINE)
    assert heads[0][0] == PROJECT["version"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for _, date in heads[1:])
    assert re.fullmatch(r"unreleased|\d{4}-\d\d-\d\d", heads[0][1])


def test_every_dependency_has_its_reason_on_a_page() -> None:
    page = (ROOT / "docs" / "decisions" / "0012-dependencies.md").read_text("utf-8")
    explained = set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE))
    needed = {re.split(r"[<>=;\[ ]", each)[0] for each in PROJECT["dependencies"]}
    assert explained == needed


def test_every_decision_is_in_the_list_of_decisions() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text("utf-8"))
    assert listed == sorted(path.name for path in folder.glob("[0-9]*.md"))
    for number, name in enumerate(listed, 1):
        text = (folder / name).read_text("utf-8")
        assert name.startswith(f"{number:04d}-")
        assert text.startswith(f"# {number}. ")
        assert "\nStatus: " in text
