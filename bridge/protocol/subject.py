"""One request as permission rules see it, and how many steps looking at it may take.

A path counts by where it leads; a request with a path that cannot be judged has none. Resolving
and matching are counted, so that no request and no rules keep the loop from everybody else.

Knows no rule but its members, no file system and no time.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from bridge.protocol.globs import Glob, path_glob, text_glob
from bridge.protocol.held import HeldRequest, wire_method

_MAX_PATH = 4096
_MAX_STEPS = 30_000
"""Steps of one decision: some 10 ms on a slow machine, during which nobody else is served."""
_STEPS_OF_A_FOLDER = 16
"""What resolving costs for each segment of a path, beside matching a character."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class Match(Protocol):
    """What a rule speaks of; what is ``None`` is not looked at."""

    @property
    def kind(self) -> str | None:
        """The tool's kind."""

    @property
    def path(self) -> str | None:
        """A glob."""

    @property
    def title(self) -> str | None:
        """A pattern."""

    @property
    def method(self) -> str | None:
        """A method, or the beginning of one and a ``*``."""


class TooManySteps(Exception):
    """A decision costs more than it may."""


class Steps:
    """Counts the steps of decisions; each may take so many. For whoever makes several in a row."""

    def __init__(self) -> None:
        self.taken = 0
        self._limit = 0

    @property
    def are_many(self) -> bool:
        """Whether it is time to let others have their turn."""
        return self.taken >= _MAX_STEPS

    def begin(self) -> None:
        """The next decision."""
        self._limit = self.taken + _MAX_STEPS

    def take(self, count: int) -> None:
        """So many more."""
        self.taken += count
        if self.taken > self._limit:
            raise TooManySteps


class Subject:
    """What the rules look at in one request; paths are resolved once, and only if asked for."""

    def __init__(
        self,
        request: HeldRequest,
        tools: Iterable[object],
        cwd: str,
        resolve: Callable[[str], str],
        steps: Steps,
    ) -> None:
        self._is_permission = request.kind == "permission"
        self._method = wire_method(request.method)
        self._tools = [tool for tool in tools if isinstance(tool, dict)]
        self._cwd = cwd
        self._resolve = resolve
        self._steps = steps
        self._resolved: list[str] | None = None

    def fits(self, rule: Match, *, is_allowing: bool) -> bool:
        self._steps.take(1)
        return (
            self._fits_method(rule.method)
            and (rule.kind is None or self._fits_kind(rule.kind, is_allowing))
            and (rule.title is None or self._fits_title(rule.title))
            and (rule.path is None or self._fits_path(rule.path))
        )

    def _fits_method(self, pattern: str | None) -> bool:
        if pattern is None:
            return self._is_permission
        name = wire_method(pattern)
        if name.endswith("*"):
            return self._method.startswith(name[:-1])
        return self._method == name

    def _fits_kind(self, kind: str, is_allowing: bool) -> bool:
        """A tool that was told as two kinds is neither where that would allow it."""
        kinds = {tool["kind"] for tool in self._tools if isinstance(tool.get("kind"), str)}
        return kinds == {kind} if is_allowing else kind in kinds

    def _fits_title(self, pattern: str) -> bool:
        title = self._told("title")
        if title is None:
            return False
        self._steps.take(len(pattern) + len(title))
        return text_glob(pattern).matches(title)

    def _fits_path(self, pattern: str) -> bool:
        if self._resolved is None:
            self._resolved = self._where_it_leads()
        base, below = _absolute_pattern(pattern, self._cwd)
        literal = base + below.split("*", 1)[0]
        if not self._resolved or not self._all_begin_with(literal):
            return False
        self._steps.take(len(below))
        glob = path_glob(below)
        return all(self._is_under(base, glob, path) for path in self._resolved)

    def _all_begin_with(self, literal: str) -> bool:
        self._steps.take(len(self._resolved or ()))
        return all(path.startswith(literal) for path in self._resolved or ())

    def _is_under(self, base: str, glob: Glob, path: str) -> bool:
        self._steps.take(len(path) - len(base))
        return glob.matches(path[len(base) :])

    def _told(self, name: str) -> str | None:
        """The request's own word, else what the tool call said before."""
        values = [tool.get(name) for tool in self._tools]
        return next((value for value in values if isinstance(value, str)), None)

    def _where_it_leads(self) -> list[str]:
        """All paths of the request, resolved; none if a single one cannot be judged."""
        found: list[str] = []
        for path in dict.fromkeys(p for tool in self._tools for p in self._paths(tool)):
            if not _is_plain(path):
                return []
            self._steps.take(_STEPS_OF_A_FOLDER * (1 + path.count("/")))
            try:
                found.append(self._resolve(posixpath.join(self._cwd, path)))
            except (OSError, ValueError):
                return []
        return found

    def _paths(self, tool: dict[str, Any]) -> Iterator[str]:
        for path in _paths(tool):
            self._steps.take(1)
            yield path


def _is_plain(path: str) -> bool:
    """Whether it is a path and nothing that the agent might read otherwise (``~``, a URL)."""
    return 0 < len(path) <= _MAX_PATH and not path.startswith("~") and not _URL.match(path)


def _paths(tool: dict[str, Any]) -> Iterator[str]:
    """The paths of a tool call; an entry that has none it should have yields ``""``."""
    locations, content = tool.get("locations"), tool.get("content")
    for location in locations if isinstance(locations, list) else []:
        yield _path_of(location)
    for piece in content if isinstance(content, list) else []:
        if isinstance(piece, dict) and piece.get("type") == "diff":
            yield _path_of(piece)


def _path_of(holder: object) -> str:
    path = holder.get("path") if isinstance(holder, dict) else None
    return path if isinstance(path, str) else ""


def _absolute_pattern(pattern: str, cwd: str) -> tuple[str, str]:
    """``(literal folder, pattern below it)``: a ``*`` in the folder's own name is no wildcard."""
    base = "" if pattern.startswith("/") else cwd.rstrip("/")
    segments = [segment for segment in pattern.split("/") if segment not in ("", ".")]
    return base, "/" + "/".join(segments)
