"""What the door's tests share: agents that show what they were given, raw sockets, and waiting."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx

from tests.e2e.harness import LIMIT_S, TOKEN, Caller, scripted

PEEK = """
import json, os, runpy, sys
folder, script, case = sys.argv[1:]
descriptors = {}
for number in os.listdir("/proc/self/fd"):
    try:
        descriptors[number] = os.readlink("/proc/self/fd/" + number)
    except OSError:
        pass
try:
    parent = open("/proc/%d/environ" % os.getppid(), "rb").read().decode("utf-8", "replace")
except OSError as error:
    parent = type(error).__name__
seen = {"pid": os.getpid(), "argv": sys.orig_argv, "env": dict(os.environ), "parent": parent,
        "fds": descriptors}
with open(os.path.join(folder, "%d.tmp" % os.getpid()), "w") as file:
    json.dump(seen, file)
os.rename(file.name, file.name[:-4] + ".json")
sys.argv = [script, case]
runpy.run_path(script, run_name="__main__")
"""
"""Writes down what a process of its kind can see, then plays the scripted agent."""

NOBODY = "ses_" + "0" * 32


def peeking(folder: Path, case: str = "basic") -> list[str]:
    """The command of a scripted agent that leaves what it sees in ``folder``."""
    folder.mkdir(exist_ok=True)
    python, script, path = scripted(case)
    return [python, "-c", PEEK, str(folder), script, path]


def seen_in(folder: Path) -> list[dict[str, Any]]:
    """What the agents that were started have seen, oldest first."""
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    return [json.loads(file.read_text()) for file in files]


def case_file(folder: Path, case: dict[str, Any]) -> list[str]:
    """The command of a scripted agent with a case of the test's own."""
    path = folder / "case.json"
    path.write_text(json.dumps(case))
    return [*scripted("basic")[:2], str(path)]


def asking(kind: str = "session/request_permission", **params: Any) -> dict[str, Any]:
    """A case whose prompts ask for a permission, and say what was answered."""
    options = [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "always", "name": "Always", "kind": "allow_always"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ]
    asked = {
        "sessionId": "{sessionId}",
        "toolCall": {"toolCallId": "t1", "title": "Run it", "kind": "execute"},
        "options": options,
        **params,
    }
    return {"prompts": [{"steps": [{"ask": kind, "params": asked}, {"text": "got {answer}"}]}]}


def bearer(token: str = TOKEN) -> dict[str, str]:
    """The header of a token."""
    return {"Authorization": f"Bearer {token}"}


def code_of(answer: httpx.Response) -> str:
    """The code of a problem."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return str(answer.json()["code"])


async def raw(url: str, data: bytes | Sequence[bytes], *, is_ended: bool = False) -> bytes:
    """What the server says to bytes on a connection until it closes that."""
    host, _, port = url.removeprefix("http://").partition(":")
    answer = bytearray()
    with anyio.fail_after(LIMIT_S):
        async with await anyio.connect_tcp(host, int(port)) as stream:
            try:
                for part in [data] if isinstance(data, bytes) else data:
                    await stream.send(part)
                if is_ended:
                    await stream.send_eof()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            try:
                async for part in stream:
                    answer += part
            except anyio.BrokenResourceError:
                pass
    return bytes(answer)


def status_of(answer: bytes) -> int:
    """The status of a raw answer."""
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer.split(b" ", 2)[1])


async def close(*callers: Caller) -> None:
    """Close the callers' connections."""
    for caller in callers:
        await caller.http.aclose()


def token(folder: Path, *words: str) -> str:
    """``cursor-bridge token`` in a process of its own; what it prints on stdout."""
    done = subprocess.run(
        [sys.executable, "-m", "bridge.cli.main", "token", *words, "--state-dir", str(folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    return done.stdout.strip()
