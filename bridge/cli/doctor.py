"""``cursor-bridge doctor``: what is there, whether it works, and how to mend what does not.

It walks the way a session goes: configuration, roots, state folder, then for each agent its
program, its version, the handshake, the login and a first session. Exit status 0 where a session of
the default agent (or of ``--agent``) would start, 1 where none would; with ``--json`` that is
``ok``, beside ``findings: [{what, verdict, detail, mend}]``. While a bridge uses the state folder
no agent is started, because a second call of Cursor's command line can end a running one
(tiann/hapi#832).
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import click

from bridge.app import VERSION
from bridge.cli.serve import ROOT_HELP, read_settings
from bridge.config import Settings
from bridge.errors import BridgeError
from bridge.principal import Principal
from bridge.redact import redact
from bridge.runtime.commands import CreateSession
from bridge.runtime.find import is_cursors_name
from bridge.runtime.runtime import Runtime, open_runtime
from bridge.runtime.spawn import LocalSpawner, death_signal_prefix
from bridge.state import StateDir
from bridge.tokens import StartupError

Verdict = Literal["ok", "warn", "fail"]

_LOCAL = Principal("local", "doctor", frozenset({"admin"}))


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``mend`` says what to do where it is not ok."""

    what: str
    verdict: Verdict
    detail: str
    mend: str | None = None


@click.command()
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path))
@click.option("--root", "roots", multiple=True, type=click.Path(path_type=Path), help=ROOT_HELP)
@click.option("--agent", help="Look at this agent only.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(
    config: Path | None,
    state_dir: Path | None,
    roots: tuple[Path, ...],
    agent: str | None,
    as_json: bool,
) -> None:
    """Find out whether sessions can start here, and what to mend."""
    findings: list[Finding] = []
    try:
        settings = read_settings(config, state_dir=state_dir, agent=agent, roots=roots)
    except StartupError as error:
        findings.append(Finding("configuration", "fail", str(error), _MENDS_SETTINGS))
    else:
        findings.append(Finding("configuration", "ok", _default(settings)))
        findings += _look(settings, agent)
    is_well = all(each.verdict != "fail" for each in findings)
    _print(findings, as_json, is_well)
    sys.exit(0 if is_well else 1)


def _default(settings: Settings) -> str:
    if settings.default_agent:
        return f"default agent: {settings.default_agent}"
    return f"default agent: the first that can be started of {', '.join(settings.agents)}"


def _look(settings: Settings, agent: str | None) -> Iterator[Finding]:
    yield from _roots(settings)
    try:
        state = StateDir(settings.state_dir)
    except StartupError as error:
        if "Another bridge" not in str(error):
            yield Finding("state folder", "fail", str(error), "Choose another with --state-dir.")
            return
        told = f"A bridge uses {settings.state_dir}; no agent is started beside it."
        mend = "Ask it for its agents (GET /v1/agents), or stop it and call doctor again."
        yield Finding("state folder", "warn", told, mend)
        return
    # Held until the end: neither a bridge nor another doctor ends what is started meanwhile.
    with closing(state):
        yield Finding("state folder", "ok", str(settings.state_dir))
        names = [agent] if agent else list(settings.agents)
        yield from anyio.run(_agents, settings, names, state.tag)


def _roots(settings: Settings) -> Iterator[Finding]:
    for root in settings.roots:
        path = root.expanduser()
        if path.is_dir():
            yield Finding("root", "ok", str(path))
        else:
            yield Finding("root", "fail", f"{path} is no folder", "Make it, or change `roots`.")


async def _agents(settings: Settings, names: list[str], tag: str) -> list[Finding]:
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="cursor-bridge-doctor-") as folder:
        storage = settings.storage.model_copy(
            update={"state_dir": Path(folder) / "state", "reserve_bytes": 0}
        )
        settings = settings.model_copy(update={"storage": storage})
        async with open_runtime(
            settings,
            spawn=LocalSpawner(death_signal_prefix()),
            state_tag=tag,
            version=VERSION,
        ) as runtime:
            for name in names:
                findings += await _agent(runtime, name, is_default=name == runtime.catalog.default)
    return findings


