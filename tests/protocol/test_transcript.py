"""The transcript: what a person reads, bounded, and the same however the entries are split."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.protocol.acp import peek_update
from bridge.protocol.items import MAX_PIECES, RAW_LIMIT_BYTES, new_item
from bridge.protocol.todos import MAX_TODOS, merge
from bridge.protocol.transcript import MAX_ITEMS, TranscriptFold
from bridge.protocol.turns import TEXT_LIMIT_BYTES

Entry = dict[str, Any]


def entry(type_: str, params: Any, turn_id: str | None = "turn_1", **more: Any) -> Entry:
    return {"type": type_, "params": json.dumps(params).encode(), "turn_id": turn_id, **more}


def update(kind: str, /, **members: Any) -> Entry:
    more = {name: members.pop(name) for name in ("is_replay", "subagent") if name in members}
    body = {"sessionUpdate": kind, **members}
    return entry("session/update", {"sessionId": "s", "update": body}, **more)


def chunk(text: str, role: str = "agent_message", **members: Any) -> Entry:
    return update(f"{role}_chunk", content={"type": "text", "text": text}, **members)


def fold(entries: Iterable[Entry], onto: TranscriptFold | None = None, start: int = 1) -> Any:
    folded = onto or TranscriptFold()
    for seq, given_entry in enumerate(entries, start):
        folded.apply(seq=seq, **given_entry)
    return folded


def items(*entries: Entry) -> Any:
    return fold(entries).items()


def brief(*entries: Entry) -> list[tuple[str, str]]:
    return [(item["type"], item.get("text", "")) for item in items(*entries)]


STARTED = entry(
    "bridge/turn_started",
    {
        "turn": {"turnId": "turn_1"},
        "prompt": [
            {"type": "text", "text": "hello"},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            {"type": "text", "text": "there"},
            {"type": "text"},
            7,
        ],
    },
)
ENDED = entry(
    "bridge/turn_ended",
    {"turn": {"turnId": "turn_1", "outcome": "ok", "stopReason": "end_turn", "error": None}},
)


def test_the_users_item_comes_from_the_turns_start_and_not_from_a_live_echo() -> None:
    echo = chunk("hello", "user_message")
    assert items(STARTED, echo) == [
        {
            "itemId": "user-1",
            "type": "user",
            "turnId": "turn_1",
            "firstSeq": 1,
            "lastSeq": 1,
            "open": False,
            "messageId": None,
            "text": "hello\nthere",
            "content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}],
        }
    ]


def test_a_prompt_that_is_a_text_or_nothing_readable_is_an_item_all_the_same() -> None:
    assert brief(entry("bridge/turn_started", {"prompt": "hi"})) == [("user", "hi")]
    assert brief(entry("bridge/turn_started", {})) == [("user", "")]


def test_replayed_chunks_are_items_and_do_not_run_into_live_ones() -> None:
    shown = items(
        chunk("hel", "user_message", is_replay=True),
        chunk("lo", "user_message", is_replay=True),
        chunk("old", is_replay=True),
        chunk("new"),
    )
    assert [(i["type"], i["text"], i.get("replay")) for i in shown] == [
        ("user", "hello", True),
        ("message", "old", True),
        ("message", "new", None),
    ]
    assert [i["open"] for i in shown] == [False, False, True]


def test_chunks_join_the_open_item_of_the_same_role_and_message() -> None:
    assert brief(
        chunk("a"),
        chunk("b"),
        chunk("t", "agent_thought"),
        chunk("u", "agent_thought"),
        chunk("c"),
        chunk("d", messageId="m1"),
        chunk("e", messageId="m1"),
        chunk("f", messageId="m2"),
    ) == [
        ("message", "ab"),
        ("thought", "tu"),
        ("message", "c"),
        ("message", "de"),
        ("message", "f"),
    ]


@pytest.mark.parametrize(
    ("between", "ends"),
    [
        (update("tool_call", toolCallId="t"), True),
        (update("tool_call_update", toolCallId="t"), True),
        (update("plan", entries=[]), True),
        (update("usage_update", used=1), False),
        (update("state_update", state="running"), False),
        (update("plan", entries=7), False),
        (update("tool_call", toolCallId=7), False),
        (chunk("", "agent_thought"), False),
        (chunk("echo", "user_message"), False),
        (entry("cursor/update_todos", {"todos": []}), False),
        (entry("cursor/ask_question", {}, request_id="req_1"), False),
        (entry("bridge/warning", {"code": "c", "detail": "d"}), False),
        (chunk("other", subagent="s2"), False),
        (entry("cursor/whatever", {"x": 1}), False),
        (entry("session/update", [1]), False),
        (entry("session/update", {"update": {"sessionUpdate": 5}}), False),
    ],
)
def test_what_ends_a_message_and_what_does_not(between: Entry, ends: bool) -> None:
    texts = [i["text"] for i in items(chunk("a"), between, chunk("b")) if i["type"] == "message"]
    assert [text for text in texts if text != "other"] == (["a", "b"] if ends else ["ab"])


def test_an_update_of_a_known_tool_does_not_end_a_message() -> None:
    shown = brief(
        update("tool_call", toolCallId="t"),
        chunk("a"),
        update("tool_call_update", toolCallId="t", status="completed"),
        chunk("b"),
    )
    assert shown == [("tool", ""), ("message", "ab")]


def test_a_block_that_is_no_text_is_kept_beside_the_text() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    (shown,) = items(chunk("see "), update("agent_message_chunk", content=image), chunk("this"))
    assert (shown["text"], shown["content"]) == ("see this", [image])
    no_blocks: list[Any] = [None, 7, [], {}, {"type": 7}, {"type": "text"}]
    for broken in [*no_blocks, {"type": "text", "text": 7}]:
        assert items(update("agent_message_chunk", content=broken)) == []
    assert items(update("user_message_chunk", content=image)) == []


def test_a_peek_gives_what_decoding_gives() -> None:
    for given_entry in (
        chunk("a", messageId="m"),
        update("tool_call", toolCallId="t"),
        update("agent_message_chunk", content={"type": "image"}),
        update("available_commands_update", availableCommands=[]),
        entry("session/update", None),
    ):
        peeked = {**given_entry, "peek": peek_update(given_entry["params"])}
        assert items(peeked) == items(given_entry)


def test_subagents_are_streams_of_their_own_and_are_marked() -> None:
    shown = items(
        chunk("a"),
        chunk("x", subagent="sub"),
        chunk("b"),
        update("tool_call", toolCallId="t", subagent="sub"),
        chunk("c"),
        chunk("y", subagent="sub"),
    )
    assert [(i["type"], i.get("text"), i.get("subagent")) for i in shown] == [
        ("message", "abc", None),
        ("message", "x", "sub"),
        ("tool", None, "sub"),
        ("message", "y", "sub"),
    ]


def test_a_tool_merges_its_updates_and_is_closed_by_its_status() -> None:
    diff = {"type": "diff", "path": "/a", "oldText": None, "newText": "x"}
    folded = fold(
        [
            update("tool_call", toolCallId="t", title="Edit", kind="edit", rawInput={"a": 1}),
            update("tool_call_update", toolCallId="t", status="in_progress", title=None),
            update("tool_call_update", toolCallId="t", content=[diff, 7], locations="x", kind=9),
        ]
    )
    assert folded.items() == [
        {
            "itemId": "tool-1",
            "type": "tool",
            "turnId": "turn_1",
            "firstSeq": 1,
            "lastSeq": 3,
            "open": True,
            "toolCallId": "t",
            "title": "Edit",
            "kind": "edit",
            "status": "in_progress",
            "content": [diff],
            "locations": None,
            "rawInput": {"a": 1},
            "rawOutput": None,
        }
    ]
    assert folded.tool("turn_1", "t") == {
        "toolCallId": "t",
        "title": "Edit",
        "kind": "edit",
        "status": "in_progress",
        "content": [diff],
        "rawInput": {"a": 1},
    }
    assert folded.tool("turn_2", "t") is None
    fold([update("tool_call_update", toolCallId="t", status="completed", rawOutput="o")], folded, 4)
    assert folded.items()[0]["open"] is False
    assert folded.items()[0]["rawOutput"] == "o"


def test_an_update_without_a_call_before_it_makes_the_tool() -> None:
    (shown,) = items(update("tool_call_update", toolCallId="t", title="Shell"))
    assert (shown["title"], shown["status"], shown["open"]) == ("Shell", None, True)
    assert items(update("tool_call", toolCallId="t"))[0]["status"] == "pending"


def test_the_bridge_closes_a_tool_that_the_agent_left_open() -> None:
    call = update("tool_call", toolCallId="t", status="in_progress")
    closed = entry("bridge/tool_closed", {"toolCallId": "t", "status": "failed"})
    (shown,) = items(call, closed)
    assert (shown["status"], shown["open"], shown["lastSeq"]) == ("failed", False, 2)
    assert items(call, entry("bridge/tool_closed", {"toolCallId": "t"}))[0]["open"] is False
    assert items(call, entry("bridge/tool_closed", {"toolCallId": 7}))[0]["open"] is True


def test_the_same_tool_id_in_another_turn_is_another_tool() -> None:
    late = {**update("tool_call_update", toolCallId="t"), "turn_id": None}
    assert len(items(update("tool_call", toolCallId="t"), late)) == 2


def test_a_plan_is_replaced_in_place() -> None:
    first, second = [{"content": "a"}], [{"content": "b"}, {"content": "c"}]
    shown = items(update("plan", entries=first), chunk("x"), update("plan", entries=second))
    assert [(i["type"], i.get("entries")) for i in shown] == [("plan", second), ("message", None)]


def test_todos_are_one_item_however_they_are_told() -> None:
    tool = update(
        "tool_call",
        toolCallId="t",
        rawInput={
            "_toolName": "updateTodos",
            "todos": [{"content": "a", "status": "TODO_STATUS_IN_PROGRESS"}],
        },
    )
    same = entry("cursor/update_todos", {"todos": [{"content": "a", "status": "in_progress"}]})
    shown = items(tool, same, entry("_cursor/update_todos", {"todos": "broken"}))
    assert [i["type"] for i in shown] == ["tool", "todos"]
    assert shown[1]["todos"] == [{"content": "a", "status": "in_progress"}]
    assert shown[1]["lastSeq"] == 2


def test_a_patch_of_todos_knows_what_stood_when_the_page_began() -> None:
    patch = entry("cursor/update_todos", {"todos": [{"id": "1", "status": "completed"}]})
    patch["params"] = patch["params"].replace(b"]}", b'],"merge":true}')
    before = [{"id": "1", "content": "a", "status": "pending"}]
    expected = [{"id": "1", "content": "a", "status": "completed"}]
    folded = TranscriptFold(before)
    fold([patch], folded)
    assert folded.items()[0]["todos"] == expected
    folded.cut()
    fold([{**patch, "turn_id": "turn_2"}], folded, 2)
    assert folded.items()[0]["todos"] == expected
    fold([{**patch, "subagent": "sub"}, {**patch, "turn_id": None}], folded, 3)
    assert [i["todos"][0]["content"] for i in folded.items()] == ["a", "", "a"]


def test_a_request_is_an_item_until_it_is_resolved() -> None:
    asked = entry("cursor/create_plan", {"plan": "p"}, request_id="req_1")
    request = {"requestId": "req_1", "status": "answered", "resolution": {"by": "caller"}}
    resolved = entry("bridge/request_resolved", {"request": request}, request_id="req_1")
    (shown,) = items(asked)
    assert (shown["status"], shown["open"], shown["kind"]) == ("pending", True, "plan")
    assert shown["params"] == {"plan": "p"}
    (shown,) = items(asked, resolved)
    assert (shown["status"], shown["open"]) == ("answered", False)
    assert shown["resolution"] == {"by": "caller"}
    (alone,) = items(resolved)
    assert (alone["requestId"], alone["status"], alone["open"]) == ("req_1", "answered", False)
    assert items(entry("bridge/request_resolved", {"request": 7})) == []
    assert items(entry("_vendor/ask", {}, request_id="req_2"))[0]["kind"] == "extension"
    assert items(entry("odd/method", {}, request_id="req_2"))[0]["kind"] == "extension"


def test_a_turns_end_closes_everything_before_it() -> None:
    other = {**chunk("later", subagent="x"), "turn_id": None}
    shown = items(STARTED, chunk("a"), update("tool_call", toolCallId="t"), other, ENDED)
    assert [(i["type"], i["open"]) for i in shown] == [
        ("user", False),
        ("message", False),
        ("tool", False),
        ("message", False),
        ("turn_end", False),
    ]
    assert shown[-1]["outcome"] == "ok"
    assert shown[-1]["stopReason"] == "end_turn"
    assert items(entry("bridge/turn_ended", {}))[0]["turnId"] == "turn_1"


def test_what_the_bridge_has_to_say_is_a_notice() -> None:
    shown = items(
        entry("bridge/warning", {"code": "turn-stalled", "detail": "d"}),
        entry("bridge/agent_exited", {"exitCode": 1, "signal": None, "stderrTail": "boom"}),
        entry("bridge/session_deleted", {"purged": False}),
    )
    assert [(i["type"], i["code"]) for i in shown] == [
        ("notice", "turn-stalled"),
        ("notice", "agent-exited"),
        ("notice", "session-deleted"),
    ]
    assert shown[1]["stderrTail"] == "boom"


def test_a_cut_hands_out_closed_items_and_begins_anew() -> None:
    folded = fold([STARTED, chunk("a")])
    assert [i["open"] for i in folded.cut()] == [False, False]
    assert folded.items() == []
    fold([chunk("b")], folded, 3)
    assert [i["itemId"] for i in folded.items()] == ["message-3"]
    assert repr(folded) == "<TranscriptFold items=1>"
    assert repr(new_item("message", 3, None)) == "<Item message-3 open=True>"


def test_a_text_is_cut_at_its_limit_between_characters() -> None:
    head = "a" * (TEXT_LIMIT_BYTES - 1)
    (shown,) = items(chunk(head), chunk("é"), chunk("b"))
    assert shown["text"] == head
    assert shown["truncated"] is True
    assert shown["lastSeq"] == 3
    (full,) = items(chunk(head), chunk("b"))
    assert "truncated" not in full
    (over,) = items(chunk(head), chunk("b"), chunk("c"))
    assert (len(over["text"]), over["truncated"]) == (TEXT_LIMIT_BYTES, True)


def test_raw_values_and_contents_are_bounded() -> None:
    big = "x" * (RAW_LIMIT_BYTES + 1)
    (shown,) = items(update("tool_call", toolCallId="t", rawInput={"a": big}, rawOutput="o"))
    assert (shown["rawInput"], shown["rawOutput"], shown["truncated"]) == (None, "o", True)
    huge = {"type": "diff", "path": "/a", "newText": "x" * TEXT_LIMIT_BYTES, "name": big}
    small = {"type": "content", "content": {"type": "text", "text": "t"}}
    (shown,) = items(update("tool_call", toolCallId="t", content=[huge, small]))
    assert shown["content"] == [{"type": "diff", "path": "/a", "truncated": True}, small]
    many = [{"path": "/a"}] * (MAX_PIECES + 1)
    (shown,) = items(update("tool_call", toolCallId="t", locations=many))
    assert (len(shown["locations"]), shown["truncated"]) == (MAX_PIECES, True)


def test_a_page_has_room_for_so_many_items_and_always_for_the_turns_end() -> None:
    notices = [entry("bridge/warning", {"code": "c"})] * (MAX_ITEMS - 1)
    more = [
        update("tool_call", toolCallId="t"),
        update("tool_call", toolCallId="u"),
        update("plan", entries=[]),
        entry("cursor/update_todos", {"todos": []}),
        entry("_vendor/ask", {}, request_id="req_1"),
        entry("bridge/request_resolved", {"request": {"requestId": "req_1"}}),
        chunk("a"),
        update("agent_message_chunk", content={"type": "image"}),
        STARTED,
        ENDED,
    ]
    shown = items(*notices, *more)
    assert len(shown) == MAX_ITEMS + 1
    assert [i.get("code", i["type"]) for i in shown[-2:]] == ["transcript-truncated", "turn_end"]


@pytest.mark.parametrize(
    ("before", "params", "after"),
    [
        ([], {"todos": [{"id": "1", "content": "a"}]}, [("1", "a", "pending")]),
        ([("1", "a", "pending")], {"todos": [{"id": "2"}]}, [("2", "", "pending")]),
        (
            [("1", "a", "pending")],
            {"merge": True, "todos": [{"id": "1", "status": "completed"}]},
            [("1", "a", "completed")],
        ),
        (
            [("1", "a", "pending")],
            {"merge": True, "todos": [{"id": "1", "content": None, "status": "done"}]},
            [("1", "a", "done")],
        ),
        (
            [("1", "a", "pending")],
            {"merge": True, "todos": [{"id": "2", "title": "b", "status": "TODO_STATUS_PENDING"}]},
            [("1", "a", "pending"), ("2", "b", "pending")],
        ),
        (
            [("1", "a", "pending"), ("2", "b", "pending")],
            {"merge": False, "todos": [{"id": "2", "status": "completed"}]},
            [("2", "b", "completed")],
        ),
        (
            [(None, "a", "pending")],
            {"merge": True, "todos": [{"content": "a", "status": "TODO_STATUS_COMPLETED"}]},
            [(None, "a", "completed")],
        ),
        (
            [],
            {"todos": [{"id": 1, "content": 7, "status": 8}, {"id": 1, "content": "a"}, "x", {}]},
            [(1, "a", "pending"), (None, "", "pending")],
        ),
        (
            [(None, "a", "pending"), (None, "b", "pending")],
            {"merge": True, "todos": [{"id": "1", "content": "a", "status": "completed"}]},
            [("1", "a", "completed"), (None, "b", "pending")],
        ),
        (
            [("1", "a", "pending"), ("2", "b", "pending")],
            {"merge": True, "todos": [{"content": "a", "status": "TODO_STATUS_COMPLETED"}]},
            [("1", "a", "completed"), ("2", "b", "pending")],
        ),
        (
            [("1", "a", "pending")],
            {"merge": True, "todos": [{"id": "2", "content": "a"}]},
            [("1", "a", "pending"), ("2", "a", "pending")],
        ),
        ([("1", "a", "pending")], {"todos": "none", "merge": True}, [("1", "a", "pending")]),
        ([("1", "a", "pending")], {"todos": []}, []),
        ([("1", "a", "pending")], {"merge": "yes", "todos": []}, []),
    ],
)
def test_todos_are_replaced_or_patched(
    before: list[tuple[Any, str, str]], params: dict[str, Any], after: list[tuple[Any, str, str]]
) -> None:
    todos = [
        {"content": content, "status": status} | ({} if todo_id is None else {"id": todo_id})
        for todo_id, content, status in before
    ]
    merged = merge(todos, params)
    assert [(t.get("id"), t["content"], t["status"]) for t in merged] == after
    assert merge(merged, {**params, "merge": True}) == merged


def test_todos_keep_unknown_members_and_are_bounded() -> None:
    assert merge([], {"todos": [{"id": "1", "owner": "x"}]})[0]["owner"] == "x"
    many = [{"id": str(n)} for n in range(MAX_TODOS + 5)]
    assert len(merge([], {"todos": many})) == MAX_TODOS


ids = st.sampled_from(["t1", "t2"])
streams = st.fixed_dictionaries(
    {}, optional={"subagent": st.sampled_from([None, "sub"]), "is_replay": st.booleans()}
)
texts = st.text(max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
statuses = st.sampled_from(["pending", "in_progress", "completed", "failed", None, 7])
todo_lists = st.lists(
    st.fixed_dictionaries({}, optional={"id": ids, "content": texts, "status": statuses}),
    max_size=2,
)
chunks = st.builds(
    lambda role, text, message_id, more: chunk(text, role, messageId=message_id, **more),
    st.sampled_from(["agent_message", "agent_thought", "user_message"]),
    texts,
    st.sampled_from([None, "m1", "m2"]),
    streams,
)
blocks = st.builds(
    lambda content, more: update("agent_message_chunk", content=content, **more),
    json_values | st.just({"type": "image", "data": "A"}),
    streams,
)
tools = st.builds(
    lambda kind, members, more: update(kind, **members, **more),
    st.sampled_from(["tool_call", "tool_call_update"]),
    st.fixed_dictionaries(
        {"toolCallId": ids},
        optional={
            "title": texts | st.none(),
            "status": statuses,
            "content": json_values | st.lists(st.just({"type": "diff", "path": "/a"}), max_size=2),
            "rawInput": json_values
            | st.builds(lambda todos: {"_toolName": "updateTodos", "todos": todos}, todo_lists),
            "rawOutput": json_values,
        },
    ),
    streams,
)
ENTRY_TYPES = [
    "session/update",
    "cursor/update_todos",
    "_vendor/ask",
    "bridge/turn_started",
    "bridge/turn_ended",
    "bridge/request_resolved",
    "bridge/tool_closed",
    "bridge/warning",
    "bridge/agent_exited",
    "bridge/session_deleted",
    "unknown",
]
others = st.builds(
    lambda kind, params, more: entry(kind, params, **more),
    st.sampled_from(ENTRY_TYPES),
    json_values
    | st.builds(lambda todos, m: {"todos": todos, "merge": m}, todo_lists, st.booleans())
    | st.builds(lambda i: {"request": {"requestId": i, "status": "answered"}}, ids)
    | st.builds(lambda i: {"toolCallId": i, "status": "failed"}, ids)
    | st.sampled_from([{"turn": {"turnId": "turn_1"}}, {"prompt": [{"type": "text"}, {}, 1]}])
    | st.builds(lambda e: {"update": {"sessionUpdate": "plan", "entries": e}}, json_values),
    st.fixed_dictionaries(
        {},
        optional={
            "turn_id": st.sampled_from(["turn_1", "turn_2", None]),
            "request_id": ids,
            "subagent": st.sampled_from([None, "sub"]),
        },
    ),
)
sequences = st.lists(chunks | blocks | tools | others, max_size=14)


@settings(deadline=None)
@given(sequences)
@example(
    [
        update("tool_call", toolCallId="t1"),
        entry("bridge/turn_ended", {}, turn_id=None),
        update("tool_call", toolCallId="t1"),
    ]
)
@example([entry("bridge/turn_ended", {})] * 2 + [update("tool_call", toolCallId="t1")] * 2)
def test_folding_later_entries_onto_a_snapshot_gives_exactly_the_later_transcript(
    entries: list[Entry],
) -> None:
    whole = fold(entries).items()
    for split in range(len(entries) + 1):
        stored = json.loads(json.dumps(fold(entries[:split]).items()))
        later = TranscriptFold.from_items(stored)
        fold(entries[split:], later, split + 1)
        assert later.items() == whole


@given(sequences)
def test_ids_are_unique_items_are_ordered_and_nothing_raises(entries: list[Entry]) -> None:
    shown = items(*entries)
    assert len({i["itemId"] for i in shown}) == len(shown)
    assert [i["firstSeq"] for i in shown] == sorted(i["firstSeq"] for i in shown)
    assert all(i["firstSeq"] <= i["lastSeq"] for i in shown)


@given(st.binary(max_size=40), st.sampled_from(["session/update", "bridge/turn_ended", "_x/y"]))
def test_bytes_that_are_no_json_never_raise(params: bytes, type_: str) -> None:
    TranscriptFold().apply(seq=1, turn_id=None, type=type_, params=params, request_id="req_1")


def test_a_snapshot_of_cut_texts_goes_on_as_the_whole_would() -> None:
    entries = [chunk("a" * (TEXT_LIMIT_BYTES - 1)), chunk("é"), chunk("b"), chunk("c")]
    whole = fold(entries).items()
    for split in range(5):
        later = TranscriptFold.from_items(fold(entries[:split]).items())
        fold(entries[split:], later, split + 1)
        assert later.items() == whole
