"""What a request says beside its body: preferences, keys, query parameters.

Unknown query parameters are ignored, malformed ones are refused, numbers above their maximum are
clamped. Numbers are ASCII digits, nothing else: ``int()`` would take ``1_0`` and Arabic digits.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from bridge.api.body import read_body
from bridge.api.problems import MalformedRequest
from bridge.errors import CallerError
from bridge.principal import Principal
from bridge.runtime.commands import Idempotency

MAX_WAIT_S: Final = 50.0
MAX_LIMIT: Final = 200

_DIGITS: Final = re.compile(r"[0-9]+", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_PREFERENCE: Final = re.compile(r"wait\s*=\s*\"?([0-9]+)\"?")

_NO_OBJECT: Final = "Input should be a JSON object"
_DETAILS: Final = {
    "model_type": _NO_OBJECT,
    "dict_type": _NO_OBJECT,
    "extra_forbidden": "This member is not known here.",
}
"""Said in JSON's words where pydantic would name a class of ours, or Python's."""

Model = TypeVar("Model", bound=BaseModel)


def principal_of(request: Request) -> Principal:
    """Who asks, as the guard found out."""
    found = request.scope["state"]["principal"]
    assert isinstance(found, Principal)
    return found


async def body_of(request: Request, model: type[Model], *, is_optional: bool = False) -> Model:
    """The body as ``model``. Raises ``invalid-request`` with every error and where it is."""
    raw, value = await read_body(request)
    if raw:
        return checked(model, value)
    if is_optional:
        return checked(model, {})
    raise MalformedRequest("The body is empty; a JSON object is needed.")


async def required_body(request: Request) -> tuple[bytes, object]:
    """The body's bytes and value. Raises ``invalid-request`` (400) where there is none."""
    raw, value = await read_body(request)
    if not raw:
        raise MalformedRequest("The body is empty; a JSON object is needed.")
    return raw, value


def checked(model: type[Model], value: object) -> Model:
    """``value`` as ``model``. Raises ``invalid-request`` (422)."""
    try:
        return model.model_validate(value, by_alias=True)
    except ValidationError as error:
        errors = [
            {"pointer": _pointer(value, each), "detail": _detail(model, each)}
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        ][:50]
        raise CallerError("invalid-request", "The body does not fit.", errors=errors) from None


def _detail(model: type[Model], error: ErrorDetails) -> str:
    """What is wrong, and which members there are where one is not known."""
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        names = (field.alias or name for name, field in model.model_fields.items())
        return f"This member is not known here; there are {', '.join(names)}."
    return _DETAILS.get(error["type"], error["msg"])


def _pointer(value: object, error: ErrorDetails) -> str:
    """Where in the body ``value`` it is: a JSON pointer as a URI fragment (RFC 6901, 6).

    pydantic's places also name the branches of unions, which are nowhere in the body.
    """
    parts: list[str] = []
    for number, place in enumerate(error["loc"], 1):
        is_there = isinstance(value, list) or (isinstance(value, dict) and place in value)
        if is_there and isinstance(value, list) == isinstance(place, int):
            value = value[place]  # type: ignore[index]
        elif error["type"] != "missing" or number < len(error["loc"]):
            continue
        parts.append(str(place).replace("~", "~0").replace("/", "~1"))
    return "#" + "".join("/" + quote(part) for part in parts)


def key_of(request: Request, raw: bytes) -> Idempotency | None:
    """The Idempotency-Key with the hash of the body's bytes."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        raise MalformedRequest("An Idempotency-Key is 1 to 255 visible ASCII characters.")
    digest = hashlib.sha256(raw).hexdigest()
    return Idempotency(request.method, request.scope["path"], key, digest)


def number(text: str | None, name: str) -> int | None:
    """A number of 1 to 19 ASCII digits. Raises ``invalid-request`` (400)."""
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise MalformedRequest(f"{name} is a number of 1 to 19 digits.")
    return int(text)


def amount(text: str | None, name: str, maximum: int) -> int | None:
    """A number of ASCII digits, clamped to ``maximum``. Raises ``invalid-request`` (400)."""
    if text is None:
        return None
    if not _DIGITS.fullmatch(text):
        raise MalformedRequest(f"{name} is a number.")
    digits = text.lstrip("0")
    return maximum if len(digits) > len(str(maximum)) else min(int(digits or "0"), maximum)


def limit_of(request: Request, default: int = 50, maximum: int = MAX_LIMIT) -> int:
    """``?limit=``, at least 1, clamped to its maximum."""
    given = amount(request.query_params.get("limit"), "limit", maximum)
    if given is None:
        return default
    if given < 1:
        raise MalformedRequest("limit is at least 1.")
    return given


def wait_of(request: Request) -> float | None:
    """``Prefer: wait=SECONDS`` (RFC 7240), clamped."""
    for header in request.headers.getlist("prefer"):
        for part in header.split(","):
            if found := _PREFERENCE.fullmatch(part.strip().lower()):
                return amount(found[1], "wait", int(MAX_WAIT_S))
    return None


def prefers_async(request: Request) -> bool:
    """``Prefer: respond-async`` (RFC 7240)."""
    return any(
        part.strip().lower() == "respond-async"
        for header in request.headers.getlist("prefer")
        for part in header.split(",")
    )


def flag(text: str | None, default: bool) -> bool:
    """``true``/``false`` (or ``1``/``0``) of a query parameter."""
    if text is None:
        return default
    if text in ("true", "1"):
        return True
    if text in ("false", "0"):
        return False
    raise MalformedRequest("A flag is true or false.")
