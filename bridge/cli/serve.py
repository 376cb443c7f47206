"""``cursor-bridge serve``: check, lock, say where, serve, drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import uvloop
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bridge import app, logs
from bridge.api.server import BridgeServer, make_config
from bridge.app import Application
from bridge.audit import FILE_NAME, AuditLog
from bridge.cli.listen import listen
from bridge.cli.words import as_typed, creates_token
from bridge.config import Agent, Settings, default_agents, load, waiting_for_restart
from bridge.errors import AgentError, CallerError
from bridge.exposure import check_exposure
from bridge.protocol import rules
from bridge.runtime import environment, linux
from bridge.runtime.spawn import LocalSpawner, death_signal_prefix
from bridge.state import StateDir
from bridge.tokens import ALL_SCOPES, FIRST_START, StartupError, TokenStore

logger = logging.getLogger(__name__)

DEMO = "demo"
_WORDS = {"extra_forbidden": "there is no such setting", "tuple_type": "it is a list"}
ROOT_HELP = "Folder that sessions may work in (may be repeated; default: where it is started)."


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration file (TOML).",
)
@click.option("--host", help="Address to listen on (default 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port (default 8765, 0: any).")
@click.option("--agent", help="The agent of sessions that name none.")
@click.option("--root", "roots", multiple=True, type=click.Path(path_type=Path), help=ROOT_HELP)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for all that is kept (default ~/.local/state/cursor-bridge).",
)
@click.option("--no-auth", is_flag=True, help="Take anybody (loopback addresses only).")
def serve(
    config: Path | None,
    host: str | None,
    port: int | None,
    agent: str | None,
    roots: tuple[Path, ...],
    state_dir: Path | None,
    no_auth: bool,
) -> None:
    """Serve the agents of this box over HTTP."""

    def reread() -> Settings:
        return read_settings(
            config,
            host=host,
            port=port,
            agent=agent,
            roots=roots,
            state_dir=state_dir,
            no_auth=no_auth,
        )

    try:
        settings = reread()
        check_exposure(settings)
        for root in roots:
            if not root.expanduser().is_dir():
                raise StartupError(f"--root {root} is no folder.")
        run(settings, reread)
    except StartupError as error:
        click.echo(as_typed(f"cursor-bridge: {error}"), err=True)
        sys.exit(2)


def read_settings(
    config: Path | None,
    *,
    host: str | None = None,
    port: int | None = None,
    agent: str | None = None,
    roots: tuple[Path, ...] = (),
    state_dir: Path | None = None,
    no_auth: bool = False,
) -> Settings:
    """The settings of this command line. Raises :class:`StartupError` for what does not fit."""
    given: dict[str, Any] = {}
    server = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    if server:
        given["server"] = server
    if roots:
        given["roots"] = tuple(str(root) for root in roots)
    if state_dir is not None:
        given["storage"] = {"state_dir": state_dir}
    if agent is not None:
        given["default_agent"] = agent
    if no_auth:
        given["no_auth"] = True
    try:
        settings = load(config, **given)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise StartupError(f"The configuration cannot be read: {error}") from error
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {_in_words(each)}" for each in error.errors()
        )
        raise StartupError(f"The configuration does not fit: {faults}") from None
    _check_rules(settings)
    return with_agents(settings)


def _check_rules(settings: Settings) -> None:
    """An agent's default rules: callers must not be told of what is not theirs."""
    for name, agent in settings.agents.items():
        at = f"agents.{name}.permissions"
        try:
            may = settings.permissions.allow_always
            rules.parse(agent.permissions or {}, allow_always=may, pointer=at)
        except CallerError as error:
            faults = "; ".join(
                f"{each['pointer'].replace('/', '.')} {each['detail']}"
                for each in error.extra["errors"]
            )
            raise StartupError(f"The configuration does not fit: {faults}") from None


def _in_words(fault: ErrorDetails) -> str:
    return _WORDS.get(fault["type"], fault["msg"])


def with_agents(settings: Settings) -> Settings:
    """The demo agent, where it is asked for or no other is configured; and a first root.

    Whether Cursor's is there is left to the runtime: to ask means to call it, which can end a live
    session of it, and settings are also read beside a bridge that runs.
    """
    agents = dict(settings.agents)
    default = settings.default_agent
    if default and default != DEMO and default not in agents:
        raise StartupError(
            f"There is no agent {default!r} in the configuration; there are {', '.join(agents)}."
        )
    is_bare = not default and set(agents) == {"cursor"} and not agents["cursor"].command
    if (is_bare or default == DEMO) and DEMO not in agents:
        command = (sys.executable, "-P", "-m", "bridge.demo")
        agents[DEMO] = Agent(
            command=command,
            dialect="cursor",
            title="Demo agent",
            auth_method="cursor_login",
            default_model="default[]",
        )
    roots = settings.roots or (Path.cwd(),)
    return settings.model_copy(update={"agents": agents, "roots": roots})


