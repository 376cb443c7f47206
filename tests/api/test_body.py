"""JSON bodies: what two parsers could read differently is refused, and never as our own fault."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.api import reading, schemas
from bridge.api.body import parse_json
from bridge.api.problems import MalformedRequest
from bridge.errors import CallerError


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nul",
        b"{}{}",
        b"'a'",
        b"[1,]",
        b"\xff\xfe{\x00}\x00",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"-1e999",
        b"9" * 5000,
        b"-" + b"9" * 5000,
        b"18446744073709551616",
        b"-9223372036854775809",
        b'"\\ud83d"',
        b'"\\uDE00"',
        b'{"\\ud800": 1}',
        b'{"a": 1, "a": 2}',
        b'{"a": 1, "\\u0061": 2}',
        b'{"x": [{"a": 1, "a": 1}]}',
    ],
)
def test_bad_json_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        parse_json(body)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"{}", {}),
        (b' [1, -2, 3.5, true, null, "a"] ', [1, -2, 3.5, True, None, "a"]),
        (b"18446744073709551615", 2**64 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\\\ud83d"', "\\ud83d"),
        ('"\u2028ä"'.encode(), "\u2028ä"),
        (b'{"a": {"a": 1}}', {"a": {"a": 1}}),
    ],
)
def test_good_json_is_taken(body: bytes, value: Any) -> None:
    assert parse_json(body) == value


@given(st.binary() | st.text(alphabet='{}[]",:\\u0123456789deEN+-. ').map(str.encode))
def test_any_bytes_are_a_value_or_a_malformed_request(body: bytes) -> None:
    try:
        parse_json(body)
    except MalformedRequest:
        return


def test_an_unknown_member_is_told_with_those_there_are() -> None:
    with pytest.raises(CallerError) as refused:
        reading.checked(schemas.ModeBody, {"mode": "x"})
    told = {each["pointer"]: each["detail"] for each in refused.value.extra["errors"]}
    assert told["#/mode"] == "This member is not known here; there are modeId."
