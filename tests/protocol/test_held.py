"""Held requests: what is held, what is answered at once, and that each gets one answer."""

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
    Resolution,
    allowed_option_ids,
    auto_answer,
    held_from_json,
    kind_of,
    permission_options,
    withdrawn_answer,
)

AT = "2026-12-01T10:00:00.000Z"
ALLOW = Answer(b'{"outcome":{"outcome":"accepted"}}', None, {"outcome": "accepted"})


def request(
    request_id: str = "req_1",
    *,
    kind: Kind = "plan",
    session_id: str = "ses_1",
    turn_id: str | None = "turn_1",
    rpc_id: bytes = b"0",
    expires_at: str | None = None,
) -> HeldRequest:
    return HeldRequest(
        request_id=request_id,
        session_id=session_id,
        turn_id=turn_id,
        kind=kind,
        method="cursor/create_plan",
        params=b'{"plan":"p","unknown":1.5}',
        rpc_id=rpc_id,
        created_at=AT,
        expires_at=expires_at,
    )


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("session/request_permission", "permission"),
        ("cursor/ask_question", "question"),
        ("_cursor/ask_question", "question"),
        ("cursor/create_plan", "plan"),
        ("_cursor/create_plan", "plan"),
        ("elicitation/create", "elicitation"),
        ("cursor/something_new", "extension"),
        ("_vendor/ask", "extension"),
        ("cursor/update_todos", None),
        ("cursor/task", None),
        ("_cursor/generate_image", None),
        ("fs/write_text_file", None),
        ("terminal/create", None),
        ("craft/drainMidTurnQueue", None),
        ("__cursor/create_plan", "extension"),
    ],
)
def test_a_method_says_how_its_request_is_held(method: str, kind: str | None) -> None:
    assert kind_of(method) == kind


@pytest.mark.parametrize(
    ("method", "params", "outcome"),
    [
        (
            "cursor/update_todos",
            b'{"todos":[{"id":"1"}],"merge":true}',
            {"outcome": "accepted", "todos": [{"id": "1"}]},
        ),
        ("_cursor/update_todos", b'{"todos":[]}', {"outcome": "accepted", "todos": []}),
        ("cursor/update_todos", b'{"todos":7}', {"outcome": "rejected"}),
        ("cursor/update_todos", b"[1", {"outcome": "rejected"}),
        ("cursor/update_todos", b"[" * 100_000, {"outcome": "rejected"}),
        (
            "cursor/task",
            b'{"agentId":"a","durationMs":5,"prompt":"p","subagentType":{"custom":{}}}',
            {"outcome": "completed", "agentId": "a", "durationMs": 5},
        ),
        ("cursor/task", b'{"prompt":"p"}', {"outcome": "completed"}),
        ("cursor/task", b"null", {"outcome": "rejected"}),
        (
            "cursor/generate_image",
            b'{"filePath":"/w/a.png"}',
            {"outcome": "generated", "filePath": "/w/a.png"},
        ),
        ("cursor/generate_image", b'{"description":"d"}', {"outcome": "rejected"}),
        ("cursor/generate_image", b'{"filePath":""}', {"outcome": "rejected"}),
        ("cursor/generate_image", b'{"filePath":3}', {"outcome": "rejected"}),
    ],
)
def test_what_cursor_calls_notifications_is_answered_at_once_and_nested(
    method: str, params: bytes, outcome: dict[str, Any]
) -> None:
    answer = auto_answer(method, params)
    assert answer is not None
    assert json.loads(answer) == {"outcome": outcome}


def test_what_a_person_decides_is_never_answered_at_once() -> None:
    for method in ("session/request_permission", "cursor/create_plan", "_x/y", "fs/read_text_file"):
        assert auto_answer(method, b"{}") is None


OPTIONS = {
    "options": [
        {"optionId": "allow-once", "kind": "allow_once"},
        {"optionId": "allow-always", "kind": "allow_always"},
        {"optionId": "strange", "kind": "allow_for_ever"},
        {"optionId": "kindless"},
        {"optionId": "twice", "kind": "allow_once"},
        {"optionId": "twice", "kind": "allow_always"},
        {"optionId": "reject-once", "kind": "reject_once"},
        {"optionId": 7, "kind": "allow_once"},
        "no object",
    ]
}


