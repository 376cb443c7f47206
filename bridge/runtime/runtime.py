"""The runtime: one door for every change, one set of tasks, one way to stop.

``submit(command)`` carries out a command and returns what the contract shows for it. ``run`` owns
all tasks; ``drain`` ends what runs within the grace time. Queries are in ``queries``; nothing here
knows of HTTP.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, assert_never

import anyio

from bridge.config import Settings
from bridge.errors import CallerError, CapacityError, StorageError
from bridge.log.store import Store
from bridge.log.tables import Tables
from bridge.principal import Principal
from bridge.runtime import lifecycle, recovery, turn_flow
from bridge.runtime.agent_list import agent_sessions
from bridge.runtime.catalog import Catalog
from bridge.runtime.commands import (
    CallExtension,
    Cancel,
    CancelTurn,
    Command,
    CreateSession,
    DeleteSession,
    Outcome,
    PatchSession,
    Prompt,
    Reply,
    SetConfig,
    SetMode,
    SetModel,
)
from bridge.runtime.creation import Creation
from bridge.runtime.handlers import Handlers
from bridge.runtime.keeper import Keeper
from bridge.runtime.keys import Keys
from bridge.runtime.pool import Pool
from bridge.runtime.processes import Processes
from bridge.runtime.queries import Queries
from bridge.runtime.registry import Registry
from bridge.runtime.roots import Roots
from bridge.runtime.services import Audit, Describe, Hooks, Services, no_audit, plainly
from bridge.runtime.session import LiveSession
from bridge.runtime.spawn import Spawner
from bridge.runtime.timers import Timers

logger = logging.getLogger(__name__)

CANCEL_S: Final = 1.0
"""How long cancelled turns may take to end when the bridge stops, after the grace time."""


class Runtime:
    """Made by :func:`open_runtime`, which also runs and closes it."""

    def __init__(self, services: Services, catalog: Catalog, roots: Roots) -> None:
        self.services = services
        self.catalog = catalog
        self.roots = roots
        self.registry = Registry(services)
        self.pool = Pool(services.settings.limits.max_processes)
        self.processes = Processes(services, self.pool, self.registry)
        self.keys = Keys(services)
        self.queries = Queries(services, self.registry, catalog, roots)
        self.is_ready = False
        self._creation = Creation(services, self.registry, catalog, roots)
        self._handlers = Handlers(services, self.registry)
        self.keeper = Keeper(services, self.registry, self.processes)
        services.hooks = Hooks(
            self.processes, catalog, roots, lifecycle.advance, turn_flow.fail_all
        )

    async def submit(self, command: Command) -> Outcome:
        """Carry out a command. Raises ``BridgeError``; then nothing has changed."""
        match command:
            case CreateSession():
                return await self._create(command)
            case Prompt():
                return self._prompt(command)
            case Reply():
                return self._reply(command)
            case Cancel() | CancelTurn():
                return self._handlers.cancel(command)
            case PatchSession():
                self._check_room()
                return self._handlers.patch(command)
            case DeleteSession():
                return await self._handlers.delete(command)
            case _:
                self._check_open()
                return await self._ask_agent(command)

    async def _ask_agent(self, command: SetMode | SetModel | SetConfig | CallExtension) -> Outcome:
        match command:
            case SetMode() | SetModel() | SetConfig():
                return await self._handlers.choose(command)
            case CallExtension():
                return await self._handlers.extend(command)
            case _:
                assert_never(command)

    @property
    def readiness(self) -> str:
        """``ready``, or why no session can be taken: starting, draining, storage-full."""
        if self.services.is_draining:
            return "draining"
        if self.services.is_full:
            return "storage-full"
        return "ready" if self.is_ready else "starting"

    async def agent_sessions(
        self, principal: Principal, agent: str, cwd: str | None, cursor: str | None
    ) -> dict[str, Any]:
        """The agent's own conversations, without those of other owners."""
        self.queries.agent(principal, agent)
        folder = self.roots.folder(principal, cwd)
        return await agent_sessions(
            self.services,
            self.registry,
            principal,
            agent=agent,
            cwd=folder,
            roots=self.roots.of(principal),
            is_narrowed=cwd is not None,
            cursor=cursor,
        )

    def reload(self, settings: Settings) -> None:
        """Take over roots and limits; what runs goes on, and what is new is held to them.

        Everything else of ``settings`` counts from the next start on.
        """
        taken = {"roots": settings.roots, "limits": settings.limits}
        self.services.settings = self.services.settings.model_copy(update=taken)
        self.services.staggers.clear()
        self.pool.limit = settings.limits.max_processes
        self.roots.all = Roots(settings.roots).all

    async def drain(self) -> None:
        """Take nothing new, let turns end within the grace time, cancel the rest, stop agents."""
        services = self.services
        services.is_draining = True
        self.is_ready = False
        with anyio.move_on_after(services.settings.limits.drain_grace_s):
            await self._until_no_turns()
        for session in list(self.registry.live.values()):
            turn_flow.cancel_running(session)
            session.commit()
        with anyio.move_on_after(min(CANCEL_S, services.settings.limits.cancel_grace_s)):
            await self._until_no_turns()
        await self.close()

    async def close(self) -> None:
        """Stop every agent and bring every row up to date."""
        self.services.is_draining = True
        await self.processes.stop_all()
        for session in list(self.registry.live.values()):
            if session.is_provisional:
                continue
            turn_flow.fail_all(session, "bridge-restarted", "The bridge was stopped.")
            session.refresh()
            session.commit()
            self.registry.unload(session)

    async def _until_no_turns(self) -> None:
        """A turn that is being revived counts: its prompt was accepted before."""
        while busy := [s for s in self.registry.live.values() if s.turn or _is_reviving(s)]:
            await busy[0].settled.wait()

    async def _create(self, command: CreateSession) -> Outcome:
        self._check_open()
        _need_prompt(command)
        claim = self.keys.claim(command.principal.owner, command.idempotency)
        if claim.ref is not None:
            return await self._repeated_session(command, claim.ref)
        with claim:
            session = await self._creation.create(command, claim)
        self.services.act(
            "session.created",
            command.principal,
            session.session_id,
            agent=session.agent,
            cwd=session.cwd,
        )
        return Outcome(session.session_id, session.snapshot())

    async def _repeated_session(self, command: CreateSession, ref: dict[str, Any]) -> Outcome:
        """The session of the first time: at once, or as asked for once it has started."""
        session_id = ref["sessionId"]
        self.registry.find(command.principal, session_id)
        session = self.registry.live.get(session_id)
        while session is not None and session.is_starting and not command.is_async:
            await session.settled.wait()
        return Outcome(session_id, self.registry.snapshot(session_id), is_repeat=True)

    def _prompt(self, command: Prompt) -> Outcome:
        self.registry.find(command.principal, command.session_id, "prompt")
        claim = self.keys.claim(command.principal.owner, command.idempotency)
        if claim.ref is not None:
            turn_id = claim.ref["turnId"]
            shown = self.queries.turn(command.principal, command.session_id, turn_id)
            return Outcome(command.session_id, shown, is_repeat=True)
        self._check_open()
        with claim:
            return self._handlers.prompt(command, claim)

    def _reply(self, command: Reply) -> Outcome:
        self.registry.find(command.principal, command.session_id, "approve")
        self.queries.check_present(command.principal, command.session_id)
        claim = self.keys.claim(command.principal.owner, command.idempotency)
        if claim.ref is not None:
            request_id = claim.ref["requestId"]
            shown = self.queries.request(command.principal, command.session_id, request_id)
            return Outcome(command.session_id, shown, is_repeat=True)
        with claim:
            return self._handlers.reply(command, claim)

    def _check_open(self) -> None:
        if self.services.is_draining:
            raise CapacityError(
                "draining", "The bridge is being stopped.", hint="Try again.", retry_after_s=5
            )
        self._check_room()

    def _check_room(self) -> None:
        if self.services.is_full:
            raise StorageError(
                "storage-full", "The disk is full or gone; running turns get their ends."
            )


