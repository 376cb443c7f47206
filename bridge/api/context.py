"""What the endpoints share: the runtime, the settings, and how streams end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from prometheus_client import CollectorRegistry
from starlette.requests import Request

from bridge.api import metrics
from bridge.config import Settings
from bridge.principal import Principal
from bridge.runtime.runtime import Runtime


@dataclass(slots=True)
class Context:
    """One per application; ``is_live`` tells whether a token is still good."""

    settings: Settings
    version: str
    is_live: Callable[[Principal], bool]
    runtime: Runtime | None = None
    registry: CollectorRegistry = field(init=False)
    streams_end: anyio.Event = field(default_factory=anyio.Event)
    streams: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registry = metrics.registry_of(
            lambda: self.runtime, lambda: sum(self.streams.values())
        )

    @property
    def running(self) -> Runtime:
        """The runtime, which exists while the application's lifespan lasts."""
        assert self.runtime is not None
        return self.runtime


def context_of(request: Request) -> Context:
    """The context of the application that got this request."""
    found = request.app.state.context
    assert isinstance(found, Context)
    return found
