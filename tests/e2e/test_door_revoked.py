"""What a token holds open ends with it, within a second; starts that must not be (S6, S22)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
import pytest

from tests.e2e.doors import asking, bearer, case_file, close, code_of, token
from tests.e2e.harness import LIMIT_S, TOKEN, Caller, Subprocess, serving

pytestmark = pytest.mark.anyio

WITHIN_S = 1.0


@asynccontextmanager
async def held_open(caller: Caller) -> AsyncIterator[None]:
    """Three kinds of stream, a long poll and a wait, all open inside; on leaving, until all ended.

    The waits are answered by 401.
    """
    session_id = (await caller.session())["sessionId"]
    other_id = (await caller.session())["sessionId"]
    path = f"/v1/sessions/{session_id}"

    async def stream(ready: anyio.Event, method: str, path: str, body: Any = None) -> None:
        headers = {"Accept": "text/event-stream"}
        async with caller.http.stream(
            method, path, headers=headers, timeout=60, json=body
        ) as answer:
            assert answer.status_code == 200
            async for _ in answer.aiter_bytes():
                ready.set()

    async def wait(path: str) -> None:
        answer = await caller.get(path, headers={"Prefer": "wait=50"}, timeout=60)
        assert (answer.status_code, code_of(answer)) == (401, "unauthorized"), answer.text

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            turn = await caller.prompt(session_id, "hang")
            prompt = f"/v1/sessions/{other_id}/prompt"
            for method, place, body in (
                ("GET", f"{path}/events", None),
                ("GET", "/v1/events?after=0", None),
                ("POST", prompt, {"prompt": "hang"}),
            ):
                ready = anyio.Event()
                tasks.start_soon(stream, ready, method, place, body)
                await ready.wait()
            last = (await caller.get(path)).json()["lastSeq"]
            tasks.start_soon(wait, f"{path}/events?after={last}&wait=50")
            tasks.start_soon(wait, f"{path}/turns/{turn['turnId']}")
            yield


def hanging(folder: Path) -> list[str]:
    """An agent whose turns never end by themselves."""
    return case_file(folder, {"prompts": [{"steps": [{"text": "on it"}, {"wait_cancel": True}]}]})


async def test_a_token_revoked_by_another_process_loses_all_it_holds_within_a_second(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    words = ", ".join(f'"{word}"' for word in hanging(tmp_path))
    config = f'default_agent = "fake"\n[agents.fake]\ncommand = [{words}]\n'
    async with Subprocess(tmp_path, config) as process:
        admin = await process.start()
        made = await anyio.to_thread.run_sync(token, state, "create", "--name", "phone")
        phone = Caller(process.url, made)
        async with held_open(phone):
            await anyio.to_thread.run_sync(token, state, "revoke", "phone")
            began = anyio.current_time()
        took_s = anyio.current_time() - began
        assert took_s < WITHIN_S
        assert (await phone.get("/v1/me")).status_code == 401
        # Those of others go on, and what was begun is still theirs to end.
        sessions = (await admin.get("/v1/sessions")).json()["sessions"]
        assert [each["status"] for each in sessions] == ["running", "running"]
        for each in sessions:
            await admin.post(f"/v1/sessions/{each['sessionId']}/cancel", {})
        await close(phone)


async def test_a_token_that_expires_loses_all_it_holds_at_that_moment(tmp_path: Path) -> None:
    agents = {"fake": {"command": hanging(tmp_path)}}
    async with serving(
        tmp_path, agents, default_agent="fake", limits={"drain_grace_s": 0}
    ) as bridge:
        now = bridge.application.context.running.services.clock()
        phone = bridge.caller_with("phone", expires_at=now + 2.0)
        async with held_open(phone):
            pass
        late_s = bridge.application.context.running.services.clock() - (now + 2.0)
        assert 0 <= late_s < WITHIN_S
        assert bridge.application.context.streams == {}
        await close(phone)


async def test_a_request_still_on_its_way_when_its_token_is_revoked_is_not_carried_out(
    tmp_path: Path,
) -> None:
    agents = {"fake": {"command": hanging(tmp_path)}}
    async with serving(tmp_path, agents, default_agent="fake") as bridge:
        phone = bridge.caller_with("phone")
        path = f"/v1/sessions/{(await phone.session())['sessionId']}"
        body = b'{"prompt":"from the dead"}'
        head = (
            f"POST {path}/prompt HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            f"Authorization: {phone.http.headers['Authorization']}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        host, _, port = bridge.server.url.removeprefix("http://").partition(":")
        with anyio.fail_after(LIMIT_S):
            async with await anyio.connect_tcp(host, int(port)) as stream:
                await stream.send(head.encode() + body[:5])
                # Answered behind the head in the same loop: the request is being read by now.
                assert (await phone.get("/v1/me")).status_code == 200
                bridge.tokens.revoke("phone")
                await stream.send(body[5:])
                assert (await stream.receive()).startswith(b"HTTP/1.1 401 ")
        assert (await bridge.caller.get(f"{path}/turns")).json()["turns"] == []
        await close(phone)


async def test_a_token_in_use_is_taken_the_moment_it_is_made(tmp_path: Path) -> None:
    async with Subprocess(tmp_path, "", "--agent", "demo") as process:
        await process.start()
        made = await anyio.to_thread.run_sync(
            token, tmp_path / "state", "create", "--name", "phone", "--scope", "read"
        )
        began = anyio.current_time()
        async with httpx.AsyncClient(base_url=process.url, headers=bearer(made)) as http:
            with anyio.fail_after(WITHIN_S):
                while (await http.get("/v1/me")).status_code != 200:
                    await anyio.lowlevel.checkpoint()
            assert (await http.get("/v1/me")).json()["token"]["scopes"] == ["read"]
            assert (await http.post("/v1/sessions", json={})).status_code == 403
        assert anyio.current_time() - began < WITHIN_S


# -- S6, S22: starts that must not be ----------------------------------------------------------


def serve(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A start that is expected to fail at once."""
    base = {name: value for name, value in os.environ.items() if "CURSOR" not in name}
    return subprocess.run(
        [
            *(sys.executable, "-m", "bridge.cli.main", "serve", "--port", "0"),
            *("--agent", "demo", "--state-dir", str(folder), *words),
        ],
        capture_output=True,
        text=True,
        env={**base, **env},
        timeout=LIMIT_S,
        check=False,
    )


