"""ACP version 1 as far as the bridge speaks it, written down once more: what a message must have.

By hand from the protocol's page on its schema (https://agentclientprotocol.com/protocol/schema):
for each method the members its params need, and for each request of an agent what an answer is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


def misfit(message: Json, asked: dict[str, str]) -> str | None:
    """What is wrong with a message to an agent; ``asked`` are its own requests by JSON id."""
    if message.get("jsonrpc") != "2.0":
        return "no JSON-RPC 2.0"
    if "method" not in message:
        return _answer_misfit(message, asked)
    method, params = message["method"], message.get("params")
    if ("id" in message) == (method == "session/cancel"):
        return f"{method} is a request or a notification, and this is the other"
    if method not in _PARAMS:
        return None if method.startswith(("_", "cursor/")) else f"{method} is no method"
    if not isinstance(params, dict):
        return f"{method} has no params"
    for name, kind in _PARAMS[method].items():
        if not isinstance(params.get(name), kind):
            return f"{method} has no {name}"
    check = _CHECKS.get(method)
    return None if check is None else check(params)


_PARAMS: dict[str, dict[str, type]] = {
    "initialize": {"protocolVersion": int, "clientCapabilities": dict, "clientInfo": dict},
    "authenticate": {"methodId": str},
    "session/new": {"cwd": str, "mcpServers": list},
    "session/load": {"sessionId": str, "cwd": str, "mcpServers": list},
    "session/list": {},
    "session/prompt": {"sessionId": str, "prompt": list},
    "session/cancel": {"sessionId": str},
    "session/set_mode": {"sessionId": str, "modeId": str},
    "session/set_model": {"sessionId": str, "modelId": str},
    "session/set_config_option": {"sessionId": str, "configId": str},
}


def _initialize(params: Json) -> str | None:
    info = params["clientInfo"]
    if not all(isinstance(info.get(name), str) for name in ("name", "version")):
        return "clientInfo has no name or version"
    return None if params["protocolVersion"] == 1 else "not version 1"


def _place(params: Json) -> str | None:
    if not params["cwd"].startswith("/"):
        return "cwd is not absolute"
    for server in params["mcpServers"]:
        kind = server.get("type", "stdio")
        wanted = ("command", "args", "env") if kind == "stdio" else ("url", "headers")
        if not all(name in server for name in ("name", *wanted)):
            return "a server lacks members"
    return None


def _prompt(params: Json) -> str | None:
    return next((problem for each in params["prompt"] if (problem := _block(each))), None)


_BLOCKS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource_link": {"name": str, "uri": str},
    "resource": {"resource": dict},
}
_MAY_BE_NULL: dict[str, type | tuple[type, ...]] = {
    "_meta": dict,
    "annotations": dict,
    "description": str,
    "mimeType": str,
    "size": int,
    "title": str,
    "uri": str,
    "lastModified": str,
    "priority": (int, float),
    "audience": list,
}


def _block(block: Json) -> str | None:
    needed = _BLOCKS.get(block.get("type", ""))
    if needed is None:
        return "a block of no type"
    if not all(isinstance(block.get(name), kind) for name, kind in needed.items()):
        return "a block lacks members"
    notes = block.get("annotations") or {}
    inner = block.get("resource", {})
    if block["type"] == "resource" and not ("uri" in inner and {"text", "blob"} & inner.keys()):
        return "a resource lacks members"
    for each in (block, notes, inner):
        for name, kind in _MAY_BE_NULL.items():
            value = each.get(name)
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                return f"{name} of a block is odd"
    if not set(notes.get("audience") or ()) <= {"assistant", "user"}:
        return "a block for nobody"
    return None


def _option(params: Json) -> str | None:
    value = params.get("value")
    if isinstance(value, bool):
        return None if params.get("type") == "boolean" else "a boolean without its type"
    return None if isinstance(value, str) else "a value that is no text"


_CHECKS: dict[str, Callable[[Json], str | None]] = {
    "initialize": _initialize,
    "session/new": _place,
    "session/load": _place,
    "session/prompt": _prompt,
    "session/set_config_option": _option,
}


def _answer_misfit(message: Json, asked: dict[str, str]) -> str | None:
    method = asked.get(repr(message.get("id")))
    if method is None:
        return "an answer to nothing"
    if ("result" in message) == ("error" in message):
        return "an answer with both or neither"
    if "error" in message:
        error = message["error"]
        fits = isinstance(error.get("code"), int) and isinstance(error.get("message"), str)
        return None if fits else "an error without code or message"
    result = message["result"]
    match method.removeprefix("_"):
        case "session/request_permission":
            outcome = result.get("outcome") or {}
            chosen = outcome.get("outcome") == "selected" and isinstance(
                outcome.get("optionId"), str
            )
            return None if chosen or outcome == {"outcome": "cancelled"} else "no outcome"
        case "elicitation/create":
            return None if result.get("action") in ("accept", "decline", "cancel") else "no action"
        case name if name.startswith("cursor/") and name != "cursor/demo_choice":
            outcome = result.get("outcome")
            nested = isinstance(outcome, dict) and isinstance(outcome.get("outcome"), str)
            return None if nested else "an outcome that is not nested"
    return None
