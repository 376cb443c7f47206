"""The cursor over all sessions: merging, going over to the tail and back, resets, pages."""

from __future__ import annotations

import json
import resource
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import StorageError
from bridge.log.cursor import SCAN_BYTES, SessionCursor
from bridge.log.forms import Form
from bridge.log.merge import Merge
from bridge.log.multiplex import BridgeCursor
from bridge.log.pages import LOOK_BYTES, PAGE_BYTES
from bridge.log.store import Store
from tests.log.logs import Reader, descriptors, draft, drain, open_store, read_all


def cursor_of(
    store: Store,
    after: int = 0,
    *,
    sees: Callable[[str], bool] = lambda _: True,
    sessions: Iterable[str] | None = None,
    **form: Any,
) -> BridgeCursor:
    def sessions_after(number: int) -> list[str]:
        names = store.sessions() if sessions is None else list(sessions)
        return [each for each in names if store.log(each).last_id > number]

    return BridgeCursor(
        store, after_id=after, sees=sees, sessions_after=sessions_after, form=Form(**form)
    )


def ids_of(events: list[bytes]) -> list[Any]:
    return [json.loads(event).get("id", json.loads(event)["sessionId"]) for event in events]


def fill(store: Store, rounds: int, sessions: int = 5, size: int = 50) -> None:
    for step in range(rounds):
        for number in range(sessions):
            store.append(f"ses_{number}", [draft(f"{step}" + "x" * size)] * (1 + number % 2))


@pytest.mark.parametrize("tail_bytes", [1, 3000, 10**7])
@pytest.mark.parametrize("max_bytes", [1, 500, 65_536])
def test_sessions_come_in_the_order_of_their_ids(
    tmp_path: Path, tail_bytes: int, max_bytes: int
) -> None:
    store = open_store(tmp_path, tail_bytes=tail_bytes)
    fill(store, 20)
    reader = read_all(cursor_of(store), max_bytes)
    assert [each["id"] for each in reader.entries] == list(range(1, store.last_id + 1))
    assert reader.last_id == store.last_id
    for after in (1, 3, 70, store.last_id - 1):
        resumed = read_all(cursor_of(store, after), max_bytes)
        assert [each["id"] for each in resumed.entries] == list(range(after + 1, store.last_id + 1))
    assert descriptors(tmp_path) == 5


def test_a_reader_falls_behind_the_tail_and_comes_back(tmp_path: Path) -> None:
    store = open_store(tmp_path, tail_bytes=4000)
    reader, cursor = Reader(), cursor_of(store)
    for step in range(12):
        fill(store, 1 + step % 4)
        reader.feed(cursor.take(700))
        if step % 5 == 4:
            for piece in drain(cursor):
                reader.feed(piece)
    for piece in drain(cursor):
        reader.feed(piece)
    assert [each["id"] for each in reader.entries] == list(range(1, store.last_id + 1))
    assert cursor.take() == b""
    assert "at" in repr(cursor)


