"""ACP version 1 as far as the bridge speaks it: the params it sends, the few fields it reads.

Owns the shapes of our own calls (https://agentclientprotocol.com/protocol/schema) and narrow
decodes of what agents send. Rules: whatever an agent sends, a ``peek_…`` answers, a wrong type
being the same as an absent field; text with lone surrogates, which Node makes of a split emoji,
goes in and comes out again. Knows nothing of connections, sessions or Cursor's dialect.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from bridge.protocol import walker
from bridge.protocol.envelope import text_of

PROTOCOL_VERSION = 1
CLIENT_NAME = "cursor-acp-bridge"

Meta = dict[str, Any] | None


# -- what we send ------------------------------------------------------------------------------


def initialize(version: str, *, has_model_picker: bool = False) -> bytes:
    """Params of ``initialize``: files and terminals are the agent's own, forms and links ours.

    ``version`` is the bridge's own. ``has_model_picker`` asks Cursor for models and their options
    apart (zed-industries/zed#57571).
    """
    capabilities: dict[str, Any] = {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
        "elicitation": {"form": {}, "url": {}},
    }
    if has_model_picker:
        capabilities["_meta"] = {"parameterizedModelPicker": True}
    return dumps(
        {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": capabilities,
            "clientInfo": {"name": CLIENT_NAME, "title": "Cursor ACP bridge", "version": version},
        }
    )


def authenticate(method_id: str) -> bytes:
    """Params of ``authenticate``."""
    return dumps({"methodId": method_id})


def new_session(
    cwd: str,
    mcp_servers: Sequence[dict[str, Any]] = (),
    additional_directories: Sequence[str] = (),
    meta: Meta = None,
) -> bytes:
    """Params of ``session/new``; ``cwd`` is absolute."""
    return _params(_place(cwd, mcp_servers, additional_directories), meta)


def load_session(
    agent_session_id: str,
    cwd: str,
    mcp_servers: Sequence[dict[str, Any]] = (),
    additional_directories: Sequence[str] = (),
    meta: Meta = None,
) -> bytes:
    """Params of ``session/load``; ``cwd`` is absolute."""
    place = _place(cwd, mcp_servers, additional_directories)
    return _params({"sessionId": agent_session_id, **place}, meta)


def list_sessions(cwd: str | None = None, cursor: str | None = None) -> bytes:
    """Params of ``session/list``, each filter left out where None."""
    given = {"cwd": cwd, "cursor": cursor}
    return dumps({name: value for name, value in given.items() if value is not None})


def prompt(agent_session_id: str, blocks: Sequence[dict[str, Any]], meta: Meta = None) -> bytes:
    """Params of ``session/prompt``; ``blocks`` are ACP content blocks, verbatim."""
    return _params({"sessionId": agent_session_id, "prompt": list(blocks)}, meta)


def cancel(agent_session_id: str) -> bytes:
    """Params of the notification ``session/cancel``."""
    return dumps({"sessionId": agent_session_id})


def set_mode(agent_session_id: str, mode_id: str) -> bytes:
    """Params of ``session/set_mode``."""
    return dumps({"sessionId": agent_session_id, "modeId": mode_id})


def set_model(agent_session_id: str, model_id: str) -> bytes:
    """Params of ``session/set_model``, which agents have although version 1 does not name it."""
    return dumps({"sessionId": agent_session_id, "modelId": model_id})


def set_config_option(agent_session_id: str, config_id: str, value: Any) -> bytes:
    """Params of ``session/set_config_option``: a value's id, or a boolean and its ``type``."""
    params = {"sessionId": agent_session_id, "configId": config_id, "value": value}
    if isinstance(value, bool):
        params["type"] = "boolean"
    return dumps(params)


def _place(
    cwd: str, mcp_servers: Sequence[dict[str, Any]], additional_directories: Sequence[str]
) -> dict[str, Any]:
    place: dict[str, Any] = {"cwd": cwd, "mcpServers": list(mcp_servers)}
    if additional_directories:
        # Absent rather than empty: older agents know no such member.
        place["additionalDirectories"] = list(additional_directories)
    return place


def _params(params: dict[str, Any], meta: Meta) -> bytes:
    return dumps(params if meta is None else {**params, "_meta": meta})


# -- what we read ------------------------------------------------------------------------------


class UpdatePeek(msgspec.Struct, frozen=True, gc=False):
    """What the bridge acts on in a ``session/update``; None or ``""`` where there is none.

    A struct and not a dataclass because one is made for every line of the hot path.
    """

    session_id: str | None = None
    kind: str = ""
    message_id: str | None = None
    text: str | None = None
    tool_call_id: str | None = None
    status: str | None = None


class _Content(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None


class _Update(msgspec.Struct, rename="camel", gc=False):
    session_update: str | None = None
    message_id: str | None = None
    # A tool call's content is a list, of file texts sometimes: sliced, never built.
    content: _Content | list[msgspec.Raw] | None = None
    tool_call_id: str | None = None
    status: str | None = None


class _Params(msgspec.Struct, rename="camel", gc=False):
    update: _Update
    session_id: str | None = None


class _RawContent(msgspec.Struct):
    type: msgspec.Raw | UnsetType = UNSET
    text: msgspec.Raw | UnsetType = UNSET


class _RawFields(msgspec.Struct, rename="camel"):
    session_update: msgspec.Raw | UnsetType = UNSET
    message_id: msgspec.Raw | UnsetType = UNSET
    tool_call_id: msgspec.Raw | UnsetType = UNSET
    status: msgspec.Raw | UnsetType = UNSET


class _RawUpdate(_RawFields, rename="camel"):
    content: msgspec.Raw | UnsetType = UNSET


class _RawParams(msgspec.Struct, rename="camel"):
    session_id: msgspec.Raw | UnsetType = UNSET
    update: msgspec.Raw | UnsetType = UNSET


class _NestedUpdate(_RawFields, rename="camel"):
    content: _RawContent | list[msgspec.Raw] | None = None


class _NestedParams(msgspec.Struct, rename="camel"):
    update: _NestedUpdate
    session_id: msgspec.Raw | UnsetType = UNSET


_DECODE = msgspec.json.Decoder(_Params).decode
_NESTED = msgspec.json.Decoder(_NestedParams)
_RAW_CONTENT = msgspec.json.Decoder(_RawContent)
_RAW_UPDATE = msgspec.json.Decoder(_RawUpdate)
_RAW_PARAMS = msgspec.json.Decoder(_RawParams)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])