def test_options_that_outlive_the_session_are_left_out_unless_permitted() -> None:
    raw = json.dumps(OPTIONS).encode()
    assert allowed_option_ids("permission", raw, allow_always=False) == (
        "allow-once",
        "reject-once",
    )
    assert allowed_option_ids("permission", raw, allow_always=True) == (
        "allow-once",
        "allow-always",
        "strange",
        "kindless",
        "twice",
        "reject-once",
    )


def test_only_permissions_have_option_ids_and_broken_options_offer_nothing() -> None:
    assert allowed_option_ids("plan", json.dumps(OPTIONS).encode(), allow_always=True) is None
    assert permission_options({"options": "none"}, allow_always=True) == []
    assert permission_options({}, allow_always=True) == []


def test_a_request_is_shown_as_the_contract_spells_it() -> None:
    ref = {"title": "t", "cwd": "/w", "agent": "cursor", "owner": "local"}
    shown = request().as_json(ref)
    assert shown == {
        "requestId": "req_1",
        "sessionId": "ses_1",
        "session": ref,
        "turnId": "turn_1",
        "kind": "plan",
        "method": "cursor/create_plan",
        "params": {"plan": "p", "unknown": 1.5},
        "toolCall": None,
        "allowedOptionIds": None,
        "status": "pending",
        "createdAt": AT,
        "expiresAt": None,
        "resolution": None,
    }


def test_a_resolution_and_the_allowed_options_are_shown() -> None:
    table = HeldRequests()
    held = HeldRequest(
        "req_1",
        "ses_1",
        None,
        "permission",
        "session/request_permission",
        b"{}",
        b"0",
        AT,
        allowed_option_ids=("a", "b"),
    )
    table.hold(held)
    shown = table.answer("req_1", ALLOW, "caller", "phone", AT).as_json({})
    assert shown["allowedOptionIds"] == ["a", "b"]
    assert shown["status"] == "answered"
    assert shown["resolution"] == {
        "by": "caller",
        "token": "phone",
        "outcome": {"outcome": "accepted"},
        "at": AT,
    }


def test_a_settled_request_is_read_back_from_how_it_was_shown() -> None:
    table = HeldRequests()
    table.hold(replace(request(), allowed_option_ids=("a",)))
    shown = table.answer("req_1", ALLOW, "caller", "phone", AT).as_json({})
    assert held_from_json(shown).as_json({}) == shown
    waiting = request().as_json({})
    assert held_from_json(waiting).as_json({}) == waiting


@pytest.mark.parametrize(
    ("kind", "result", "error"),
    [
        ("permission", {"outcome": {"outcome": "cancelled"}}, None),
        ("question", {"outcome": {"outcome": "cancelled"}}, None),
        ("plan", {"outcome": {"outcome": "cancelled"}}, None),
        ("elicitation", {"action": "cancel"}, None),
        ("extension", None, (-32800, "Request cancelled")),
    ],
)
def test_what_is_withdrawn_reaches_the_agent_as_cancelled(
    kind: Kind, result: object, error: object
) -> None:
    answer = withdrawn_answer(kind)
    assert (None if answer.result is None else json.loads(answer.result)) == result
    assert answer.error == error
    assert answer.is_refusal


def test_the_table_keeps_order_and_finds_by_session_turn_and_the_agents_id() -> None:
    table = HeldRequests()
    table.hold(request("req_1", rpc_id=b"0"))
    table.hold(request("req_2", rpc_id=b'"0"', turn_id="turn_2"))
    table.hold(request("req_3", rpc_id=b"0", session_id="ses_2"))
    table.hold(request("req_4", rpc_id=b"0"))
    assert [r.request_id for r in table.pending()] == ["req_1", "req_2", "req_3", "req_4"]
    assert [r.request_id for r in table.pending(session_id="ses_2")] == ["req_3"]
    assert [r.request_id for r in table.pending(turn_id="turn_2")] == ["req_2"]
    newest = table.by_rpc_id("ses_1", b"0")
    assert newest is not None
    assert newest.request_id == "req_4"
    assert table.by_rpc_id("ses_2", b'"0"') is None
    assert len(table) == 4
    assert repr(table) == "<HeldRequests pending=4 settled=0>"


def test_an_id_of_the_agent_no_longer_finds_a_request_that_is_settled() -> None:
    table = HeldRequests()
    table.hold(request())
    table.withdraw("req_1", "agent-cancelled", AT)
    assert table.by_rpc_id("ses_1", b"0") is None


