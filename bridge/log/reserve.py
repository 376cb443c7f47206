"""Room kept back for a full disk: a file that is given up so that running turns get their ends."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from bridge.log.files import Files


class Reserve:
    """``size`` bytes at ``path``; none where ``size`` is 0 or there is no room to begin with."""

    def __init__(self, path: Path, size: int, files: Files) -> None:
        self._path = path
        self._size = size
        self._files = files
        self.restore()

    def release(self) -> bool:
        """Give the room up; whether there was any."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True

    def restore(self) -> bool:
        """Take the room again; whether that succeeded."""
        if not self._size:
            return True
        try:
            if self._path.stat().st_size == self._size:
                return True
        except OSError:
            pass
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        try:
            self._files.allocate(fd, self._size)
        except OSError:
            with contextlib.suppress(OSError):
                self._path.unlink()
            return False
        finally:
            os.close(fd)
        return True