def _is_reviving(session: LiveSession) -> bool:
    return session.is_starting and bool(session.queue)


def _need_prompt(command: CreateSession) -> None:
    if not command.principal.may("prompt"):
        raise CallerError("forbidden", "This token lacks the scope 'prompt'.")


@asynccontextmanager
async def open_runtime(
    settings: Settings,
    *,
    spawn: Spawner,
    state_tag: str,
    version: str,
    clock: Callable[[], float] = time.time,
    audit: Audit = no_audit,
    describe: Describe = plainly,
) -> AsyncIterator[Runtime]:
    """Recover what is stored, then run until left; every process is stopped on the way out.

    The caller holds the lock on the state folder. Raises ``OSError`` where it cannot be used.
    """
    state_dir = settings.state_dir
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    tables = Tables(state_dir / "bridge.sqlite3")
    store = Store(
        state_dir / "log",
        segment_bytes=settings.storage.segment_bytes,
        reserve_bytes=settings.storage.reserve_bytes,
        clock=clock,
    )
    async with anyio.create_task_group() as tasks:
        services = Services(
            settings=settings,
            store=store,
            tables=tables,
            timers=Timers(time.monotonic),
            tasks=tasks,
            spawn=spawn,
            clock=clock,
            state_tag=state_tag,
            version=version,
            audit=audit,
            describe=describe,
        )
        catalog = Catalog(settings)
        runtime = Runtime(services, catalog, Roots(settings.roots))
        has_recovered = False
        try:
            await recovery.sweep_processes(services)
            await catalog.look()
            recovery.recover(services, runtime.registry)
            has_recovered = True
            tasks.start_soon(services.timers.run)
            tasks.start_soon(store.sync_forever)
            tasks.start_soon(runtime.keeper.run)
            runtime.is_ready = True
            yield runtime
        finally:
            with anyio.CancelScope(shield=True):
                await runtime.close()
            if has_recovered:
                recovery.ended_well(services)
            tasks.cancel_scope.cancel()
    tables.close()
    store.close()
