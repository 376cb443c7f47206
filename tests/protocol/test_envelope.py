"""One line into the parts of a message: what passes is JSON, UTF-8, one line, the agent's bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from bridge.protocol.envelope import Envelope, Unreadable, decode, is_utf8, text_of

ODDITIES = st.sampled_from(
    [
        b'{"method":"x","params":',
        b'{"a":"',
        b'"',
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\r",
        b"\t",
        b" ",
        b"\x00",
        b"\x1f",
        b"\x7f",
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\xbd",
        b"\xe2\x80\xa8",
        b"\\ud83d",
        b"\\\\",
        b"\\q",
        b"1e999",
        b"-0",
        b"01",
        b"NaN",
        b"null",
        b'"id":',
        b'"result":',
        b"\xef\xbb\xbf",
    ]
)


def envelope_of(line: bytes) -> Envelope:
    envelope = decode(line)
    assert isinstance(envelope, Envelope)
    return envelope


def fault_of(line: bytes) -> str:
    fault = decode(line)
    assert isinstance(fault, Unreadable)
    return fault.code


def params_of(line: bytes) -> bytes:
    params = envelope_of(line).params
    assert params is not UNSET
    return bytes(params)


@settings(deadline=None)
@given(st.lists(ODDITIES, max_size=12).map(b"".join))
def test_what_passes_is_one_line_of_json_in_utf8(payload: bytes) -> None:
    for line in (payload, b'{"id":0,"method":"x","params":%b}' % payload):
        envelope = decode(line)
        if isinstance(envelope, Unreadable):
            continue
        for raw in (envelope.id, envelope.params, envelope.result, envelope.error):
            if raw is not UNSET:
                text = bytes(raw).decode()
                assert "\r" not in text
                assert "\n" not in text
                json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "params",
    [
        b"{}",
        b'{ "b" : 1 , "a" : [ 1.0, -0, 1e999 ] }',
        b'{"a":1,"a":2}',
        b'{"a":"\\ud83d","b":"\\uDE00 \\ud83d\\ude00"}',
        '{"\u2028":"\U0001f600\x7f"}'.encode(),
        b'{"method":"y","id":1,"params":{"params":2}}',
        b'{"n":' + b"9" * 5000 + b"}",
    ],
)
def test_params_pass_byte_for_byte(params: bytes) -> None:
    for line in (
        b'{"method":"x","params":%b}' % params,
        b'{"params": %b ,"other":{"method":"z","params":0},"method":"x"}' % params,
        b'{"params":[],"meth\\u006fd":"y","method":"x","params":%b}' % params,
    ):
        assert params_of(line) == params
        assert envelope_of(line).method == "x"


def test_a_carriage_return_between_tokens_becomes_a_space() -> None:
    assert params_of(b'{"method":"x",\r"params":{\r"a":\r"\\r"}}') == b'{ "a": "\\r"}'


@pytest.mark.parametrize("char", [b"\r", b"\t", b"\x00", b"\x1f", b"\n"])
def test_a_control_character_in_a_string_is_no_json(char: bytes) -> None:
    assert fault_of(b'{"method":"x","params":{"a":"%b"}}' % char) == "not-a-message"


@pytest.mark.parametrize("text", [b"\xff", b"\xc0\x80", b"\xed\xa0\xbd", b"\xe2\x80"])
@pytest.mark.parametrize("member", [b"params", b"other"])
def test_broken_utf8_is_told_with_what_the_message_was(member: bytes, text: bytes) -> None:
    fault = decode(b'{"id":3,"method":"x","%b":{"a":"%b"}}' % (member, text))
    assert isinstance(fault, Unreadable)
    assert fault.code == "invalid-utf8"
    assert fault.envelope is not None
    assert fault.envelope.method == "x"
    assert bytes(fault.envelope.id or b"") == b"3"


@pytest.mark.parametrize("line", [b"[]", b"1", b'"x"', b"null", b"x", b"", b"{", b"{}x", b"{} {}"])
def test_what_is_no_object_is_no_message(line: bytes) -> None:
    assert fault_of(line) == "not-a-message"


@pytest.mark.parametrize("bomb", [b"[", b'{"a":', b'[{"a":'])
def test_a_depth_bomb_is_too_deep(bomb: bytes) -> None:
    assert fault_of(b'{"method":"x","params":' + bomb * 100_000) == "too-deep"


@pytest.mark.parametrize("method", [b"1", b"null", b"[]", b"{}", b'"\xff"'])
def test_a_method_that_is_no_string_is_none_and_not_absent(method: bytes) -> None:
    line = b'{"id":1,"method":%b}' % method
    found = decode(line)
    envelope = found.envelope if isinstance(found, Unreadable) else found
    assert envelope is not None
    assert envelope.method is None


def test_null_and_absent_are_told_apart() -> None:
    envelope = envelope_of(b'{"id":null,"result":null}')
    assert envelope.method is UNSET
    assert envelope.error is UNSET
    assert bytes(envelope.id or b"") == bytes(envelope.result or b"") == b"null"


@settings(deadline=None)
@given(st.binary(max_size=20), st.integers(0, 4))
def test_large_texts_are_checked_like_small_ones(tail: bytes, shift: int) -> None:
    data = b"x" * (1024 * 1024 - shift) + "\u20ac".encode() + tail
    try:
        data.decode()
    except UnicodeDecodeError:
        assert not is_utf8(data)
    else:
        assert is_utf8(data)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'"a\\ud83d"', "a\ud83d"),
        (b'""', ""),
        (b"1", None),
        (b"null", None),
        (b"", None),
        (b'"', None),
        (b'"\xff"', None),
    ],
)
def test_text_of_a_raw_value(raw: bytes, text: str | None) -> None:
    assert text_of(raw) == text
