"""The agents of the configuration: what they are, whether they can be started, what they offer.

Cursor is looked for once, before any session runs, because another call of its command line can
end a running agent (tiann/hapi#832). What an agent can do is known only once a process has said
it; until then it is shown as null.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread

from bridge.config import Agent, Settings
from bridge.errors import AgentError
from bridge.runtime.find import cursor_argv, find_cursor, passed_over


@dataclass(slots=True)
class Told:
    """What the sessions of one owner have shown of an agent."""

    is_authenticated: bool | None = None
    shown: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Known:
    """What is known of one agent."""

    agent: Agent
    argv: tuple[str, ...] = ()
    version: str | None = None
    problem: str | None = None
    hint: str | None = None
    capabilities: dict[str, Any] | None = None
    told: dict[str, Told] = field(default_factory=dict)
    """By owner: each may have an account of its own."""


class Catalog:
    """All configured agents by name."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known = {name: Known(agent) for name, agent in settings.agents.items()}

    async def look(self) -> None:
        """Find every agent's program."""
        for known in self._known.values():
            await anyio.to_thread.run_sync(_locate, known)

    @property
    def default(self) -> str:
        """The agent of a session that names none."""
        named = self._settings.default_agent
        if named:
            return named
        usable = (name for name, known in self._known.items() if known.argv)
        return next(usable, next(iter(self._known)))

    def names(self) -> list[str]:
        """All names, in the order of the configuration."""
        return list(self._known)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def argv(self, name: str) -> tuple[str, ...]:
        """The command line to start it. Raises ``agent-unavailable``."""
        known = self._known[name]
        if not known.argv:
            raise AgentError(
                "agent-unavailable", known.problem or "It cannot be started.", hint=known.hint
            )
        return known.argv

    def learn(self, name: str, initialized: dict[str, Any]) -> None:
        """A live process has shown what it is."""
        known = self._known[name]
        capabilities = initialized.get("agentCapabilities")
        known.capabilities = capabilities if isinstance(capabilities, dict) else {}
        info = initialized.get("agentInfo")
        if isinstance(info, dict) and isinstance(info.get("version"), str):
            known.version = info["version"]

    def opened(self, name: str, owner: str, view: dict[str, Any]) -> None:
        """A session of this owner began; ``view`` is its first one."""
        shown = {
            "modes": view.get("mode") and view["mode"]["available"],
            "models": view.get("model") and view["model"]["available"],
            "configOptions": view.get("configOptions"),
        }
        self._known[name].told[owner] = Told(True, shown)

    def needs_login(self, name: str, owner: str) -> None:
        """The agent asked this owner for a login."""
        self._known[name].told.setdefault(owner, Told()).is_authenticated = False

    def as_json(self, name: str, owner: str) -> dict[str, Any]:
        """The contract's Agent, as this owner's sessions have seen it."""
        known = self._known[name]
        told = known.told.get(owner, Told())
        return {
            "agentId": name,
            "title": known.agent.title or name,
            "dialect": known.agent.dialect,
            "available": bool(known.argv),
            "version": known.version,
            "authenticated": told.is_authenticated,
            "problem": known.problem,
            "hint": known.hint,
            "capabilities": known.capabilities,
            "modes": told.shown.get("modes"),
            "models": told.shown.get("models"),
            "configOptions": told.shown.get("configOptions"),
        }


def _locate(known: Known) -> None:
    agent = known.agent
    if agent.dialect == "cursor" and agent.command[1:] in ((), ("acp",)):
        _locate_cursor(known, agent.command[0] if agent.command else "")
        return
    if not agent.command:
        known.problem = "No command is configured for this agent."
        known.hint = "Set `command` in its table of the configuration."
        return
    program = os.path.expanduser(agent.command[0])
    if shutil.which(program, path=_env(agent).get("PATH")) is None:
        known.problem = f"{agent.command[0]} is not on this box, or not executable."
        known.hint = "Install it, or mend `command` in its table of the configuration."
        return
    flags = cursor_argv("", agent.root_flags, agent.endpoint, agent.insecure_tls)[1:-1]
    if flags and agent.command[-1] != "acp":
        known.problem = (
            "`root_flags`, `endpoint` and `insecure_tls` need a command that ends in acp."
        )
        known.hint = "Write the flags into `command`, or leave its arguments out."
        return
    known.argv = (program, *agent.command[1:-1], *flags, *agent.command[1:][-1:])


def _locate_cursor(known: Known, configured: str) -> None:
    found = find_cursor(configured, _env(known.agent))
    if found is None:
        known.problem = _why_not_found(configured, _env(known.agent))
        known.hint = "Install Cursor's CLI (https://cursor.com/cli), or mend the agent's `command`."
        return
    agent = known.agent
    known.version = found.version
    known.argv = cursor_argv(found.path, agent.root_flags, agent.endpoint, agent.insecure_tls)


def _why_not_found(configured: str, env: dict[str, str]) -> str:
    if configured:
        return f"{configured} is not on this box, or not executable."
    other = passed_over(env)
    told = f" {other} is another program: its --version is not Cursor's." if other else ""
    return f"Cursor's command line agent is not on this box.{told}"


def _env(agent: Agent) -> dict[str, str]:
    """Where its program is looked for: in the bridge's environment, or places of its own."""
    places = {
        name: agent.env[name].get_secret_value() for name in {"PATH", "HOME"} & agent.env.keys()
    }
    return {**os.environ, **places}