_RawStruct = TypeVar("_RawStruct", bound=msgspec.Struct)


def peek_update(params: bytes) -> UpdatePeek:
    """The fields of a ``session/update``'s params that the bridge reads; never raises.

    ``text`` is a text chunk's, lone surrogates kept.
    """
    try:
        found = _DECODE(params)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return _peek_carefully(params)
    update = found.update
    content = update.content
    text = content.text if isinstance(content, _Content) and content.type == "text" else None
    return UpdatePeek(
        found.session_id,
        update.session_update or "",
        update.message_id,
        text,
        update.tool_call_id,
        update.status,
    )


def peek_session_id(params: bytes) -> str | None:
    """The ``sessionId`` of any params or result; None where there is none. Never raises."""
    return _text(_members(_RAW_PARAMS, params), "session_id")


def _peek_carefully(params: bytes) -> UpdatePeek:
    """The same of what msgspec refuses, mostly for a lone surrogate."""
    try:
        found, spelled = walker.opened(_NESTED, params)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return _peek_by_fields(params)

    def text(raw: msgspec.Raw | UnsetType) -> str | None:
        return None if raw is UNSET else text_of(spelled(raw))

    update, content = found.update, found.update.content
    block = content if isinstance(content, _RawContent) else _RawContent()
    return UpdatePeek(
        session_id=text(found.session_id),
        kind=text(update.session_update) or "",
        message_id=text(update.message_id),
        text=text(block.text) if text(block.type) == "text" else None,
        tool_call_id=text(update.tool_call_id),
        status=text(update.status),
    )


def _peek_by_fields(params: bytes) -> UpdatePeek:
    """The same, field by field, so that one of a wrong type does not hide the others."""
    found = _members(_RAW_PARAMS, params)
    update = _members(_RAW_UPDATE, found.get("update", b""))
    content = _members(_RAW_CONTENT, update.get("content", b""))
    return UpdatePeek(
        session_id=_text(found, "session_id"),
        kind=_text(update, "session_update") or "",
        message_id=_text(update, "message_id"),
        text=_text(content, "text") if _text(content, "type") == "text" else None,
        tool_call_id=_text(update, "tool_call_id"),
        status=_text(update, "status"),
    )


def _members(decoder: msgspec.json.Decoder[_RawStruct], raw: bytes) -> dict[str, bytes]:
    try:
        return walker.members(decoder, raw)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return {}


def _text(found: dict[str, bytes], name: str) -> str | None:
    return text_of(found[name]) if name in found else None


# -- JSON that survives lone surrogates ----------------------------------------------------------


def loads(raw: bytes) -> Any:
    """The value of JSON text. Raises ``ValueError``, also for NaN, 1e999 and too deep nesting."""
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    except msgspec.DecodeError as error:
        if b"\\u" not in raw:
            raise ValueError(str(error)) from None
    try:
        # The standard library builds lone surrogates, and is as strict with these two hooks.
        return json.loads(raw.decode(), parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def loads_but(raw: bytes, names: Collection[str]) -> dict[str, Any]:
    """The members of a JSON object without those named, which cost no decoding.

    Raises ``ValueError`` as :func:`loads` does.
    """
    try:
        members = _MEMBERS.decode(raw)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    except msgspec.DecodeError:
        # A text that only the standard library reads: a lone surrogate.
        return {name: each for name, each in loads(raw).items() if name not in names}
    return {name: loads(bytes(each)) for name, each in members.items() if name not in names}


def dumps(value: Any) -> bytes:
    """One line of JSON in UTF-8 for plain data (dict, list, str, int, float, bool, None).

    Lone surrogates become escapes. Raises ``ValueError`` for NaN, infinities and what is nested
    too deeply, ``TypeError`` for what JSON does not have.
    """
    try:
        try:
            encoded = msgspec.json.encode(value)
        except UnicodeEncodeError:
            return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("nested too deeply for JSON") from None
    # msgspec writes NaN as null, which would change the value in silence.
    if b"null" in encoded and _holds_nan(value):
        raise ValueError("NaN and infinities are no JSON")
    return encoded


def _holds_nan(value: Any) -> bool:
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, dict):
            rest.extend(item.values())
        elif isinstance(item, (list, tuple)):
            rest.extend(item)
        elif isinstance(item, float) and not math.isfinite(item):
            return True
    return False


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("number out of range")
    return value
