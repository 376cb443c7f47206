"""Takes out of a text what would let its reader act as somebody else.

Used for everything an agent or the system says that ends up in a log, a problem or an event of
the bridge's own. Rules: it works by shape, because keys turn up where nobody expects them, and
by the values that are known to be secret; it may take too much, never too little. The agent's
messages themselves pass through unchanged and are no business of this module.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

MASK = "[redacted]"
_SHORTEST_SECRET = 8
"""Shorter values (``1``, ``true``, ``staging``) would blot out ordinary text."""

# Texts are an agent's and may be made to take long: each alternative begins at the first character
# of a run only, or looks ahead a bounded way, and gives nothing back.
_SHAPES = re.compile(
    r"""
      (?P<login> (?<![^\s"'<>]) [^\s"'<>]*? loginDeepControl [^\s"'<>]*+ )
    | (?P<scheme> \b(?:bearer|basic)\s++ ) [A-Za-z0-9._~+/=-]++
    | (?P<userinfo> \b[a-z][a-z0-9+.-]{0,31}:// ) [^\s/@"'<>]++ (?=@)
    | (?P<jwt> (?<![A-Za-z0-9_-]) (?= (?:[A-Za-z0-9_-]*?[_-])? (?-i:eyJ) )
               [A-Za-z0-9_-]++ \. [A-Za-z0-9_-]++ (?:\.[A-Za-z0-9_-]*+)? )
    | (?P<token> \b(?:cab_|sk-|key_|crsr_)[A-Za-z0-9_-]{6,}+ )
    """,
    re.VERBOSE | re.IGNORECASE,
)


_URL = re.compile(r"\b[a-z][a-z0-9+.-]{0,31}://[^\s\"'<>]++", re.IGNORECASE)


def without_links(value: Any) -> Any:
    """A text without any link, where one may let whoever opens it log in; other values as is."""
    return _URL.sub(MASK, value) if isinstance(value, str) else value


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` with tokens, keys, JWTs, login links and the values in ``secrets`` masked."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = _without_start(text.replace(secret, MASK), secret)
    return _SHAPES.sub(_mask, text)


def _without_start(text: str, secret: str) -> str:
    """Texts are often cut before they come here: what they end with may be a secret's start."""
    for length in range(len(secret) - 1, _SHORTEST_SECRET - 1, -1):
        if text.endswith(secret[:length]):
            return text[:-length] + MASK
    return text


def redact_all(value: Any, secrets: Collection[str] = ()) -> Any:
    """A JSON value with every text in it redacted; names of members stay."""
    match value:
        case str():
            return redact(value, secrets)
        case dict():
            return {key: redact_all(item, secrets) for key, item in value.items()}
        case list() | tuple():
            return [redact_all(item, secrets) for item in value]
        case _:
            return value


def _mask(match: re.Match[str]) -> str:
    return (match["scheme"] or match["userinfo"] or "") + MASK
