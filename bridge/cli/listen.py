"""The listening sockets, had before anything else is done: a port that is taken changes nothing."""

from __future__ import annotations

import errno
import os
import socket

from bridge.tokens import StartupError

_BACKLOG = 2048


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of ``host``; callers wait until somebody accepts them.

    Raises :class:`StartupError` with what to do.
    """
    made: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(found):
            # The protocol too: asyncio turns Nagle's algorithm off only where it is named.
            made.append(opened := socket.socket(family, kind, protocol))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            opened.bind(address)
            opened.listen(_BACKLOG)
    except OSError as error:
        for each in made:
            each.close()
        raise StartupError(_why(error, host, port)) from None
    return made


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken; choose another with --port"
    if error.errno == errno.EACCES:
        return f"port {port} is not for this user; choose another with --port"
    reason = error.strerror or os.strerror(error.errno or errno.EINVAL)
    return f"{host!r} is no address to listen on here ({reason}); choose another with --host"
