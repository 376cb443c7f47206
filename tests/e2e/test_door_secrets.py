"""Canaries: secrets where they belong, looked for everywhere else (S12); who is believed."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from anyio import to_thread

from tests.canaries import secret
from tests.e2e.doors import bearer, case_file, close, code_of, token
from tests.e2e.harness import Caller, Json, Subprocess, ended, scripted, serving

pytestmark = pytest.mark.anyio

FIXED = secret("token/fixed")
AGENT_KEY = secret("agent/env")
OWNER_KEY = secret("owner/env")
FILE_KEY = secret("owner/file")
BOX_KEY = secret("box/cursor-key")
GUESS = secret("token/guessed")
PROMPT = "canary-of-a-prompt-Lx7"
ANSWER = "canary-of-an-answer-Rw2"
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
KEYS = (AGENT_KEY, OWNER_KEY, FILE_KEY, BOX_KEY)


def leaky(folder: Path) -> list[str]:
    """An agent that says its keys wherever an agent can, but in its own messages."""
    told = " ".join(KEYS)
    error = {
        "code": -32603,
        "message": f"bad key {AGENT_KEY}",
        "data": {"message": told, "k": [told]},
    }
    noise: list[Json] = [{"stderr": told}, {"raw": told}, {"raw": f'{{"jsonrpc": "{told}"'}]
    return case_file(
        folder,
        {
            "on": {"_x/fail": {"error": error}},
            "prompts": [
                {"match": "fail", "steps": [*noise, {"fail": error}]},
                {"match": "die", "steps": [*noise, {"exit": 3}]},
                {"steps": [{"text": ANSWER}]},
            ],
        },
    )


def configured(folder: Path) -> str:
    """A bridge at debug level whose agents have keys of every kind, and harmless short values."""
    (folder / "key").write_text(FILE_KEY)
    dying = ["/bin/sh", "-c", f"echo {' '.join(KEYS)} >&2; exit 1"]
    return "\n".join(
        [
            'default_agent = "fake"\nlog_level = "debug"',
            f"[agents.fake]\ncommand = {json.dumps(leaky(folder))}",
            f'[agents.fake.env]\nKEY = "{AGENT_KEY}"\nFLAG = "1"\nZERO = "0"\nYES = "true"',
            f"[agents.dying]\ncommand = {json.dumps(dying)}",
            f'[agents.dying.env]\nKEY = "{AGENT_KEY}"',
            f'[owners.local.env]\nOWN = "{OWNER_KEY}"',
            f'[owners.local.env_files]\nOWN_FILE = "{folder / "key"}"',
        ]
    )


async def use(
    caller: Caller, stranger: httpx.AsyncClient
) -> tuple[list[httpx.Response], list[Json]]:
    """Everything that goes wrong, and what goes well; the answers and the events."""
    answers, events = [], []
    for text in ("plain", "fail", "die"):
        session_id = (await caller.session(title="1 of 10"))["sessionId"]
        path = f"/v1/sessions/{session_id}"
        turn = await caller.prompt(session_id, f"{text} {PROMPT}")
        await caller.until(f"{path}/events?after=0", ended(turn["turnId"]))
        answers.append(await caller.get(f"{path}/turns/{turn['turnId']}"))
        answers.append(await caller.get(path))
        if text == "plain":
            answers.append(await caller.post(f"{path}/ext", {"method": "_x/fail"}))
        answers.append(await caller.get(f"{path}/transcript"))
        events += await caller.log(session_id)
    answers.append(await caller.post("/v1/sessions", {"agent": "dying"}))
    answers.append(await caller.post("/v1/sessions", {"prompt": PROMPT}))
    for path in ("/v1/agents", "/v1/sessions", "/v1/me", "/metrics", "/v1/nothing"):
        answers.append(await caller.get(path))
    answers.append(await stranger.get(f"/v1/me?token={FIXED}", headers=bearer(GUESS)))
    answers.append(await stranger.get("/v1/me", headers={"Cookie": f"token={FIXED}"}))
    answers.append(await stranger.get("/v1/me", headers={"Authorization": f"Basic {FIXED}"}))
    for path in (f"/acp?token={GUESS}", f"/v1/me?token={GUESS}"):
        odd = {"Cookie": f"token={GUESS}", "Authorization": f"Token {GUESS}", "X-Token": GUESS}
        answers.append(await stranger.get(path, headers={**UPGRADE, **odd}))
    return answers, events


async def test_s12_no_canary_is_found_where_it_does_not_belong(tmp_path: Path) -> None:
    env = {"CURSOR_BRIDGE_TOKEN": FIXED, "CURSOR_API_KEY": BOX_KEY}
    async with Subprocess(tmp_path, configured(tmp_path), env=env) as process:
        await process.start()
        state_dir = tmp_path / "state"
        made = await to_thread.run_sync(token, state_dir, "create", "--name", "phone")
        caller = Caller(process.url, FIXED)
        async with httpx.AsyncClient(base_url=process.url) as stranger:
            answers, events = await use(caller, stranger)
            assert (await stranger.get("/v1/me", headers=bearer(FIXED))).status_code == 200
        await close(caller)
        state = {
            str(path.relative_to(tmp_path)): path.read_bytes()
            for path in state_dir.rglob("*")
            if path.is_file()
        }
    log = (tmp_path / "bridge.log").read_text()
    # The keys went where they belong, or looking for them elsewhere would say nothing.
    exits = [each for each in events if each["type"] == "bridge/agent_exited"]
    assert exits and "[redacted]" in exits[0]["params"]["stderrTail"]
    warned = [each for each in events if each["type"] == "bridge/warning"]
    assert warned and all("[redacted]" in each["params"]["detail"] for each in warned)
    failed = [each for each in answers if each.headers["content-type"].endswith("problem+json")]
    assert {"agent-error", "agent-exited", "unauthorized"} <= set(map(code_of, failed))

    places = {
        "answers": "\n".join(f"{each.headers} {each.text}" for each in answers),
        "events": json.dumps(events),
        "log": log,
        "stdout": "".join(process.lines),
        **{name: data.decode("utf-8", "replace") for name, data in state.items()},
    }
    for name, text in places.items():
        for key in (*KEYS, FIXED, GUESS, made):
            assert key not in text, (name, key)
    for name in ("log", "stdout", "state/audit.jsonl"):
        above = [line for line in places[name].splitlines() if '"level": "debug"' not in line]
        assert PROMPT not in "\n".join(above) and ANSWER not in "\n".join(above), name
    # What is short is no secret: nothing ordinary is blotted out.
    assert "1 of 10" in places["answers"] and "127.0.0.1" in places["state/audit.jsonl"]
    assert all(json.loads(line)["time"].startswith("20") for line in log.splitlines())


@pytest.mark.parametrize("trusted", [(), ("127.0.0.1",), ("10.0.0.0/8",)])
async def test_a_forwarded_address_is_believed_of_a_trusted_proxy_alone(
    tmp_path: Path, trusted: tuple[str, ...]
) -> None:
    agents = {"fake": {"command": scripted("basic")}}
    server = {"port": 0, "trusted_proxies": trusted, "allowed_hosts": ("bridge.example",)}
    async with serving(tmp_path, agents, default_agent="fake", server=server) as bridge:
        forwarded = {"X-Forwarded-For": "203.0.113.9, 198.51.100.7", "X-Forwarded-Proto": "https"}
        host = {"Host": "bridge.example"}
        await bridge.caller.get("/v1/me", headers={**forwarded, **host, **bearer("wrong")})
        (refused,) = [each for each in bridge.audit if each["event"] == "access.refused"]
        is_trusted = trusted == ("127.0.0.1",)
        assert refused["address"] == ("198.51.100.7" if is_trusted else "127.0.0.1")
        # The page that came by way of the proxy may call, over TLS; none that others serve.
        own = {**forwarded, **host, "Origin": "https://bridge.example"}
        assert (await bridge.caller.get("/v1/me", headers=own)).status_code == 200
        other = {**own, "X-Forwarded-Host": "evil.example", "Origin": "https://evil.example"}
        assert (await bridge.caller.get("/v1/me", headers=other)).status_code == 403
        evil = {**forwarded, "X-Forwarded-Host": "bridge.example", "Host": "evil.example"}
        assert (await bridge.caller.get("/v1/me", headers=evil)).status_code == 421
