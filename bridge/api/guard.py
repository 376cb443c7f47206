"""The locked door: outermost, over every http and websocket scope, before anything is allocated.

The order is fixed: framing, Host, Origin and Sec-Fetch-Site, preflight, token, scope, rate,
content type and size. What a route asks is answered by ``access``, made from the route table;
nothing is listed twice. Decisions are taken from ``scope["path"]``, which the router uses too,
never from a URL built out of headers (CVE-2026-48710); a path that two readers could take for
two things is never public and names nothing. Everything refused is a problem document, and an
exception nobody foresaw is one as well. Knows nothing of sessions: who owns what is decided
where they are looked up.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.api import problems
from bridge.api.access import ANY_TOKEN, Access, Resolver
from bridge.api.exchange import Exchange, Fields, too_large
from bridge.api.hosts import Host, Hosts, Origins, parse_host
from bridge.api.problems import MalformedRequest
from bridge.api.rates import Rates, address_key
from bridge.config import Settings
from bridge.errors import BridgeError, CallerError
from bridge.principal import Principal
from bridge.tokens import NO_AUTH, TokenStore

Audit = Callable[..., None]

MOST_URL_BYTES = 8192
MOST_HEADERS = 100
MOST_HEADER_BYTES = 65536
PAGES = frozenset({"/", "/docs"})
"""What a link on another site may lead to."""

_ALLOW_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_ALLOW_HEADERS = (
    b"Authorization, Content-Type, Idempotency-Key, Prefer, Accept, Last-Event-ID, X-Request-Id"
)
_EXPOSE_HEADERS = b"Location, Preference-Applied, Retry-After, WWW-Authenticate, X-Request-Id"
_CONTENT_TYPE = re.compile(
    rb'application/(merge-patch\+)?json[ \t]*(?:;[ \t]*charset=(?:utf-8|"utf-8")[ \t]*)?',
    re.IGNORECASE,
)
_LENGTH = re.compile(rb"[0-9]{1,19}")
_TWO_READINGS = re.compile(rb"%2f|%5c|\\|//|%(?:[01][0-9a-f]|7f)", re.IGNORECASE)
_AUDITED = frozenset({401, 403, 421, 429})

logger = logging.getLogger(__name__)


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        access: Resolver,
        tokens: TokenStore,
        rates: Rates,
        audit: Audit,
    ) -> None:
        """Raises :class:`StartupError` for configured hosts or origins that are none."""
        self._app = app
        self._access = access
        self._tokens = tokens
        self._rates = rates
        self._audit = audit
        self._no_auth = settings.no_auth
        self._body_bytes = settings.limits.body_bytes
        self._hosts = Hosts(settings.server.host, settings.server.allowed_hosts)
        self._origins = Origins(settings.server.cors_origins)
        self._suppressed = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one scope; raises only where a response has begun and cannot be completed."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, body_bytes=self._body_bytes)
        try:
            await self._serve(exchange)
        except BridgeError as error:
            if exchange.is_started:
                raise
            await exchange.refuse(error)
        except ClientDisconnect:
            logger.debug("A caller left before its request was read.")
        except Exception:
            if exchange.is_started and not exchange.is_complete:
                raise
            logger.exception("Request %s failed.", exchange.request_id)
            if not exchange.is_started:
                await exchange.refuse(problems.internal_error())
        finally:
            self._note_refusal(exchange)

    async def _serve(self, exchange: Exchange) -> None:
        _check_framing(exchange)
        self._check_host(exchange)
        is_configured = self._check_origin(exchange)
        if is_configured and _is_preflight(exchange):
            await exchange.respond(_preflight())
            return
        is_plain = _is_plain(exchange)
        access = self._access(exchange.scope) if is_plain else ANY_TOKEN
        if not access.is_public:
            self._admit(exchange, access)
        _check_content(exchange, self._body_bytes)
        if not is_plain:
            raise CallerError("not-found", "There is nothing at this path.")
        principal = exchange.principal
        if principal is None:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        elif exchange.is_socket:
            await self._serve_socket(exchange, principal)
        else:
            exchange.while_live = partial(self._tokens.while_live, principal)
            exchange.is_live = partial(self._tokens.is_live, principal.token_id)
            await self._app(exchange.scope, exchange.receive, exchange.send)

    async def _serve_socket(self, exchange: Exchange, principal: Principal) -> None:
        """A socket ends with its token. What is waited for over HTTP sees to that by itself."""
        with self._tokens.while_live(principal) as scope:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        if scope.cancelled_caught:
            exchange.end("soon")
            await exchange.send({"type": "websocket.close", "code": 1008, "reason": "token"})

    def _check_host(self, exchange: Exchange) -> None:
        host = _host_of(exchange)
        server = exchange.scope.get("server")
        if host is None or not self._hosts.allows(host, server[0] if server else None):
            raise CallerError(
                "host-not-allowed",
                "The bridge does not answer under this host name.",
                hint="Names beyond localhost go into server.allowed_hosts.",
            )

    def _check_origin(self, exchange: Exchange) -> bool:
        """Whether the call comes from a configured origin; raises for all but our own pages."""
        if self._origins.configured:
            exchange.cors = ((b"vary", b"Origin"),)
        origins = exchange.fields.get(b"origin", [])
        if len(origins) == 1 and self._origins.is_configured(origins[0]):
            exchange.cors = _cors(origins[0])
            return True
        if (origins and not self._is_own_page(exchange, origins)) or _is_foreign_fetch(exchange):
            raise CallerError(
                "origin-not-allowed",
                "Pages of this origin may not call the bridge.",
                hint="Origins that may are listed in server.cors_origins.",
            )
        return False

    def _is_own_page(self, exchange: Exchange, origins: list[bytes]) -> bool:
        host = _host_of(exchange)
        return (
            len(origins) == 1
            and host is not None
            and self._origins.is_own(
                origins[0], exchange.scope["scheme"], exchange.fields[b"host"][0], host
            )
        )

    def _admit(self, exchange: Exchange, access: Access) -> None:
        principal = NO_AUTH if self._no_auth else self._authenticate(exchange)
        exchange.state["principal"] = principal
        if not access.admits(principal):
            needed = " or ".join(access.scopes)
            raise CallerError("forbidden", f"The token lacks the scope {needed}.")
        if access.rate is not None:
            buckets = self._rates.prompts if access.rate == "prompts" else self._rates.sessions
            _limit(buckets.take(principal.token_id), f"Too many {access.rate} with this token.")

    def _authenticate(self, exchange: Exchange) -> Principal:
        scheme, _, token = (exchange.only(b"authorization") or b"").partition(b" ")
        token = token.strip(b" \t")
        if scheme.lower() != b"bearer" or not token:
            raise CallerError(
                "unauthorized",
                "A token is needed in one Authorization header: Bearer, a space, the token.",
                hint="`cursor-bridge token create` makes one.",
            )
        principal = self._tokens.lookup(token)
        if principal is not None:
            return principal
        _limit(
            self._rates.failed_logins.take(address_key(exchange.address)),
            "Too many wrong tokens from this address.",
        )
        raise CallerError("unauthorized", "The token is not valid, or not any more.")

    def _note_refusal(self, exchange: Exchange) -> None:
        if exchange.status not in _AUDITED:
            return
        if self._rates.refusals.take(address_key(exchange.address)):
            self._suppressed += 1
            return
        principal = exchange.principal
        self._audit(
            "access.refused",
            code=exchange.state.get("problem"),
            status=exchange.status,
            method=exchange.method,
            path=exchange.path,
            address=exchange.address,
            owner=principal.owner if principal else None,
            token=principal.token_name if principal else None,
            requestId=exchange.request_id,
            suppressed=self._suppressed,
        )
        self._suppressed = 0


def _check_framing(exchange: Exchange) -> None:
    """What the server in front has refused already; here for every other server."""
    fields = exchange.fields
    lengths = fields.get(b"content-length", [])
    if exchange.only(b"host") is None:
        raise MalformedRequest("A request has exactly one Host header.")
    if len(lengths) > 1 or (lengths and _LENGTH.fullmatch(lengths[0]) is None):
        raise MalformedRequest("A request has at most one Content-Length, a number.")
    if lengths and b"transfer-encoding" in fields:
        raise MalformedRequest("Content-Length and Transfer-Encoding exclude each other.")
    if len(_raw_path(exchange)) + len(exchange.scope["query_string"]) > MOST_URL_BYTES:
        raise CallerError("uri-too-long", f"A URL has at most {MOST_URL_BYTES} bytes.")
    # A huge token is a wrong token (401), whatever else may be said of it.
    size = sum(len(n) + len(v) for n, v in exchange.scope["headers"] if n != b"authorization")
    if len(exchange.scope["headers"]) > MOST_HEADERS or size > MOST_HEADER_BYTES:
        raise CallerError("headers-too-large", "The headers are too many or too large.")


def _raw_path(exchange: Exchange) -> bytes:
    raw = exchange.scope.get("raw_path")
    return raw if isinstance(raw, bytes) else exchange.path.encode("utf-8", "replace")


def _is_plain(exchange: Exchange) -> bool:
    """Whether nobody could read another path into this one."""
    segments = exchange.path.split("/")
    return not (
        _TWO_READINGS.search(_raw_path(exchange)) or "." in segments or ".." in segments
    ) and exchange.path.startswith("/")


def _host_of(exchange: Exchange) -> Host | None:
    return parse_host(exchange.fields[b"host"][0])


def _cors(origin: bytes) -> Fields:
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSE_HEADERS),
        (b"vary", b"Origin"),
    )


def _is_foreign_fetch(exchange: Exchange) -> bool:
    """By Fetch Metadata: a browser asks on behalf of another site.

    Only a link to a page is harmless; another port of this machine is ``same-site``, and no
    friend of ours.
    """
    if all(
        site in (b"same-origin", b"none") for site in exchange.fields.get(b"sec-fetch-site", ())
    ):
        return False
    is_link = (
        exchange.only(b"sec-fetch-mode") == b"navigate"
        and exchange.only(b"sec-fetch-dest") == b"document"
    )
    return not (is_link and exchange.method in ("GET", "HEAD") and exchange.path in PAGES)


def _is_preflight(exchange: Exchange) -> bool:
    return exchange.method == "OPTIONS" and b"access-control-request-method" in exchange.fields


def _preflight() -> Response:
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": _ALLOW_METHODS.decode(),
            "Access-Control-Allow-Headers": _ALLOW_HEADERS.decode(),
            "Access-Control-Max-Age": "600",
        },
    )


def _limit(wait_s: int, detail: str) -> None:
    if wait_s:
        raise CallerError("rate-limited", detail, retry_after_s=wait_s)


def _check_content(exchange: Exchange, most_bytes: int) -> None:
    length = int(exchange.only(b"content-length") or 0)
    if exchange.is_socket or not (length or b"transfer-encoding" in exchange.fields):
        return
    if exchange.fields.get(b"content-encoding", [b"identity"]) != [b"identity"]:
        raise CallerError("unsupported-media-type", "Bodies are not to be compressed.")
    found = _CONTENT_TYPE.fullmatch(exchange.only(b"content-type") or b"")
    # A merge patch (RFC 7396) has a type of its own; to anything but a PATCH it means nothing.
    if found is None or (found[1] and exchange.method != "PATCH"):
        raise CallerError("unsupported-media-type", "A body is JSON: application/json.")
    if length > most_bytes:
        raise too_large()
