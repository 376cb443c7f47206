"""The few system calls that commit entries: the seam where tests let disks fill up and fail."""

from __future__ import annotations

import os
from collections.abc import Sequence


class Files:
    """The real ones."""

    def write(self, fd: int, pieces: Sequence[bytes]) -> int:
        """As ``writev(2)``: how many bytes were written, perhaps not all."""
        return os.writev(fd, pieces)

    def allocate(self, fd: int, size: int) -> None:
        """Make sure ``size`` bytes are there. Raises ``OSError`` where they are not."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            os.pwrite(fd, b"\0" * size, 0)
