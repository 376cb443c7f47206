"""The demo agent stands alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import bridge.demo.agent

FOLDER = Path(bridge.demo.agent.__file__).parent


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield node.module or ""


def test_it_imports_the_standard_library_and_itself_only() -> None:
    for path in FOLDER.glob("*.py"):
        for name in imported(path):
            is_own = name == "bridge.demo" or name.startswith("bridge.demo.")
            assert is_own or name.split(".")[0] in sys.stdlib_module_names, f"{path.name}: {name}"
