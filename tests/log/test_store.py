"""The store: commits, full and failing disks, the reserve, descriptors, syncing, purging."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import StorageError
from bridge.log.cursor import SessionCursor
from bridge.log.files import Files
from bridge.log.forms import Form
from bridge.log.store import MAX_OPEN, RECORD_BYTES, Store
from tests.log.logs import BadFiles, Clock, Reader, descriptors, draft, drain, open_store, read_all

pytestmark = pytest.mark.anyio

RESERVE = 65_536


def read(store: Store, session_id: str, after: int | None = 0) -> Reader:
    return read_all(SessionCursor(store.log(session_id), after=after, form=Form()))


def test_ids_go_up_over_sessions_and_positions_in_each(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for name in "abab":
        store.append(f"ses_{name}", [draft(), draft()])
    assert [each["id"] for each in read(store, "ses_a").entries] == [1, 2, 5, 6]
    assert [each["id"] for each in read(store, "ses_b").entries] == [3, 4, 7, 8]
    assert read(store, "ses_b").seqs == [1, 2, 3, 4]


def test_an_append_needs_an_entry(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="entry"):
        open_store(tmp_path).append("ses_a", [])


def test_a_large_entry_has_a_record_of_its_own_and_the_others_stay_small(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=10**8)
    sizes = [10, 200_000, 10, 100_000, 100_000, 100_000, 10, 10]
    store.append("ses_a", [draft("x" * size) for size in sizes], meta=b"{}")
    records = list(store.log("ses_a").records(0))
    assert [record.count for record in records] == [1, 1, 3, 3]
    assert [record.meta for record in records] == [b"{}", b"", b"", b""]
    assert all(len(record.body) < RECORD_BYTES + 4096 for record in records)
    many = store.append("ses_a", [draft("", "k" * 1000) for _ in range(1000)])
    assert many.count < 1000
    assert len(many.body) < RECORD_BYTES * 3


def test_time_that_goes_backwards_changes_no_order(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock=clock)
    for _ in range(3):
        store.append("ses_a", [draft()])
        clock.now -= 3600
    entries = read(store, "ses_a").entries
    assert [each["seq"] for each in entries] == [1, 2, 3]
    times = [each["time"] for each in entries]
    assert times == sorted(times, reverse=True)


def test_a_disk_that_can_only_be_read_is_as_good_as_full(tmp_path: Path) -> None:
    files = BadFiles()
    store = open_store(tmp_path, files=files)
    store.append("ses_a", [draft()])
    files.room, files.errno = 0, errno.EROFS
    with pytest.raises(StorageError, match="Read-only"):
        store.append("ses_a", [draft()])
    assert store.is_full and not store.recover()
    files.room = None
    assert store.recover() and not store.is_full


def test_nothing_new_is_taken_without_the_folder(tmp_path: Path) -> None:
    """What is written to files without a name is gone with the process."""
    root = tmp_path / "log"
    store = open_store(root)
    store.append("ses_a", [draft()])
    root.rename(tmp_path / "elsewhere")
    assert not store.recover() and store.is_full
    with pytest.raises(StorageError):
        store.append("ses_a", [draft()])
    root.mkdir()
    assert not store.recover(), "another folder of that name has nothing of it"
    root.rmdir()
    (tmp_path / "elsewhere").rename(root)
    assert store.recover()
    store.append("ses_a", [draft()])
    assert read(store, "ses_a").seqs == [1, 2]


def test_only_the_owner_may_read_what_is_written(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = open_store(tmp_path / "log", reserve_bytes=4096)
        store.append("ses_a", [draft("x" * 5000)])
        store.append("ses_a", [draft()])
        store.append("ses_a", [draft()])
        store.evict("ses_a", before=None, max_bytes=1)
    finally:
        os.umask(before)
    for path in (tmp_path / "log").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700
    assert (tmp_path / "log/ses_a/evicted").exists()


def test_foreign_files_change_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append("ses_a", [draft("one")])
    store.close()
    folder = tmp_path / "ses_a"
    (folder / "notes.txt").write_text("hello")
    (folder / "1-1.seg").write_bytes(b"\0" * 100)
    (folder / f"{1:020d}-{1:020d}.seg.bak").write_bytes(b"junk")
    (folder / "sub").mkdir()
    (folder / "evicted").write_bytes(b"\xff not numbers at all")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "file").write_text("x")
    store = open_store(tmp_path)
    assert store.append("ses_a", [draft("two")]).last_seq == 2
    assert read(store, "ses_a").seqs == [1, 2]
    assert not store.evict("lost+found", before=1e12, max_bytes=0)
    assert set(store.sessions()) == {"ses_a", "lost+found"}


# -- disks -------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 3000), st.sampled_from([None, 1, 50, 700]), st.booleans())
def test_a_write_that_fails_anywhere_leaves_nothing(
    tmp_path_factory: pytest.TempPathFactory, room: int, most: int | None, reopens: bool
) -> None:
    files = BadFiles()
    root = tmp_path_factory.mktemp("log")
    store = open_store(root, files=files, segment_bytes=1500)
    store.append("ses_a", [draft("one")])
    files.room, files.most = room, most
    kept = ["one"]
    for number in range(5):
        texts = [f"{number}" + "x" * 100, "y" * 200]
        try:
            store.append("ses_a", [draft(text) for text in texts])
        except StorageError as error:
            assert error.code == "storage-full"
            assert store.is_full
            break
        kept += texts
    assert [each["params"]["text"] for each in read(store, "ses_a").entries] == kept
    files.room = None
    assert store.recover()
    if reopens:
        store.close()
        store = open_store(root, files=files, segment_bytes=1500)
    assert store.append("ses_a", [draft("after")]).last_seq == len(kept) + 1
    store.close()
    reader = read(open_store(root), "ses_a")
    assert [each["params"]["text"] for each in reader.entries] == [*kept, "after"]
    assert reader.resets == []


def test_short_writes_are_carried_on(tmp_path: Path) -> None:
    files = BadFiles()
    files.most = 7
    store = open_store(tmp_path, files=files, segment_bytes=10**7)
    store.append("ses_a", [draft("one"), draft("x" * 140_000), draft("three")])
    assert [len(each["params"]["text"]) for each in read(store, "ses_a").entries] == [3, 140_000, 5]


def test_more_records_than_one_system_call_takes_are_one_append(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=10**9)
    store.append("ses_a", [draft("x" * 131_072) for _ in range(600)])
    assert sum(record.count for record in store.log("ses_a").records(0)) == 600


def test_a_disk_that_takes_nothing_does_not_hang(tmp_path: Path) -> None:
    files = BadFiles()
    files.most = 0
    with pytest.raises(StorageError):
        open_store(tmp_path, files=files).append("ses_a", [draft()])


def test_the_ends_of_what_runs_come_out_of_the_reserve(tmp_path: Path) -> None:
    files = BadFiles()
    store = open_store(tmp_path, files=files, reserve_bytes=RESERVE)
    reserve = tmp_path / "reserve"
    assert reserve.stat().st_blocks * 512 >= RESERVE
    store.append("ses_a", [draft("one")])
    files.room = 0
    with pytest.raises(StorageError):
        store.append("ses_a", [draft("two")])
    assert store.is_full
    assert reserve.exists()
    assert not store.recover(), "there is no room yet"

    def give_room(path: Path = reserve) -> None:
        files.room = 0 if path.exists() else 10_000

    class Giving(BadFiles):
        def write(self, fd, pieces):  # type: ignore[no-untyped-def]
            give_room()
            files_room = files.room
            self.room = files_room
            return super().write(fd, pieces)

    giving = Giving()
    giving.room = 0
    store = open_store(tmp_path, files=giving, reserve_bytes=RESERVE)
    store.append("ses_a", [draft("end")], is_essential=True)
    assert store.is_full
    assert not reserve.exists()
    with pytest.raises(StorageError, match="disk is full"):
        store.append("ses_b", [draft("new work")])
    store.append("ses_b", [draft("another end")], is_essential=True)
    giving.room = 0
    assert not store.recover()
    giving.room = None
    assert store.recover()
    assert not store.is_full
    assert reserve.stat().st_size == RESERVE
    assert not (tmp_path / "probe").exists()
    assert [each["params"]["text"] for each in read(store, "ses_a").entries] == ["one", "end"]


def test_a_disk_that_fails_is_not_full(tmp_path: Path) -> None:
    files = BadFiles()
    store = open_store(tmp_path, files=files, reserve_bytes=RESERVE)
    store.append("ses_a", [draft("one")])
    files.room, files.errno = 0, errno.EIO
    with pytest.raises(StorageError):
        store.append("ses_a", [draft()], is_essential=True)
    assert not store.is_full
    assert (tmp_path / "reserve").exists(), "the reserve is for full disks"
    assert store.recover()
    files.room = None
    assert store.append("ses_a", [draft("two")]).last_seq == 2


@pytest.mark.parametrize("is_first", [True, False])
def test_nothing_is_appended_behind_what_could_not_be_cut_off(
    tmp_path: Path, is_first: bool
) -> None:
    files = BadFiles()
    store = open_store(tmp_path, files=files)
    if not is_first:
        store.append("ses_a", [draft("one")])
    files.room, files.refuses_truncate = 60, True
    with pytest.raises(StorageError):
        store.append("ses_a", [draft("lost")])
    files.room, files.refuses_truncate = None, False
    assert store.recover()
    store.append("ses_a", [draft("two")])
    expected = ["two"] if is_first else ["one", "two"]
    assert [each["params"]["text"] for each in read(store, "ses_a").entries] == expected
    store.close()
    reader = read(open_store(tmp_path), "ses_a")
    assert [each["params"]["text"] for each in reader.entries] == expected
    assert reader.resets == []


def test_a_file_that_cannot_be_cut_when_taken_up_again_is_closed_again(tmp_path: Path) -> None:
    files = BadFiles()
    store = open_store(tmp_path, files=files)
    store.append("ses_a", [draft("one")])
    store.release("ses_a")
    files.refuses_truncate = True
    before = descriptors(tmp_path)
    with pytest.raises(StorageError):
        store.append("ses_a", [draft("two")])
    assert descriptors(tmp_path) == before
    files.refuses_truncate = False
    assert store.append("ses_a", [draft("two")]).last_seq == 2


def test_old_entries_go_even_from_a_full_disk(tmp_path: Path) -> None:
    files = BadFiles()
    store = open_store(tmp_path, files=files, segment_bytes=1)
    for number in range(4):
        store.append("ses_a", [draft(str(number))])
    files.room = 0
    assert store.evict("ses_a", before=None, max_bytes=1)
    assert read(store, "ses_a").seqs == [4]
    store.release("ses_a")
    assert not store.evict("ses_a", before=1e12, max_bytes=None)
    assert read(store, "ses_a").seqs == [4], "the last one would look as if it never was"
    files.room = None
    reopened = open_store(tmp_path, files=files)
    log = reopened.log("ses_a")
    assert (log.evicted_seq, log.evicted_id) == (3, 3)
    assert reopened.evict("ses_a", before=1e12, max_bytes=None)
    log = open_store(tmp_path).log("ses_a")
    assert (log.first_seq, log.last_seq, log.evicted_id) == (5, 4, 4)


def test_the_reserve_takes_its_size_from_the_configuration(tmp_path: Path) -> None:
    for size in (8192, 4096, 16_384):
        open_store(tmp_path, reserve_bytes=size)
        assert (tmp_path / "reserve").stat().st_size == size


def test_room_is_taken_by_zeros_where_there_is_no_call_for_it(tmp_path: Path) -> None:
    path = tmp_path / "room"
    with open(path, "wb") as file:
        Files().fill(file.fileno(), 2_500_000)
    assert path.read_bytes() == bytes(2_500_000)


def test_without_room_for_a_reserve_there_is_none(tmp_path: Path) -> None:
    files = BadFiles()
    files.room = 10
    store = open_store(tmp_path, files=files, reserve_bytes=4096)
    assert not (tmp_path / "reserve").exists()
    files.room = 0
    with pytest.raises(StorageError):
        store.append("ses_a", [draft()], is_essential=True)
    (tmp_path / "reserve").mkdir()
    assert not store.recover()


# -- descriptors -------------------------------------------------------------------------------


def test_descriptors_are_kept_for_so_many_written_sessions_only(tmp_path: Path) -> None:
    before = descriptors(tmp_path)
    store = open_store(tmp_path)
    for number in range(MAX_OPEN + 40):
        store.append(f"ses_{number}", [draft()])
        store.append("ses_0", [draft()])
    assert descriptors(tmp_path) - before == MAX_OPEN
    for number in range(MAX_OPEN + 40):
        read(store, f"ses_{number}")
    assert descriptors(tmp_path) - before == MAX_OPEN
    store.release("ses_0")
    store.release("ses_unknown")
    assert descriptors(tmp_path) - before == MAX_OPEN - 1
    assert store.append("ses_1", [draft()]).last_seq == 2
    store.close()
    assert descriptors(tmp_path) == before
    store.close()


def test_a_log_is_the_same_object_for_all_and_goes_when_nobody_wants_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append("ses_a", [draft()])
    assert store.log("ses_a") is store.log("ses_a")
    store.release("ses_a")
    store.close()
    assert "ses_a" in repr(store.log("ses_a"))
    assert "last_id=1" in repr(store)
    assert read(store, "ses_a").seqs == [1]


def test_reading_without_descriptors_fails_and_loses_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path, tail_bytes=1)
    for _ in range(3):
        store.append("ses_a", [draft("x" * 5000)])
    store.append("ses_b", [draft()])
    store.close()
    log = store.log("ses_a")
    cursor = SessionCursor(log, after=0, form=Form())
    with no_descriptors():
        with pytest.raises(StorageError, match="cannot be read"):
            cursor.take(100)
        with pytest.raises(StorageError, match="cannot be read"):
            cursor.page(10)
        with pytest.raises(StorageError, match="cannot be read"):
            store.log("ses_c")
        assert list(log.records(0)) == []
        assert not store.evict("ses_d", before=0, max_bytes=None)
        with pytest.raises(StorageError):
            store.append("ses_b", [draft()])
    assert not store.is_full
    assert read_all(cursor).seqs == [1, 2, 3]


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """No descriptor can be opened inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- syncing -----------------------------------------------------------------------------------


