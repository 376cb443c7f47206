"""The contract's sessions: made, listed, changed, closed, taken up."""

from __future__ import annotations

import json
import uuid
from typing import Any

import anyio
import pytest

from tests.e2e.contract import module_backend, module_bridge, module_tidy  # noqa: F401
from tests.e2e.harness import Bridge, Event, Json
from tests.e2e.test_contract_around import problem_of

pytestmark = pytest.mark.anyio


def path_of(session: Json) -> str:
    """The session's address."""
    return f"/v1/sessions/{session['sessionId']}"


async def shown(bridge: Bridge, session: Json) -> Json:
    """The Session now."""
    found: Json = (await bridge.caller.get(path_of(session))).json()
    return found


async def wait_for_status(bridge: Bridge, session: Json, *statuses: str) -> Json:
    """The Session once it has one of these statuses."""

    def is_there(event: Event) -> bool:
        changed = event.params.get("changed", {}) if event.kind == "bridge/session" else {}
        return changed.get("status") in statuses

    await bridge.caller.until(f"{path_of(session)}/events", is_there)
    return await shown(bridge, session)


def sent(bridge: Bridge, case: str, method: str) -> list[Json]:
    """The params that reached the scripted agent under a method."""
    wire = (bridge.workspace.parent / f"{case}.wire").read_text("utf-8")
    lines = [json.loads(line) for line in wire.splitlines()]
    messages = [json.loads(each["line"]) for each in lines if each["dir"] == "in"]
    return [each["params"] for each in messages if each.get("method") == method]


# -- making ------------------------------------------------------------------------------------


async def test_a_session_has_every_field_and_its_address(bridge: Bridge) -> None:
    answer = await bridge.caller.post(
        "/v1/sessions",
        {
            "agent": "demo",
            "title": "mine",
            "mode": "plan",
            "model": "default[]",
            "metadata": {"a": [1]},
            "permissions": {"rules": [{"match": {"kind": "read"}, "reply": "allow_once"}]},
        },
    )
    session = answer.json()
    assert answer.status_code == 201 and answer.headers["location"] == path_of(session)
    assert (session["status"], session["title"], session["agent"]) == ("idle", "mine", "demo")
    assert session["mode"]["current"] == "plan" and session["model"]["current"] == "default[]"
    assert {"id", "name", "description"} == set(session["mode"]["available"][0])
    assert session["metadata"] == {"a": [1]} and session["cwd"] == str(bridge.workspace)
    assert session["permissions"]["rules"][0]["reply"] == "allow_once"
    assert session["queue"] == [] and session["turn"] is None and session["problem"] is None
    assert session["firstSeq"] == 1 and session["lastSeq"] >= 1 and session["lastId"] >= 1
    assert (await shown(bridge, session))["sessionId"] == session["sessionId"]


async def test_an_option_is_chosen_at_the_start_by_its_id(bridge: Bridge) -> None:
    session = await bridge.caller.session(model="composer-2.5", config={"fast": "false"})
    values = {each["id"]: each["currentValue"] for each in session["configOptions"]}
    assert values["fast"] == "false"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"mode": "dream"}, "mode-not-available"),
        ({"model": "gpt-99"}, "model-not-available"),
        ({"config": {"nothing": "x"}}, "config-not-available"),
        ({"config": {"model": "nothing"}}, "config-not-available"),
    ],
)
async def test_what_the_agent_does_not_offer_leaves_no_session(
    bridge: Bridge, body: Json, code: str
) -> None:
    before = (await bridge.caller.get("/v1/sessions?limit=200")).json()["sessions"]
    answer = await bridge.caller.post("/v1/sessions", {"agent": "demo", **body})
    assert problem_of(answer, 422, code)["available"]
    after = (await bridge.caller.get("/v1/sessions?limit=200")).json()["sessions"]
    assert {each["sessionId"] for each in after} == {each["sessionId"] for each in before}


async def test_folders_must_lie_inside_the_roots_and_exist(bridge: Bridge) -> None:
    inside = str(bridge.workspace)
    for body in ({"cwd": "/"}, {"cwd": f"{inside}/.."}, {"additionalDirectories": ["/etc"]}):
        answer = await bridge.caller.post("/v1/sessions", body)
        problem_of(answer, 403, "path-outside-roots")
    for body in ({"cwd": f"{inside}/none"}, {"cwd": "relative"}):
        problem_of(await bridge.caller.post("/v1/sessions", body), 422, "invalid-request")


