"""Permission rules: which requests are decided without asking a person, and what a limit does.

A caller (or the configuration) gives them; the first rule that matches and can be carried out
decides, and where none does a person is asked. Rules:

* nothing here allows unless a rule, or the time limit's own reply, says so in as many words;
* a path rule speaks of *every* path in the request's locations and diffs, each judged by where
  it leads; what cannot be judged does not match;
* titles are the agent's words and never a reason to allow;
* what is no permission can only be cancelled or asked;
* a decision takes so many steps and no more: beyond them a person is asked.

Knows no file system and no time: resolving a path, and noticing that a limit has passed, are
the caller's part.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bridge.errors import CallerError
from bridge.protocol.globs import Glob, path_glob, text_glob
from bridge.protocol.held import (
    LASTING,
    Answer,
    HeldRequest,
    decoded,
    wire_method,
    withdrawn_answer,
)
from bridge.protocol.replies import select_kind

Reply = Literal["allow_once", "allow_always", "reject_once", "reject_always", "cancel", "ask"]

_REPLIES: tuple[Reply, ...] = get_args(Reply)
_PERMISSION = "session/request_permission"
_MEMBERS = ("kind", "path", "title", "method")
_MAX_RULES = 1000
_MAX_PATTERN = 1024
_MAX_PATTERNS = 16_384
_MAX_PATH = 4096
_MAX_AFTER_S = 1e9
_MAX_STEPS = 30_000
"""Steps of one decision: some 10 ms on a slow machine, during which nobody else is served."""
_STEPS_OF_A_FOLDER = 16
"""What resolving costs for each segment of a path, beside matching a character."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; what is ``None`` is not looked at. Patterns are as the caller wrote them."""

    reply: Reply
    kind: str | None = None
    path: str | None = None
    title: str | None = None
    method: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The contract's rule."""
        shown = {name: getattr(self, name) for name in _MEMBERS}
        match = {name: value for name, value in shown.items() if value is not None}
        return {"match": match, "reply": self.reply}


@dataclass(frozen=True, slots=True)
class OnTimeout:
    """What happens to a request that nobody has answered ``after_s`` seconds after it came."""

    after_s: float
    reply: Reply


@dataclass(frozen=True, slots=True)
class Permissions:
    """The rules of a session, first match first; the default asks, without a time limit."""

    rules: tuple[Rule, ...] = ()
    limit: OnTimeout | None = None

    def as_json(self) -> dict[str, Any]:
        """The contract's ``permissions``; :func:`parse` reads it back."""
        shown: dict[str, Any] = {"rules": [rule.as_json() for rule in self.rules]}
        if self.limit is not None:
            shown["onTimeout"] = {"afterSeconds": self.limit.after_s, "reply": self.limit.reply}
        return shown

    @property
    def timeout_s(self) -> float | None:
        """Seconds from a request's ``createdAt`` to its time limit; ``None``: there is none."""
        return None if self.limit is None else self.limit.after_s

    @property
    def is_allowing(self) -> bool:
        """Whether anything in it may allow without a person (it takes ``approve`` to set that)."""
        replies = [rule.reply for rule in self.rules]
        return any(_allows(r) for r in [*replies, self.limit.reply if self.limit else "ask"])


# --- Reading ----------------------------------------------------------------------------------


def parse(raw: object, *, allow_always: bool, pointer: str = "#/permissions") -> Permissions:
    """Check ``permissions`` as a caller sent them.

    Raises ``invalid-request`` with ``errors: [{pointer, detail}]``, one for each fault;
    ``pointer`` is where ``raw`` lies in the body.
    """
    reader = _Reader(allow_always)
    permissions = reader.permissions(raw, pointer)
    if reader.errors:
        raise CallerError("invalid-request", "The permissions are not valid.", errors=reader.errors)
    return permissions


