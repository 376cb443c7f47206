"""The audit log: one line an act, whatever is in it, and never in anybody's way."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.audit import AuditLog

NASTY = "a\r\nb\x1b[31m\u2028\u2029\u202e\x85\ud800\0"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "audit.jsonl"


@pytest.fixture
def log(path: Path) -> Iterator[AuditLog]:
    audit = AuditLog(path, lambda: 0.0, secrets=["the-secret-value"], max_bytes=1000, keep=2)
    yield audit
    audit.close()


def test_an_act_is_one_line_of_ascii_whatever_it_says(log: AuditLog, path: Path) -> None:
    log.write("session.created", title=NASTY, owner=None, tags=[NASTY, 1], more={"a": Path("/x")})
    line = path.read_bytes()
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")
    assert not any(byte < 32 for byte in line[:-1])
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.000Z",
        "event": "session.created",
        "title": NASTY,
        "tags": [NASTY, 1],
        "more": {"a": "/x"},
    }


def test_secrets_are_masked_and_long_texts_cut(log: AuditLog, path: Path) -> None:
    log.write("x", a="cab_0123456789", b=["the-secret-value"], c="y" * 5000)
    record = json.loads(path.read_bytes())
    assert (record["a"], record["b"]) == ("[redacted]", ["[redacted]"])
    assert len(record["c"]) == 1025


def test_the_file_is_for_its_owner_alone_and_is_appended_to(log: AuditLog, path: Path) -> None:
    log.write("a")
    log.close()
    log.write("b")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_the_file_is_rotated_by_size_and_the_oldest_goes(log: AuditLog, path: Path) -> None:
    for number in range(60):
        log.write("act", number=number)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(file.stat().st_size <= 1000 for file in files)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    numbers = [
        json.loads(line)["number"]
        for file in (files[2], files[1], files[0])
        for line in file.read_text().splitlines()
    ]
    assert numbers == list(range(numbers[0], 60))


def test_nothing_older_is_kept_where_nothing_is_to_be_kept(path: Path) -> None:
    log = AuditLog(path, lambda: 0.0, max_bytes=100, keep=0)
    for _ in range(10):
        log.write("act")
    log.close()
    assert [file.name for file in path.parent.iterdir()] == ["audit.jsonl"]


def test_what_cannot_be_written_is_counted_and_never_raises(
    log: AuditLog, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.mkdir()
    log.write("lost")
    log.write("lost too")
    assert len(caplog.records) == 1
    path.rmdir()
    log.write("found")
    log.write("next")
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["lostBefore"] == 2
    assert "lostBefore" not in second


def test_a_link_put_in_its_place_is_not_followed(
    log: AuditLog, path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    log.write("act")
    assert not (tmp_path / "elsewhere").exists()
    assert len(caplog.records) == 1


def test_a_short_write_is_a_lost_line(caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog(Path("/dev/full"), lambda: 0.0)
    log.write("act")
    assert len(caplog.records) == 1
