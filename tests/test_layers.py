"""The layers of docs/architecture.md, held by reading every import of every module."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 400

LAYERS = (
    ("errors", "ids", "clock", "redact", "principal"),
    ("config",),
    ("protocol",),
    ("log",),
    ("runtime",),
    ("tokens",),
    ("exposure", "audit", "logs", "state"),
    ("api",),
    ("app",),
    ("cli",),
)
"""From below. A module may import from its own layer and from lower ones; the demo is outside."""

BESIDES: dict[str, frozenset[str]] = {
    "protocol": frozenset({"msgspec"}),
    "log": frozenset({"anyio", "msgspec"}),
    "runtime": frozenset({"anyio", "pydantic"}),
    "demo": frozenset(),
}
"""What these may import beside the standard library and the bridge."""

DATA_ONLY = frozenset(
    "__future__ bisect codecs collections dataclasses enum functools itertools json math msgspec "
    "operator posixpath re string struct types typing unicodedata".split()
)
"""What code may import that has no time, no files, no tasks and no network."""


@dataclass(frozen=True, slots=True)
class Module:
    """``name`` is dotted, without the leading ``bridge.``; ``imports`` are dotted names."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    imports: tuple[str, ...]

    @property
    def part(self) -> str:
        """The module or folder directly below ``bridge/`` that it belongs to."""
        return self.name.split(".")[0]

    @property
    def foreign(self) -> set[str]:
        """Top-level packages it imports that are neither the bridge nor the standard library."""
        return {each.split(".")[0] for each in self.imports} - {"bridge"} - sys.stdlib_module_names

    @property
    def own(self) -> set[str]:
        """What it imports of the bridge, without the leading ``bridge.``."""
        return {each.removeprefix("bridge.") for each in self.imports if each.startswith("bridge.")}


def read(path: Path) -> Module:
    """A module with all it imports, wherever in it that stands, but for type checking."""
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found: list[str] = []
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found += [f"{module}.{alias.name}" for alias in node.names]
    name = ".".join(path.relative_to(ROOT / "bridge").with_suffix("").parts)
    return Module(name, path, text, tree, tuple(found))


@cache
def modules() -> list[Module]:
    """All of the bridge, read when it is first asked for: collecting tests needs none of it."""
    return [read(path) for path in sorted((ROOT / "bridge").rglob("*.py"))]


def code() -> list[Module]:
    """The modules that hold anything."""
    return [each for each in modules() if each.path.name != "__init__.py"]


def rank(part: str) -> int | None:
    """The layer of what is directly below ``bridge/``; ``None`` for the demo."""
    return next((number for number, parts in enumerate(LAYERS) if part in parts), None)


def test_every_module_has_a_layer() -> None:
    parts = {each.part for each in code()}
    assert parts - {part for parts in LAYERS for part in parts} <= {"demo", "acp"}


def test_modules_import_only_what_lies_below_them() -> None:
    upward = []
    for module in code():
        own = rank(module.part)
        for imported in module.own:
            part = imported.split(".")[0]
            other = rank(part)
            if module.part == "demo":
                fits = part == "demo"
            elif other is None:
                fits = module.part == "cli"
            else:
                fits = own is None or other <= own
            if not fits:
                upward.append(f"{module.name} imports {imported}")
    assert not upward


def test_each_layer_keeps_to_its_packages() -> None:
    strangers = [
        f"{module.name} imports {name}"
        for module in code()
        if module.part in BESIDES
        for name in module.foreign - BESIDES[module.part]
    ]
    assert not strangers


def test_the_protocol_has_no_time_no_files_no_tasks_and_no_network() -> None:
    impure = [
        f"{module.name} imports {name}"
        for module in code()
        if module.part == "protocol"
        for name in {each.split(".")[0] for each in module.imports} - DATA_ONLY - {"bridge"}
    ]
    assert not impure


def test_the_log_knows_nothing_of_acp() -> None:
    knowing = [each.name for each in code() if each.part == "log" and "protocol" in str(each.own)]
    assert not knowing


def test_the_http_surface_knows_no_processes() -> None:
    inner = ("runtime.process", "runtime.spawn", "runtime.link", "runtime.session", "runtime.pool")
    knowing = [
        f"{module.name} imports {name}"
        for module in code()
        if module.part == "api"
        for name in module.own
        if name.startswith(inner)
    ]
    assert not knowing


def test_one_module_imports_sse_starlette() -> None:
    # It patches uvicorn on import and logs every chunk: one module tames it.
    assert [each.name for each in code() if "sse_starlette" in each.foreign] == ["api.stream"]


def test_imports_are_absolute() -> None:
    assert not [each.name for each in modules() for name in each.imports if name.startswith(".")]


def test_packages_re_export_nothing() -> None:
    assert not [each.name for each in modules() if each not in code() and each.text.strip()]


def test_every_module_opens_with_its_contract() -> None:
    assert not [each.name for each in code() if not ast.get_docstring(each.tree)]


def test_modules_stay_small() -> None:
    sizes = {each.name: len(each.text.splitlines()) for each in modules()}
    assert not {name: size for name, size in sizes.items() if size > MAX_LINES}


def test_the_page_on_the_architecture_names_only_what_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    known = {each.name for each in code()} | {each.part for each in code()}
    named = re.findall(r"`((?:protocol|log|runtime|api|cli|demo)/[a-z_]+)\b", page)
    assert len(named) > 50
    assert {each.replace("/", ".") for each in named} <= known


def test_the_page_on_the_architecture_names_every_module_of_the_layers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    missing = [
        each.name
        for each in code()
        if "." in each.name
        and each.part not in ("demo", "cli")
        and f"`{each.name.replace('.', '/')}`" not in page
    ]
    assert not missing
