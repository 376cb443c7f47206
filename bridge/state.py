"""The state folder: private to its user, used by one bridge at a time, known by an id of its own.

The id is in the run tag of every agent process, so that a later start finds what this one left
behind and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path
from typing import Final

from bridge.tokens import StartupError

_ID_BYTES: Final = 8


class StateDir:
    """An opened and locked state folder. Raises :class:`StartupError` where it cannot be had."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chmod(path, 0o700)
            self._fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartupError(
                f"The state folder {path} cannot be used: {error.strerror}."
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise StartupError(
                f"Another bridge uses the state folder {path}; "
                "give this one its own with --state-dir."
            ) from None
        self.tag = self._read_id()

    def close(self) -> None:
        """Let the next bridge have it."""
        os.close(self._fd)

    def _read_id(self) -> str:
        os.lseek(self._fd, 0, os.SEEK_SET)
        known = os.read(self._fd, 2 * _ID_BYTES).decode("ascii", "replace")
        if len(known) == 2 * _ID_BYTES and known.isalnum():
            return known
        made = secrets.token_hex(_ID_BYTES)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, made.encode("ascii"), 0)
        return made
