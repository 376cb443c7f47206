"""The contract's events: streams, pages, positions, filters, ends; the transcript's pages."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from bridge.api.stream import Source, follow
from tests.e2e.contract import (  # noqa: F401
    Checked,
    agents,
    events_hold,
    module_backend,
    module_bridge,
    module_tidy,
)
from tests.e2e.harness import Bridge, Event, Json, Subprocess, demo, ended, read_events, serving
from tests.e2e.test_contract_around import problem_of
from tests.e2e.test_contract_sessions import path_of

pytestmark = pytest.mark.anyio

STREAM = {"Accept": "text/event-stream"}


async def spoken(bridge: Bridge, *words: str) -> tuple[Json, list[Json]]:
    """A session with some turns, and all of its events."""
    session = await bridge.caller.session()
    for word in words or ("hello",):
        await bridge.caller.turn(session["sessionId"], word)
    return session, await bridge.caller.log(session["sessionId"])


async def page(bridge: Bridge, path: str, **params: object) -> Json:
    """One page of events."""
    answer = await bridge.caller.get(path, params=params)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def head_of(bridge: Bridge, path: str, **headers: str) -> bytes:
    """The beginning of a stream."""
    data = b""
    with anyio.fail_after(15):
        async with bridge.caller.http.stream("GET", path, headers=STREAM | headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            async for chunk in answer.aiter_bytes():
                data += chunk
                if b"\n\n" in data:
                    break
    return data


# -- events ------------------------------------------------------------------------------------


async def test_an_event_has_its_places_its_type_and_the_agents_own_params(bridge: Bridge) -> None:
    session, events = await spoken(bridge, "subagent")
    for number, event in enumerate(events, 1):
        assert event["seq"] == number and event["sessionId"] == session["sessionId"]
    ids = [event["id"] for event in events]
    assert ids == sorted(set(ids))
    kinds = [event["type"] for event in events]
    assert kinds[0] == "bridge/session" and "session/update" in kinds
    assert set(events[0]["params"]["changed"]) >= {"sessionId", "owner", "cwd", "status", "mode"}
    assert any(event.get("subagent") for event in events)


async def test_a_turns_end_is_told_in_order(bridge: Bridge) -> None:
    session = await bridge.caller.session(agent="hanging")
    turn = await bridge.caller.prompt(session["sessionId"], "open")
    await bridge.caller.until(
        f"{path_of(session)}/events", lambda event: event.kind == "session/update"
    )
    await bridge.caller.post(f"{path_of(session)}/cancel")
    await bridge.caller.settled(session["sessionId"], turn["turnId"])
    kinds = [event["type"] for event in await bridge.caller.log(session["sessionId"])]
    assert kinds[-3:] == ["bridge/tool_closed", "bridge/turn_ended", "bridge/session"]


# -- streams -----------------------------------------------------------------------------------


async def test_a_stream_begins_with_retry_and_the_position(bridge: Bridge) -> None:
    session, events = await spoken(bridge)
    path = f"{path_of(session)}/events"
    last = events[-1]["seq"]
    assert (await head_of(bridge, path)).startswith(b"retry: 1000\nid: 0\n\n")
    latest = await head_of(bridge, f"{path}?after=latest")
    assert latest == b"retry: 1000\nid: %d\n\n" % last
    assert await head_of(bridge, f"{path}?format=sse&after={last}") == latest


async def test_an_events_lines_are_id_event_and_one_line_of_json(bridge: Bridge) -> None:
    session, events = await spoken(bridge, "big 64")
    found = await bridge.caller.until(
        f"{path_of(session)}/events", lambda event: event.seq == events[-1]["seq"]
    )
    events_hold(found)
    for event in found:
        lines = event.raw.split(b"\n")
        assert [line.split(b": ")[0] for line in lines] == [b"id", b"event", b"data"]
        assert event.id == str(event.seq) and event.type == event.kind
    assert [event.data for event in found] == events


async def test_last_event_id_comes_before_after(bridge: Bridge) -> None:
    session, events = await spoken(bridge)
    path = f"{path_of(session)}/events"
    head = await head_of(bridge, f"{path}?after=1", **{"Last-Event-ID": "3"})
    assert head.startswith(b"retry: 1000\nid: 3\n\n")
    listed = await bridge.caller.get(f"{path}?after=1", headers={"Last-Event-ID": "3"})
    assert listed.json()["events"] == events[3:]


@pytest.mark.parametrize("bad", ["x", "-1", "1.5", "1" * 20, "", "latest ", "%D9%A1"])
async def test_a_position_that_is_no_number_is_400(bridge: Bridge, bad: str) -> None:
    session = await bridge.caller.session(agent="basic")
    for path in (f"{path_of(session)}/events", "/v1/events"):
        problem_of(await bridge.caller.get(f"{path}?after={bad}"), 400, "invalid-request")
    if bad and bad == bad.strip():
        answer = await bridge.caller.get(
            f"{path_of(session)}/events", headers={"Last-Event-ID": bad}
        )
        problem_of(answer, 400, "invalid-request")


async def test_types_filter_and_bare_ids_move_the_position(bridge: Bridge) -> None:
    session, events = await spoken(bridge)
    path = f"{path_of(session)}/events"
    wanted = [event for event in events if event["type"] == "session/update"]
    listed = await page(bridge, path, types="session/update")
    assert listed["events"] == wanted and listed["nextAfter"] == events[-1]["seq"]
    ours = await page(bridge, path, types="bridge/*,cursor/*")
    assert {event["type"].split("/")[0] for event in ours["events"]} == {"bridge"}
    data = b""
    with anyio.fail_after(15):
        async with bridge.caller.http.stream(
            "GET", f"{path}?types=session/update", headers=STREAM
        ) as answer:
            async for chunk in answer.aiter_bytes():
                data += chunk
                if data.endswith(b"\n\nid: %d\n\n" % events[-1]["seq"]):
                    break


async def test_unnamed_events_have_no_event_line(bridge: Bridge) -> None:
    session, events = await spoken(bridge)
    found = await bridge.caller.until(
        f"{path_of(session)}/events?named=false",
        lambda event: event.seq == events[-1]["seq"],
    )
    assert {event.type for event in found} == {None}
    assert [event.data for event in found] == events


async def test_a_stream_goes_on_live(bridge: Bridge) -> None:
    session, events = await spoken(bridge)
    found: list[Event] = []
    with anyio.fail_after(15):
        async with bridge.caller.stream(
            f"{path_of(session)}/events", params={"after": events[-1]["seq"]}
        ) as stream:
            turn = await bridge.caller.prompt(session["sessionId"], "hello")
            async for event in stream:
                found.append(event)
                if ended(turn["turnId"])(event):
                    break
    assert [event.seq for event in found] == list(
        range(events[-1]["seq"] + 1, events[-1]["seq"] + 1 + len(found))
    )


class Quiet:
    """A cursor to which nothing comes."""

    is_at_end = True

    def preamble(self) -> bytes:
        """The position."""
        return b"retry: 1000\nid: 7\n\n"

    def take(self, max_bytes: int = 0) -> bytes:
        """Nothing."""
        return b""


async def test_a_quiet_stream_has_a_comment_every_15_seconds() -> None:
    waits: list[float] = []

    def hold(limit_s: float) -> anyio.CancelScope:
        waits.append(limit_s)
        return anyio.move_on_after(0)

    source = Source(Quiet(), anyio.Event, hold=hold)
    found: list[bytes] = []
    async for piece in follow(source, anyio.Event()):
        found.append(piece)
        if len(found) == 4:
            break
    assert found == [Quiet().preamble(), b": \n\n", b": \n\n", b": \n\n"]
    assert waits == [15.0, 15.0, 15.0]


# -- pages -------------------------------------------------------------------------------------


async def test_pages_follow_on_each_other(bridge: Bridge) -> None:
    session, events = await spoken(bridge, "stream 30 0")
    path = f"{path_of(session)}/events"
    found: list[Json] = []
    after, more = 0, True
    while more:
        part = await page(bridge, path, after=after, limit=7)
        assert len(part["events"]) <= 7
        found += part["events"]
        after, more = part["nextAfter"], part["more"]
    assert found == events and after == events[-1]["seq"]
    assert len((await page(bridge, path, limit=5000))["events"]) == len(events)


@pytest.mark.parametrize("accept", ["application/json", "text/html", "*/*"])
async def test_a_page_comes_unless_a_stream_is_named(bridge: Bridge, accept: str) -> None:
    session, _ = await spoken(bridge)
    answer = await bridge.caller.get(f"{path_of(session)}/events", headers={"Accept": accept})
    assert answer.headers["content-type"] == "application/json"
    forced = await bridge.caller.get(f"{path_of(session)}/events?format=json", headers=STREAM)
    assert forced.headers["content-type"] == "application/json"
    odd = await bridge.caller.get(f"{path_of(session)}/events?format=xml")
    problem_of(odd, 400, "invalid-request")


async def test_a_long_poll_is_held_until_something_comes_or_the_time_is_up(
    bridge: Bridge,
) -> None:
    session, events = await spoken(bridge)
    path = f"{path_of(session)}/events"
    last = events[-1]["seq"]
    empty = await page(bridge, path, after=last, wait=1)
    assert empty == {"events": [], "nextAfter": last, "more": False}
    found: list[Json] = []

    async def poll() -> None:
        found.append(await page(bridge, path, after=last, wait=15, types="bridge/turn_ended"))

    with anyio.fail_after(14):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poll)
            await bridge.caller.prompt(session["sessionId"], "hello")
    assert [event["type"] for event in found[0]["events"]] == ["bridge/turn_ended"]


# -- resets and ends ---------------------------------------------------------------------------


async def test_a_position_ahead_of_the_end_gets_a_reset(bridge: Bridge) -> None:
    session, events = await spoken(bridge)
    last = events[-1]["seq"]
    path = f"{path_of(session)}/events"
    listed = await page(bridge, path, after=10**18, types="session/update")
    (reset,) = listed["events"]
    assert reset["type"] == "bridge/reset" and "seq" not in reset
    assert reset["params"] == {"reason": "ahead", "firstSeq": 1, "lastSeq": last}
    assert listed["nextAfter"] == last
    found = await bridge.caller.until(
        path, lambda event: event.kind == "bridge/reset", params={"after": 10**18}
    )
    assert found[0].id == str(last)
    everywhere = await page(bridge, "/v1/events", after=10**18)
    assert everywhere["events"][0]["params"]["reason"] == "ahead"
    assert everywhere["events"][0]["params"]["lastId"] == everywhere["nextAfter"]


async def test_what_retention_removed_is_said(tmp_path: Path) -> None:
    storage = {"segment_bytes": 4096}
    async with serving(tmp_path, agents(tmp_path), default_agent="demo", storage=storage) as bridge:
        bridge.caller = Checked(bridge.caller.url)
        session, events = await spoken(bridge, *["stream 40 0"] * 4)
        store = bridge.application.context.running.services.store
        store.evict(session["sessionId"], before=0.0, max_bytes=1)
        path = f"{path_of(session)}/events"
        first = (await bridge.caller.get(path_of(session))).json()["firstSeq"]
        assert 1 < first <= events[-1]["seq"]
        listed = await page(bridge, path, after=0, limit=1000)
        assert listed["events"][0]["params"]["reason"] == "evicted"
        assert listed["events"][0]["params"]["firstSeq"] == first
        assert listed["events"][1:] == events[first - 1 :]
        fresh = await page(bridge, path, limit=1000)
        assert fresh["events"] == events[first - 1 :]
        items = (await bridge.caller.get(f"{path_of(session)}/transcript")).json()["items"]
        assert items[0]["firstSeq"] < first
        await bridge.caller.http.aclose()


async def test_a_closed_sessions_stream_ends_and_resuming_at_its_end_is_204(
    bridge: Bridge,
) -> None:
    session, _ = await spoken(bridge)
    path = f"{path_of(session)}/events"
    found: list[Event] = []
    with anyio.fail_after(15):
        async with bridge.caller.stream(path) as stream:
            await bridge.caller.http.delete(path_of(session))
            found = [event async for event in stream]
    assert "bridge/session_deleted" in [event.kind for event in found]
    end = found[-1].seq
    answer = await bridge.caller.get(path, headers=STREAM | {"Last-Event-ID": str(end)})
    assert (answer.status_code, answer.content) == (204, b"")
    with anyio.fail_after(15):
        async with bridge.caller.stream(path, params={"after": end - 1}) as stream:
            assert [event.seq async for event in stream] == [end]


async def test_a_closed_sessions_stream_also_ends_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    config = (
        f'default_agent = "demo"\n[agents.demo]\ncommand = {demo()!r}\ndialect = "cursor"\n'
        f'env = {{ CURSOR_DEMO_HOME = "{tmp_path / "demo"}" }}\n'
    )
    process = Subprocess(tmp_path, config)
    try:
        caller = await process.start()
        session = await caller.session()
        await caller.http.delete(path_of(session))
        end = (await caller.get(path_of(session))).json()["lastSeq"]
        await caller.http.aclose()
        process.kill()
        caller = await process.start()
        path = f"{path_of(session)}/events"
        answer = await caller.get(path, headers=STREAM | {"Last-Event-ID": str(end)})
        assert answer.status_code == 204
        with anyio.fail_after(15):
            async with caller.stream(path) as stream:
                assert [event.seq async for event in stream] == list(range(1, end + 1))
        await caller.http.aclose()
    finally:
        process.stop()


# -- the multiplexed stream ----------------------------------------------------------------------


async def test_the_multiplexed_stream_carries_all_sessions_under_global_ids(
    bridge: Bridge,
) -> None:
    before = (await bridge.caller.get("/v1/sessions")).json()["lastId"]
    first, _ = await spoken(bridge)
    second, _ = await spoken(bridge)
    wanted = {first["sessionId"], second["sessionId"]}
    listed = await page(bridge, "/v1/events", after=before, limit=1000)
    assert {event["sessionId"] for event in listed["events"]} == wanted
    last = listed["events"][-1]["id"]
    assert listed["nextAfter"] == last
    found = await bridge.caller.until(
        "/v1/events",
        lambda event: event.data is not None and event.data["id"] == last,
        params={"after": before},
    )
    assert [event.data for event in found] == listed["events"]
    assert [event.id for event in found] == [str(each["id"]) for each in listed["events"]]


async def test_the_multiplexed_stream_is_narrowed_and_starts_at_the_latest(
    bridge: Bridge,
) -> None:
    before = (await bridge.caller.get("/v1/sessions")).json()["lastId"]
    first, events = await spoken(bridge)
    await spoken(bridge)
    names = f"{first['sessionId']},ses_unknown"
    listed = await page(bridge, "/v1/events", after=before, sessions=names, limit=1000)
    assert listed["events"] == events
    latest = (await bridge.caller.get("/v1/sessions")).json()["lastId"]
    assert (await head_of(bridge, "/v1/events")) == b"retry: 1000\nid: %d\n\n" % latest
    assert (await page(bridge, "/v1/events"))["events"] == []


# -- the transcript --------------------------------------------------------------------------------


async def test_the_transcript_is_paged_by_turn_newest_last(bridge: Bridge) -> None:
    session, events = await spoken(bridge, "hello 0", "todos", "hello 2", "outline", "hello 4")
    path = f"{path_of(session)}/transcript"
    whole = (await bridge.caller.get(path, params={"limit": 50})).json()
    assert whole["lastSeq"] == events[-1]["seq"] and whole["nextBefore"] is None
    assert [item["firstSeq"] for item in whole["items"]] == sorted(
        item["firstSeq"] for item in whole["items"]
    )
    items: list[Json] = []
    before: int | None = None
    while True:
        query = {"limit": 2} | ({} if before is None else {"before": before})
        part = (await bridge.caller.get(path, params=query)).json()
        items = [*part["items"], *items]
        before = part["nextBefore"]
        if before is None:
            break
    assert items == whole["items"]
    kinds = {item["type"] for item in items}
    assert {"user", "message", "thought", "tool", "plan", "todos", "turn_end"} <= kinds
    problem_of(await bridge.caller.get(path, params={"before": "x"}), 400, "invalid-request")


async def test_a_live_transcript_shows_what_is_open(bridge: Bridge) -> None:
    session, _ = await spoken(bridge, "hello", "tool")
    shown = (await bridge.caller.get(f"{path_of(session)}/transcript")).json()
    request = next(item for item in shown["items"] if item["type"] == "request")
    assert request["open"] and request["requestId"].startswith("req_")


async def test_a_prompt_stream_is_read_like_any_other(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    async with bridge.caller.http.stream(
        "POST", f"{path_of(session)}/prompt", json={"prompt": "hello"}, headers=STREAM
    ) as answer:
        found = [event async for event in read_events(answer.aiter_bytes())]
    assert [event.id for event in found] == [str(event.seq) for event in found]
