"""What each route asks of its caller, declared beside the route and nowhere else.

Routes are made as :class:`GuardedRoute`, :class:`GuardedSocket` or :class:`GuardedMount` with an
:class:`Access`; :func:`resolver` turns the application's route table into the one question the
guard asks. A route without an ``Access`` needs ``admin``: forgetting one locks, never opens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from starlette.routing import BaseRoute, Match, Mount, Route, WebSocketRoute
from starlette.types import ASGIApp

from bridge.principal import Principal
from bridge.principal import Scope as TokenScope

Rate = Literal["prompts", "sessions"]


@dataclass(frozen=True, slots=True)
class Access:
    """``scope`` a token must have (``None``: any live token), unless ``is_public``.

    ``instead`` is a scope that does as well. ``rate`` names the allowance per token that a request
    uses up.
    """

    scope: TokenScope | None
    is_public: bool = False
    rate: Rate | None = None
    instead: TokenScope | None = None

    @property
    def scopes(self) -> tuple[TokenScope, ...]:
        """The scopes any one of which is enough; none where every live token is."""
        return tuple(each for each in (self.scope, self.instead) if each is not None)

    def admits(self, principal: Principal) -> bool:
        """Whether the token's scopes are enough."""
        return not self.scopes or any(map(principal.may, self.scopes))


PUBLIC = Access(None, is_public=True)
ANY_TOKEN = Access(None)
READ = Access("read")
PROMPT = Access("prompt")
APPROVE = Access("approve")
CANCEL = Access("prompt", instead="approve")
ADMIN = Access("admin")

Resolver = Callable[[Mapping[str, Any]], Access]


class GuardedRoute(Route):
    """An HTTP route that says what it takes to use it."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        access: Access,
        methods: list[str],
        name: str | None = None,
    ) -> None:
        super().__init__(path, endpoint, methods=methods, name=name)
        self.access = access


class GuardedSocket(WebSocketRoute):
    """A WebSocket route that says what it takes to use it."""

    def __init__(
        self, path: str, endpoint: Callable[..., Any], *, access: Access, name: str | None = None
    ) -> None:
        super().__init__(path, endpoint, name=name)
        self.access = access


class GuardedMount(Mount):
    """An application under a path, all of it for the same callers."""

    def __init__(self, path: str, app: ASGIApp, *, access: Access, name: str | None = None) -> None:
        super().__init__(path, app, name=name)
        self.access = access


def resolver(routes: Sequence[BaseRoute]) -> Resolver:
    """The access that ``routes`` declare for a scope, decided from its ``path`` alone.

    A known path with another method has the access of its first route, so that 405 tells no more
    than the route itself; an unknown path needs a token, and is a 404 for those who have one.
    """

    table = [
        (route, route.path_regex.match if isinstance(route, Route) else None, declared(route))
        for route in routes
    ]

    def access_for(scope: Mapping[str, Any]) -> Access:
        path = "" if scope.get("root_path") else scope["path"]
        partial: Access | None = None
        for route, fits, access in table:
            # Most routes do not fit; a look at the regular expression alone says so cheaply.
            if fits is not None and path and fits(path) is None:
                continue
            match, _ = route.matches(dict(scope))
            if match is Match.FULL:
                return access
            if match is Match.PARTIAL and partial is None:
                partial = Access(None, is_public=access.is_public)
        return partial or ANY_TOKEN

    return access_for


def declared(route: BaseRoute) -> Access:
    """The access ``route`` was made with; ``ADMIN`` where it was made without."""
    access = getattr(route, "access", ADMIN)
    return access if isinstance(access, Access) else ADMIN
