"""One line into the parts of a JSON-RPC message, the payloads raw.

Owns the narrow decode of the hot path: five members, of which four stay the bytes they came as,
without building what is in them (a line of 60 MB costs no objects). Rules: what passes is valid
JSON in valid UTF-8 on one line, byte for byte the agent's, but for a raw CR between tokens, which
becomes a space (it would end an SSE line; inside a string it is not JSON at all, RFC 8259 section
7). msgspec checks the grammar of what it skips, but not its UTF-8; ``is_utf8`` does. Of duplicate
members the last counts. Knows nothing of ids in flight.
"""

from __future__ import annotations

import codecs
import json

import msgspec

from bridge.protocol import walker

_SLICE_BYTES = 1024 * 1024


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The members of one message; UNSET where absent, ``method`` None where it is no string."""

    method: str | msgspec.UnsetType | None = msgspec.UNSET
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _RawEnvelope(msgspec.Struct, frozen=True, gc=False):
    method: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_DECODE = msgspec.json.Decoder(Envelope).decode
_RAW_DECODER = msgspec.json.Decoder(_RawEnvelope)


class UnreadableError(Exception):
    """The line holds no message; ``code`` is that of the warning, ``reason`` a few words."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


def decode(line: bytes) -> Envelope:
    """The envelope of a line without its end; raises ``UnreadableError``. UTF-8 is not checked."""
    if b"\r" not in line:
        try:
            return _DECODE(line)
        except (msgspec.DecodeError, RecursionError):
            # Rare, and the careful way below tells the reasons apart.
            pass
    return _decode_carefully(line)


def is_utf8(data: bytes) -> bool:
    """Whether ``data`` is valid UTF-8; a large one is checked in slices, to build no large str."""
    if data.isascii():
        return True
    try:
        if len(data) <= _SLICE_BYTES:
            data.decode()
            return True
        decoder = codecs.getincrementaldecoder("utf-8")()
        for start in range(0, len(data), _SLICE_BYTES):
            decoder.decode(data[start : start + _SLICE_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _decode_carefully(line: bytes) -> Envelope:
    try:
        found = walker.members(_RAW_DECODER, line)
    except RecursionError:
        raise UnreadableError("too-deep", "nested too deeply") from None
    except msgspec.ValidationError:
        raise UnreadableError("not-a-message", "no JSON object") from None
    except msgspec.DecodeError:
        raise UnreadableError("not-a-message", "no JSON") from None
    raws = {name: msgspec.Raw(raw.replace(b"\r", b" ")) for name, raw in found.items()}
    return Envelope(
        method=text_of(found["method"]) if "method" in found else msgspec.UNSET,
        id=raws.get("id", msgspec.UNSET),
        params=raws.get("params", msgspec.UNSET),
        result=raws.get("result", msgspec.UNSET),
        error=raws.get("error", msgspec.UNSET),
    )


def text_of(raw: bytes) -> str | None:
    """The text of a raw JSON string, lone surrogates kept; None for any other value."""
    if not raw.startswith(b'"'):
        return None
    try:
        value = json.loads(raw.decode())
    except ValueError:
        return None
    return value if isinstance(value, str) else None
