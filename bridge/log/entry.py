"""Entries and the frames they are stored as: the very bytes that subscribers get.

A frame is one Server-Sent Event, ``id``, ``event`` and ``data`` lines and a blank one. The data is
one line of JSON whose members come in a fixed order with ``params`` last, so that what a filter
needs stands at the front. Agents' bytes are spliced in once and never encoded again.

Knows nothing of ACP beyond the name of an entry's type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

PARAMS: Final = b',"params":'
"""What ends the front of a data line; no text in front of it can hold it, quotes are escaped."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]")


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An entry before it has a position; ``params`` is one line of valid JSON, verbatim.

    A struct and not a dataclass because one is made for every line of the hot path.
    """

    type: str
    params: bytes
    turn_id: str | None = None
    request_id: str | None = None
    is_replay: bool = False
    subagent: str | None = None
    file_url: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry read back from the log; ``time`` is RFC 3339."""

    seq: int
    id: int
    session_id: str
    turn_id: str | None
    time: str
    type: str
    params: bytes
    request_id: str | None = None
    is_replay: bool = False
    subagent: str | None = None
    file_url: str | None = None


def encode_frames(
    drafts: Sequence[Draft], *, session_id: str, time: str, first_seq: int, first_id: int
) -> bytes:
    """The frames of one append, in order.

    Raises :class:`ValueError` where params are not one line: a CR or LF in them would let whoever
    wrote them end the frame and begin another.
    """
    parts: list[bytes] = []
    add = parts.append
    seq, number = first_seq, first_id
    last: tuple[Any, ...] | None = None
    event = middle = b""
    for draft in drafts:
        params = draft.params
        # LF and CR; looking for a number is several times as fast as looking for bytes.
        if 10 in params or 13 in params:
            raise ValueError("an entry's params are one line of JSON")
        key = (draft.type, draft.turn_id, draft.request_id, draft.is_replay, draft.subagent)
        if key != last or draft.file_url is not None:
            event = b"event: " + spelled(draft.type).encode()
            middle = _middle(draft, session_id, time)
            last = key if draft.file_url is None else None
        add(b'id: %d\n%b\ndata: {"seq":%d,"id":%d%b' % (seq, event, seq, number, middle))
        add(params)
        add(b"}\n\n")
        seq += 1
        number += 1
    return b"".join(parts)


@lru_cache
def spelled(kind: str) -> str:
    """A type as it stands on an event line: one line of valid text."""
    return _CONTROL.sub(" ", kind).encode("utf-8", "replace").decode()


def split_frames(body: bytes) -> list[bytes]:
    """The frames of a body, each with its blank line."""
    if body.find(b"\n\n") == len(body) - 2:
        return [body]
    frames = body.split(b"\n\n")
    frames.pop()
    return [frame + b"\n\n" for frame in frames]


def data_of(frame: bytes) -> bytes:
    """The JSON text of a frame."""
    start = frame.index(b"\ndata: ") + 7
    return frame[start : frame.index(b"\n", start)]


def type_of(frame: bytes) -> str:
    """The event line's type of a frame."""
    start = frame.index(b"\nevent: ") + 8
    return frame[start : frame.index(b"\n", start)].decode("utf-8", "replace")


def decode_frames(body: bytes) -> Iterator[Entry]:
    """The entries of a body."""
    for frame in split_frames(body):
        yield decode(data_of(frame))


def decode(data: bytes) -> Entry:
    """The entry of one data line."""
    at = data.index(PARAMS)
    head = _head(data[:at] + b"}")
    return Entry(
        head.seq,
        head.id,
        head.session_id,
        head.turn_id,
        head.time,
        head.type,
        data[at + len(PARAMS) : -1],
        head.request_id,
        head.replay,
        head.subagent,
        head.file_url,
    )


class _Head(msgspec.Struct, rename="camel"):
    seq: int
    id: int
    session_id: str
    turn_id: str | None
    time: str
    type: str
    request_id: str | None = None
    replay: bool = False
    subagent: str | None = None
    file_url: str | None = None


def _head(text: bytes) -> _Head:
    """The front of a data line. An agent's lone surrogates are more than msgspec takes."""
    try:
        return msgspec.json.decode(text, type=_Head)
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(text), _Head)


def _middle(draft: Draft, session_id: str, time: str) -> bytes:
    """Everything between the ids and the params; its texts cannot hold ``PARAMS``."""
    members = [
        b',"sessionId":"%b"' % session_id.encode(),
        b',"turnId":%b' % (_short(draft.turn_id) if draft.turn_id else b"null"),
        b',"time":"%b"' % time.encode(),
        b',"type":%b' % _short(draft.type),
    ]
    if draft.request_id is not None:
        members.append(b',"requestId":%b' % _text(draft.request_id))
    if draft.is_replay:
        members.append(b',"replay":true')
    if draft.subagent is not None:
        members.append(b',"subagent":%b' % _text(draft.subagent))
    if draft.file_url is not None:
        members.append(b',"fileUrl":%b' % _text(draft.file_url))
    members.append(PARAMS)
    return b"".join(members)


def _text(value: str) -> bytes:
    """A JSON text in ASCII: a lone surrogate stays an escape, a quote in it stays escaped."""
    return json.dumps(value).encode("ascii")


_short = lru_cache(_text)
"""The same for what is short and comes again and again: types, turns."""


def dumps(value: Any) -> bytes:
    """A small JSON text of our own, on one line, in ASCII."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")
