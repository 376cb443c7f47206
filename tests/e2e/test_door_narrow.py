"""Tokens for a part: of the agents, of the folders, of the sessions, of what may be used (S8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from tests.e2e.doors import asking, bearer, case_file, close, code_of
from tests.e2e.harness import LIMIT_S, TOKEN, Bridge, Caller, scripted, serving

pytestmark = pytest.mark.anyio

YES = {"outcome": "selected", "optionId": "yes"}


def agents(tmp_path: Path) -> dict[str, Any]:
    """Two agents: one asks for permissions."""
    asks = {"command": case_file(tmp_path, asking())}
    return {"asking": asks, "other": {"command": scripted("basic")}}


async def statuses(caller: Caller, session_id: str) -> dict[str, int]:
    """What a caller's tries at everything come to; what may be seen last."""
    path = f"/v1/sessions/{session_id}"
    tries: dict[str, httpx.Response] = {
        "prompt": await caller.post(f"{path}/prompt", {"prompt": "x"}),
        "patch": await caller.http.patch(path, json={"title": "x"}),
        "mode": await caller.http.put(f"{path}/mode", json={"modeId": "plan"}),
        "ext": await caller.post(f"{path}/ext", {"method": "_x/y"}),
        "delete": await caller.http.delete(path),
        "read": await caller.get(path),
        "transcript": await caller.get(f"{path}/transcript"),
        "events": await caller.get(f"{path}/events"),
    }
    return {name: answer.status_code for name, answer in tries.items()}


async def test_s8_a_token_for_another_owner_sees_and_approves_and_does_not_prompt(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="asking") as bridge:
        ada = bridge.caller_with("ada", owner="ada")
        scopes = ("read", "prompt", "approve")
        lead = bridge.caller_with("lead", owner="lead", for_owners=("ada",), scopes=scopes)
        chief = bridge.caller_with("chief", owner="lead", for_owners=("ada",), scopes=("admin",))
        session_id = (await ada.session())["sessionId"]
        turn = await ada.turn(session_id, "go")
        for overseer in (lead, chief):
            found = await statuses(overseer, session_id)
            seen = {"read": 200, "transcript": 200, "events": 200}
            assert found == {
                **dict.fromkeys(("prompt", "patch", "mode", "ext", "delete"), 403),
                **seen,
            }
            listed = (await overseer.get("/v1/sessions")).json()["sessions"]
            assert [each["sessionId"] for each in listed] == [session_id]
        request = (await lead.get("/v1/requests")).json()["requests"][0]
        assert (await lead.reply(session_id, request["requestId"], YES)).status_code == 200
        assert (await ada.settled(session_id, turn["turnId"]))["status"] == "completed"
        assert (await lead.session())["owner"] == "lead"
        assert (await ada.get("/v1/sessions")).json()["sessions"][0]["owner"] == "ada"
        assert len((await ada.get("/v1/sessions")).json()["sessions"]) == 1
        await close(ada, lead, chief)


async def test_s8_an_overseer_may_cancel_only_where_it_may_approve(tmp_path: Path) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="asking") as bridge:
        ada = bridge.caller_with("ada", owner="ada")
        prompter = bridge.caller_with(
            "prompter", owner="p", for_owners=("ada",), scopes=("read", "prompt")
        )
        approver = bridge.caller_with(
            "approver", owner="a", for_owners=("ada",), scopes=("approve",)
        )
        session_id = (await ada.session())["sessionId"]
        await ada.turn(session_id, "go")
        refused = await prompter.post(f"/v1/sessions/{session_id}/cancel", {})
        assert code_of(refused) == "forbidden"
        taken = await approver.post(f"/v1/sessions/{session_id}/cancel", {})
        assert taken.status_code == 202
        await close(ada, prompter, approver)


async def test_s8_a_token_for_one_agent_knows_of_no_other(tmp_path: Path) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="asking") as bridge:
        narrow = bridge.caller_with("narrow", agents=("other",))
        theirs = (await bridge.caller.session(agent="asking"))["sessionId"]
        await bridge.caller.turn(theirs, "go")
        assert set((await statuses(narrow, theirs)).values()) == {404}
        assert [each["agentId"] for each in (await narrow.get("/v1/agents")).json()["agents"]] == [
            "other"
        ]
        assert (await narrow.get("/v1/agents/asking")).status_code == 404
        assert (await narrow.get("/v1/agents/asking/sessions")).status_code == 404
        assert code_of(await narrow.post("/v1/sessions", {"agent": "asking"})) == "agent-not-found"
        assert (await narrow.get("/v1/sessions")).json()["sessions"] == []
        assert (await narrow.get("/v1/requests")).json()["requests"] == []
        assert (await narrow.get("/v1/events?after=0")).json()["events"] == []
        mine = (await narrow.session(agent="other"))["sessionId"]
        page = (await narrow.get("/v1/events?after=0&limit=1000")).json()["events"]
        assert {each["sessionId"] for each in page} == {mine}
        await close(narrow)