def test_ids_that_were_never_used_are_passed_over(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append("ses_a", [draft()])
    store.close()
    store = open_store(tmp_path)
    store.start_ids(500)
    assert read_all(cursor_of(store)).last_id == 500
    store.append("ses_b", [draft()])
    assert [each["id"] for each in read_all(cursor_of(store)).entries] == [1, 501]
    assert read_all(cursor_of(store, 300)).last_id == 501


def test_what_is_not_seen_only_moves_the_position(tmp_path: Path) -> None:
    for tail_bytes in (1, 10**7):
        store = open_store(tmp_path / str(tail_bytes), tail_bytes=tail_bytes)
        fill(store, 4)
        store.append("ses_1", [draft("x" * 300_000, "large")])
        fill(store, 1)
        cursor = cursor_of(store, sees=lambda name: name == "ses_2")
        reader = read_all(cursor)
        assert {each["sessionId"] for each in reader.entries} == {"ses_2"}
        assert len(reader.entries) == 5
        assert reader.last_id == store.last_id
        reader = read_all(cursor_of(store, types=("large",), named=False))
        assert [each["type"] for each in reader.entries] == ["large"]
        assert reader.kinds == [None]
        assert reader.last_id == store.last_id
        assert read_all(cursor_of(store, types=("no",))).last_id == store.last_id


@pytest.mark.parametrize("tail_bytes", [1, 10**8])
def test_large_entries_come_in_slices(tmp_path: Path, tail_bytes: int) -> None:
    store = open_store(tmp_path, tail_bytes=tail_bytes)
    for size in (10, 900_000, 10, 140_000, 2_000_000):
        store.append("ses_a", [draft("x" * size)])
        store.append("ses_b", [draft("y")])
    pieces = list(drain(cursor_of(store), 65_536))
    assert max(map(len, pieces)) <= 65_536
    reader = Reader()
    for piece in pieces:
        reader.feed(piece)
    assert [each["id"] for each in reader.entries] == list(range(1, 11))
    filtered = read_all(cursor_of(store, types=("other",)))
    assert filtered.last_id == 10


def test_a_filter_that_wants_nothing_looks_at_so_much_at_a_time(tmp_path: Path) -> None:
    for tail_bytes in (1, 10**8):
        store = open_store(tmp_path / str(tail_bytes), tail_bytes=tail_bytes)
        for _ in range(60):
            store.append("ses_a", [draft("x" * 60_000)])
        cursor = cursor_of(store, types=("nothing",))
        assert cursor.take() == b"id: %d\n\n" % cursor.position
        assert 0 < cursor.position < 25
        page = cursor_of(store, types=("nothing",)).page(5, 300_000)
        assert (page.events, page.more) == ([], True)
        assert 0 < page.next_after < 10


@pytest.mark.parametrize("tail_bytes", [1, 10**8])
def test_tiny_records_are_looked_at_so_many_at_a_time(tmp_path: Path, tail_bytes: int) -> None:
    store = open_store(tmp_path, tail_bytes=tail_bytes)
    for number in range(3000):
        store.append(f"ses_{number % 25}", [draft()])
    asked: Counter[str] = Counter()

    def sees(session_id: str) -> bool:
        asked[session_id] += 1
        return True

    cursor = cursor_of(store, sees=sees, types=("nothing",))
    steps = moves(cursor, lambda: cursor.take())
    assert max(steps) <= SCAN_BYTES // LOOK_BYTES
    assert max(asked.values(), default=0) <= len(steps) + 1
    pager = cursor_of(store, types=("nothing",))
    assert max(moves(pager, lambda: pager.page(1000))) <= PAGE_BYTES // LOOK_BYTES
    single = SessionCursor(store.log("ses_0"), after=0, form=Form(types=("nothing",)))
    for _ in range(2000):
        store.append("ses_0", [draft()])
    assert max(moves(single, lambda: single.take())) <= SCAN_BYTES // LOOK_BYTES


def moves(cursor: BridgeCursor | SessionCursor, step: Callable[[], object]) -> list[int]:
    """How far each step to the end of the log went."""
    steps = []
    while not cursor.is_at_end:
        before = cursor.position
        step()
        steps.append(cursor.position - before)
    return steps


def test_records_of_interleaved_sessions_are_read_many_at_a_time(tmp_path: Path) -> None:
    store = open_store(tmp_path, tail_bytes=1)
    for number in range(4000):
        store.append(f"ses_{number % 20}", [draft()])
    cursor, before = cursor_of(store), reads()
    assert len(read_all(cursor).entries) == 4000
    assert reads() - before < 4000 / 4


def reads() -> int:
    """How often this process has asked the system to read."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("syscr")))


def test_only_so_many_segments_are_walked_over_before_the_loop_has_its_turn(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path, segment_bytes=3_000_000)
    for number in range(24):
        store.append(f"ses_{number % 8}", [draft("x" * 100_000)] * 12)
    store.close()
    store = open_store(tmp_path, segment_bytes=3_000_000)
    store.start_ids(24 * 12)
    merge = Merge(store.last_id, ())
    spent = []
    for number in range(8):
        merge.open(store.log(f"ses_{number}"), 0)
        spent.append(merge.spent())
    assert min(spent) >= 1_000_000
    cursor = cursor_of(open_store(tmp_path))
    assert cursor.take() == b""


def test_thousands_of_sessions_are_opened_some_at_a_time(tmp_path: Path) -> None:
    store = open_store(tmp_path, tail_bytes=1)
    for number in range(200):
        store.append(f"ses_{number:03d}", [draft()])
    cursor = cursor_of(store)
    assert [cursor.take(), cursor.take(), cursor.take()] == [b"", b"", b""]
    assert not cursor.is_at_end
    assert len(read_all(cursor).entries) == 200
    pager = cursor_of(store)
    page = pager.page(150)
    assert (page.events, page.next_after, page.more) == ([], 0, True)
    for _ in range(200 // 8):
        page = page if page.events else pager.page(150)
    assert len(page.events) == 150


def test_a_position_ahead_is_said_with_the_last_id(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 1)
    cursor = cursor_of(store, 99, types=("no",))
    assert cursor.preamble() == b"retry: 1000\nid: 99\n\n"
    assert not cursor.is_at_end
    reader = read_all(cursor)
    assert reader.resets == [{"reason": "ahead", "lastId": store.last_id}]
    assert reader.events[0]["sessionId"] is None
    assert reader.last_id == store.last_id
    page = cursor_of(store, 99).page(3)
    assert ([json.loads(each)["params"]["reason"] for each in page.events], page.more) == (
        ["ahead"],
        False,
    )


def evict_all_but_last(store: Store, name: str) -> None:
    assert store.evict(name, before=None, max_bytes=1)


def test_each_session_that_lost_entries_is_said_once(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=1, tail_bytes=1)
    fill(store, 4, sessions=4)
    evict_all_but_last(store, "ses_1")
    evict_all_but_last(store, "ses_2")
    evict_all_but_last(store, "ses_3")
    reader = read_all(cursor_of(store, sees=lambda name: name != "ses_3"))
    told = [each for each in reader.events if each["type"] == "bridge/reset"]
    assert [each["sessionId"] for each in told] == ["ses_1", "ses_2"]
    assert told[0]["params"] == {"reason": "evicted", "firstSeq": 7, "lastSeq": 8}
    assert reader.events[:2] == told
    assert {each["sessionId"] for each in reader.entries} == {"ses_0", "ses_1", "ses_2"}
    after = store.log("ses_1").evicted_id
    sessions = ["ses_0", "ses_1"]
    assert read_all(cursor_of(store, after, sessions=sessions)).resets == []
    assert len(read_all(cursor_of(store, after - 1, sessions=sessions)).resets) == 1


def test_retention_that_overtakes_a_slow_reader_is_said(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=1, tail_bytes=1)
    fill(store, 200, sessions=2, size=300)
    cursor, reader = cursor_of(store), Reader()
    for _ in range(4):
        reader.feed(cursor.take(1000))
    evict_all_but_last(store, "ses_0")
    for piece in drain(cursor):
        reader.feed(piece)
    seen = {
        name: [e["seq"] for e in reader.entries if e["sessionId"] == name]
        for name in ("ses_0", "ses_1")
    }
    assert seen["ses_1"] == list(range(1, 401))
    assert seen["ses_0"][-1] == 200
    assert len(seen["ses_0"]) < 200
    assert [each["reason"] for each in reader.resets] == ["evicted"]


def test_pages_have_resets_first_beyond_their_limit(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=1, tail_bytes=1)
    fill(store, 3, sessions=3)
    evict_all_but_last(store, "ses_1")
    evict_all_but_last(store, "ses_2")
    page = cursor_of(store).page(1)
    assert ids_of(page.events) == ["ses_1", "ses_2", 1]
    assert (page.next_after, page.more) == (1, True)
    ids, after, more = [], 0, True
    while more:
        page = cursor_of(store, after).page(2)
        ids += [each for each in ids_of(page.events) if isinstance(each, int)]
        after, more = page.next_after, page.more
    assert ids == sorted(set(ids))
    assert after == store.last_id
    assert {"ses_0": 3, "ses_1": 2, "ses_2": 1} == {
        name: sum(each["sessionId"] == name for each in read_all(cursor_of(store)).entries)
        for name in ("ses_0", "ses_1", "ses_2")
    }


def test_a_page_ends_within_a_record_and_goes_on_there(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=10**6)
    store.append("ses_a", [draft(str(number), "ab"[number % 2]) for number in range(10)])
    store.append("ses_b", [draft()])
    page = cursor_of(store, types=("a",)).page(2)
    assert (ids_of(page.events), page.next_after, page.more) == ([1, 3], 3, True)
    page = cursor_of(store, 3, types=("a", "session/*")).page(9)
    assert (ids_of(page.events), page.next_after, page.more) == ([5, 7, 9, 11], 11, False)
    assert cursor_of(store, 11).page(9).events == []


def test_a_page_stops_at_damage_and_the_next_one_says_it(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=10**6)
    for number in range(6):
        store.append("ses_a", [draft(str(number))])
    store.close()
    path = next((tmp_path / "ses_a").glob("*.seg"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    store = open_store(tmp_path)
    first = cursor_of(store).page(9)
    second = cursor_of(store, first.next_after).page(9)
    kept = ids_of(first.events)
    assert first.more
    assert ids_of(second.events) == ["ses_a", *range(kept[-1] + 2, 7)]


def test_a_disk_that_refuses_fails_and_loses_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path, tail_bytes=1)
    fill(store, 3)
    store.close()
    logs = [store.log(name) for name in store.sessions()]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    names = store.sessions()
    cursor = cursor_of(store, sessions=names)
    pager = cursor_of(store, sessions=names)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(StorageError, match="cannot be read"):
            cursor.take()
        with pytest.raises(StorageError, match="cannot be read"):
            pager.page(5)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(logs) == 5
    assert len(read_all(cursor_of(store)).entries) == store.last_id


def test_a_purged_session_leaves_the_merge(tmp_path: Path) -> None:
    store = open_store(tmp_path, tail_bytes=1, segment_bytes=2000)
    fill(store, 100, sessions=2, size=200)
    gone: set[str] = set()
    cursor, reader = cursor_of(store, sees=lambda name: name not in gone), Reader()
    reader.feed(cursor.take(2000))
    gone.add("ses_0")
    store.purge("ses_0")
    for piece in drain(cursor):
        reader.feed(piece)
    ours = [each["seq"] for each in reader.entries if each["sessionId"] == "ses_1"]
    assert ours == list(range(1, 201))
    assert reader.last_id == store.last_id
