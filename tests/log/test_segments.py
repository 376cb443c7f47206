"""Torn ends, zeros and damage: what they cost, what they never cost, and that it is said."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.log.cursor import SessionCursor
from bridge.log.forms import Form
from bridge.log.multiplex import BridgeCursor
from bridge.log.record import HEADER_BYTES, MAGIC, unpack_head
from bridge.log.store import Store
from tests.log.logs import Reader, draft, open_store, read_all

NAME = "ses_a"


def segments_of(root: Path) -> list[Path]:
    return sorted((root / NAME).glob("*.seg"))


def offsets_of(data: bytes) -> list[int]:
    """Where the records of a segment begin, and its end."""
    offsets = [0]
    while offsets[-1] < len(data):
        head = unpack_head(data, offsets[-1])
        assert head is not None
        offsets.append(offsets[-1] + head.size)
    return offsets


def write(root: Path, texts: list[str], **options: int) -> Path:
    store = open_store(root, **options)
    for text in texts:
        store.append(NAME, [draft(text)])
    store.close()
    return segments_of(root)[-1]


def session_reader(store: Store, after: int | None = 0) -> Reader:
    return read_all(SessionCursor(store.log(NAME), after=after, form=Form()))


def bridge_reader(store: Store, after: int = 0) -> Reader:
    cursor = BridgeCursor(
        store, after_id=after, sees=lambda _: True, sessions_after=lambda _: [NAME], form=Form()
    )
    return read_all(cursor)


def test_a_file_takes_no_more_records_once_it_has_its_size(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=5000)
    for _ in range(40):
        store.append("ses_a", [draft("x" * 700)])
    sizes = [path.stat().st_size for path in sorted((tmp_path / "ses_a").glob("*.seg"))]
    assert len(sizes) > 5
    assert all(5000 <= size < 6000 for size in sizes[:-1])


def test_a_record_torn_at_any_byte_was_never_written(tmp_path: Path) -> None:
    path = write(tmp_path, ["one", "two", "three"])
    data = path.read_bytes()
    last = offsets_of(data)[-2]
    for end in range(last, len(data)):
        path.write_bytes(data[:end])
        store = open_store(tmp_path)
        assert session_reader(store).seqs == bridge_reader(store).seqs == [1, 2]
        assert store.append(NAME, [draft("again")]).last_seq == 3
        store.close()
        reopened = open_store(tmp_path)
        reader = session_reader(reopened)
        assert [each["params"]["text"] for each in reader.entries] == ["one", "two", "again"]
        assert reader.resets == []
        assert reopened.log(NAME).damage == []


@pytest.mark.parametrize("size", [1, 40, 4096, 70_000])
def test_zeros_at_the_end_were_never_written(tmp_path: Path, size: int) -> None:
    path = write(tmp_path, ["one", "two"])
    path.write_bytes(path.read_bytes() + bytes(size))
    store = open_store(tmp_path)
    assert store.append(NAME, [draft("three")]).last_seq == 3
    store.close()
    assert session_reader(open_store(tmp_path)).seqs == [1, 2, 3]
    assert path.stat().st_size < 4096


def test_two_records_of_one_write_may_be_torn_between_them(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=10**7)
    store.append(NAME, [draft("one")])
    store.append(NAME, [draft("two"), draft("x" * 131_072), draft("four")])
    store.close()
    path = segments_of(tmp_path)[-1]
    data = path.read_bytes()
    offsets = offsets_of(data)
    assert len(offsets) == 5
    for index, seqs in ((-2, [1, 2, 3]), (-3, [1, 2])):
        path.write_bytes(data[: offsets[index] + 30])
        store = open_store(tmp_path)
        assert session_reader(store).seqs == bridge_reader(store).seqs == seqs


def test_an_end_whose_bytes_never_came_to_disk_was_never_written(tmp_path: Path) -> None:
    path = write(tmp_path, ["one", "two"])
    data = bytearray(path.read_bytes())
    data[-20:] = bytes(20)
    path.write_bytes(data)
    store = open_store(tmp_path)
    assert (store.log(NAME).last_seq, store.log(NAME).last_id) == (1, 1)


def test_a_first_record_torn_leaves_an_empty_log(tmp_path: Path) -> None:
    path = write(tmp_path, ["one"])
    path.write_bytes(path.read_bytes()[:-1])
    store = open_store(tmp_path)
    log = store.log(NAME)
    assert (log.first_seq, log.last_seq) == (1, 0)
    assert store.append(NAME, [draft("one")]).last_seq == 1
    assert session_reader(store).seqs == [1]


def test_a_torn_new_segment_gives_its_positions_to_the_next_record(tmp_path: Path) -> None:
    path = write(tmp_path, ["one", "x" * 5000, "three"])
    assert len(segments_of(tmp_path)) == 2
    path.write_bytes(b"")
    store = open_store(tmp_path)
    store.append("ses_b", [draft()])
    assert store.append(NAME, [draft("again")]).last_seq == 3
    store.close()
    store = open_store(tmp_path)
    assert session_reader(store).seqs == bridge_reader(store).seqs[-3:] == [1, 2, 3]


TEXTS = [f"{number:04d}" + "x" * 60 for number in range(30)]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damage_costs_what_it_hits_and_is_said(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("log")
    write(root, TEXTS, segment_bytes=2000)
    path = data.draw(st.sampled_from(segments_of(root)))
    good = bytearray(path.read_bytes())
    offsets = offsets_of(bytes(good))
    at = data.draw(st.integers(0, len(good) - 1))
    size = data.draw(st.integers(1, 200))
    bad = data.draw(st.sampled_from([b"\0", b"\xff", b"x", b"\n"])) * size
    damaged = good[:at] + bad[: len(good) - at] + good[at + size :]
    path.write_bytes(damaged)
    first = unpack_head(bytes(good))
    assert first is not None
    hit = {
        first.first_seq + index
        for index, (start, end) in enumerate(pairwise(offsets))
        if damaged[start:end] != good[start:end]
    }
    is_end = bool(hit) and max(hit) == 30
    store = open_store(root, segment_bytes=2000)
    log = store.log(NAME)
    kept = [seq for seq in range(1, 31) if seq not in hit]
    for form in (Form(), Form(named=False), Form(types=("session/update",))):
        reader = read_all(SessionCursor(store.log(NAME), after=0, form=form))
        assert reader.seqs == kept
        if hit and not is_end:
            assert reader.resets[0]["reason"] == "evicted"
            assert log.damage
    assert bridge_reader(store).seqs == kept
    assert bool(bridge_reader(store).resets) == (bool(hit) and not is_end)
    assert_pages(store, kept)
    assert [record.last_seq for record in store.log(NAME).records(0)] == kept
    fresh = store.append(NAME, [draft("new")])
    assert fresh.last_seq > max(kept)
    assert fresh.last_seq == 31 or is_end
    store.close()
    reopened = open_store(root, segment_bytes=2000)
    assert session_reader(reopened).seqs == [*kept, fresh.last_seq]
    assert bridge_reader(reopened).seqs == [*kept, fresh.last_seq]


def assert_pages(store: Store, kept: list[int]) -> None:
    for pager in (session_pages, bridge_pages):
        assert pager(store) == kept


def session_pages(store: Store) -> list[int]:
    reader, after, more = Reader(), 0, True
    while more:
        page = SessionCursor(store.log(NAME), after=after, form=Form()).page(4)
        after, more = page.next_after, page.more
        feed(reader, page.events)
    return reader.seqs


def bridge_pages(store: Store) -> list[int]:
    reader, after, more = Reader(), 0, True
    while more:
        cursor = BridgeCursor(
            store, after_id=after, sees=lambda _: True, sessions_after=lambda _: [NAME], form=Form()
        )
        page = cursor.page(4)
        after, more = page.next_after, page.more
        feed(reader, page.events)
    return reader.seqs


def feed(reader: Reader, events: list[bytes]) -> None:
    for event in events:
        reader.feed(b"id: 0\nevent: x\ndata: %b\n\n" % event)


def test_damage_before_good_records_never_gives_their_positions_out_again(tmp_path: Path) -> None:
    path = write(tmp_path, ["one", "two", "three"])
    data = bytearray(path.read_bytes())
    data[offsets_of(bytes(data))[1]] ^= 0xFF
    path.write_bytes(data)
    store = open_store(tmp_path)
    assert store.append(NAME, [draft("four")]).last_seq == 4
    reader = session_reader(store)
    assert reader.seqs == [1, 3, 4]
    assert reader.resets == [{"reason": "evicted", "firstSeq": 1, "lastSeq": 4}]


def test_damage_of_a_large_record_is_found_before_any_of_it_is_sent(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for text in ("one", "x" * 3_000_000, "three", "y" * 400_000, "five"):
        store.append(NAME, [draft(text)])
    store.close()
    path = segments_of(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    store = open_store(tmp_path)
    for form in (Form(), Form(named=False)):
        reader = read_all(SessionCursor(store.log(NAME), after=0, form=form))
        assert reader.seqs == [1, 3, 4, 5]
        assert len(reader.resets) == 1
    assert bridge_reader(store).seqs == [1, 3, 4, 5]
    store = open_store(tmp_path)
    assert bridge_reader(store).seqs == [1, 3, 4, 5]


def test_damage_within_a_large_record_is_a_gap_for_every_reader(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=10**8)
    for text in ("one", "x" * 3_000_000, "three"):
        store.append(NAME, [draft(text)])
    store.close()
    path = segments_of(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[1_500_000] ^= 1
    path.write_bytes(data)
    assert session_reader(open_store(tmp_path)).seqs == [1, 3]
    assert session_pages(open_store(tmp_path)) == [1, 3]
    reader = bridge_reader(open_store(tmp_path))
    assert reader.seqs == [1, 3]
    assert [each["reason"] for each in reader.resets] == ["evicted"]


def test_damage_that_comes_while_the_log_is_open_is_said_once(tmp_path: Path) -> None:
    write(tmp_path, TEXTS, segment_bytes=100_000)
    store = open_store(tmp_path)
    assert len(session_reader(store).seqs) == 30
    path = segments_of(tmp_path)[0]
    data = bytearray(path.read_bytes())
    offsets = offsets_of(bytes(data))
    data[offsets[4] : offsets[5]] = bytes(offsets[5] - offsets[4])
    data[offsets[10] + HEADER_BYTES + 20] ^= 1
    path.write_bytes(data)
    for _ in range(2):
        reader = session_reader(store)
        assert reader.seqs == [seq for seq in range(1, 31) if seq not in (5, 11)]
        assert len(reader.resets) == 2


@pytest.mark.parametrize("what", ["cut", "gone", "unreadable"])
def test_a_file_that_is_cut_or_taken_away_while_open_is_said(tmp_path: Path, what: str) -> None:
    write(tmp_path, TEXTS, segment_bytes=2000)
    store = open_store(tmp_path, segment_bytes=2000)
    log = store.log(NAME)
    assert len(session_reader(store).seqs) == 30
    path = segments_of(tmp_path)[-1]
    first = unpack_head(path.read_bytes())
    assert first is not None
    path.write_bytes(b"") if what == "cut" else path.unlink()
    if what == "unreadable":
        path.mkdir()
    reader = session_reader(store)
    assert reader.seqs == list(range(1, first.first_seq))
    assert reader.resets[-1]["reason"] == "evicted"
    assert reader.last_id == log.last_seq == 30
    assert bridge_reader(store).seqs == reader.seqs
    assert bridge_reader(store).resets[-1]["reason"] == "evicted"


def test_an_unreadable_segment_keeps_its_positions(tmp_path: Path) -> None:
    path = write(tmp_path, TEXTS, segment_bytes=2000)
    path.unlink()
    path.mkdir()
    store = open_store(tmp_path, segment_bytes=2000)
    first = int(path.name[:20])
    assert store.log(NAME).damage
    assert store.append(NAME, [draft("new")]).last_seq >= 30
    assert session_reader(store).seqs[: first - 1] == list(range(1, first))


def test_a_segment_that_cannot_be_read_any_more_is_said(tmp_path: Path) -> None:
    write(tmp_path, TEXTS, segment_bytes=2000)
    path = segments_of(tmp_path)[1]
    path.unlink()
    path.mkdir()
    lost = range(int(path.name[:20]), int(segments_of(tmp_path)[2].name[:20]))
    store = open_store(tmp_path, segment_bytes=2000)
    log = store.log(NAME)
    for reader in (session_reader(store), bridge_reader(store)):
        assert reader.seqs == [seq for seq in range(1, 31) if seq not in lost]
        assert len(reader.resets) == 1
    assert len(log.damage) == 1
    assert store.append(NAME, [draft()]).last_seq == 31


def test_what_a_disk_refuses_reads_as_missing(tmp_path: Path) -> None:
    path = write(tmp_path, TEXTS, segment_bytes=100_000)
    store = open_store(tmp_path, segment_bytes=100_000)
    log = store.log(NAME)
    place = next(log.places(3))
    (segment,) = (place.segment,)
    path.unlink()
    path.mkdir()
    assert segment.read(0, 10) == b""
    assert log.read(place) is None
    assert session_reader(store).resets[-1]["reason"] == "evicted"
    assert store.append(NAME, [draft()]).first_seq == 31
    segment.hold()
    segment.hold()
    assert next(segment.places(0), None) is None


def test_zeros_within_an_open_segment_are_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path, TEXTS, segment_bytes=100_000)
    store = open_store(tmp_path, segment_bytes=100_000)
    log = store.log(NAME)
    assert next(log.places(0)).last_seq == 1
    data = bytearray(path.read_bytes())
    start, end = offsets_of(bytes(data))[1:3]
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    assert [place.first_seq for place in log.places(0)] == [1, *range(3, 31)]
    data[offsets_of(path.read_bytes()[:start])[-1] :] = b""
    path.write_bytes(data)
    assert session_reader(store).seqs == [1]
    assert session_reader(store).last_id == log.last_seq


def test_an_end_that_was_told_but_is_gone_is_never_written_again(tmp_path: Path) -> None:
    write(tmp_path, ["one", "two"])
    (tmp_path / NAME / "evicted").write_text("0 0 7 9\n")
    store = open_store(tmp_path)
    assert store.append(NAME, [draft("eight")]).last_seq == 8
    reader = session_reader(store)
    assert reader.seqs == [1, 2, 8]
    assert len(reader.resets) == 1


def test_a_folder_that_cannot_be_listed_never_looks_empty(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("no folder")
    store = open_store(tmp_path)
    log = store.log(NAME)
    assert log.last_seq > 0
    assert log.damage
    with pytest.raises(Exception, match="storage-full"):
        store.append(NAME, [draft()])
    assert session_reader(store).resets[0]["reason"] == "evicted"


def test_text_of_an_agent_never_passes_for_a_record(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    text = (MAGIC * 20).decode() + "\n" * 60
    for _ in range(3):
        store.append(NAME, [draft(text)])
    store.close()
    path = segments_of(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[offsets_of(bytes(data))[1]] ^= 1
    path.write_bytes(data)
    assert session_reader(open_store(tmp_path)).seqs == [1, 3]
    path.write_bytes(data[:-1])
    assert session_reader(open_store(tmp_path)).seqs == [1]


def test_a_ghost_of_a_failed_write_is_never_read(tmp_path: Path) -> None:
    first = write(tmp_path / "a", ["one", "two", "ghost", "ghost"])
    ghosts = first.read_bytes()
    start = offsets_of(ghosts)[2]
    path = write(tmp_path / "b", ["one", "two"])
    store = open_store(tmp_path / "b", segment_bytes=1)
    store.append(NAME, [draft("three")])
    store.append(NAME, [draft("four")])
    store.close()
    path.write_bytes(path.read_bytes() + ghosts[start:])
    reader = session_reader(open_store(tmp_path / "b"))
    assert [each["params"]["text"] for each in reader.entries] == ["one", "two", "three", "four"]
    assert reader.resets == []