def test_s6_a_bridge_that_would_let_strangers_in_does_not_start(tmp_path: Path) -> None:
    everywhere = ("--host", "0.0.0.0")
    refused = [
        serve(tmp_path / "a", CURSOR_BRIDGE_TOKEN=""),
        serve(tmp_path / "a", CURSOR_BRIDGE_TOKEN="aaaaaaaaaaaaaaaaaaaaaaaa"),
        serve(tmp_path / "a", "--no-auth", *everywhere),
        serve(tmp_path / "a", *everywhere),
        serve(tmp_path / "a", CURSOR_BRIDGE_SERVER__TRUSTED_PROXIES='["*"]'),
        serve(tmp_path / "a", CURSOR_BRIDGE_SERVER__CORS_ORIGINS='["*"]'),
    ]
    for done in refused:
        assert done.returncode == 2, (done.args, done.stderr)
        assert done.stdout == ""
        assert done.stderr.startswith("cursor-bridge: ") and done.stderr.count("\n") == 1
        assert "aaaaaaaa" not in done.stderr


async def test_s22_a_second_bridge_on_the_same_state_folder_does_not_start(tmp_path: Path) -> None:
    async with Subprocess(tmp_path, "", "--agent", "demo") as process:
        caller = await process.start()
        done = await anyio.to_thread.run_sync(serve, tmp_path / "state")
        assert done.returncode == 2
        assert "Another bridge uses the state folder" in done.stderr
        assert (await caller.get("/v1/me")).status_code == 200
    done = await anyio.to_thread.run_sync(
        lambda: serve(tmp_path / "state", "--host", "192.0.2.1", CURSOR_BRIDGE_TOKEN=TOKEN)
    )
    assert "Another bridge" not in done.stderr


async def test_the_first_token_is_shown_once_and_kept_as_a_hash_alone(tmp_path: Path) -> None:
    base = {name: value for name, value in os.environ.items() if "CURSOR" not in name}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bridge.cli.main", "serve", "--port", "0", "--agent", "demo"),
        *("--state-dir", str(tmp_path / "state"), "--root", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=base,
    )
    assert process.stdout is not None
    with anyio.fail_after(LIMIT_S):
        lines = [(await process.stdout.readline()).decode() for _ in range(2)]
    url, _, made = lines[1].removeprefix("Open ").strip().partition("/#token=")
    async with httpx.AsyncClient(base_url=url, headers=bearer(made)) as http:
        assert (await http.get("/v1/me")).json()["token"]["name"] == "first-start"
    process.terminate()
    with anyio.fail_after(LIMIT_S):
        rest, errors = await process.communicate()
    assert made.encode() not in rest + errors
    for path in (tmp_path / "state").rglob("*"):
        assert path.is_dir() or made.encode() not in path.read_bytes(), path


async def test_asking_needs_no_token_where_the_operator_says_so(tmp_path: Path) -> None:
    agents = {"fake": {"command": case_file(tmp_path, asking())}}
    async with serving(tmp_path, agents, default_agent="fake", token=None, no_auth=True) as bridge:
        async with httpx.AsyncClient(base_url=bridge.server.url) as http:
            assert (await http.get("/v1/me")).json()["owner"] == "local"
            foreign = await http.get("/v1/me", headers={"Host": "evil.example"})
            assert foreign.status_code == 421
            page = await http.get("/v1/me", headers={"Origin": "https://evil.example"})
            assert page.status_code == 403
