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

# Escapes that are half a pair at most: a high one without a low one behind it, a low one without
# a high one in front, or with one that a backslash precedes and so may be no escape at all. It
# begins with a literal, which lets the search run at the speed of memchr.
_HIGH, _LOW = rb"[89abAB][0-9a-fA-F]{2}", rb"[c-fC-F][0-9a-fA-F]{2}"
_LONE = re.compile(
    rb"\\u[dD](?:%(high)b(?!\\u[dD]%(low)b)"
    rb"|(?:(?<!\\u[dD]%(high)b\\u[dD])|(?<=\\\\u[dD]%(high)b\\u[dD]))%(low)b)"
    % {b"high": _HIGH, b"low": _LOW}
)
_HIGH_ESCAPE = re.compile(rb"\\u[dD]" + _HIGH)
_ESCAPE_BYTES = 6
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
        digits = _free_digits(data)
        if digits is None:
            raise
    upper, lower = b"\\u%c" % digits[0], b"\\u%c" % digits[1]
    return {
        name: raw.replace(upper, b"\\uD").replace(lower, b"\\ud")
        for name, raw in _sliced(decoder, _disguised(data, digits)).items()
    }


def _sliced(decoder: msgspec.json.Decoder[RawStruct], data: bytes | bytearray) -> dict[str, bytes]:
    found = msgspec.structs.asdict(decoder.decode(data))
    return {name: bytes(raw) for name, raw in found.items() if raw is not msgspec.UNSET}


def _free_digits(data: bytes) -> tuple[int, int] | None:
    """Stand-ins for ``D`` and ``d`` that follow no ``\\u`` in ``data``; None: no use, or none."""
    if _LONE.search(data) is None:
        return None
    free = (digit for digit in _DIGITS if b"\\u%c" % digit not in data)
    upper, lower = next(free, None), next(free, None)
    return None if upper is None or lower is None else (upper, lower)


def _disguised(data: bytes, digits: tuple[int, int]) -> bytearray:
    # Changed in place: a line can hold millions of them.
    hidden = bytearray(data)
    for match in _LONE.finditer(data):
        start = match.start()
        if _is_escape(data, start) and not _is_second_half(data, start):
            hidden[start + 2] = digits[data[start + 2] == ord("d")]
    return hidden


def _is_second_half(data: bytes, start: int) -> bool:
    before = start - _ESCAPE_BYTES
    return (
        data[start + 3 : start + 4] in b"cdefCDEF"
        and _HIGH_ESCAPE.match(data, before) is not None
        and _is_escape(data, before)
    )


def _is_escape(data: bytes, start: int) -> bool:
    """Whether the backslash at ``start`` is itself not escaped by those before it."""
    first = start
    while first and data[first - 1] == ord("\\"):
        first -= 1
    return (start - first) % 2 == 0
