"""The application: guard outside, routes inside, the runtime for as long as it is served."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version as installed_version

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from bridge.api import openapi, operations, problems, reference
from bridge.api.access import resolver
from bridge.api.context import Context
from bridge.api.guard import Guard
from bridge.api.rates import Rates
from bridge.config import Settings
from bridge.runtime.runtime import open_runtime
from bridge.runtime.services import Audit, no_audit
from bridge.runtime.spawn import Spawner
from bridge.tokens import TokenStore

VERSION = installed_version("cursor-acp-bridge")


@dataclass(frozen=True, slots=True)
class Application:
    """``asgi`` is what is served, ``routes`` what is behind its guard.

    ``context`` is how the server ends streams and drains, ``rates`` what each caller may do in a
    minute.
    """

    asgi: ASGIApp
    context: Context
    routes: Sequence[BaseRoute]
    rates: Rates

    def reload(self, settings: Settings) -> None:
        """Take over roots and limits while serving; the size of bodies stays as it was."""
        context = self.context
        taken = {"roots": settings.roots, "limits": settings.limits}
        context.settings = context.settings.model_copy(update=taken)
        self.rates.set(**_allowances(settings))
        if context.runtime is not None:
            context.runtime.reload(settings)

    async def drain(self) -> None:
        """End turns within the grace time, then streams; new work is refused meanwhile."""
        if self.context.runtime is not None:
            await self.context.runtime.drain()
        self.context.end_streams()


def build(
    settings: Settings,
    tokens: TokenStore,
    *,
    spawn: Spawner,
    state_tag: str,
    audit: Audit = no_audit,
    clock: Callable[[], float] = time.time,
) -> Application:
    """The application with these settings. Nothing runs before its lifespan begins."""
    context = Context(settings=settings, version=VERSION, tokens=tokens)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        async with open_runtime(
            settings,
            spawn=spawn,
            state_tag=state_tag,
            version=VERSION,
            clock=clock,
            audit=audit,
            describe=problems.as_json,
        ) as runtime:
            context.runtime = runtime
            runtime.services.tasks.start_soon(tokens.watch)
            try:
                yield
            finally:
                context.end_streams()
                context.runtime = None

    routes = operations.routes()
    app = Starlette(routes=routes, exception_handlers=problems.HANDLERS, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.state.context = context
    app.state.described = _described
    rates = Rates(**_allowances(settings), clock=time.monotonic)
    guarded = Guard(
        app,
        settings=settings,
        access=resolver(routes),
        tokens=tokens,
        rates=rates,
        audit=audit,
    )
    return Application(guarded, context, routes, rates)


@cache
def _described() -> tuple[str, str]:
    """The OpenAPI document and the page made of it: a matter of 30 ms, spent on who asks."""
    document = openapi.document(VERSION)
    return json.dumps(document), reference.page(document)


def _allowances(settings: Settings) -> dict[str, int]:
    limits = settings.limits
    return {
        "failed_logins": limits.failed_logins_per_minute,
        "prompts": limits.prompts_per_minute,
        "sessions": limits.sessions_per_minute,
    }
