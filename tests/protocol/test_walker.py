"""Raw members of objects that hold lone surrogates."""

from __future__ import annotations

import json
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.protocol.walker import members


class Pair(msgspec.Struct):
    a: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    b: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


DECODER = msgspec.json.Decoder(Pair)
PIECES = st.sampled_from(
    [
        "x",
        "\\\\",
        "\\n",
        '\\"',
        "\\ud83d",
        "\\uDE00",
        "\\uD83D",
        "\\ude00",
        "\\ud83d\\ude00",
        "\\\\ud83d",
        "\\ue000",
        "\\uE000",
        "\\u1f00",
        "\\u0041",
        "\u00e4",
        "{",
        "]",
    ]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def sliced(data: bytes) -> dict[str, bytes]:
    return members(DECODER, data)


@settings(deadline=None)
@given(TEXTS, TEXTS, TEXTS)
def test_members_come_out_byte_for_byte(first: str, second: str, other: str) -> None:
    a, b = f'{{"{other}":["{first}"]}}'.encode(), f'"{second}"'.encode()
    line = b'{ "a" : %b,"%b":0,"b":%b}' % (a, other.encode(), b)
    assert sliced(line) == {"a": a, "b": b}


@settings(deadline=None)
@given(TEXTS)
def test_what_the_standard_library_reads_is_sliced_and_the_rest_raises(text: str) -> None:
    data = f'{{"a":"{text}'.encode()
    for line in (data, data + b'"', data + b'"}', data + b'"}}'):
        try:
            json.loads(line)
        except ValueError:
            with pytest.raises(msgspec.DecodeError):
                sliced(line)
        else:
            assert sliced(line) == {"a": line[5:-1]}


def test_of_duplicate_members_the_last_counts() -> None:
    assert sliced(b'{"a":1,"a":"\\ud83d"}') == {"a": b'"\\ud83d"'}


def test_members_not_named_and_nested_ones_are_passed_over() -> None:
    assert sliced(b'{"c":{"a":"\\ud83d"},"b":2}') == {"b": b"2"}


def test_an_escaped_name_is_the_same_name() -> None:
    assert sliced(b'{"\\u0061":"\\udc00"}') == {"a": b'"\\udc00"'}


def test_a_line_that_uses_every_disguise_is_refused() -> None:
    every = "".join(f"\\\\u{digit}" for digit in "0123456789abcefABCEF")
    with pytest.raises(msgspec.DecodeError):
        sliced(f'{{"a":"{every}","b":"\\ud83d"}}'.encode())


@pytest.mark.parametrize(
    "rest", [b"NaN", b"01", b"tru", b'"\t"', b'"\\q"', b'"\\ud8"', b"[1,]", b""]
)
def test_a_lone_surrogate_makes_nothing_else_pass(rest: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        sliced(b'{"a":"\\ud83d","b":' + rest + b"}")


@pytest.mark.parametrize("bracket", [b"[", b'{"a":'])
def test_a_depth_bomb_raises_recursion_error(bracket: bytes) -> None:
    with pytest.raises(RecursionError):
        sliced(b'{"b":"\\ud83d","a":' + bracket * 200_000)


def test_long_runs_of_backslashes_take_linear_time() -> None:
    started = time.process_time()
    slashes = b"\\" * 4_000_000
    assert sliced(b'{"a":"\\ud83d%b"}' % slashes) == {"a": b'"\\ud83d%b"' % slashes}
    assert time.process_time() - started < 5


def test_many_escapes_around_one_lone_surrogate_take_linear_time() -> None:
    raw = b'"\\ud83d' + b"\\ud83d\\ude00\\n\\u00e4" * 200_000 + b'"'
    started = time.process_time()
    assert sliced(b'{"a":%b}' % raw) == {"a": raw}
    assert time.process_time() - started < 3


def test_nothing_but_lone_surrogates_runs_at_the_speed_of_the_parser() -> None:
    raw = b'"' + b"\\ud83d \\uDC00 " * 600_000 + b'"'
    started = time.process_time()
    assert sliced(b'{"a":%b}' % raw) == {"a": raw}
    assert time.process_time() - started < 1
