"""Where Cursor's command line agent is on this box, and how it is called.

Rules: a configured path is taken or nothing; otherwise ``cursor-agent`` before ``agent`` on PATH,
then both in ``~/.local/bin``, where Cursor's installer puts them. ``agent`` is a name that other
tools use as well, so it counts only when it answers ``--version`` in Cursor's way. The probe runs
in a process group of its own, with the allow-listed environment and a time limit.

Probe before sessions run and keep the answer: another call of Cursor's command line can end a
running agent (tiann/hapi#832). Everything here blocks: for a worker thread or the command line.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge.runtime.environment import inherited

PROBE_LIMIT_S = 5.0
_NAMES = ("cursor-agent", "agent")
"""What Cursor's installer calls it, the name that nobody else uses first."""
_MAX_ANSWER_BYTES = 4096
_VERSION = re.compile(r"\d{4}\.\d{2}\.\d{2}(?:-\d{2}-\d{2}-\d{2})?-[0-9a-z]{5,40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Found:
    """An absolute path, and the version where the program told it in a shape we know."""

    path: str
    version: str | None


def find_cursor(configured: str = "", env: Mapping[str, str] = os.environ) -> Found | None:
    """Locate Cursor's agent; None when there is none, or ``configured`` is not usable."""
    if configured:
        path = _usable(os.path.expanduser(configured), env)
        return Found(path, probe_version(path, env)) if path else None
    for path in _candidates(env):
        version = probe_version(path, env)
        if version or os.path.basename(path) == "cursor-agent":
            return Found(path, version)
    return None


def is_cursors_name(path: str) -> bool:
    """Whether a program is called as Cursor's installer calls its own."""
    return os.path.basename(path) in _NAMES


def passed_over(env: Mapping[str, str] = os.environ) -> str | None:
    """The first program that is called as Cursor's is and was not taken for it."""
    return next(_candidates(env), None)


def probe_version(path: str, env: Mapping[str, str] = os.environ) -> str | None:
    """What ``path --version`` answers if it looks like Cursor's (``2026.10.22-1a2b3c4``)."""
    try:
        probe = subprocess.Popen(
            (path, "--version"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**inherited(env), "NO_OPEN_BROWSER": "1"},
            start_new_session=True,
        )
    except (OSError, ValueError):
        return None
    with probe:
        try:
            answer = _read_answer(probe)
        finally:
            # Not reaped yet, so the group's number is still its own.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(probe.pid, signal.SIGKILL)
    text = answer.decode(errors="replace").strip()
    return text if _VERSION.fullmatch(text) else None


def cursor_argv(
    path: str,
    root_flags: tuple[str, ...] = (),
    endpoint: str = "",
    insecure_tls: bool = False,
) -> tuple[str, ...]:
    """The command line of an ACP agent: flags stand before ``acp``, keys in none of them."""
    return (path, *root_flags, *_connection_flags(endpoint, insecure_tls), "acp")


def login_argv(program: str, endpoint: str = "", insecure_tls: bool = False) -> tuple[str, ...]:
    """What a person types to log in where :func:`cursor_argv` connects to; without a folder."""
    known = os.path.basename(program) if is_cursors_name(program) else _NAMES[0]
    return (known, *_connection_flags(endpoint, insecure_tls), "login")


def _connection_flags(endpoint: str, insecure_tls: bool) -> tuple[str, ...]:
    return (*(("-e", endpoint) if endpoint else ()), *(("-k",) if insecure_tls else ()))


def _candidates(env: Mapping[str, str]) -> Iterator[str]:
    local = Path(env.get("HOME") or "~").expanduser() / ".local/bin"
    for name in (*_NAMES, *(str(local / name) for name in _NAMES)):
        if path := _usable(name, env):
            yield path


def _usable(name: str, env: Mapping[str, str]) -> str | None:
    found = shutil.which(name, path=env.get("PATH", os.defpath))
    return os.path.abspath(found) if found else None


def _read_answer(probe: subprocess.Popen[bytes]) -> bytes:
    """Its output until it ends, at most 4 KiB and 5 s."""
    assert probe.stdout is not None
    until = time.monotonic() + PROBE_LIMIT_S
    answer = b""
    with selectors.DefaultSelector() as ready:
        ready.register(probe.stdout, selectors.EVENT_READ)
        while len(answer) < _MAX_ANSWER_BYTES and (left := until - time.monotonic()) > 0:
            if not ready.select(left):
                break
            data = os.read(probe.stdout.fileno(), _MAX_ANSWER_BYTES)
            if not data:
                break
            answer += data
    return answer