async def _agent(runtime: Runtime, name: str, *, is_default: bool) -> list[Finding]:
    shown = runtime.queries.agent(_LOCAL, name)
    bad: Verdict = "fail" if is_default else "warn"
    if not shown["available"]:
        return [Finding(f"{name}: program", bad, shown["problem"], shown["hint"])]
    argv = runtime.catalog.argv(name)
    findings = [Finding(f"{name}: program", "ok", shlex.join(argv)), *_version(name, argv, shown)]
    try:
        outcome = await runtime.submit(CreateSession(_LOCAL, agent=name))
    except BridgeError as error:
        return [*findings, *_failed(runtime, name, error, bad)]
    session: dict[str, Any] = outcome.value or {}
    chosen = {what: (session.get(what) or {}).get("current") for what in ("model", "mode")}
    told = ", ".join(f"{what} {value}" for what, value in chosen.items() if value)
    return [
        *findings,
        Finding(f"{name}: handshake", "ok", "it speaks ACP version 1"),
        Finding(f"{name}: login", "ok", "none is asked for"),
        Finding(f"{name}: session", "ok", told or "model and mode are the agent's own choice"),
    ]


def _version(name: str, argv: Sequence[str], shown: dict[str, Any]) -> Iterator[Finding]:
    """Only Cursor's is asked before anything runs; others tell theirs in the handshake, or not."""
    if shown["version"]:
        yield Finding(f"{name}: version", "ok", shown["version"])
    elif shown["dialect"] == "cursor" and is_cursors_name(argv[0]):
        detail = f"{argv[0]} --version does not answer as Cursor's does"
        yield Finding(f"{name}: version", "warn", detail, "Make sure that it is Cursor's CLI.")


def _failed(runtime: Runtime, name: str, error: BridgeError, bad: Verdict) -> Iterator[Finding]:
    """Which step it was: an agent that has shown what it can do has passed the handshake."""
    detail = redact(f"{error.detail}{_tail(error.extra)} ({error.code})")
    by_hand = f"Start it by hand and see what it says: {shlex.join(runtime.catalog.argv(name))}"
    mend = error.hint or f"{_MENDS.get(error.code, '')} {by_hand}".strip()
    if runtime.queries.agent(_LOCAL, name)["capabilities"] is None:
        yield Finding(f"{name}: handshake", bad, detail, mend)
        return
    yield Finding(f"{name}: handshake", "ok", "it speaks ACP version 1")
    step = "login" if error.code == "agent-auth-required" or _is_refused(error) else "session"
    yield Finding(f"{name}: {step}", bad, detail, _LOGS_IN if _is_refused(error) else mend)


def _is_refused(error: BridgeError) -> bool:
    """A wrong key and a network that is not there look the same (zed-industries/zed#57035)."""
    return "[unauthenticated]" in str(error.extra.get("agentError"))


_LOGS_IN = (
    "Either the key or login is not valid, or Cursor cannot be reached: look at CURSOR_API_KEY, "
    "run `cursor-agent login`, look at the network and the proxy."
)
_MENDS_SETTINGS = (
    "Mend it where it is set: in the file, a variable CURSOR_BRIDGE_…, or on the command line."
)
_MENDS = {
    "agent-timeout": (
        "It may wait for a person (a browser, a keychain, a password), be no ACP agent, or be "
        "slow (limits.initialize_s, limits.new_session_s)."
    ),
    "agent-exited": "It may be no ACP agent, or miss an argument such as `acp`.",
    "agent-error": "It may be no ACP agent, or miss an argument such as `acp`.",
    "agent-protocol-error": "Another version of the agent or of the bridge may do.",
}


def _tail(extra: dict[str, Any]) -> str:
    tail = extra.get("stderrTail")
    return f" It wrote: {tail.strip()[-500:]}" if tail else ""


def _print(findings: list[Finding], as_json: bool, is_well: bool) -> None:
    if as_json:
        shown = {"ok": is_well, "findings": [asdict(each) for each in findings]}
        click.echo(json.dumps(shown, indent=2))
        return
    for each in findings:
        click.echo(f"{each.verdict:<5}{each.what}: {each.detail}")
        if each.verdict != "ok" and each.mend:
            click.echo(f"     {each.mend}")
    if not is_well:
        click.echo("No session would start: mend what failed above.")
    elif any(each.what.endswith(": session") for each in findings):
        click.echo("Sessions start here.")
    else:
        click.echo("No agent was started, since a bridge is running.")