async def test_what_is_written_is_on_disk_within_a_second(tmp_path: Path) -> None:
    files = BadFiles()
    synced: set[str] = set()
    wanted = anyio.Event()
    loop = threading.get_ident()

    def on_sync() -> None:
        assert threading.get_ident() != loop, "not on the loop"
        synced.add(os.readlink(f"/proc/self/fd/{files.synced[-1]}"))
        if len(synced) >= 5:
            anyio.from_thread.run_sync(wanted.set)

    files.on_sync = on_sync
    store = open_store(tmp_path, files=files, segment_bytes=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.sync_forever)
        store.append("ses_a", [draft()])
        store.append("ses_a", [draft()])
        store.append("ses_b", [draft()])
        store.release("ses_b")
        with anyio.fail_after(1):
            await wanted.wait()
        tasks.cancel_scope.cancel()
    assert synced == set(all_below(tmp_path)), "rolled segments and folders too"


def all_below(root: Path) -> list[str]:
    return [str(root), *(str(path) for path in root.rglob("*"))]


async def test_syncing_survives_purges_releases_and_failing_disks(tmp_path: Path) -> None:
    files = BadFiles()
    rounds: list[int] = []
    third = anyio.Event()

    def on_sync() -> None:
        rounds.append(1)
        if len(rounds) >= 3:
            anyio.from_thread.run_sync(third.set)
        anyio.from_thread.run_sync(store.purge, "ses_b")
        anyio.from_thread.run_sync(store.append, "ses_a", [draft()])
        if len(rounds) == 1:
            raise OSError(errno.EIO, "told so")

    files.on_sync = on_sync
    store = open_store(tmp_path, files=files)
    before = descriptors(tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.sync_forever)
        for name in ("ses_a", "ses_b", "ses_c"):
            store.append(name, [draft()])
        store.purge("ses_c")
        with anyio.fail_after(5):
            await third.wait()
        tasks.cancel_scope.cancel()
    files.on_sync = lambda: None
    store.close()
    assert descriptors(tmp_path) <= before
    assert not (tmp_path / "ses_b").exists()


