"""What a start does with logs whose rows are lost: each is opened once, none is passed over."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from pathlib import Path
from typing import Any, cast

from bridge.config import load
from bridge.errors import StorageError
from bridge.log.entry import Draft
from bridge.log.rows import SessionRow
from bridge.log.session_log import SessionLog
from bridge.log.store import Store
from bridge.log.tables import Tables
from bridge.protocol.view import new_view
from bridge.runtime import recovery
from bridge.runtime.registry import Registry
from bridge.runtime.services import Services
from bridge.runtime.timers import Timers

NAMES = [f"ses_{number:032x}" for number in range(5)]


class CountingStore(Store):
    """Counts how often each log is opened, and keeps none of them open for it."""

    opened: Counter[str]
    _known: weakref.WeakSet[SessionLog]

    def log(self, session_id: str) -> SessionLog:
        log = super().log(session_id)
        if log not in self._known:
            self._known.add(log)
            self.opened[session_id] += 1
        return log


class RefusingTables(Tables):
    """Takes nothing of one session the first times it is asked."""

    refusals = 0

    def save_session(self, row: SessionRow) -> None:
        if row.session_id == NAMES[2] and self.refusals:
            self.refusals -= 1
            raise StorageError("storage-full", "told so")
        super().save_session(row)


def recovered(folder: Path, refusals: int = 0) -> tuple[Services, Registry, CountingStore]:
    """What a start finds in a folder of five logs without a row."""
    store = CountingStore(folder / "log", segment_bytes=65536, clock=lambda: 1.8e9)
    store.opened, store._known = Counter(), weakref.WeakSet()
    for name in NAMES:
        view = new_view(
            name,
            owner="ada",
            agent="a",
            cwd=str(folder),
            at="2026-01-01T00:00:00.000Z",
            status="hibernated",
        )
        store.append(name, [Draft("bridge/session", json.dumps({"changed": view}).encode())])
    store.close()
    store.opened.clear()
    store._known.clear()
    tables = RefusingTables(folder / "bridge.sqlite3")
    tables.refusals = refusals
    services = Services(
        settings=load(None, agents={"a": {"command": ["a"]}}, storage={"state_dir": folder}),
        store=store,
        tables=tables,
        timers=Timers(lambda: 0.0),
        tasks=cast("Any", None),
        spawn=cast("Any", None),
        clock=lambda: 1.8e9,
        state_tag="tag",
        version="0",
    )
    registry = Registry(services)
    recovery.recover(services, registry)
    return services, registry, store


def test_a_log_without_a_row_is_opened_once(tmp_path: Path) -> None:
    services, _, store = recovered(tmp_path)
    assert store.opened == dict.fromkeys(NAMES, 1)
    assert all(services.tables.session(name) for name in NAMES)


def test_sessions_that_share_a_transaction_do_not_share_its_failure(tmp_path: Path) -> None:
    services, registry, _ = recovered(tmp_path, refusals=1)
    assert all(services.tables.session(name) for name in NAMES)
    assert not registry.live and not services.behind and not services.tables.open_sessions()


def test_a_session_that_the_tables_go_on_refusing_costs_no_other_its_row(tmp_path: Path) -> None:
    services, registry, _ = recovered(tmp_path, refusals=2)
    assert [name for name in NAMES if services.tables.session(name) is None] == [NAMES[2]]
    assert list(registry.live) == [NAMES[2]] and services.behind == {NAMES[2]}
