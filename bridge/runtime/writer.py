"""Appends a session's entries to its log, with what only a restart reads beside them.

Owns the private meta of records: idempotency keys and what callers never see. It waits here with
the entries it belongs to while a full disk holds both back. Keys stay in ``owed_keys`` until the
tables have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.errors import StorageError
from bridge.log.entry import Draft
from bridge.log.record import Record
from bridge.protocol.acp import dumps
from bridge.runtime import rows
from bridge.runtime.services import Services


class Writer:
    """The writing end of one session's log. ``private`` is the session's own dict."""

    def __init__(self, services: Services, session_id: str, private: dict[str, Any]) -> None:
        self.owed_keys: list[dict[str, Any]] = []
        self._services = services
        self._session_id = session_id
        self._private = private
        self._metas: list[dict[str, Any]] = []

    def carry(self, meta: dict[str, Any] | None) -> None:
        """Meta for the next record."""
        if meta:
            self._metas.append(meta)

    def drop_turns(self) -> None:
        """Turns that were to begin have failed: only a success is recorded under a key."""
        self._metas = [meta for meta in self._metas if not _makes_turn(meta)]

    def append(self, drafts: Sequence[Draft], *, is_essential: bool) -> Record:
        """Commit the entries and all meta that waits. Raises ``storage-full``; then all waits."""
        self._mark_open()
        for key in (key for meta in self._metas for key in rows.keys_of(meta)):
            key.setdefault("at", self._services.clock())
        meta = rows.merged_meta(self._metas)
        record = self._services.store.append(
            self._session_id,
            drafts,
            meta=dumps(meta) if meta else b"",
            is_essential=is_essential,
        )
        self.owed_keys += rows.keys_of(meta)
        self._metas = []
        return record

    def _mark_open(self) -> None:
        """A start after a crash looks at the logs of those whose row says so, and at no others."""
        if self._private.get("isOpen"):
            return
        try:
            self._services.tables.mark_open(self._session_id)
        except rows.UNWRITABLE as error:
            raise StorageError("storage-full", "The tables cannot be written.") from error
        self._private["isOpen"] = True


def _makes_turn(meta: dict[str, Any]) -> bool:
    return any("turnId" in key["ref"] for key in rows.keys_of(meta))
