"""Starts what is measured: a bridge with the flood agent, or the bare loop. Ends both by pid.

Ports are chosen by the system; all traffic stays on loopback.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FLOOD = (sys.executable, str(ROOT / "bench" / "flood_agent.py"))
TOKEN = "bench-token-0123456789abcdef"
LIMIT_S = 120.0

_LIMITS = """
[server]
max_connections = 4096
[limits]
max_processes = {processes}
max_sessions_per_owner = 100000
streams_per_token = 4096
prompts_per_minute = 1000000
sessions_per_minute = 1000000
spawn_stagger_s = 0
[storage]
max_session_bytes = 4294967296
"""


@dataclass
class Served:
    """A server under measurement: its process and where it listens."""

    process: subprocess.Popen[str]
    port: int
    folder: Path = field(default_factory=Path)

    @property
    def pid(self) -> int:
        """The server's own process."""
        return self.process.pid

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request, JSON in and out. Raises ``RuntimeError`` for a refusal."""
        status, _, data = self.exchange(method, path, body)
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {data[:300]!r}")
        return json.loads(data) if data else None

    def exchange(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own: status, headers, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(
                method,
                path,
                None if body is None else json.dumps(body),
                {
                    "Authorization": f"Bearer {TOKEN}",
                    "Content-Type": "application/json",
                    "Accept": "application/json",
                    **headers,
                },
            )
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def session(self) -> str:
        """A new session with the flood agent; its id."""
        return str(self.call("POST", "/v1/sessions", {})["sessionId"])

    def prompt(self, session_id: str, text: str) -> dict[str, Any]:
        """Begin a turn; the Turn."""
        turn: dict[str, Any] = self.call(
            "POST", f"/v1/sessions/{session_id}/prompt", {"prompt": text}
        )
        return turn

    def turn(self, session_id: str, text: str) -> dict[str, Any]:
        """Prompt and wait for the turn's end."""
        shown = self.prompt(session_id, text)
        path = f"/v1/sessions/{session_id}/turns/{shown['turnId']}"
        while shown["status"] in ("queued", "running", "waiting"):
            status, _, data = self.exchange("GET", path, Prefer="wait=50")
            if status != 200:
                raise RuntimeError(f"GET {path}: {status}")
            shown = json.loads(data)
        return shown


@contextlib.contextmanager
def bridge(
    *, folder: Path | None = None, processes: int = 128, agent: Sequence[str] = FLOOD
) -> Iterator[Served]:
    """A bridge; without ``folder`` its state is gone with it."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        served = start_bridge(folder, processes=processes, agent=agent)
        try:
            yield served
        finally:
            end(served.process)


def start_bridge(folder: Path, *, processes: int = 128, agent: Sequence[str] = FLOOD) -> Served:
    """A bridge that listens; whoever starts it ends it."""
    config = folder / "bench.toml"
    config.write_text(
        'default_agent = "flood"\nlog_level = "error"\n'
        + _LIMITS.format(processes=processes)
        + f"[agents.flood]\ncommand = {json.dumps(list(agent))}\n"
    )
    arguments = ["--config", str(config), "--port", "0", "--root", str(folder)]
    command = [sys.executable, "-m", "bridge.cli.main", "serve", *arguments]
    process = _start([*command, "--state-dir", str(folder / "state")])
    return Served(process, _port(process), folder)


@contextlib.contextmanager
def bare() -> Iterator[Served]:
    """The bare loop."""
    process = _start([sys.executable, "-m", "bench.bare"])
    try:
        yield Served(process, _port(process))
    finally:
        end(process)


def end(process: subprocess.Popen[str], limit_s: float = 30) -> None:
    """SIGTERM, in the end SIGKILL, and reap."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait(limit_s)
    if process.stdout is not None:
        process.stdout.close()


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CURSOR_BRIDGE_TOKEN": TOKEN},
    )


def _port(process: subprocess.Popen[str]) -> int:
    """The port in the first address that the process prints."""
    assert process.stdout is not None
    for line in process.stdout:
        for word in line.split():
            if word.startswith("http://"):
                return int(word.split("/#")[0].rstrip("/").rpartition(":")[2])
    raise RuntimeError(f"{process.args!r} ended with {process.wait()}")
