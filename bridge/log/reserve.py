"""Room kept back for a full disk: a file that is given up so that running turns get their ends."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from bridge.log.files import Files

_PROBE_BYTES: Final = 1024 * 1024


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
        self.release()
        return self._allocate(self._path, self._size)

    def has_room(self) -> bool:
        """Whether the disk takes anything beside the reserve."""
        probe = self._path.with_name("probe")
        has_room = self._allocate(probe, _PROBE_BYTES)
        with contextlib.suppress(OSError):
            probe.unlink()
        return has_room

    def _allocate(self, path: Path, size: int) -> bool:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        try:
            self._files.allocate(fd, size)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            return False
        finally:
            os.close(fd)
        return True
