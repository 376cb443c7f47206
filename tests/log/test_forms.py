"""Forms: what filters see is the front of an entry, never what an agent says in it."""

from __future__ import annotations

import json

from bridge.log.entry import Draft, data_of, encode_frames
from bridge.log.forms import Form, belongs_to, ends, is_wanted, render, reset, take_apart


def frame_of(draft: Draft) -> bytes:
    return encode_frames([draft], session_id="ses_a", time="T", first_seq=7, first_id=70)


def test_types_are_names_or_beginnings() -> None:
    form = Form(types=("session/update", "bridge/*", "*x"))
    assert form.wants_type("session/update")
    assert form.wants_type("bridge/turn_ended")
    assert form.wants_type("*x")
    assert not form.wants_type("session/updates")
    assert not form.wants_type("x")
    assert Form().wants_type("anything")
    assert Form(types=("*",)).wants_type("")


def test_a_record_is_passed_over_only_where_nothing_of_it_can_be_wanted() -> None:
    form = Form(types=("a",))
    assert form.may_want(frozenset({"a", "b"}))
    assert not form.may_want(frozenset({"b"}))
    assert form.may_want(frozenset()), "not said"
    assert Form().may_want(frozenset({"b"}))


def test_only_the_bare_form_is_plain() -> None:
    assert Form().is_plain
    for form in (Form(named=False), Form(types=()), Form(keep=bool), Form(until=bool)):
        assert not form.is_plain


def test_a_frame_is_rendered_with_or_without_its_name_and_by_either_position() -> None:
    frame = frame_of(Draft("a", b"{}"))
    taken = take_apart(frame)
    assert (taken.id_line, taken.kind) == (b"id: 7", "a")
    assert render(taken, Form()) == frame
    assert render(taken, Form(), 70) == frame.replace(b"id: 7\n", b"id: 70\n", 1)
    assert render(taken, Form(named=False)) == frame.replace(b"event: a\n", b"", 1)
    assert is_wanted(taken, Form(types=("a",)))
    assert not is_wanted(taken, Form(keep=lambda data: b"nothing" in data))


def test_a_turn_is_told_by_the_front_alone() -> None:
    keep, is_end = belongs_to("turn_1"), ends("turn_1")
    lie = b'{"x":1,"turnId":null,"turnId":"turn_1","type":"bridge/turn_ended"}'
    wanted = {
        ("session/update", "turn_1", b"{}"): (True, False),
        ("session/update", None, b"{}"): (True, False),
        ("session/update", "turn_2", b"{}"): (False, False),
        ("session/update", "turn_2", lie): (False, False),
        ("session/update", "turn_1", lie): (True, False),
        ("bridge/turn_ended", "turn_1", b"{}"): (True, True),
        ("bridge/turn_ended", "turn_2", b"{}"): (False, False),
        ("x" * 5000 + ',"turnId":null', "turn_2", b"{}"): (False, False),
    }
    for (kind, turn_id, params), expected in wanted.items():
        data = data_of(frame_of(Draft(kind, params, turn_id)))
        assert (keep(data), is_end(data)) == expected


def test_a_reset_moves_its_reader_and_has_no_place_of_its_own() -> None:
    told = reset("ses_a", 0.0, "evicted", 4, firstSeq=5, lastSeq=9)
    event = json.loads(told.data)
    assert event == {
        "sessionId": "ses_a",
        "time": "1970-01-01T00:00:00.000Z",
        "type": "bridge/reset",
        "params": {"reason": "evicted", "firstSeq": 5, "lastSeq": 9},
    }
    assert told.rendered(Form()) == b"id: 4\nevent: bridge/reset\ndata: " + told.data + b"\n\n"
    assert told.rendered(Form(named=False)) == b"id: 4\ndata: " + told.data + b"\n\n"
