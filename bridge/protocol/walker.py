"""Raw members of a JSON object that msgspec alone refuses: lone surrogates such as ``"\\ud83d"``.

Node writes one when a stream splits an emoji, RFC 8259 section 8.2 lets it pass as grammar, and
msgspec says no to the whole line. So that nothing of it is lost, every ``\\udXXX`` is disguised as
an escape of the same length that the line does not use, the real parser checks and slices the
disguised copy, and the slices get their own spelling back. Paired ones and those behind an escaped
backslash are disguised as well: what is valid stays valid, what is not stays invalid, and none of
it has to be looked at one by one. That keeps one JSON grammar in the bridge, runs at the parser's
speed on lines of any size and content, and never recurses here.

Rules: a slice is byte for byte what came in; what is not JSON still raises. Knows nothing of
JSON-RPC.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

RawStruct = TypeVar("RawStruct", bound=msgspec.Struct)

# First digits of a four-digit escape that make no surrogate; the rarely used ones first.
_DIGITS: Final = b"eE1fFaAbBcC0987654321"


def members(decoder: msgspec.json.Decoder[RawStruct], data: bytes) -> dict[str, bytes]:
    """The members of the object ``data`` that the decoder's struct names, raw; absent: no key.

    The struct's fields are all ``msgspec.Raw | UnsetType``. Raises ``msgspec.DecodeError`` for what
    is no JSON object and ``RecursionError`` for one nested deeper than the parser goes.
    """
    try:
        return _sliced(decoder, data)
    except msgspec.DecodeError:
        digits = _free_digits(data)
        if digits is None:
            raise
    upper, lower = b"\\u%c" % digits[0], b"\\u%c" % digits[1]
    disguised = data.replace(b"\\uD", upper).replace(b"\\ud", lower)
    return {
        name: raw.replace(upper, b"\\uD").replace(lower, b"\\ud")
        for name, raw in _sliced(decoder, disguised).items()
    }


def _sliced(decoder: msgspec.json.Decoder[RawStruct], data: bytes) -> dict[str, bytes]:
    found = msgspec.structs.asdict(decoder.decode(data))
    return {name: bytes(raw) for name, raw in found.items() if raw is not msgspec.UNSET}


def _free_digits(data: bytes) -> tuple[int, int] | None:
    """Stand-ins for ``D`` and ``d`` that follow no ``\\u`` in ``data``; None: no use, or none."""
    if b"\\ud" not in data and b"\\uD" not in data:
        return None
    free = (digit for digit in _DIGITS if b"\\u%c" % digit not in data)
    upper, lower = next(free, None), next(free, None)
    return None if upper is None or lower is None else (upper, lower)
