"""The security page names tests: each has to exist, and each attack has to have one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def names_of_tests() -> set[str]:
    """The names of all test functions."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found.update(re.findall(r"^(?:async )?def (test_\w+)", path.read_text("utf-8"), re.M))
    return found


def test_every_test_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text("utf-8")))
    assert len(named) > 40
    assert named - names_of_tests() == set()


def test_every_attack_has_a_named_test_on_the_page() -> None:
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (S\d+) \|(.*)$", page, re.M))
    assert list(rows) == [f"S{number}" for number in range(1, 23)]
    for name, row in rows.items():
        assert f"_{name.lower()}_" in row, name


def test_every_page_the_pages_link_to_exists() -> None:
    for page in (ROOT / "SECURITY.md", ROOT / "docs/deploying.md", ROOT / "docs/tokens.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), (page.name, link)
