"""The locked door: tokens, scopes, rates, and what the audit log says of them."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from bridge.api import access
from bridge.config import Limits
from tests.api.door import (
    EVERY_GUARDED_PATH,
    FIXED,
    JSON,
    ROUTES,
    TOKEN,
    Door,
    Fields,
    hello,
)

pytestmark = pytest.mark.anyio


BAD_TOKENS: list[Fields] = [
    [],
    [(b"authorization", b"")],
    [(b"authorization", b"Bearer")],
    [(b"authorization", b"Bearer ")],
    [(b"authorization", b"Bearer wrong")],
    [(b"authorization", b"Basic " + FIXED.encode())],
    [(b"authorization", FIXED.encode())],
    [(b"authorization", b"Bearer " + FIXED[:-1].encode())],
    [(b"authorization", b"Bearer " + FIXED.encode() + b"0")],
    [(b"authorization", b"Bearer " + FIXED.encode() + b" x")],
    [(b"authorization", b"Bearer " + b"a" * 1_000_000)],
    [(b"authorization", "Bearer schlüssel".encode())],
    [(b"authorization", b"Bearer \xff\xfe\x00")],
    [TOKEN, TOKEN],
    [TOKEN, (b"authorization", b"Bearer wrong")],
]


@pytest.mark.parametrize("fields", BAD_TOKENS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"])
async def test_without_a_good_token_nothing_answers_but_401(
    door: Door, tmp_path: Path, method: str, fields: Fields
) -> None:
    guard = Door(tmp_path, limits=Limits(failed_logins_per_minute=10**6)).guard()
    for path in EVERY_GUARDED_PATH:
        answer = await door.ask(path, *fields, method=method, guard=guard)
        assert answer.status == 401, path
        assert answer.headers["www-authenticate"] == "Bearer"
        assert (answer.body == b"") == (method == "HEAD")


@pytest.mark.parametrize("fields", BAD_TOKENS)
async def test_a_websocket_without_a_good_token_is_refused_before_it_is_accepted(
    door: Door, fields: Fields
) -> None:
    answer = await door.open_socket(*fields)
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert answer.messages[0]["type"] == "websocket.http.response.start"
    answer = await door.open_socket(*fields, extensions={})
    assert [message["type"] for message in answer.messages] == ["websocket.close"]


async def test_a_websocket_passes_the_same_checks(door: Door) -> None:
    answer = await door.open_socket(TOKEN)
    assert [message["type"] for message in answer.messages] == [
        "websocket.accept",
        "websocket.close",
    ]
    assert answer.messages[0]["headers"][0][0] == b"x-request-id"
    assert (await door.open_socket(TOKEN, host=(b"host", b"evil.example"))).status == 421
    assert (await door.open_socket(TOKEN, (b"origin", b"https://evil.example"))).status == 403
    own = (b"origin", b"http://127.0.0.1:8765")
    assert (await door.open_socket(TOKEN, own)).messages[0]["type"] == "websocket.accept"
    reader = door.tokens.create("reader", scopes=["read"]).encode()
    answer = await door.open_socket((b"authorization", b"Bearer " + reader))
    assert (answer.status, answer.code) == (403, "forbidden")


@pytest.mark.parametrize("prefix", [b"Bearer ", b"bearer ", b"BEARER   "])
async def test_the_scheme_is_read_in_any_case(door: Door, prefix: bytes) -> None:
    answer = await door.ask("/v1/me", (b"authorization", prefix + FIXED.encode()))
    assert json.loads(answer.body) == {"owner": "local"}


async def test_a_token_in_the_query_counts_for_nothing_and_is_nowhere_told(door: Door) -> None:
    query = f"token={FIXED}&access_token={FIXED}".encode()
    answer = await door.ask("/v1/me", query_string=query)
    assert answer.status == 401
    assert FIXED.encode() not in answer.body
    assert FIXED not in repr(door.audit)


@pytest.mark.parametrize("path", ["/", "/docs", "/healthz", "/assets/app.js"])
async def test_the_public_paths_ask_for_no_token(door: Door, path: str) -> None:
    assert (await door.ask(path)).status == 200
    assert (await door.ask(path, (b"authorization", b"Bearer wrong"))).status == 200
    assert (await door.ask(path, method="HEAD")).status == 200


async def test_a_public_path_with_another_method_is_405(door: Door) -> None:
    answer = await door.ask("/healthz", method="POST")
    assert (answer.status, answer.code) == (405, "http-method-not-allowed")
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("path", "raw_path"),
    [
        ("/assets/../v1/me", b"/assets/..%2fv1/me"),
        ("/assets/../v1/me", b"/assets/%2e%2e/v1/me"),
        ("/assets/x/y", b"/assets/x%2Fy"),
        ("/assets/x\\y", b"/assets/x%5Cy"),
        ("/assets/x\\y", b"/assets/x\\y"),
        ("/healthz\n", b"/healthz%0A"),
        ("/healthz\0", b"/healthz%00"),
        ("//healthz", b"//healthz"),
        ("/./healthz", b"/./healthz"),
        ("healthz", b"healthz"),
        ("", b""),
    ],
)
async def test_a_path_with_two_readings_is_neither_public_nor_there(
    door: Door, path: str, raw_path: bytes
) -> None:
    assert (await door.ask(path, raw_path=raw_path)).status == 401
    answer = await door.ask(path, TOKEN, raw_path=raw_path)
    assert (answer.status, answer.code) == (404, "not-found")


async def test_without_authentication_everybody_is_the_local_owner(tmp_path: Path) -> None:
    door = Door(tmp_path, no_auth=True)
    assert json.loads((await door.ask("/v1/admin")).body) == {"owner": "local"}
    assert (await door.ask("/v1/me", (b"origin", b"https://evil.example"))).status == 403


async def test_a_revoked_token_is_refused_at_once(door: Door) -> None:
    token = (b"authorization", b"Bearer " + door.tokens.create("phone").encode())
    assert (await door.ask("/v1/me", token)).status == 200
    door.tokens.revoke("phone")
    assert (await door.ask("/v1/me", token)).status == 401


# Scope and rate

MATRIX = {
    "read": {"/v1/me", "GET /v1/sessions"},
    "prompt": {"/v1/me", "GET /v1/sessions", "POST /v1/sessions"},
    "approve": {"/v1/me", "GET /v1/sessions", "POST /v1/reply"},
    "admin": {"/v1/me", "GET /v1/sessions", "POST /v1/sessions", "POST /v1/reply", "/v1/admin"},
}


async def test_an_open_socket_ends_with_its_token(door: Door) -> None:
    token = (b"authorization", b"Bearer " + door.tokens.create("phone").encode())
    answers = []

    async def ask() -> None:
        answers.append(await door.ask("/held", token, type="websocket", scheme="ws"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            door.tokens.revoke("phone")
    opened, closed = answers[0].messages
    assert opened["type"] == "websocket.accept"
    assert (closed["type"], closed["code"]) == ("websocket.close", 1008)


async def test_a_socket_that_is_not_there_is_a_404_in_the_bridges_words(door: Door) -> None:
    extensions: dict[str, object] = {"websocket.http.response": {}}
    for path in ("/v1/me", "/nowhere"):
        answer = await door.ask(path, TOKEN, type="websocket", scheme="ws", extensions=extensions)
        assert (answer.status, answer.code) == (404, "not-found")
        answer = await door.ask(path, TOKEN, type="websocket", scheme="ws")
        assert [message["type"] for message in answer.messages] == ["websocket.close"]


async def test_a_public_socket_needs_no_token(door: Door) -> None:
    answer = await door.ask("/open", type="websocket", scheme="ws")
    assert answer.messages[0]["type"] == "websocket.accept"


@pytest.mark.parametrize("scope", MATRIX)
async def test_a_token_reaches_what_its_scope_allows(door: Door, scope: str) -> None:
    token = (b"authorization", b"Bearer " + door.tokens.create("t", scopes=[scope]).encode())
    for target in MATRIX["admin"]:
        method, _, path = target.rpartition(" ")
        answer = await door.ask(path, token, method=method or "GET")
        if target in MATRIX[scope]:
            assert answer.status == 200
        else:
            assert (answer.status, answer.code) == (403, "forbidden")


async def test_a_route_that_declares_nothing_is_for_admins_only(door: Door) -> None:
    plain = Route("/plain", hello)
    assert access.resolver([plain])({"type": "http", "method": "GET", "path": "/plain"}) == (
        access.ADMIN
    )


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("root_path", ["", "/mounted"])
async def test_the_guard_reads_paths_as_the_router_does(kind: str, root_path: str) -> None:
    ask = access.resolver(ROUTES)
    for route in ROUTES:
        for method in ("GET", "POST", "BREW"):
            path = root_path + str(getattr(route, "path", "")).replace("{path}", "x")
            scope = {"type": kind, "method": method, "path": path, "root_path": root_path}
            matches = [(each.matches(dict(scope))[0], each) for each in ROUTES]
            full = [each for match, each in matches if match is Match.FULL]
            if full:
                assert ask(scope) == access.declared(full[0])
            elif any(
                match is Match.PARTIAL and access.declared(each).is_public
                for match, each in matches
            ):
                assert ask(scope) == access.PUBLIC
            else:
                assert ask(scope) == access.ANY_TOKEN


async def test_wrong_tokens_of_one_address_are_limited_and_a_right_one_never(door: Door) -> None:
    guard = door.guard()
    wrong = (b"authorization", b"Bearer wrong")
    statuses = [(await door.ask("/v1/me", wrong, guard=guard)).status for _ in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    answer = await door.ask("/v1/me", wrong, guard=guard)
    assert answer.code == "rate-limited"
    assert answer.headers["retry-after"] == "6"
    assert (await door.ask("/v1/me", guard=guard)).status == 401
    assert (await door.ask("/v1/me", TOKEN, guard=guard)).status == 200
    other = await door.ask("/v1/me", wrong, guard=guard, client=("192.0.2.8", 1))
    assert other.status == 401
    assert (await door.ask("/v1/me", wrong, guard=guard, client=None)).status == 401
    door.now += 6
    assert (await door.ask("/v1/me", wrong, guard=guard)).status == 401
    assert (await door.ask("/v1/me", wrong, guard=guard)).status == 429


async def test_prompts_and_new_sessions_are_limited_per_token(door: Door) -> None:
    guard = door.guard()
    other = (b"authorization", b"Bearer " + door.tokens.create("other").encode())
    for path, allowance in (("/v1/prompt", 2), ("/v1/sessions", 1)):
        for _ in range(allowance):
            assert (await door.ask(path, TOKEN, method="POST", guard=guard)).status == 200
        answer = await door.ask(path, TOKEN, method="POST", guard=guard)
        assert (answer.status, answer.code) == (429, "rate-limited")
        assert int(answer.headers["retry-after"]) > 0
        assert (await door.ask(path, other, method="POST", guard=guard)).status == 200


async def test_refused_access_is_in_the_audit_log_without_secrets(door: Door) -> None:
    await door.ask("/v1/me", (b"authorization", b"Bearer wrong-token"), (b"x-request-id", b"r1"))
    reader = door.tokens.create("reader", owner="ann", scopes=["read"]).encode()
    await door.ask("/v1/admin", (b"authorization", b"Bearer " + reader))
    await door.ask("/v1/nothing", TOKEN)
    assert [event for event, _ in door.audit] == ["access.refused"] * 2
    assert door.audit[0][1] == {
        "code": "unauthorized",
        "status": 401,
        "method": "GET",
        "path": "/v1/me",
        "address": "192.0.2.7",
        "owner": None,
        "token": None,
        "requestId": "r1",
        "suppressed": 0,
    }
    assert (door.audit[1][1]["owner"], door.audit[1][1]["token"]) == ("ann", "reader")
    assert "wrong-token" not in repr(door.audit)


async def test_a_flood_of_refusals_does_not_flood_the_audit_log(door: Door) -> None:
    guard = door.guard()
    for _ in range(100):
        await door.ask("/v1/me", guard=guard)
    assert len(door.audit) == 60
    door.now += 2
    await door.ask("/v1/me", guard=guard)
    assert door.audit[-1][1]["suppressed"] == 40


async def test_the_token_must_still_be_good_when_the_body_has_come(door: Door) -> None:
    token = door.tokens.create("phone")
    whole = door.app

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        door.tokens.revoke("phone")
        await whole(scope, receive, send)

    door.app = app
    fields = (JSON, (b"authorization", f"Bearer {token}".encode()))
    answer = await door.ask("/v1/prompt", *fields, method="POST", body=(b"{}",))
    assert (answer.status, answer.code) == (401, "unauthorized")