async def test_what_could_not_be_opened_for_syncing_is_synced_later(tmp_path: Path) -> None:
    files = BadFiles()
    store = open_store(tmp_path, files=files)
    store.append("ses_a", [draft()])
    path = next((tmp_path / "ses_a").glob("*.seg"))
    store.release("ses_a")
    with no_descriptors():
        store.close()
    assert files.synced == []
    done = anyio.Event()
    files.on_sync = lambda: anyio.from_thread.run_sync(done.set)
    assert path.exists()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.sync_forever)
        with anyio.fail_after(2):
            await done.wait()
        tasks.cancel_scope.cancel()


async def test_closing_syncs_what_is_left(tmp_path: Path) -> None:
    files = BadFiles()
    store = open_store(tmp_path, files=files)
    store.append("ses_a", [draft()])
    store.close()
    assert len(files.synced) == 3


# -- signals, purging, retention ----------------------------------------------------------------


async def test_an_append_wakes_the_session_and_the_store_once_it_is_committed(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    log = store.log("ses_a")
    signals = [log.changed, store.changed]
    other = store.log("ses_b").changed
    store.append("ses_a", [draft()])
    with anyio.fail_after(1):
        for signal in signals:
            await signal.wait()
    assert not other.is_set()
    assert not log.changed.is_set()
    assert log.last_seq == 1


def test_a_purge_ends_readers_with_what_is_in_memory(tmp_path: Path) -> None:
    store = open_store(tmp_path, tail_bytes=3000, segment_bytes=2000)
    for number in range(20):
        store.append("ses_a", [draft(f"{number}" + "x" * 200)])
    log = store.log("ses_a")
    behind, live = (SessionCursor(log, after=after, form=Form()) for after in (0, 19))
    first = Reader()
    first.feed(behind.take(300))
    store.purge("ses_a")
    assert log.is_closed
    assert not (tmp_path / "ses_a").exists()
    assert read_all(live).seqs == [20]
    reader = first
    for piece in drain(behind):
        reader.feed(piece)
    assert reader.resets[0]["reason"] == "evicted"
    assert reader.seqs[-1] == 20
    assert store.log("ses_a").last_seq == 0
    store.purge("ses_a")
    assert descriptors(tmp_path) == 0


def test_a_purge_in_the_middle_of_a_large_record_lets_it_end(tmp_path: Path) -> None:
    before = descriptors(tmp_path)
    store = open_store(tmp_path, tail_bytes=1, segment_bytes=2000)
    for text in ("one", "x" * 900_000, "three"):
        store.append("ses_a", [draft(text)])
    store.log("ses_a")
    cursor = SessionCursor(store.log("ses_a"), after=1, form=Form())
    reader = Reader()
    while not cursor.is_at_end and not reader._rest:
        reader.feed(cursor.take(1000))
    store.purge("ses_a")
    assert descriptors(tmp_path) - before == 1
    while not cursor.is_at_end:
        reader.feed(cursor.take(1000))
    assert reader.seqs == [2, 3]
    assert descriptors(tmp_path) == before


def test_retention_goes_by_age_and_by_size(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=1)
    for number in range(6):
        store.append("ses_a", [draft(str(number))])
    paths = sorted((tmp_path / "ses_a").glob("*.seg"))
    for age, path in enumerate(paths):
        os.utime(path, (1000 + age, 1000 + age))
    assert not store.evict("ses_a", before=1000, max_bytes=None)
    assert store.evict("ses_a", before=1002, max_bytes=None)
    assert read(store, "ses_a", None).seqs == [3, 4, 5, 6]
    size = paths[-1].stat().st_size
    assert store.log("ses_a").size_bytes == size * 4
    assert store.evict("ses_a", before=None, max_bytes=size * 2)
    assert read(store, "ses_a", None).seqs == [5, 6]
    assert store.evict("ses_a", before=1e12, max_bytes=0)
    assert read(store, "ses_a", None).seqs == [6], "the one that is written stays"
    store.release("ses_a")
    assert store.evict("ses_a", before=1e12, max_bytes=0)
    assert not list((tmp_path / "ses_a").glob("*.seg"))
    assert not store.evict("ses_a", before=1e12, max_bytes=0)
    assert store.append("ses_a", [draft("next")]).last_seq == 7
    store.close()
    reopened = open_store(tmp_path)
    assert read(reopened, "ses_a", None).seqs == [7]
    assert read(reopened, "ses_a", 3).resets == [{"reason": "evicted", "firstSeq": 7, "lastSeq": 7}]


def test_what_an_earlier_run_wrote_is_evicted_by_its_own_ids(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=1)
    for number in range(5):
        store.append("ses_a", [draft(str(number))])
        store.append("ses_b", [draft(str(number))])
    store.close()
    store = open_store(tmp_path, segment_bytes=1)
    log = store.log("ses_a")
    sorted((tmp_path / "ses_a").glob("*.seg"))[0].unlink()
    assert store.evict("ses_a", before=None, max_bytes=500)
    assert (log.first_seq, log.evicted_seq, log.evicted_id) == (4, 3, 5)
    assert log.size_bytes < 500


def test_positions_outlive_all_entries(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(3):
        store.append("ses_a", [draft()])
    store.release("ses_a")
    assert store.evict("ses_a", before=1e12, max_bytes=None)
    store.close()
    reopened = open_store(tmp_path)
    assert reopened.last_id == 3
    assert reopened.append("ses_a", [draft()]).first_seq == 4


def test_what_is_not_old_is_not_even_opened(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append("ses_a", [draft()])
    store.close()
    (tmp_path / "ses_a" / "evicted").write_text("0 0 7 7\n")
    assert not store.evict("ses_a", before=1.0, max_bytes=10**9)
    assert not store.evict("ses_nobody", before=1e12, max_bytes=0)


def test_an_entry_that_cannot_be_unlinked_is_kept(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=1)
    for _ in range(3):
        store.append("ses_a", [draft()])
    first = sorted((tmp_path / "ses_a").glob("*.seg"))[0]
    first.unlink()
    first.mkdir()
    (first / "file").write_text("x")
    assert not store.evict("ses_a", before=1e12, max_bytes=None)
    assert read(store, "ses_a", 1).seqs == [2, 3]
