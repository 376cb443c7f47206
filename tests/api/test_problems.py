"""Every code has a status, and every error becomes one kind of document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.api import problems
from bridge.api.problems import MalformedRequest
from bridge.errors import CODES, AgentError, BridgeError, CallerError, CapacityError, Code

pytestmark = pytest.mark.anyio

STATUSES: dict[int, str] = {
    401: "unauthorized",
    403: "forbidden path-outside-roots origin-not-allowed method-not-allowed",
    404: "session-not-found turn-not-found request-not-found agent-not-found not-found",
    405: "http-method-not-allowed",
    406: "not-acceptable",
    409: "turn-in-progress request-already-answered session-closed session-already-open "
    "idempotency-conflict",
    410: "request-withdrawn session-lost",
    413: "body-too-large",
    414: "uri-too-long",
    415: "unsupported-media-type",
    421: "host-not-allowed",
    422: "invalid-request mode-not-available model-not-available config-not-available "
    "content-not-supported reply-not-valid idempotency-key-reused",
    424: "agent-error agent-auth-required agent-protocol-error agent-exited",
    429: "rate-limited",
    431: "headers-too-large",
    500: "internal-error",
    501: "not-supported",
    503: "agent-unavailable at-capacity draining bridge-restarted",
    504: "agent-timeout turn-stalled",
    507: "storage-full",
}


def shown(error: BridgeError) -> tuple[Response, dict[str, Any]]:
    response = problems.problem(error, instance="/v1/x", request_id="r1")
    document = json.loads(bytes(response.body))
    assert isinstance(document, dict)
    return response, document


def test_every_code_has_the_status_of_the_contract() -> None:
    assert list(problems.KINDS) == list(CODES)
    expected = {code: status for status, codes in STATUSES.items() for code in codes.split()}
    assert {code: kind.status for code, kind in problems.KINDS.items()} == expected


@pytest.mark.parametrize("code", CODES)
def test_a_problem_document_has_its_members_and_headers(code: Code) -> None:
    response, document = shown(BridgeError(code, "It is so.", hint="Mend it.", available=["a"]))
    assert document == {
        "type": f"urn:cursor-acp-bridge:problem:{code}",
        "title": problems.KINDS[code].title,
        "status": response.status_code,
        "detail": "It is so.",
        "instance": "/v1/x",
        "code": code,
        "hint": "Mend it.",
        "available": ["a"],
    }
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-request-id"] == "r1"
    assert ("www-authenticate" in response.headers) == (code == "unauthorized")


def test_what_cannot_be_read_is_400_and_what_does_not_fit_422() -> None:
    assert shown(MalformedRequest("No JSON."))[1]["status"] == 400
    assert shown(CallerError("invalid-request", "Does not fit."))[1]["status"] == 422


def test_when_to_come_back_is_a_header() -> None:
    response, _ = shown(CapacityError("at-capacity", "Full.", retry_after_s=7))
    assert response.headers["retry-after"] == "7"


def test_no_document_tells_a_secret_or_breaks_on_any_text() -> None:
    _, document = shown(
        AgentError(
            "agent-error",
            "Bearer abcdefgh12 \ud800 \r\n",
            status=299,
            agentError={"code": -1, "message": "sk-abcdefgh12", "data": [("eyJa.b.c", None, b"")]},
        )
    )
    assert document["status"] == 424
    assert document["detail"] == "Bearer [redacted] ? \r\n"
    assert document["agentError"]["message"] == "[redacted]"
    assert document["agentError"]["data"] == [["[redacted]", None, "b''"]]
    response = problems.problem(MalformedRequest("."), instance="/cab_abcdefgh", request_id="")
    assert json.loads(bytes(response.body))["instance"] == "/[redacted]"


def test_a_stored_problem_is_completed_without_a_request() -> None:
    stored = {"code": "agent-exited", "detail": "It ended.", "extra": {"exitCode": 1}}
    assert problems.complete_problem(stored) == {
        "type": "urn:cursor-acp-bridge:problem:agent-exited",
        "title": "The agent ended",
        "status": 424,
        "detail": "It ended.",
        "code": "agent-exited",
        "exitCode": 1,
    }
    assert problems.complete_problem({"code": "of-tomorrow", "detail": ""})["status"] == 500


async def fail(request: Request) -> Response:
    raise HTTPException(int(request.query_params["status"]), "words of starlette")


APP = Starlette(
    routes=[Route("/a", fail), Route("/a", fail, methods=["POST"]), Route("/b", fail)],
    exception_handlers=problems.HANDLERS,
)


async def ask(path: str, method: str = "GET", query: str = "") -> tuple[int, dict[str, Any], Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [],
        "state": {"request_id": "r1"},
    }
    await APP(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], json.loads(sent[1]["body"]), headers


async def test_the_routers_own_errors_are_problems_too() -> None:
    status, document, _ = await ask("/nothing")
    assert (status, document["code"], document["instance"]) == (404, "not-found", "/nothing")
    status, document, headers = await ask("/a", "DELETE")
    assert (status, document["code"]) == (405, "http-method-not-allowed")
    assert headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    ("raised", "status", "code"),
    [
        (400, 400, "invalid-request"),
        (401, 401, "unauthorized"),
        (406, 406, "not-acceptable"),
        (413, 413, "body-too-large"),
        (418, 500, "internal-error"),
        (503, 500, "internal-error"),
    ],
)
async def test_exceptions_of_the_framework_keep_their_meaning_and_not_their_words(
    raised: int, status: int, code: str
) -> None:
    got, document, _ = await ask("/a", query=f"status={raised}")
    assert (got, document["code"]) == (status, code)
    assert "starlette" not in json.dumps(document)
