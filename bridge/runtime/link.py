"""One agent process and the JSON-RPC conversation with it.

Bytes from the process go through the sans-IO connection and on to the owner in the order they
came, without an await between. Calls of our own are futures with a time limit; the prompt is not:
its response is an event like any other, so that it cannot overtake the updates before it.

Rules: ``handle`` sees every message, responses included, before any waiting call continues.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from bridge.errors import AgentError, BridgeError
from bridge.protocol.acp import loads
from bridge.protocol.connection import (
    Connection,
    Received,
    Refused,
    Responded,
    RpcError,
)
from bridge.redact import redact, redact_all, without_links
from bridge.runtime.process import AgentProcess, ExitStatus

if TYPE_CHECKING:
    from bridge.runtime.services import Services

logger = logging.getLogger(__name__)

AUTH_REQUIRED = -32000
_MOST_WORDS = 16_384
_MOST_DATA_BYTES = 65_536
"""More of an error is no help to anybody, and would be kept in every problem made of it."""


class LinkOwner(Protocol):
    """Whoever takes what the agent says: a session, or the pool for a warm process."""

    def handle(self, link: AgentLink, received: list[Received]) -> None:
        """Messages in wire order."""

    def link_started(self, link: AgentLink) -> None:
        """Its process runs; nothing has been said yet."""

    def link_broke(self, link: AgentLink) -> None:
        """It lives, but can no longer be spoken with: end it."""

    def link_ended(self, link: AgentLink, status: ExitStatus) -> None:
        """The process has ended; nothing more will come."""


class AgentLink:
    """The receiver of one process's output, and the sender of what it is told."""

    def __init__(self, owner: LinkOwner, *, max_line_bytes: int) -> None:
        self.owner = owner
        self.connection = Connection(max_line_bytes=max_line_bytes)
        self.process: AgentProcess | None = None
        self.status: ExitStatus | None = None
        self.capabilities: dict[str, Any] = {}
        self.initialized: dict[str, Any] = {}
        self.is_stopping = False
        self.is_expected_to_end = False
        self.program = ""
        """The first word of its command line."""
        self.secrets: tuple[str, ...] = ()
        """Values to mask in what the agent says of its failures."""
        self.opening_call: str | None = None
        self.activity = anyio.Event()
        self._calls: dict[str, asyncio.Future[bytes]] = {}

    def __repr__(self) -> str:
        pid = self.process.pid if self.process else None
        return f"<AgentLink pid={pid} calls={len(self._calls)} ended={self.status is not None}>"

    @property
    def is_alive(self) -> bool:
        """Whether messages can still be sent with hope of an answer."""
        return self.process is not None and self.status is None and not self.is_stopping

    def explain(self, error: BridgeError) -> None:
        """Add what the process wrote to stderr to the problem of a start that failed."""
        tail = self.process.stderr_tail if self.process is not None else ""
        if error.code == "agent-auth-required":
            tail = without_links(tail)
        if tail:
            error.extra.setdefault("stderrTail", tail)

    # -- from the process ---------------------------------------------------------------------

    def output_received(self, data: bytes) -> None:
        """A read of the agent's stdout."""
        self._take(self.connection.receive(data))

    def output_ended(self) -> None:
        """The agent closed its stdout: no answer can come any more, whatever it still does."""
        self._take(self.connection.eof())
        if self.is_alive:
            self.owner.link_broke(self)

    def exited(self, status: ExitStatus) -> None:
        """The process has ended and all it wrote was handed over."""
        self.status = status
        for call_id in list(self._calls):
            self._fail(call_id, exit_error(status))
        self.owner.link_ended(self, status)

    def _take(self, received: list[Received]) -> None:
        if not received:
            return
        for message in received:
            if isinstance(message, Refused):
                self.write(message.wire)
        try:
            self.owner.handle(self, received)
        except Exception:
            # A fault of ours: what waits for this agent must end, which its exit sees to.
            logger.exception("What an agent said could not be handled; it is ended.")
            self.owner.link_broke(self)
        for message in received:
            if isinstance(message, Responded):
                self._resolve(message)
        self.activity.set()
        self.activity = anyio.Event()

    # -- to the process -----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes if the process still lives; what it never reads is noticed by its exit."""
        if self.process is None or self.status is not None:
            return
        try:
            self.process.write(data)
        except BridgeError:
            self.owner.link_broke(self)

    def send_call(self, method: str, params: bytes) -> str:
        """Send a request whose response the owner watches for; returns its call id."""
        call_id, wire = self.connection.call(method, params)
        self.write(wire)
        return call_id

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification."""
        self.write(self.connection.notify(method, params))

    def answer(self, rpc_id: bytes, result: bytes) -> None:
        """Answer an agent request."""
        self.write(self.connection.answer(rpc_id, result))

    def refuse(self, rpc_id: bytes, code: int, message: str) -> None:
        """Answer an agent request with an error."""
        self.write(self.connection.refuse(rpc_id, code, message))

    async def stop(self, services: Services, *, is_hard: bool = False) -> None:
        """End the process, bounded and shielded; returns when it is gone."""
        self.is_stopping = True
        if self.process is None:
            return
        with anyio.CancelScope(shield=True):
            if is_hard:
                await self.process.kill()
            else:
                await self.process.stop(services.settings.limits.stop_step_s)

    async def call(self, method: str, params: bytes, *, limit_s: float) -> Any:
        """Send a request and wait for its result, decoded.

        Raises ``AgentError``: ``agent-error`` with the agent's own error, ``agent-timeout`` after
        ``limit_s`` seconds, ``agent-exited`` when the process ends first.
        """
        if self.status is not None:
            raise exit_error(self.status)
        call_id = self.send_call(method, params)
        if method == "session/new":
            self.opening_call = call_id
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = future
        try:
            with anyio.fail_after(limit_s):
                return loads(await future)
        except TimeoutError:
            raise AgentError(
                "agent-timeout", f"The agent did not answer {method} within {limit_s:g} s."
            ) from None
        except ValueError:
            raise AgentError(
                "agent-protocol-error", f"The agent's answer to {method} cannot be read."
            ) from None
        finally:
            self._calls.pop(call_id, None)
            self.connection.forget(call_id)

    def _resolve(self, message: Responded) -> None:
        future = self._calls.pop(message.call_id, None)
        if future is None or future.done():
            return
        if message.error is not None:
            future.set_exception(rpc_failure(message.error, self.secrets))
        else:
            future.set_result(message.result or b"null")

    def _fail(self, call_id: str, error: BridgeError) -> None:
        future = self._calls.pop(call_id, None)
        if future is not None and not future.done():
            future.set_exception(error)


def exit_error(status: ExitStatus) -> AgentError:
    """The problem of a process that ended while something was expected of it."""
    how = f"signal {status.signal}" if status.signal else f"status {status.code}"
    return AgentError(
        "agent-exited",
        f"The agent process ended with {how}.",
        exitCode=status.code,
        signal=status.signal,
        stderrTail=status.stderr_tail,
    )


def rpc_failure(error: RpcError, secrets: tuple[str, ...]) -> AgentError:
    """The agent's JSON-RPC error as a problem; agents name the key that was refused."""
    data: Any = None
    if error.data is not None and len(error.data) <= _MOST_DATA_BYTES:
        try:
            data = loads(error.data)
        except ValueError:
            data = None
    message = redact(error.message[:_MOST_WORDS], secrets)
    data = redact_all(data, secrets)
    detail = describe(message, data)
    agent_error = {"code": error.code, "message": message, "data": data}
    return AgentError("agent-error", detail, agentError=agent_error)


def describe(message: str, data: Any) -> str:
    """The agent's words for a person: its message, and what ``data`` adds to it."""
    told = [data.get("message"), data.get("details")] if isinstance(data, dict) else [data]
    texts = [each for each in told if isinstance(each, str) and each and each != message]
    more = ": ".join(texts)[:_MOST_WORDS]
    if not message and not more:
        return "The agent gave no reason."
    return (
        f"The agent says: {message} ({more})"
        if message and more
        else f"The agent says: {message}{more}"
    )