class _Reader:
    """Collects every fault on the way, so that a caller mends them at once."""

    def __init__(self, allow_always: bool) -> None:
        self._allow_always = allow_always
        self._characters = 0
        self.errors: list[dict[str, str]] = []

    def permissions(self, raw: object, at: str) -> Permissions:
        given = self._object(raw, at, ("rules", "onTimeout"))
        rules = given.get("rules", [])
        if not isinstance(rules, list) or len(rules) > _MAX_RULES:
            self._fault(f"{at}/rules", f"is a list of at most {_MAX_RULES} rules")
            rules = []
        limit = given.get("onTimeout")
        found = tuple(self._rule(rule, f"{at}/rules/{n}") for n, rule in enumerate(rules))
        if self._characters > _MAX_PATTERNS:
            self._fault(f"{at}/rules", f"have at most {_MAX_PATTERNS} characters in all patterns")
        return Permissions(found, None if limit is None else self._limit(limit, f"{at}/onTimeout"))

    def _rule(self, raw: object, at: str) -> Rule:
        given = self._object(raw, at, ("match", "reply"))
        match = self._object(given.get("match"), f"{at}/match", _MEMBERS)
        found = {name: self._pattern(match[name], f"{at}/match/{name}") for name in match}
        rule = Rule(
            self._reply(given.get("reply"), f"{at}/reply"),
            **{name: found[name] for name in _MEMBERS if name in found},
        )
        self._check_path(rule.path, f"{at}/match/path")
        self._check_method(rule, at)
        if rule.title is not None and _allows(rule.reply):
            self._fault(f"{at}/match/title", "is the agent's word and cannot be a reason to allow")
        return rule

    def _limit(self, raw: object, at: str) -> OnTimeout:
        given = self._object(raw, at, ("afterSeconds", "reply"))
        after = given.get("afterSeconds")
        if isinstance(after, bool) or not isinstance(after, int | float):
            after = math.nan
        if not 0 < after <= _MAX_AFTER_S:
            self._fault(f"{at}/afterSeconds", "is a number of seconds above 0")
        return OnTimeout(after, self._reply(given.get("reply"), f"{at}/reply"))

    def _reply(self, raw: object, at: str) -> Reply:
        for reply in _REPLIES:
            if raw == reply:
                if reply == LASTING and not self._allow_always:
                    self._fault(at, "allow_always is not permitted by the configuration")
                return reply
        self._fault(at, f"is one of {', '.join(_REPLIES)}")
        return "ask"

    def _pattern(self, raw: object, at: str) -> str:
        if isinstance(raw, str) and 0 < len(raw) <= _MAX_PATTERN and "\0" not in raw:
            self._characters += len(raw)
            return raw
        self._fault(at, f"is a text of 1 to {_MAX_PATTERN} characters")
        return ""

    def _check_path(self, path: str | None, at: str) -> None:
        if path is not None and ".." in path.split("/"):
            self._fault(at, "has no `..`: paths are compared after they are resolved")

    def _check_method(self, rule: Rule, at: str) -> None:
        if rule.method is None:
            return
        if "*" in rule.method[:-1]:
            self._fault(f"{at}/match/method", "is a name, or the beginning of one and a `*`")
        is_permission = rule.method == _PERMISSION or rule.method.startswith("session/")
        if not is_permission and rule.reply not in ("cancel", "ask"):
            self._fault(f"{at}/reply", "is cancel or ask for whatever is no permission")

    def _object(self, raw: object, at: str, members: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(raw, dict):
            self._fault(at, "is an object")
            return {}
        for name in raw:
            if name not in members:
                self._fault(f"{at}/{_escaped(name)}", f"is unknown; there are {', '.join(members)}")
        return {name: value for name, value in raw.items() if name in members}

    def _fault(self, pointer: str, detail: str) -> None:
        self.errors.append({"pointer": pointer, "detail": detail})


def _escaped(name: str) -> str:
    """A member's name as RFC 6901 wants it."""
    return name.replace("~", "~0").replace("/", "~1")


def _allows(reply: Reply) -> bool:
    return reply in ("allow_once", LASTING)


# --- Deciding ---------------------------------------------------------------------------------


class _TooManySteps(Exception):
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
            raise _TooManySteps


def decide(
    permissions: Permissions,
    request: HeldRequest,
    *,
    cwd: str,
    resolve: Callable[[str], str],
    allow_always: bool = False,
    steps: Steps | None = None,
) -> Answer | None:
    """The answer the first fitting rule gives; ``None``: a person is asked.

    ``cwd`` is the session's folder, already resolved; ``resolve`` follows links and ``..`` of an
    absolute path to where it leads, and may raise ``OSError`` or ``ValueError``.
    """
    params = decoded(request.params)
    steps = steps or Steps()
    steps.begin()
    subject = _Subject(request, params, cwd, resolve, steps)
    try:
        for rule in permissions.rules:
            if not subject.fits(rule):
                continue
            if rule.reply == "ask":
                return None
            if answer := _carried_out(rule.reply, request, params, allow_always):
                return answer
    except _TooManySteps:
        pass
    return None


def on_timeout(
    permissions: Permissions, request: HeldRequest, *, allow_always: bool = False
) -> Answer | None:
    """The answer to a request whose time limit has passed; ``None``: go on waiting.

    Where the limit's reply cannot be carried out (no single option of that kind, or no
    permission at all) the request is cancelled, so that it does end.
    """
    if permissions.limit is None or permissions.limit.reply == "ask":
        return None
    params = decoded(request.params)
    answer = _carried_out(permissions.limit.reply, request, params, allow_always)
    return answer or withdrawn_answer(request.kind)


def _carried_out(
    reply: Reply, request: HeldRequest, params: dict[str, Any], allow_always: bool
) -> Answer | None:
    if reply == "cancel":
        return withdrawn_answer(request.kind)
    if request.kind != "permission":
        return None
    return select_kind(params, reply, allow_always=allow_always)


class _Subject:
    """What the rules look at in one request; paths are resolved once, and only if asked for."""

    def __init__(
        self,
        request: HeldRequest,
        params: dict[str, Any],
        cwd: str,
        resolve: Callable[[str], str],
        steps: Steps,
    ) -> None:
        given = params.get("toolCall")
        self._is_permission = request.kind == "permission"
        self._method = wire_method(request.method)
        self._tools = [tool for tool in (given, request.tool_call) if isinstance(tool, dict)]
        self._cwd = cwd
        self._resolve = resolve
        self._steps = steps
        self._resolved: list[str] | None = None

    def fits(self, rule: Rule) -> bool:
        self._steps.take(1)
        return (
            self._fits_method(rule.method)
            and (rule.kind is None or self._told("kind") == rule.kind)
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
