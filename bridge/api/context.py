"""What the endpoints share: the runtime, the settings, and how streams end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
from prometheus_client import CollectorRegistry
from starlette.requests import Request

from bridge.api import metrics
from bridge.config import Settings
from bridge.errors import CallerError, CapacityError
from bridge.principal import Principal
from bridge.runtime.runtime import Runtime
from bridge.tokens import TokenStore


@dataclass(slots=True)
class Context:
    """One per application; ``tokens`` tells whether one is still good."""

    settings: Settings
    version: str
    tokens: TokenStore
    runtime: Runtime | None = None
    registry: CollectorRegistry = field(init=False)
    streams_end: anyio.Event = field(default_factory=anyio.Event)
    streams: dict[str, int] = field(default_factory=dict)
    _waits: set[anyio.CancelScope] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.registry = metrics.registry_of(
            lambda: self.runtime, lambda: sum(self.streams.values())
        )

    @property
    def running(self) -> Runtime:
        """The runtime, which exists while the application's lifespan lasts."""
        assert self.runtime is not None
        return self.runtime

    def end_streams(self) -> None:
        """End every stream and every wait, now and from now on."""
        self.streams_end.set()
        for scope in self._waits:
            scope.cancel()

    @contextmanager
    def waiting(self, principal: Principal, limit_s: float) -> Iterator[None]:
        """Await inside for ``limit_s`` at most, while the token lives and streams last."""
        with self.tokens.while_live(principal, limit_s) as scope:
            self._waits.add(scope)
            try:
                if self.streams_end.is_set():
                    scope.cancel()
                yield
            finally:
                self._waits.discard(scope)

    @contextmanager
    def counted(self, principal: Principal) -> Iterator[None]:
        """A stream, or a wait that is as good as one, counts against its token meanwhile.

        Raises ``rate-limited`` where the token holds as many open as it may.
        """
        key = _key(principal)
        held = self.streams.get(key, 0)
        if held >= self.settings.limits.streams_per_token:
            raise CapacityError(
                "rate-limited", "This token has too many open streams and waits.", retry_after_s=5
            )
        self.streams[key] = held + 1
        try:
            yield
        finally:
            self.streams[key] -= 1
            if not self.streams[key]:
                del self.streams[key]

    def check_live(self, principal: Principal) -> None:
        """After a wait: raises ``unauthorized`` where the token did not outlive it."""
        if not self.tokens.is_live(principal.token_id):
            raise CallerError("unauthorized", "The token is not valid any more.")


def _key(principal: Principal) -> str:
    return principal.token_id or principal.token_name


def context_of(request: Request) -> Context:
    """The context of the application that got this request."""
    found = request.app.state.context
    assert isinstance(found, Context)
    return found
