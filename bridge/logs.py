"""Logging of the whole process: one line per record, redacted, JSON or for a person's eyes.

Owns the root logger's only handler and how the libraries' loggers are routed into it. Whatever a
record contains, it is one line: everything beyond printable ASCII is escaped. Everything written
goes through :func:`bridge.redact.redact`. Records that would tell what a caller sent (stream
chunks, request lines with their query) are not written at all.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from bridge.clock import rfc3339
from bridge.redact import redact

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
    "websocket",
}
LEAST_LEVELS = {
    "asyncio": logging.WARNING,
    "sse_starlette": logging.WARNING,
    "sse_starlette.sse": logging.WARNING,
    "uvicorn.error": logging.WARNING,
    "websockets": logging.WARNING,
}
"""Loggers that would tell of every chunk, frame, header or query at a lower level, prompts and
tokens included. To ``uvicorn.error`` uvicorn has the WebSocket library write too; how it starts and
stops is said by the bridge itself, in fewer words."""
_UNWANTED = (
    '%s - "WebSocket %s"',
    "Invalid HTTP request received.",
    "Unsupported upgrade request.",
    "connection rejected (",
    "ASGI callable returned without completing handshake.",
)
"""What uvicorn says of request lines, with their query, and once for each bad request: strangers
could fill the disk with it."""


class LineFormatter(logging.Formatter):
    """A record as one line of printable ASCII: JSON, or ``key=value`` after the message."""

    def __init__(self, *, is_json: bool, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._is_json = is_json
        self._secrets = tuple(secrets)

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        fields: dict[str, Any] = {
            "time": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._message(record),
        }
        for key, value in vars(record).items():
            if key not in _STANDARD and key not in fields:
                fields[key] = self._clean(value)
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = self._clean(self.formatException(record.exc_info))
        return json.dumps(fields) if self._is_json else _for_people(fields)

    def _message(self, record: logging.LogRecord) -> str:
        try:
            text = record.getMessage()
        except Exception as error:
            text = f"{record.msg!r} (not formatted: {type(error).__name__})"
        return redact(text, self._secrets).rstrip()

    def _clean(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        return redact(value if isinstance(value, str) else str(value), self._secrets)


def handler(
    stream: TextIO, *, secrets: Iterable[str] = (), is_json: bool
) -> logging.StreamHandler[TextIO]:
    """What writes records to ``stream``, by the rules of this module."""
    made = logging.StreamHandler(stream)
    made.setFormatter(LineFormatter(is_json=is_json, secrets=secrets))
    made.addFilter(_is_wanted)
    return made


def configure(
    level: str,
    stream: TextIO | None = None,
    *,
    secrets: Iterable[str] = (),
    is_json: bool | None = None,
) -> None:
    """Send everything to ``stream`` (stderr where none is given); to be called once, at start.

    JSON unless that is a terminal, or as ``is_json`` says. ``level`` is a name of the settings
    (``debug`` to ``error``).
    """
    stream = stream or sys.stderr
    if is_json is None:
        is_json = not stream.isatty()
    root = logging.getLogger()
    root.handlers[:] = [handler(stream, secrets=secrets, is_json=is_json)]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    for name, least in LEAST_LEVELS.items():
        logging.getLogger(name).setLevel(max(least, root.level))
    # A reader of our stderr that went away must not become an error in whoever logs.
    logging.raiseExceptions = False


def _is_wanted(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_UNWANTED)


def _for_people(fields: dict[str, Any]) -> str:
    rest = dict(fields)
    head = [str(rest.pop("time")), str(rest.pop("level")).upper().ljust(7)]
    message = json.dumps(rest.pop("message"))[1:-1].replace('\\"', '"')
    rest.pop("logger")
    return " ".join([*head, message, *(f"{key}={json.dumps(item)}" for key, item in rest.items())])