async def test_s8_a_token_for_one_folder_knows_of_no_session_in_another(tmp_path: Path) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="asking") as bridge:
        inner, sibling = bridge.workspace / "in", bridge.workspace / "in-evil"
        for folder in (inner, sibling):
            folder.mkdir()
        narrow = bridge.caller_with("narrow", roots=(str(inner),))
        for cwd in (bridge.workspace, sibling):
            theirs = (await bridge.caller.session(cwd=str(cwd)))["sessionId"]
            await bridge.caller.turn(theirs, "go")
            assert set((await statuses(narrow, theirs)).values()) == {404}
            made = await narrow.post("/v1/sessions", {"cwd": str(cwd)})
            assert code_of(made) == "path-outside-roots"
            assert (await narrow.get(f"/v1/folders?path={cwd}")).status_code == 403
        assert (await narrow.get("/v1/sessions")).json()["sessions"] == []
        assert (await narrow.get("/v1/requests?status=all")).json()["requests"] == []
        assert (await narrow.get("/v1/events?after=0")).json()["events"] == []
        mine = await narrow.session()
        assert mine["cwd"] == str(inner)
        turn = await narrow.turn(mine["sessionId"], "go")
        listed = (await narrow.get("/v1/requests")).json()["requests"]
        assert [each["turnId"] for each in listed] == [turn["turnId"]]
        assert (await narrow.get("/v1/me")).json()["roots"] == [str(inner)]
        await close(narrow)


async def test_s8_a_folder_that_is_no_root_any_more_is_no_root_of_a_token(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    async with serving(tmp_path, agents(tmp_path), default_agent="asking") as bridge:
        stray = bridge.caller_with("stray", roots=(str(outside),))
        assert (await stray.get("/v1/folders")).json()["folders"] == []
        for cwd in ({}, {"cwd": str(outside)}, {"cwd": str(bridge.workspace)}):
            assert code_of(await stray.post("/v1/sessions", cwd)) == "path-outside-roots"
        await close(stray)


# -- caps --------------------------------------------------------------------------------------


async def test_an_owner_has_so_many_sessions_also_when_many_are_asked_for_at_once(
    tmp_path: Path,
) -> None:
    limits = {"max_sessions_per_owner": 3}
    async with serving(tmp_path, agents(tmp_path), default_agent="other", limits=limits) as bridge:
        ada = bridge.caller_with("ada", owner="ada")
        answers: list[httpx.Response] = []

        async def ask() -> None:
            answers.append(await ada.post("/v1/sessions", {}))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(ask)
        made = [each.json()["sessionId"] for each in answers if each.status_code == 201]
        refused = [each for each in answers if each.status_code != 201]
        assert len(made) == 3
        assert {each.status_code for each in refused} == {429}
        assert all(code_of(each) == "rate-limited" for each in refused)
        assert all("hint" in each.json() and "retry-after" in each.headers for each in refused)
        assert (await bridge.caller.post("/v1/sessions", {})).status_code == 201
        await ada.http.delete(f"/v1/sessions/{made[0]}")
        assert (await ada.post("/v1/sessions", {})).status_code == 201
        await close(ada)


async def test_a_token_has_so_many_prompts_sessions_and_streams_and_no_other_pays_for_it(
    tmp_path: Path,
) -> None:
    limits = {"prompts_per_minute": 2, "sessions_per_minute": 2, "streams_per_token": 2}
    async with serving(tmp_path, agents(tmp_path), default_agent="other", limits=limits) as bridge:
        ada = bridge.caller_with("ada", owner="ada")
        phone = bridge.caller_with("phone", owner="ada")
        session_id = (await ada.session())["sessionId"]
        await ada.session()
        over = await ada.post("/v1/sessions", {})
        assert (over.status_code, code_of(over)) == (429, "rate-limited")
        assert int(over.headers["retry-after"]) > 0
        for _ in range(2):
            await ada.turn(session_id, "x")
        path = f"/v1/sessions/{session_id}"
        assert (await ada.post(f"{path}/prompt", {"prompt": "x"})).status_code == 429
        await phone.turn(session_id, "x")
        async with ada.stream(f"{path}/events"), ada.stream("/v1/events"):
            over = await ada.get(f"{path}/events", headers={"Accept": "text/event-stream"})
            assert (over.status_code, code_of(over)) == (429, "rate-limited")
            for wait in (f"{path}/events?after=latest&wait=9", "/v1/events?wait=9"):
                waiting = await ada.get(wait)
                assert (waiting.status_code, code_of(waiting)) == (429, "rate-limited"), wait
            assert (await ada.get(f"{path}/events?after=0")).status_code == 200
            async with phone.stream(f"{path}/events"):
                pass
        await is_free_again(bridge)
        async with ada.stream(f"{path}/events"):
            pass
        await close(ada, phone)


async def is_free_again(bridge: Bridge) -> None:
    """Streams that were left are counted no more once the server has seen it."""
    with anyio.fail_after(LIMIT_S):
        while bridge.application.context.streams:
            await anyio.lowlevel.checkpoint()


async def test_s21_wrong_tokens_of_one_address_are_slowed_down_and_a_right_one_never(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, agents(tmp_path), default_agent="other") as bridge:
        async with httpx.AsyncClient(base_url=bridge.server.url) as stranger:
            tries = [
                (await stranger.get("/v1/me", headers=bearer(f"guess-{number}"))).status_code
                for number in range(30)
            ]
            assert tries[:10] == [401] * 10
            assert set(tries[10:]) <= {401, 429} and tries.count(429) >= 18
            last = await stranger.get("/v1/me", headers=bearer("guess"))
            assert code_of(last) == "rate-limited" and int(last.headers["retry-after"]) > 0
            # Nobody presented anything: no guess, and no answer to one.
            assert (await stranger.get("/v1/me")).status_code == 401
            assert (await stranger.get("/v1/me", headers=bearer(TOKEN))).status_code == 200
        refused = [each for each in bridge.audit if each["event"] == "access.refused"]
        assert {each["code"] for each in refused} == {"unauthorized", "rate-limited"}
        assert all(each["address"] == "127.0.0.1" for each in refused)
        assert "guess" not in str(refused)
