"""Which host names and origins are the bridge's own.

A page on the web can make any name resolve to 127.0.0.1 (DNS rebinding) but cannot choose the
``Host`` header that goes with it: names that are not ours are refused. Of a connection's own
address only the literal counts, which no name server can give away. Ports are not compared;
the syntax is. Pure functions over bytes; knows nothing of requests.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple

from bridge.tokens import StartupError

_HOST = re.compile(
    rb"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?))"
    rb"(?::(?P<port>[0-9]{1,5}))?"
)
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})


class Host(NamedTuple):
    """A parsed ``Host``: ``name`` in lower case and without brackets."""

    name: str
    port: int | None


def parse_host(value: bytes) -> Host | None:
    """``host[:port]`` (RFC 9110, 7.2), ``None`` where it is anything else."""
    match = _HOST.fullmatch(value)
    if match is None:
        return None
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 65536:
        return None
    if match["v6"] is None:
        return Host(match["name"].decode("ascii").lower(), port)
    try:
        return Host(str(ipaddress.IPv6Address(match["v6"].decode("ascii"))), port)
    except ValueError:
        return None


class Hosts:
    """The names of this bridge: loopback, the address it is bound to, and the configured ones."""

    def __init__(self, bound: str, allowed: Iterable[str]) -> None:
        """Raises :class:`StartupError` for an entry of ``allowed`` that is no host name."""
        names = set(_LOOPBACK_NAMES)
        self._is_wildcard = bound in _WILDCARDS
        if not self._is_wildcard:
            names.add(bound.lower())
        for entry in allowed:
            host = parse_host(entry.encode("utf-8"))
            if host is None:
                raise StartupError(f"server.allowed_hosts: {entry!r} is no host name")
            names.add(host.name)
        self._names = frozenset(names)

    def allows(self, host: Host, local_address: str | None) -> bool:
        """``local_address`` is where the connection came in.

        Its literal counts where the bridge listens on all addresses.
        """
        if host.name in self._names:
            return True
        return self._is_wildcard and local_address is not None and _is_same(host, local_address)


class Origins:
    """Which ``Origin`` values may speak to the bridge."""

    def __init__(self, configured: Iterable[str]) -> None:
        """Raises :class:`StartupError` for ``*`` and for what is no ``scheme://host[:port]``."""
        self.configured = frozenset(entry.encode("utf-8") for entry in configured)
        for origin in self.configured:
            scheme, separator, authority = origin.partition(b"://")
            if not separator or not scheme.isalpha() or parse_host(authority) is None:
                raise StartupError(
                    f"server.cors_origins: {origin.decode()!r} is no origin like https://app.example"
                )

    def is_configured(self, origin: bytes) -> bool:
        """Compared byte for byte: look-alikes are other origins."""
        return origin in self.configured

    def is_own(self, origin: bytes, scheme: str, raw_host: bytes, host: Host) -> bool:
        """Whether a page the bridge itself served is calling.

        ``https`` is fine for other names than loopback ones, where a proxy in front ends TLS.
        """
        ours, separator, authority = origin.partition(b"://")
        if not separator or authority.lower() != raw_host.lower():
            return False
        own_scheme = b"https" if scheme in ("https", "wss") else b"http"
        return ours == own_scheme or (ours == b"https" and host.name not in _LOOPBACK_NAMES)


def _is_same(host: Host, local_address: str) -> bool:
    try:
        ours = ipaddress.ip_address(local_address)
        theirs = ipaddress.ip_address(host.name)
    except ValueError:
        return False
    # A socket for both families shows IPv4 callers as ::ffff:192.0.2.1.
    mapped = ours.ipv4_mapped if isinstance(ours, ipaddress.IPv6Address) else None
    return theirs == (mapped or ours) and not theirs.is_unspecified
