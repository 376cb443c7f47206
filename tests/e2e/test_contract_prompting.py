"""The contract's turns: three forms of an answer, the queue, cancelling, idempotency."""

from __future__ import annotations

import uuid
from pathlib import Path

import anyio
import pytest

from tests.e2e.contract import agents, events_hold, module_backend, module_bridge, module_tidy  # noqa: F401
from tests.e2e.harness import Bridge, Event, Json, ended, read_events, serving
from tests.e2e.test_contract_around import problem_of
from tests.e2e.test_contract_sessions import path_of, shown, wait_for_status

pytestmark = pytest.mark.anyio

STREAM = {"Accept": "text/event-stream"}


async def stream_prompt(
    bridge: Bridge, session: Json, body: Json, headers: Json | None = None
) -> tuple[str, list[Event]]:
    """Prompt as a stream; its Location and all its events, to its own end."""
    with anyio.fail_after(20):
        async with bridge.caller.http.stream(
            "POST",
            f"{path_of(session)}/prompt",
            json=body,
            headers=STREAM | (headers or {}),
        ) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["x-accel-buffering"] == "no"
            events = [event async for event in read_events(answer.aiter_bytes())]
    events_hold(events)
    return answer.headers["location"], events


# -- the three forms ---------------------------------------------------------------------------


