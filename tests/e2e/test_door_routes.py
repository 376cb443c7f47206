"""The locked door in front of every route of the running application; nothing is listed by hand.

S1, S3, S4, S5 and the table of scopes (S8), for http and websocket scopes.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import BaseRoute, Route

from bridge.api.access import Access, declared
from bridge.config import Limits
from bridge.principal import Principal, Scope
from tests.e2e.doors import NOBODY, bearer, code_of
from tests.e2e.harness import TOKEN, Bridge, scripted, serving

pytestmark = pytest.mark.anyio

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW")
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
FOREIGN_HOSTS = (
    "evil.example",
    "localhost.evil.com",
    "127.0.0.1.nip.io",
    "user@evil",
    "h/path?",
    "127.0.0.1:99999",
    "localhost.",
)
FOREIGN_ORIGINS: tuple[dict[str, str], ...] = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "https://app.example.evil.com"},
    {"Origin": "https://app.example:8443"},
    {"Origin": "http://localhost:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)
APP = "https://app.example"
BAD_TOKENS: tuple[dict[str, str] | list[tuple[str, str]], ...] = (
    {},
    {"Authorization": ""},
    bearer("wrong"),
    bearer(TOKEN[:-1]),
    bearer(TOKEN + "0"),
    {"Authorization": TOKEN},
    [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")],
)
PARAMETERS = {
    "sessionId": NOBODY,
    "turnId": "turn_" + "0" * 32,
    "requestId": "req_" + "0" * 32,
    "agentId": "nobody",
}


@pytest.fixture
async def bridge(tmp_path: Path) -> AsyncIterator[Bridge]:
    """A bridge that lets many be wrong."""
    limits = Limits(failed_logins_per_minute=10**9, sessions_per_minute=10**6).model_dump(
        include={"failed_logins_per_minute", "sessions_per_minute"}
    )
    agents = {"fake": {"command": scripted("basic")}}
    server = {"port": 0, "cors_origins": (APP,)}
    async with serving(
        tmp_path, agents, default_agent="fake", limits=limits, server=server
    ) as served:
        yield served


def path_of(route: BaseRoute) -> str:
    """A path that the route matches, with ids that never were."""
    template = str(vars(route)["path"])
    return re.sub(r"{(\w+)(?::\w+)?}", lambda found: PARAMETERS.get(found[1], "x"), template)


def places(bridge: Bridge) -> Iterator[tuple[Access, str, str, dict[str, str]]]:
    """Every route, by every method, as a request and as the beginning of a WebSocket."""
    for route in bridge.application.routes:
        path = path_of(route)
        for method in METHODS:
            yield declared(route), method, path, {}
        yield declared(route), "GET", path, UPGRADE


async def ask(
    bridge: Bridge, method: str, path: str, headers: dict[str, str] | list[tuple[str, str]]
) -> httpx.Response:
    """A request with these headers alone."""
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    request = httpx.Request(method, bridge.server.url + path, headers=pairs)
    return await bridge.caller.http.send(request)


async def test_s1_no_route_answers_under_a_foreign_host(bridge: Bridge) -> None:
    for _, method, path, upgrade in places(bridge):
        for host in FOREIGN_HOSTS if method == "GET" else FOREIGN_HOSTS[:1]:
            answer = await ask(bridge, method, path, {"Host": host, **bearer(), **upgrade})
            assert answer.status_code == 421, (method, path, host, upgrade)


async def test_s3_no_route_answers_a_foreign_origin(bridge: Bridge) -> None:
    for _, method, path, upgrade in places(bridge):
        for origin in FOREIGN_ORIGINS if method == "GET" else FOREIGN_ORIGINS[:2]:
            answer = await ask(bridge, method, path, {**origin, **bearer(), **upgrade})
            assert answer.status_code == 403, (method, path, origin, upgrade)
            assert method == "HEAD" or code_of(answer) == "origin-not-allowed"
            assert not [name for name in answer.headers if name.startswith("access-control")]
            assert answer.headers["vary"] == "Origin"


async def test_s3_a_configured_origin_is_answered_everywhere_and_named_exactly(
    bridge: Bridge,
) -> None:
    for access, method, path, upgrade in places(bridge):
        if upgrade:
            continue
        answer = await ask(bridge, method, path, {"Origin": APP})
        assert answer.headers["access-control-allow-origin"] == APP, (method, path)
        assert answer.headers["vary"] == "Origin"
        assert access.is_public or answer.status_code == 401
        preflight = {"Origin": APP, "Access-Control-Request-Method": method}
        assert (await ask(bridge, "OPTIONS", path, preflight)).status_code == 204


async def test_s4_no_route_but_the_public_ones_answers_without_a_good_token(
    bridge: Bridge,
) -> None:
    public = set()
    for access, method, path, upgrade in places(bridge):
        for bad in BAD_TOKENS if method == "GET" else BAD_TOKENS[:2]:
            pairs = list(bad.items()) if isinstance(bad, dict) else bad
            answer = await ask(bridge, method, path, [*pairs, *upgrade.items()])
            if access.is_public and not upgrade:
                assert answer.status_code in (200, 405, 503), (method, path)
                public.add(path)
                continue
            assert answer.status_code == 401, (method, path, bad, upgrade)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert method == "HEAD" or code_of(answer) == "unauthorized"
    assert {"/healthz", "/readyz", "/", "/docs", "/openapi.json"} <= public
    assert not [path for path in public if path.startswith(("/v1", "/metrics", "/acp"))]


async def test_s4_what_is_no_route_asks_for_a_token_too(bridge: Bridge) -> None:
    for path in ("/v1", "/v1/", "/v2/sessions", "//v1/me", "/%2e%2e/v1/me", "/docs/", "/healthz/"):
        for method in METHODS:
            assert (await ask(bridge, method, path, {})).status_code == 401, (method, path)
        assert (await ask(bridge, "GET", path, bearer())).status_code == 404, path


async def test_s4_the_scheme_may_be_written_in_any_case(bridge: Bridge) -> None:
    for scheme in ("bearer", "BEARER", "Bearer"):
        answer = await ask(bridge, "GET", "/v1/me", {"Authorization": f"{scheme} {TOKEN}"})
        assert answer.status_code == 200


async def test_s5_a_token_in_the_query_is_ignored_and_told_to_nobody(bridge: Bridge) -> None:
    for name in ("token", "access_token", "key", "authorization"):
        answer = await ask(bridge, "GET", f"/v1/me?{name}={TOKEN}", {})
        assert answer.status_code == 401
        assert TOKEN not in answer.text
    assert TOKEN not in json.dumps(bridge.audit)


async def test_every_answer_is_marked_and_never_stored(bridge: Bridge) -> None:
    for _, method, path, upgrade in places(bridge):
        answer = await ask(bridge, method, path, upgrade)
        assert answer.headers["cache-control"] == "no-store", (method, path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"])
        assert "server" not in answer.headers


# -- the table of scopes ----------------------------------------------------------------------

SETS: tuple[tuple[Scope, ...], ...] = (
    ("read",),
    ("prompt",),
    ("approve",),
    ("prompt", "approve"),
    ("admin",),
)


def operations(bridge: Bridge) -> Iterator[tuple[Access, str, str, str]]:
    """Every route's access, method, path template and a path of it."""
    for route in bridge.application.routes:
        if isinstance(route, Route):
            for method in sorted((route.methods or set()) - {"HEAD"}):
                yield declared(route), method, route.path, path_of(route)