async def test_more_folders_servers_and_meta_reach_the_agent(bridge: Bridge) -> None:
    more = bridge.workspace / "more"
    more.mkdir(exist_ok=True)
    server = {"type": "http", "name": "x", "url": "https://example.com", "headers": []}
    session = await bridge.caller.session(
        agent="basic",
        additionalDirectories=[str(more)],
        mcpServers=[server],
        _meta={"mark": "here"},
    )
    params = sent(bridge, "basic", "session/new")[-1]
    assert params["additionalDirectories"] == [str(more)] and params["mcpServers"] == [server]
    assert params["_meta"] == {"mark": "here"}
    assert "example.com" not in json.dumps(await shown(bridge, session))


async def test_a_server_that_is_a_command_needs_the_configurations_leave(bridge: Bridge) -> None:
    server = {"name": "x", "command": "/bin/true", "args": [], "env": []}
    answer = await bridge.caller.post("/v1/sessions", {"mcpServers": [server]})
    problem_of(answer, 403, "forbidden")


async def test_respond_async_answers_at_once_and_tells_the_start_as_events(
    bridge: Bridge,
) -> None:
    answer = await bridge.caller.post(
        "/v1/sessions", {"agent": "demo"}, headers={"Prefer": "respond-async"}
    )
    session = answer.json()
    assert answer.status_code == 202 and session["status"] == "starting"
    assert answer.headers["preference-applied"] == "respond-async"
    assert answer.headers["location"] == path_of(session)
    assert (await wait_for_status(bridge, session, "idle"))["agentSessionId"]


async def test_a_start_that_fails_behind_a_202_leaves_a_failed_session_that_can_be_prompted(
    bridge: Bridge,
) -> None:
    answer = await bridge.caller.post(
        "/v1/sessions", {"agent": "demo", "mode": "dream"}, headers={"Prefer": "respond-async"}
    )
    session = await wait_for_status(bridge, answer.json(), "failed")
    assert session["problem"]["code"] == "mode-not-available"
    turn = await bridge.caller.turn(session["sessionId"], "hello")
    assert turn["status"] == "completed"
    assert (await shown(bridge, session))["problem"] is None


async def test_a_prompt_to_a_session_that_is_starting_waits_in_the_queue(bridge: Bridge) -> None:
    for mode, wanted in (("plan", "completed"), ("dream", "completed")):
        answer = await bridge.caller.post(
            "/v1/sessions", {"agent": "demo", "mode": mode}, headers={"Prefer": "respond-async"}
        )
        turn = await bridge.caller.turn(answer.json()["sessionId"], "hello")
        assert turn["status"] == wanted, turn


async def test_an_agent_of_another_protocol_is_refused(bridge: Bridge) -> None:
    answer = await bridge.caller.post("/v1/sessions", {"agent": "version_two"})
    problem_of(answer, 424, "agent-protocol-error")


# -- resume ------------------------------------------------------------------------------------


async def _abandoned(bridge: Bridge, text: str = "hello before") -> str:
    """A conversation of the demo agent that is no session of the bridge any more."""
    session = await bridge.caller.session(agent="demo")
    await bridge.caller.turn(session["sessionId"], text)
    await bridge.caller.http.delete(path_of(session), params={"purge": "true"})
    return str(session["agentSessionId"])


async def test_a_conversation_begun_elsewhere_is_taken_up_with_its_replay(bridge: Bridge) -> None:
    known = await _abandoned(bridge)
    session = await bridge.caller.session(agent="demo", resume=known)
    assert session["agentSessionId"] == known and session["status"] == "idle"
    events = await bridge.caller.log(session["sessionId"])
    replayed = [event for event in events if event.get("replay")]
    assert replayed and all(event["type"] == "session/update" for event in replayed)
    items = (await bridge.caller.get(f"{path_of(session)}/transcript")).json()["items"]
    assert [item["text"] for item in items if item["type"] == "user"] == ["hello before"]
    again = await bridge.caller.post("/v1/sessions", {"agent": "demo", "resume": known})
    problem = problem_of(again, 409, "session-already-open")
    assert problem["sessionId"] == session["sessionId"]


@pytest.mark.parametrize("prefer", ["", "respond-async"])
async def test_a_conversation_that_is_not_there_is_lost_and_said_as_events(
    bridge: Bridge, prefer: str
) -> None:
    known = str(uuid.uuid4())
    answer = await bridge.caller.post(
        "/v1/sessions", {"agent": "demo", "resume": known}, headers={"Prefer": prefer}
    )
    if prefer:
        assert answer.status_code == 202
        session = answer.json()
    else:
        problem_of(answer, 410, "session-lost")
        closed = (await bridge.caller.get("/v1/sessions?status=closed&limit=200")).json()
        session = next(each for each in closed["sessions"] if each["agentSessionId"] == known)
    events = await bridge.caller.until(
        f"{path_of(session)}/events", lambda event: event.kind == "bridge/session_deleted"
    )
    assert events[-1].params == {"purged": False}
    assert (await shown(bridge, session))["status"] == "closed"


