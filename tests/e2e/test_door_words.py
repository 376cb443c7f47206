"""What words can do: in lines and events (S13), positions (S17), answers (S18), pages (S20).

And what is said of people and secrets: the audit log of a scripted run, and canaries everywhere.
"""

from __future__ import annotations

import json
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.e2e.doors import asking, bearer, case_file, close, code_of
from tests.e2e.harness import (
    Caller,
    Json,
    Subprocess,
    ended,
    scripted,
    serving,
)

pytestmark = pytest.mark.anyio

NASTY = (
    "a\r\n\r\nid: 1\ndata: {}\n\nevent: x\r\x1b[2J\x1b]0;t\x07\u2028\u2029\x85\x0b\x0c\x1c\u202e"
    "gnp.exe\ufeff\x00 😀 <img onerror=alert(1)> end"
)


def table(name: str, **values: Any) -> str:
    """A TOML table of texts, numbers, flags and lists of texts."""
    return "\n".join(
        [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    )


# -- S13 ---------------------------------------------------------------------------------------


async def test_s13_any_text_is_one_event_with_the_same_data_and_one_line_of_the_log(
    tmp_path: Path,
) -> None:
    steps: list[Json] = [
        {"text": "{prompt}"},
        {
            "update": {
                "sessionUpdate": "tool_call",
                "toolCallId": "t",
                "title": NASTY,
                "kind": "read",
            }
        },
        {"raw": "no message: {prompt}"},
        {"stderr": "{prompt}"},
        {"exit": 3},
    ]
    config = "\n".join(
        [
            'default_agent = "fake"\nlog_level = "debug"',
            table("agents.fake", command=case_file(tmp_path, {"prompts": [{"steps": steps}]})),
        ]
    )
    async with Subprocess(tmp_path, config) as process:
        caller = await process.start()
        session_id = (await caller.session(title=NASTY, metadata={"k": NASTY}))["sessionId"]
        turn = await caller.prompt(session_id, NASTY)
        path = f"/v1/sessions/{session_id}/events"
        events = await caller.until(f"{path}?after=0", ended(turn["turnId"]))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        for event in events:
            lines = event.raw.split(b"\n")
            assert [line.split(b":")[0] for line in lines] == [b"id", b"event", b"data"], event.raw
            assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", event.raw)
            assert event.type == event.kind
        texts = json.dumps([event.data for event in events])
        assert texts.count(json.dumps(NASTY)[1:-1]) >= 4
        assert (await caller.log(session_id))[: len(events)] == [event.data for event in events]
        bad = httpx.Request("GET", f"{process.url}/v1/x%0d%0aevil%1b%e2%80%a8", headers=bearer())
        assert (await caller.http.send(bad)).status_code == 404
        request_id = (await caller.get("/v1/me", headers={"X-Request-Id": "x\x1b[2J"})).headers
        assert re.fullmatch(r"[0-9a-f]{32}", request_id["x-request-id"])
    for name in ("bridge.log", "state/audit.jsonl"):
        for line in (tmp_path / name).read_bytes().splitlines():
            assert json.loads(line)["time"], name
            assert re.fullmatch(rb"[\x20-\x7e]+", line), name


# -- S17 ---------------------------------------------------------------------------------------


async def test_s17_a_position_is_ascii_digits_and_nothing_else(tmp_path: Path) -> None:
    agents = {"fake": {"command": scripted("basic")}}
    async with serving(tmp_path, agents, default_agent="fake") as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        paths = (f"/v1/sessions/{session_id}/events", "/v1/events")
        arabic, full = "\u0661".encode(), "\uff11".encode()
        bad = (b"-1", b"1_0", b"+1", b"0x1", b"1.0", b"1e3", b"9" * 20, b"9" * 10_000, arabic, full)
        for path in paths:
            for position in (*bad, b"latest", b"x", b"1,2"):
                answer = await caller.get(
                    path, headers=[(b"Last-Event-ID", position), (b"Accept", b"text/event-stream")]
                )
                assert (answer.status_code, code_of(answer)) == (400, "invalid-request"), position
            for after in ("-1", "1_0", "%2B1", "1.0", "9" * 20, "9" * 10_000, "%d9%a1", "", "%20"):
                for form in ("sse", "json"):
                    answer = await caller.get(f"{path}?format={form}&after={after}")
                    assert answer.status_code in (400, 414), after
            for ahead in ("999999", "9" * 19):
                async with caller.stream(path, headers={"Last-Event-ID": ahead}) as events:
                    reset = await anext(events)
                assert (reset.kind, reset.params["reason"]) == ("bridge/reset", "ahead")


# -- S18 ---------------------------------------------------------------------------------------


async def test_s18_of_a_thousand_replies_at_once_one_wins(tmp_path: Path) -> None:
    agents = {"fake": {"command": case_file(tmp_path, asking("_vendor/ask"))}}
    async with serving(tmp_path, agents, default_agent="fake") as bridge:
        session_id = (await bridge.caller.session())["sessionId"]
        turn = await bridge.caller.turn(session_id, "go")
        request_id = (await bridge.caller.pending(session_id))[0]["requestId"]
        crowd = [Caller(bridge.server.url) for _ in range(20)]
        answers: Counter[int] = Counter()

        async def answer(number: int) -> None:
            body = {"result": {"number": number}}
            got = await crowd[number % len(crowd)].reply(session_id, request_id, body)
            answers[got.status_code] += 1

        async with anyio.create_task_group() as tasks:
            for number in range(1000):
                tasks.start_soon(answer, number)
        assert answers == {200: 1, 409: 999}
        shown = await bridge.caller.settled(session_id, turn["turnId"])
        resolved = await bridge.caller.get(f"/v1/sessions/{session_id}/requests/{request_id}")
        number = resolved.json()["resolution"]["outcome"]["result"]["number"]
        assert f'"number": {number}' in shown["text"]
        await close(*crowd)


async def test_s18_what_was_withdrawn_is_410_and_nothing_is_allowed_by_default(
    tmp_path: Path,
) -> None:
    asked = asking()["prompts"][0]["steps"]
    case = {
        "prompts": [
            {"match": "dies", "steps": [{**asked[0], "wait": False}, {"wait_answers": 1}]},
            {"match": "exits", "steps": [{**asked[0], "wait": False}, {"exit": 1}]},
            {"steps": asked},
        ]
    }
    agents = {"fake": {"command": case_file(tmp_path, case)}}
    yes = {"outcome": "selected", "optionId": "yes"}
    async with serving(tmp_path, agents, default_agent="fake") as bridge:
        caller = bridge.caller
        rejecting = {"rules": [], "onTimeout": {"afterSeconds": 1, "reply": "reject_once"}}
        timed = (await caller.session(permissions=rejecting))["sessionId"]
        turn = await caller.prompt(timed, "wait")
        await caller.until(f"/v1/sessions/{timed}/events", ended(turn["turnId"]))
        session_id = (await caller.session())["sessionId"]
        turn = await caller.turn(session_id, "wait")
        cancelled = (await caller.pending(session_id))[0]["requestId"]
        await caller.post(f"/v1/sessions/{session_id}/cancel", {})
        await caller.until(f"/v1/sessions/{session_id}/events", ended(turn["turnId"]))
        turn = await caller.prompt(session_id, "exits")
        await caller.until(f"/v1/sessions/{session_id}/events", ended(turn["turnId"]))
        every = (await caller.get("/v1/requests?status=all")).json()["requests"]
        assert [each["resolution"]["by"] for each in every] == ["timeout", "cancel", "agent-exit"]
        assert "allow" not in json.dumps([each["resolution"] for each in every])
        assert '"yes"' not in json.dumps([each["resolution"] for each in every])
        for each, status in zip(every, (409, 410, 410), strict=True):
            answer = await caller.reply(each["sessionId"], each["requestId"], yes)
            assert answer.status_code == status, answer.text
        assert every[1]["requestId"] == cancelled


async def test_s18_allow_always_is_given_only_where_the_operator_permits_it(
    tmp_path: Path,
) -> None:
    agents = {"fake": {"command": case_file(tmp_path, asking())}}
    ways = (
        {"outcome": "selected", "optionId": "always"},
        {"outcome": "selected", "kind": "allow_always"},
    )
    rule = {"rules": [{"match": {}, "reply": "allow_always"}]}
    for permits in (False, True):
        async with serving(
            tmp_path, agents, default_agent="fake", permissions={"allow_always": permits}
        ) as bridge:
            caller = bridge.caller
            made = await caller.post("/v1/sessions", {"permissions": rule})
            assert made.is_success == permits
            for way in ways:
                session_id = (await caller.session())["sessionId"]
                await caller.turn(session_id, "go")
                request = (await caller.pending(session_id))[0]
                assert ("always" in request["allowedOptionIds"]) == permits
                answer = await caller.reply(session_id, request["requestId"], way)
                assert answer.status_code == (200 if permits else 422)


# -- S20 ---------------------------------------------------------------------------------------


async def test_s20_pages_run_nothing_that_is_not_theirs_and_stand_in_no_frame(
    tmp_path: Path,
) -> None:
    agents = {"fake": {"command": scripted("basic")}}
    async with serving(tmp_path, agents, default_agent="fake") as bridge:
        for path in ("/", "/docs"):
            page = await bridge.caller.get(path)
            policy = {
                name: words
                for name, *words in (
                    part.split() for part in page.headers["content-security-policy"].split(";")
                )
            }
            assert policy["default-src"] == ["'none'"]
            assert policy["frame-ancestors"] == ["'none'"]
            assert policy["base-uri"] == ["'none'"] and policy["form-action"] == ["'none'"]
            assert policy.get("img-src", ["'self'"]) in (["'self'"], ["'self'", "blob:", "data:"])
            allowed = {"'self'", "'none'", "blob:", "data:"}
            assert {word for words in policy.values() for word in words} <= allowed
            assert "data:" not in policy["script-src"] and "blob:" not in policy["script-src"]
            assert page.headers["x-content-type-options"] == "nosniff"
            assert page.headers["cross-origin-opener-policy"] == "same-origin"
            assert page.headers["cross-origin-resource-policy"] == "same-origin"
            assert not re.search(r"<script(?![^>]*\ssrc=)[^>]*>|\son\w+=|javascript:", page.text)


# -- who did what ------------------------------------------------------------------------------


def acts(folder: Path) -> list[Json]:
    """The audit log."""
    path = folder / "state" / "audit.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_the_audit_log_says_who_did_what_and_no_text_of_anybody(tmp_path: Path) -> None:
    words = json.dumps(case_file(tmp_path, asking()))
    config = f'default_agent = "fake"\n[agents.fake]\ncommand = {words}\n'
    async with Subprocess(tmp_path, config) as process:
        caller = await process.start()
        me = {"owner": "local", "token": "CURSOR_BRIDGE_TOKEN"}
        session_id = (await caller.session(title="private title"))["sessionId"]
        path, on = f"/v1/sessions/{session_id}", {"session": session_id}
        turn = await caller.turn(session_id, "private words")
        first = (await caller.pending(session_id))[0]["requestId"]
        reply = await caller.reply(session_id, first, {"outcome": "selected", "optionId": "no"})
        assert reply.status_code == 200
        await caller.settled(session_id, turn["turnId"])
        rules = {"rules": [{"match": {"kind": "execute"}, "reply": "allow_once"}]}
        await caller.http.patch(path, json={"permissions": rules, "title": "private"})
        second = await caller.turn(session_id, "private words")
        every = (await caller.get(f"{path}/requests?status=all")).json()["requests"]
        refused = await caller.post("/v1/sessions", {"cwd": "/"})
        stranger = await caller.http.get(f"{path}?token=private", headers=bearer("wrong"))
        await caller.http.delete(f"{path}?purge=true")
    told = [
        {k: v for k, v in act.items() if k not in ("time", "suppressed")} for act in acts(tmp_path)
    ]
    workspace = str(tmp_path / "ws")
    assert told == [
        {"event": "session.created", **me, **on, "agent": "fake", "cwd": workspace},
        {"event": "prompt.sent", **me, **on, "turn": turn["turnId"]},
        {"event": "reply.given", **me, **on, "request": first, "outcome": "no"},
        {"event": "permissions.set", **me, **on, "isAllowing": True},
        {"event": "prompt.sent", **me, **on, "turn": second["turnId"]},
        {
            **{"event": "policy.decided", "owner": "local", **on},
            **{"request": every[1]["requestId"], "by": "policy", "outcome": "yes"},
        },
        {
            **{"event": "access.refused", "code": "path-outside-roots", "status": 403, **me},
            **{"method": "POST", "path": "/v1/sessions", "address": "127.0.0.1"},
            "requestId": refused.headers["x-request-id"],
        },
        {
            **{"event": "access.refused", "code": "unauthorized", "status": 401},
            **{"method": "GET", "path": path, "address": "127.0.0.1"},
            "requestId": stranger.headers["x-request-id"],
        },
        {"event": "session.deleted", **me, **on, "purged": True},
    ]
    assert "private" not in (tmp_path / "state" / "audit.jsonl").read_text()
