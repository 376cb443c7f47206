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

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

RawStruct = TypeVar("RawStruct", bound=msgspec.Struct)

# First digits of a four-digit escape that make no surrogate; the rarely used ones first.
_DIGITS: Final = b"eE1fFaAbBcC0987654321"


def members(decoder: msgspec.json.Decoder[RawStruct], data: bytes) -> dict[str, bytes]:
    """The members of the object ``data`` that the decoder's struct names, raw; absent: no key.

    The struct's fields are all ``msgspec.Raw | UnsetType``. Raises as :func:`opened`.
    """
    found, spelled = opened(decoder, data)
    named = msgspec.structs.asdict(found)
    return {name: spelled(raw) for name, raw in named.items() if raw is not msgspec.UNSET}


def opened(
    decoder: msgspec.json.Decoder[RawStruct], data: bytes
) -> tuple[RawStruct, Callable[[msgspec.Raw], bytes]]:
    """The object ``data`` as the decoder has it, and what gives a raw value of it its spelling.

    All texts in the struct have to be raw, at any depth. Raises ``msgspec.DecodeError`` for what is
    no such object and ``RecursionError`` for one nested deeper than the parser goes.
    """
    try:
        return decoder.decode(data), bytes
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        swaps = _swaps(data)
        if not swaps:
            raise
    for own, stand_in in swaps:
        data = data.replace(own, stand_in)

    def spelled(raw: msgspec.Raw) -> bytes:
        shown = bytes(raw)
        for own, stand_in in swaps:
            shown = shown.replace(stand_in, own)
        return shown

    return decoder.decode(data), spelled


def _swaps(data: bytes) -> list[tuple[bytes, bytes]]:
    """How escapes that may be surrogates begin in ``data``, each with a stand-in it does not hold.

    None: there are none, or no stand-in is left.
    """
    used = [each for each in (b"\\ud", b"\\uD") if each in data]
    free = (each for digit in _DIGITS if (each := b"\\u%c" % digit) not in data)
    swaps = list(zip(used, free, strict=False))
    return swaps if len(swaps) == len(used) else []
