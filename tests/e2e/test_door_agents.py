"""What agents are started with, where they may work, and what is left of a refusal.

S9, S10, S11, S12 and S19, and the owners' own environments, with real processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.canaries import secret
from tests.e2e.doors import asking, bearer, case_file, close, code_of, peeking, seen_in
from tests.e2e.harness import TOKEN, Caller, Event, Subprocess, scripted, serving
from tests.faults.rig import eventually

pytestmark = pytest.mark.anyio

CANARY = secret("bridge-env")
OWN_KEY = secret("agents-own")
ADA, NEW_ADA, BOB = secret("ada"), secret("ada-new"), secret("bob")
SETPRIV = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--")
WITHOUT_POWERS = SETPRIV if os.geteuid() == 0 and shutil.which("setpriv") else ()
"""Root reads everything everywhere; without capabilities it is a user like any other."""


def toml(command: list[str], *more: str) -> str:
    """A configuration with one agent, ``fake``."""
    words = ", ".join(f"'''{word}'''" for word in command)
    return "\n".join(['default_agent = "fake"', *more, "[agents.fake]", f"command = [{words}]"])


# -- S9: paths ---------------------------------------------------------------------------------


async def test_s9_no_session_works_outside_the_roots_whatever_the_path_looks_like(
    tmp_path: Path,
) -> None:
    async with serving(
        tmp_path, {"fake": {"command": scripted("basic")}}, default_agent="fake"
    ) as bridge:
        ws, evil = bridge.workspace, tmp_path / "ws-evil"
        evil.mkdir()
        inside = ws / "inside"
        inside.mkdir()
        (ws / "out").symlink_to(evil)
        (ws / "in").symlink_to(inside)
        (ws / "loop").symlink_to(ws / "loop")
        (ws / "file").write_text("x")
        tries = {
            str(evil): 403,
            f"{ws}/../ws-evil": 403,
            f"{ws}/inside/../../ws-evil": 403,
            f"{ws}-evil": 403,
            f"{ws}/out": 403,
            "/": 403,
            "/proc/self/root": 403,
            f"{ws}/loop": 422,
            "ws": 422,
            "../ws": 422,
            "~": 422,
            f"{ws}\0/x": 422,
            f"{ws}/missing": 422,
            f"{ws}/file": 422,
            "": 422,
        }
        for path, status in tries.items():
            found = [
                await bridge.caller.post("/v1/sessions", {"cwd": path}),
                await bridge.caller.post("/v1/sessions", {"additionalDirectories": [path]}),
            ]
            if path:
                found.append(await bridge.caller.get("/v1/folders", params={"path": path}))
                agents = "/v1/agents/fake/sessions"
                found.append(await bridge.caller.get(agents, params={"cwd": path}))
            assert {each.status_code for each in found} == {status}, (path, [f.text for f in found])
        resolved = await bridge.caller.session(cwd=f"{ws}/in/../in")
        assert resolved["cwd"] == str(inside)


async def test_s9_no_file_outside_the_sessions_folder_is_given_out(tmp_path: Path) -> None:
    async with serving(
        tmp_path, {"fake": {"command": scripted("basic")}}, default_agent="fake"
    ) as bridge:
        ws = bridge.workspace
        folder = ws / "here"
        folder.mkdir()
        (ws / "above.txt").write_text("secret")
        (tmp_path / "ws" / "here-evil").mkdir()
        (tmp_path / "ws" / "here-evil" / "x").write_text("secret")
        (folder / "good.svg").write_text("<svg onload='alert(1)'/>")
        (folder / "good link").symlink_to(folder / "good.svg")
        (folder / "bad link").symlink_to(ws / "above.txt")
        (folder / "bad folder").symlink_to(ws)
        (folder / "below").mkdir()
        os.mkfifo(folder / "pipe")
        path = f"/v1/sessions/{(await bridge.caller.session(cwd=str(folder)))['sessionId']}/files"

        async def get(name: str) -> httpx.Response:
            return await bridge.caller.get(path, params={"path": name})

        for name in ("good.svg", "good link", "below/../good.svg"):
            answer = await get(name)
            assert answer.status_code == 200, name
            assert answer.headers["content-disposition"].startswith("attachment")
            assert answer.headers["content-security-policy"] == "sandbox"
            assert answer.headers["x-content-type-options"] == "nosniff"
        for name in (
            "../above.txt",
            "below/../../above.txt",
            "../here-evil/x",
            "/etc/passwd",
            str(folder / "good.svg"),
            "bad link",
            "bad folder/above.txt",
            "good.svg\0",
            "below",
            "pipe",
            "",
            ".",
            "..",
            "/proc/self/environ",
            "missing",
            "x" * 5000,
            "..%2fabove.txt",
            "..\\above.txt",
        ):
            answer = await get(name)
            assert (answer.status_code, code_of(answer)) == (404, "not-found"), name
            assert "secret" not in answer.text


async def test_s9_roots_that_were_narrowed_hold_for_the_sessions_there_are(tmp_path: Path) -> None:
    (fresh := tmp_path / "fresh").mkdir()
    agents = {"fake": {"command": scripted("basic")}}
    async with serving(tmp_path, agents, default_agent="fake") as bridge:
        caller, old = bridge.caller, bridge.workspace
        (old / "notes").write_text("x")
        moved = (await caller.session(cwd=str(old)))["sessionId"]
        reload = bridge.application.reload
        reload(bridge.settings.model_copy(update={"roots": (fresh, old)}))
        reaching = await caller.session(cwd=str(fresh), additionalDirectories=[str(old)])
        reload(bridge.settings.model_copy(update={"roots": (fresh,)}))

        file = f"/v1/sessions/{moved}/files?path=notes"
        assert code_of(await caller.get(file)) == "path-outside-roots"
        # What runs goes on; what has ended does not come back.
        assert (await caller.turn(moved, "go on"))["status"] == "completed"
        for session_id in (moved, reaching["sessionId"]):
            path = f"/v1/sessions/{session_id}"
            await caller.prompt(session_id, "slow")
            await caller.post(f"{path}/cancel", {"hard": True})
            await caller.until(f"{path}/events", _is_hibernated)
            assert code_of(await caller.http.put(f"{path}/mode", json={"modeId": "x"})) == (
                "path-outside-roots"
            )
            turn = await caller.turn(session_id, "come back")
            assert (turn["status"], turn["error"]["code"]) == ("failed", "path-outside-roots")
            assert (turn["error"]["status"], turn["startedAt"]) == (403, None)
            shown = (await caller.get(path)).json()
            assert (shown["status"], shown["problem"]["code"]) == ("failed", "path-outside-roots")
            assert (await caller.get(f"{path}/transcript")).json()["items"]
        reload(bridge.settings)
        assert (await caller.get(file)).text == "x"
        assert (await caller.turn(moved, "again"))["status"] == "completed"


def _is_hibernated(event: Event) -> bool:
    return event.kind == "bridge/session" and event.params["changed"].get("status") == "hibernated"


# -- S10, S11: environment, descriptors, memory ------------------------------------------------

ALLOWED = {
    *("HOME", "PATH", "LANG", "LANGUAGE", "TERM", "SHELL", "USER", "LOGNAME", "TMPDIR", "TZ"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
    *("CURL_CA_BUNDLE", "CURSOR_CONFIG_DIR", "AGENT_CLI_CREDENTIAL_STORE", "CURSOR_API_KEY"),
    *("CURSOR_AUTH_TOKEN", "NO_OPEN_BROWSER", "CURSOR_BRIDGE_RUN", "OWN"),
    *(f"{name}_PROXY" for name in ("HTTP", "HTTPS", "ALL", "NO")),
    *(f"{name}_proxy" for name in ("http", "https", "all", "no")),
    *("LC_CTYPE", "PWD", "SHLVL", "_"),
}


async def test_s10_and_s11_an_agent_sees_nothing_of_the_bridges_secrets(tmp_path: Path) -> None:
    folder = tmp_path / "seen"
    config = toml(peeking(folder), "[permissions]") + '\n[agents.fake.env]\nOWN = "its own"\n'
    env = {
        "SECRET_KEY": CANARY,
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "CURSOR_BRIDGE_LIMITS__MAX_PROCESSES": "7",
        "CURSOR_API_KEY": OWN_KEY,
        "LD_PRELOAD": "",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    async with Subprocess(tmp_path, config, prefix=WITHOUT_POWERS, env=env) as process:
        caller = await process.start()
        await caller.session()
        (seen,) = seen_in(folder)
        assert process.process is not None
        bridge_pid = process.process.pid
        names = {name for name in seen["env"] if not name.startswith(("XDG_", "LC_"))}
        assert names <= ALLOWED
        ours = {name for name in seen["env"] if name.startswith("CURSOR_BRIDGE_")}
        assert len(ours) == 1, "the run tag and nothing else"
        assert seen["env"]["OWN"] == "its own"
        assert seen["env"]["CURSOR_API_KEY"] == OWN_KEY
        told = str(seen)
        assert CANARY not in told and TOKEN not in told
        # The interpreter that looks opens the folder of descriptors itself.
        fds = {int(number) for number, link in seen["fds"].items() if "/fd" not in link}
        assert fds == {0, 1, 2}
        assert all(seen["fds"][str(number)].startswith("pipe:") for number in fds)
        # The memory of the bridge is closed to processes of the same user.
        assert seen["parent"] == "PermissionError"
        assert seen["pid"] != bridge_pid


async def test_s11_a_profiler_may_look_where_the_operator_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "seen"
    config = "dumpable = true\n" + toml(peeking(folder))
    async with Subprocess(tmp_path, config, prefix=WITHOUT_POWERS) as process:
        await (await process.start()).session()
        assert "CURSOR_BRIDGE_TOKEN" in seen_in(folder)[0]["parent"]


async def test_s10_no_request_brings_a_command_or_an_environment(tmp_path: Path) -> None:
    async with serving(
        tmp_path, {"fake": {"command": scripted("basic")}}, default_agent="fake"
    ) as bridge:
        for name in ("env", "command", "args", "environment", "_env", "argv", "shell"):
            answer = await bridge.caller.post("/v1/sessions", {name: {"A": "b"}})
            assert (answer.status_code, code_of(answer)) == (422, "invalid-request"), name
        for server in (
            {"name": "x", "command": "/bin/sh", "args": [], "env": []},
            {"name": "x", "type": "stdio", "command": "/bin/sh"},
            {"name": "x", "type": "http", "url": "http://x", "headers": [], "command": "/bin/sh"},
            {"name": "x", "type": "stdio"},
            {"name": "x"},
        ):
            answer = await bridge.caller.post("/v1/sessions", {"mcpServers": [server]})
            assert (answer.status_code, code_of(answer)) == (403, "forbidden"), server
        web = {"name": "x", "type": "http", "url": "http://127.0.0.1:1/", "headers": []}
        assert (await bridge.caller.post("/v1/sessions", {"mcpServers": [web]})).status_code == 201
    allowed = {"allow_mcp_stdio": True}
    async with serving(
        tmp_path,
        {"fake": {"command": scripted("basic")}},
        default_agent="fake",
        permissions=allowed,
    ) as bridge:
        shell = {
            "name": "x",
            "command": "/bin/true",
            "args": [],
            "env": [{"name": "K", "value": CANARY}],
        }
        session = await bridge.caller.session(mcpServers=[shell])
        shown = await bridge.caller.get(f"/v1/sessions/{session['sessionId']}")
        log = await bridge.caller.log(session["sessionId"])
        assert CANARY not in shown.text and CANARY not in str(log)


async def test_each_owners_agents_run_with_that_owners_environment_and_are_shared_with_nobody(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "seen"
    key = tmp_path / "ada.key"
    key.write_text(f"{ADA}\n")
    owners = {
        "ada": {"env": {"WHO": "ada"}, "env_files": {"CURSOR_API_KEY": str(key)}},
        "bob": {"env": {"WHO": "bob", "CURSOR_API_KEY": BOB}},
    }
    agent = {"command": peeking(folder), "env": {"WHO": "nobody"}}
    async with serving(tmp_path, {"fake": agent}, default_agent="fake", owners=owners) as bridge:
        callers = {name: bridge.caller_with(name, owner=name) for name in ("ada", "bob", "eve")}
        for caller in callers.values():
            await caller.session()
        shown = [
            (each["env"]["WHO"], each["env"].get("CURSOR_API_KEY")) for each in seen_in(folder)
        ]
        assert shown[:2] == [("ada", ADA), ("bob", BOB)]
        assert shown[2][0] == "nobody" and shown[2][1] not in (ADA, BOB)
        # A question without a session borrows only the asker's own process.
        before = len(seen_in(folder))
        for caller in (callers["ada"], callers["bob"]):
            assert (await caller.get("/v1/agents/fake/sessions")).status_code == 200
        assert len(seen_in(folder)) == before
        assert (await bridge.caller.get("/v1/agents/fake/sessions")).status_code == 200
        assert len(seen_in(folder)) == before + 1
        key.write_text(f"{NEW_ADA}\n")
        await callers["ada"].session()
        assert seen_in(folder)[-1]["env"]["CURSOR_API_KEY"] == NEW_ADA
        key.unlink()
        answer = await callers["ada"].post("/v1/sessions", {})
        assert code_of(answer) == "agent-unavailable"
        assert ADA not in answer.text and str(tmp_path) not in answer.text
        await close(*callers.values())


# -- S12, S19: what is left --------------------------------------------------------------------


async def test_s12_everything_in_the_state_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    async with Subprocess(tmp_path, toml(case_file(tmp_path, asking()))) as process:
        caller = await process.start()
        session_id = (await caller.session())["sessionId"]
        await caller.turn(session_id, "go")
        state = tmp_path / "state"
        found = {
            str(path.relative_to(state)): stat.S_IMODE(path.stat().st_mode)
            for path in (state, *state.rglob("*"))
        }
        folders = {name for name in found if (state / name).is_dir()}
        assert {found[name] for name in folders} == {0o700}
        assert {mode for name, mode in found.items() if name not in folders} == {0o600}
        assert {"audit.jsonl", "bridge.sqlite3", "bridge.sqlite3-wal", "lock"} <= set(found)
        for path in state.rglob("*"):
            assert path.is_dir() or TOKEN.encode() not in path.read_bytes(), path
        await caller.post(f"/v1/sessions/{session_id}/cancel", {})


async def test_s19_a_thousand_refused_sessions_leave_nothing_behind(tmp_path: Path) -> None:
    agents: dict[str, Any] = {
        "fake": {"command": scripted("plan"), "dialect": "cursor", "safe_modes": ["ask"]},
        "missing": {"command": ["/nowhere/agent"]},
        "dying": {"command": ["/bin/false"]},
    }
    limits = {"sessions_per_minute": 10**6, "failed_logins_per_minute": 10**6}
    async with serving(tmp_path, agents, default_agent="fake", limits=limits) as bridge:
        reader = bridge.caller_with("reader", scopes=("read",))
        prompter = bridge.caller_with("prompter", scopes=("prompt",))
        tries: list[tuple[Caller, dict[str, Any], int]] = [
            (reader, {}, 403),
            (prompter, {"mode": "agent"}, 403),
            (prompter, {"permissions": {"rules": [{"match": {}, "reply": "allow_once"}]}}, 403),
            (prompter, {"cwd": "/"}, 403),
            (prompter, {"cwd": "relative"}, 422),
            (prompter, {"agent": "nobody"}, 404),
            (prompter, {"agent": "missing"}, 503),
            (prompter, {"env": {}}, 422),
            (prompter, {"mcpServers": [{"name": "x", "command": "x"}]}, 403),
            (prompter, {"permissions": {"rules": 1}}, 422),
        ]
        slow: list[tuple[Caller, dict[str, Any], int]] = [
            (bridge.caller, {"mode": "no such mode"}, 422),
            (bridge.caller, {"config": {"no such": "x"}}, 422),
            (bridge.caller, {"agent": "dying"}, 424),
        ]
        for caller, body, status in [*tries, *slow]:
            answer = await caller.post("/v1/sessions", body)
            assert answer.status_code == status, (body, answer.text)
        before = trace_of(bridge.settings.state_dir)
        for number in range(1000):
            caller, body, status = (
                tries[number % len(tries)] if number % 100 else slow[number // 100 % 3]
            )
            assert (await caller.post("/v1/sessions", body)).status_code == status
        stranger = await bridge.caller.http.post("/v1/sessions", json={}, headers=bearer("no"))
        assert stranger.status_code == 401
        await eventually(lambda: trace_of(bridge.settings.state_dir) == before)
        assert (await bridge.caller.get("/v1/sessions")).json()["sessions"] == []
        runtime = bridge.application.context.running
        assert (len(runtime.registry.live), len(runtime.pool), len(runtime.processes)) == (0, 0, 0)
        tables = runtime.services.tables
        assert tables.processes() == [] and tables.open_sessions() == []
        assert tables.count_sessions("local") == 0 and runtime.services.store.sessions() == []
        assert children() == set()
        await close(reader, prompter)


def trace_of(state: Path) -> tuple[int, int, list[str]]:
    """Open descriptors, tasks, and the files of logs."""
    files = sorted(str(path) for path in (state / "log").rglob("*"))
    return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks()), files


def children() -> set[str]:
    """Our children by pid."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
