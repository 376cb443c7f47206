"""schemathesis over the document, against a running bridge: no server error, nothing undocumented.

The bridge is a process of its own with the demo agent. Some sessions of it are made first, and
their ids are mixed into the paths, so that more than 404 is met.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection

from bridge.api import openapi
from tests.e2e.harness import TOKEN, Subprocess, demo

Case = Any
"""A request that schemathesis made up."""

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]

EXAMPLES = 20
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}
EXPECTED = [
    "2xx",
    "400",
    "401",
    "403",
    "404",
    "406",
    "409",
    "410",
    "422",
    "424",
    "429",
    "501",
    "503",
]
"""What a request that fits the document may still meet: what is there and allowed decides, and
no body may hold a number of more than 64 bits."""

CONFIG = SchemathesisConfig.from_dict(
    {"checks": {"positive_data_acceptance": {"expected-statuses": EXPECTED}}}
)


@pytest.fixture(scope="module")
def bridge_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bridge that takes as many requests as it is sent."""
    folder = tmp_path_factory.mktemp("fuzzed")
    process = Subprocess(folder, configuration(folder))
    try:
        caller = anyio.run(process.start)
        yield caller.url
        assert process.process is not None and process.process.poll() is None
    finally:
        process.stop()
    assert "Traceback" not in (folder / "bridge.log").read_text("utf-8")


def configuration(folder: Path) -> str:
    """The demo agent, hurried, and no allowance that a fuzzer would use up."""
    return f"""
default_agent = "demo"
[limits]
prompts_per_minute = 1000000
sessions_per_minute = 1000000
failed_logins_per_minute = 1000000
max_processes = 8
spawn_stagger_s = 0
call_s = 5
[agents.demo]
command = {demo()!r}
dialect = "cursor"
env = {{ CURSOR_DEMO_HOME = "{folder / "demo"}", CURSOR_DEMO_PACE = "0" }}
"""


@pytest.fixture(scope="module")
def known(bridge_url: str) -> dict[str, list[str]]:
    """Ids that exist: idle, waiting and closed sessions, their turns and requests."""
    found: dict[str, list[str]] = {"sessionId": [], "turnId": [], "requestId": []}
    with httpx.Client(base_url=bridge_url, headers=AUTHORIZATION, timeout=30) as http:
        for word in ("hello", "tool", "question"):
            session = http.post("/v1/sessions", json={}).json()["sessionId"]
            turn = http.post(
                f"/v1/sessions/{session}/prompt",
                json={"prompt": word},
                headers={"Prefer": "wait=20"},
            ).json()
            requests = http.get(f"/v1/sessions/{session}/requests").json()["requests"]
            found["sessionId"].append(session)
            found["turnId"].append(turn["turnId"])
            found["requestId"] += [each["requestId"] for each in requests]
        closed = http.post("/v1/sessions", json={}).json()["sessionId"]
        http.delete(f"/v1/sessions/{closed}")
        found["sessionId"].append(closed)
    return found


SCHEMA = schemathesis.openapi.from_dict(openapi.document("0"), config=CONFIG)
OPERATIONS = {
    each.ok().label: each.ok() for each in SCHEMA.get_all_operations() if isinstance(each, Ok)
}
COUNT = itertools.count()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_every_operation_answers_as_documented(
    label: str, mode: GenerationMode, bridge_url: str, known: dict[str, list[str]]
) -> None:
    operation = OPERATIONS[label]
    if mode is GenerationMode.NEGATIVE and not takes_anything(operation):
        mode = GenerationMode.POSITIVE

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    def answers(case: Case) -> None:
        prepare(case, known)
        case.call_and_validate(
            base_url=bridge_url,
            headers=AUTHORIZATION,
            timeout=30,
            excluded_checks=[negative_data_rejection] if is_harmless(case, operation) else [],
        )

    answers()


def takes_anything(operation: Any) -> bool:
    """Whether there is something that could be wrong about a request."""
    return bool(operation.query or operation.body or operation.headers)


def is_harmless(case: Case, operation: Any) -> bool:
    """What is wrong is a query parameter that nobody knows, or a token that is put in anyway."""
    known = {each.name for each in operation.query}
    return bool(set(case.query or {}) - known) or "Authorization" not in (case.headers or {})


def prepare(case: Case, known: dict[str, list[str]]) -> None:
    """Ids that exist, mostly; no endless streams; nothing deleted that others use."""
    number = next(COUNT)
    for name, values in known.items():
        if name in (case.path_parameters or {}) and number % 4:
            case.path_parameters[name] = values[number % len(values)]
    if case.path.endswith("/events"):
        query = case.query = dict(case.query or {})
        if query.get("format", "sse") == "sse":
            query["format"] = "json"
        if str(query.get("wait", "")).isdigit():
            query["wait"] = "0"
    if case.method == "DELETE":
        case.path_parameters["sessionId"] = f"ses_{number:032x}"
