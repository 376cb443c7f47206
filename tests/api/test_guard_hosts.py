"""The locked door: framing, host names, origins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.api.guard import MOST_HEADERS, MOST_URL_BYTES
from bridge.config import Server
from tests.api.door import (
    APP,
    HOST,
    TOKEN,
    Door,
    Fields,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [HOST, HOST],
        [HOST, (b"content-length", b"1"), (b"content-length", b"1")],
        [HOST, (b"content-length", b"1_0")],
        [HOST, (b"content-length", b"")],
        [HOST, (b"content-length", b"1"), (b"transfer-encoding", b"chunked")],
    ],
)
async def test_ambiguous_framing_is_refused(door: Door, fields: Fields) -> None:
    answer = await door.ask("/healthz", *fields, host=None)
    assert (answer.status, answer.code) == (400, "invalid-request")


async def test_urls_and_headers_have_a_size(door: Door) -> None:
    long = "/" + "a" * MOST_URL_BYTES
    assert (await door.ask(long, TOKEN)).code == "uri-too-long"
    assert (await door.ask("/v1/me", TOKEN, query_string=long.encode())).status == 414
    assert (await door.ask("/v1/me", TOKEN, *[(b"a", b"b")] * MOST_HEADERS)).status == 431
    assert (await door.ask("/v1/me", TOKEN, (b"a", b"b" * 70_000))).code == "headers-too-large"


# Host

FOREIGN_HOSTS = [
    b"evil.example",
    b"localhost.evil.com",
    b"127.0.0.1.nip.io",
    b"user@localhost",
    b"localhost/path?",
    b"localhost:99999",
    b"localhost:0",
    b"localhost:",
    b"localhost:80:80",
    b"localhost.",
    b"0.0.0.0",
    b"[::]",
    b"[::1",
    b"[:1:]",
    b"::1",
    b"10.0.0.5",
    b"",
    b"local host",
    "löcalhost".encode(),
    b"\xff\xfe",
]


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/events", "/v1/me", "/nothing"])
async def test_a_foreign_host_is_refused_on_every_route(
    open_door: Door, path: str, host: bytes
) -> None:
    answer = await open_door.ask(path, TOKEN, host=(b"host", host))
    assert (answer.status, answer.code) == (421, "host-not-allowed")


@pytest.mark.parametrize(
    "host",
    [b"localhost", b"LocalHost:1", b"127.0.0.1:9", b"[::1]:8765", b"[0:0::1]", b"bridge.example"],
)
async def test_the_bridges_own_names_are_taken_with_any_port(open_door: Door, host: bytes) -> None:
    assert (await open_door.ask("/healthz", host=(b"host", host))).status == 200


async def test_the_address_it_is_bound_to_is_a_name_of_the_bridge(tmp_path: Path) -> None:
    door = Door(tmp_path, server=Server(host="192.0.2.1"))
    assert (await door.ask("/healthz", host=(b"host", b"192.0.2.1:80"))).status == 200
    assert (await door.ask("/healthz", host=(b"host", b"192.0.2.2:80"))).status == 421


@pytest.mark.parametrize(
    ("host", "server", "status"),
    [
        (b"192.0.2.1", ("192.0.2.1", 80), 200),
        (b"192.0.2.1", ("::ffff:192.0.2.1", 80), 200),
        (b"[2001:db8::1]", ("2001:db8::1", 80), 200),
        (b"192.0.2.9", ("192.0.2.1", 80), 421),
        (b"evil.example", ("evil.example", 80), 421),
        (b"0.0.0.0", ("0.0.0.0", 80), 421),
        (b"192.0.2.1", ("/run/socket", None), 421),
        (b"192.0.2.1", None, 421),
    ],
)
async def test_a_bridge_on_all_addresses_answers_to_the_one_a_connection_came_in_by(
    tmp_path: Path, host: bytes, server: Any, status: int
) -> None:
    door = Door(tmp_path, server=Server(host="0.0.0.0"))
    assert (await door.ask("/healthz", host=(b"host", host), server=server)).status == status


# Origin and Fetch Metadata


@pytest.mark.parametrize(
    "origin",
    [
        b"https://evil.example",
        b"null",
        b"",
        b"http://127.0.0.1",
        b"http://127.0.0.1:8766",
        b"https://127.0.0.1:8765",
        b"127.0.0.1:8765",
        b"http://127.0.0.1:8765.evil.example",
        b"https://app.example.evil.com",
        b"https://app.example:443",
        b"https://app.example/",
        b"https://APP.example",
        b"http://app.example",
        b"*",
    ],
)
@pytest.mark.parametrize("path", ["/healthz", "/v1/events", "/v1/me", "/v1/broken"])
async def test_a_foreign_origin_is_refused_without_any_cors_header(
    open_door: Door, path: str, origin: bytes
) -> None:
    answer = await open_door.ask(path, TOKEN, (b"origin", origin))
    assert (answer.status, answer.code) == (403, "origin-not-allowed")
    assert not any(name.startswith(b"access-control") for name in answer.names)
    assert answer.headers["vary"] == "Origin"


async def test_two_origins_are_none(open_door: Door) -> None:
    twice = [(b"origin", APP.encode())] * 2
    assert (await open_door.ask("/v1/me", TOKEN, *twice)).status == 403


@pytest.mark.parametrize(
    ("path", "status"),
    [("/v1/me", 200), ("/v1/events", 200), ("/v1/broken", 500), ("/v1/none", 404), ("/", 200)],
)
async def test_a_configured_origin_gets_its_cors_headers_on_everything(
    open_door: Door, path: str, status: int
) -> None:
    answer = await open_door.ask(
        path, TOKEN, (b"origin", APP.encode()), (b"sec-fetch-site", b"cross-site")
    )
    assert answer.status == status
    assert answer.headers["access-control-allow-origin"] == APP
    assert answer.headers["vary"] == "Origin"
    assert "Location" in answer.headers["access-control-expose-headers"]


async def test_responses_without_an_origin_vary_by_it_where_origins_are_configured(
    open_door: Door, door: Door
) -> None:
    assert (await open_door.ask("/healthz")).headers["vary"] == "Origin"
    assert "vary" not in (await door.ask("/healthz")).headers


async def test_a_preflight_of_a_configured_origin_is_answered_before_the_token(
    open_door: Door,
) -> None:
    asking = (b"access-control-request-method", b"POST")
    answer = await open_door.ask("/v1/prompt", (b"origin", APP.encode()), asking, method="OPTIONS")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == APP
    assert "PATCH" in answer.headers["access-control-allow-methods"]
    allowed = answer.headers["access-control-allow-headers"].split(", ")
    wanted = "Authorization Content-Type Idempotency-Key Prefer Last-Event-ID X-Request-Id"
    assert set(wanted.split()) <= set(allowed)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([(b"origin", b"https://evil.example"), (b"access-control-request-method", b"GET")], 403),
        ([(b"origin", APP.encode())], 401),
        ([(b"access-control-request-method", b"GET")], 401),
        ([(b"origin", b"http://127.0.0.1:8765"), (b"access-control-request-method", b"GET")], 401),
    ],
)
async def test_any_other_options_request_is_no_preflight(
    open_door: Door, fields: Fields, status: int
) -> None:
    assert (await open_door.ask("/v1/me", *fields, method="OPTIONS")).status == status


@pytest.mark.parametrize(
    ("origin", "host", "scheme", "status"),
    [
        (b"http://127.0.0.1:8765", b"127.0.0.1:8765", "http", 200),
        (b"http://localhost:1", b"LOCALHOST:1", "http", 200),
        (b"https://127.0.0.1:8765", b"127.0.0.1:8765", "https", 200),
        (b"http://127.0.0.1:8765", b"127.0.0.1:8765", "https", 403),
        (b"https://bridge.example", b"bridge.example", "http", 200),
        (b"https://bridge.example", b"localhost", "http", 403),
    ],
)
async def test_the_bridges_own_page_may_call_it(
    open_door: Door, origin: bytes, host: bytes, scheme: str, status: int
) -> None:
    answer = await open_door.ask(
        "/v1/me",
        TOKEN,
        (b"origin", origin),
        (b"sec-fetch-site", b"same-origin"),
        host=(b"host", host),
        scheme=scheme,
    )
    assert answer.status == status


LINK = [
    (b"sec-fetch-site", b"cross-site"),
    (b"sec-fetch-mode", b"navigate"),
    (b"sec-fetch-dest", b"document"),
]


@pytest.mark.parametrize(
    ("path", "method", "fields", "status"),
    [
        ("/", "GET", LINK, 200),
        ("/docs", "GET", LINK, 200),
        ("/healthz", "GET", LINK, 403),
        ("/v1/me", "GET", LINK, 403),
        ("/", "POST", LINK, 403),
        ("/", "GET", LINK[:1], 403),
        ("/", "GET", [*LINK[:2], (b"sec-fetch-dest", b"iframe")], 403),
        ("/healthz", "GET", [(b"sec-fetch-site", b"same-site")], 403),
        ("/healthz", "GET", [(b"sec-fetch-site", b"none"), (b"sec-fetch-site", b"x")], 403),
        ("/healthz", "GET", [(b"sec-fetch-site", b"none")], 200),
    ],
)
async def test_another_site_may_link_to_the_page_and_nothing_else(
    door: Door, path: str, method: str, fields: Fields, status: int
) -> None:
    assert (await door.ask(path, TOKEN, *fields, method=method)).status == status
