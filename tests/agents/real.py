"""How other people's agents are started offline: command, environment and files of each.

``tests/agents/install`` puts them below ``.agents`` (or ``$CURSOR_BRIDGE_TEST_AGENTS``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.canaries import secret

ROOT = Path(
    os.environ.get("CURSOR_BRIDGE_TEST_AGENTS") or Path(__file__).resolve().parents[2] / ".agents"
)

_CODEX = """\
model = "stand-in"
model_provider = "standin"
approval_policy = "untrusted"
sandbox_mode = "read-only"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.standin]
name = "standin"
base_url = "{base}/v1"
wire_api = "responses"
env_key = "STANDIN_KEY"
requires_openai_auth = false
supports_websockets = false
"""
_OPENCODE = {
    "autoupdate": False,
    "share": "disabled",
    "model": "standin/stand-in",
    "small_model": "standin/stand-in",
    "permission": {"edit": "ask", "bash": "ask", "webfetch": "deny"},
    "provider": {
        "standin": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Stand-in",
            "options": {"baseURL": "{base}/v1", "apiKey": secret("model")},
            "models": {
                "stand-in": {
                    "name": "Stand-in",
                    "tool_call": True,
                    "limit": {"context": 100000, "output": 8000},
                }
            },
        }
    },
}
_GEMINI = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
    "telemetry": {"enabled": False},
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """One agent; ``{root}``, ``{home}`` and ``{base}`` are filled in. ``shell`` makes it ask.

    ``can_load``: whether a conversation outlives a process that was killed; None if that depends.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    auth_method: str = ""
    shell: str = "date > made.txt"
    can_load: bool | None = True


RECIPES: Mapping[str, Recipe] = {
    "codex-acp": Recipe(
        ("{root}/codex-acp/node_modules/.bin/codex-acp",),
        {"CODEX_HOME": "{home}/.codex", "STANDIN_KEY": secret("model")},
        {".codex/config.toml": _CODEX},
    ),
    "agentao": Recipe(
        ("{root}/agentao/bin/agentao", "--acp", "--stdio"),
        {
            "OPENAI_API_KEY": secret("model"),
            "OPENAI_BASE_URL": "{base}/v1",
            "OPENAI_MODEL": "stand-in",
            "LLM_PROVIDER": "OPENAI",
        },
        can_load=False,
    ),
    "opencode": Recipe(
        ("{root}/opencode/node_modules/.bin/opencode", "acp"),
        {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        },
        {".config/opencode/opencode.json": json.dumps(_OPENCODE)},
    ),
    "claude-agent-acp": Recipe(
        ("{root}/claude-agent-acp/node_modules/.bin/claude-agent-acp",),
        {
            "ANTHROPIC_BASE_URL": "{base}",
            "ANTHROPIC_API_KEY": secret("model"),
            "CLAUDE_CONFIG_DIR": "{home}/.claude",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
        },
    ),
    "gemini-cli": Recipe(
        ("{root}/gemini-cli/node_modules/.bin/gemini", "--acp"),
        {
            "GEMINI_API_KEY": secret("model"),
            "GOOGLE_GEMINI_BASE_URL": "{base}",
            "GEMINI_TELEMETRY_ENABLED": "false",
            "NO_BROWSER": "true",
        },
        {".gemini/settings.json": json.dumps(_GEMINI)},
        auth_method="gemini-api-key",
        # Not within the minute it began in, by which its files are named: a load overwrites them.
        can_load=None,
    ),
}


@dataclass(frozen=True, slots=True)
class RealAgent:
    """An agent ready to be started; ``env`` is beside what the bridge lets through anyway."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    auth_method: str

    def table(self) -> dict[str, Any]:
        """Its table for the bridge's configuration."""
        return {
            "command": list(self.argv),
            "dialect": "acp",
            "env": dict(self.env),
            "auth_method": self.auth_method,
        }


def prepare(name: str, home: Path, base: str) -> RealAgent:
    """The agent with its files written to ``home``, a throw-away folder; ``base`` is the LLM's URL.

    Raises KeyError for a name without a recipe.
    """
    recipe = RECIPES[name]

    def fill(text: str) -> str:
        filled = text.replace("{root}", str(ROOT)).replace("{home}", str(home))
        return filled.replace("{base}", base)

    for path, content in recipe.files.items():
        target = home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(fill(content))
    env = {key: fill(value) for key, value in recipe.env.items()} | {"HOME": str(home)}
    return RealAgent(tuple(fill(word) for word in recipe.argv), env, recipe.auth_method)
