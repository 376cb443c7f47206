"""Everything that docs/clients.md shows is run: scripts, requests, replies, rules, origins."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.abc import SocketAttribute, SocketStream

from bridge.protocol.rules import parse
from tests.e2e.harness import TOKEN, Bridge, demo, serving

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "clients.md").read_text("utf-8")
KINDS = re.findall(r"^### (permission|question|plan|elicitation|extension)$", PAGE, re.MULTILINE)
OF_ONE_RUN = {"toolCallId", "sessionId"}
"""Members whose values are made anew each time."""

pytestmark = pytest.mark.anyio


def block(language: str) -> str:
    """The page's only block in a language."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


def documents(text: str) -> list[Any]:
    """All JSON values that follow on each other in a text."""
    found, at = [], 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = json.JSONDecoder().raw_decode(text, at)
        found.append(value)
    return found


def section(title: str) -> str:
    """What stands below a heading, up to the next one."""
    return re.split(r"^#+ ", PAGE.partition(f" {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def examples(title: str) -> list[Any]:
    """The JSON values of a section."""
    blocks = re.findall(r"```json\n(.*?)```", section(title), re.DOTALL)
    return [each for text in blocks for each in documents(text)]


def settled(value: Any) -> Any:
    """A value without what differs from run to run."""
    if isinstance(value, dict):
        return {name: settled(each) for name, each in value.items() if name not in OF_ONE_RUN}
    return [settled(each) for each in value] if isinstance(value, list) else value


@asynccontextmanager
async def bridge_for(tmp_path: Path, **values: Any) -> AsyncIterator[Bridge]:
    env = {"HOME": str(tmp_path), "CURSOR_DEMO_PACE": "0"}
    agents = {"demo": {"command": demo(), "dialect": "cursor", "env": env}}
    async with serving(tmp_path, agents, default_agent="demo", **values) as bridge:
        yield bridge


@asynccontextmanager
async def losing(bridge: Bridge, cut_at: bytes) -> AsyncIterator[str]:
    """An address whose event streams break in the middle of a line, the first three times."""
    port = int(bridge.server.url.rpartition(":")[2])
    losses = iter(range(3))

    async def carry(stream: SocketStream) -> None:
        async with (
            stream,
            await anyio.connect_tcp("127.0.0.1", port) as behind,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(pump, stream, behind, tasks.cancel_scope)
            await pump(behind, stream, tasks.cancel_scope, cut_at)

    async def pump(
        source: SocketStream, sink: SocketStream, scope: anyio.CancelScope, cut: bytes = b""
    ) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                data = await source.receive()
                if cut and cut in data and next(losses, None) is not None:
                    await sink.send(data[: data.index(cut) + len(cut)])
                    break
                await sink.send(data)
        scope.cancel()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, carry)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()
    assert next(losses, None) is None


async def run(url: str, *command: str) -> str:
    """What a program prints that knows the bridge by its environment."""

    def wait() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**os.environ, "URL": url, "TOKEN": TOKEN},
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )

    done = await anyio.to_thread.run_sync(wait)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_the_session_with_curl_works(tmp_path: Path) -> None:
    async with bridge_for(tmp_path) as bridge:
        printed = await run(bridge.server.url, "bash", "-euo", "pipefail", "-c", block("bash"))
        assert printed == "You answered: database: sqlite; checks: types, tests.\n"


async def test_the_session_in_python_works_and_survives_lost_connections(tmp_path: Path) -> None:
    async with bridge_for(tmp_path) as bridge, losing(bridge, b"event: session/update") as url:
        printed = await run(url, sys.executable, "-c", block("python"))
        assert "cursor-demo-marker" in printed


@pytest.mark.contract
async def test_the_session_in_javascript_works_and_survives_lost_connections(
    tmp_path: Path,
) -> None:
    script = tmp_path / "client.mjs"
    script.write_text(block("js"))
    async with bridge_for(tmp_path) as bridge, losing(bridge, b"event: session/update") as url:
        assert "cursor-demo-marker" in await run(url, "node", str(script))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_looks_as_it_is_shown_and_takes_each_of_its_replies(
    kind: str, tmp_path: Path
) -> None:
    shown, *replies = examples(kind)
    (word,) = re.findall(r"prompt(?:ed with)? `(\w+)`", section(kind))
    assert len(replies) >= 2
    async with bridge_for(tmp_path) as bridge:
        caller = bridge.caller
        session_id = (await caller.session())["sessionId"]
        for reply in replies:
            await caller.turn(session_id, word, onBusy="queue")
            (request,) = await caller.pending(session_id)
            assert settled({name: request[name] for name in shown}) == settled(shown)
            answer = await caller.reply(session_id, request["requestId"], reply)
            assert answer.status_code == 200, answer.text
            await caller.settled(session_id, request["turnId"])


async def test_the_rules_that_are_shown_are_taken(tmp_path: Path) -> None:
    rules = examples("Rules in place of a person")
    assert len(rules) == 2
    async with bridge_for(tmp_path) as bridge:
        session = await bridge.caller.session(**rules[0])
        assert session["permissions"] == rules[0]["permissions"]
        path = f"/v1/sessions/{session['sessionId']}"
        # A plan is left to a person, a question is cancelled, a command is asked for.
        for word, waits in (("plan", True), ("question", False), ("tool", True)):
            turn = await bridge.caller.turn(session["sessionId"], word)
            assert (turn["status"] == "waiting") == waits
            if word == "plan":
                await bridge.caller.post(f"{path}/cancel")
                await bridge.caller.settled(session["sessionId"], turn["turnId"])
        changed = await bridge.caller.http.patch(path, json=rules[1])
        assert changed.json()["permissions"] == rules[1]["permissions"]
        turn = await bridge.caller.settled(session["sessionId"], turn["turnId"])
        assert turn["outcome"] == "ok"


async def test_pages_may_call_from_the_very_origin_that_is_configured(tmp_path: Path) -> None:
    (origin,) = tomllib.loads(block("toml"))["server"]["cors_origins"]
    (other,) = re.findall(r"`(http://127[\d.:]+)` is another origin", PAGE)
    async with bridge_for(tmp_path, server={"port": 0, "cors_origins": [origin]}) as bridge:
        good = await bridge.caller.get("/v1/me", headers={"Origin": origin})
        assert good.headers["access-control-allow-origin"] == origin
        bad = await bridge.caller.get("/v1/me", headers={"Origin": other})
        assert bad.status_code == 403 and bad.json()["code"] == "origin-not-allowed"


def test_every_reply_of_a_rule_is_explained() -> None:
    table = section("Rules in place of a person")
    for reply in re.findall(
        r"`(\w+)`", table.partition("| reply | does |")[2].partition("\n\n")[0]
    ):
        rules = {"rules": [{"match": {}, "reply": reply}]}
        assert parse(rules, allow_always=True).rules[0].reply == reply
