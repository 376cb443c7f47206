"""The login, played: none is needed unless asked for.

Rules: ``""`` is signed in from the start; ``needed`` answers session/new with -32000 until
authenticate was called; ``refused`` fails that as well, as on a box without a browser
(pingdotgg/t3code#7245).
"""

from __future__ import annotations

from typing import Any

from bridge.demo.wire import AUTH_REQUIRED, RpcError, invalid_params


class SignIn:
    """Whether somebody is signed in."""

    def __init__(self, login: str) -> None:
        self._is_needed = login in ("needed", "refused")
        self._is_refused = login == "refused"

    def check(self) -> None:
        """Raises -32000 when nobody is signed in."""
        if self._is_needed:
            text = (
                "Authentication required. Please run 'agent login' first, then call "
                "authenticate() with methodId 'cursor_login'."
            )
            raise RpcError(AUTH_REQUIRED, "Authentication required", {"message": text})

    def authenticate(self, method_id: Any) -> None:
        """Sign in. Raises -32602."""
        if method_id != "cursor_login":
            raise invalid_params(f"Unknown authentication method: {method_id}")
        if self._is_refused:
            raise invalid_params(
                "Failed to open browser for login. Please visit: "
                "https://cursor.com/loginDeepControl?challenge=demo"
            )
        self._is_needed = False
