"""How the commands speak to the person at the terminal.

What is to be typed is told as it works where it is read: a program that is not on PATH is named
by the path it was started by.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from bridge.config import Storage, state_dir_of

_NAME = "cursor-bridge"


def program(started: str | None = None) -> str:
    """This program, ``started`` by that word, as it can be started again from the same place."""
    started = started or sys.argv[0]
    if not os.path.basename(started).startswith(_NAME):
        return f"{shlex.quote(sys.executable)} -m bridge.cli.main"
    found = shutil.which(_NAME)
    is_found = found is not None and os.path.realpath(found) == os.path.realpath(started)
    return _NAME if is_found else shlex.quote(started)


def creates_token(state_dir: Path) -> str:
    """The command that makes a token for the bridge of this state folder."""
    is_usual = state_dir == state_dir_of(Storage())
    where = "" if is_usual else f" --state-dir {shlex.quote(str(state_dir))}"
    return f"{program()} token create --name mine{where}"


def as_typed(text: str) -> str:
    """``text`` with every command in backticks as :func:`program` spells it."""
    return text.replace(f"`{_NAME} ", f"`{program()} ")
