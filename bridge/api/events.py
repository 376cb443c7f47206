"""Event streams and pages, of one session and over all that a caller sees."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

import anyio.lowlevel
from starlette.requests import Request
from starlette.responses import Response

from bridge.api import reading
from bridge.api.context import Context, context_of
from bridge.api.negotiation import STREAM, prefers_stream
from bridge.api.problems import MalformedRequest
from bridge.api.stream import STREAM_HEADERS, EventStream, Source, follow
from bridge.errors import CallerError
from bridge.log.cursor import SessionCursor
from bridge.log.forms import Form, belongs_to, ends
from bridge.log.multiplex import BridgeCursor
from bridge.log.pages import Page
from bridge.log.session_log import SessionLog
from bridge.principal import Principal

MAX_EVENTS: Final = 1000
_DEFAULT_EVENTS: Final = 100
_MOST_LOOKS: Final = 8
"""How often a request looks further where a filter wants nothing of what was read."""


async def of_session(request: Request) -> Response:
    """GET /v1/sessions/{sessionId}/events"""
    context = context_of(request)
    principal = reading.principal_of(request)
    session_id = request.path_params["sessionId"]
    log = context.running.queries.log(principal, session_id)
    after = _position(request, log.last_seq)
    if _wants_stream(request):
        if log.is_closed and after is not None and after == log.last_seq:
            return Response(status_code=204)
        cursor = SessionCursor(log, after=after, form=_form(request))
        return _stream(request, _session_source(context, principal, log, cursor))
    cursor = SessionCursor(log, after=after, form=_form(request))
    return await _page(request, cursor, log)


async def of_all(request: Request) -> Response:
    """GET /v1/events"""
    context = context_of(request)
    principal = reading.principal_of(request)
    queries, store = context.running.queries, context.running.services.store
    named = request.query_params.get("sessions")
    only = None if named is None else frozenset(named.split(","))

    def sees(session_id: str) -> bool:
        return (only is None or session_id in only) and queries.sees(principal, session_id)

    def sessions_after(last_id: int) -> list[str]:
        found = queries.sessions_after(principal, last_id)
        return [each for each in found if only is None or each in only]

    after = _position(request, store.last_id)
    cursor = BridgeCursor(
        store,
        after_id=store.last_id if after is None else after,
        sees=sees,
        sessions_after=sessions_after,
        form=_form(request),
    )
    if not _wants_stream(request):
        return await _page(request, cursor, store)
    source = Source(
        cursor,
        lambda: store.changed,
        is_allowed=lambda: context.tokens.is_live(principal.token_id),
        hold=lambda limit_s: context.waiting(principal, limit_s),
    )
    return _stream(request, source)


def turn_stream(request: Request, shown: dict[str, Any], held: ExitStack) -> Response:
    """POST …/prompt as a stream: the turn's events and the session's, to the turn's end.

    ``held`` is what counts it against its token, and is closed with it.
    """
    context = context_of(request)
    principal = reading.principal_of(request)
    log = context.running.services.store.log(shown["sessionId"])
    turn_id = shown["turnId"]
    cursor = SessionCursor(
        log, after=shown["afterSeq"], form=Form(keep=belongs_to(turn_id), until=ends(turn_id))
    )
    headers = {"Location": f"/v1/sessions/{shown['sessionId']}/turns/{turn_id}"}
    source = _session_source(context, principal, log, cursor)
    return EventStream(follow(source, context.streams_end), headers=headers, held=held)


def _session_source(
    context: Context, principal: Principal, log: SessionLog, cursor: SessionCursor
) -> Source:
    return Source(
        cursor,
        lambda: log.changed,
        is_over=lambda: log.is_closed or cursor.is_finished,
        is_allowed=lambda: context.tokens.is_live(principal.token_id),
        hold=lambda limit_s: context.waiting(principal, limit_s),
    )


def _stream(request: Request, source: Source) -> Response:
    """A stream counted against its token's allowance while it lasts; HEAD gets none of it."""
    context = context_of(request)
    with ExitStack() as held:
        held.enter_context(context.counted(reading.principal_of(request)))
        if request.method == "HEAD":
            return Response(headers=STREAM_HEADERS, media_type=STREAM)
        return EventStream(follow(source, context.streams_end), held=held.pop_all())


async def _page(request: Request, cursor: Any, log: Any) -> Response:
    """A page of events; with ``wait`` it is held until there is one."""
    limit = reading.limit_of(request, default=_DEFAULT_EVENTS, maximum=MAX_EVENTS)
    most_s = int(reading.MAX_WAIT_S)
    wait_s = float(reading.amount(request.query_params.get("wait"), "wait", most_s) or 0)
    context = context_of(request)
    principal = reading.principal_of(request)
    page = await _look(cursor, limit)
    if wait_s and not page.events:
        with context.counted(principal), context.waiting(principal, wait_s):
            while not page.events:
                signal = log.changed
                page = await _look(cursor, limit)
                if page.events or getattr(log, "is_closed", False):
                    break
                if page.more:
                    await anyio.lowlevel.checkpoint()
                else:
                    await signal.wait()
    context.check_live(principal)
    body = b'{"events":[%s],"nextAfter":%d,"more":%s}' % (
        b",".join(page.events),
        page.next_after,
        b"true" if page.more else b"false",
    )
    return Response(body, media_type="application/json")


async def _look(cursor: Any, limit: int) -> Page:
    """A page; of a log that has nothing for it an empty one, after a good look at it.

    The loop has its turn in between.
    """
    moves = 0
    while True:
        before = cursor.position
        page: Page = cursor.page(limit)
        moves += cursor.position != before
        if page.events or not page.more or moves == _MOST_LOOKS:
            return page
        await anyio.lowlevel.checkpoint()


def _wants_stream(request: Request) -> bool:
    named = request.query_params.get("format")
    if named is None:
        return prefers_stream(request)
    if named not in ("sse", "json"):
        raise MalformedRequest("format is sse or json.")
    return named == "sse"


def _position(request: Request, latest: int) -> int | None:
    """``Last-Event-ID``, else ``?after=``, else ``None``: from the first one kept."""
    given = request.query_params.get("after")
    after = latest if given == "latest" else reading.number(given, "after (if not `latest`)")
    last_event_id = reading.number(request.headers.get("last-event-id"), "Last-Event-ID")
    return after if last_event_id is None else last_event_id


def _form(request: Request) -> Form:
    types = request.query_params.get("types")
    patterns = None
    if types is not None:
        patterns = tuple(each.strip() for each in types.split(",") if each.strip())
        if not patterns or len(patterns) > 64:
            raise CallerError("invalid-request", "types names 1 to 64 event types.")
    return Form(named=reading.flag(request.query_params.get("named"), True), types=patterns)
