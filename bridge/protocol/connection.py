"""One JSON-RPC conversation with one agent process: bytes in, events and bytes to write out.

Owns the framing of what the agent sends, our calls in flight and the wire form of all we send.
Rules: nothing the agent sends raises here; a bad line costs at most one warning and never the
conversation; ``method`` is looked at before ``id``, because agents count their requests from 0
like everybody else and an id may equal one of ours (JonathanRiche/verde#115); presence decides,
so an id of 0, "" or null is an id. Knows nothing of sessions, time or processes, nor what the
methods mean.

JSON-RPC 2.0: https://www.jsonrpc.org/specification (ACP uses no batches).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeGuard

import msgspec
from msgspec import UNSET, UnsetType

from bridge.protocol.envelope import Envelope, Unreadable, decode, is_utf8, text_of
from bridge.protocol.framing import MAX_LINE_BYTES, LineSplitter, Overflow
from bridge.protocol.walker import members

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

DETAIL_CHARS = 200
METHOD_CHARS = 200
# Names of the bridge's own events; an agent must not speak in its name.
RESERVED_PREFIX = "bridge/"
_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_json = msgspec.json.encode


# The events are msgspec structs, not dataclasses: as frozen, and made in a tenth of the time,
# which the hot path spends once a line.
class Notified(msgspec.Struct, frozen=True, gc=False):
    """The agent tells something; ``params`` is one line of JSON, an object (absent: ``{}``)."""

    method: str
    params: bytes


class Requested(msgspec.Struct, frozen=True, gc=False):
    """The agent asks and waits; ``rpc_id`` is its id as raw JSON, to be given back as it is."""

    rpc_id: bytes
    method: str
    params: bytes


class RpcError(msgspec.Struct, frozen=True, gc=False):
    """An error object; what it lacks is filled in, ``data`` is raw JSON or None."""

    code: int
    message: str
    data: bytes | None = None


class _ErrorMembers(msgspec.Struct):
    code: msgspec.Raw | UnsetType = UNSET
    message: msgspec.Raw | UnsetType = UNSET
    data: msgspec.Raw | UnsetType = UNSET


_ERROR_DECODER = msgspec.json.Decoder(_ErrorMembers)


class Responded(msgspec.Struct, frozen=True, gc=False):
    """The end of one of our calls: ``result`` (raw JSON, absent: ``null``) or ``error``."""

    call_id: str
    result: bytes | None
    error: RpcError | None


class Warned(msgspec.Struct, frozen=True, gc=False):
    """A line that could not be used; ``detail`` is printable, at most 200 characters."""

    code: str
    detail: str


class Refused(msgspec.Struct, frozen=True, gc=False):
    """A request that cannot be passed on; ``wire`` must be written to the agent, which waits."""

    wire: bytes


Received = Notified | Requested | Responded | Warned | Refused


class Connection:
    """The bridge's side of the conversation; one for each agent process."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._splitter = LineSplitter(max_line_bytes)
        self._pending: dict[str, str] = {}
        self._calls = 0

    def __repr__(self) -> str:
        return f"<Connection calls={self._calls} pending={self._pending}>"

    @property
    def pending(self) -> Mapping[str, str]:
        """Call id to method of every call that has had no response; a live, read-only view."""
        return MappingProxyType(self._pending)

    def receive(self, data: bytes) -> list[Received]:
        """What the lines that ``data`` completes say, in order; never raises."""
        return self._read(self._splitter.feed(data))

    def eof(self) -> list[Received]:
        """What an unterminated last line says; calls in flight stay in ``pending``."""
        return self._read(self._splitter.eof())

    def call(self, method: str, params: bytes) -> tuple[str, bytes]:
        """A new call: its id and the line to write. Ids are strings, so no agent's number."""
        self._calls += 1
        call_id = f"bridge-{self._calls}"
        self._pending[call_id] = method
        head = b'{"jsonrpc":"2.0","id":"%b","method":%b,"params":%b}\n'
        return call_id, head % (call_id.encode(), _json(method), _one_line(params))

    def notify(self, method: str, params: bytes) -> bytes:
        """The line of a notification."""
        head = b'{"jsonrpc":"2.0","method":%b,"params":%b}\n'
        return head % (_json(method), _one_line(params))

    def answer(self, rpc_id: bytes, result: bytes) -> bytes:
        """The line that answers the agent's request ``rpc_id`` with raw JSON."""
        head = b'{"jsonrpc":"2.0","id":%b,"result":%b}\n'
        return head % (_one_line(rpc_id), _one_line(result))

    def refuse(self, rpc_id: bytes, code: int, message: str) -> bytes:
        """The line that answers the agent's request ``rpc_id`` with an error."""
        head = b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":%b}}\n'
        return head % (_one_line(rpc_id), code, _json(message))

    def forget(self, call_id: str) -> None:
        """Wait no longer for a call; a late response to it is an unknown one."""
        self._pending.pop(call_id, None)

    def _read(self, lines: list[bytes | Overflow]) -> list[Received]:
        received: list[Received] = []
        for line in lines:
            if isinstance(line, Overflow):
                detail = f"a line of {line.size_bytes} bytes was skipped"
                received.append(Warned("line-too-long", detail))
                continue
            envelope = decode(line)
            if isinstance(envelope, Unreadable):
                received += self._on_unreadable(envelope, line)
            elif envelope.method is UNSET:
                received.append(self._on_response(envelope, line))
            elif (event := _passed_on(envelope)) is not None:
                received.append(event)
            else:
                received += self._on_invalid(envelope, line)
        return received

    def _on_invalid(self, envelope: Envelope, line: bytes) -> tuple[Received, ...]:
        if _is_method(envelope.method):
            return self._warn_and_refuse("params-not-an-object", INVALID_PARAMS, envelope, line)
        return self._warn_and_refuse("method-not-valid", INVALID_REQUEST, envelope, line)

    def _warn_and_refuse(
        self, code: str, rpc_code: int, envelope: Envelope, line: bytes
    ) -> tuple[Received, ...]:
        reason = code.replace("-", " ")
        warned = _warned(code, reason, line)
        if envelope.id is UNSET or not is_utf8(rpc_id := bytes(envelope.id)):
            return (warned,)
        return warned, Refused(self.refuse(rpc_id, rpc_code, reason))

    def _on_response(self, envelope: Envelope, line: bytes) -> Received:
        call_id = self._settled(envelope)
        if call_id is None:
            return _warned(*_STRAY[envelope.id is UNSET], line)
        error = b"null" if envelope.error is UNSET else bytes(envelope.error)
        # Some agents spell out both members, the one that does not apply as null.
        if error != b"null":
            return Responded(call_id, None, _rpc_error(error))
        result = b"null" if envelope.result is UNSET else bytes(envelope.result)
        return Responded(call_id, result, None)

    def _on_unreadable(self, unreadable: Unreadable, line: bytes) -> tuple[Received, ...]:
        """The payload cannot be passed on, but whoever waits for the message must hear so."""
        envelope = unreadable.envelope
        if envelope is not None and envelope.method is not UNSET:
            return self._warn_and_refuse(unreadable.code, PARSE_ERROR, envelope, line)
        warned = _warned(unreadable.code, unreadable.reason, line)
        call_id = None if envelope is None else self._settled(envelope)
        if call_id is None:
            return (warned,)
        error = RpcError(INTERNAL_ERROR, f"the agent's response cannot be read: {warned.detail}")
        return warned, Responded(call_id, None, error)

    def _settled(self, envelope: Envelope) -> str | None:
        """The call that the response belongs to, no longer pending; None: none of ours."""
        call_id = None if envelope.id is UNSET else text_of(bytes(envelope.id))
        if call_id is None or self._pending.pop(call_id, None) is None:
            return None
        return call_id


