"""Who did what: one line of JSON per act, in a file of its own that is kept small.

Rules: an act is one line whatever its texts contain (everything beyond ASCII is escaped, so that
neither a line break nor U+2028, an escape sequence or a change of writing direction can make up
another one); texts are redacted and cut; prompts and agents' words do not belong here. The file
is 0600 and rotated by size. Writing never fails an act: what cannot be written is counted, and
said by the next line that can.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bridge.clock import rfc3339
from bridge.redact import redact

FILE_NAME = "audit.jsonl"
_MOST_CHARACTERS = 1024

logger = logging.getLogger(__name__)


class AuditLog:
    """An append-only log; :meth:`write` is what others are handed."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float],
        *,
        secrets: Iterable[str] = (),
        max_bytes: int = 10 * 1024**2,
        keep: int = 5,
    ) -> None:
        """``keep`` older files stay beside ``path`` as ``….1`` (the youngest) to ``….keep``."""
        self._path = path
        self._clock = clock
        self._secrets = tuple(secrets)
        self._max_bytes = max_bytes
        self._keep = keep
        self._file: int | None = None
        self._size = 0
        self._lost = 0

    def write(self, event: str, **fields: Any) -> None:
        """Write one line: ``time``, ``event`` and ``fields`` (``None`` left out). Never raises."""
        try:
            self._append(self._line(event, fields))
        except Exception:
            if not self._lost:
                logger.exception("The audit log %s cannot be written.", self._path)
            self._lost += 1
            self.close()
        else:
            self._lost = 0

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _line(self, event: str, fields: dict[str, Any]) -> bytes:
        record: dict[str, Any] = {"time": rfc3339(self._clock()), "event": event}
        if self._lost:
            record["lostBefore"] = self._lost
        record |= {key: self._clean(value) for key, value in fields.items() if value is not None}
        return json.dumps(record, default=self._clean_other).encode("ascii") + b"\n"

    def _clean(self, value: Any) -> Any:
        match value:
            case str():
                text = redact(value, self._secrets)
                return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"
            case dict():
                return {str(key): self._clean(item) for key, item in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self._clean(item) for item in value]
            case _:
                return value

    def _clean_other(self, value: Any) -> Any:
        return self._clean(str(value))

    def _append(self, line: bytes) -> None:
        if self._file is None:
            self._open()
        if self._size + len(line) > self._max_bytes and self._size:
            self._rotate()
        assert self._file is not None
        written = os.write(self._file, line)
        self._size += written
        if written < len(line):
            raise OSError("short write")

    def _open(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._file).st_size

    def _rotate(self) -> None:
        self.close()
        for number in range(self._keep - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                os.replace(older, self._numbered(number + 1))
        if self._keep:
            os.replace(self._path, self._numbered(1))
        else:
            self._path.unlink()
        self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
