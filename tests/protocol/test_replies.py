"""Replies: what fits each kind of request, how the wire spells it, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import CallerError
from bridge.protocol.held import (
    Answer,
    HeldRequest,
    HeldRequests,
    Kind,
    Proceed,
    Resolution,
    withdrawn_answer,
)
from bridge.protocol.replies import allowed, check, is_repeat, same_reply, select_kind

AT = "2026-12-01T10:00:00.000Z"

PERMISSION: dict[str, Any] = {
    "options": [
        {"optionId": "allow-once", "kind": "allow_once"},
        {"optionId": "allow-always", "kind": "allow_always"},
        {"optionId": "no", "kind": "reject_once"},
        {"optionId": "no-too", "kind": "reject_once"},
    ]
}
QUESTION: dict[str, Any] = {
    "questions": [
        {"id": "q1", "options": [{"id": "a"}, {"id": "b"}]},
        {"id": "q2", "options": [{"id": "c"}, {"id": "d"}], "allowMultiple": True},
        {"id": "q3", "options": "broken"},
        "broken",
        {"id": 4},
    ]
}
FORM: dict[str, Any] = {
    "mode": "form",
    "requestedSchema": {
        "type": "object",
        "required": ["name", ["broken"]],
        "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 5},
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "size": {"type": "string", "oneOf": [{"const": "s", "title": "S"}, "broken"]},
            "age": {"type": "integer", "minimum": 1, "maximum": 9},
            "ratio": {"type": "number", "maximum": 1},
            "sure": {"type": "boolean"},
            "tags": {
                "type": "array",
                "maxItems": 2,
                "items": {"anyOf": [{"const": "x", "title": "X"}, {"const": "y", "title": "Y"}]},
            },
            "free": {"type": "array", "items": "broken"},
            "other": {"type": "_vendor"},
            "broken": 7,
        },
    },
}
PARAMS: dict[Kind, dict[str, Any]] = {
    "permission": PERMISSION,
    "question": QUESTION,
    "plan": {"plan": "p"},
    "elicitation": FORM,
    "extension": {"x": 1},
}


def request(kind: Kind, params: dict[str, Any] | None = None) -> HeldRequest:
    return HeldRequest(
        request_id="req_1",
        session_id="ses_1",
        turn_id=None,
        kind=kind,
        method="any",
        params=json.dumps(PARAMS[kind] if params is None else params).encode(),
        rpc_id=b"0",
        created_at=AT,
    )


def wire(answer: Answer) -> Any:
    assert answer.result is not None
    return json.loads(answer.result)


def answers(q1: list[Any], q2: list[Any], q3: list[Any]) -> dict[str, Any]:
    chosen = {"q1": q1, "q2": q2, "q3": q3}
    return {
        "outcome": "answered",
        "answers": [{"questionId": n, "selectedOptionIds": ids} for n, ids in chosen.items()],
    }


def filled(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": "abc"} | content}


FITTING: list[tuple[Kind, dict[str, Any], Any, bool]] = [
    (
        "permission",
        {"outcome": "selected", "optionId": "allow-once"},
        {"outcome": {"outcome": "selected", "optionId": "allow-once"}},
        False,
    ),
    (
        "permission",
        {"outcome": "selected", "kind": "allow_once"},
        {"outcome": {"outcome": "selected", "optionId": "allow-once"}},
        False,
    ),
    (
        "permission",
        {"outcome": "selected", "optionId": "no-too"},
        {"outcome": {"outcome": "selected", "optionId": "no-too"}},
        True,
    ),
    ("permission", {"outcome": "cancelled"}, {"outcome": {"outcome": "cancelled"}}, True),
    (
        "question",
        answers(["b"], ["d", "c"], []),
        {"outcome": answers(["b"], ["c", "d"], [])},
        False,
    ),
    (
        "question",
        {"outcome": "answered", "answers": answers(["a"], [], [])["answers"][::-1]},
        {"outcome": answers(["a"], [], [])},
        False,
    ),
    ("question", {"outcome": "skipped"}, {"outcome": {"outcome": "skipped"}}, False),
    (
        "question",
        {"outcome": "skipped", "reason": "r"},
        {"outcome": {"outcome": "skipped", "reason": "r"}},
        False,
    ),
    ("question", {"outcome": "cancelled"}, {"outcome": {"outcome": "cancelled"}}, True),
    ("plan", {"outcome": "accepted"}, {"outcome": {"outcome": "accepted"}}, False),
    (
        "plan",
        {"outcome": "accepted", "planUri": "file:///p", "proceed": {"prompt": "go"}},
        {"outcome": {"outcome": "accepted", "planUri": "file:///p"}},
        False,
    ),
    (
        "plan",
        {"outcome": "rejected", "reason": "r"},
        {"outcome": {"outcome": "rejected", "reason": "r"}},
        True,
    ),
    ("plan", {"outcome": "cancelled"}, {"outcome": {"outcome": "cancelled"}}, True),
    ("elicitation", filled(), filled(), False),
    (
        "elicitation",
        filled(colour="red", size="s", age=9, ratio=0.5, sure=True, tags=["x"], free=["any"]),
        filled(colour="red", size="s", age=9, ratio=0.5, sure=True, tags=["x"], free=["any"]),
        False,
    ),
    ("elicitation", filled(ratio=1, other=["v"], broken=1.5), None, False),
    ("elicitation", filled(other="v", broken=True), None, False),
    ("elicitation", {"action": "decline"}, {"action": "decline"}, True),
    ("elicitation", {"action": "cancel"}, {"action": "cancel"}, True),
    ("extension", {"result": {"a": [1]}}, {"a": [1]}, False),
    ("extension", {"result": None}, None, False),
]


@pytest.mark.parametrize(("kind", "body", "result", "is_refusal"), FITTING)
def test_a_fitting_reply_is_nested_as_the_wire_needs(
    kind: Kind, body: dict[str, Any], result: Any, is_refusal: bool
) -> None:
    answer = check(request(kind), body, allow_always=False)
    assert wire(answer) == (body if result is None and kind == "elicitation" else result)
    assert answer.error is None
    assert answer.is_refusal is is_refusal


def test_an_extension_may_be_refused_with_an_error() -> None:
    body = {"error": {"code": -32000, "message": "no"}}
    answer = check(request("extension"), body, allow_always=False)
    assert (answer.result, answer.error, answer.outcome) == (None, (-32000, "no"), body)
    assert answer.is_refusal


NO_REPLY: list[Any] = [{}, [], None, "allow", 1, True]
WRONG: list[tuple[Kind, Any]] = [
    *((kind, body) for kind in PARAMS for body in NO_REPLY),
    ("permission", {"outcome": "selected"}),
    ("permission", {"outcome": "selected", "optionId": "gone"}),
    ("permission", {"outcome": "selected", "optionId": "allow-always"}),
    ("permission", {"outcome": "selected", "optionId": 1}),
    ("permission", {"outcome": "selected", "optionId": ["allow-once"]}),
    ("permission", {"outcome": "selected", "optionId": None}),
    ("permission", {"outcome": "selected", "kind": "allow_always"}),
    ("permission", {"outcome": "selected", "kind": "reject_once"}),
    ("permission", {"outcome": "selected", "kind": "reject_always"}),
    ("permission", {"outcome": "selected", "kind": {}}),
    ("permission", {"outcome": "selected", "kind": "allow_once", "optionId": "allow-once"}),
    ("permission", {"outcome": "selected", "optionId": "allow-once", "extra": 1}),
    ("permission", {"outcome": "cancelled", "optionId": "allow-once"}),
    ("permission", {"outcome": "accepted"}),
    ("permission", {"outcome": {"outcome": "selected", "optionId": "allow-once"}}),
    ("permission", {"action": "accept"}),
    ("permission", {"result": {}}),
    ("question", {"outcome": "answered"}),
    ("question", {"outcome": "answered", "answers": {}}),
    ("question", {"outcome": "answered", "answers": ["a"]}),
    ("question", {"outcome": "answered", "answers": []}),
    ("question", {"outcome": "answered", "answers": answers(["a"], [], [])["answers"][:2]}),
    ("question", {"outcome": "answered", "answers": answers(["a"], [], [])["answers"] * 2}),
    ("question", {"outcome": "answered", "answers": [{"questionId": "q9"}]}),
    ("question", {"outcome": "answered", "answers": [{"questionId": 4}]}),
    ("question", {"outcome": "answered", "answers": [{"questionId": "q1"}]}),
    ("question", {"outcome": "answered", "answers": [{"questionId": "q1", "freeformText": ""}]}),
    ("question", answers(["z"], [], [])),
    ("question", answers([1], [], [])),
    ("question", answers([["a"]], [], [])),
    ("question", answers(["a", "b"], [], [])),
    ("question", answers([], [], [])),
    ("question", answers(["a"], ["c", "c"], [])),
    ("question", answers(["a"], [], ["a"])),
    ("question", {"outcome": "skipped", "reason": None}),
    ("question", {"outcome": "skipped", "answers": []}),
    ("question", {"outcome": "accepted"}),
    ("plan", {"outcome": "accepted", "planUri": 1}),
    ("plan", {"outcome": "accepted", "reason": "r"}),
    ("plan", {"outcome": "accepted", "proceed": None}),
    ("plan", {"outcome": "accepted", "proceed": {}}),
    ("plan", {"outcome": "accepted", "proceed": {"prompt": ""}}),
    ("plan", {"outcome": "accepted", "proceed": {"prompt": "go", "modeId": ""}}),
    ("plan", {"outcome": "accepted", "proceed": {"prompt": "go", "modeId": None}}),
    ("plan", {"outcome": "accepted", "proceed": {"prompt": "go", "extra": 1}}),
    ("plan", {"outcome": "rejected", "proceed": {"prompt": "go"}}),
    ("plan", {"outcome": "rejected", "reason": 1}),
    ("plan", {"outcome": "cancelled", "reason": "r"}),
    ("plan", {"outcome": "selected", "optionId": "allow-once"}),
    ("elicitation", {"action": "accept"}),
    ("elicitation", {"action": "accept", "content": None}),
    ("elicitation", {"action": "accept", "content": {}}),
    ("elicitation", {"action": "decline", "content": {}}),
    ("elicitation", {"action": "maybe"}),
    ("elicitation", {"outcome": "cancelled"}),
    ("elicitation", filled(unknown=1)),
    ("elicitation", filled(name=1)),
    ("elicitation", filled(name="a")),
    ("elicitation", filled(name="abcdef")),
    ("elicitation", filled(colour="green")),
    ("elicitation", filled(size="xl")),
    ("elicitation", filled(age=0)),
    ("elicitation", filled(age=10)),
    ("elicitation", filled(age=True)),
    ("elicitation", filled(age=1.5)),
    ("elicitation", filled(ratio="1")),
    ("elicitation", filled(ratio=1.5)),
    ("elicitation", filled(sure="yes")),
    ("elicitation", filled(tags="x")),
    ("elicitation", filled(tags=["z"])),
    ("elicitation", filled(tags=["x", "y", "x"])),
    ("elicitation", filled(tags=[1])),
    ("elicitation", filled(other={})),
    ("elicitation", filled(other=None)),
    ("extension", {"result": {}, "error": {"code": 1, "message": "m"}}),
    ("extension", {"outcome": "accepted"}),
    ("extension", {"result": {}, "outcome": "accepted"}),
    ("extension", {"error": None}),
    ("extension", {"error": {"code": 1}}),
    ("extension", {"error": {"message": "m"}}),
    ("extension", {"error": {"code": "1", "message": "m"}}),
    ("extension", {"error": {"code": True, "message": "m"}}),
    ("extension", {"error": {"code": 2**53, "message": "m"}}),
    ("extension", {"error": {"code": 1, "message": 2}}),
    ("extension", {"error": {"code": 1, "message": "m", "data": 1}}),
]


@pytest.mark.parametrize(("kind", "body"), WRONG)
def test_a_reply_that_does_not_fit_is_refused_with_what_would(kind: Kind, body: Any) -> None:
    with pytest.raises(CallerError) as caught:
        check(request(kind), body, allow_always=False)
    assert caught.value.code == "reply-not-valid"
    assert caught.value.detail
    assert caught.value.extra["available"] == allowed(kind, PARAMS[kind], allow_always=False)


def test_a_lasting_permission_needs_the_configurations_leave() -> None:
    for body in (
        {"outcome": "selected", "optionId": "allow-always"},
        {"outcome": "selected", "kind": "allow_always"},
    ):
        answer = check(request("permission"), body, allow_always=True)
        assert answer.outcome == {"outcome": "selected", "optionId": "allow-always"}


def test_a_reply_that_is_no_json_is_refused() -> None:
    with pytest.raises(CallerError) as caught:
        check(request("extension"), {"result": float("nan")}, allow_always=False)
    assert caught.value.code == "reply-not-valid"


def test_a_url_is_accepted_without_content() -> None:
    held = request("elicitation", {"mode": "url", "url": "https://example.test"})
    assert wire(check(held, {"action": "accept"}, allow_always=False)) == {"action": "accept"}
    with pytest.raises(CallerError) as caught:
        check(held, {"action": "accept", "content": {}}, allow_always=False)
    assert caught.value.extra["available"][0] == {"action": "accept"}


def test_a_form_without_a_readable_schema_takes_an_empty_content() -> None:
    for params in ({}, {"requestedSchema": 1}, {"requestedSchema": {"required": 1}}):
        held = request("elicitation", params)
        answer = check(held, {"action": "accept"}, allow_always=False)
        assert wire(answer) == {"action": "accept", "content": {}}


def test_proceed_is_shown_but_not_sent() -> None:
    body = {"outcome": "accepted", "proceed": {"modeId": "agent", "prompt": "go on"}}
    answer = check(request("plan"), body, allow_always=False)
    assert answer.proceed == Proceed("agent", "go on")
    assert answer.outcome == body
    assert wire(answer) == {"outcome": {"outcome": "accepted"}}


def test_every_reply_that_is_offered_for_permissions_and_plans_fits() -> None:
    kinds: list[Kind] = ["permission", "plan", "extension"]
    for kind in kinds:
        for offered in allowed(kind, PARAMS[kind], allow_always=False):
            check(request(kind), offered, allow_always=False)


def test_replies_are_equal_by_what_they_mean() -> None:
    held = request("permission")
    one = check(held, {"outcome": "selected", "kind": "allow_once"}, allow_always=False)
    two = check(held, {"optionId": "allow-once", "outcome": "selected"}, allow_always=False)
    assert same_reply(one.outcome, two.outcome)
    assert not same_reply({"result": True}, {"result": 1})


def test_a_rule_selects_the_one_option_of_a_kind() -> None:
    found = select_kind(PERMISSION, "allow_once", allow_always=False)
    assert found is not None
    assert found.outcome["optionId"] == "allow-once"
    assert select_kind(PERMISSION, "reject_once", allow_always=False) is None
    assert select_kind(PERMISSION, "allow_always", allow_always=False) is None


def test_only_the_winners_equal_reply_is_a_repeat() -> None:
    table = HeldRequests()
    table.hold(request("permission"))
    body = {"outcome": "selected", "kind": "allow_once"}
    assert not is_repeat(table.get("req_1"), body, "phone", allow_always=False)
    answer = check(table.get("req_1"), body, allow_always=False)
    settled = table.answer("req_1", answer, "caller", "phone", AT)
    same = {"outcome": "selected", "optionId": "allow-once"}
    assert is_repeat(settled, same, "phone", allow_always=False)
    assert not is_repeat(settled, same, "laptop", allow_always=False)
    assert not is_repeat(settled, {"outcome": "cancelled"}, "phone", allow_always=False)
    assert not is_repeat(settled, {}, "phone", allow_always=False)
    by_rule = replace(settled, resolution=Resolution("policy", "phone", answer.outcome, AT))
    assert not is_repeat(by_rule, same, "phone", allow_always=False)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
member = st.sampled_from(
    ["outcome", "optionId", "kind", "answers", "action", "content", "options", "questions", "mode"]
)
loose_objects = st.dictionaries(
    member,
    json_values | st.sampled_from(["selected", "cancelled", "answered", "accept", "accepted"]),
    max_size=4,
)


@given(st.sampled_from(list(PARAMS)), loose_objects, loose_objects | json_values)
def test_no_request_and_no_reply_breaks_the_check(
    kind: Kind, params: dict[str, Any], body: Any
) -> None:
    try:
        answer = check(request(kind, params), body, allow_always=False)
    except CallerError as error:
        assert error.code == "reply-not-valid"
    else:
        assert (answer.result is None) != (answer.error is None)
        assert withdrawn_answer(kind) != answer or answer.is_refusal
