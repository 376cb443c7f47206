"""Whose a session is, and what a token may do to it (S7, S8), over every surface there is."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from starlette.routing import Route

from tests.e2e.doors import NOBODY, asking, case_file, close, code_of
from tests.e2e.harness import LIMIT_S, Bridge, Caller, scripted, serving

pytestmark = pytest.mark.anyio

ALLOWING = {"rules": [{"match": {"kind": "execute"}, "reply": "allow_once"}]}
NEVER_TURN, NEVER_REQUEST = "turn_" + "0" * 32, "req_" + "0" * 32

BODIES: dict[tuple[str, str], Any] = {
    ("PATCH", ""): {"title": "mine"},
    ("POST", "/prompt"): {"prompt": "hello"},
    ("POST", "/ext"): {"method": "_x/y"},
    ("PUT", "/mode"): {"modeId": "plan"},
    ("PUT", "/model"): {"modelId": "default[]"},
    ("PUT", "/config/{configId}"): {"value": "x"},
    ("POST", "/requests/{requestId}/reply"): {"outcome": "cancelled"},
}
"""Bodies that fit, so that ownership is what decides; other routes need none."""


def agents(tmp_path: Path) -> dict[str, Any]:
    """One agent that asks, and another that has modes and plans."""
    modes = {"command": scripted("plan"), "dialect": "cursor", "safe_modes": ["plan", "ask"]}
    return {"asking": {"command": case_file(tmp_path, asking())}, "modes": modes}


@asynccontextmanager
async def two_owners(tmp_path: Path, **values: Any) -> AsyncIterator[tuple[Bridge, Caller, Caller]]:
    """A bridge with ada and bob."""
    async with serving(tmp_path, agents(tmp_path), default_agent="asking", **values) as bridge:
        ada = bridge.caller_with("ada", owner="ada")
        bob = bridge.caller_with("bob", owner="bob")
        try:
            yield bridge, ada, bob
        finally:
            await close(ada, bob)


def session_routes(bridge: Bridge) -> Iterator[tuple[str, str]]:
    """The method and the rest of the path of every route below a session."""
    prefix = "/v1/sessions/{sessionId}"
    for route in bridge.application.routes:
        if isinstance(route, Route) and route.path.startswith(prefix):
            for method in sorted((route.methods or set()) - {"HEAD"}):
                yield method, route.path.removeprefix(prefix)


def same(answer: httpx.Response) -> tuple[int, list[tuple[str, str]], bytes]:
    """An answer without what differs from one to the next by chance."""
    chance = ("x-request-id", "date")
    headers = sorted((n, v) for n, v in answer.headers.items() if n not in chance)
    body = re.sub(rb"/v1/sessions/[^/\"]+", b"/v1/sessions/ID", answer.content)
    return answer.status_code, headers, body


async def test_s7_anothers_session_answers_byte_for_byte_like_one_that_never_was(
    tmp_path: Path,
) -> None:
    async with two_owners(tmp_path) as (bridge, ada, bob):
        session_id = (await ada.session())["sessionId"]
        turn = await ada.turn(session_id, "go")
        request_id = (await ada.pending(session_id))[0]["requestId"]
        closed_id = (await ada.session())["sessionId"]
        await ada.http.delete(f"/v1/sessions/{closed_id}")
        purged_id = (await ada.session())["sessionId"]
        await ada.http.delete(f"/v1/sessions/{purged_id}?purge=true")
        (bridge.workspace / "file.txt").write_text("secret")
        asked = 0
        for method, rest in session_routes(bridge):
            known = rest.replace("{turnId}", turn["turnId"]).replace("{requestId}", request_id)
            never = rest.replace("{turnId}", NEVER_TURN).replace("{requestId}", NEVER_REQUEST)
            for query in ("", "?path=file.txt&format=sse&after=0&wait=0&limit=1"):
                for accept in ("*/*", "text/event-stream, application/json"):
                    answers = [
                        await bob.http.request(
                            method,
                            f"/v1/sessions/{which}{path.replace('{configId}', 'effort')}{query}",
                            json=BODIES.get((method, rest)),
                            headers={"Accept": accept, "Idempotency-Key": "k", "Prefer": "wait=1"},
                        )
                        for which, path in (
                            (NOBODY, known),
                            (session_id, known),
                            (session_id, never),
                            (closed_id, known),
                            (purged_id, known),
                            ("ses_x", known),
                        )
                    ]
                    assert answers[0].status_code == 404, (method, rest, answers[0].text)
                    assert code_of(answers[0]) == "session-not-found"
                    normal = [
                        (s, h, b.replace(never.encode(), known.encode()))
                        for s, h, b in map(same, answers)
                    ]
                    lengths = [
                        [each for each in h if each[0] != "content-length"] for _, h, _ in normal
                    ]
                    assert all(each == lengths[0] for each in lengths), (method, rest)
                    assert len({body for _, _, body in normal}) == 1, (method, rest)
                    assert {status for status, _, _ in normal} == {404}
                    asked += 1
        assert asked >= 60
        # Nothing of it has changed anything.
        assert [each["requestId"] for each in await ada.pending(session_id)] == [request_id]


async def test_s7_lists_streams_and_requests_show_nothing_of_others(tmp_path: Path) -> None:
    async with two_owners(tmp_path) as (bridge, ada, bob):
        session_id = (await ada.session())["sessionId"]
        await ada.turn(session_id, "go")
        mine = (await bob.session())["sessionId"]
        for query in ("", "?q=ws", "?agent=asking", "?status=waiting"):
            listed = (await bob.get(f"/v1/sessions{query}")).json()["sessions"]
            assert session_id not in [each["sessionId"] for each in listed]
        for status in ("pending", "all"):
            shown = (await bob.get(f"/v1/requests?status={status}")).json()
            assert shown["requests"] == []
        page = (await bob.get(f"/v1/events?after=0&limit=1000&sessions={session_id},{mine}")).json()
        assert {each["sessionId"] for each in page["events"]} == {mine}
        async with bob.stream("/v1/events?after=0") as events:
            await bob.prompt(mine, "mine")
            await ada.post(f"/v1/sessions/{session_id}/cancel", {})
            with anyio.fail_after(LIMIT_S):
                async for event in events:
                    assert event.data is not None and event.data["sessionId"] == mine
                    if event.kind == "session/request_permission":
                        break
        assert bridge.audit


async def test_s7_the_same_idempotency_key_of_two_owners_is_two_keys(tmp_path: Path) -> None:
    async with two_owners(tmp_path) as (_, ada, bob):
        key = {"Idempotency-Key": "the-same"}
        body = {"title": "same bytes"}
        first = await ada.post("/v1/sessions", body, headers=key)
        second = await bob.post("/v1/sessions", body, headers=key)
        again = await ada.post("/v1/sessions", body, headers=key)
        other = await bob.post("/v1/sessions", {"title": "other"}, headers=key)
        assert (first.status_code, second.status_code) == (201, 201)
        assert first.json()["sessionId"] != second.json()["sessionId"]
        assert again.json()["sessionId"] == first.json()["sessionId"]
        assert code_of(other) == "idempotency-key-reused"


@pytest.mark.parametrize("end", [None, "", "?purge=true"], ids=["open", "closed", "purged"])
async def test_s7_anothers_conversation_cannot_be_taken_up(tmp_path: Path, end: str | None) -> None:
    async with two_owners(tmp_path) as (bridge, ada, bob):
        theirs = await ada.session()
        if end is not None:
            assert (await ada.http.delete(f"/v1/sessions/{theirs['sessionId']}{end}")).is_success
        lead = bridge.caller_with("lead-of-ada", scopes=("prompt",), for_owners=("ada",))
        for stranger in (bob, lead) if end is not None else (bob,):
            answer = await stranger.post("/v1/sessions", {"resume": theirs["agentSessionId"]})
            assert code_of(answer) == "session-lost"
        await close(lead)
        listed = await bob.get("/v1/agents/asking/sessions")
        assert theirs["agentSessionId"] not in listed.text


async def test_s7_what_an_agent_showed_one_owner_is_not_told_to_another(tmp_path: Path) -> None:
    async with two_owners(tmp_path) as (_, ada, bob):
        await ada.session(agent="modes")
        seen = [(await each.get("/v1/agents/modes")).json() for each in (ada, bob)]
        assert [each["authenticated"] for each in seen] == [True, None]
        assert seen[0]["models"] and seen[1]["models"] is None


# -- S8: what only one who may approve can do --------------------------------------------------


async def test_s8_rules_that_allow_need_approve_however_they_are_given(tmp_path: Path) -> None:
    async with two_owners(tmp_path) as (bridge, _, __):
        prompter = bridge.caller_with("prompter", scopes=("prompt",))
        both = bridge.caller_with("both", scopes=("prompt", "approve"))
        timed = {"rules": [], "onTimeout": {"afterSeconds": 60, "reply": "allow_once"}}
        harmless = {"rules": [{"match": {}, "reply": "reject_once"}]}
        mine = (await prompter.session(permissions=harmless))["sessionId"]
        for permissions in (ALLOWING, timed):
            made = await prompter.post("/v1/sessions", {"permissions": permissions})
            assert (made.status_code, code_of(made)) == (403, "forbidden")
            changed = await prompter.http.patch(
                f"/v1/sessions/{mine}", json={"permissions": permissions}
            )
            assert (changed.status_code, code_of(changed)) == (403, "forbidden")
            assert (await both.post("/v1/sessions", {"permissions": permissions})).is_success
        turn = await prompter.turn(mine, "go")
        assert turn["status"] == "completed" and "no" in turn["text"]
        await close(prompter, both)


async def test_s8_a_prompt_token_cannot_reply_and_an_approve_token_cannot_prompt(
    tmp_path: Path,
) -> None:
    async with two_owners(tmp_path) as (bridge, _, __):
        prompter = bridge.caller_with("prompter", scopes=("prompt",))
        approver = bridge.caller_with("approver", scopes=("approve",))
        session_id = (await prompter.session())["sessionId"]
        turn = await prompter.turn(session_id, "go")
        request_id = (await prompter.pending(session_id))[0]["requestId"]
        yes = {"outcome": "selected", "optionId": "yes"}
        assert code_of(await prompter.reply(session_id, request_id, yes)) == "forbidden"
        prompted = await approver.post(f"/v1/sessions/{session_id}/prompt", {"prompt": "x"})
        assert code_of(prompted) == "forbidden"
        assert (await approver.reply(session_id, request_id, yes)).status_code == 200
        assert (await prompter.settled(session_id, turn["turnId"]))["status"] == "completed"
        await close(prompter, approver)


async def test_s8_going_on_with_a_plan_prompts_and_needs_that_scope(tmp_path: Path) -> None:
    async with two_owners(tmp_path) as (bridge, _, __):
        approver = bridge.caller_with("approver", scopes=("approve",))
        session_id = (await bridge.caller.session(agent="modes"))["sessionId"]
        await bridge.caller.turn(session_id, "plan it")
        request_id = (await approver.pending(session_id))[0]["requestId"]
        go = {"outcome": "accepted", "proceed": {"modeId": "agent", "prompt": "go on"}}
        assert code_of(await approver.reply(session_id, request_id, go)) == "forbidden"
        assert [each["requestId"] for each in await approver.pending(session_id)] == [request_id]
        accepted = await approver.reply(session_id, request_id, {"outcome": "accepted"})
        assert accepted.status_code == 200
        await close(approver)


async def test_s8_a_mode_that_is_not_safe_needs_approve_however_it_is_chosen(
    tmp_path: Path,
) -> None:
    async with two_owners(tmp_path) as (bridge, _, __):
        prompter = bridge.caller_with("prompter", scopes=("prompt",))
        session_id = (await prompter.session(agent="modes", mode="plan"))["sessionId"]
        tries = [
            await prompter.post("/v1/sessions", {"agent": "modes", "mode": "agent"}),
            await prompter.post("/v1/sessions", {"agent": "modes", "config": {"mode": "agent"}}),
            await prompter.post("/v1/sessions", {"agent": "modes", "_meta": {"mode": "agent"}}),
            await prompter.http.put(f"/v1/sessions/{session_id}/mode", json={"modeId": "agent"}),
            await prompter.http.put(
                f"/v1/sessions/{session_id}/config/mode", json={"value": "agent"}
            ),
        ]
        assert [code_of(each) for each in tries] == ["forbidden"] * len(tries)
        safe = await prompter.http.put(f"/v1/sessions/{session_id}/mode", json={"modeId": "ask"})
        assert safe.json()["mode"]["current"] == "ask"
        made = await bridge.caller.http.put(
            f"/v1/sessions/{session_id}/mode", json={"modeId": "agent"}
        )
        assert made.json()["mode"]["current"] == "agent"
        await close(prompter)


async def test_s8_nobody_prompts_in_an_unsafe_mode_that_the_agent_starts_in(
    tmp_path: Path,
) -> None:
    shut = {"command": scripted("plan"), "dialect": "cursor", "safe_modes": ["none of its"]}
    async with serving(tmp_path, {**agents(tmp_path), "shut": shut}) as bridge:
        prompter = bridge.caller_with("prompter", scopes=("prompt",))
        assert (await prompter.session(agent="modes"))["mode"]["current"] == "plan"
        assert (await prompter.session(agent="modes", mode="ask"))["mode"]["current"] == "ask"
        refused = await prompter.post("/v1/sessions", {"agent": "shut"})
        assert (refused.status_code, code_of(refused)) == (403, "forbidden")
        assert (await bridge.caller.session(agent="shut"))["mode"]["current"] == "agent"
        await close(prompter)


async def test_s8_an_option_that_chooses_the_mode_under_another_name_is_found_out(
    tmp_path: Path,
) -> None:
    options = [{"value": name, "name": name} for name in ("plan", "yolo")]
    chooser = {"id": "stance", "category": "mode", "type": "select", "name": "Stance"}
    offered = [{**chooser, "currentValue": "plan", "options": options}]
    result = {"sessionId": "{sessionId}", "configOptions": offered}
    case = {"on": {"session/new": {"result": result}}}
    agent = {"command": case_file(tmp_path, case), "safe_modes": ["plan"]}
    async with serving(tmp_path, {"odd": agent}, default_agent="odd") as bridge:
        prompter = bridge.caller_with("prompter", scopes=("prompt",))
        for is_async in ("", "respond-async"):
            made = await prompter.post(
                "/v1/sessions", {"config": {"stance": "yolo"}}, headers={"Prefer": is_async}
            )
            if is_async:
                session_id = made.json()["sessionId"]
                shown = await prompter.until(
                    f"/v1/sessions/{session_id}/events",
                    lambda event: event.params.get("changed", {}).get("status") == "failed",
                )
                assert shown[-1].params["changed"]["problem"]["code"] == "forbidden"
            else:
                assert code_of(made) == "forbidden"
        assert (await prompter.session(config={"stance": "plan"}))["mode"]["current"] == "plan"
        await close(prompter)
