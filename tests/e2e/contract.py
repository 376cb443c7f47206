"""What the tests of the HTTP contract share: one bridge a module, answers held to the document.

``Contract`` checks every response against the OpenAPI document: the operation, the status, the
media type and the body. ``Checked`` is a caller whose responses all pass it. The agents: ``demo``
(Cursor's dialect) and any case of the scripted one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from starlette.routing import compile_path

from bridge.api import openapi
from tests.e2e.harness import TOKEN, Bridge, Caller, Event, Json, demo, scripted, serving

DOCUMENT = openapi.document("0")
_ROOT = "urn:contract"
_NAMES = {
    schema["allOf"][1]["properties"]["type"]["const"]: name
    for name, schema in DOCUMENT["components"]["schemas"].items()
    if name.startswith("Event") and "allOf" in schema
}


class Contract:
    """The OpenAPI document as a judge of running answers."""

    def __init__(self, document: Json = DOCUMENT) -> None:
        resource = DRAFT202012.create_resource(document)
        self._registry: Any = Registry().with_resource(_ROOT, resource)
        self._paths = [
            (compile_path(path)[0], methods) for path, methods in document["paths"].items()
        ]
        self._validators: dict[str, Draft202012Validator] = {}

    def holds(self, name: str, value: Any) -> None:
        """Whether ``value`` fits the schema of that name."""
        self._fits({"$ref": f"#/components/schemas/{name}"}, value)

    def event_holds(self, event: Json) -> None:
        """Whether an event fits the schema of its own type."""
        self.holds(_NAMES.get(event["type"], "Event"), event)

    def response_holds(self, response: httpx.Response, body: bytes) -> None:
        """Whether the document foresees this response to its request."""
        operation = self._operation(response.request)
        assert response.headers["x-request-id"] and response.headers["cache-control"] == "no-store"
        if operation is None:
            assert response.status_code in (404, 405), response.request.url
            return
        told = operation["responses"].get(str(response.status_code))
        assert told is not None, (response.request.method, response.request.url, response, body)
        media = response.headers.get("content-type", "").split(";")[0]
        if response.status_code == 204 or response.request.method == "HEAD":
            return
        if media == "application/octet-stream" or "application/octet-stream" in told["content"]:
            return
        assert media in told["content"], (response.request.url, media)
        if "json" in media:
            self._json_holds(told["content"][media]["schema"], json.loads(body))

    def _json_holds(self, schema: Json, value: Any) -> None:
        self._fits(schema, value)
        if isinstance(value, dict):
            for event in value.get("events") or ():
                self.event_holds(event)

    def _operation(self, request: httpx.Request) -> Json | None:
        for pattern, methods in self._paths:
            if pattern.match(request.url.path):
                method = "get" if request.method == "HEAD" else request.method.lower()
                found: Json | None = methods.get(method)
                return found
        return None

    def _fits(self, schema: Json, value: Any) -> None:
        key = json.dumps(schema)
        if key not in self._validators:
            absolute = json.loads(key.replace('"#/', f'"{_ROOT}#/'))
            self._validators[key] = Draft202012Validator(absolute, registry=self._registry)
        self._validators[key].validate(value)


CONTRACT = Contract()


class Checked(Caller):
    """A caller whose every response must be as documented."""

    def __init__(self, url: str, token: str = TOKEN) -> None:
        super().__init__(url, token)
        self.http.event_hooks["response"].append(_check)


async def _check(response: httpx.Response) -> None:
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        CONTRACT.response_holds(response, b"")
    else:
        CONTRACT.response_holds(response, await response.aread())


def events_hold(events: list[Event]) -> None:
    """Every event of a stream fits the schema of its type."""
    for event in events:
        assert event.data is not None
        CONTRACT.event_holds(event.data)


def agents(folder: Path, *cases: str, **demo_values: Any) -> Json:
    """The demo agent with a home of its own, and the scripted one with each case."""
    env = {"CURSOR_DEMO_PACE": "0", "CURSOR_DEMO_HOME": str(folder / "demo")}
    found: Json = {
        "demo": {"command": demo(), "dialect": "cursor", "env": env, **demo_values},
    }
    for case in cases:
        found[case] = {
            "command": scripted(case),
            "env": {
                "FAKE_AGENT_STATE": str(folder / case),
                "FAKE_AGENT_LOG": str(folder / f"{case}.wire"),
            },
        }
    return found


CASES = ("basic", "permission", "hanging", "stop_reasons", "no_load", "version_two")


@pytest.fixture(scope="module", name="anyio_backend")
def module_backend() -> str:
    """One loop for a module, so that its tests can share a bridge."""
    return "asyncio"


@pytest.fixture(scope="module", name="bridge")
async def module_bridge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    """A bridge for a module, its caller checked; each test makes sessions of its own."""
    folder = tmp_path_factory.mktemp("bridge")
    limits = {
        "prompts_per_minute": 100_000,
        "sessions_per_minute": 100_000,
        "failed_logins_per_minute": 1000,
        "max_processes": 24,
        "cancel_grace_s": 1.0,
    }
    async with serving(
        folder, agents(folder, *CASES), default_agent="demo", limits=limits
    ) as bridge:
        plain, bridge.caller = bridge.caller, Checked(bridge.caller.url)
        yield bridge
        await bridge.caller.http.aclose()
        bridge.caller = plain


@pytest.fixture(autouse=True)
async def module_tidy(bridge: Bridge) -> AsyncIterator[None]:
    """What still runs or waits after a test gives its process back."""
    yield
    for status in ("running", "waiting"):
        listed = await bridge.caller.get("/v1/sessions", params={"status": status, "limit": 200})
        for session in listed.json()["sessions"]:
            await bridge.caller.http.delete(f"/v1/sessions/{session['sessionId']}")
