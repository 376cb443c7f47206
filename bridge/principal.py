"""Who is asking: the owner, and what the token they showed lets them do.

A value, made once by the guard from a token and handed down with every command and query.
Ownership is decided where sessions are looked up, by :meth:`Principal.sees`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Scope = Literal["read", "prompt", "approve", "admin"]

_IMPLIED: dict[str, frozenset[str]] = {
    "read": frozenset({"read"}),
    "prompt": frozenset({"read", "prompt"}),
    "approve": frozenset({"read", "approve"}),
    "admin": frozenset({"read", "prompt", "approve", "admin"}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """``agents`` and ``roots`` narrow the token; ``None`` means all that are configured.

    ``roots`` are absolute and resolved; they narrow what exists for the caller as well as where
    new sessions may work, since whoever may prompt in a folder works in it.
    """

    owner: str
    token_name: str
    scopes: frozenset[str] = field(default_factory=lambda: frozenset({"read", "prompt", "approve"}))
    agents: frozenset[str] | None = None
    roots: tuple[str, ...] | None = None
    for_owners: frozenset[str] = frozenset()
    expires_at: float | None = None
    token_id: str = ""

    def may(self, scope: Scope) -> bool:
        """Whether the token has ``scope``, by itself or implied by another (``admin`` has all)."""
        return any(scope in _IMPLIED.get(own, frozenset()) for own in self.scopes)

    def sees(self, owner: str, agent: str, cwd: str) -> bool:
        """Whether a session of ``owner`` with ``agent`` in ``cwd`` exists for this caller."""
        if self.agents is not None and agent not in self.agents:
            return False
        if self.roots is not None and not any(_is_below(cwd, root) for root in self.roots):
            return False
        return owner == self.owner or owner in self.for_owners

    def is_own(self, owner: str) -> bool:
        """``False`` where the token merely oversees: it may read and approve, not prompt."""
        return owner == self.owner

    @property
    def owners(self) -> frozenset[str]:
        """All owners whose sessions this caller sees."""
        return self.for_owners | {self.owner}


def _is_below(path: str, root: str) -> bool:
    """By whole segments: ``/ws-evil`` is not below ``/ws``."""
    return f"{path}/".startswith(root.rstrip("/") + "/")
