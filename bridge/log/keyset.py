"""Lists in pages: where the next one begins, as a text that callers hand back.

A cursor names the last row that was shown, not how many: rows that move or come in between make
no page repeat or skip what stayed where it was. It is base64 of JSON, opaque to callers, and no
secret: it narrows a list further and opens nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from bridge.errors import CallerError

MAX_INTEGER: Final = 2**63 - 1

_Row = TypeVar("_Row")
_Parts = TypeVar("_Parts")
_Key = TypeVar("_Key", bound=tuple[Any, ...])
_Integer = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
_SESSIONS: Final = msgspec.json.Decoder(tuple[Literal["s"], float, str])
_REQUESTS: Final = msgspec.json.Decoder(tuple[Literal["r"], float, _Integer])
_TURNS: Final = msgspec.json.Decoder(tuple[Literal["t"], _Integer])


def after_session(cursor: str | None) -> tuple[float, str]:
    """The time and id to go on below; without a cursor, those above every session."""
    if cursor is None:
        return float("inf"), ""
    _, time, session_id = _decode(cursor, _SESSIONS)
    return time, session_id


def after_request(cursor: str | None) -> tuple[float, int]:
    """The time and row to go on above; without a cursor, those below every request."""
    if cursor is None:
        return float("-inf"), 0
    _, time, row_id = _decode(cursor, _REQUESTS)
    return time, row_id


def after_turn(cursor: str | None) -> int:
    """The number to go on below; without a cursor, one above every turn's."""
    return MAX_INTEGER if cursor is None else _decode(cursor, _TURNS)[1]


def session_cursor(updated_at: float, session_id: str) -> str:
    """The cursor of the page after this session."""
    return _encode(["s", updated_at, session_id])


def request_cursor(created_at: float, row_id: int) -> str:
    """The cursor of the page after this request."""
    return _encode(["r", created_at, row_id])


def turn_cursor(number: int) -> str:
    """The cursor of the page after this turn."""
    return _encode(["t", number])


def cut(rows: list[_Row], limit: int) -> tuple[list[_Row], _Row | None]:
    """The page, and its last row where ``rows`` (read with one to spare) say that more follow."""
    page = rows[: max(limit, 0)]
    return page, page[-1] if page and len(rows) > limit else None


def merge(lists: Iterable[list[_Key]], limit: int, *, is_descending: bool) -> list[_Key]:
    """The first ``limit`` keys of lists that are sorted each for itself."""
    found = [key for keys in lists for key in keys]
    found.sort(reverse=is_descending)
    return found[:limit]


def _encode(parts: list[Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")


def _decode(cursor: str, decoder: msgspec.json.Decoder[_Parts]) -> _Parts:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return decoder.decode(base64.b64decode(padded, altchars="-_", validate=True))
    except (ValueError, msgspec.DecodeError):
        raise CallerError(
            "invalid-request",
            "The cursor is none that this list has given out.",
            hint="Take it from nextCursor as it is, or leave it out to begin anew.",
        ) from None
