"""HTTP/1.1 framing, stricter than h11: what could be read in two ways is not read at all.

Sans-IO. :class:`StrictConnection` is h11's connection with a look at the raw head of each request
before h11 sees it, because h11 merges equal Content-Length headers, takes Content-Length beside
Transfer-Encoding, and parses ten thousand headers. Rules, by RFC 9112: one Host (3.2), also for
HTTP/1.0, whose requests would else pass by every check of it; an absolute-form target only for
that same authority (3.2.2), and then as if it were origin-form; one Content-Length (6.3); no
obsolete line folding (5.2), no control characters (RFC 9110, 5.5). A refusal is an exception for
whoever drives the connection, and the error to answer with is in
:attr:`StrictConnection.refusal`.
"""

from __future__ import annotations

import re

import h11

from bridge.api.guard import MOST_HEADER_BYTES, MOST_HEADERS, MOST_URL_BYTES
from bridge.api.problems import MalformedRequest
from bridge.errors import BridgeError, CallerError

_MOST_LINE_BYTES = MOST_URL_BYTES + 64
"""A request line: the longest target, a method and a version."""
_MOST_UPGRADE_LINE_BYTES = 8190
"""What the WebSocket library's own parser takes in a line."""

_END = re.compile(rb"\n\r?\n")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SOCKET_KEY = re.compile(rb"[A-Za-z0-9+/]{21}[AQgw]==")
_FOLD = re.compile(rb"\n[ \t]")
_LENGTHS = re.compile(rb"\ncontent-length[ \t]*:([^\n]*)", re.IGNORECASE)
_HUGE_TOKEN = re.compile(rb"\nauthorization:[^\n]{8192}", re.IGNORECASE)
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)


class Refused(h11.RemoteProtocolError):
    """This request cannot be taken from the wire; the connection is of no further use."""


class StrictConnection(h11.Connection):
    """The server's side of one connection."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=MOST_HEADER_BYTES + _MOST_LINE_BYTES)
        self.refusal: BridgeError = MalformedRequest("This is no HTTP request.")
        """What to answer after :meth:`next_event` has raised."""
        self._is_due = False
        self._unchecked_bytes = 0

    def receive_data(self, data: bytes) -> None:
        """As in h11. Looks out for what makes another look at the head worth while.

        A head that trickles in byte by byte must not cost a search of all of it each time.
        """
        self._unchecked_bytes += len(data)
        if b"\n" in data or self._unchecked_bytes > _MOST_LINE_BYTES:
            self._is_due = True
        super().receive_data(data)

    def start_next_cycle(self) -> None:
        """As in h11; the next request may be in the buffer already."""
        self._is_due = True
        super().start_next_cycle()

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """h11's next event; raises ``h11.RemoteProtocolError`` and leaves a :attr:`refusal`."""
        if self._is_due and self.their_state is h11.IDLE:
            self._is_due = False
            self._unchecked_bytes = 0
            refusal = head_refusal(self.trailing_data[0])
            if refusal is not None:
                self.refusal = refusal
                raise Refused(refusal.detail)
        event = super().next_event()
        if isinstance(event, h11.Request):
            try:
                return _checked(event)
            except BridgeError as error:
                self.refusal = error
                raise Refused(error.detail) from None
        return event


def head_refusal(buffered: bytes) -> BridgeError | None:
    """Why the request that starts ``buffered`` is refused by its raw head, if it is.

    A head that is not complete yet is refused as soon as it is too large.
    """
    end = _END.search(buffered)
    head = buffered[: end.end()] if end else buffered
    line_end = head.find(b"\n")
    if (line_end if line_end >= 0 else len(head)) > _MOST_LINE_BYTES:
        return CallerError("uri-too-long", f"A URL has at most {MOST_URL_BYTES} bytes.")
    if len(head) - line_end > MOST_HEADER_BYTES or head.count(b"\n") > MOST_HEADERS + 2:
        return _oversize(head)
    return _ambiguity(head) if end else None


