"""The pages say what is so: every test they name exists, every setting is documented."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from bridge.config import Settings

ROOT = Path(__file__).resolve().parents[1]
TESTS = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


def test_every_page_is_reached_from_the_readme_and_no_link_is_dead() -> None:
    reached, left = set[Path](), [ROOT / "README.md"]
    while left:
        page = left.pop()
        reached.add(page)
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
            if link.startswith(("http://", "https://")):
                continue
            target = (page.parent / link).resolve()
            assert target.exists(), (page, link)
            if target.suffix == ".md" and target not in reached:
                left.append(target)
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")}
    assert pages - reached == set()


def test_every_test_that_the_page_on_cursor_names_exists() -> None:
    page = (ROOT / "docs" / "cursor.md").read_text("utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    assert named
    assert not {name for name in named if f"def {name}(" not in TESTS}
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", page))
    assert not {name for name in files if not (ROOT / name).exists()}


def test_every_quirk_that_is_tested_is_on_the_page() -> None:
    page = (ROOT / "docs" / "cursor.md").read_text("utf-8")
    folder = ROOT / "tests" / "e2e"
    modules = [*folder.glob("test_cursor_*.py"), *folder.glob("test_agents_*.py")]
    tests = [name for each in modules for name in re.findall(r"def (test_\w+)\(", each.read_text())]
    assert len(tests) > 100
    assert [name for name in tests if f"`{name}`" not in page] == []


def test_every_test_of_a_quirk_says_where_its_fact_comes_from() -> None:
    folder = ROOT / "tests" / "e2e"
    for path in [*folder.glob("test_cursor_*.py"), *folder.glob("test_agents_*.py")]:
        tests = [
            node
            for node in ast.parse(path.read_text("utf-8")).body
            if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_")
        ]
        assert [each.name for each in tests if not ast.get_docstring(each)] == []


def names_of(model: type[BaseModel], prefix: str = "") -> set[str]:
    """The dotted names of all settings; ``*`` stands for a name of the operator's."""
    names: set[str] = set()
    for name, field in model.model_fields.items():
        inner: Any = field.annotation
        arguments = [each for each in get_args(inner) if isinstance(each, type)]
        models = [each for each in [inner, *arguments] if _is_model(each)]
        if not models:
            names.add(prefix + name)
        elif inner is models[0]:
            names |= names_of(models[0], f"{prefix}{name}.")
        else:
            names |= names_of(models[0], f"{prefix}{name}.*.")
    return names


def _is_model(each: Any) -> bool:
    return isinstance(each, type) and issubclass(each, BaseModel)


def test_every_setting_is_documented_and_no_other() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    documented = set(re.findall(r"^\| `([\w.*]+)` \|", page, re.MULTILINE))
    assert documented == names_of(Settings)


NO_BOUNDS = {
    "server.host",
    "server.port",
    "server.allowed_hosts",
    "server.cors_origins",
    "server.trusted_proxies",
    "storage.state_dir",
}
"""Settings beside the bounds that bound nothing."""


def test_every_bound_of_the_configuration_has_a_row_and_every_row_its_tests() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    table = page.partition("| what | bound | filled by |")[2].partition("\n\n")[0]
    rows = [row.strip("|").split(" | ") for row in table.strip().splitlines()[1:]]
    bounds = {name for _, bound, _ in rows for name in re.findall(r"`(\w+\.[\w.*]+)`", bound)}
    settings = {
        name for name in names_of(Settings) if name.startswith(("limits.", "server.", "storage."))
    }
    assert settings - NO_BOUNDS <= bounds
    assert bounds <= names_of(Settings)
    for what, _, tests in rows:
        named = re.findall(r"`(test_\w+)`", tests)
        assert named, what
        assert not {name for name in named if f"def {name}(" not in TESTS}, what


def test_the_changelog_names_the_version_that_is_built() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    version = re.search(r'^version = "([^"]+)"', project, re.MULTILINE)
    assert version is not None
    newest = re.search(
        r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert newest is not None
    assert newest[1] == version[1]
