"""A stored session made live again: from its row, and from the log where that is ahead.

The log is the truth. Whatever it has beyond the row is folded by the very projection that live
sessions use, so there is one way to arrive at a state. The view goes on from the row; the
transcript and the texts of an open turn go on from the last finished page; without a row all of
it comes from the first entry on, which carries the whole Session, or from the head that is kept
beside a log whose first entries are gone.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from bridge.clock import rfc3339
from bridge.log.entry import Entry, decode_frames
from bridge.log.record import Record
from bridge.log.rows import SessionRow
from bridge.log.segments import unreadable
from bridge.log.session_log import SessionLog
from bridge.protocol import rules
from bridge.protocol.acp import loads
from bridge.protocol.projection import Applied, Projection
from bridge.protocol.turns import Turn
from bridge.runtime import rows
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession

logger = logging.getLogger(__name__)

_PAGES_AT_ONCE: Final = 256
_NEEDED: Final = ("sessionId", "owner", "agent", "cwd", "createdAt", "status")


def revive(services: Services, row: SessionRow) -> LiveSession:
    """The session of a row, with whatever its log has beyond it.

    Raises ``internal-error`` where the log cannot be read now: it may only look empty.
    """
    log = _readable(services, row.session_id)
    if not row.is_open and log.last_seq <= row.projected_seq:
        # At rest: nothing is open that the view does not show.
        view = rows.view_of(row)
        return _session(services, row.session_id, Projection.resume(view), rows.private_of(row))
    view = rows.view_of(row) if row.projected_seq else {}
    page = services.tables.last_page(row.session_id)
    fold = _Fold(services, row.session_id, view, rows.private_of(row), row.projected_seq)
    fold.run(min(row.projected_seq, page.last_seq if page else 0))
    return fold.session()


def rebuild(services: Services, session_id: str) -> LiveSession | None:
    """A session of which only the log is left; ``None`` where that does not say whose it is.

    Raises ``internal-error`` where the log cannot be read now.
    """
    log = _readable(services, session_id)
    fold = _Fold(services, session_id, *rows.head_from(log.head()), has_keys=False)
    fold.run(0)
    if any(name not in fold.projection.view for name in _NEEDED):
        return None
    return fold.session()


def _readable(services: Services, session_id: str) -> SessionLog:
    log = services.store.log(session_id)
    if log.fault is not None:
        raise unreadable(log.fault)
    # Rows may have known of fewer: whatever is appended from now on comes after all it has.
    services.store.start_ids(log.last_id)
    return log


class _Fold:
    """The fold of one log, saved page by page where the tables take it."""

    def __init__(
        self,
        services: Services,
        session_id: str,
        view: dict[str, Any],
        private: dict[str, Any],
        known_seq: int,
        *,
        has_keys: bool = True,
    ) -> None:
        """``known_seq``: what view and private know already; the tables its keys, if any."""
        self.projection = Projection.resume(view)
        self._services = services
        self._session_id = session_id
        self._private = private
        self._known_seq = known_seq
        self._known_keys = known_seq if has_keys else 0
        self._keys: list[dict[str, Any]] = []

    def run(self, after: int) -> None:
        """Apply every readable entry beyond a position; what is damaged is said and passed over."""
        log = self._services.store.log(self._session_id)
        self._take_queue()
        for record in log.records(after):
            self._take(record, after)
            if len(self.projection.pages) >= _PAGES_AT_ONCE:
                self._save()
        for damage in log.damage:
            logger.error("a log is damaged: %s", damage, extra={"session": self._session_id})

    def session(self) -> LiveSession:
        """The session at the end of its log; its row is not written yet."""
        session = _session(self._services, self._session_id, self.projection, self._private)
        session.private["isOpen"] = True
        session.writer.owed_keys = self._keys
        return session

    def _take_queue(self) -> None:
        """Turns that were queued before the stretch that is folded again."""
        for row in self._services.tables.open_turns(self._session_id):
            turn = Turn.from_json(loads(row.body))
            if self.projection.turn_of(turn.turn_id) is None and turn.status == "queued":
                self.projection.queue.append(turn)

    def _take(self, record: Record, after: int) -> None:
        told = loads(record.meta) if record.meta else {}
        if record.last_seq > self._known_seq:
            self._private.update(told.get("private", {}))
        if record.last_seq > self._known_keys:
            self._keys += [{"at": record.time, **key} for key in rows.keys_of(told)]
        for entry in decode_frames(record.body):
            if entry.seq > after:
                self._apply(entry, is_known=entry.seq <= self._known_seq)
        self.projection.touch(rfc3339(record.time))

    def _apply(self, entry: Entry, *, is_known: bool) -> None:
        """``is_known``: the row's view has it already, only texts and transcript want it."""
        projection = self.projection
        before = projection.view if is_known else None
        if is_known:
            projection.view = dict(projection.view)
        if entry.type == "bridge/turn_queued" and entry.turn_id is not None:
            # It may stand there already, from its row.
            projection.queue = [each for each in projection.queue if each.turn_id != entry.turn_id]
        projection.apply(_applied(entry))
        if before is not None:
            projection.view = before
        pending = projection.view.get("pendingRequests") or []
        projection.requests = {each["requestId"]: each for each in pending}

    def _save(self) -> None:
        """What is finished need not wait in memory for the rest of a long log."""
        tables = self._services.tables
        try:
            with tables.transaction():
                rows.save_folded(tables, self._session_id, self.projection)
        except rows.UNWRITABLE as error:
            logger.error("the tables are behind the log: %s", error)
            return
        rows.forget_folded(self.projection)


def _session(
    services: Services, session_id: str, projection: Projection, private: dict[str, Any]
) -> LiveSession:
    shown = projection.view.get("permissions") or {"rules": []}
    return LiveSession(
        services,
        session_id,
        projection=projection,
        private=private,
        permissions=rules.parse(shown, allow_always=True),
    )


def _applied(entry: Entry) -> Applied:
    return Applied(
        entry.seq,
        entry.time,
        entry.type,
        entry.params,
        entry.turn_id,
        entry.request_id,
        entry.is_replay,
        entry.subagent,
    )
