"""Secrets and texts that the tests use, made so that they can be looked for in what bridges log.

Every secret of a test (tokens, keys in an agent's environment, headers of MCP servers) comes from
:func:`secret` and carries :data:`MARK`; tokens that a bridge makes and login links have shapes of
their own. Texts, what people prompt and agents answer, are handed to
:func:`said`. :func:`leaks` reads every log of a run: a secret may be in no line, a text in none
above debug level. The folder is the run's, see ``tests.run_log``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = "CURSOR_BRIDGE_TEST_LOGS"
"""The environment variable that names the run's folder, for pytest's workers too."""
MARK = "canary-key-"
_SECRET = re.compile(rb"canary-key-[a-z0-9/-]*|\bcab_[A-Za-z0-9_-]{20,}|loginDeepControl")
_SHORTEST_TEXT = 12
"""Shorter ones are words that a log may contain anyway."""
_MOST_OF_A_TEXT = 80
_said: set[str] = set()


class Leak(NamedTuple):
    """Where something was found that does not belong there."""

    path: Path
    line: int
    found: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.found}"


def secret(name: str) -> str:
    """A secret that no log may contain, the same for the same name (``[a-z0-9/-]+``)."""
    return f"{MARK}{name}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def log_file(name: str) -> Path | None:
    """A log of this run by that name and this process, ``None`` outside of a run."""
    folder = os.environ.get(FOLDER)
    return Path(folder, f"{name}-{os.getpid()}.log") if folder else None


def said(*texts: object) -> None:
    """Remember what a person or an agent said; what is no text or too short is left out."""
    folder = os.environ.get(FOLDER)
    for text in texts:
        if not folder or not isinstance(text, str) or len(text.strip()) < _SHORTEST_TEXT:
            continue
        part = json.dumps(text.strip()[:_MOST_OF_A_TEXT])[1:-1]
        if part not in _said:
            _said.add(part)
            with open(Path(folder, f"{os.getpid()}.said"), "a") as file:
                file.write(part + "\n")


def leaks(folder: Path) -> Iterator[Leak]:
    """Every place in the logs of ``folder`` where a secret is, or a text above debug level."""
    texts: set[bytes] = set()
    for path in folder.glob("*.said"):
        texts.update(path.read_bytes().splitlines())
    for path in sorted(folder.glob("*.log")):
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                for found in _SECRET.findall(line):
                    yield Leak(path, number, found.decode())
                if b'"level": "debug"' not in line:
                    for text in texts:
                        if text in line:
                            yield Leak(path, number, text.decode())
