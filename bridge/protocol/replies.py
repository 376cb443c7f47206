"""Whether a caller's reply fits the request that waits, and how the wire spells it.

A reply is the *inner* outcome of its kind; the nesting that ACP and Cursor expect is added here,
so that no caller's JSON reaches the agent as it came. Rules:

* what is checked is the request itself: its options, its questions, its form;
* anything else is refused: another kind's members, unknown ones, wrong types, nothing at all;
* an option that outlives the session (``allow_always``) needs the configuration's leave;
* the outcome is normalised, so that two replies that mean the same are equal.

Shapes: ACP's tool-calls and elicitation pages, Cursor's page on its ACP extensions.
Knows nothing of tokens, time or HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bridge.errors import CallerError
from bridge.protocol import forms
from bridge.protocol.acp import dumps
from bridge.protocol.held import (
    LASTING,
    Answer,
    HeldRequest,
    Kind,
    Proceed,
    decoded,
    permission_options,
)

_MAX_CODE = 2**53 - 1
"""Error codes beyond it are no integers to an agent written in JavaScript."""


class _NotValidError(Exception):
    """Why a reply does not fit, in one sentence for the caller."""


def check(request: HeldRequest, body: object, *, allow_always: bool) -> Answer:
    """The answer that ``body`` stands for.

    Raises ``reply-not-valid`` with ``available``, the replies that would fit.
    """
    params = decoded(request.params)
    try:
        if not isinstance(body, dict):
            raise _NotValidError("The reply is no JSON object.")
        return _CHECKS[request.kind](params, body, allow_always)
    except (_NotValidError, ValueError) as error:
        # A ValueError says that the reply is no JSON: NaN, or nested too deeply.
        raise CallerError(
            "reply-not-valid",
            str(error),
            available=allowed(request.kind, params, allow_always=allow_always),
        ) from None


def same_reply(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two outcomes of :func:`check` are equal as JSON (``true`` is not ``1``)."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def is_repeat(request: HeldRequest, body: object, token: str | None, *, allow_always: bool) -> bool:
    """Whether ``body`` is the reply that settled ``request``, sent again by the same token."""
    won = request.resolution
    if won is None or won.by != "caller" or won.token != token:
        return False
    try:
        return same_reply(check(request, body, allow_always=allow_always).outcome, won.outcome)
    except CallerError:
        return False


def allowed(kind: Kind, params: dict[str, Any], *, allow_always: bool) -> list[dict[str, Any]]:
    """The replies that fit a request, as bodies to copy from; lists show what may be chosen."""
    match kind:
        case "permission":
            options = permission_options(params, allow_always=allow_always)
            chosen = [{"outcome": "selected", "optionId": option_id} for option_id, _ in options]
            return [*chosen, {"outcome": "cancelled"}]
        case "question":
            answers = [
                {"questionId": question_id, "selectedOptionIds": list(_offered(question))}
                for question_id, question in _questions(params).items()
            ]
            return [
                {"outcome": "answered", "answers": answers},
                {"outcome": "skipped"},
                {"outcome": "cancelled"},
            ]
        case "plan":
            return [{"outcome": name} for name in ("accepted", "rejected", "cancelled")]
        case "elicitation":
            accept: dict[str, Any] = {"action": "accept"}
            if params.get("mode") != "url":
                accept["content"] = forms.fields(params)
            return [accept, {"action": "decline"}, {"action": "cancel"}]
    return [{"result": {}}, {"error": {"code": -32000, "message": "…"}}]


# --- Members ----------------------------------------------------------------------------------


def _only(body: dict[str, Any], *names: str) -> None:
    if unknown := sorted(set(body) - set(names)):
        raise _NotValidError(f"The reply has members that do not belong here: {', '.join(unknown)}")


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise _NotValidError(f"`{name}` is not a text.")
    return value


def _optional_texts(body: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: _text(body, name) for name in names if name in body}


def _nested(outcome: dict[str, Any], *, is_refusal: bool = False) -> Answer:
    return Answer(dumps({"outcome": outcome}), None, outcome, is_refusal=is_refusal)


# --- Permissions ------------------------------------------------------------------------------


def _permission(params: dict[str, Any], body: dict[str, Any], allow_always: bool) -> Answer:
    match body.get("outcome"):
        case "cancelled":
            _only(body, "outcome")
            return _nested({"outcome": "cancelled"}, is_refusal=True)
        case "selected":
            _only(body, "outcome", "optionId", "kind")
            if ("optionId" in body) == ("kind" in body):
                raise _NotValidError("A selected option is named by `optionId` or by `kind`.")
            options = permission_options(params, allow_always=allow_always)
            option_id, kind = (
                _by_id(options, _text(body, "optionId"))
                if "optionId" in body
                else _by_kind(options, _text(body, "kind"))
            )
            outcome = {"outcome": "selected", "optionId": option_id}
            return _nested(outcome, is_refusal=kind.startswith("reject"))
    raise _NotValidError("`outcome` of a permission is selected or cancelled.")


def _by_id(options: list[tuple[str, str]], option_id: str) -> tuple[str, str]:
    for option in options:
        if option[0] == option_id:
            return option
    raise _NotValidError(
        "The option is not offered, or lasts for ever, which `permissions.allow_always` permits."
    )


def _by_kind(options: list[tuple[str, str]], kind: str) -> tuple[str, str]:
    found = [option for option in options if option[1] == kind]
    if len(found) == 1:
        return found[0]
    if found:
        raise _NotValidError(f"{len(found)} options are {kind}; choose one by `optionId`.")
    reason = ", or `permissions.allow_always` does not permit it" if kind == LASTING else ""
    raise _NotValidError(f"No option of this kind is offered{reason}.")


def select_kind(params: dict[str, Any], kind: str, *, allow_always: bool) -> Answer | None:
    """The answer that selects the one option of ``kind``, or ``None`` where there is none."""
    try:
        body = {"outcome": "selected", "kind": kind}
        return _permission(params, body, allow_always)
    except _NotValidError:
        return None


# --- Questions --------------------------------------------------------------------------------


def _objects_by_id(value: object) -> dict[str, dict[str, Any]]:
    items = value if isinstance(value, list) else []
    return {
        item["id"]: item
        for item in items
        if isinstance(item, dict) and isinstance(item.get("id"), str)
    }


def _questions(params: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return _objects_by_id(params.get("questions"))


def _offered(question: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return _objects_by_id(question.get("options"))


def _question(params: dict[str, Any], body: dict[str, Any], allow_always: bool) -> Answer:
    match body.get("outcome"):
        case "cancelled":
            _only(body, "outcome")
            return _nested({"outcome": "cancelled"}, is_refusal=True)
        case "skipped":
            _only(body, "outcome", "reason")
            return _nested({"outcome": "skipped"} | _optional_texts(body, "reason"))
        case "answered":
            _only(body, "outcome", "answers")
            answers = _answers(_questions(params), body.get("answers"))
            return _nested({"outcome": "answered", "answers": answers})
    raise _NotValidError("`outcome` of a question is answered, skipped or cancelled.")


def _answers(questions: dict[str, dict[str, Any]], answers: object) -> list[dict[str, Any]]:
    """Every question answered exactly once, in the order asked."""
    if not isinstance(answers, list):
        raise _NotValidError("`answers` is not a list.")
    selected: dict[str, list[str]] = {}
    for answer in answers:
        if not isinstance(answer, dict):
            raise _NotValidError("An answer is no JSON object.")
        _only(answer, "questionId", "selectedOptionIds")
        question_id = _text(answer, "questionId")
        if question_id not in questions:
            raise _NotValidError("An answer names a question that is not asked.")
        if question_id in selected:
            raise _NotValidError("A question is answered twice.")
        selected[question_id] = _selected(questions[question_id], answer.get("selectedOptionIds"))
    if missing := [name for name in questions if name not in selected]:
        raise _NotValidError(f"Not every question is answered: {', '.join(missing)}")
    return [{"questionId": name, "selectedOptionIds": selected[name]} for name in questions]


def _selected(question: dict[str, Any], chosen: object) -> list[str]:
    """The chosen option ids in the order offered; a single choice is one, neither none nor two."""
    if not isinstance(chosen, list) or not all(isinstance(name, str) for name in chosen):
        raise _NotValidError("`selectedOptionIds` is not a list of texts.")
    offered = _offered(question)
    if not set(chosen) <= set(offered) or len(set(chosen)) != len(chosen):
        raise _NotValidError("A selected option is not offered, or selected twice.")
    if offered and question.get("allowMultiple") is not True and len(chosen) != 1:
        raise _NotValidError("This question takes exactly one option.")
    return [name for name in offered if name in chosen]


# --- Plans ------------------------------------------------------------------------------------


def _plan(params: dict[str, Any], body: dict[str, Any], allow_always: bool) -> Answer:
    match body.get("outcome"):
        case "cancelled":
            _only(body, "outcome")
            return _nested({"outcome": "cancelled"}, is_refusal=True)
        case "rejected":
            _only(body, "outcome", "reason")
            outcome = {"outcome": "rejected"} | _optional_texts(body, "reason")
            return _nested(outcome, is_refusal=True)
        case "accepted":
            _only(body, "outcome", "planUri", "proceed")
            return _accepted(body)
    raise _NotValidError("`outcome` of a plan is accepted, rejected or cancelled.")


def _accepted(body: dict[str, Any]) -> Answer:
    outcome = {"outcome": "accepted"} | _optional_texts(body, "planUri")
    result = dumps({"outcome": outcome})
    if "proceed" not in body:
        return Answer(result, None, outcome)
    # It is ours, not the agent's: shown and compared, but not sent.
    shown = body["proceed"]
    if not isinstance(shown, dict):
        raise _NotValidError("`proceed` is no JSON object.")
    _only(shown, "modeId", "prompt")
    mode = _optional_texts(shown, "modeId").get("modeId")
    proceed = Proceed(mode, _text(shown, "prompt"))
    if not proceed.prompt or mode == "":
        raise _NotValidError("`proceed` needs a prompt, and a mode that is not empty.")
    return Answer(result, None, outcome | {"proceed": shown}, proceed)


# --- Elicitations -----------------------------------------------------------------------------


def _elicitation(params: dict[str, Any], body: dict[str, Any], allow_always: bool) -> Answer:
    match body.get("action"):
        case "decline" | "cancel" as action:
            _only(body, "action")
            return _flat({"action": action}, is_refusal=True)
        case "accept" if params.get("mode") == "url":
            _only(body, "action")
            return _flat({"action": "accept"})
        case "accept":
            _only(body, "action", "content")
            content = body.get("content", {})
            if not isinstance(content, dict):
                raise _NotValidError("`content` is no JSON object.")
            if problem := forms.misfit(params, content):
                raise _NotValidError(problem)
            return _flat({"action": "accept", "content": content})
    raise _NotValidError("`action` of an elicitation is accept, decline or cancel.")


def _flat(outcome: dict[str, Any], *, is_refusal: bool = False) -> Answer:
    return Answer(dumps(outcome), None, outcome, is_refusal=is_refusal)


# --- Extensions -------------------------------------------------------------------------------


def _extension(params: dict[str, Any], body: dict[str, Any], allow_always: bool) -> Answer:
    _only(body, "result", "error")
    if ("result" in body) == ("error" in body):
        raise _NotValidError("The answer to an extension is a `result` or an `error`.")
    if "result" in body:
        return Answer(dumps(body["result"]), None, {"result": body["result"]})
    error = body["error"]
    if not isinstance(error, dict):
        raise _NotValidError("`error` is no JSON object.")
    _only(error, "code", "message")
    code, message = error.get("code"), _text(error, "message")
    if not isinstance(code, int) or isinstance(code, bool) or abs(code) > _MAX_CODE:
        raise _NotValidError("`error.code` is no integer.")
    outcome = {"error": {"code": code, "message": message}}
    return Answer(None, (code, message), outcome, is_refusal=True)


_CHECKS: dict[Kind, Callable[[dict[str, Any], dict[str, Any], bool], Answer]] = {
    "permission": _permission,
    "question": _question,
    "plan": _plan,
    "elicitation": _elicitation,
    "extension": _extension,
}
