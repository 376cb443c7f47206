"""Lines out of bytes: whatever way the bytes were cut, and whatever size a line has."""

from __future__ import annotations

import itertools
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.protocol.framing import LineSplitter, Overflow

LIMIT = 8
STREAMS = st.lists(
    st.sampled_from([b"\n", b"\r", b" ", b"a", b"{}", b"\xe2\x80\xa8", b"12345678", b"\x85\x0b"])
).map(b"".join)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def lines_of(reads: list[bytes], limit: int = LIMIT) -> list[bytes | Overflow]:
    splitter = LineSplitter(limit)
    found = [line for read in reads for line in splitter.feed(read)]
    return found + splitter.eof()


def expected(data: bytes) -> list[bytes | Overflow]:
    found: list[bytes | Overflow] = []
    for line in data.split(b"\n"):
        if len(line) > LIMIT:
            found.append(Overflow(len(line)))
        elif line.strip():
            found.append(line.removesuffix(b"\r"))
    return found


@settings(deadline=None)
@given(STREAMS, st.lists(st.integers(0, 1000), max_size=8))
def test_any_cut_of_the_bytes_gives_the_same_lines(data: bytes, places: list[int]) -> None:
    assert lines_of(cut(data, places)) == expected(data)


@settings(deadline=None)
@given(STREAMS)
def test_byte_by_byte_gives_the_same_lines(data: bytes) -> None:
    assert lines_of([bytes([byte]) for byte in data]) == expected(data)


def test_only_a_line_feed_ends_a_line() -> None:
    text = "a\u2028b\x85c\x0bd\x0ce\rf".encode()
    assert lines_of([text + b"\n"], 100) == [text]


def test_a_crlf_cut_between_its_halves_is_one_end() -> None:
    assert lines_of([b"a\r", b"\nb\r\n"]) == [b"a", b"b"]


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b"  \n", b"\t\r\n"])
def test_blank_lines_are_dropped(blank: bytes) -> None:
    assert lines_of([b"a\n" + blank + b"b\n"]) == [b"a", b"b"]


def test_a_line_of_exactly_the_limit_passes() -> None:
    assert lines_of([b"x" * LIMIT + b"\n" + b"y" * (LIMIT + 1) + b"\n"]) == [
        b"x" * LIMIT,
        Overflow(LIMIT + 1),
    ]


def test_a_line_over_the_limit_is_reported_once_with_its_whole_size_and_the_next_is_whole() -> None:
    splitter = LineSplitter(LIMIT)
    assert [splitter.feed(b"x" * 5) for _ in range(10)] == [[]] * 10
    assert splitter.feed(b"x\nnext\n") == [Overflow(51), b"next"]


def test_an_unterminated_rest_comes_with_the_end_and_only_once() -> None:
    splitter = LineSplitter(LIMIT)
    assert splitter.feed(b"a\nrest") == [b"a"]
    assert splitter.eof() == [b"rest"]
    assert splitter.eof() == []


def test_an_unterminated_line_over_the_limit_is_reported_at_the_end() -> None:
    assert lines_of([b"x" * 20]) == [Overflow(20)]


def test_skipping_a_line_holds_none_of_it() -> None:
    splitter = LineSplitter(1024)
    read = b"x" * 65536
    tracemalloc.start()
    try:
        for _ in range(1000):
            splitter.feed(read)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 * 1024
    assert splitter.feed(b"\n") == [Overflow(65_536_000)]


def test_a_line_in_many_reads_costs_time_in_proportion_to_its_size() -> None:
    splitter = LineSplitter()
    read = b"x" * 65536
    started = time.process_time()
    for _ in range(1023):
        assert splitter.feed(read) == []
    (line,) = splitter.feed(b"\n")
    # Joined read by read it would copy 32 GiB; once it copies 64 MiB.
    assert time.process_time() - started < 2
    assert isinstance(line, bytes)
    assert len(line) == 1023 * 65536