_STRAY = {
    True: ("not-a-message", "neither method nor id"),
    False: ("unknown-response", "a response to no call of ours"),
}


def _passed_on(envelope: Envelope) -> Notified | Requested | None:
    """The event of a message with a method; None: a method or params that nobody could use."""
    method = envelope.method
    # Nearly all lines are updates: they are spared the call.
    if method != "session/update" and not _is_method(method):
        return None
    raw = envelope.params
    params = b"{}" if raw is UNSET else bytes(raw)
    # 123 is the opening brace; msgspec has checked the rest and hands out no space before it.
    if params[0] != 123:
        return None
    if envelope.id is UNSET:
        return Notified(method, params)
    return Requested(bytes(envelope.id), method, params)


def _is_method(method: str | UnsetType | None) -> TypeGuard[str]:
    """Whether the name can be an event's type: not empty, without controls, not ours."""
    return (
        isinstance(method, str)
        and 0 < len(method) <= METHOD_CHARS
        and method.isprintable()
        and not method.startswith(RESERVED_PREFIX)
    )


def _rpc_error(raw: bytes) -> RpcError:
    """An error member of any shape; an unusable code becomes -32603 and is told in the message."""
    try:
        found = members(_ERROR_DECODER, raw)
    except (msgspec.DecodeError, RecursionError):
        # A bare string is a message; of anything else its JSON says more than nothing.
        return RpcError(INTERNAL_ERROR, _words(raw))
    message = _words(found.get("message", b""))
    raw_code = found.get("code", b"")
    if _INTEGER.fullmatch(raw_code):
        return RpcError(int(raw_code), message, found.get("data"))
    code = _words(raw_code)
    told = f"{message} ({code})" if code else message
    return RpcError(INTERNAL_ERROR, told.strip(), found.get("data"))


def _words(raw: bytes) -> str:
    """A text, or the start of whatever stands in its place; nothing for ``null``."""
    if raw == b"null":
        return ""
    text = text_of(raw)
    return _readable(raw[:DETAIL_CHARS].decode(errors="replace") if text is None else text)


def _readable(message: str) -> str:
    """The text with lone surrogates replaced, since people read it and UTF-8 cannot carry them."""
    return message.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _warned(code: str, reason: str, line: bytes) -> Warned:
    start = line[:DETAIL_CHARS].decode(errors="replace")
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in start)
    return Warned(code, f"{reason}: {shown}"[:DETAIL_CHARS])


def _one_line(raw: bytes) -> bytes:
    """JSON text without line ends, which can only stand between its tokens."""
    if b"\n" in raw or b"\r" in raw:
        return raw.replace(b"\n", b" ").replace(b"\r", b" ")
    return raw
