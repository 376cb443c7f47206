"""What the demo agent keeps on disk: conversations, and the commands that are always allowed.

Rules: a conversation is a file of JSON lines, ``{"session": {sessionId, cwd, createdAt}}``, then
``{"title": …}`` and ``{"turn": {prompt, items}}`` in the order they happened; a turn is one write
when it has ended, so an interrupted one is absent (Hezaerd/noyau#64). Files are 0600 in folders
0700. A line that cannot be read is passed over. An id that is no UUID is no file's name. Knows
nothing of the protocol but the shape of what it keeps.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_HEAD_BYTES: Final = 64 * 1024
_LISTED_AT_MOST: Final = 200


@dataclass(slots=True)
class Saved:
    """A conversation as it was kept; ``turns`` are ``{prompt: [block], items: [item]}``."""

    session_id: str
    cwd: str
    title: str | None = None
    turns: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of the list; ``updated_at`` is in seconds since the epoch."""

    session_id: str
    cwd: str
    title: str | None
    updated_at: float


def home_of(env: Mapping[str, str]) -> Path:
    """The folder of everything kept."""
    if env.get("CURSOR_DEMO_HOME"):
        return Path(env["CURSOR_DEMO_HOME"])
    if env.get("XDG_STATE_HOME"):
        return Path(env["XDG_STATE_HOME"]) / "cursor-bridge-demo"
    return Path(env.get("HOME") or Path.home()) / ".local/state/cursor-bridge-demo"


class Store:
    """The conversations under one folder. Methods raise ``OSError`` where the disk fails."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._sessions = home / "sessions"
        self._allowed = home / "allowlist"

    def create(self, session_id: str, cwd: str, created_at: float) -> None:
        """Begin a conversation."""
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sessions.mkdir(mode=0o700, exist_ok=True)
        head = {"sessionId": session_id, "cwd": cwd, "createdAt": created_at}
        self._append(self._path(session_id), {"session": head})

    def add_title(self, session_id: str, title: str) -> None:
        """Name a conversation; comes before its first turn, so that a list reads two lines."""
        self._append(self._path(session_id), {"title": title})

    def add_turn(self, session_id: str, turn: dict[str, Any]) -> None:
        """Keep a turn that has ended."""
        self._append(self._path(session_id), {"turn": turn})

    def load(self, session_id: str) -> Saved | None:
        """A conversation, or None where there is none."""
        if not _ID.fullmatch(session_id):
            return None
        try:
            with open(self._path(session_id), "rb") as file:
                return _fold(_records(file))
        except FileNotFoundError:
            return None

    def list(self, cwd: str | None) -> list[Listed]:
        """The conversations, latest first, all or those of one folder."""
        found = [each for each in self._listed() if cwd is None or each.cwd == cwd]
        found.sort(key=lambda each: each.updated_at, reverse=True)
        return found[:_LISTED_AT_MOST]

    def allow(self, command: str) -> None:
        """Never ask about this command again: in no session, as Cursor's allowlist."""
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._append(self._allowed, command)

    def is_allowed(self, command: str) -> bool:
        """Whether it was allowed for always."""
        try:
            with open(self._allowed, "rb") as file:
                return command in _lines(file)
        except OSError:
            return False

    def _listed(self) -> Iterator[Listed]:
        try:
            entries = list(os.scandir(self._sessions))
        except FileNotFoundError:
            return
        for entry in entries:
            try:
                with open(entry.path, "rb") as file:
                    head = [file.readline(_HEAD_BYTES) for _ in range(2)]
                saved = _fold(_records(head))
                updated_at = entry.stat().st_mtime
            except OSError:
                continue
            if saved is not None:
                yield Listed(saved.session_id, saved.cwd, saved.title, updated_at)

    def _path(self, session_id: str) -> Path:
        return self._sessions / f"{session_id}.jsonl"

    def _append(self, path: Path, record: Any) -> None:
        data = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "ab", buffering=0) as file:
            file.write(data)


def _lines(file: Any) -> Iterator[Any]:
    for line in file:
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            continue


def _records(file: Any) -> Iterator[dict[str, Any]]:
    return (record for record in _lines(file) if isinstance(record, dict))


def _fold(records: Iterator[dict[str, Any]]) -> Saved | None:
    saved: Saved | None = None
    for record in records:
        match record:
            case {"session": {"sessionId": str(session_id), "cwd": str(cwd)}} if saved is None:
                saved = Saved(session_id, cwd)
            case {"title": str(title)} if saved is not None:
                saved.title = title
            case {"turn": {"prompt": list(), "items": list()} as turn} if saved is not None:
                saved.turns.append(turn)
    return saved
