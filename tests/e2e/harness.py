"""A whole bridge over a real socket, in this process or in one of its own, and a caller for it.

``Bridge`` serves the application in the test's own loop, with real agent processes; ``Subprocess``
starts ``cursor-bridge serve`` so that it can be killed. ``Caller`` is a thin HTTP client that knows
the token and how to read event streams. Waiting is always for an event, inside a time limit.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import anyio
import anyio.to_thread
import httpx

from bridge import app
from bridge.api.server import BridgeServer, make_config
from bridge.config import Settings, load
from bridge.runtime.spawn import LocalSpawner
from bridge.state import StateDir
from bridge.tokens import TokenStore
from tests import canaries

TOKEN = canaries.secret("harness")
LIMIT_S = 20.0
ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "agents" / "cases"
OWN_ENV = {"CURSOR_BRIDGE_TOKEN": TOKEN, "CURSOR_BRIDGE_LOG_LEVEL": "debug"}
"""What a bridge in a process of its own gets beside what the tests have."""

Json = dict[str, Any]
_numbers = itertools.count(1)

_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody: all is plain HTTP, and reading the box's certificates takes 40 ms a client."""


def scripted(case: str) -> list[str]:
    """The command of the scripted agent with a case of tests/agents/cases."""
    return [
        sys.executable,
        str(ROOT / "tests" / "agents" / "scripted.py"),
        str(CASES / f"{case}.json"),
    ]


def demo() -> list[str]:
    """The command of the demo agent."""
    return [sys.executable, "-m", "bridge.demo", "acp"]


@dataclass
class Event:
    """One Server-Sent Event: its id, its event line, its decoded data."""

    id: str | None
    type: str | None
    data: Json | None
    raw: bytes = b""

    @property
    def seq(self) -> int:
        """The entry's position."""
        assert self.data is not None
        return int(self.data["seq"])

    @property
    def kind(self) -> str:
        """The entry's type."""
        assert self.data is not None
        return str(self.data["type"])

    @property
    def params(self) -> Json:
        """The entry's params."""
        assert self.data is not None
        params = self.data["params"]
        assert isinstance(params, dict)
        return params


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Event]:
    """Parse a stream; events without data (bare ids, retry) are left out."""
    parts: list[bytes] = []
    last = b""
    async for chunk in chunks:
        parts.append(chunk)
        seam, last = last + chunk, chunk[-1:]
        if b"\n\n" not in seam:
            continue
        *frames, rest = b"".join(parts).split(b"\n\n")
        parts = [rest]
        for frame in frames:
            event = parse_frame(frame)
            if event.data is not None:
                yield event


def parse_frame(frame: bytes) -> Event:
    """One frame without its blank line."""
    event = Event(None, None, None, frame)
    for line in frame.split(b"\n"):
        name, _, value = line.partition(b": ")
        match name:
            case b"id":
                event.id = value.decode()
            case b"event":
                event.type = value.decode()
            case b"data":
                event.data = json.loads(value)
    return event


