"""What can go wrong, by whose doing it is.

    BridgeError                     carries a stable ``code`` and what helps to mend it
    ├── CallerError                 the HTTP request asks for what cannot be
    ├── AgentError                  the agent failed, refused, or broke the protocol
    ├── CapacityError               no room now; ``retry_after_s`` says when to come back
    └── StorageError                the log or the tables cannot take more

The codes are those of the HTTP contract; which status each one becomes is the business of
``api/problems.py`` alone. ``detail`` is written for the person who reads it: one sentence,
no stack trace, no token, no key.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

Code = Literal[
    "invalid-request",
    "unauthorized",
    "forbidden",
    "path-outside-roots",
    "origin-not-allowed",
    "method-not-allowed",
    "session-not-found",
    "turn-not-found",
    "request-not-found",
    "agent-not-found",
    "not-found",
    "http-method-not-allowed",
    "not-acceptable",
    "turn-in-progress",
    "request-already-answered",
    "session-closed",
    "session-already-open",
    "idempotency-conflict",
    "request-withdrawn",
    "session-lost",
    "body-too-large",
    "uri-too-long",
    "unsupported-media-type",
    "host-not-allowed",
    "mode-not-available",
    "model-not-available",
    "config-not-available",
    "content-not-supported",
    "reply-not-valid",
    "idempotency-key-reused",
    "agent-error",
    "agent-auth-required",
    "agent-protocol-error",
    "agent-exited",
    "rate-limited",
    "headers-too-large",
    "internal-error",
    "not-supported",
    "agent-unavailable",
    "at-capacity",
    "draining",
    "agent-timeout",
    "storage-full",
    "bridge-restarted",
    "turn-stalled",
]
CODES: tuple[Code, ...] = get_args(Code)


class BridgeError(Exception):
    """A failure with a code of the contract; ``extra`` are further members of the problem."""

    def __init__(
        self,
        code: Code,
        detail: str,
        *,
        hint: str | None = None,
        retry_after_s: int | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code: Code = code
        self.detail = detail
        self.hint = hint
        self.retry_after_s = retry_after_s
        self.extra = extra


class CallerError(BridgeError):
    """The caller can mend it by sending something else."""


class AgentError(BridgeError):
    """The agent process could not do it; the caller's request was fine."""


class CapacityError(BridgeError):
    """There is no room at the moment; the same request may go through later."""


class StorageError(BridgeError):
    """The disk is full or the store refuses writes."""
