"""Reads JSON bodies, and takes none that two parsers could understand differently.

Refused with 400: bad UTF-8, bad JSON, nesting beyond the parser, ``NaN``, infinities, numbers
too large for 64 bits or a double, lone surrogates, keys that come twice (RFC 8259, 4 and 8.2).
The bytes themselves are at hand too, since idempotency compares them.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from starlette.requests import Request

from bridge.api.problems import MalformedRequest

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_MOST_DIGITS = 20


async def read_body(request: Request) -> tuple[bytes, Any]:
    """The body's bytes and its value, ``(b"", None)`` where there is none.

    How large it may be is the guard's business: more than that never comes out of ``receive``.
    Raises :class:`MalformedRequest`.
    """
    raw = await request.body()
    return raw, parse_json(raw) if raw else None


def parse_json(body: bytes) -> Any:
    """The value of ``body``; raises :class:`MalformedRequest` where it is no good JSON."""
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_no_constant,
        )
        if _SURROGATE.search(body):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError:
        raise MalformedRequest("The body is not UTF-8.") from None
    except UnicodeEncodeError:
        raise MalformedRequest("The body has half of a surrogate pair in a text.") from None
    except RecursionError:
        raise MalformedRequest("The body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise MalformedRequest(
            f"The body is no JSON: {error.msg}, line {error.lineno}, column {error.colno}."
        ) from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedRequest("The body has an object with the same key twice.")
    return found


def _integer(text: str) -> int:
    if len(text) <= _MOST_DIGITS:
        value = int(text)
        if -(2**63) <= value < 2**64:
            return value
    raise MalformedRequest("The body has an integer of more than 64 bits.")


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise MalformedRequest("The body has a number that is too large.")
    return value


def _no_constant(name: str) -> NoReturn:
    raise MalformedRequest(f"{name} is no JSON.")
