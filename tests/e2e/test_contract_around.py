"""The contract's conventions, and what is around the sessions."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.e2e.contract import module_backend, module_bridge, module_tidy  # noqa: F401
from tests.e2e.harness import Bridge, Json

pytestmark = pytest.mark.anyio

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def problem_of(answer: httpx.Response, status: int, code: str) -> Json:
    """The problem of a refusal, which must be this one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: Json = answer.json()
    assert (problem["code"], problem["status"]) == (code, status)
    assert problem["title"] and problem["detail"] and problem["type"]
    return problem


# -- conventions -------------------------------------------------------------------------------


async def test_times_are_rfc_3339_in_utc_with_milliseconds(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    assert TIME.fullmatch(session["createdAt"]) and TIME.fullmatch(session["updatedAt"])


async def test_unknown_fields_are_422_and_unknown_query_parameters_ignored(
    bridge: Bridge,
) -> None:
    answer = await bridge.caller.post("/v1/sessions", {"agnet": "demo"})
    problem = problem_of(answer, 422, "invalid-request")
    assert problem["errors"][0]["pointer"] == "#/agnet"
    assert (await bridge.caller.get("/v1/sessions?colour=red")).status_code == 200


@pytest.mark.parametrize("body", [b"{", b"", b"[1", b"\xff{}", b'{"a":NaN}'])
async def test_what_is_no_json_is_400(bridge: Bridge, body: bytes) -> None:
    answer = await bridge.caller.http.post(
        "/v1/sessions", content=body, headers={"Content-Type": "application/json"}
    )
    problem_of(answer, 400, "invalid-request")


@pytest.mark.parametrize("body", [[], "text", {"cwd": 1}, {"config": []}, {"title": {}}])
async def test_json_that_does_not_fit_is_422(bridge: Bridge, body: object) -> None:
    problem_of(await bridge.caller.post("/v1/sessions", body), 422, "invalid-request")


async def test_ids_are_opaque_and_long(bridge: Bridge) -> None:
    session = await bridge.caller.session()
    turn = await bridge.caller.turn(session["sessionId"], "tool")
    request = (await bridge.caller.pending(session["sessionId"]))[0]
    for prefix, found in (
        ("ses_", session["sessionId"]),
        ("turn_", turn["turnId"]),
        ("req_", request["requestId"]),
    ):
        assert found.startswith(prefix)
        assert len(found.removeprefix(prefix)) >= 22
    assert session["agentSessionId"] != session["sessionId"]


async def test_a_problem_says_where_it_happened(bridge: Bridge) -> None:
    problem = problem_of(
        await bridge.caller.get("/v1/sessions/ses_nothing?x=1"), 404, "session-not-found"
    )
    assert problem["instance"] == "/v1/sessions/ses_nothing"


async def test_a_request_id_is_the_callers_own_where_it_is_sane(bridge: Bridge) -> None:
    named = await bridge.caller.get("/healthz", headers={"X-Request-Id": "mine-1"})
    assert named.headers["x-request-id"] == "mine-1"
    silly = await bridge.caller.get("/healthz", headers={"X-Request-Id": "a b\tc"})
    assert silly.headers["x-request-id"] != "a b\tc"
    assert silly.headers["cache-control"] == "no-store"


async def test_a_token_is_needed_but_for_what_is_public(bridge: Bridge) -> None:
    async with httpx.AsyncClient(base_url=bridge.caller.url) as http:
        for path in ("/healthz", "/readyz", "/", "/docs", "/openapi.json"):
            assert (await http.get(path)).status_code == 200, path
        for path in ("/v1/me", "/v1/sessions", "/metrics", "/v1/events", "/nothing"):
            answer = await http.get(path)
            problem_of(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_unknown_paths_are_404_and_known_ones_say_which_methods_they_have(
    bridge: Bridge,
) -> None:
    problem_of(await bridge.caller.get("/v1/nothing"), 404, "not-found")
    problem_of(await bridge.caller.get("/v1/sessions/"), 404, "not-found")
    answer = await bridge.caller.http.delete("/v1/sessions")
    problem_of(answer, 405, "http-method-not-allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


async def test_a_form_that_nothing_has_is_406_and_changes_nothing(bridge: Bridge) -> None:
    before = len((await bridge.caller.get("/v1/sessions")).json()["sessions"])
    for accept in ("text/html", "application/json;q=0", "image/*"):
        answer = await bridge.caller.post("/v1/sessions", {}, headers={"Accept": accept})
        problem = problem_of(answer, 406, "not-acceptable")
        assert "application/json" in problem["available"]
    for accept in ("*/*", "application/*", "text/html, application/json;q=0.1"):
        answer = await bridge.caller.get("/v1/me", headers={"Accept": accept})
        assert answer.status_code == 200
    assert len((await bridge.caller.get("/v1/sessions")).json()["sessions"]) == before


@pytest.mark.parametrize("path", ["/v1/me", "/v1/sessions", "/healthz", "/docs", "/v1/events"])
async def test_head_is_get_without_the_body(bridge: Bridge, path: str) -> None:
    answer = await bridge.caller.http.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    stream = await bridge.caller.http.head(path, headers={"Accept": "text/event-stream"})
    assert stream.status_code in (200, 406) and not stream.content


async def test_limits_above_the_maximum_are_clamped_and_nonsense_is_400(bridge: Bridge) -> None:
    assert (await bridge.caller.get("/v1/sessions?limit=99999")).status_code == 200
    for limit in ("0", "-1", "x", "1_0", "\u0661"):
        answer = await bridge.caller.get("/v1/sessions", params={"limit": limit})
        problem_of(answer, 400, "invalid-request")
    problem_of(await bridge.caller.get("/v1/sessions?cursor=bad"), 422, "invalid-request")


# -- me, agents, folders -----------------------------------------------------------------------


async def test_me_tells_who_asks_and_what_is_allowed(bridge: Bridge) -> None:
    me = (await bridge.caller.get("/v1/me")).json()
    assert me["owner"] == "local" and set(me["token"]["scopes"]) >= {"admin"}
    assert me["roots"] == [str(bridge.workspace.resolve())]
    assert set(me) == {"owner", "token", "roots", "limits", "version", "features"}


async def test_an_agent_shows_null_until_a_process_has_shown_it(bridge: Bridge) -> None:
    agents = {each["agentId"]: each for each in (await _agents(bridge))}
    assert agents["no_load"]["capabilities"] is None and agents["no_load"]["modes"] is None
    assert agents["no_load"]["available"] is True
    await bridge.caller.session(agent="demo")
    demo = (await bridge.caller.get("/v1/agents/demo")).json()
    assert demo["authenticated"] is True and demo["capabilities"]["loadSession"] is True
    assert {mode["id"] for mode in demo["modes"]} == {"agent", "plan", "ask"}


async def _agents(bridge: Bridge) -> list[Json]:
    found: list[Json] = (await bridge.caller.get("/v1/agents")).json()["agents"]
    return found


async def test_an_agent_that_is_not_configured_is_404(bridge: Bridge) -> None:
    problem_of(await bridge.caller.get("/v1/agents/nobody"), 404, "agent-not-found")
    answer = await bridge.caller.post("/v1/sessions", {"agent": "nobody"})
    assert "demo" in problem_of(answer, 404, "agent-not-found")["available"]


async def test_the_agents_own_sessions_are_listed(bridge: Bridge) -> None:
    session = await bridge.caller.session(agent="demo")
    await bridge.caller.turn(session["sessionId"], "hello list")
    answer = await bridge.caller.get(
        "/v1/agents/demo/sessions", params={"cwd": str(bridge.workspace)}
    )
    assert session["agentSessionId"] in [each["sessionId"] for each in answer.json()["sessions"]]


async def test_an_agent_without_a_list_is_501(bridge: Bridge) -> None:
    answer = await bridge.caller.get("/v1/agents/no_load/sessions")
    problem_of(answer, 501, "not-supported")


async def test_folders_are_the_roots_and_what_is_inside_them(bridge: Bridge) -> None:
    (bridge.workspace / "inner" / ".git").mkdir(parents=True, exist_ok=True)
    root = str(bridge.workspace.resolve())
    roots = (await bridge.caller.get("/v1/folders")).json()
    assert [each["path"] for each in roots["folders"]] == [root]
    listed = (await bridge.caller.get("/v1/folders", params={"path": root})).json()
    assert {"name": "inner", "path": f"{root}/inner", "git": True} in listed["folders"]
    outside = await bridge.caller.get("/v1/folders", params={"path": "/"})
    problem_of(outside, 403, "path-outside-roots")
    dots = await bridge.caller.get("/v1/folders", params={"path": f"{root}/.."})
    problem_of(dots, 403, "path-outside-roots")
    missing = await bridge.caller.get("/v1/folders", params={"path": f"{root}/none"})
    problem_of(missing, 422, "invalid-request")
    relative = await bridge.caller.get("/v1/folders", params={"path": "inner"})
    problem_of(relative, 422, "invalid-request")


# -- files -------------------------------------------------------------------------------------


async def test_a_file_of_the_session_is_an_attachment_in_a_sandbox(bridge: Bridge) -> None:
    folder = _folder(bridge, "files")
    (folder / "päge.html").write_text("<script>1</script>")
    session = await bridge.caller.session(cwd=str(folder))
    path = f"/v1/sessions/{session['sessionId']}/files"
    answer = await bridge.caller.get(path, params={"path": "päge.html"})
    assert (answer.status_code, answer.text) == (200, "<script>1</script>")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-security-policy"] == "sandbox"
    part = await bridge.caller.get(
        path, params={"path": "päge.html"}, headers={"Range": "bytes=0-3"}
    )
    assert (part.status_code, part.text) == (200, "<script>1</script>")
    head = await bridge.caller.http.head(path, params={"path": "päge.html"})
    assert (head.status_code, head.content) == (200, b"")


async def test_only_files_below_the_folder_are_there(bridge: Bridge) -> None:
    folder = _folder(bridge, "inside")
    secret = bridge.workspace / "secret.txt"
    secret.write_text("secret")
    (folder / "link").unlink(missing_ok=True)
    (folder / "link").symlink_to(secret)
    (folder / "self").unlink(missing_ok=True)
    (folder / "self").symlink_to(folder / "self")
    (folder / "sub").mkdir(exist_ok=True)
    session = await bridge.caller.session(cwd=str(folder))
    for name in (
        "link",
        "self",
        "sub",
        "none",
        "../secret.txt",
        str(secret),
        "sub/../../secret.txt",
        "",
        "a\0b",
        "x" * 3000,
    ):
        answer = await bridge.caller.get(
            f"/v1/sessions/{session['sessionId']}/files", params={"path": name}
        )
        problem_of(answer, 404, "not-found")


def _folder(bridge: Bridge, name: str) -> Path:
    folder = bridge.workspace / name
    folder.mkdir(exist_ok=True)
    return folder


# -- health and documents ----------------------------------------------------------------------


async def test_the_bridge_says_that_it_is_alive_and_ready(bridge: Bridge) -> None:
    assert (await bridge.caller.get("/healthz")).json() == {"status": "ok"}
    assert (await bridge.caller.get("/readyz")).json() == {"status": "ready"}


async def test_metrics_are_prometheus_text(bridge: Bridge) -> None:
    answer = await bridge.caller.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "cursor_bridge_agent_processes" in answer.text


async def test_the_documents_need_nothing_from_elsewhere(bridge: Bridge) -> None:
    document = (await bridge.caller.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    page = (await bridge.caller.get("/docs")).text
    assert not re.search(r"(src|href)=.https?:", page)
    for path in document["paths"]:
        assert path in page
