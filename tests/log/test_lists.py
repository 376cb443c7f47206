"""Lists and searches of sessions: who is in them, in which order, and by which index."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.errors import CallerError
from bridge.log import statements
from bridge.log.database import Database
from bridge.log.search import make_index
from bridge.log.tables import Tables
from tests.log import rows

ADA = frozenset({"ada"})
STATEMENTS = {name: text for name, text in vars(statements).items() if name.isupper()}


@pytest.fixture(params=["trigram", "no-such-tokenizer"])
def tables(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tables]:
    opened = Tables(tmp_path / "bridge.sqlite3", tokenizer=request.param)
    yield opened
    opened.close()


def found(
    tables: Tables,
    owners: frozenset[str] = ADA,
    agents: frozenset[str] | None = None,
    *,
    status: str | None = None,
    agent: str | None = None,
    query: str | None = None,
) -> list[str]:
    listed, _ = tables.list_sessions(owners, agents, status=status, agent=agent, query=query)
    return [each.session_id for each in listed]


def test_the_latest_activity_comes_first(tables: Tables) -> None:
    tables.save_session(rows.session("ses_1", updated_at=1.0))
    tables.save_session(rows.session("ses_2", updated_at=3.0))
    tables.save_session(rows.session("ses_3", updated_at=2.0, owner="bob"))
    assert found(tables, frozenset({"ada", "bob"})) == ["ses_2", "ses_3", "ses_1"]

    tables.touch_session("ses_1", 4.0, 2, 2)
    assert found(tables) == ["ses_1", "ses_2"]


def test_rows_in_a_list_are_whole(tables: Tables) -> None:
    row = rows.session(is_open=True, private=b'{"x":1}')
    tables.save_session(row)

    assert tables.list_sessions(ADA, None) == ([row], None)


def test_closed_sessions_are_listed_by_their_status_only_and_purged_ones_never(
    tables: Tables,
) -> None:
    for status in ("idle", "running", "failed", "closed", "purged"):
        tables.save_session(rows.session(f"ses_{status}", status=status))

    assert set(found(tables)) == {"ses_idle", "ses_running", "ses_failed"}
    assert found(tables, status="running") == ["ses_running"]
    assert found(tables, status="closed") == ["ses_closed"]
    assert found(tables, status="purged") == []


def test_agents_are_narrowed_by_what_may_be_seen_and_what_is_wanted(tables: Tables) -> None:
    for agent in ("cursor", "other", "third"):
        tables.save_session(rows.session(f"ses_{agent}", agent=agent))
    seen = frozenset({"cursor", "other"})

    assert set(found(tables, agents=seen)) == {"ses_cursor", "ses_other"}
    assert found(tables, agents=seen, agent="other") == ["ses_other"]
    assert found(tables, agents=seen, agent="third") == []
    assert found(tables, agents=frozenset()) == []
    assert found(tables, frozenset()) == []


@pytest.mark.parametrize("owners", [ADA, frozenset({"ada", "bob"})])
def test_pages_repeat_and_skip_nothing_though_many_share_a_time(
    tables: Tables, owners: frozenset[str]
) -> None:
    for number in range(25):
        owner = "bob" if "bob" in owners and number % 3 else "ada"
        tables.save_session(
            rows.session(f"ses_{number:02}", updated_at=float(number // 10), owner=owner)
        )
    pages: list[list[str]] = []
    cursor = None
    while not pages or cursor is not None:
        listed, cursor = tables.list_sessions(owners, None, cursor=cursor, limit=5)
        pages.append([each.session_id for each in listed])

    assert [len(page) for page in pages] == [5, 5, 5, 5, 5]
    assert [name for page in pages for name in page] == [
        f"ses_{number:02}" for number in reversed(range(25))
    ]


def test_no_room_for_rows_is_an_empty_page(tables: Tables) -> None:
    tables.save_session(rows.session())

    assert tables.list_sessions(ADA, None, limit=0) == ([], None)
    assert tables.list_sessions(ADA, None, limit=-1) == ([], None)


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "ä", "\ud83d", "////", "bnVsbA", "W10", "WyJzIiwxLDJd", "WyJzIiwxZTk5OSwiYSJd"],
)
def test_a_broken_cursor_is_the_callers_mistake(tables: Tables, cursor: str) -> None:
    for listing in (
        lambda: tables.list_sessions(ADA, None, cursor=cursor),
        lambda: tables.requests("ses_1", cursor=cursor),
        lambda: tables.turns("ses_1", cursor=cursor),
    ):
        with pytest.raises(CallerError) as caught:
            listing()
        assert caught.value.code == "invalid-request"


def test_a_cursor_of_another_list_or_out_of_range_is_refused(tables: Tables) -> None:
    for number in (1, 2):
        tables.save_turn(rows.turn(f"turn_{number}"))
    _, cursor = tables.turns("ses_1", limit=1)
    huge = base64.urlsafe_b64encode(b'["t",9223372036854775808]').decode()

    with pytest.raises(CallerError):
        tables.list_sessions(ADA, None, cursor=cursor)
    with pytest.raises(CallerError):
        tables.turns("ses_1", cursor=huge)


@pytest.mark.parametrize(
    ("query", "is_found"),
    [
        ("flaky", True),
        ("FLAKY TEST", True),
        ("äÖ", True),
        ("straSSe", True),
        ("work/engine", True),
        ("100%", True),
        ("100_", False),
        ("f_aky", False),
        ("f%y", False),
        ('say "hi"', True),
        ('"', True),
        ("hi*", False),
        ("fla OR xyz", False),
        ("k", True),
        ("zq", False),
        ("flakey", False),
        ("/home/ada/work/engine/below", False),
        ("", True),
    ],
)
def test_a_query_is_any_part_of_title_or_folder_in_any_case(
    tables: Tables, query: str, is_found: bool
) -> None:
    tables.save_session(
        rows.session(title='Flaky test ÄÖ Straße 100% say "hi"', cwd="/home/ada/Work/engine")
    )

    assert found(tables, query=query) == (["ses_1"] if is_found else [])


def test_a_query_does_not_run_over_from_the_title_into_the_folder(tables: Tables) -> None:
    tables.save_session(rows.session(title="one", cwd="/two"))
    tables.save_session(rows.session("ses_2", title="one\n/two", cwd="/three"))

    assert found(tables, query="one\n/two") == ["ses_2"]


def test_a_search_follows_every_change_and_no_rollback(tables: Tables) -> None:
    tables.save_session(rows.session(title="first words"))
    tables.save_session(rows.session(title="second words"))
    assert found(tables, query="first") == []
    assert found(tables, query="second") == ["ses_1"]

    with pytest.raises(ZeroDivisionError), tables.transaction():
        tables.save_session(rows.session(title="third words"))
        tables.save_session(rows.session("ses_2", title="second words"))
        raise ZeroDivisionError
    assert found(tables, query="third") == []
    assert found(tables, query="second") == ["ses_1"]

    tables.forget_session("ses_1")
    assert found(tables, query="second") == []


def test_a_search_finds_what_an_earlier_opening_saved(tmp_path: Path) -> None:
    first = Tables(tmp_path / "bridge.sqlite3")
    first.save_session(rows.session(title="remembered"))
    first.close()

    second = Tables(tmp_path / "bridge.sqlite3")

    assert found(second, query="REMEMBER") == ["ses_1"]
    second.close()


def test_a_search_obeys_every_filter_and_pages_through_few_and_many(tables: Tables) -> None:
    with tables.transaction():
        for number in range(620):
            tables.save_session(
                rows.session(
                    f"ses_{number:03}",
                    updated_at=float(number),
                    title="even" if number % 2 == 0 else f"odd number {number % 40}",
                    status="closed" if number == 0 else "idle",
                    owner="bob" if number == 2 else "ada",
                    agent="other" if number == 4 else "cursor",
                )
            )

    def walk(query: str) -> list[str]:
        names: list[str] = []
        cursor = None
        while True:
            listed, cursor = tables.list_sessions(
                ADA, frozenset({"cursor"}), query=query, cursor=cursor, limit=100
            )
            names += [each.session_id for each in listed]
            if cursor is None:
                return names

    assert walk("ENGINE") == [f"ses_{n:03}" for n in reversed(range(620)) if n not in (0, 2, 4)]
    assert walk("even") == [f"ses_{n:03}" for n in reversed(range(6, 620, 2))]
    assert walk("number 39") == [f"ses_{n:03}" for n in reversed(range(39, 620, 40))]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    opened = Database(tmp_path_factory.mktemp("plans") / "bridge.sqlite3")
    assert make_index(opened, "trigram")
    yield opened
    opened.close()


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_every_statement_finds_its_rows_by_an_index(database: Database, name: str) -> None:
    statement = STATEMENTS[name]
    named = dict.fromkeys(re.findall(r":(\w+)", statement), 1)
    parameters = named or [1] * (7 if "?7" in statement else statement.count("?"))

    plan = [step[3] for step in database.all(f"EXPLAIN QUERY PLAN {statement}", parameters)]

    # Walking an index in its order is how a list is read. Virtual tables are the names a caller
    # may see and the index of words.
    scans = [
        step
        for step in plan
        if step.startswith("SCAN") and not re.search(" VIRTUAL TABLE | INDEX |CONSTANT ROW", step)
    ]
    assert scans == []
    if name != "SEARCH_SESSIONS":
        assert not [step for step in plan if "TEMP B-TREE" in step], "a list is sorted afresh"


def test_every_statement_there_is_has_been_explained() -> None:
    assert len(STATEMENTS) > 30
    assert all(isinstance(text, str) for text in STATEMENTS.values())


def test_roots_narrow_what_may_be_seen_by_whole_segments(tables: Tables) -> None:
    tables.save_session(rows.session("ses_1", cwd="/ws", updated_at=5.0, last_id=1))
    tables.save_session(rows.session("ses_2", cwd="/ws/below", updated_at=4.0, last_id=2))
    tables.save_session(rows.session("ses_3", cwd="/ws-evil", updated_at=3.0, last_id=3))
    tables.save_session(rows.session("ses_4", cwd="/", updated_at=2.0, last_id=4))
    for number in range(1, 5):
        tables.save_request(rows.request(f"req_{number}", session_id=f"ses_{number}"))

    def seen(*roots: str) -> list[str]:
        listed, _ = tables.list_sessions(ADA, None, roots=roots)
        asked, _ = tables.requests(owners=ADA, status="pending", roots=roots)
        every, _ = tables.requests(owners=ADA, roots=roots)
        names = [each.session_id for each in listed]
        assert tables.sessions_after(0, ADA, None, roots) == names
        assert [each.session_id for each in asked] == names
        assert [each.session_id for each in every] == names
        return names

    assert seen("/ws") == ["ses_1", "ses_2"]
    assert seen("/ws/below/", "/ws-evil") == ["ses_2", "ses_3"]
    assert seen("/") == ["ses_1", "ses_2", "ses_3", "ses_4"]
    assert seen() == []
