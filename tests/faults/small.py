"""A small disk of its own for a bridge: a tmpfs, which only root can mount."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[Path]:
    """``folder`` as a file system of ``mib`` MiB while the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path, *, leave: int = 0) -> None:
    """Take all the room of the disk that ``path`` is on, but for ``leave`` bytes."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for size in (1024 * 1024, 65536, 4096, 512, 1):
            while _takes(handle, size):
                pass
        if leave:
            os.ftruncate(handle, os.fstat(handle).st_size - leave)
    finally:
        os.close(handle)


def _takes(handle: int, size: int) -> bool:
    try:
        return os.write(handle, b"\0" * size) == size
    except OSError:
        return False
