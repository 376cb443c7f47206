"""One HTTP connection, with deadlines, a bound on their number, and strict framing.

uvicorn has no deadline for a request's head or body and no bound on open connections; this is a
subclass of its h11 protocol that has. A connection is in one phase: a *head* is awaited (or the
next request), a *body* is being received, or the *response* is under way. Heads have an absolute
deadline, bodies one that moves with each read, responses none: streams live as long as they like,
provided that somebody reads them.
What is refused on the wire is answered with a problem like everything else. Knows no routes.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.http11 import Request

from bridge.api.exchange import API_POLICY, ENDING, SECURITY_HEADERS
from bridge.api.problems import problem
from bridge.api.wire import StrictConnection
from bridge.config import Settings
from bridge.errors import BridgeError, CapacityError

_END_S = 0.5
"""How long the caller of a connection that is to end may still read what was sent to it."""
_LINGER_S = 2.0
"""How long a refused caller may go on sending, so that it gets to read the refusal."""


class BridgeConfig(uvicorn.Config):
    """uvicorn's configuration and ours, which the protocol reads."""

    def __init__(self, app: ASGIApp, settings: Settings, **options: Any) -> None:
        super().__init__(app, **options)
        self.header_timeout_s = settings.server.header_timeout_s
        self.body_timeout_s = settings.server.body_timeout_s
        self.unread_timeout_s = settings.server.unread_timeout_s
        self.linger_s = min(_LINGER_S, self.body_timeout_s)
        self.max_connections = settings.server.max_connections
        self.listen_fd: int | None = None


class BridgeState(ServerState):
    """What the connections of one server share."""

    def __init__(self) -> None:
        super().__init__()
        self.idle: dict[BridgeProtocol, None] = {}
        """Connections with no request under way, the one that became so first in front."""


class _GentleTransport:
    """What a request's cycle gets as its transport: one that closes so that nothing is lost."""

    def __init__(self, protocol: BridgeProtocol) -> None:
        self._transport = protocol.transport
        self._protocol = protocol
        self.write = self._transport.write
        self.is_closing = self._transport.is_closing

    def close(self) -> None:
        """Close, after the caller had a moment to read the response."""
        self._protocol.close_gently()


class BridgeSocket(WebSocketsSansIOProtocol):
    """A WebSocket's connection, once its opening handshake has been read."""

    def handle_connect(self, event: Request) -> None:
        """Begin the application's task, which has not run yet when this returns."""
        super().handle_connect(event)
        if not self.close_sent:
            ending: dict[object, object] = {"soon": self.end_soon, "now": self.transport.abort}
            self.scope["extensions"][ENDING] = ending

    def data_received(self, data: bytes) -> None:
        """As in uvicorn; a handshake that the library cannot read ends the connection at once.

        Nobody would answer it, and no deadline runs any more.
        """
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.abort()

    def end_soon(self) -> None:
        """Wait no longer than this for a caller that does not read or does not close."""
        self.loop.call_later(_END_S, self.transport.abort)


