"""Every operation of the HTTP surface in one table.

The router, the guard and the OpenAPI document are all made from it, so that none can say
something the others do not.
"""

from __future__ import annotations

from functools import wraps
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from bridge.api import bridge_operations, session_operations
from bridge.api.access import GuardedRoute
from bridge.api.negotiation import JSON, STREAM, check_acceptable
from bridge.api.operation import Endpoint, Operation

OPERATIONS: Final[tuple[Operation, ...]] = (
    *bridge_operations.OPERATIONS,
    *session_operations.OPERATIONS,
)


def routes() -> list[GuardedRoute]:
    """The router's table."""
    return [
        GuardedRoute(
            each.path,
            _acceptable(each) if each.is_strict else each.endpoint,
            access=each.access,
            methods=[each.method],
            name=each.name,
        )
        for each in OPERATIONS
    ]


def _acceptable(operation: Operation) -> Endpoint:
    """The endpoint, reached only by callers who take one of its forms."""
    offered = (JSON, STREAM) if operation.is_stream else (JSON,)

    @wraps(operation.endpoint)
    async def endpoint(request: Request) -> Response:
        check_acceptable(request, offered)
        return await operation.endpoint(request)

    return endpoint
