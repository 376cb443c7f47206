"""Whether the bridge may listen as it is configured: who reaches it has a shell on the box.

Asked before anything listens. The answer to a bad configuration is :class:`StartupError`, which
the command line turns into exit code 2.
"""

from __future__ import annotations

import ipaddress

from bridge.config import Settings
from bridge.tokens import StartupError, TokenStore, check_strength


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(settings: Settings, tokens: TokenStore | None = None) -> None:
    """Raise :class:`StartupError` where strangers could get in, or a token is none.

    Without ``tokens`` only what the settings say by themselves is checked (before the state
    folder is touched). To be called before :meth:`TokenStore.first`: on an address others
    can reach, the first token is made on purpose.
    """
    host = settings.server.host
    is_local = is_loopback(host)
    if settings.token is not None:
        check_strength(settings.token.get_secret_value())
    if settings.no_auth and settings.token is not None:
        raise StartupError("--no-auth and CURSOR_BRIDGE_TOKEN contradict each other; choose one.")
    if settings.no_auth and not is_local:
        raise StartupError(
            f"--no-auth is only for loopback addresses, and {host!r} is none: "
            "everybody who reaches it would have a shell on this machine."
        )
    _check_proxies(settings.server.trusted_proxies)
    if tokens is not None and not is_local and tokens.is_empty():
        raise StartupError(
            f"{host!r} can be reached from other machines and there is no token yet; make one "
            "with `cursor-bridge token create --name NAME`, or set CURSOR_BRIDGE_TOKEN."
        )


def _check_proxies(proxies: tuple[str, ...]) -> None:
    """Whoever is trusted says where a caller comes from: a name or ``*`` would be anybody."""
    for proxy in proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            raise StartupError(
                f"server.trusted_proxies: {proxy!r} is no address and no network."
            ) from None