async def test_by_default_a_prompt_is_202_and_followed_from_its_position(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    answer = await bridge.caller.post(f"{path_of(session)}/prompt", {"prompt": "hello"})
    turn = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"{path_of(session)}/turns/{turn['turnId']}"
    events = await bridge.caller.until(
        f"{path_of(session)}/events", ended(turn["turnId"]), params={"after": turn["afterSeq"]}
    )
    assert events[0].kind == "bridge/turn_queued"
    assert events[0].seq == turn["afterSeq"] + 1
    assert "bridge/turn_started" in [event.kind for event in events]


async def test_prefer_wait_answers_with_the_ended_turn(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    answer = await bridge.caller.post(
        f"{path_of(session)}/prompt", {"prompt": "hello"}, headers={"Prefer": "wait=20"}
    )
    assert (answer.status_code, answer.headers["preference-applied"]) == (200, "wait=20")
    turn = answer.json()
    assert (turn["status"], turn["outcome"], turn["stopReason"]) == ("completed", "ok", "end_turn")
    assert turn["finalText"] in turn["text"] and turn["textTruncated"] is False
    assert turn["firstSeq"] == turn["afterSeq"] + 1 and turn["lastSeq"] > turn["firstSeq"]
    assert turn["createdAt"] <= turn["startedAt"] <= turn["endedAt"]


async def test_prefer_wait_answers_202_when_a_person_is_needed_or_the_time_is_up(
    bridge: Bridge,
) -> None:
    session = await bridge.caller.session()
    with anyio.fail_after(15):
        answer = await bridge.caller.post(
            f"{path_of(session)}/prompt", {"prompt": "tool"}, headers={"Prefer": f"wait={10**20}"}
        )
    assert (answer.status_code, answer.json()["status"]) == (202, "waiting")
    assert answer.headers["preference-applied"] == "wait=50"
    other = await bridge.caller.session()
    answer = await bridge.caller.post(
        f"{path_of(other)}/prompt", {"prompt": "hang"}, headers={"Prefer": "wait=0"}
    )
    assert (answer.status_code, answer.json()["status"]) == (202, "running")


async def test_a_streamed_prompt_ends_with_its_own_end(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    running = await bridge.caller.prompt(session["sessionId"], "tool")
    request = await _pending(bridge, session)
    events: list[Event] = []

    async def follow() -> None:
        location, found = await stream_prompt(
            bridge, session, {"prompt": "hello", "onBusy": "queue"}
        )
        events.extend(found)
        assert location == f"{path_of(session)}/turns/{found[-1].params['turn']['turnId']}"

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await _queued(bridge, session, 1)
            await bridge.caller.reply(
                session["sessionId"],
                request["requestId"],
                {"outcome": "selected", "kind": "allow_once"},
            )
    assert events[0].kind == "bridge/turn_queued" and events[-1].kind == "bridge/turn_ended"
    turn_id = events[-1].params["turn"]["turnId"]
    assert turn_id != running["turnId"]
    assert {(event.data or {})["turnId"] for event in events} == {turn_id, None}


async def _pending(bridge: Bridge, session: Json) -> Json:
    """The first request that waits in the session."""
    await bridge.caller.until(
        f"{path_of(session)}/events", lambda event: "requestId" in (event.data or {})
    )
    return (await bridge.caller.pending(session["sessionId"]))[0]


async def _queued(bridge: Bridge, session: Json, count: int) -> None:
    """Until so many turns are queued."""
    await bridge.caller.until(
        f"{path_of(session)}/events",
        lambda event: (
            event.kind == "bridge/session"
            and len(event.params["changed"].get("queue") or ()) == count
        ),
    )


async def test_a_dropped_connection_does_not_stop_the_turn(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    async with bridge.caller.http.stream(
        "POST", f"{path_of(session)}/prompt", json={"prompt": "stream 20 5"}, headers=STREAM
    ) as answer:
        turn_path = answer.headers["location"]
    ended_turn = await bridge.caller.settled(session["sessionId"], turn_path.rsplit("/", 1)[1])
    assert ended_turn["status"] == "completed"


async def test_content_blocks_are_passed_on_and_checked(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    blocks = [
        {"type": "text", "text": "hello blocks"},
        {"type": "resource_link", "uri": "file:///x", "name": "x", "custom": {"kept": True}},
    ]
    answer = await bridge.caller.post(f"{path_of(session)}/prompt", {"prompt": blocks})
    turn = await bridge.caller.settled(session["sessionId"], answer.json()["turnId"])
    assert "hello blocks" in turn["text"]
    events = await bridge.caller.log(session["sessionId"])
    started = next(event for event in events if event["type"] == "bridge/turn_started")
    assert started["params"]["prompt"] == blocks
    audio = [{"type": "audio", "data": "", "mimeType": "audio/wav"}]
    refused = await bridge.caller.post(f"{path_of(session)}/prompt", {"prompt": audio})
    assert "text" in problem_of(refused, 422, "content-not-supported")["available"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompt": ""},
        {"prompt": []},
        {"prompt": [{"text": "x"}]},
        {"prompt": [{"type": "text"}]},
        {"prompt": "x", "onBusy": "wait"},
        {"prompt": "x", "priority": 1},
    ],
)
async def test_a_prompt_that_does_not_fit_is_422(bridge: Bridge, body: Json) -> None:
    session = await bridge.caller.session(agent="basic")
    answer = await bridge.caller.post(f"{path_of(session)}/prompt", body)
    problem_of(answer, 422, "invalid-request")


# -- busy --------------------------------------------------------------------------------------


async def test_a_busy_session_refuses_unless_told_otherwise(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    turn = await bridge.caller.prompt(session["sessionId"], "hang")
    answer = await bridge.caller.post(f"{path_of(session)}/prompt", {"prompt": "hello"})
    assert problem_of(answer, 409, "turn-in-progress")["turnId"] == turn["turnId"]


async def test_queued_turns_run_in_order_and_an_interrupt_goes_first(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    session_id = session["sessionId"]
    running = await bridge.caller.prompt(session_id, "hang")
    first = await bridge.caller.prompt(session_id, "hello first", onBusy="queue")
    second = await bridge.caller.prompt(session_id, "hello second", onBusy="queue")
    assert (await shown(bridge, session))["queue"] == [first["turnId"], second["turnId"]]
    urgent = await bridge.caller.prompt(session_id, "hello urgent", onBusy="interrupt")
    stopped = await bridge.caller.settled(session_id, running["turnId"])
    assert (stopped["status"], stopped["cancelledBy"]) == ("cancelled", "caller")
    for turn in (urgent, first, second):
        assert (await bridge.caller.settled(session_id, turn["turnId"]))["outcome"] == "ok"
    events = await bridge.caller.log(session_id)
    order = [event["turnId"] for event in events if event["type"] == "bridge/turn_started"]
    assert order == [each["turnId"] for each in (running, urgent, first, second)]


# -- reading turns -----------------------------------------------------------------------------


async def test_turns_are_listed_newest_first_without_texts(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    made = [await bridge.caller.turn(session["sessionId"], f"hello {n}") for n in range(3)]
    page = (await bridge.caller.get(f"{path_of(session)}/turns?limit=2")).json()
    rest = await bridge.caller.get(
        f"{path_of(session)}/turns", params={"limit": 2, "cursor": page["nextCursor"]}
    )
    listed = page["turns"] + rest.json()["turns"]
    assert [each["turnId"] for each in listed] == [each["turnId"] for each in reversed(made)]
    assert all("text" not in each for each in listed) and rest.json()["nextCursor"] is None
    missing = await bridge.caller.get(f"{path_of(session)}/turns/turn_none")
    problem_of(missing, 404, "turn-not-found")
    assert "text" not in (await shown(bridge, session))["turn"]


async def test_a_text_joins_messages_that_something_stands_between(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    turn = await bridge.caller.turn(session["sessionId"], "hello then todos then silent")
    assert turn["text"].endswith("\n\n" + turn["finalText"])
    assert turn["finalText"] == "All three todos are done."


@pytest.mark.parametrize(
    ("word", "status", "outcome"),
    [
        ("max_tokens", "completed", "limit"),
        ("max_turn_requests", "completed", "limit"),
        ("refusal", "completed", "refused"),
        ("cancelled", "cancelled", "cancelled"),
        ("error", "failed", "error"),
    ],
)
async def test_a_turn_says_how_it_ended(
    bridge: Bridge, word: str, status: str, outcome: str
) -> None:
    session = await bridge.caller.session(agent="stop_reasons")
    turn = await bridge.caller.turn(session["sessionId"], word)
    assert (turn["status"], turn["outcome"]) == (status, outcome)
    assert turn["cancelledBy"] == ("agent" if word == "cancelled" else None)
    assert (turn["error"] or {}).get("code") == ("agent-error" if word == "error" else None)


async def test_a_refusal_that_the_agent_ends_as_cancelled_is_denied(bridge: Bridge) -> None:
    session = await bridge.caller.session(agent="permission")
    turn = await bridge.caller.prompt(session["sessionId"], "denied")
    request = await _pending(bridge, session)
    await bridge.caller.reply(
        session["sessionId"], request["requestId"], {"outcome": "selected", "kind": "reject_once"}
    )
    ended_turn = await bridge.caller.settled(session["sessionId"], turn["turnId"])
    assert (ended_turn["outcome"], ended_turn["cancelledBy"]) == ("denied", "agent")


async def test_a_failure_in_the_agents_words_is_suspected(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    turn = await bridge.caller.turn(session["sessionId"], "fail auth")
    assert (turn["status"], turn["outcome"]) == ("completed", "suspected-error")
    assert turn["suspectedError"]["kind"] == "auth"
    assert turn["suspectedError"]["text"] in turn["text"]


async def test_an_agent_that_exits_fails_its_turn_and_the_next_prompt_revives_it(
    bridge: Bridge,
) -> None:
    session = await bridge.caller.session()
    turn = await bridge.caller.turn(session["sessionId"], "crash")
    assert (turn["status"], turn["outcome"]) == ("failed", "error")
    assert turn["error"]["code"] == "agent-exited" and turn["error"]["status"] == 424
    events = await bridge.caller.log(session["sessionId"])
    exited = next(event for event in events if event["type"] == "bridge/agent_exited")
    assert exited["params"]["exitCode"] == 3 and "fatal" in exited["params"]["stderrTail"]
    assert (await shown(bridge, session))["status"] == "hibernated"
    assert (await bridge.caller.turn(session["sessionId"], "hello"))["outcome"] == "ok"


# -- cancelling --------------------------------------------------------------------------------


async def test_cancelling_is_202_with_the_turn_or_200_with_nothing(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    path = path_of(session)
    nothing = await bridge.caller.post(f"{path}/cancel")
    assert (nothing.status_code, nothing.json()) == (200, {"turn": None})
    turn = await bridge.caller.prompt(session["sessionId"], "hang")
    queued = await bridge.caller.prompt(session["sessionId"], "hello", onBusy="queue")
    other = await bridge.caller.post(f"{path}/cancel", {"turnId": queued["turnId"]})
    assert (other.status_code, other.json()) == (200, {"turn": None})
    answer = await bridge.caller.post(f"{path}/cancel", {"turnId": turn["turnId"]})
    assert answer.status_code == 202 and answer.json()["turn"]["turnId"] == turn["turnId"]
    assert (await bridge.caller.settled(session["sessionId"], turn["turnId"]))["endedAt"]
    assert (await bridge.caller.settled(session["sessionId"], queued["turnId"]))["outcome"] == "ok"
    bad = await bridge.caller.post(f"{path}/cancel", {"soft": True})
    problem_of(bad, 422, "invalid-request")


async def test_a_queued_turn_is_dropped_by_cancelling_it(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    path = path_of(session)
    await bridge.caller.prompt(session["sessionId"], "hang")
    queued = await bridge.caller.prompt(session["sessionId"], "hello", onBusy="queue")
    answer = await bridge.caller.post(f"{path}/turns/{queued['turnId']}/cancel")
    assert answer.status_code == 202 and answer.json()["turn"]["status"] == "cancelled"
    again = await bridge.caller.post(f"{path}/turns/{queued['turnId']}/cancel")
    assert (again.status_code, again.json()) == (200, {"turn": None})
    assert (await shown(bridge, session))["status"] == "running"
    missing = await bridge.caller.post(f"{path}/turns/turn_none/cancel")
    problem_of(missing, 404, "turn-not-found")


async def test_a_hard_cancel_leaves_the_session_hibernated(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    turn = await bridge.caller.prompt(session["sessionId"], "hang")
    await bridge.caller.post(f"{path_of(session)}/cancel", {"hard": True})
    ended_turn = await bridge.caller.settled(session["sessionId"], turn["turnId"])
    assert (ended_turn["status"], ended_turn["cancelledBy"]) == ("cancelled", "caller")
    assert (await wait_for_status(bridge, session, "hibernated"))["status"] == "hibernated"


async def test_a_soft_cancel_that_is_ignored_becomes_hard_after_the_grace_time(
    bridge: Bridge,
) -> None:
    session = await bridge.caller.session(agent="hanging")
    turn = await bridge.caller.prompt(session["sessionId"], "stubborn")
    await bridge.caller.until(
        f"{path_of(session)}/events", lambda event: event.kind == "session/update"
    )
    await bridge.caller.post(f"{path_of(session)}/cancel")
    ended_turn = await bridge.caller.settled(session["sessionId"], turn["turnId"])
    assert ended_turn["status"] == "cancelled"
    events = await bridge.caller.log(session["sessionId"])
    kinds = [event["type"] for event in events if event["turnId"] == turn["turnId"]]
    assert kinds[-2:] == ["bridge/tool_closed", "bridge/turn_ended"]


async def test_a_cancelled_prompt_is_sent_again_with_the_next_where_that_is_asked(
    bridge: Bridge,
) -> None:
    session = await bridge.caller.session(agent="basic")
    turn = await bridge.caller.prompt(session["sessionId"], "slow and lost")
    await bridge.caller.until(
        f"{path_of(session)}/events", lambda event: event.kind == "session/update"
    )
    await bridge.caller.post(f"{path_of(session)}/cancel")
    await bridge.caller.settled(session["sessionId"], turn["turnId"])
    answer = await bridge.caller.prompt(session["sessionId"], "hello", resendCancelled=True)
    events = await bridge.caller.until(
        f"{path_of(session)}/events",
        lambda event: event.kind == "bridge/turn_started",
        params={"after": answer["afterSeq"]},
    )
    texts = [block["text"] for block in events[-1].params["prompt"]]
    assert texts == ["slow and lost", "hello"]


# -- idempotency -------------------------------------------------------------------------------


async def test_a_repeated_prompt_finds_its_turn_in_the_form_it_asks_for(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    key = {"Idempotency-Key": uuid.uuid4().hex}
    path = f"{path_of(session)}/prompt"
    first = await bridge.caller.post(path, {"prompt": "hello once"}, headers=key)
    assert first.status_code == 202
    waited = await bridge.caller.post(
        path, {"prompt": "hello once"}, headers={**key, "Prefer": "wait=10"}
    )
    assert waited.status_code == 200 and waited.json()["turnId"] == first.json()["turnId"]
    location, events = await stream_prompt(bridge, session, {"prompt": "hello once"}, key)
    assert location == first.headers["location"]
    assert events[0].kind == "bridge/turn_queued" and events[-1].kind == "bridge/turn_ended"
    plain = await bridge.caller.post(path, {"prompt": "hello once"}, headers=key)
    assert plain.status_code == 202
    other = await bridge.caller.post(path, {"prompt": "other"}, headers=key)
    problem_of(other, 422, "idempotency-key-reused")
    turns = (await bridge.caller.get(f"{path_of(session)}/turns")).json()["turns"]
    assert len(turns) == 1


# -- room --------------------------------------------------------------------------------------


async def test_without_a_free_process_a_busy_bridge_is_at_capacity_and_an_idle_one_is_not(
    tmp_path: Path,
) -> None:
    limits = {"max_processes": 1}
    async with serving(tmp_path, agents(tmp_path), default_agent="demo", limits=limits) as bridge:
        idle = await bridge.caller.session()
        busy = await bridge.caller.session()
        assert (await shown(bridge, idle))["status"] == "hibernated"
        await bridge.caller.turn(busy["sessionId"], "tool")
        prompt = await bridge.caller.post(f"{path_of(idle)}/prompt", {"prompt": "hello"})
        problem_of(prompt, 503, "at-capacity")
        problem_of(await bridge.caller.post("/v1/sessions", {}), 503, "at-capacity")
        await bridge.caller.post(f"{path_of(busy)}/cancel")
        await wait_for_status(bridge, busy, "idle")
        assert (await bridge.caller.turn(idle["sessionId"], "hello"))["outcome"] == "ok"


async def test_a_conversation_the_agent_lost_fails_the_turn_unless_a_new_one_is_welcome(
    tmp_path: Path,
) -> None:
    limits = {"max_processes": 1}
    async with serving(tmp_path, agents(tmp_path), default_agent="demo", limits=limits) as bridge:
        lost = await bridge.caller.session()
        await bridge.caller.turn(lost["sessionId"], "hello")
        await bridge.caller.session()
        for file in (tmp_path / "demo" / "sessions").glob(f"{lost['agentSessionId']}*"):
            file.unlink()
        failed = await bridge.caller.turn(lost["sessionId"], "hello")
        assert (failed["status"], failed["error"]["code"]) == ("failed", "session-lost")
        assert (await shown(bridge, lost))["status"] == "failed"
        fresh = await bridge.caller.turn(lost["sessionId"], "hello", onLost="new")
        assert fresh["outcome"] == "ok"
        assert (await shown(bridge, lost))["agentSessionId"] != lost["agentSessionId"]
