"""JSON-RPC 2.0, one message a line: bytes to messages and back, without IO.

Rules: a line is at most 64 MiB, a longer one is skipped to its end and reported; text leaves as
UTF-8, and as ``\\u`` escapes where it is no valid Unicode (half an emoji, as Node writes it). Knows
nothing of sessions. Source: JSON-RPC 2.0; ACP, stdio transport.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, Final

MAX_LINE_BYTES: Final = 64 * 1024 * 1024

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
AUTH_REQUIRED: Final = -32000


class RpcError(Exception):
    """An error object: of ours on its way out, or of the client on its way in."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def as_object(self) -> dict[str, Any]:
        """``{code, message, data?}``."""
        shown: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            shown["data"] = self.data
        return shown


def invalid_params(message: str) -> RpcError:
    """The error Cursor sends for a value it does not know: -32602 and ``data.message``."""
    return RpcError(INVALID_PARAMS, "Invalid params", {"message": message})


class LineSplitter:
    """Cuts bytes into lines, however they arrive.

    :meth:`feed` yields whole lines without their end, and ``None`` for one over the limit.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that ``data`` completes, in order."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._keep(end)
            yield self._take()
        if rest:
            self._keep(rest)

    def end(self) -> Iterator[bytes | None]:
        """What is left when the input ends without a line end."""
        if self._size:
            yield self._take()

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._max:
            self._parts.append(part)
        else:
            self._parts.clear()

    def _take(self) -> bytes | None:
        line = b"".join(self._parts) if self._size <= self._max else None
        self._parts.clear()
        self._size = 0
        return line


def decode(line: bytes) -> dict[str, Any]:
    """One message. Raises :class:`RpcError` (-32700, -32600) on anything else."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise RpcError(PARSE_ERROR, "Parse error") from None
    if not isinstance(message, dict):
        raise RpcError(INVALID_REQUEST, "Invalid request")
    return message


def encode(message: dict[str, Any]) -> bytes:
    """One line, with its end."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def quote(text: str) -> bytes:
    """``text`` as a JSON string."""
    try:
        return encode_basestring(text).encode()
    except UnicodeEncodeError:
        return encode_basestring_ascii(text).encode()


def request(request_id: int, method: str, params: dict[str, Any]) -> bytes:
    """The line of a request."""
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def notification(method: str, params: dict[str, Any]) -> bytes:
    """The line of a notification."""
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def result(request_id: Any, value: Any) -> bytes:
    """The line of a success."""
    return encode({"jsonrpc": "2.0", "id": request_id, "result": value})


def failure(request_id: Any, error: RpcError) -> bytes:
    """The line of an error; ``request_id`` is None where the request could not be read."""
    return encode({"jsonrpc": "2.0", "id": request_id, "error": error.as_object()})