async def test_an_agent_that_cannot_load_loses_every_conversation(bridge: Bridge) -> None:
    answer = await bridge.caller.post("/v1/sessions", {"agent": "no_load", "resume": "x"})
    problem_of(answer, 410, "session-lost")


async def test_resume_behind_a_202_is_starting_until_the_load_is_done(bridge: Bridge) -> None:
    known = await _abandoned(bridge)
    answer = await bridge.caller.post(
        "/v1/sessions", {"agent": "demo", "resume": known}, headers={"Prefer": "respond-async"}
    )
    assert answer.status_code == 202 and answer.json()["status"] == "starting"
    assert (await wait_for_status(bridge, answer.json(), "idle"))["agentSessionId"] == known


# -- lists, PATCH, DELETE ----------------------------------------------------------------------


async def test_lists_are_paged_latest_activity_first_and_brief(bridge: Bridge) -> None:
    mark = uuid.uuid4().hex
    made = [await bridge.caller.session(title=f"{mark} {n}") for n in range(3)]
    for each in made:
        # The agent tells its commands some moments later, which is activity as well.
        await bridge.caller.until(
            f"/v1/sessions/{each['sessionId']}/events",
            lambda event: "available_commands_update" in str(event.data),
            params={"after": 0},
        )
    await bridge.caller.turn(made[0]["sessionId"], "hello")
    found: list[Json] = []
    cursor: str | None = None
    while True:
        query: Any = {"q": mark.upper(), "limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await bridge.caller.get("/v1/sessions", params=query)).json()
        assert len(page["sessions"]) <= 2 and page["lastId"] > 0
        found += page["sessions"]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    ids = [each["sessionId"] for each in found]
    assert ids[0] == made[0]["sessionId"]
    assert set(ids) == {each["sessionId"] for each in made}
    times = [each["updatedAt"] for each in found]
    assert times == sorted(times, reverse=True)
    for each in found:
        assert "configOptions" not in each and "commands" not in each
        assert "available" not in each["model"]
        assert "text" not in (each["turn"] or {})


async def test_lists_are_filtered_by_status_and_agent(bridge: Bridge) -> None:
    session = await bridge.caller.session(agent="basic")
    listed = (await bridge.caller.get("/v1/sessions?agent=basic&status=idle")).json()
    assert session["sessionId"] in [each["sessionId"] for each in listed["sessions"]]
    assert {each["agent"] for each in listed["sessions"]} == {"basic"}
    assert (await bridge.caller.get("/v1/sessions?agent=none")).json()["sessions"] == []
    problem_of(await bridge.caller.get("/v1/sessions?status=odd"), 422, "invalid-request")


async def test_patch_changes_what_is_the_callers(bridge: Bridge) -> None:
    session = await bridge.caller.session(metadata={"keep": 1, "drop": {"a": 1, "b": 2}})
    answer = await bridge.caller.http.patch(
        path_of(session), json={"title": "new", "metadata": {"drop": {"a": None}, "add": []}}
    )
    changed = answer.json()
    assert changed["title"] == "new"
    assert changed["metadata"] == {"keep": 1, "drop": {"b": 2}, "add": []}
    rules = {"rules": [{"match": {}, "reply": "ask"}], "onTimeout": None}
    wanted: tuple[Json, ...] = ({"rules": [{"match": {}, "reply": "reject_once"}]}, {"rules": []})
    for permissions in wanted:
        answer = await bridge.caller.http.patch(path_of(session), json={"permissions": permissions})
        assert answer.json()["permissions"]["rules"] == permissions["rules"]
    bad = await bridge.caller.http.patch(path_of(session), json={"permissions": rules})
    assert bad.status_code in (200, 422)
    cleared = await bridge.caller.http.patch(path_of(session), json={"title": None})
    assert cleared.json()["title"] is None
    bad = await bridge.caller.http.patch(path_of(session), json={"status": "idle"})
    problem_of(bad, 422, "invalid-request")


async def test_a_closed_session_can_be_read_but_neither_changed_nor_prompted(
    bridge: Bridge,
) -> None:
    session = await bridge.caller.session()
    await bridge.caller.turn(session["sessionId"], "hello")
    for _ in range(2):
        answer = await bridge.caller.http.delete(path_of(session))
        assert (answer.status_code, answer.content) == (204, b"")
    assert (await shown(bridge, session))["status"] == "closed"
    assert (await bridge.caller.get(f"{path_of(session)}/transcript")).json()["items"]
    patch = await bridge.caller.http.patch(path_of(session), json={"title": "x"})
    problem_of(patch, 409, "session-closed")
    prompt = await bridge.caller.post(f"{path_of(session)}/prompt", {"prompt": "x"})
    problem_of(prompt, 409, "session-closed")
    for where, is_there in (("", False), ("?status=closed", True)):
        listed = (await bridge.caller.get(f"/v1/sessions{where}")).json()["sessions"]
        assert (session["sessionId"] in [each["sessionId"] for each in listed]) is is_there


async def test_deleting_ends_the_turn_and_withdraws_its_requests(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    turn = await bridge.caller.turn(session["sessionId"], "tool")
    request = (await bridge.caller.pending(session["sessionId"]))[0]
    await bridge.caller.post(f"{path_of(session)}/prompt", {"prompt": "hello", "onBusy": "queue"})
    await bridge.caller.http.delete(path_of(session))
    ended = await bridge.caller.settled(session["sessionId"], turn["turnId"])
    assert (ended["status"], ended["cancelledBy"]) == ("cancelled", "caller")
    answer = await bridge.caller.reply(
        session["sessionId"], request["requestId"], {"outcome": "cancelled"}
    )
    problem = problem_of(answer, 410, "request-withdrawn")
    assert problem["resolution"]["by"] == "session-deleted"
    last = await shown(bridge, session)
    assert last["queue"] == [] and last["pendingRequests"] == []


async def test_a_purged_session_is_gone_but_for_deleting_it_again(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    turn = await bridge.caller.turn(session["sessionId"], "hello")
    path = path_of(session)
    for _ in range(2):
        answer = await bridge.caller.http.delete(path, params={"purge": "true"})
        assert answer.status_code == 204
    assert (await bridge.caller.http.delete(path)).status_code == 204
    for name in (
        "",
        "/events",
        "/turns",
        f"/turns/{turn['turnId']}",
        "/requests",
        "/requests/req_x",
        "/transcript",
        "/files?path=x",
    ):
        problem_of(await bridge.caller.get(path + name), 404, "session-not-found")
    for name, body in (
        ("/prompt", {"prompt": "x"}),
        ("/cancel", {}),
        (f"/turns/{turn['turnId']}/cancel", {}),
        ("/ext", {"method": "_x"}),
        ("/requests/req_x/reply", {}),
    ):
        problem_of(await bridge.caller.post(path + name, body), 404, "session-not-found")
    problem_of(await bridge.caller.http.patch(path, json={}), 404, "session-not-found")
    mode = await bridge.caller.http.put(f"{path}/mode", json={"modeId": "plan"})
    problem_of(mode, 404, "session-not-found")
    closed = (await bridge.caller.get("/v1/sessions?status=closed&limit=200")).json()
    assert session["sessionId"] not in [each["sessionId"] for each in closed["sessions"]]


async def test_deleting_what_never_was_is_404(bridge: Bridge) -> None:
    answer = await bridge.caller.http.delete("/v1/sessions/ses_" + "0" * 32)
    problem_of(answer, 404, "session-not-found")


async def test_a_session_closed_while_it_starts_stays_closed(bridge: Bridge) -> None:
    answer = await bridge.caller.post(
        "/v1/sessions", {"agent": "demo"}, headers={"Prefer": "respond-async"}
    )
    assert (await bridge.caller.http.delete(path_of(answer.json()))).status_code == 204
    assert (await shown(bridge, answer.json()))["status"] == "closed"


# -- modes, models, options, extensions --------------------------------------------------------


async def test_modes_models_and_options_are_set_and_refused_with_what_there_is(
    bridge: Bridge,
) -> None:
    session = await bridge.caller.session()
    for name, body, code in (
        ("mode", {"modeId": "ask"}, "mode-not-available"),
        ("model", {"modelId": "composer-2.5"}, "model-not-available"),
    ):
        answer = await bridge.caller.http.put(f"{path_of(session)}/{name}", json=body)
        (wanted,) = body.values()
        assert answer.status_code == 200 and answer.json()[name]["current"] == wanted
        bad = dict.fromkeys(body, "nothing")
        refused = await bridge.caller.http.put(f"{path_of(session)}/{name}", json=bad)
        assert problem_of(refused, 422, code)["available"]
    answer = await bridge.caller.http.put(
        f"{path_of(session)}/config/fast", json={"value": "false"}
    )
    values = {each["id"]: each["currentValue"] for each in answer.json()["configOptions"]}
    assert values["fast"] == "false"
    for config_id, value in (("fast", "odd"), ("none", "x")):
        answer = await bridge.caller.http.put(
            f"{path_of(session)}/config/{config_id}", json={"value": value}
        )
        assert problem_of(answer, 422, "config-not-available")["available"]


async def test_a_mode_is_set_at_once_during_a_turn(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    await bridge.caller.turn(session["sessionId"], "tool")
    with anyio.fail_after(10):
        answer = await bridge.caller.http.put(f"{path_of(session)}/mode", json={"modeId": "plan"})
    assert answer.json()["mode"]["current"] == "plan" and answer.json()["status"] == "waiting"


async def test_choosing_revives_a_hibernated_session(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    await bridge.caller.turn(session["sessionId"], "hello")
    await bridge.caller.prompt(session["sessionId"], "hang")
    await bridge.caller.post(f"{path_of(session)}/cancel", {"hard": True})
    assert (await wait_for_status(bridge, session, "hibernated"))["status"] == "hibernated"
    answer = await bridge.caller.http.put(f"{path_of(session)}/mode", json={"modeId": "ask"})
    assert answer.json()["mode"]["current"] == "ask" and answer.json()["status"] == "idle"


async def test_extension_methods_are_called_and_core_ones_refused(bridge: Bridge) -> None:
    session = await bridge.caller.session(agent="basic")
    answer = await bridge.caller.post(
        f"{path_of(session)}/ext", {"method": "_vendor/ping", "params": {"a": 1}}
    )
    assert answer.json() == {"result": {}}
    assert sent(bridge, "basic", "_vendor/ping")[-1] == {"a": 1}
    for method in ("session/prompt", "session/cancel", "initialize", "fs/read_text_file"):
        refused = await bridge.caller.post(f"{path_of(session)}/ext", {"method": method})
        problem_of(refused, 403, "method-not-allowed")


async def test_an_agents_own_error_is_passed_on(bridge: Bridge) -> None:
    session = await bridge.caller.session(agent="demo")
    answer = await bridge.caller.post(f"{path_of(session)}/ext", {"method": "_nothing/here"})
    problem = problem_of(answer, 424, "agent-error")
    assert problem["agentError"]["code"] == -32601


# -- idempotency -------------------------------------------------------------------------------


async def test_a_repeated_creation_finds_the_session_in_the_form_it_asks_for(
    bridge: Bridge,
) -> None:
    key = {"Idempotency-Key": uuid.uuid4().hex}
    body = {"agent": "demo", "title": "once"}
    later = {**key, "Prefer": "respond-async"}
    first = await bridge.caller.post("/v1/sessions", body, headers=later)
    assert first.status_code == 202
    second = await bridge.caller.post("/v1/sessions", body, headers=key)
    assert second.status_code == 201 and second.json()["status"] == "idle"
    assert second.json()["sessionId"] == first.json()["sessionId"]
    assert second.headers["location"] == first.headers["location"]
    third = await bridge.caller.post("/v1/sessions", body, headers=later)
    assert third.status_code == 202
    other = await bridge.caller.post("/v1/sessions", {"agent": "demo"}, headers=key)
    problem_of(other, 422, "idempotency-key-reused")


async def test_a_repeat_before_the_commit_is_told_to_come_back(bridge: Bridge) -> None:
    key = {"Idempotency-Key": uuid.uuid4().hex}
    answers = []

    async def create(body: Json) -> None:
        answers.append(await bridge.caller.post("/v1/sessions", body, headers=key))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(create, {"agent": "demo"})
    made = [each for each in answers if each.status_code == 201]
    assert len(made) == 1
    for each in answers:
        if each not in made:
            problem_of(each, 409, "idempotency-conflict")
            assert int(each.headers["retry-after"]) >= 1


async def test_only_a_success_is_recorded_under_a_key(bridge: Bridge) -> None:
    key = {"Idempotency-Key": uuid.uuid4().hex}
    bad = await bridge.caller.post("/v1/sessions", {"mode": "dream"}, headers=key)
    assert bad.status_code == 422
    good = await bridge.caller.post("/v1/sessions", {"agent": "demo"}, headers=key)
    assert good.status_code == 201
    silly = await bridge.caller.post("/v1/sessions", {}, headers={"Idempotency-Key": "a b"})
    problem_of(silly, 400, "invalid-request")