def run(settings: Settings, reread: Callable[[], Settings]) -> None:
    """Serve until stopped. ``reread`` gives the settings anew, for SIGHUP."""
    os.umask(0o077)
    secrets = configured_secrets(settings)
    logs.configure(settings.log_level, secrets=secrets)
    for root in settings.roots:
        if not root.expanduser().is_dir():
            logger.warning("The root %s is no folder; no session can work there.", root)
    state = StateDir(settings.state_dir)
    sockets: list[socket.socket] = []
    try:
        if not settings.dumpable:
            linux.set_dumpable(False)
        linux.set_child_subreaper(True)
        fixed = settings.token.get_secret_value() if settings.token else None
        tokens = TokenStore(state.path / "tokens.json", time.time, fixed=fixed)
        check_exposure(settings, tokens)
        sockets += listen(settings.server.host, settings.server.port)
        audit = AuditLog(state.path / FILE_NAME, time.time, secrets=secrets)
        application = app.build(
            settings,
            tokens,
            spawn=LocalSpawner(death_signal_prefix()),
            state_tag=state.tag,
            audit=audit.write,
        )
        server = AnnouncingServer(settings, tokens, application, reread, audit)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve(sockets))
    finally:
        for each in sockets:
            each.close()
        state.close()


def configured_secrets(settings: Settings) -> tuple[str, ...]:
    """Every secret known at start, to be masked wherever it might be written."""
    found = {settings.token.get_secret_value()} if settings.token is not None else set()
    for agent in settings.agents.values():
        found.update(environment.secret_values(agent.env, {}))
    for owner in settings.owners.values():
        # A key file that cannot be read is the business of the session that needs it.
        with contextlib.suppress(AgentError):
            found.update(environment.secret_values({}, environment.owner_variables(owner)))
    return tuple(sorted(found))


class AnnouncingServer(BridgeServer):
    """The server, saying where it is once it listens; SIGHUP has it read its settings again."""

    def __init__(
        self,
        settings: Settings,
        tokens: TokenStore,
        application: Application,
        reread: Callable[[], Settings],
        audit: AuditLog,
    ) -> None:
        super().__init__(make_config(application.asgi, settings), on_stop=application.drain)
        self._settings = settings
        self._tokens = tokens
        self._audit = audit
        self._application = application
        self._reread = reread

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGHUP as well."""
        loop = asyncio.get_running_loop()
        with super().capture_signals():
            loop.add_signal_handler(signal.SIGHUP, self.reload)
            try:
                yield
            finally:
                loop.remove_signal_handler(signal.SIGHUP)

    def reload(self) -> None:
        """Roots and limits anew; what does not fit changes nothing. Tokens are always current.

        What else has changed is named: it counts from the next start on.
        """
        try:
            settings = self._reread()
        except StartupError as error:
            logger.error("The settings stay as they were: %s", error)
            return
        self._application.reload(settings)
        logger.info("Roots and limits were read again.")
        if names := waiting_for_restart(self._settings, settings):
            logger.warning("These settings count from the next start on: %s.", ", ".join(names))

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Serve, then say so. The first line of all names the demo agent if it is used."""
        await super().startup(sockets)
        if not self.started:
            return
        self._warn()
        if self._settings.no_auth:
            self._announce(None)
            return
        with self._tokens.first() as token:
            self._announce(token)
        if token is not None:
            fields = {"owner": "local", "token": FIRST_START, "scopes": ALL_SCOPES}
            self._audit.write("token.created", **fields)

    def _warn(self) -> None:
        """Of agents that are wanted here and cannot be started."""
        runtime = self._application.context.running
        usual = default_agents()
        for name, agent in self._settings.agents.items():
            known = runtime.catalog.as_json(name, "")
            is_wanted = name == runtime.catalog.default or agent != usual.get(name)
            if is_wanted and not known["available"]:
                logger.warning("The agent %s cannot be started: %s", name, known["problem"])

    def _announce(self, first: str | None) -> None:
        if self._application.context.running.catalog.default == DEMO:
            click.echo("Serving the demo agent (--agent chooses another).")
        for line in _announcement(self._settings, self.address, first):
            click.echo(line)
        sys.stdout.flush()


def _announcement(settings: Settings, address: str, first: str | None) -> list[str]:
    lines = []
    another = f"`{creates_token(settings.state_dir)}` makes another."
    if first is not None:
        lines.append(f"Open {address}/#token={first}")
        lines.append(f"This token is shown once; {another}")
    elif settings.no_auth:
        lines.append(f"Open {address}/ (no token is asked for)")
    elif settings.token is not None:
        lines.append(f"Open {address}/ with the token of the configuration; {another}")
    else:
        lines.append(f"Open {address}/ with a token you have; {another}")
    return lines
