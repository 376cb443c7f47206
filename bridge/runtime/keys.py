"""Idempotency keys: one request, one effect, however often it is sent.

A key belongs to an owner, a method and a path. Only a success is recorded, in the very record
that makes the session, turn or answer; until that commit a second use is told to wait.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final

from bridge.errors import CallerError
from bridge.protocol.acp import loads
from bridge.runtime.commands import Idempotency
from bridge.runtime.services import Services

KEEP_S: Final = 24 * 3600.0
_RETRY_AFTER_S: Final = 1

_Place = tuple[str, str, str, str]


class Claim:
    """Leave to carry out one request; ``ref`` is set where that has been done before."""

    def __init__(
        self,
        owner: str,
        asked: Idempotency | None,
        under_way: dict[_Place, str],
        ref: dict[str, Any] | None = None,
    ) -> None:
        self.ref = ref
        self._owner = owner
        self._asked = asked
        self._under_way = under_way

    def meta(self, ref: dict[str, Any]) -> dict[str, Any] | None:
        """What goes into the record that makes ``ref``; ``None`` without a key."""
        asked = self._asked
        if asked is None:
            return None
        key = {
            "owner": self._owner,
            "method": asked.method,
            "path": asked.path,
            "key": asked.key,
            "bodyHash": asked.body_hash,
            "ref": ref,
        }
        return {"key": key}

    def __enter__(self) -> Claim:
        if self._asked is not None:
            self._under_way[_place(self._owner, self._asked)] = self._asked.body_hash
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._asked is not None:
            self._under_way.pop(_place(self._owner, self._asked), None)


class Keys:
    """All keys: those under way here, those that led to something in the tables."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._under_way: dict[_Place, str] = {}

    def claim(self, owner: str, asked: Idempotency | None) -> Claim:
        """Look a key up. Raises ``idempotency-key-reused`` or ``idempotency-conflict``."""
        if asked is None:
            return Claim(owner, None, self._under_way)
        row = self._services.tables.key(owner, asked.method, asked.path, asked.key)
        if row is not None and row.created_at >= self._services.clock() - KEEP_S:
            _check_body(row.body_hash, asked)
            return Claim(owner, asked, self._under_way, loads(row.ref))
        running = self._under_way.get(_place(owner, asked))
        if running is None:
            return Claim(owner, asked, self._under_way)
        _check_body(running, asked)
        raise CallerError(
            "idempotency-conflict",
            "The first request with this key is still being carried out.",
            retry_after_s=_RETRY_AFTER_S,
        )


def _check_body(known: str, asked: Idempotency) -> None:
    if known != asked.body_hash:
        raise CallerError(
            "idempotency-key-reused", "This Idempotency-Key was used with another body."
        )


def _place(owner: str, asked: Idempotency) -> _Place:
    return (owner, asked.method, asked.path, asked.key)
