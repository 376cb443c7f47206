"""A session's cursor: resumes, resets, pages, ends, slices and bounds, one at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import StorageError
from bridge.log.cursor import SCAN_BYTES, SessionCursor
from bridge.log.entry import Draft
from bridge.log.forms import Form, belongs_to, ends
from bridge.log.store import RECORD_BYTES, Store
from tests.log.logs import Reader, descriptors, draft, drain, open_store, read_all

NAME = "ses_a"
CONDITIONS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def cursor_of(store: Store, after: int | None = 0, **form: Any) -> SessionCursor:
    return SessionCursor(store.log(NAME), after=after, form=Form(**form))


def shown(events: list[bytes]) -> list[Any]:
    parsed = [json.loads(event) for event in events]
    return [each.get("seq", each["params"].get("reason")) for each in parsed]


@pytest.mark.parametrize("tail_bytes", [1, 10**7])
@pytest.mark.parametrize("named", [True, False])
def test_a_cut_at_every_byte_and_a_resume_give_the_exact_log(
    tmp_path: Path, tail_bytes: int, named: bool
) -> None:
    store = open_store(tmp_path, tail_bytes=tail_bytes)
    store.append(NAME, [draft("one"), draft("two")])
    store.append(NAME, [draft("three")])
    store.append(NAME, [draft("four"), draft("five"), draft("six")])
    whole = b"".join(drain(cursor_of(store, named=named)))
    for at in range(len(whole)):
        reader = Reader()
        reader.feed(whole[:at])
        reader.cut()
        for piece in drain(cursor_of(store, reader.last_id, named=named)):
            reader.feed(piece)
        assert reader.seqs == [1, 2, 3, 4, 5, 6]


@CONDITIONS
@given(
    st.sampled_from([1, 10, 100, 4000, 65_536, 300_000]),
    st.integers(0, 420_000),
    st.booleans(),
    st.booleans(),
)
def test_a_cut_within_a_large_record_resumes_at_the_last_complete_entry(
    tmp_path_factory: pytest.TempPathFactory, max_bytes: int, at: int, named: bool, is_live: bool
) -> None:
    store = open_store(tmp_path_factory.mktemp("log"), tail_bytes=10**7 if is_live else 1)
    for text in ("one", "x" * 400_000, "three"):
        store.append(NAME, [draft(text)])
    reader, cursor = Reader(), cursor_of(store, named=named)
    while at > 0 and not cursor.is_at_end:
        piece = cursor.take(max(max_bytes, 1000))
        reader.feed(piece[:at])
        at -= len(piece) or 1
    reader.cut()
    assert cursor.position >= reader.last_id
    for piece in drain(cursor_of(store, reader.last_id, named=named), max(max_bytes, 1000)):
        reader.feed(piece)
    assert reader.seqs == [1, 2, 3]


def test_no_piece_is_larger_than_asked_and_one_small_record(tmp_path: Path) -> None:
    for tail_bytes in (1, 10**8):
        store = open_store(tmp_path / str(tail_bytes), tail_bytes=tail_bytes, segment_bytes=10**6)
        for size in (10, 70_000, 131_072, 10, 2_000_000, 90_000):
            store.append(NAME, [draft("x" * size)])
        store.append(NAME, [draft("x" * 60_000) for _ in range(12)])
        for form in (Form(), Form(named=False), Form(types=("session/*",))):
            for max_bytes in (200, 65_536, 262_144):
                cursor = SessionCursor(store.log(NAME), after=0, form=form)
                pieces = list(drain(cursor, max_bytes))
                one = 0 if form.is_plain and max_bytes >= 65_536 else RECORD_BYTES + 8192
                assert max(map(len, pieces)) <= max_bytes + one
                reader = Reader()
                reader.feed(b"".join(pieces))
                assert reader.seqs == list(range(1, 19))


def test_a_filter_that_wants_nothing_looks_at_so_much_at_a_time(tmp_path: Path) -> None:
    for tail_bytes in (1, 10**8):
        store = open_store(tmp_path / str(tail_bytes), tail_bytes=tail_bytes, segment_bytes=10**6)
        for _ in range(60):
            store.append(NAME, [draft("x" * 60_000)])
        store.append(NAME, [draft("x" * 1_000_000)])
        for form in (Form(types=("nothing",)), Form(keep=lambda _: False)):
            cursor = SessionCursor(store.log(NAME), after=0, form=form)
            first = cursor.take()
            assert first == b"id: %d\n\n" % cursor.position
            assert cursor.position * 60_000 <= SCAN_BYTES + 200_000
            assert read_all(cursor).last_id == 61
            page = SessionCursor(store.log(NAME), after=0, form=form).page(10, 500_000)
            assert page.events == []
            assert page.more
            assert 0 < page.next_after < 15


def test_a_position_ahead_of_the_end_is_said_and_goes_on_from_there(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append(NAME, [draft(), draft()])
    for form in ({}, {"types": ("bridge/*",)}, {"named": False}):
        cursor = cursor_of(store, 99, **form)
        assert cursor.preamble() == b"retry: 1000\nid: 99\n\n"
        reader = read_all(cursor)
        assert reader.resets == [{"reason": "ahead", "firstSeq": 1, "lastSeq": 2}]
        assert reader.last_id == cursor.position == 2
        assert "at 2" in repr(cursor)
    store.append(NAME, [draft("new")])
    assert read_all(cursor).seqs == [3]
    page = cursor_of(store, 99).page(10)
    assert (shown(page.events), page.next_after, page.more) == (["ahead"], 3, False)
    empty = SessionCursor(store.log("ses_b"), after=5, form=Form())
    assert read_all(empty).resets == [{"reason": "ahead", "firstSeq": 1, "lastSeq": 0}]


def evicted_store(root: Path) -> Store:
    store = open_store(root, segment_bytes=1)
    for number in range(6):
        store.append(NAME, [draft(str(number))])
    store.evict(NAME, before=None, max_bytes=700)
    assert store.log(NAME).first_seq == 4
    return store


def test_what_was_evicted_is_said_before_what_is_kept(tmp_path: Path) -> None:
    store = evicted_store(tmp_path)
    reader = read_all(cursor_of(store, 1))
    assert [each["type"] for each in reader.events][:2] == ["bridge/reset", "session/update"]
    assert reader.resets == [{"reason": "evicted", "firstSeq": 4, "lastSeq": 6}]
    assert reader.seqs == [4, 5, 6]
    assert read_all(cursor_of(store, 3)).resets == []
    assert read_all(cursor_of(store, None)).resets == []
    assert cursor_of(store, None).preamble() == b"retry: 1000\nid: 3\n\n"


def test_pages_are_limited_say_resets_first_and_whether_there_is_more(tmp_path: Path) -> None:
    store = evicted_store(tmp_path)
    first = cursor_of(store, 0).page(2)
    assert (shown(first.events), first.next_after, first.more) == (["evicted", 4], 4, True)
    second = cursor_of(store, first.next_after).page(2)
    assert (shown(second.events), second.next_after, second.more) == ([5, 6], 6, False)
    last = cursor_of(store, 6).page(2)
    assert (last.events, last.next_after, last.more) == ([], 6, False)
    only = cursor_of(store, 0).page(1)
    assert (shown(only.events), only.next_after, only.more) == (["evicted"], 3, True)


def test_a_page_ends_within_a_record_and_goes_on_there(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=10**7)
    store.append(NAME, [draft(str(number), "ab"[number % 2]) for number in range(10)])
    store.append(NAME, [draft("c", "c")])
    page = cursor_of(store, 0, types=("a",)).page(2)
    assert (shown(page.events), page.next_after, page.more) == ([1, 3], 3, True)
    page = cursor_of(store, page.next_after, types=("a",)).page(100)
    assert (shown(page.events), page.next_after, page.more) == ([5, 7, 9], 11, False)
    store.append(NAME, [draft("x" * 400_000)])
    assert shown(cursor_of(store, 11, types=("a",)).page(5).events) == []
    assert shown(cursor_of(store, 10).page(5).events) == [11, 12]


def test_a_reset_in_the_middle_begins_a_page_of_its_own(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=400)
    for number in range(12):
        store.append(NAME, [draft(str(number))])
    store.close()
    second = sorted((tmp_path / NAME).glob("*.seg"))[1]
    gone = int(second.name[:20]) - 1
    kept = int(sorted((tmp_path / NAME).glob("*.seg"))[2].name[:20])
    second.unlink()
    store = open_store(tmp_path, segment_bytes=400)
    cursor = cursor_of(store, 0)
    page = cursor.page(100)
    assert (shown(page.events), page.next_after, page.more) == (
        list(range(1, gone + 1)),
        gone,
        True,
    )
    for following in (cursor, cursor_of(store, gone)):
        assert shown(following.page(100).events) == ["evicted", *range(kept, 13)]


def test_a_turns_stream_ends_with_its_turn(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    end = [
        draft("1", turn_id="turn_1"),
        draft("2", turn_id="turn_2"),
        draft("3", "bridge/turn_ended", turn_id="turn_2"),
        Draft("session/update", b'{"a":1,"type":"bridge/turn_ended"}', "turn_1"),
        draft("5"),
        draft("6", "bridge/turn_ended", turn_id="turn_1"),
        draft("7"),
    ]
    store.append(NAME, end)
    store.append(NAME, [draft("8")])
    cursor = cursor_of(store, 0, keep=belongs_to("turn_1"), until=ends("turn_1"))
    assert read_all(cursor).seqs == [1, 4, 5, 6]
    assert cursor.is_finished
    assert cursor.is_at_end
    assert cursor.take() == b""


@pytest.mark.parametrize("tail_bytes", [1, 10**8])
def test_large_entries_pass_filters_by_their_front(tmp_path: Path, tail_bytes: int) -> None:
    store = open_store(tmp_path, tail_bytes=tail_bytes)
    store.append(NAME, [draft("x" * 300_000, "skipped")])
    store.append(NAME, [draft("x" * 300_000, turn_id="turn_2")])
    store.append(NAME, [draft("x" * 300_000, "t" * 10_000, turn_id="turn_1")])
    store.append(NAME, [draft("x" * 300_000, "bridge/turn_ended", turn_id="turn_1")])
    store.append(NAME, [draft("behind")])
    cursor = cursor_of(
        store, 0, keep=belongs_to("turn_1"), until=ends("turn_1"), types=("[!s]", "*")
    )
    assert read_all(cursor).seqs == [1, 3, 4]
    assert cursor.is_finished
    cursor = cursor_of(store, 0, types=("t*",), named=False)
    reader = read_all(cursor)
    assert reader.seqs == [3]
    assert reader.kinds == [None]
    assert reader.last_id == 5
    assert shown(cursor_of(store, 0, types=("t*", "session/*")).page(9).events) == [2, 3, 5]


def test_retention_in_the_middle_of_a_slice_lets_it_end_and_says_the_rest(tmp_path: Path) -> None:
    store = open_store(tmp_path, tail_bytes=1, segment_bytes=1)
    for text in ("one", "x" * 700_000, "three", "four", "five"):
        store.append(NAME, [draft(text)])
    cursor, reader = cursor_of(store, 1), Reader()
    while not reader._rest:
        reader.feed(cursor.take(1000))
    assert store.evict(NAME, before=None, max_bytes=500)
    assert store.log(NAME).first_seq > 3
    for piece in drain(cursor, 1000):
        reader.feed(piece)
    assert reader.seqs == [2, *range(store.log(NAME).first_seq, 6)]
    assert [each["reason"] for each in reader.resets] == ["evicted"]
    assert descriptors(tmp_path) == 1


def test_a_dropped_reader_of_an_unlinked_segment_holds_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path, tail_bytes=1, segment_bytes=1)
    for text in ("x" * 700_000, "two"):
        store.append(NAME, [draft(text)])
    cursor = cursor_of(store, 0)
    while not cursor.take(1000):
        pass
    store.evict(NAME, before=None, max_bytes=500)
    assert descriptors(tmp_path) == 2
    del cursor
    assert descriptors(tmp_path) == 1


def test_a_file_that_fails_within_a_slice_ends_the_stream_with_an_error(tmp_path: Path) -> None:
    store = open_store(tmp_path, tail_bytes=1, segment_bytes=1)
    for text in ("x" * 700_000, "two"):
        store.append(NAME, [draft(text)])
    path = sorted((tmp_path / NAME).glob("*.seg"))[0]
    cursor = cursor_of(store, 0)
    while not cursor.take(1000):
        pass
    with open(path, "r+b") as file:
        file.truncate(5000)
    with pytest.raises(StorageError, match="cannot be read"):
        for _ in range(1000):
            cursor.take(1000)
    assert read_all(cursor_of(store, 0)).seqs == [2]


def test_a_segment_evicted_under_a_slow_reader_is_said(tmp_path: Path) -> None:
    store = open_store(tmp_path, tail_bytes=1, segment_bytes=1000)
    for number in range(40):
        store.append(NAME, [draft(str(number))])
    cursor, reader = cursor_of(store, 0), Reader()
    reader.feed(cursor.take(300))
    store.evict(NAME, before=None, max_bytes=3000)
    first = store.log(NAME).first_seq
    for piece in drain(cursor):
        reader.feed(piece)
    assert reader.seqs[-1] == 40
    missing = set(range(1, 41)) - set(reader.seqs)
    assert missing
    assert max(missing) == first - 1
    assert [each["reason"] for each in reader.resets] == ["evicted"]
