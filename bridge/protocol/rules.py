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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bridge.errors import CallerError
from bridge.protocol.held import (
    LASTING,
    Answer,
    HeldRequest,
    decoded,
    withdrawn_answer,
)
from bridge.protocol.replies import select_kind
from bridge.protocol.subject import Steps, Subject, TooManySteps

Reply = Literal["allow_once", "allow_always", "reject_once", "reject_always", "cancel", "ask"]

_REPLIES: tuple[Reply, ...] = get_args(Reply)
_PERMISSION = "session/request_permission"
_MEMBERS = ("kind", "path", "title", "method")
_MAX_RULES = 1000
_MAX_PATTERN = 1024
_MAX_PATTERNS = 16_384
_MAX_AFTER_S = 1e9


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
        if "match" not in given:
            self._fault(f"{at}/match", "is missing; `{}` matches everything")
        match = self._object(given.get("match", {}), f"{at}/match", _MEMBERS)
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


def decide(
    permissions: Permissions,
    request: HeldRequest,
    *,
    cwd: str,
    resolve: Callable[[str], str],
    earlier: dict[str, Any] | None = None,
    allow_always: bool = False,
    steps: Steps | None = None,
) -> Answer | None:
    """The answer the first fitting rule gives; ``None``: a person is asked.

    ``earlier`` is what the agent told of the tool before it asked: a request may leave out where it
    leads, or name something else, and what it names now does not undo what was named before.
    ``cwd`` is the session's folder, already resolved; ``resolve`` follows links and ``..`` of an
    absolute path to where it leads, and may raise ``OSError`` or ``ValueError``.
    """
    params = decoded(request.params)
    steps = steps or Steps()
    steps.begin()
    tools = (params.get("toolCall"), request.tool_call, earlier)
    subject = Subject(request, tools, cwd, resolve, steps)
    try:
        for rule in permissions.rules:
            if not subject.fits(rule, is_allowing=rule.reply.startswith("allow")):
                continue
            if rule.reply == "ask":
                return None
            if answer := _carried_out(rule.reply, request, params, allow_always):
                return answer
    except TooManySteps:
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
