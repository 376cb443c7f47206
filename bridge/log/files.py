"""The few system calls that commit entries: the seam where tests let disks fill up and fail."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

_ZEROS: Final = bytes(1024 * 1024)


class Files:
    """The real ones."""

    def write(self, fd: int, pieces: Sequence[bytes | memoryview]) -> int:
        """As ``writev(2)``: how many bytes were written, perhaps not all."""
        return os.writev(fd, pieces)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file off at ``size`` bytes."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Put a file's bytes to disk, or a folder's names. May take long: not for the loop."""
        os.fsync(fd)

    def allocate(self, fd: int, size: int) -> None:
        """Make sure ``size`` bytes are there. Raises ``OSError`` where they are not."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            self.fill(fd, size)

    def fill(self, fd: int, size: int) -> None:
        """The same where the system has no call for it: write zeros."""
        at = 0
        while at < size:
            at += os.pwrite(fd, _ZEROS[: size - at], at)