async def test_s8_the_document_says_of_every_route_what_it_asks(bridge: Bridge) -> None:
    document = (await ask(bridge, "GET", "/openapi.json", {})).json()
    told: dict[tuple[str, str], tuple[Any, Any]] = {
        (method.upper(), path): (shown["x-required-scope"], shown.get("security"))
        for path, methods in document["paths"].items()
        for method, shown in methods.items()
    }
    asked: dict[tuple[str, str], tuple[Any, Any]] = {
        (method, path): (" or ".join(access.scopes) or None, [] if access.is_public else None)
        for access, method, path, _ in operations(bridge)
    }
    assert {place: told[place] for place in asked if place in told} == {
        place: asks for place, asks in asked.items() if place in told
    }
    assert set(told) <= set(asked)
    assert not [place for place in set(asked) - set(told) if place[1].startswith("/v1")]


@pytest.mark.parametrize("scopes", SETS, ids="+".join)
async def test_s8_a_token_gets_by_the_door_what_its_scopes_allow_and_nothing_else(
    bridge: Bridge, scopes: tuple[Scope, ...]
) -> None:
    principal = Principal("local", "x", frozenset(scopes))
    headers = bearer(bridge.tokens.create("narrow", scopes=scopes))
    for access, method, _, path in operations(bridge):
        body = None if method in ("GET", "DELETE") else b'{"no such member": 1}'
        answer = await bridge.caller.http.request(
            method,
            path,
            content=body,
            headers={**headers, **({"Content-Type": "application/json"} if body else {})},
        )
        is_refused = answer.status_code == 403
        assert is_refused == (not access.admits(principal)), (method, path, answer.text)
        assert not is_refused or code_of(answer) == "forbidden"
        assert answer.status_code not in (401, 500)


async def test_s8_read_sees_prompt_prompts_approve_replies_and_admin_does_all(
    bridge: Bridge,
) -> None:
    """What the contract says of scopes, so that a wrong table is not held by itself."""
    asked = {(method, path): access.scopes for access, method, path, _ in operations(bridge)}
    session = "/v1/sessions/{sessionId}"
    assert asked["POST", "/v1/sessions"] == ("prompt",)
    for method, name in (("PATCH", ""), ("DELETE", ""), ("POST", "/prompt"), ("POST", "/ext")):
        assert asked[method, session + name] == ("prompt",)
    for name in ("/mode", "/model", "/config/{configId}"):
        assert asked["PUT", session + name] == ("prompt",)
    assert asked["POST", f"{session}/requests/{{requestId}}/reply"] == ("approve",)
    for name in ("/cancel", "/turns/{turnId}/cancel"):
        assert asked["POST", session + name] == ("prompt", "approve")
    reads = {each for each, scopes in asked.items() if scopes == ("read",)}
    assert all(method == "GET" for method, _ in reads)
    assert ("GET", "/metrics") in reads
