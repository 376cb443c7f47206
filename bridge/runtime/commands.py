"""Everything that can be asked of the runtime, as frozen values.

One door: ``Runtime.submit(command)``. The HTTP surface, ACP's remote transport and a later
cluster node make these same objects, so nothing here may hold a socket, a task or a callback.
Each command names who asks (``principal``); whether they may is checked where it is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bridge.principal import Principal

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A caller's Idempotency-Key: ``body_hash`` is SHA-256 over the body's bytes, in hex."""

    method: str
    path: str
    key: str
    body_hash: str


@dataclass(frozen=True, slots=True)
class CreateSession:
    """Start a session, or take up the agent's own conversation ``resume``."""

    principal: Principal
    agent: str | None = None
    cwd: str | None = None
    title: str | None = None
    mode: str | None = None
    model: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    additional_directories: tuple[str, ...] = ()
    mcp_servers: Sequence[JsonObject] = ()
    metadata: JsonObject = field(default_factory=dict)
    permissions: JsonObject | None = None
    resume: str | None = None
    meta: JsonObject | None = None
    is_async: bool = False
    idempotency: Idempotency | None = None


@dataclass(frozen=True, slots=True)
class PatchSession:
    """Change what belongs to the caller; ``fields`` holds only what was sent."""

    principal: Principal
    session_id: str
    fields: JsonObject


@dataclass(frozen=True, slots=True)
class DeleteSession:
    """Close a session; ``purge`` removes its log as well."""

    principal: Principal
    session_id: str
    purge: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """Begin a turn. ``prompt`` is a list of ACP content blocks."""

    principal: Principal
    session_id: str
    prompt: tuple[JsonObject, ...]
    on_busy: Literal["reject", "queue", "interrupt"] = "reject"
    on_lost: Literal["fail", "new"] = "fail"
    resend_cancelled: bool = False
    meta: JsonObject | None = None
    idempotency: Idempotency | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the running turn (or ``turn_id``, if it is that one)."""

    principal: Principal
    session_id: str
    turn_id: str | None = None
    is_hard: bool = False


@dataclass(frozen=True, slots=True)
class CancelTurn:
    """Cancel this turn, whether it runs or is still queued."""

    principal: Principal
    session_id: str
    turn_id: str
    is_hard: bool = False


@dataclass(frozen=True, slots=True)
class SetMode:
    """Choose one of the agent's modes."""

    principal: Principal
    session_id: str
    mode_id: str


@dataclass(frozen=True, slots=True)
class SetModel:
    """Choose one of the agent's models, by its ACP id."""

    principal: Principal
    session_id: str
    model_id: str


@dataclass(frozen=True, slots=True)
class SetConfig:
    """Set one of the agent's configuration options."""

    principal: Principal
    session_id: str
    config_id: str
    value: Any


@dataclass(frozen=True, slots=True)
class CallExtension:
    """Call an extension method of the agent (``cursor/…`` or ``_…``)."""

    principal: Principal
    session_id: str
    method: str
    params: JsonObject


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a held request; ``body`` is the reply as it came, checked against the request."""

    principal: Principal
    session_id: str
    request_id: str
    body: Any
    idempotency: Idempotency | None = None


Command = (
    CreateSession
    | PatchSession
    | DeleteSession
    | Prompt
    | Cancel
    | CancelTurn
    | SetMode
    | SetModel
    | SetConfig
    | CallExtension
    | Reply
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command came to: the JSON object the contract shows for it.

    ``session_id`` names the session it concerned, ``is_repeat`` says that an idempotency key had
    been used before and ``value`` is what the first use made.
    """

    session_id: str
    value: dict[str, Any] | None
    is_repeat: bool = False
