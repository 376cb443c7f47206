"""``cursor-bridge token``: make, list and revoke tokens, beside a running bridge or without one.

Only what a program may want to read goes to stdout: for ``create`` that is the token, alone.
Exit code 2 where it cannot be done, with the reason on stderr.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import ValidationError

from bridge import audit
from bridge.audit import AuditLog
from bridge.cli.words import as_typed
from bridge.clock import rfc3339
from bridge.config import load
from bridge.tokens import (
    ALL_SCOPES,
    DEFAULT_SCOPES,
    FILE_NAME,
    Record,
    StartupError,
    TokenError,
    TokenStore,
)

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhdw])")

Command = TypeVar("Command", bound=Callable[..., Any])


class TokenCommandFailed(click.ClickException):
    """What was asked for cannot be done; the text says why."""

    exit_code = 2


def duration(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """``30d``, ``12h`` or ``90m`` as seconds."""
    if value is None:
        return None
    match = _DURATION.fullmatch(value)
    if match is None:
        raise click.BadParameter("a duration is a number and a unit: 30d, 12h, 90m, 30s, 2w")
    return float(int(match[1]) * _UNITS_S[match[2]])


@click.group(name="token")
def token() -> None:
    """Make, list and revoke the tokens callers need."""


def located(command: Command) -> Command:
    """Add the options that say which bridge's tokens are meant, as ``serve`` has them."""
    config = click.option(
        "--config", type=click.Path(dir_okay=False, path_type=Path), help="Configuration file."
    )
    state_dir = click.option(
        "--state-dir", type=click.Path(file_okay=False, path_type=Path), help="State folder."
    )
    return config(state_dir(command))


@token.command(name="create")
@click.option("--name", required=True, help="What the token is called in lists and logs.")
@click.option("--owner", default="local", show_default=True, help="Whose sessions it makes.")
@click.option("--for-owner", "for_owners", multiple=True, help="Another owner it may see.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(ALL_SCOPES),
    help=f"May be given more than once; without: {', '.join(DEFAULT_SCOPES)}.",
)
@click.option("--agent", "agents", multiple=True, help="Only this agent (may be repeated).")
@click.option("--root", "roots", multiple=True, help="Only below this folder (may be repeated).")
@click.option("--expires", callback=duration, help="How long it is good for, such as 30d.")
@located
def create(
    name: str,
    owner: str,
    for_owners: tuple[str, ...],
    scopes: tuple[str, ...],
    agents: tuple[str, ...],
    roots: tuple[str, ...],
    expires: float | None,
    config: Path | None,
    state_dir: Path | None,
) -> None:
    """Make a token and print it; it cannot be shown again."""
    path = _state_dir(config, state_dir)
    for root in roots:
        if not os.path.isdir(root):
            click.echo(f"Warning: --root {root} is no folder; nothing can work there.", err=True)
    store = _store(path)
    try:
        made = store.create(
            name,
            owner=owner,
            for_owners=for_owners,
            scopes=scopes or DEFAULT_SCOPES,
            agents=agents or None,
            roots=roots or None,
            expires_at=None if expires is None else time.time() + expires,
        )
    except TokenError as error:
        raise TokenCommandFailed(str(error)) from error
    except OSError as error:
        raise TokenCommandFailed(f"The state folder {path} cannot be used: {error}") from error
    _audit(
        path,
        "token.created",
        owner=owner,
        token=name,
        scopes=scopes or DEFAULT_SCOPES,
        forOwners=for_owners or None,
        agents=agents or None,
        roots=roots or None,
        expiresInSeconds=expires,
    )
    click.echo(f"Token {name} of owner {owner}; keep it, it is not shown again:", err=True)
    click.echo(made)


@token.command(name="list")
@located
def list_tokens(config: Path | None, state_dir: Path | None) -> None:
    """Show all tokens, without what would let anybody in."""
    records = _store(_state_dir(config, state_dir)).records()
    if not records:
        click.echo("There are no tokens.", err=True)
    for record in records:
        click.echo(_described(record))


@token.command(name="revoke")
@click.argument("name")
@located
def revoke(name: str, config: Path | None, state_dir: Path | None) -> None:
    """End a token at once; a running bridge notices within a second."""
    path = _state_dir(config, state_dir)
    try:
        _store(path).revoke(name)
    except (TokenError, OSError) as error:
        raise TokenCommandFailed(str(error)) from error
    _audit(path, "token.revoked", token=name)
    click.echo(f"Token {name} is revoked.", err=True)


def _audit(state_dir: Path, event: str, **fields: Any) -> None:
    """A line in the bridge's own audit log, which only the bridge itself rotates."""
    log = AuditLog(state_dir / audit.FILE_NAME, time.time, max_bytes=sys.maxsize)
    log.write(event, **fields)
    log.close()


def _store(state_dir: Path) -> TokenStore:
    try:
        return TokenStore(state_dir / FILE_NAME, time.time)
    except (OSError, StartupError) as error:
        raise TokenCommandFailed(as_typed(str(error))) from error


def _state_dir(config: Path | None, state_dir: Path | None) -> Path:
    overrides: dict[str, Any] = {}
    if state_dir is not None:
        overrides["storage"] = {"state_dir": state_dir}
    try:
        return load(config, **overrides).state_dir
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TokenCommandFailed(
            f"The configuration does not fit: {where}: {first['msg']}"
        ) from error
    except (OSError, ValueError) as error:
        raise TokenCommandFailed(f"The configuration cannot be read: {error}") from error


def _described(record: Record) -> str:
    parts = [record.name, f"owner={record.owner}", f"scopes={','.join(record.scopes)}"]
    if record.for_owners:
        parts.append(f"for-owners={','.join(record.for_owners)}")
    if record.agents is not None:
        parts.append(f"agents={','.join(record.agents)}")
    if record.roots is not None:
        parts.append(f"roots={':'.join(record.roots)}")
    parts.append(f"created={rfc3339(record.created_at)}")
    if record.expires_at is not None:
        is_over = record.expires_at <= time.time()
        parts.append(f"{'expired' if is_over else 'expires'}={rfc3339(record.expires_at)}")
    return "  ".join(parts)
