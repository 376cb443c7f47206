"""A small disk of its own for a bridge: a tmpfs, for which nobody needs to be root.

It is mounted in a user namespace that a helper process holds, so it is gone with that process
whatever happens to the test. A bridge sees it when its command line begins with ``Disk.prefix``;
the test reaches it through the holder's root folder. Where user namespaces are forbidden, root
mounts it for all to see.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_HOLD = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat'


@dataclass(frozen=True, slots=True)
class Disk:
    """``folder`` is where the test finds it, ``prefix`` what a command needs to see it."""

    folder: Path
    prefix: tuple[str, ...] = ()


@contextlib.contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[Disk]:
    """``folder`` as a file system of ``mib`` MiB while the block lasts; fails where none can be."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _HOLD, "sh"]
    with _holding([*command, f"{mib}m", str(folder)]) as (holder, complaint):
        if not complaint:
            target = f"--target={holder.pid}"
            yield Disk(
                Path(f"/proc/{holder.pid}/root{folder}"),
                ("nsenter", target, "--user", "--mount", "--preserve-credentials", "--"),
            )
            return
    with _mounted(folder, mib, complaint):
        yield Disk(folder)


@contextlib.contextmanager
def _holding(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process that holds the mount, or why there is none."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stderr is not None
        is_mounted = holder.stdout.readline() == "mounted\n"
        try:
            yield holder, "" if is_mounted else holder.stderr.read().strip() or "no word"
        finally:
            holder.stdin.close()


@contextlib.contextmanager
def _mounted(folder: Path, mib: int, complaint: str) -> Iterator[None]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(
            "A test of a full disk needs a small file system of its own: allow user namespaces, "
            f"or run it as root. unshare: {complaint}; mount: {done.stderr.strip()}"
        )
    try:
        yield
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
