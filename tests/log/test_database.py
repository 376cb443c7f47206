"""One file: transactions, reopening, who may read it, full disks, damaged and newer files."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bridge.errors import StorageError
from bridge.log.database import Database
from bridge.log.schema import STEPS
from bridge.log.tables import Tables
from tests.log import rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bridge.sqlite3"


@pytest.fixture
def tables(path: Path) -> Iterator[Tables]:
    with closing(Tables(path)) as opened:
        yield opened


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}


# -- transactions -----------------------------------------------------------------------------


def test_a_transaction_that_fails_leaves_nothing(tables: Tables) -> None:
    with pytest.raises(ZeroDivisionError), tables.transaction():
        tables.save_session(rows.session())
        tables.save_turn(rows.turn())
        raise ZeroDivisionError

    assert tables.session("ses_1") is None
    assert tables.turn("turn_1") is None
    tables.save_session(rows.session())
    assert tables.session("ses_1") is not None


def test_an_inner_transaction_joins_the_outer_one(tables: Tables) -> None:
    with pytest.raises(ZeroDivisionError), tables.transaction():
        with tables.transaction():
            tables.save_session(rows.session("ses_1"))
        raise ZeroDivisionError
    assert tables.session("ses_1") is None

    with tables.transaction(), tables.transaction():
        tables.save_session(rows.session("ses_2"))
    assert tables.session("ses_2") is not None


def test_a_failure_of_an_inner_transaction_cannot_be_passed_over(tables: Tables) -> None:
    with pytest.raises(RuntimeError, match="passed over"), tables.transaction():
        tables.save_session(rows.session("ses_1"))
        try:
            with tables.transaction():
                tables.save_session(rows.session("ses_2"))
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass

    assert tables.session("ses_1") is None
    assert tables.session("ses_2") is None
    with tables.transaction():
        tables.save_session(rows.session("ses_3"))
    assert tables.session("ses_3") is not None


def test_an_empty_transaction_is_fine(tables: Tables) -> None:
    with tables.transaction():
        pass


# -- the file ---------------------------------------------------------------------------------


def test_what_was_saved_is_there_after_reopening(path: Path) -> None:
    with closing(Tables(path)) as first:
        first.save_session(rows.session())
        first.save_turn(rows.turn())
        first.close()

    with closing(Tables(path)) as second:
        assert second.damaged is None
        assert second.session("ses_1") == rows.session()
        second.save_turn(rows.turn("turn_2"))
        assert [each.number for each in second.turns("ses_1")[0]] == [2, 1]


def test_what_was_committed_outlives_a_kill(path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from bridge.log.tables import Tables\n"
        "from tests.log import rows\n"
        "tables = Tables(pathlib.Path(sys.argv[1]))\n"
        "tables.save_session(rows.session())\n"
        "with tables.transaction():\n"
        "    tables.save_session(rows.session('ses_2'))\n"
        "    print('now', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"now\n"
        child.send_signal(signal.SIGKILL)

    with closing(Tables(path)) as tables:
        assert tables.damaged is None
        assert tables.session("ses_1") == rows.session()
        assert tables.session("ses_2") is None


@pytest.mark.usefixtures("open_umask")
def test_nobody_else_may_read_any_of_the_files(path: Path, tables: Tables) -> None:
    tables.save_session(rows.session())

    assert modes(path.parent) == {
        "bridge.sqlite3": 0o600,
        "bridge.sqlite3-wal": 0o600,
        "bridge.sqlite3-shm": 0o600,
    }


def test_a_file_that_others_could_read_is_closed_to_them(path: Path) -> None:
    path.touch()
    path.chmod(0o644)

    with closing(Tables(path)) as tables:
        tables.save_session(rows.session())
        assert set(modes(path.parent).values()) == {0o600}


def test_a_folder_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Tables(tmp_path / "missing" / "bridge.sqlite3")


def test_the_file_is_written_ahead_and_synchronised_at_checkpoints(path: Path) -> None:
    with closing(Database(path)) as database:
        assert database.one("PRAGMA journal_mode") == ("wal",)
        assert database.one("PRAGMA synchronous") == (1,)
        assert database.one("PRAGMA wal_autocheckpoint") == (1000,)
        assert database.one("PRAGMA user_version") == (len(STEPS),)


def test_a_layout_of_a_newer_version_is_left_alone(path: Path) -> None:
    with closing(Tables(path)) as tables:
        tables.save_session(rows.session())
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version = {len(STEPS) + 1}")

    with pytest.raises(StorageError) as caught:
        Tables(path)

    assert "newer version" in (caught.value.hint or "")
    assert [each.name for each in path.parent.iterdir()] == ["bridge.sqlite3"]


# -- a full disk ------------------------------------------------------------------------------


def test_a_full_disk_is_said_and_what_was_kept_stays(path: Path) -> None:
    with closing(Tables(path)) as tables:
        tables.save_session(rows.session("ses_1"))
    with closing(Tables(path, max_pages=60)) as tables:
        with pytest.raises(StorageError) as caught, tables.transaction():
            tables.save_session(rows.session("ses_2"))
            tables.save_session(rows.session("ses_3", view=bytes(1_000_000)))

        assert caught.value.code == "storage-full"
        assert tables.session("ses_1") == rows.session("ses_1")
        assert tables.session("ses_2") is None
        tables.save_session(rows.session("ses_4"))
        assert tables.session("ses_4") is not None


def test_a_full_disk_inside_a_transaction_cannot_be_passed_over(path: Path) -> None:
    with closing(Tables(path, max_pages=60)) as tables:
        with pytest.raises(RuntimeError, match="passed over"), tables.transaction():
            tables.save_session(rows.session("ses_1"))
            with pytest.raises(StorageError):
                tables.save_page("ses_1", None, 1, 2, bytes(1_000_000))
            with pytest.raises(StorageError):
                tables.save_page("ses_1", None, 1, 2, bytes(1_000_000))

        assert tables.session("ses_1") is None
        tables.save_session(rows.session("ses_1"))
        assert tables.session("ses_1") is not None


def test_no_room_to_begin_with_is_said_as_well(path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        Tables(path, max_pages=2).close()

    assert caught.value.code == "storage-full"


def test_any_other_failure_stays_what_it_is(path: Path) -> None:
    with closing(Database(path)) as database, pytest.raises(sqlite3.OperationalError):
        database.write("INSERT INTO nowhere VALUES (1)")


# -- a damaged file ---------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_moved_aside(path: Path) -> None:
    path.write_bytes(b"this was never a database" * 500)

    with closing(Tables(path)) as tables:
        assert tables.damaged == f"{path}.damaged-1"
        tables.save_session(rows.session())

    assert Path(f"{path}.damaged-1").read_bytes().startswith(b"this was never")
    path.write_bytes(b"nor is this one" * 500)
    with closing(Tables(path)) as tables:
        assert tables.damaged == f"{path}.damaged-2"
        assert tables.session("ses_1") is None


def test_damage_in_the_middle_of_a_file_is_found_at_opening(path: Path) -> None:
    with closing(Tables(path)) as tables, tables.transaction():
        for number in range(300):
            tables.save_session(rows.session(f"ses_{number}"))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))

    with closing(Tables(path)) as tables:
        assert tables.damaged == f"{path}.damaged-1"
        assert tables.list_sessions(frozenset({"ada"}), None) == ([], None)


def test_damage_that_only_a_check_finds_is_found_at_opening(path: Path) -> None:
    with closing(Tables(path)) as tables, tables.transaction():
        for number in range(300):
            tables.save_session(rows.session(f"ses_{number}"))
    with path.open("r+b") as file:
        file.seek(-8 * 4096, os.SEEK_END)
        file.write(bytes(8 * 4096))

    with closing(Tables(path)) as tables:
        assert tables.damaged == f"{path}.damaged-1"


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE sessions (theirs)")

    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        Tables(path)

    assert path.exists()


def test_a_write_ahead_log_goes_with_the_file_it_belongs_to(path: Path) -> None:
    path.write_bytes(b"no database at all" * 500)
    wal = Path(f"{path}-wal")
    wal.write_bytes(b"nor a log")

    with closing(Tables(path)) as tables:
        assert tables.damaged is not None
        tables.save_session(rows.session())

    assert Path(f"{path}.damaged-1").exists()
    assert not wal.exists()
