"""What is said of one operation of the HTTP surface: path, method, endpoint, access, words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from bridge.api.access import Access
from bridge.errors import Code

Endpoint = Callable[[Request], Awaitable[Response]]

SESSION: Final = "/v1/sessions/{sessionId}"
LIST: Final = ("limit", "cursor")
AGENT_PROBLEMS: Final[tuple[Code, ...]] = (
    "agent-error",
    "agent-auth-required",
    "agent-protocol-error",
    "agent-exited",
    "agent-unavailable",
    "agent-timeout",
    "at-capacity",
    "draining",
    "storage-full",
)
"""What may come of speaking with an agent, or of starting one."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path.

    ``body`` is the model of the request body; ``answers`` maps a status to the name of the schema
    of its JSON body (``""``: no body); ``problems`` are the codes of its own, beside those that
    any request may meet; ``query`` and ``headers`` name its parameters. ``is_strict``: a caller
    whose Accept header leaves no room for JSON is refused.
    """

    method: str
    path: str
    endpoint: Endpoint
    access: Access
    name: str
    summary: str
    answers: dict[int, str]
    body: type[BaseModel] | None = None
    is_body_optional: bool = False
    problems: tuple[Code, ...] = ()
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    is_stream: bool = False
    is_strict: bool = True
    tag: str = "sessions"
    notes: str = ""