class Caller:
    """An HTTP caller with a token."""

    def __init__(self, url: str, token: str = TOKEN) -> None:
        self.url = url
        self.http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=LIMIT_S,
            verify=_NO_CERTIFICATES,
            limits=httpx.Limits(max_connections=None),
        )

    async def get(self, path: str, **options: Any) -> httpx.Response:
        """GET."""
        return await self.http.get(path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """POST a JSON body."""
        return await self.http.post(path, json=body, **options)

    async def session(self, **body: Any) -> Json:
        """A new session."""
        answer = await self.post("/v1/sessions", body)
        assert answer.status_code == 201, answer.text
        shown: Json = answer.json()
        return shown

    async def prompt(self, session_id: str, text: str, **body: Any) -> Json:
        """Begin a turn and return it at once."""
        canaries.said(text)
        answer = await self.post(f"/v1/sessions/{session_id}/prompt", {"prompt": text, **body})
        assert answer.status_code == 202, answer.text
        shown: Json = answer.json()
        return shown

    async def turn(self, session_id: str, text: str, **body: Any) -> Json:
        """Prompt and wait until the turn has ended or waits for a person."""
        canaries.said(text)
        answer = await self.post(
            f"/v1/sessions/{session_id}/prompt",
            {"prompt": text, **body},
            headers={"Prefer": "wait=15"},
        )
        assert answer.status_code in (200, 202), answer.text
        shown: Json = answer.json()
        canaries.said(shown.get("text"))
        return shown

    async def settled(self, session_id: str, turn_id: str) -> Json:
        """The turn once it has ended or waits for a person."""
        answer = await self.get(
            f"/v1/sessions/{session_id}/turns/{turn_id}", headers={"Prefer": "wait=15"}
        )
        assert answer.status_code == 200, answer.text
        shown: Json = answer.json()
        canaries.said(shown.get("text"))
        return shown

    async def pending(self, session_id: str) -> list[Json]:
        """The session's pending requests."""
        answer = await self.get(f"/v1/sessions/{session_id}/requests")
        found: list[Json] = answer.json()["requests"]
        return found

    async def reply(self, session_id: str, request_id: str, body: Any) -> httpx.Response:
        """Answer a request."""
        return await self.post(f"/v1/sessions/{session_id}/requests/{request_id}/reply", body)

    async def log(self, session_id: str) -> list[Json]:
        """All events of a session that are kept, by pages."""
        events: list[Json] = []
        after = 0
        while True:
            answer = await self.get(
                f"/v1/sessions/{session_id}/events", params={"after": after, "limit": 1000}
            )
            page = answer.json()
            events += page["events"]
            after = page["nextAfter"]
            if not page["more"]:
                return events

    @asynccontextmanager
    async def stream(self, path: str, **options: Any) -> AsyncIterator[AsyncIterator[Event]]:
        """The events of a stream, while the block lasts."""
        headers = {"Accept": "text/event-stream", **options.pop("headers", {})}
        async with self.http.stream(
            "GET", path, headers=headers, timeout=LIMIT_S, **options
        ) as answer:
            assert answer.status_code == 200, await answer.aread()
            yield read_events(answer.aiter_bytes())

    async def until(
        self, path: str, wanted: Callable[[Event], bool], **options: Any
    ) -> list[Event]:
        """The events of a stream up to the first wanted one."""
        events: list[Event] = []
        with anyio.fail_after(LIMIT_S):
            async with self.stream(path, **options) as stream:
                async for event in stream:
                    events.append(event)
                    if wanted(event):
                        return events
        raise AssertionError("the stream ended before the event came")


def ended(turn_id: str) -> Callable[[Event], bool]:
    """Whether an event is the end of a turn."""
    return lambda event: (
        event.kind == "bridge/turn_ended" and event.params["turn"]["turnId"] == turn_id
    )


def settings_for(folder: Path, agents: Mapping[str, Any], **values: Any) -> Settings:
    """Settings of a bridge in ``folder``, with these agents."""
    workspace = folder / "ws"
    workspace.mkdir(exist_ok=True)
    limits = {"spawn_stagger_s": 0.0, "load_quiet_s": 0.1, "stop_step_s": 1.0}
    given: dict[str, Any] = {
        "roots": (str(workspace),),
        "agents": dict(agents),
        "token": TOKEN,
        "server": {"port": 0},
        "dumpable": True,
        **values,
    }
    given["limits"] = limits | dict(values.get("limits", {}))
    given["storage"] = {"state_dir": folder / "state", "reserve_bytes": 65536} | dict(
        values.get("storage", {})
    )
    return load(None, **given)


class Served(BridgeServer):
    """A server that says when it listens."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.listening = anyio.Event()
        self.url = ""

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Listen, and tell."""
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self.url = f"http://{host}:{port}"
        self.listening.set()


@dataclass
class Bridge:
    """A bridge in this process."""

    caller: Caller
    application: app.Application
    settings: Settings
    workspace: Path
    server: Served
    audit: list[Json] = field(default_factory=list)
    tokens: TokenStore = field(kw_only=True)

    def caller_with(self, name: str, **asked: Any) -> Caller:
        """A caller with a token of its own, made as ``token create`` makes it."""
        return Caller(self.server.url, self.tokens.create(name, **asked))


@asynccontextmanager
async def serving(folder: Path, agents: Mapping[str, Any], **values: Any) -> AsyncIterator[Bridge]:
    """Serve a bridge in this process for as long as the block lasts."""
    settings = settings_for(folder, agents, **values)
    state = StateDir(settings.state_dir)
    audit: list[Json] = []
    try:
        tokens = TokenStore(state.path / "tokens.json", time.time, fixed=TOKEN)
        application = app.build(
            settings,
            tokens,
            spawn=LocalSpawner(),
            state_tag=state.tag,
            audit=lambda event, **fields: audit.append({"event": event, **fields}),
        )
        server = Served(
            make_config(application.asgi, settings),
            on_stop=application.drain,
            takes_signals=False,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve)
            with anyio.fail_after(LIMIT_S):
                await server.listening.wait()
            caller = Caller(server.url)
            try:
                yield Bridge(
                    caller, application, settings, folder / "ws", server, audit, tokens=tokens
                )
            finally:
                with anyio.CancelScope(shield=True):
                    await caller.http.aclose()
                    server.stop()
                    server.stop()
    finally:
        state.close()


class Subprocess:
    """``cursor-bridge serve`` in a process of its own, which may be killed and started again."""

    def __init__(
        self,
        folder: Path,
        config: str = "",
        *arguments: str,
        prefix: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        has_root: bool = True,
        has_token: bool = True,
    ) -> None:
        """``has_root``: the workspace is named on the command line, else the file names roots.

        Without ``has_token`` it makes its first one itself.
        """
        self.folder = folder
        self._prefix = prefix
        self._has_root = has_root
        self._env = OWN_ENV | dict(env or {})
        if not has_token:
            del self._env["CURSOR_BRIDGE_TOKEN"]
        self.workspace = folder / "ws"
        self.workspace.mkdir(exist_ok=True)
        self._config = folder / "bridge.toml"
        self._config.write_text(config)
        self._arguments = arguments
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.lines: list[str] = []
        self._callers: list[Caller] = []

    async def __aenter__(self) -> Subprocess:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            for caller in self._callers:
                await caller.http.aclose()
        self.stop()

    async def start(self) -> Caller:
        """Start it and return a caller once it listens."""
        self.begin()
        with anyio.fail_after(LIMIT_S):
            self.url = await anyio.to_thread.run_sync(self._read_url, abandon_on_cancel=True)
        caller = Caller(self.url)
        self._callers.append(caller)
        return caller

    def begin(self, *arguments: str) -> None:
        """Start it with these further arguments, and wait for nothing."""
        log = _log_of(self.folder)
        self.process = subprocess.Popen(
            [
                *self._prefix,
                sys.executable,
                "-m",
                "bridge.cli.main",
                "serve",
                "--config",
                str(self._config),
                "--port",
                "0",
                *(("--root", str(self.workspace)) if self._has_root else ()),
                "--state-dir",
                str(self.folder / "state"),
                *self._arguments,
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **self._env},
            start_new_session=True,
        )
        log.close()

    def _read_url(self) -> str:
        assert self.process is not None and self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            for word in line.split():
                if word.startswith("http://"):
                    return word.split("/#")[0].rstrip("/")
        raise AssertionError((self.folder / "bridge.log").read_text()[-2000:])

    def kill(self) -> None:
        """SIGKILL, and reap."""
        self.signal(signal.SIGKILL)
        self.wait()

    def signal(self, number: int) -> None:
        """Send a signal to the bridge alone."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, limit_s: float = LIMIT_S) -> int:
        """Its exit status."""
        assert self.process is not None
        status = self.process.wait(limit_s)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    def stop(self) -> None:
        """End it if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


def _log_of(folder: Path) -> TextIO:
    """``bridge.log`` in ``folder``, which is one of the logs that the whole run is judged by."""
    path = folder / "bridge.log"
    shared = canaries.log_file(f"bridge-{next(_numbers)}")
    if shared is not None and not path.is_symlink():
        path.symlink_to(shared)
    return open(path, "a")
