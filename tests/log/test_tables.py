"""The rows of sessions, turns, requests, keys, processes and pages, read back as they should."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.log.tables import Tables
from tests.log import rows


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    opened = Tables(tmp_path / "bridge.sqlite3")
    yield opened
    opened.close()


# -- sessions ---------------------------------------------------------------------------------


def test_a_session_comes_back_as_it_was_saved(tables: Tables) -> None:
    row = rows.session(
        agent_session_id="a-1", title=None, is_open=True, closed_at=7.5, private=b'{"x":1}'
    )

    tables.save_session(row)

    assert tables.session("ses_1") == row
    assert tables.session("ses_2") is None
    assert tables.owner_of("ses_1") == ("ada", "cursor", row.cwd)
    assert tables.owner_of("ses_2") is None


def test_saving_a_session_again_replaces_all_of_it(tables: Tables) -> None:
    tables.save_session(rows.session())
    later = rows.session(
        agent_session_id="a-2",
        cwd="/elsewhere",
        title="Other",
        status="closed",
        updated_at=9.0,
        last_seq=8,
        last_id=80,
        projected_seq=8,
        is_open=True,
        closed_at=9.0,
        view=b"{}",
        private=b'{"y":2}',
    )

    tables.save_session(later)

    assert tables.session("ses_1") == later


def test_text_that_sqlite_cannot_hold_is_made_plain_and_still_found(tables: Tables) -> None:
    tables.save_session(rows.session(title="half \ud83d emoji\0", agent_session_id="a\ud83d"))

    found = tables.session("ses_1")

    assert found is not None
    assert found.title == "half ? emoji\0"
    assert [head.session_id for head in tables.by_agent_session("cursor", "a\ud83d")] == ["ses_1"]
    listed, _ = tables.list_sessions(frozenset({"ada"}), None, query="\ud83d emoji")
    assert len(listed) == 1


def test_touching_moves_time_and_positions_only(tables: Tables) -> None:
    row = rows.session()
    tables.save_session(row)

    tables.touch_session("ses_1", 200.0, 30, 300)

    assert tables.session("ses_1") == replace(row, updated_at=200.0, last_seq=30, last_id=300)


def test_a_session_is_open_from_its_mark_until_it_is_saved_at_rest(tables: Tables) -> None:
    tables.save_session(rows.session("ses_1"))
    tables.save_session(rows.session("ses_2"))

    tables.mark_open("ses_2")
    assert tables.open_sessions() == ["ses_2"]

    tables.save_session(rows.session("ses_2"))
    assert tables.open_sessions() == []


def test_ids_go_on_from_the_highest_position_of_any_row(tables: Tables) -> None:
    assert tables.max_last_id() == 0

    tables.save_session(rows.session("ses_1", last_id=70))
    tables.save_session(rows.session("ses_2", last_id=90, status="purged"))

    assert tables.max_last_id() == 90


def test_an_agents_conversation_is_found_by_agent_and_id(tables: Tables) -> None:
    tables.save_session(rows.session("ses_1", agent_session_id="same", status="closed"))
    tables.save_session(rows.session("ses_2", agent_session_id="same", owner="bob"))
    tables.save_session(rows.session("ses_3", agent_session_id="same", agent="other"))
    tables.save_session(rows.session("ses_4"))

    found = tables.by_agent_session("cursor", "same")

    assert [(each.session_id, each.owner, each.status) for each in found] == [
        ("ses_1", "ada", "closed"),
        ("ses_2", "bob", "idle"),
    ]


def test_sessions_with_entries_after_a_position_are_those_the_caller_sees(tables: Tables) -> None:
    tables.save_session(rows.session("ses_1", last_id=10))
    tables.save_session(rows.session("ses_2", last_id=30))
    tables.save_session(rows.session("ses_3", last_id=20, agent="other"))
    tables.save_session(rows.session("ses_4", last_id=25, owner="bob"))
    tables.save_session(rows.session("ses_5", last_id=40, status="closed"))
    tables.save_session(rows.session("ses_6", last_id=50, status="purged"))
    ada = frozenset({"ada"})

    assert tables.sessions_after(10, ada, None) == ["ses_3", "ses_2", "ses_5"]
    assert tables.sessions_after(10, ada | {"bob"}, frozenset({"cursor"})) == [
        "ses_4",
        "ses_2",
        "ses_5",
    ]
    assert tables.sessions_after(0, frozenset(), None) == []


def test_closed_sessions_are_found_by_when_they_were_closed(tables: Tables) -> None:
    tables.save_session(rows.session("ses_1", status="closed", closed_at=30.0))
    tables.save_session(rows.session("ses_2", status="closed", closed_at=10.0))
    tables.save_session(rows.session("ses_3", status="closed", closed_at=50.0))
    tables.save_session(rows.session("ses_4"))

    assert tables.closed_before(50.0) == ["ses_2", "ses_1"]


def test_an_owners_sessions_are_counted_without_the_closed_ones(tables: Tables) -> None:
    tables.save_session(rows.session("ses_1"))
    tables.save_session(rows.session("ses_2", status="failed"))
    tables.save_session(rows.session("ses_3", status="closed"))
    tables.save_session(rows.session("ses_4", owner="bob"))

    assert tables.count_sessions("ada") == 2
    assert tables.count_sessions("nobody") == 0


def test_forgetting_a_session_removes_all_but_its_processes_and_others(tables: Tables) -> None:
    for each in ("ses_1", "ses_2"):
        tables.save_session(rows.session(each))
        tables.save_turn(rows.turn(f"turn_of_{each}", session_id=each))
        tables.save_request(rows.request(f"req_of_{each}", session_id=each))
        tables.save_page(each, None, 1, 2, b"[]")
        tables.save_key(rows.key(key=each, session_id=each))
    tables.save_process(rows.process())

    tables.forget_session("ses_1")

    assert tables.session("ses_1") is None
    assert tables.turn("turn_of_ses_1") is None
    assert tables.request("req_of_ses_1") is None
    assert tables.last_page("ses_1") is None
    assert tables.key("ada", "POST", "/v1/sessions", "ses_1") is None
    assert tables.processes() == [rows.process()]
    assert tables.session("ses_2") is not None
    assert tables.turn("turn_of_ses_2") is not None
    assert tables.request("req_of_ses_2") is not None
    assert tables.last_page("ses_2") is not None
    assert tables.key("ada", "POST", "/v1/sessions", "ses_2") is not None


# -- turns ------------------------------------------------------------------------------------


def test_turns_are_numbered_per_session_once_and_listed_newest_first(tables: Tables) -> None:
    for number in range(1, 6):
        tables.save_turn(rows.turn(f"turn_{number}"))
    tables.save_turn(rows.turn("turn_other", session_id="ses_2"))
    ended = rows.turn(
        "turn_2", status="completed", first_seq=3, last_seq=9, created_at=5.0, body=b'{"a":1}'
    )
    tables.save_turn(ended)

    first, cursor = tables.turns("ses_1", limit=3)
    second, end = tables.turns("ses_1", cursor, limit=3)

    assert [each.number for each in first] == [5, 4, 3]
    assert [each.number for each in second] == [2, 1]
    assert cursor is not None
    assert end is None
    assert tables.turn("turn_2") == replace(ended, number=2)
    assert tables.turn("turn_other") == rows.turn("turn_other", session_id="ses_2", number=1)
    assert tables.turn("turn_9") is None


def test_open_turns_are_those_without_an_end_oldest_first(tables: Tables) -> None:
    for number, status in enumerate(
        ("completed", "waiting", "failed", "queued", "cancelled", "running"), 1
    ):
        tables.save_turn(rows.turn(f"turn_{number}", status=status))

    assert [each.turn_id for each in tables.open_turns("ses_1")] == ["turn_2", "turn_4", "turn_6"]

    tables.save_turn(rows.turn("turn_4", status="cancelled"))
    assert [each.turn_id for each in tables.open_turns("ses_1")] == ["turn_2", "turn_6"]


# -- requests ---------------------------------------------------------------------------------


def test_a_request_keeps_its_winner_however_often_it_is_saved_again(tables: Tables) -> None:
    tables.save_request(rows.request())
    answered = rows.request(status="answered", winner="w", reply_hash="r", body=b'{"b":1}')
    tables.save_request(answered)
    tables.save_request(replace(answered, winner=None, reply_hash=None))

    assert tables.request("req_1") == answered
    assert tables.request("req_2") is None


def test_requests_of_a_session_are_listed_in_the_order_they_came(tables: Tables) -> None:
    for name in ("req_c", "req_a", "req_b"):
        tables.save_request(rows.request(name))
    tables.save_request(rows.request("req_early", created_at=1.0, status="answered"))
    tables.save_request(rows.request("req_other", session_id="ses_2"))

    every, _ = tables.requests("ses_1")
    first, cursor = tables.requests("ses_1", status="pending", limit=2)
    second, end = tables.requests("ses_1", status="pending", cursor=cursor, limit=2)

    assert [each.request_id for each in every] == ["req_early", "req_c", "req_a", "req_b"]
    assert [each.request_id for each in first] == ["req_c", "req_a"]
    assert [each.request_id for each in second] == ["req_b"]
    assert end is None


def test_requests_over_all_sessions_are_those_of_the_owners_and_agents(tables: Tables) -> None:
    tables.save_request(rows.request("req_1", created_at=3.0))
    tables.save_request(rows.request("req_2", created_at=2.0, owner="bob"))
    tables.save_request(rows.request("req_3", created_at=1.0, owner="eve"))
    tables.save_request(rows.request("req_4", created_at=4.0, agent="other"))
    tables.save_request(rows.request("req_5", created_at=5.0, status="withdrawn"))
    both = frozenset({"ada", "bob"})

    def listed(
        agents: frozenset[str] | None, status: str | None, limit: int = 2
    ) -> list[list[str]]:
        pages: list[list[str]] = []
        cursor = None
        while not pages or cursor is not None:
            found, cursor = tables.requests(
                owners=both, agents=agents, status=status, cursor=cursor, limit=limit
            )
            pages.append([each.request_id for each in found])
        return pages

    assert listed(None, "pending") == [["req_2", "req_1"], ["req_4"]]
    assert listed(frozenset({"cursor"}), None) == [["req_2", "req_1"], ["req_5"]]
    assert listed(None, None) == [["req_2", "req_1"], ["req_4", "req_5"]]


# -- keys, processes, pages -------------------------------------------------------------------


def test_a_key_is_found_by_owner_method_path_and_key_together(tables: Tables) -> None:
    tables.save_key(rows.key())

    assert tables.key("ada", "POST", "/v1/sessions", "k") == rows.key()
    assert tables.key("bob", "POST", "/v1/sessions", "k") is None
    assert tables.key("ada", "PUT", "/v1/sessions", "k") is None
    assert tables.key("ada", "POST", "/v1/other", "k") is None
    assert tables.key("ada", "POST", "/v1/sessions", "j") is None


def test_of_two_uses_of_a_key_the_later_one_stays(tables: Tables) -> None:
    tables.save_key(rows.key(created_at=200.0, ref=b'"late"'))
    tables.save_key(rows.key(created_at=100.0, ref=b'"early"'))
    tables.save_key(rows.key(created_at=200.0, ref=b'"same time"'))
    found = tables.key("ada", "POST", "/v1/sessions", "k")
    assert found is not None
    assert found.ref == b'"late"'

    anew = rows.key(created_at=300.0, ref=b'"anew"', body_hash="other", session_id="ses_2")
    tables.save_key(anew)
    assert tables.key("ada", "POST", "/v1/sessions", "k") == anew


def test_keys_used_before_a_time_are_forgotten(tables: Tables) -> None:
    tables.save_key(rows.key(key="old", created_at=1.0))
    tables.save_key(rows.key(key="new", created_at=2.0))

    assert tables.forget_keys(2.0) == 1

    assert tables.key("ada", "POST", "/v1/sessions", "old") is None
    assert tables.key("ada", "POST", "/v1/sessions", "new") is not None


def test_a_process_is_remembered_until_that_very_one_has_ended(tables: Tables) -> None:
    first, reused = rows.process(), rows.process(start_ticks=8)
    tables.save_process(first)
    tables.save_process(first)
    tables.save_process(reused)
    assert tables.processes() == [first, reused]

    tables.drop_process(4242, 7)
    tables.drop_process(1, 1)

    assert tables.processes() == [reused]


def test_pages_are_read_backwards_from_an_entry(tables: Tables) -> None:
    for first_seq in (1, 10, 20, 30):
        tables.save_page("ses_1", f"turn_{first_seq}", first_seq, first_seq + 5, b"[]")
    tables.save_page("ses_2", None, 99, 100, b"[]")

    newest = tables.pages("ses_1", None, 2)
    older = tables.pages("ses_1", newest[-1].first_seq, 2)

    assert [each.first_seq for each in newest] == [30, 20]
    assert [each.first_seq for each in older] == [10, 1]
    assert tables.pages("ses_1", 1, 2) == []
    assert tables.pages("ses_1", 10**19, 0) == []
    assert tables.last_page("ses_1") == newest[0]
    assert tables.last_page("ses_3") is None


def test_a_page_that_begins_at_the_same_entry_is_replaced(tables: Tables) -> None:
    tables.save_page("ses_1", None, 1, 5, b"[1]")
    tables.save_page("ses_1", "turn_1", 1, 9, b"[1,2]")

    (page,) = tables.pages("ses_1", None, 10)

    assert (page.turn_id, page.last_seq, page.items) == ("turn_1", 9, b"[1,2]")
