"""What the stand-in for a hosted LLM does, whatever API it is asked by.

It depends on the last thing the user said:

    PLEASE-RUN command     call the agent's shell tool with the rest of the line
    PLEASE-WRITE path      call its tool for writing files, or its shell if it has no such tool
    PLEASE-COUNT n ms      n numbered pieces of text, ms apart, for cancelling
    PLEASE-BIG kib         one piece of text of that size
    PLEASE-FAIL status     an HTTP error instead of an answer

Anything else, and whatever follows the result of a tool, gets a short text in pieces. Knows nothing
of HTTP. Standard library only.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

ANSWER = ("This is ", "the stand-in ", "speaking.")
AFTER_TOOL = ("The tool ", "has run.")
WRITTEN = "written by the stand-in\n"

WORDS = re.compile(r"PLEASE-(RUN|WRITE|COUNT|BIG|FAIL)\s+([^\n<]*)")
_SHELLS = re.compile(r"(?:^|_|\b)(?:shell|bash|exec|terminal|run_shell)", re.IGNORECASE)
_WRITERS = re.compile(r"(?:write|write_?file|create_?file)$", re.IGNORECASE)
_PATHS = ("path", "file_path", "filePath", "filename")
_CONTENTS = ("content", "contents", "text")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, whatever its API: the last user text, the tools, whether a tool answered last."""

    text: str
    tools: dict[str, Json]
    is_after_tool: bool
    is_stream: bool = True
    form: Json | None = None
    """The schema of a structured answer that is asked for instead of text."""


@dataclass(frozen=True, slots=True)
class Say:
    """Text in pieces, so many seconds apart."""

    pieces: tuple[str, ...]
    gap_s: float = 0.0

    def __iter__(self) -> Iterator[str]:
        for piece in self.pieces:
            time.sleep(self.gap_s)
            yield piece


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call."""

    name: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class Refuse:
    """An HTTP status instead of an answer."""

    status: int


def decide(asked: Asked) -> Say | Call | Refuse:
    """What the model does."""
    if asked.form is not None:
        return Say((json.dumps(_filled(asked.form)),))
    if asked.is_after_tool:
        return Say(AFTER_TOOL)
    found = WORDS.search(asked.text)
    if found is None:
        return Say(ANSWER)
    return _DEEDS[found[1]](asked, found[2].strip())


def _count(_: Asked, rest: str) -> Say:
    count, gap_ms = (int(each) for each in re.findall(r"\d+", rest)[:2])
    return Say(tuple(f"number {i} " for i in range(count)), gap_ms / 1000)


def _text_of(size: int) -> str:
    """Text of that many characters; numbered, as some agents end a turn that repeats itself."""
    return "".join(f"line {i:07d}\n" for i in range(size // 13 + 1))[:size]


def _run(asked: Asked, command: str) -> Say | Call:
    for name, schema in asked.tools.items():
        if _SHELLS.search(name):
            return Call(name, _arguments(schema, _shell_values(schema, command)))
    return Say((f"I have no shell among {sorted(asked.tools)}.",))


def _write(asked: Asked, path: str) -> Say | Call:
    for name, schema in asked.tools.items():
        if _WRITERS.match(name):
            values = dict.fromkeys(_PATHS, path) | dict.fromkeys(_CONTENTS, WRITTEN)
            return Call(name, _arguments(schema, values))
    return _run(asked, f"echo {shlex.quote(WRITTEN.strip())} > {shlex.quote(path)}")


_DEEDS: Mapping[str, Callable[[Asked, str], Say | Call | Refuse]] = {
    "RUN": _run,
    "WRITE": _write,
    "COUNT": _count,
    "BIG": lambda _, rest: Say((_text_of(1024 * int(rest)),)),
    "FAIL": lambda _, rest: Refuse(int(rest)),
}


def _filled(form: Json) -> Any:
    """Some value that fits a schema."""
    if form.get("enum"):
        return form["enum"][0]
    match str(form.get("type", "string")).lower():
        case "object":
            return {name: _filled(each) for name, each in form.get("properties", {}).items()}
        case "array":
            return []
        case "integer" | "number":
            return 1
        case "boolean":
            return False
        case _:
            return "a test"


def _kind(schema: Json) -> str:
    """The type of a property; some agents allow null beside it."""
    kind = schema.get("type") or "string"
    if isinstance(kind, list):
        return next((str(each) for each in kind if each != "null"), "string")
    return str(kind).lower()


def _shell_values(schema: Json, command: str) -> Json:
    """The command under each name that shell tools have for it, as text or as words."""
    properties = schema.get("properties") or {}
    return {
        name: ["bash", "-lc", command] if _kind(properties.get(name, {})) == "array" else command
        for name in ("command", "cmd", "script")
    }


def _arguments(schema: Json, values: Json) -> Json:
    """What a tool's schema asks for: the values it has names for, and its required rest."""
    fillers = {"integer": 1000, "number": 1000, "boolean": False}
    given: Json = {}
    for name, each in (schema.get("properties") or {}).items():
        if name in values:
            given[name] = values[name]
        elif name in (schema.get("required") or []):
            given[name] = fillers.get(_kind(each), "a test")
    return given
