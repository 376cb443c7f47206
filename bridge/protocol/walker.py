"""Raw members of a JSON object that msgspec alone refuses: lone surrogates such as ``"\\ud83d"``.

Node writes one when a stream splits an emoji, RFC 8259 section 8.2 lets it pass as grammar, and
msgspec says no to the whole line. So that nothing of it is lost, each lone ``\\udXXX`` is disguised
as an escape of the same length that the line does not use, the real parser checks and slices the
disguised copy, and the slices get their own spelling back. That keeps one JSON grammar in the
bridge, runs at the parser's speed on lines of any size, and never recurses here.

Rules: a slice is byte for byte what came in; what is not JSON still raises. Knows nothing of
JSON-RPC.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

RawStruct = TypeVar("RawStruct", bound=msgspec.Struct)

# A backslash that no other backslash precedes, then pairs (escaped backslashes), then the escape:
# so only a backslash that does start an escape counts. Whole pairs are consumed to step over them.
_SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*+)"
    rb"(?:\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\u([dD])([89a-fA-F][0-9a-fA-F]{2}))"
)
# First digits of a four-digit escape that make no surrogate; the rarely used ones first.
_DIGITS = b"eE1fFaAbBcC0987654321"


def members(decoder: msgspec.json.Decoder[RawStruct], data: bytes) -> dict[str, bytes]:
    """The members of the object ``data`` that the decoder's struct names, raw; absent: no key.

    The struct's fields are all ``msgspec.Raw | UnsetType``. Raises ``msgspec.DecodeError`` for what
    is no JSON object and ``RecursionError`` for one nested deeper than the parser goes.
    """
    try:
        return _sliced(decoder, data)
    except msgspec.DecodeError:
        disguise = _disguise(data)
        if disguise is None:
            raise
    digits = disguise
    hidden = _SURROGATE.sub(lambda match: _hide(match, digits), data)
    return {
        name: raw.replace(b"\\u" + digits[:1], b"\\ud").replace(b"\\u" + digits[1:], b"\\uD")
        for name, raw in _sliced(decoder, hidden).items()
    }


def _sliced(decoder: msgspec.json.Decoder[RawStruct], data: bytes) -> dict[str, bytes]:
    found = msgspec.structs.asdict(decoder.decode(data))
    return {name: bytes(raw) for name, raw in found.items() if raw is not msgspec.UNSET}


def _disguise(data: bytes) -> bytes | None:
    """Two digits (for ``d`` and ``D``) that follow no ``\\u`` in ``data``; None: no use or none."""
    if b"\\ud" not in data and b"\\uD" not in data:
        return None
    free = bytes(digit for digit in _DIGITS if b"\\u%c" % digit not in data)
    return free[:2] if len(free) >= 2 else None


def _hide(match: re.Match[bytes], digits: bytes) -> bytes:
    if match[2] is None:
        return match[0]
    digit = digits[:1] if match[2] == b"d" else digits[1:]
    return match[1] + b"\\u" + digit + match[3]
