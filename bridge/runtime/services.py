"""What every session of the runtime shares, handed in once so that tests can replace each part."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from anyio.abc import TaskGroup

from bridge.config import Agent, Settings
from bridge.errors import AgentError, BridgeError
from bridge.log.store import Store
from bridge.log.tables import Tables
from bridge.principal import Principal
from bridge.protocol.rules import Permissions
from bridge.runtime.roots import is_path
from bridge.runtime.spawn import Spawner, Stagger
from bridge.runtime.timers import Timers

if TYPE_CHECKING:
    from bridge.runtime.catalog import Catalog
    from bridge.runtime.processes import Processes
    from bridge.runtime.roots import Roots
    from bridge.runtime.session import LiveSession

Audit = Callable[..., None]


Describe = Callable[[BridgeError], dict[str, Any]]


def plainly(error: BridgeError) -> dict[str, Any]:
    """A problem without what only the HTTP surface knows (type, title, status)."""
    shown: dict[str, Any] = {"code": error.code, "detail": error.detail}
    if error.hint:
        shown["hint"] = error.hint
    return shown | error.extra


def no_audit(event: str, **fields: Any) -> None:
    """Where nobody keeps an audit log (tests)."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What sessions need of the parts that are made after them."""

    processes: Processes
    catalog: Catalog
    roots: Roots
    advance: Callable[[LiveSession], Coroutine[Any, Any, None]]
    fail_all: Callable[..., None]


@dataclass(slots=True)
class Services:
    """``tasks`` owns what outlives a request; ``clock`` gives seconds since the epoch.

    How long something has lasted is told by ``monotonic``: a clock that is set, or a machine that
    slept, must not make a turn look silent nor a session idle.
    """

    settings: Settings
    store: Store
    tables: Tables
    timers: Timers
    tasks: TaskGroup
    spawn: Spawner
    clock: Callable[[], float]
    state_tag: str
    version: str
    audit: Audit = no_audit
    describe: Describe = plainly
    default_permissions: dict[str, Permissions] = field(default_factory=dict)
    staggers: dict[str, Stagger] = field(default_factory=dict)
    is_draining: bool = False
    behind: set[str] = field(default_factory=set)
    """The sessions whose rows are behind their logs, because the tables could not be written."""
    hooks: Hooks = field(init=False)
    resolve: Callable[[str], str] = os.path.realpath
    monotonic: Callable[[], float] = time.monotonic

    @property
    def is_full(self) -> bool:
        """Whether nothing new can be taken: the log or the tables have no room."""
        return self.store.is_full or bool(self.behind)

    def agent(self, name: str) -> Agent:
        """The configuration of an agent.

        Raises ``agent-unavailable`` where it is there no more: sessions outlive what they were
        made with.
        """
        try:
            return self.settings.agents[name]
        except KeyError:
            raise AgentError(
                "agent-unavailable",
                f"The agent {name!r} is not in the configuration any more.",
                hint="Put it back, or make a session with another agent.",
            ) from None

    def act(self, event: str, principal: Principal, session_id: str, **more: Any) -> None:
        """What somebody did to a session, for the audit log."""
        self.audit(
            event,
            owner=principal.owner,
            token=principal.token_name,
            session=session_id,
            **more,
        )

    def stagger(self, name: str) -> Stagger:
        """The gate that keeps two starts of one agent apart (riteway#440)."""
        if name not in self.staggers:
            self.staggers[name] = Stagger(self.settings.limits.spawn_stagger_s)
        return self.staggers[name]

    @property
    def processes(self) -> Processes:
        """The processes of the pool."""
        return self.hooks.processes

    def advance(self, session: LiveSession) -> None:
        """Begin the session's queued turns, in a task of the runtime's."""
        self.tasks.start_soon(self.hooks.advance, session)

    def file_url(self, session_id: str, cwd: str, path: str) -> str | None:
        """The address of a file below ``cwd`` (links resolved), ``None`` for any other."""
        if not is_path(path):
            return None
        base = self.resolve(cwd)
        target = self.resolve(os.path.join(base, path))
        if not target.startswith(base.rstrip("/") + "/"):
            return None
        relative = quote(os.path.relpath(target, base), safe="/")
        return f"/v1/sessions/{session_id}/files?path={relative}"
