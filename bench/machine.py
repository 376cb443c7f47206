"""What the figures were measured on, and what a process takes of it, read from ``/proc``.

Owns the reading of Linux' process table for one pid; elsewhere there is nothing to read and the
figures are zero. Knows nothing of bridges.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of processor time so far, resident MB now and at most, open descriptors."""

    cpu_s: float
    rss_mb: float
    peak_mb: float
    fds: int


def usage(pid: int) -> Usage:
    """What a process has taken. Raises ``OSError`` where it is gone."""
    folder = _PROC / str(pid)
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    status = dict(
        line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
    )
    return Usage(
        (int(fields[11]) + int(fields[12])) / _TICKS,
        _kilobytes(status.get("VmRSS", "0")) / 1024,
        _kilobytes(status.get("VmHWM", "0")) / 1024,
        len(os.listdir(folder / "fd")),
    )


def description() -> dict[str, Any]:
    """The machine: processor, cores, load, kernel and interpreter."""
    model = "unknown"
    info = _PROC / "cpuinfo"
    if info.exists():
        named = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = named[0].partition(":")[2].strip() if named else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "load": [round(each, 2) for each in os.getloadavg()],
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def descendants(pid: int) -> set[int]:
    """The processes below one, by parentage."""
    parents: dict[int, int] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
    found: set[int] = set()
    grown = {pid}
    while grown:
        grown = {child for child, parent in parents.items() if parent in grown} - found
        found |= grown
    return found


def is_alive(pid: int) -> bool:
    """Whether there is such a process, zombies not counted."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _kilobytes(text: str) -> int:
    return int(text.split()[0])
