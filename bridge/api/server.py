"""uvicorn's server, with signals of our own: first wind up, then end.

uvicorn takes SIGTERM for itself, closes its listener at once and never ends while a stream is
open. Here a signal asks whoever owns the turns to wind up while callers are still served. Also
the one place where the stack is put together: h11, websockets, uvloop where it is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import uvicorn
from starlette.types import ASGIApp

from bridge.api.deadlines import BridgeConfig, BridgeProtocol, BridgeSocket, BridgeState
from bridge.config import Settings

KEEP_ALIVE_S = 15
"""How long a connection may wait between two requests."""

logger = logging.getLogger(__name__)


class BridgeServer(uvicorn.Server):
    """uvicorn's server; a signal first asks ``on_stop`` to wind up, then ends it.

    uvicorn itself would close its listener at once, and nobody could fetch how a turn ended.
    """

    config: BridgeConfig

    def __init__(
        self,
        config: BridgeConfig,
        *,
        on_stop: Callable[[], Awaitable[None]] | None = None,
        takes_signals: bool = True,
        flush_s: float = 10.0,
    ) -> None:
        """``on_stop`` must bound its own time; ``takes_signals`` needs the main thread.

        ``flush_s`` is how long a closing connection may take to deliver what was written to it.
        """
        super().__init__(config)
        self.server_state: BridgeState = BridgeState()
        self._on_stop = on_stop
        self._flush_s = flush_s
        self._takes_signals = takes_signals
        self._stop_asked = anyio.Event()
        self.listening = anyio.Event()
        """Set once callers can connect."""
        self._closing: dict[Any, float] = {}

    @property
    def address(self) -> str:
        """``http://host:port`` of the first socket it listens on, once it is :attr:`listening`."""
        name = self.servers[0].sockets[0].getsockname()
        if isinstance(name, str):
            return f"unix:{name}"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name[0], name[0])
        return f"http://[{host}]:{name[1]}" if ":" in host else f"http://{host}:{name[1]}"

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if self.started:
            self.listening.set()

    def stop(self) -> None:
        """What a signal does: wind up and end; asked again, end without winding up."""
        if self._stop_asked.is_set():
            self.should_exit = True
        self._stop_asked.set()

    async def serve(self, sockets: list[Any] | None = None) -> None:
        """Serve until stopped; raises ``SystemExit`` where the start failed."""
        if sockets is None and self.config.listen_fd is not None:
            # By its own family: uvicorn takes every descriptor for a Unix socket, and asyncio
            # leaves Nagle's algorithm on for those.
            sockets = [socket.socket(fileno=self.config.listen_fd)]
        failure: SystemExit | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._wind_up)
            with self.capture_signals():
                try:
                    await self._serve(sockets)
                except SystemExit as error:
                    failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM while serving; they are ours, and are not raised again after."""
        loop = asyncio.get_running_loop()
        taken = (signal.SIGINT, signal.SIGTERM) if self._takes_signals else ()
        for number in taken:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)

    async def on_tick(self, counter: int) -> bool:
        """Once a second, end connections that were closed but whose caller does not read."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            closing = [c for c in self.server_state.connections if c.transport.is_closing()]
            self._closing = {each: self._closing.get(each, now) for each in closing}
            for connection, since in self._closing.items():
                if now - since > self._flush_s:
                    connection.transport.abort()
        return await super().on_tick(counter)

    async def _wind_up(self) -> None:
        await self._stop_asked.wait()
        logger.info("Asked to stop.")
        try:
            if self._on_stop is not None:
                await self._on_stop()
        finally:
            self.should_exit = True


def make_config(app: ASGIApp, settings: Settings, *, fd: int | None = None) -> BridgeConfig:
    """The one stack: h11 and websockets. ``fd`` is a listening socket that was handed over."""
    proxies = list(settings.server.trusted_proxies)
    config = BridgeConfig(
        app,
        settings,
        host=settings.server.host,
        port=settings.server.port,
        http=BridgeProtocol,
        ws=BridgeSocket,
        ws_max_size=settings.limits.body_bytes,
        ws_per_message_deflate=False,
        loop="auto",
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=2,
    )
    config.listen_fd = fd
    return config
