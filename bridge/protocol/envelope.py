"""One line into the parts of a JSON-RPC message, the payloads raw.

Owns the narrow decode of the hot path: five members, of which four stay the bytes they came as,
without building what is in them (a line of 60 MB costs no objects). Rules: what passes is valid
JSON in valid UTF-8 on one line, byte for byte the agent's, but for a raw CR between tokens, which
becomes a space (it would end an SSE line; inside a string it is not JSON at all, RFC 8259 section
7), and a byte order mark in front, which is left out (section 8.1). msgspec checks the grammar of
what it skips, but not its UTF-8; ``is_utf8`` does. Of duplicate members the last counts. Knows
nothing of ids in flight.
"""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from bridge.protocol import walker

_SLICE_BYTES = 1024 * 1024


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The members of one message; UNSET where absent, ``method`` None where it is no string."""

    method: str | UnsetType | None = UNSET
    id: msgspec.Raw | UnsetType = UNSET
    params: msgspec.Raw | UnsetType = UNSET
    result: msgspec.Raw | UnsetType = UNSET
    error: msgspec.Raw | UnsetType = UNSET


class _RawEnvelope(msgspec.Struct, frozen=True, gc=False):
    method: msgspec.Raw | UnsetType = UNSET
    id: msgspec.Raw | UnsetType = UNSET
    params: msgspec.Raw | UnsetType = UNSET
    result: msgspec.Raw | UnsetType = UNSET
    error: msgspec.Raw | UnsetType = UNSET


_DECODE = msgspec.json.Decoder(Envelope).decode
_RAW_DECODER = msgspec.json.Decoder(_RawEnvelope)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The line cannot be passed on; ``code`` is the warning's, ``reason`` a few words.

    ``envelope`` is there where the line was a message but for its encoding: whoever waits for it
    can be told, but its payloads must not be used.
    """

    code: str
    reason: str
    envelope: Envelope | None = None


def decode(line: bytes) -> Envelope | Unreadable:
    """The envelope of a line without its end, its raw members valid JSON, UTF-8 and one line."""
    # 13 is CR; looking for a number is several times as fast as looking for bytes.
    if 13 not in line and (line.isascii() or is_utf8(line)):
        try:
            return _DECODE(line)
        except (msgspec.DecodeError, RecursionError):
            # Rare, and the careful way below tells the reasons apart.
            pass
    return _decode_carefully(line)


def is_utf8(data: bytes) -> bool:
    """Whether ``data`` is valid UTF-8; a large one is checked in slices, to build no large str."""
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


def _decode_carefully(line: bytes) -> Envelope | Unreadable:
    line = line.removeprefix(codecs.BOM_UTF8)
    try:
        found = walker.members(_RAW_DECODER, line)
    except RecursionError:
        return Unreadable("too-deep", "nested too deeply")
    except msgspec.ValidationError:
        return Unreadable("not-a-message", "no JSON object")
    except msgspec.DecodeError:
        return Unreadable("not-a-message", "no JSON")
    raws = {name: msgspec.Raw(raw.replace(b"\r", b" ")) for name, raw in found.items()}
    envelope = Envelope(
        method=text_of(found["method"]) if "method" in found else UNSET,
        id=raws.get("id", UNSET),
        params=raws.get("params", UNSET),
        result=raws.get("result", UNSET),
        error=raws.get("error", UNSET),
    )
    if not is_utf8(line):
        return Unreadable("invalid-utf8", "invalid UTF-8", envelope)
    return envelope


def text_of(raw: bytes) -> str | None:
    """The text of a raw JSON string, lone surrogates kept; None for any other value."""
    if not raw.startswith(b'"'):
        return None
    try:
        value = json.loads(raw.decode())
    except ValueError:
        return None
    return value if isinstance(value, str) else None