class BridgeProtocol(H11Protocol):
    """One connection."""

    config: BridgeConfig
    server_state: BridgeState

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn: StrictConnection = StrictConnection()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._is_head_due = True
        self._is_excused = False
        self._is_deaf = False
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock: silence is a head that does not come."""
        super().connection_made(transport)
        excess = len(self.connections) - self.config.max_connections
        if excess > 0 and not self._make_room():
            self._refuse(
                CapacityError("at-capacity", "Too many connections are open.", retry_after_s=5)
            )
            if excess > self.config.max_connections:
                self.drop()
            return
        self.server_state.idle[self] = None
        self._set_deadline(self.config.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More waits for the caller than it reads: see to it that it reads on."""
        super().pause_writing()
        now = self.loop.time()
        self._watch_reader(self.transport.get_write_buffer_size(), now)

    def resume_writing(self) -> None:
        """It did."""
        super().resume_writing()
        self._forget_reader()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless all is said and the caller only needs to be heard out."""
        if not self._is_deaf:
            super().data_received(data)
            self._next_phase(has_progressed=True)

    def handle_events(self) -> None:
        """Parse, and see to it that a request that begins will end gently."""
        super().handle_events()
        if self.cycle is not None and self.cycle.transport is self.transport:
            self.cycle.transport = _GentleTransport(self)  # type: ignore[assignment]
            # The request's task has not begun yet.
            self.scope["extensions"] = {ENDING: {"soon": self.end_soon, "now": self.drop}}

    def on_response_complete(self) -> None:
        """The next request may come, or the rest of the body nobody wanted."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._deadline = None
            self._is_head_due = False
            self._next_phase(has_progressed=False)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over; its pings keep watch from here on."""
        self._is_deaf = True
        self._forget()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """uvicorn's way to say that the parser gave up; we say why, in the form of all errors."""
        self._refuse(self.conn.refusal)

    def shutdown(self) -> None:
        """The server stops; a connection whose parser failed has nothing to wait for."""
        try:
            super().shutdown()
        except h11.LocalProtocolError:
            self.transport.abort()

    def close_gently(self) -> None:
        """Close; where a body is still coming in, listen until the caller has read our answer.

        A connection closed with unread data is reset, and the answer lost with it.
        """
        if self.conn.their_state is not h11.SEND_BODY or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._linger()

    def end_soon(self) -> None:
        """End with the response under way, and soon even where its caller does not read it."""
        self.cycle.keep_alive = False
        self.loop.call_later(_END_S, self.transport.abort)

    def drop(self) -> None:
        """Close at once and without a word: the caller had its time."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._stop_timer()
        self.transport.abort()

    def _next_phase(self, *, has_progressed: bool) -> None:
        if self._is_deaf or self.transport.is_closing():
            return
        theirs, ours = self.conn.their_state, self.conn.our_state
        if theirs is h11.SEND_BODY and ours is h11.DONE:
            self._set_deadline(self.config.linger_s, is_fixed=True)
        elif theirs is h11.SEND_BODY:
            self.server_state.idle.pop(self, None)
            self._is_excused = self._is_our_turn()
            self._set_deadline(self.config.body_timeout_s)
        elif theirs is h11.IDLE:
            self.server_state.idle.setdefault(self, None)
            self._await_head(has_progressed)
        else:
            self.server_state.idle.pop(self, None)
            self._deadline = None

    def _await_head(self, has_progressed: bool) -> None:
        """Between requests uvicorn's keep-alive timer runs; from the first byte, ours."""
        if has_progressed and not self._is_head_due:
            self._is_head_due = True
            self._set_deadline(self.config.header_timeout_s)

    def _is_our_turn(self) -> bool:
        """Whether it is not the caller that holds its body up: we do not read, or said no go."""
        return self.flow.read_paused or self.cycle.waiting_for_100_continue

    def _set_deadline(self, seconds: float, *, is_fixed: bool = False) -> None:
        """Move the deadline. A later one leaves the timer where it is until it fires."""
        if is_fixed and self._deadline is not None:
            return
        self._deadline = self.loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self.loop.call_at(self._deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._deadline is None or self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY and self.conn.our_state is not h11.DONE:
            is_ours = self._is_our_turn()
            if is_ours or self._is_excused:
                # It could not send; from now on it can, and has its time again.
                self._is_excused = is_ours
                self._deadline = self.loop.time() + self.config.body_timeout_s
        if self.loop.time() < self._deadline:
            self._timer = self.loop.call_at(self._deadline, self._on_timer)
            return
        self.drop()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._deadline = None

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest, if there is one."""
        oldest = next(iter(self.server_state.idle), None)
        if oldest is None:
            return False
        oldest.server_state.idle.pop(oldest)
        oldest.connections.discard(oldest)
        oldest.drop()
        return True

    def _watch_reader(self, unread: int, since: float) -> None:
        """``unread`` bytes have been waiting for the caller since then."""
        self._unread_timer = self.loop.call_later(
            self.config.unread_timeout_s / 3, self._on_unread, unread, since
        )

    def _on_unread(self, unread: int, since: float) -> None:
        left, now = self.transport.get_write_buffer_size(), self.loop.time()
        if left < unread:
            self._watch_reader(left, now)
        elif now - since < self.config.unread_timeout_s:
            self._watch_reader(unread, since)
        else:
            self.drop()

    def _forget_reader(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _forget(self) -> None:
        self._stop_timer()
        self._forget_reader()
        self.server_state.idle.pop(self, None)

    def _refuse(self, error: BridgeError) -> None:
        """Answer what cannot be taken from the wire."""
        self._unset_keepalive_if_required()
        self.server_state.idle.pop(self, None)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.drop()
            return
        response = problem(error, instance="/", request_id=secrets.token_hex(16))
        status = response.status_code
        headers = {
            **dict(self.server_state.default_headers),
            **dict(response.raw_headers),
            **dict(SECURITY_HEADERS),
            b"content-security-policy": API_POLICY,
            b"connection": b"close",
        }
        head = h11.Response(
            status_code=status, headers=list(headers.items()), reason=STATUS_PHRASES[status]
        )
        for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self._linger()

    def _linger(self) -> None:
        """Say that no more will come, and read what still comes away, for a moment."""
        self._is_deaf = True
        self.flow.resume_reading()
        self.transport.write_eof()
        self._stop_timer()
        self._set_deadline(self.config.linger_s)
