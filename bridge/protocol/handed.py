"""What callers hand through to an agent: held to ACP's shapes before it is sent.

Content blocks and MCP servers pass on with all their members, known or not; what the protocol
requires of them must be there and of its type, since agents answer a misshapen request with an
error for the whole of it, or not at all. Shapes: ACP, content and session setup
(https://agentclientprotocol.com/protocol/schema).

Knows nothing of sessions, processes or HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from bridge.errors import CallerError

_BLOCKS: Final[dict[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
    "resource": (),
}
"""The texts that a block of each type must have."""

_CAPABILITIES: Final = {"image": "image", "audio": "audio", "resource": "embeddedContext"}
"""What an agent must have said of its ``promptCapabilities`` to be sent such a block."""


def check_blocks(
    blocks: Iterable[Mapping[str, Any]], capabilities: Mapping[str, Any] | None
) -> None:
    """Whether a prompt can be sent to an agent with these ``agentCapabilities``.

    ``None``: nobody knows them before its first process has said them, so that only shapes are
    judged. Raises ``content-not-supported`` and ``invalid-request``.
    """
    told = (capabilities or {}).get("promptCapabilities")
    allowed = told if isinstance(told, Mapping) else {}
    for block in blocks:
        kind = str(block.get("type"))
        needed = _CAPABILITIES.get(kind) if capabilities is not None else None
        is_lacking = needed is not None and allowed.get(needed) is not True
        if is_lacking or kind not in _BLOCKS:
            raise CallerError(
                "content-not-supported",
                f"This agent takes no {kind} content.",
                available=["text", "resource_link", *_supported(allowed)],
            )
        if problem := block_misfit(block):
            raise CallerError("invalid-request", problem)


def _supported(allowed: Mapping[str, Any]) -> list[str]:
    return [kind for kind, name in _CAPABILITIES.items() if allowed.get(name) is True]


def block_misfit(block: Mapping[str, Any]) -> str | None:
    """What is wrong with a content block of a known type, in one sentence; ``None``: nothing."""
    kind = block["type"]
    missing = _missing(block, _BLOCKS[kind])
    if missing is not None:
        return f"A block of the type {kind} has a text `{missing}`."
    if odd := _odd_member(block):
        return odd
    return _resource_misfit(block.get("resource")) if kind == "resource" else None


def _resource_misfit(resource: object) -> str | None:
    if not isinstance(resource, Mapping) or _missing(resource, ("uri",)) is not None:
        return "A resource has a `uri`."
    if all(_missing(resource, (name,)) for name in ("text", "blob")):
        return "A resource has a `text` or a `blob`."
    return _odd_member(resource)


def _odd_member(given: Mapping[str, Any]) -> str | None:
    """What is wrong with a member that may be left out, or be ``null``; in one sentence."""
    for name, (fits, words) in _OPTIONAL.items():
        if given.get(name) is not None and not fits(given[name]):
            return f"`{name}` is {words}."
    return None


def is_command(server: Mapping[str, Any]) -> bool:
    """Whether an MCP server is started on the box; without a type it is (ACP, mcpServers)."""
    return "command" in server or server.get("type") in (None, "stdio")


def completed_server(server: Mapping[str, Any]) -> dict[str, Any]:
    """The server with the empty lists that may be left out. Raises ``ValueError`` for a misfit."""
    lists: dict[str, list[Any]] = {"args": [], "env": []} if is_command(server) else {"headers": []}
    whole: dict[str, Any] = {**lists, **server}
    texts = ("name", "command") if is_command(server) else ("name", "url")
    if (missing := _missing(whole, texts)) is not None:
        raise ValueError(f"An MCP server of this kind has a text `{missing}`.")
    if not is_command(server) and whole["type"] not in ("http", "sse"):
        raise ValueError("The type of an MCP server is stdio, http or sse.")
    for name in lists:
        if not isinstance(whole[name], list) or not all(map(_FITS[name], whole[name])):
            raise ValueError(f"`{name}` of an MCP server is a list of {_MEMBERS[name]}.")
    if not _has_meta(whole):
        raise ValueError("`_meta` of an MCP server is an object.")
    return whole


def _missing(given: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if not isinstance(given.get(name), str)), None)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_pair(value: object) -> bool:
    has_texts = isinstance(value, Mapping) and _missing(value, ("name", "value")) is None
    return has_texts and _has_meta(value)


def _has_meta(value: Any) -> bool:
    """Whether ``_meta`` is what it may be: an object, or nothing."""
    return value.get("_meta") is None or isinstance(value["_meta"], Mapping)


def _is_annotations(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    audience, priority = value.get("audience"), value.get("priority")
    return (
        (audience is None or (isinstance(audience, list) and all(e in _ROLES for e in audience)))
        and (priority is None or _is_number(priority))
        and (value.get("lastModified") is None or _is_text(value["lastModified"]))
        and _has_meta(value)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)


_FITS: Final = {"args": _is_text, "env": _is_pair, "headers": _is_pair}
_MEMBERS: Final = {
    "args": "texts",
    "env": "objects with name and value",
    "headers": "objects with name and value",
}
_ROLES: Final = ("assistant", "user")
_OPTIONAL: Final = {
    "_meta": (_is_object, "an object"),
    "annotations": (
        _is_annotations,
        "an object of `audience`, `priority` and `lastModified`: roles, a number and a text",
    ),
    "size": (_is_size, "a whole number"),
    "mimeType": (_is_text, "a text"),
    "title": (_is_text, "a text"),
    "description": (_is_text, "a text"),
    "uri": (_is_text, "a text"),
}