def test_a_request_is_held_once_and_only_while_it_waits() -> None:
    table = HeldRequests()
    table.hold(request())
    with pytest.raises(ValueError, match="cannot be held anew"):
        table.hold(request())
    settled = table.answer("req_1", ALLOW, "policy", None, AT)
    with pytest.raises(ValueError, match="answered"):
        HeldRequests().hold(settled)


def test_an_unknown_request_is_not_found() -> None:
    for act in (
        lambda: HeldRequests().get("req_9"),
        lambda: HeldRequests().answer("req_9", ALLOW, "caller", None, AT),
        lambda: HeldRequests().withdraw("req_9", "cancel", AT),
    ):
        with pytest.raises(CallerError) as caught:
            act()
        assert caught.value.code == "request-not-found"


def test_who_comes_second_hears_how_the_request_was_settled() -> None:
    table = HeldRequests()
    table.hold(request())
    table.answer("req_1", ALLOW, "caller", "phone", AT)
    with pytest.raises(CallerError) as late:
        table.answer("req_1", ALLOW, "caller", "laptop", AT)
    assert late.value.code == "request-already-answered"
    assert late.value.extra["resolution"]["token"] == "phone"
    with pytest.raises(CallerError) as withdrawal:
        table.withdraw("req_1", "cancel", AT)
    assert withdrawal.value.code == "request-already-answered"
    table.hold(request("req_2"))
    table.withdraw("req_2", "turn-ended", AT)
    with pytest.raises(CallerError) as gone:
        table.answer("req_2", ALLOW, "caller", "phone", AT)
    assert gone.value.code == "request-withdrawn"
    assert gone.value.extra["resolution"]["by"] == "turn-ended"


def test_time_limits_are_a_sweep_and_can_be_moved_while_the_request_waits() -> None:
    table = HeldRequests()
    table.hold(request("req_1", expires_at="2026-12-01T10:00:05.000Z"))
    table.hold(request("req_2"))
    assert table.due("2026-12-01T10:00:04.999Z") == []
    assert [r.request_id for r in table.due("2026-12-01T10:00:05.000Z")] == ["req_1"]
    assert table.set_expiry("req_1", None).expires_at is None
    assert table.due("2027-01-01T00:00:00.000Z") == []
    table.set_expiry("req_2", AT)
    assert [r.request_id for r in table.due(AT)] == ["req_2"]
    table.withdraw("req_2", "cancel", AT)
    with pytest.raises(CallerError):
        table.set_expiry("req_2", None)


def test_settled_requests_are_kept_up_to_a_bound_and_waiting_ones_without() -> None:
    table = HeldRequests(max_settled=2)
    for number in range(5):
        table.hold(request(f"req_{number}"))
    for number in range(3):
        table.answer(f"req_{number}", ALLOW, "caller", None, AT)
    assert "req_0" not in table
    assert table.get("req_1").status == "answered"
    assert len(table) == 2


def test_a_session_that_is_gone_is_forgotten_but_for_what_still_waits() -> None:
    table = HeldRequests()
    for request_id, session_id in (("req_1", "ses_1"), ("req_2", "ses_1"), ("req_3", "ses_2")):
        table.hold(request(request_id, session_id=session_id))
    table.answer("req_1", ALLOW, "caller", None, AT)
    table.answer("req_3", ALLOW, "caller", None, AT)
    table.forget("ses_1")
    assert "req_1" not in table
    assert "req_2" in table
    assert "req_3" in table


moves = st.lists(
    st.tuples(st.sampled_from(["answer", "withdraw", "expire"]), st.integers(0, 3)), max_size=30
)


@given(moves)
def test_each_request_leaves_pending_at_most_once_in_any_order(
    steps: list[tuple[str, int]],
) -> None:
    table = HeldRequests()
    for number in range(4):
        table.hold(request(f"req_{number}"))
    sent: dict[str, Resolution | None] = {}
    for move, number in steps:
        request_id = f"req_{number}"
        try:
            if move == "answer":
                settled = table.answer(request_id, ALLOW, "caller", "t", AT)
            elif move == "withdraw":
                settled, _ = table.withdraw(request_id, "cancel", AT)
            else:
                table.set_expiry(request_id, AT)
                continue
        except CallerError:
            assert request_id in sent
            continue
        assert request_id not in sent
        sent[request_id] = settled.resolution
    for request_id, resolution in sent.items():
        assert table.get(request_id).resolution == resolution
    assert {r.request_id for r in table.pending()} == {f"req_{n}" for n in range(4)} - set(sent)
