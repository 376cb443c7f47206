"""JSON responses that survive whatever an agent sent: lone surrogates stay escapes."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from bridge.protocol.acp import dumps


class JsonResponse(Response):
    """``application/json``; ``dumps`` is the tolerant one of the protocol layer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """One line of UTF-8 JSON."""
        return dumps(content)
