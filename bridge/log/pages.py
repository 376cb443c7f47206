"""Pages: what a caller gets who asks instead of subscribing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

PAGE_BYTES: Final = 2 * 1024 * 1024
"""How much of the log is looked at for one page, wanted or not."""
LOOK_BYTES: Final = 1024
"""What looking at a record costs beside its bytes, so that many tiny ones are bounded too."""


@dataclass(frozen=True, slots=True)
class Page:
    """Events as JSON texts, and where the next page begins.

    ``more``: there may be more after it, even where a filter left this one empty.
    """

    events: list[bytes]
    next_after: int
    more: bool


@dataclass(slots=True)
class PageDraft:
    """A page that is being filled; it takes one entry at least."""

    limit: int
    max_bytes: int
    events: list[bytes] = field(default_factory=list)
    has_entries: bool = False
    _looked_at: int = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more belongs onto it."""
        return len(self.events) >= self.limit or self._looked_at >= self.max_bytes

    def look_at(self, size: int) -> None:
        """A record of so many bytes was looked at."""
        self._looked_at += size + LOOK_BYTES

    def spend(self, size: int) -> None:
        """So many bytes were read only to find a record."""
        self._looked_at += size

    def add(self, event: bytes) -> None:
        """An entry's JSON."""
        self.events.append(event)
        self.has_entries = True
