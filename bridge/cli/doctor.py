"""``cursor-bridge doctor``: what is there, whether it works, and how to mend what does not.

It walks the way a session goes: configuration, state folder, roots, then for each agent its
program, its version, a handshake and a first session. Exit status 0 where a session would start,
1 where none would. While a bridge uses the state folder no agent is started, because a second call
of Cursor's command line can end a running one (tiann/hapi#832).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import click

from bridge.app import VERSION
from bridge.cli.serve import read_settings
from bridge.config import Settings
from bridge.errors import BridgeError
from bridge.principal import Principal
from bridge.redact import redact
from bridge.runtime.commands import CreateSession
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
@click.option("--agent", help="Look at this agent only.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(config: Path | None, state_dir: Path | None, agent: str | None, as_json: bool) -> None:
    """Find out whether sessions can start here, and what to mend."""
    findings: list[Finding] = []
    try:
        settings = read_settings(config, state_dir=state_dir, agent=agent)
    except StartupError as error:
        findings.append(Finding("configuration", "fail", str(error), "Mend the file or value."))
    else:
        findings.append(Finding("configuration", "ok", f"default agent: {_default(settings)}"))
        findings += _look(settings, agent)
    _print(findings, as_json)
    sys.exit(1 if any(each.verdict == "fail" for each in findings) else 0)


def _default(settings: Settings) -> str:
    return settings.default_agent or next(iter(settings.agents))


def _look(settings: Settings, agent: str | None) -> Iterator[Finding]:
    yield from _roots(settings)
    try:
        StateDir(settings.state_dir).close()
    except StartupError as error:
        if "Another bridge" not in str(error):
            yield Finding("state folder", "fail", str(error), "Choose another with --state-dir.")
            return
        mend = "Stop the bridge to look at its agents as well."
        yield Finding("state folder", "warn", str(error), mend)
        return
    yield Finding("state folder", "ok", str(settings.state_dir))
    names = [agent] if agent else list(settings.agents)
    yield from anyio.run(_agents, settings, names)


def _roots(settings: Settings) -> Iterator[Finding]:
    for root in settings.roots:
        path = root.expanduser()
        if path.is_dir():
            yield Finding("root", "ok", str(path))
        else:
            yield Finding("root", "fail", f"{path} is no folder", "Make it, or change `roots`.")


async def _agents(settings: Settings, names: list[str]) -> list[Finding]:
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="cursor-bridge-doctor-") as folder:
        storage = settings.storage.model_copy(
            update={"state_dir": Path(folder) / "state", "reserve_bytes": 0}
        )
        settings = settings.model_copy(update={"storage": storage})
        async with open_runtime(
            settings,
            spawn=LocalSpawner(death_signal_prefix()),
            state_tag="doctor",
            version=VERSION,
        ) as runtime:
            for name in names:
                findings += await _agent(runtime, name, is_default=name == _default(settings))
    return findings


async def _agent(runtime: Runtime, name: str, *, is_default: bool) -> list[Finding]:
    shown = runtime.queries.agent(_LOCAL, name)
    bad: Verdict = "fail" if is_default else "warn"
    if not shown["available"]:
        return [Finding(name, bad, shown["problem"], shown["hint"])]
    command = " ".join(runtime.catalog.argv(name))
    version = shown["version"] or "version unknown"
    findings = [Finding(f"{name}: program", "ok", f"{command} ({version})")]
    try:
        outcome = await runtime.submit(CreateSession(_LOCAL, agent=name))
    except BridgeError as error:
        detail = redact(f"{error.code}: {error.detail}{_tail(error.extra)}")
        return [*findings, Finding(f"{name}: session", bad, detail, error.hint or _MENDS)]
    session: dict[str, Any] = outcome.value or {}
    model = (session.get("model") or {}).get("current")
    return [
        *findings,
        Finding(f"{name}: session", "ok", f"logged in; model {model or 'of its own choice'}"),
    ]


_MENDS = "Start the agent's command by hand and see what it says."


def _tail(extra: dict[str, Any]) -> str:
    tail = extra.get("stderrTail")
    return f" It said: {tail.strip()[-500:]}" if tail else ""


def _print(findings: list[Finding], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"findings": [asdict(each) for each in findings]}, indent=2))
        return
    for each in findings:
        click.echo(f"{each.verdict:<5}{each.what}: {each.detail}")
        if each.verdict != "ok" and each.mend:
            click.echo(f"     {each.mend}")
