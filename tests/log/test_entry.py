"""Frames: one event each, whatever an agent says; read back as they went in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.log.entry import (
    Draft,
    data_of,
    decode,
    decode_frames,
    dumps,
    encode_frames,
    spelled,
    split_frames,
    type_of,
)
from bridge.protocol.connection import Connection, Notified

FAST = settings(max_examples=150, deadline=None)
NASTY = ["\u2028", "\x00", "\r", "\n", "\x1b[31m", "\u202e", "\ud83d", '"', "\\", ',"params":', ""]
text = st.one_of(st.text(max_size=20), st.lists(st.sampled_from(NASTY)).map("".join))
drafts = st.builds(
    Draft,
    text,
    st.dictionaries(text, text, max_size=2).map(lambda each: json.dumps(each).encode()),
    st.one_of(st.none(), st.text(min_size=1, max_size=5)),
    st.one_of(st.none(), text),
    st.booleans(),
    st.one_of(st.none(), text),
    st.one_of(st.none(), text),
)


def encode(given: list[Draft]) -> bytes:
    return encode_frames(given, session_id="ses_a", time="T", first_seq=5, first_id=90)


@FAST
@given(st.lists(drafts, min_size=1, max_size=5))
def test_every_draft_is_one_event_and_comes_back_as_it_was(given: list[Draft]) -> None:
    body = encode(given)
    frames = split_frames(body)
    assert len(frames) == len(given)
    assert b"".join(frames) == body
    assert b"\r" not in body
    for index, (frame, entry, each) in enumerate(
        zip(frames, decode_frames(body), given, strict=True)
    ):
        lines = frame.split(b"\n")
        assert [line.split(b": ")[0] for line in lines] == [b"id", b"event", b"data", b"", b""]
        assert lines[0] == b"id: %d" % (5 + index)
        assert type_of(frame) == spelled(each.type)
        assert json.loads(data_of(frame))["params"] == json.loads(each.params)
        assert (entry.seq, entry.id, entry.session_id, entry.time) == (
            5 + index,
            90 + index,
            "ses_a",
            "T",
        )
        assert entry == decode(data_of(frame))
        back = Draft(
            entry.type,
            entry.params,
            entry.turn_id,
            entry.request_id,
            entry.is_replay,
            entry.subagent,
            entry.file_url,
        )
        assert back == each


def test_params_with_a_line_separator_go_through_as_they_are() -> None:
    params = '{"text":"a\u2028b\u2029c\u0085"}'.encode()
    body = encode([Draft("session/update", params)])
    assert body.count(b"\n\n") == 1
    assert data_of(body).endswith(b',"params":' + params + b"}")


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n", b"\n\ndata: forged\n\n"])
def test_params_of_more_than_one_line_are_refused(end: bytes) -> None:
    with pytest.raises(ValueError, match="one line"):
        encode([Draft("session/update", b"{}"), Draft("session/update", b"{" + end + b"}")])


LINE_SEPARATORS = [
    "\n",
    "\r",
    "\r\n",
    "\v",
    "\f",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\u2028",
    "\u2029",
]


@pytest.mark.parametrize("separator", LINE_SEPARATORS)
def test_no_separator_that_an_agent_sends_ends_a_frames_line(separator: str) -> None:
    """Between its tokens, in its texts raw and escaped: what is an entry at all is one frame."""
    escaped = json.dumps(separator)[1:-1]
    for params in (
        f'{{"a":{separator}1}}',
        f'{separator}{{"a":1{separator}}}{separator}',
        f'{{"a":"{separator}data: forged"}}',
        f'{{"a":"{escaped}data: forged","\\ud83d":1}}',
    ):
        line = f'{{"jsonrpc":"2.0","method":"session/update","params":{params}}}\n'
        received = Connection().receive(line.encode())
        drafts = [Draft(each.method, each.params) for each in received if type(each) is Notified]
        body = encode([Draft("first", b"{}"), *drafts])
        frames = split_frames(body)
        assert len(frames) == 1 + len(drafts)
        assert body.count(b"\n") == 4 * len(frames)
        assert b"\r" not in body
        assert all(json.loads(data_of(frame)) for frame in frames)


@pytest.mark.parametrize("kind", ["a\nid: 7", "a\r\nb", "\x00", "a\u2028b", "\ud83d", "\x7f\u0085"])
def test_a_type_never_leaves_its_line(kind: str) -> None:
    body = encode([Draft(kind, b"{}")])
    assert body.count(b"\n") == 4
    assert "\u2028" not in body.decode()
    assert json.loads(data_of(body))["type"] == kind
    assert next(decode_frames(body)).type == kind


def test_what_drafts_share_is_written_into_each() -> None:
    first = Draft("a", b"1", "turn_1", file_url="/x")
    given = [first, Draft("a", b"2", "turn_1"), Draft("a", b"3", "turn_1"), first, Draft("a", b"4")]
    entries = list(decode_frames(encode(given)))
    assert [each.file_url for each in entries] == ["/x", None, None, "/x", None]
    assert [each.turn_id for each in entries] == ["turn_1"] * 4 + [None]
    assert [each.params for each in entries] == [b"1", b"2", b"3", b"1", b"4"]


def test_a_single_frame_is_not_copied() -> None:
    body = encode([Draft("a", b'"' + b"x" * 1000 + b'"')])
    assert split_frames(body)[0] is body


def test_our_own_json_is_ascii_on_one_line() -> None:
    assert dumps({"a": "\u2028\n\ud83d"}) == b'{"a":"\\u2028\\n\\ud83d"}'