def _oversize(head: bytes) -> BridgeError:
    """A token as large as this is a wrong token, and gets the answer of one."""
    if _HUGE_TOKEN.search(head):
        return CallerError("unauthorized", "The token is not valid, or not any more.")
    return CallerError("headers-too-large", "The headers are too many or too large.")


def _ambiguity(head: bytes) -> BridgeError | None:
    if _CONTROL.search(head):
        return MalformedRequest("A request's head has no control characters.")
    if _FOLD.search(head):
        return MalformedRequest("Header lines must not be folded.")
    lengths = _LENGTHS.findall(head)
    if len(lengths) > 1 or any(b"," in length for length in lengths):
        return MalformedRequest("A request has at most one Content-Length.")
    return None


def _checked(request: h11.Request) -> h11.Request:
    names = [name for name, _ in request.headers]
    if request.http_version not in (b"1.1", b"1.0"):
        raise MalformedRequest("The bridge speaks HTTP/1.1 and HTTP/1.0.")
    if names.count(b"host") != 1:
        raise MalformedRequest("A request has exactly one Host header.")
    if b"content-length" in names and b"transfer-encoding" in names:
        raise MalformedRequest("Content-Length and Transfer-Encoding exclude each other.")
    if b"transfer-encoding" in names and request.http_version == b"1.0":
        raise MalformedRequest("HTTP/1.0 has no Transfer-Encoding.")
    _check_upgrade(request)
    if request.target.startswith(b"/"):
        return request
    return _origin_form(request)


def _check_upgrade(request: h11.Request) -> None:
    """A WebSocket's opening is whole (RFC 6455, 4.2.1), or it is not handed over at all.

    The library that takes it from here answers a bad one in words of its own, or with silence.
    """
    fields = _listed(request, b"upgrade"), _listed(request, b"connection")
    if b"websocket" not in fields[0] or b"upgrade" not in fields[1]:
        return
    if request.method != b"GET" or request.http_version != b"1.1" or fields[0] != [b"websocket"]:
        raise MalformedRequest("A WebSocket begins with a GET of HTTP/1.1, and is nothing else.")
    if _listed(request, b"content-length") not in ([], [b"0"]) or _has_coding(request):
        raise MalformedRequest("A WebSocket begins with a request that has no body.")
    if _listed(request, b"sec-websocket-version") != [b"13"]:
        raise MalformedRequest("The bridge speaks version 13 of the WebSocket protocol.")
    keys = [value for name, value in request.headers if name == b"sec-websocket-key"]
    if len(keys) != 1 or _SOCKET_KEY.fullmatch(keys[0]) is None:
        raise MalformedRequest("A WebSocket begins with one Sec-WebSocket-Key of 16 bytes.")
    _check_upgrade_size(request)


def _listed(request: h11.Request, wanted: bytes) -> list[bytes]:
    """The members of a header that is a list, in lower case."""
    values = [value for name, value in request.headers if name == wanted]
    return [each.strip(b" \t") for value in values for each in value.lower().split(b",")]


def _has_coding(request: h11.Request) -> bool:
    return any(name == b"transfer-encoding" for name, _ in request.headers)


def _check_upgrade_size(request: h11.Request) -> None:
    longest = max(len(name) + len(value) + 4 for name, value in request.headers)
    if longest > _MOST_UPGRADE_LINE_BYTES:
        raise CallerError("headers-too-large", "A header is too large.")
    if len(request.target) + len("GET  HTTP/1.1") > _MOST_UPGRADE_LINE_BYTES:
        raise CallerError("uri-too-long", "The URL is too long.")


def _origin_form(request: h11.Request) -> h11.Request:
    match = _ABSOLUTE.fullmatch(request.target)
    host = next(value for name, value in request.headers if name == b"host")
    if match is None or match[1].lower() != host.lower():
        raise MalformedRequest("The request's target is no path of this host.")
    path = match[2] if match[2].startswith(b"/") else b"/" + match[2]
    return h11.Request(
        method=request.method,
        target=path,
        headers=request.headers.raw_items(),
        http_version=request.http_version,
    )
