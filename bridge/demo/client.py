"""The client at the other end: what is sent to it, and what it answers.

Rules: our request ids count from 0 and so share the number space with the client's, as Cursor's do
(JonathanRiche/verde#115). An answer to nothing that waits is dropped. Chunks of text are the hot
path and are put together from bytes. Knows nothing of sessions but their ids.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from bridge.demo import wire
from bridge.demo.wire import INTERNAL_ERROR, RpcError


class Outlet(Protocol):
    """Where lines go. ``put`` never blocks; ``drained`` waits for room and lets others run."""

    def put(self, data: bytes) -> None: ...

    async def drained(self) -> None: ...

    async def flush(self) -> None: ...


class Client:
    """Sends lines to the client and pairs its answers with our requests."""

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet
        self.capabilities: dict[str, Any] = {}
        self._next_id = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        self.outlet.put(wire.notification(method, params))

    def update(self, session_id: str, update: dict[str, Any]) -> None:
        """Send a ``session/update``."""
        self.notify("session/update", {"sessionId": session_id, "update": update})

    def respond(self, request_id: Any, value: Any) -> None:
        """Answer a request of the client's with success."""
        self.outlet.put(wire.result(request_id, value))

    def refuse(self, request_id: Any, error: RpcError) -> None:
        """Answer a request of the client's with an error."""
        self.outlet.put(wire.failure(request_id, error))

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and wait for its result, for ever if need be. Raises ``RpcError``."""
        request_id = self._next_id
        self._next_id += 1
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = waiting
        self.outlet.put(wire.request(request_id, method, params))
        try:
            return await waiting
        finally:
            self._waiting.pop(request_id, None)

    def take_answer(self, message: dict[str, Any]) -> None:
        """A response of the client's."""
        request_id = message.get("id")
        if type(request_id) is not int:
            return
        waiting = self._waiting.pop(request_id, None)
        if waiting is None or waiting.done():
            return
        error = message.get("error")
        if error is None:
            waiting.set_result(message.get("result"))
        else:
            waiting.set_exception(_error_of(error))


class ChunkLines:
    """The lines of one session's text chunks; only the text differs from one to the next."""

    def __init__(self, session_id: str) -> None:
        self._heads = {
            kind: b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":'
            + wire.quote(session_id)
            + b',"update":{"sessionUpdate":"'
            + kind.encode()
            + b'","content":{"type":"text","text":'
            for kind in ("agent_message_chunk", "agent_thought_chunk")
        }

    def line(self, kind: str, text: str) -> bytes:
        """``kind`` is ``agent_message_chunk`` or ``agent_thought_chunk``."""
        return self._heads[kind] + wire.quote(text) + b"}}}}\n"


def _error_of(error: Any) -> RpcError:
    if not isinstance(error, dict):
        return RpcError(INTERNAL_ERROR, "The client's error is no object.")
    code = error.get("code")
    return RpcError(
        code if isinstance(code, int) else INTERNAL_ERROR,
        str(error.get("message", "")),
        error.get("data"),
    )
