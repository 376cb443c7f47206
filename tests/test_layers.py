"""The layers of docs/architecture.md, held by reading every import."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "bridge"
MODULES = sorted(PACKAGE.rglob("*.py"))

LAYERS = {
    "bridge.errors": 0,
    "bridge.ids": 0,
    "bridge.clock": 0,
    "bridge.redact": 0,
    "bridge.principal": 0,
    "bridge.config": 1,
    "bridge.protocol": 2,
    "bridge.log": 3,
    "bridge.runtime": 4,
    "bridge.tokens": 5,
    "bridge.exposure": 5,
    "bridge.audit": 5,
    "bridge.logs": 5,
    "bridge.state": 6,
    "bridge.api": 6,
    "bridge.app": 7,
    "bridge.cli": 8,
}
"""A module may import from its own layer and from lower ones."""

MAX_LINES = 400
_STANDARD = sys.stdlib_module_names


def name_of(path: Path) -> str:
    """The dotted name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(name: str) -> int | None:
    """The layer of a module of ours; ``None`` for the demo, which is outside of them."""
    found = [key for key in LAYERS if name == key or name.startswith(key + ".")]
    return LAYERS[max(found, key=len)] if found else None


def imports_of(path: Path) -> list[str]:
    """All that a module imports, wherever it stands, but for type checking."""
    found: list[str] = []
    tree = ast.parse(path.read_text("utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            module = node.module or ""
            found += [f"{module}.{alias.name}" for alias in node.names]
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    name = name_of(path)
    own = layer_of(name)
    upward = []
    for imported in imports_of(path):
        if not imported.startswith("bridge."):
            continue
        other = layer_of(imported)
        if own is None:
            if not imported.startswith("bridge.demo"):
                upward.append(imported)
        elif other is None:
            if not (name.startswith("bridge.cli") and imported.startswith("bridge.demo")):
                upward.append(imported)
        elif other > own:
            upward.append(imported)
    assert not upward


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_each_layer_keeps_to_its_packages(path: Path) -> None:
    name = name_of(path)
    foreign = {each.split(".")[0] for each in imports_of(path)} - _STANDARD - {"bridge"}
    if name.startswith("bridge.protocol"):
        assert foreign <= {"msgspec"}
    if name.startswith("bridge.demo"):
        assert not foreign
    if name.startswith(("bridge.log", "bridge.runtime")):
        assert not foreign & {"starlette", "uvicorn", "sse_starlette", "h11"}
    if name != "bridge.api.stream":
        assert "sse_starlette" not in foreign


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_owns_and_stays_small(path: Path) -> None:
    text = path.read_text("utf-8")
    if path.name == "__init__.py":
        assert not text.strip()
        return
    assert ast.get_docstring(ast.parse(text))
    assert len(text.splitlines()) <= MAX_LINES
