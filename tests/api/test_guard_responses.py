"""The locked door: bodies it takes, and what every response carries."""

from __future__ import annotations

import json
import re

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from bridge.errors import AgentError
from tests.api.door import (
    JSON,
    TOKEN,
    Door,
    Fields,
    afterthought,
    cut_off,
    refused_late,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "fields",
    [
        [JSON],
        [(b"content-type", b"Application/JSON; charset=UTF-8")],
        [(b"content-type", b'application/json;charset="utf-8"')],
        [JSON, (b"content-encoding", b"identity")],
    ],
)
async def test_json_bodies_are_taken(door: Door, fields: Fields) -> None:
    length = (b"content-length", b"2")
    answer = await door.ask("/v1/reply", TOKEN, length, *fields, method="POST", body=[b"{}"])
    assert json.loads(answer.body) == {"size": 2, "value": {}}


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [(b"content-type", b"")],
        [(b"content-type", b"text/plain")],
        [(b"content-type", b"application/jsonp")],
        [(b"content-type", b"application/x-www-form-urlencoded")],
        [(b"content-type", b"multipart/form-data; boundary=application/json")],
        [(b"content-type", b"application/json; charset=latin-1")],
        [(b"content-type", b"application/json, text/plain")],
        [JSON, JSON],
        [JSON, (b"content-encoding", b"gzip")],
        [JSON, (b"content-encoding", b"identity"), (b"content-encoding", b"br")],
    ],
)
@pytest.mark.parametrize("framing", [(b"content-length", b"2"), (b"transfer-encoding", b"chunked")])
async def test_other_bodies_are_refused_unread(
    door: Door, fields: Fields, framing: tuple[bytes, bytes]
) -> None:
    answer = await door.ask("/v1/reply", TOKEN, framing, *fields, method="POST", body=[b"{}"])
    assert (answer.status, answer.code) == (415, "unsupported-media-type")


async def test_a_merge_patch_has_a_type_of_its_own_for_patches_alone(door: Door) -> None:
    fields = ((b"content-length", b"2"), (b"content-type", b"application/merge-patch+json"))
    patched = await door.ask("/v1/reply", TOKEN, *fields, method="PATCH", body=[b"{}"])
    assert json.loads(patched.body) == {"size": 2, "value": {}}
    posted = await door.ask("/v1/reply", TOKEN, *fields, method="POST", body=[b"{}"])
    assert (posted.status, posted.code) == (415, "unsupported-media-type")


async def test_no_body_needs_no_type(door: Door) -> None:
    none = (b"content-length", b"0")
    assert (await door.ask("/v1/reply", TOKEN, none, method="POST")).status == 200
    assert (await door.ask("/v1/reply", TOKEN, method="DELETE")).status == 200


async def test_a_body_above_the_limit_is_refused_as_soon_as_that_is_known(door: Door) -> None:
    length = (b"content-length", b"101")
    answer = await door.ask("/v1/reply", TOKEN, JSON, length, method="POST", body=[b""])
    assert (answer.status, answer.code) == (413, "body-too-large")
    chunked = (b"transfer-encoding", b"chunked")
    parts = [b"a" * 60] * 3
    answer = await door.ask("/v1/reply", TOKEN, JSON, chunked, method="POST", body=parts)
    assert (answer.status, answer.code) == (413, "body-too-large")
    parts = [b"[" + b" " * 49, b"]" + b" " * 49]
    answer = await door.ask("/v1/reply", TOKEN, JSON, chunked, method="POST", body=parts)
    assert json.loads(answer.body) == {"size": 100, "value": []}


# Responses


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/v1/me", 200), ("/v1/events", 200), ("/v1/nothing", 404), ("/v1/broken", 500)],
)
async def test_every_response_carries_the_security_headers_once(
    door: Door, path: str, status: int
) -> None:
    answer = await door.ask(path, TOKEN)
    assert answer.status == status
    expected = {
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
    assert expected.items() <= answer.headers.items()
    assert len(answer.names) == len(set(answer.names))
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert ("script-src 'self'" in policy) == (path == "/")
    assert "unsafe" not in policy


async def test_a_routes_own_policy_stays_and_its_caching_does_not(door: Door) -> None:
    answer = await door.ask("/v1/file", TOKEN)
    assert answer.headers["content-security-policy"] == "sandbox"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("given", [b"abc-1.2_3", b"a" * 128])
async def test_a_sane_request_id_is_kept(door: Door, given: bytes) -> None:
    for path in ("/v1/me", "/v1/nothing", "/v1/broken"):
        answer = await door.ask(path, TOKEN, (b"x-request-id", given))
        assert answer.headers["x-request-id"] == given.decode()


@pytest.mark.parametrize("given", [b"", b"a" * 129, b"a b", "ä".encode(), b"<x>", b"a\x1b"])
async def test_any_other_request_id_is_replaced(door: Door, given: bytes) -> None:
    answer = await door.ask("/v1/me", (b"x-request-id", given))
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"])
    twice = [(b"x-request-id", b"a")] * 2
    assert (await door.ask("/v1/me", *twice)).headers["x-request-id"] != "a"


async def test_an_error_of_the_bridge_is_a_redacted_problem(door: Door) -> None:
    answer = await door.ask("/v1/refused", TOKEN)
    assert (answer.status, answer.code) == (424, "agent-exited")
    document = json.loads(answer.body)
    assert document["stderrTail"] == "Bearer [redacted]"
    assert document["instance"] == "/v1/refused"


async def test_an_unforeseen_error_tells_nothing_and_is_logged_once(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await door.ask("/v1/broken", TOKEN)
    assert (answer.status, answer.code) == (500, "internal-error")
    assert b"secret detail" not in answer.body
    assert len(caplog.records) == 1


async def test_an_unforeseen_error_of_any_application_is_a_problem_too(door: Door) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("outside of every handler")

    door.app = app
    assert (await door.ask("/v1/me", TOKEN)).code == "internal-error"


async def test_a_response_that_cannot_be_completed_is_left_to_the_server_to_cut_off(
    door: Door,
) -> None:
    door.app = cut_off
    with pytest.raises(RuntimeError, match="in the middle"):
        await door.ask("/v1/me", TOKEN)
    door.app = refused_late
    with pytest.raises(AgentError):
        await door.ask("/v1/me", TOKEN)


async def test_an_error_after_a_complete_response_is_only_logged(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    door.app = afterthought
    assert (await door.ask("/v1/me", TOKEN)).body == b"done"
    assert len(caplog.records) == 1


async def test_a_caller_that_left_is_no_error(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    assert (await door.ask("/v1/gone", TOKEN)).messages == []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ClientDisconnect

    door.app = app
    assert (await door.ask("/v1/me", TOKEN)).messages == []
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


async def test_lifespans_pass_untouched(door: Door) -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    door.app = app
    guard = door.guard()

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        seen.append(message["type"])

    await guard({"type": "lifespan"}, receive, send)
    assert seen == ["lifespan"]
