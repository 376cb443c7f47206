"""Any course of appends, reads, cuts, evictions and restarts gives exactly the log, once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.log.cursor import SessionCursor
from bridge.log.entry import Draft
from bridge.log.forms import Form, belongs_to
from bridge.log.multiplex import BridgeCursor
from bridge.log.store import Store
from tests.log.logs import Cursor, Reader, draft, drain, open_store

SESSIONS = ("ses_a", "ses_b", "ses_c")
KINDS = ("session/update", "bridge/session", "cursor/task")
TURNS = (None, "turn_1", "turn_2")
FAST = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

sizes = st.sampled_from([0, 0, 1, 20, 20, 300, 3000, 60_000, 131_072, 300_000])
entries = st.tuples(sizes, st.sampled_from(KINDS), st.sampled_from(TURNS))
session = st.integers(0, len(SESSIONS) - 1)
reader = st.integers(0, 5)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), session, st.lists(entries, min_size=1, max_size=6)),
        st.tuples(st.just("append"), session, st.lists(entries, min_size=1, max_size=6)),
        st.tuples(st.just("take"), reader, st.sampled_from([1, 7, 100, 5000, 65536, 262144])),
        st.tuples(st.just("take"), reader, st.sampled_from([1, 7, 100, 5000, 65536, 262144])),
        st.tuples(st.just("cut"), reader, st.integers(0, 400)),
        st.tuples(st.just("release"), session, st.none()),
        st.tuples(st.just("evict"), session, st.sampled_from([0, 4000, 20_000])),
        st.tuples(st.just("reopen"), session, st.none()),
    ),
    max_size=30,
)


@dataclass
class Subscriber:
    """A reader, its cursor, and what it is to see of a session's or of all sessions' entries."""

    begin: Callable[[Store, int], Cursor]
    wants: Callable[[str, Draft], bool]
    is_bridge: bool
    reader: Reader = field(default_factory=Reader)
    cursor: Any = None

    def connect(self, store: Store) -> None:
        self.cursor = self.begin(store, self.reader.last_id)
        self.reader.cut()
        self.reader.feed(self.cursor.preamble())


def of_session(name: str, form: Form, wants: Callable[[Draft], bool]) -> Subscriber:
    return Subscriber(
        lambda store, after: SessionCursor(store.log(name), after=after, form=form),
        lambda session_id, each: session_id == name and wants(each),
        False,
    )


def of_bridge(seen: frozenset[str], form: Form, wants: Callable[[Draft], bool]) -> Subscriber:
    def begin(store: Store, after: int) -> BridgeCursor:
        return BridgeCursor(
            store,
            after_id=after,
            sees=seen.__contains__,
            sessions_after=lambda number: [
                each for each in store.sessions() if store.log(each).last_id > number
            ],
            form=form,
        )

    return Subscriber(begin, lambda session_id, each: session_id in seen and wants(each), True)


def subscribers() -> list[Subscriber]:
    updates = Form(types=("session/*",))
    return [
        of_session("ses_a", Form(), lambda _: True),
        of_session("ses_a", Form(named=False), lambda _: True),
        of_session("ses_a", updates, lambda each: each.type.startswith("session/")),
        of_session(
            "ses_b", Form(keep=belongs_to("turn_1")), lambda each: each.turn_id in (None, "turn_1")
        ),
        of_bridge(frozenset(SESSIONS), Form(), lambda _: True),
        of_bridge(
            frozenset(SESSIONS[:2]),
            Form(named=False, types=("cursor/task", "bridge/*")),
            lambda each: not each.type.startswith("session/"),
        ),
    ]


class World:
    """A store, what was put into it, and who reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = open_store(root, segment_bytes=8000, tail_bytes=20_000)
        self.written: list[tuple[int, str, int, Draft]] = []
        self.gone: dict[str, int] = dict.fromkeys(SESSIONS, 0)
        self.subscribers = subscribers()
        for each in self.subscribers:
            each.connect(self.store)

    def append(self, index: int, wanted: list[tuple[int, str, str | None]]) -> None:
        name = SESSIONS[index]
        drafts = [draft("x" * size, kind, turn_id=turn) for size, kind, turn in wanted]
        seq, number = self.store.log(name).last_seq, self.store.last_id
        record = self.store.append(name, drafts)
        for step, each in enumerate(drafts, 1):
            self.written.append((number + step, name, seq + step, each))
        assert (record.last_seq, record.last_id) == (seq + len(drafts), number + len(drafts))

    def take(self, index: int, max_bytes: int) -> None:
        subscriber = self.subscribers[index]
        subscriber.reader.feed(subscriber.cursor.take(max_bytes))

    def cut(self, index: int, lost: int) -> None:
        subscriber = self.subscribers[index]
        if lost == 0:
            subscriber.connect(self.store)
        piece = subscriber.cursor.take(100 + lost)
        subscriber.reader.feed(piece[: max(0, len(piece) - lost)])
        subscriber.connect(self.store)

    def release(self, index: int, _: None) -> None:
        self.store.release(SESSIONS[index])

    def evict(self, index: int, max_bytes: int) -> None:
        name = SESSIONS[index]
        self.store.evict(name, before=None, max_bytes=max_bytes)
        self.gone[name] = self.store.log(name).first_seq - 1

    def reopen(self, _: int, __: None) -> None:
        self.store.close()
        self.store = open_store(self.root, segment_bytes=8000, tail_bytes=20_000)
        for each in self.subscribers:
            each.connect(self.store)

    def check(self) -> None:
        for each in self.subscribers:
            for piece in drain(each.cursor):
                each.reader.feed(piece)
            self.check_one(each)

    def check_one(self, subscriber: Subscriber) -> None:
        reader = subscriber.reader
        wanted = [each for each in self.written if subscriber.wants(each[1], each[3])]
        seen = {each["id"]: each for each in reader.entries}
        assert [each["id"] for each in reader.entries] == sorted(seen), "once, in order"
        for number, name, seq, each in wanted:
            if number in seen:
                shown = seen[number]
                assert (shown["seq"], shown["sessionId"], shown["type"]) == (seq, name, each.type)
                assert len(shown["params"]["text"]) + len('{"text": ""}') == len(each.params)
            else:
                assert seq <= self.gone[name], "only what was evicted may be missing"
                assert is_told(subscriber, name, number, seq), "and it is said"
        assert seen.keys() <= {number for number, _, _, _ in wanted}
        is_named = subscriber.cursor.form.named
        assert all((kind is not None) == is_named for kind in reader.kinds)
        self.check_position(subscriber)

    def check_position(self, subscriber: Subscriber) -> None:
        cursor = subscriber.cursor
        last = self.store.last_id if subscriber.is_bridge else cursor.log.last_seq
        assert subscriber.reader.last_id == cursor.position == last


def is_told(subscriber: Subscriber, name: str, number: int, seq: int) -> bool:
    """Whether a reset of that session stands before the first later entry of it."""
    later = False
    for event in subscriber.reader.events:
        if event["type"] == "bridge/reset" and event["sessionId"] == name:
            later = True
        elif event.get("sessionId") == name and event["id"] > number:
            return later
    return later


@FAST
@given(steps)
def test_every_subscriber_gets_the_log_once_in_order_whatever_happens(
    course: list[tuple[str, int, Any]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for name, index, value in course:
            getattr(world, name)(index, value)
        world.check()
        world.store.close()
