"""Settings: defaults, then the TOML file, then ``CURSOR_BRIDGE_*``, then the command line.

Nested names join with two underscores in the environment
(``CURSOR_BRIDGE_LIMITS__MAX_PROCESSES=4``). Unknown names are refused, so that a misspelt limit
never counts as set. Durations end in ``_s``, sizes in ``_bytes``.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

Positive = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    """One table of the file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Server(Section):
    """Where the bridge listens and which browsers may speak to it."""

    host: str = "127.0.0.1"
    port: int = Field(8765, ge=0, le=65535)
    allowed_hosts: tuple[str, ...] = ()
    """Host names beyond the loopback ones and the bound address."""
    cors_origins: tuple[str, ...] = ()
    """Origins (``https://app.example``) a browser page may call from; never ``*``."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses whose ``X-Forwarded-For`` is believed for rate limits and the audit log."""
    header_timeout_s: Seconds = 10
    body_timeout_s: Seconds = 10
    unread_timeout_s: Seconds = 30
    """How long a caller may read nothing of a response that waits for it."""
    max_connections: Positive = 4096


class Storage(Section):
    """What is kept, where and for how long."""

    state_dir: Path = Path("~/.local/state/cursor-bridge")
    retention_days: Seconds = 30
    max_session_bytes: Positive = 268_435_456
    max_total_bytes: Positive = 10 * 1024**3
    segment_bytes: Positive = 4 * 1024**2
    reserve_bytes: int = Field(16 * 1024**2, ge=0)
    """Preallocated file that is given up when the disk is full, so that turns get their ends."""


class Limits(Section):
    """Every bound a caller or an agent can meet."""

    max_processes: Positive = 16
    max_sessions_per_owner: Positive = 10_000
    max_queue: Positive = 100
    max_pending_requests: Positive = 1000
    idle_hibernate_s: Seconds = 1800
    cancel_grace_s: Seconds = 5
    drain_grace_s: Seconds = 20
    stall_warn_s: Seconds = 900
    stall_fail_s: Seconds = 0
    """End a silent turn after this long; 0 leaves it to the caller."""
    initialize_s: Seconds = 20
    new_session_s: Seconds = 60
    load_session_s: Seconds = 90
    authenticate_s: Seconds = 30
    call_s: Seconds = 30
    load_quiet_s: Seconds = 0.5
    spawn_stagger_s: Seconds = 0.25
    stop_step_s: Seconds = 2
    body_bytes: Positive = 33_554_432
    line_bytes: Positive = 64 * 1024**2
    stdin_bytes: Positive = 96 * 1024**2
    """Most that may wait for an agent that does not read its stdin."""
    stderr_bytes: Positive = 64 * 1024
    streams_per_token: Positive = 512
    failed_logins_per_minute: Positive = 10
    prompts_per_minute: Positive = 600
    sessions_per_minute: Positive = 120


class Permissions(Section):
    """What a caller may hand to the agent for good."""

    allow_always: bool = False
    allow_mcp_stdio: bool = False


class Agent(Section):
    """How one agent is started and spoken to."""

    command: tuple[str, ...] = ()
    """Empty: found on this box (only for the dialect ``cursor``)."""
    dialect: Literal["cursor", "acp"] = "acp"
    title: str = ""
    env: dict[str, SecretStr] = Field(default_factory=dict)
    auth_method: str = ""
    """Used only when the agent answers session/new with -32000."""
    default_model: str = ""
    default_mode: str = ""
    warm: int = Field(0, ge=0)
    endpoint: str = ""
    """Cursor's ``-e``."""
    insecure_tls: bool = False
    """Cursor's ``-k``."""
    root_flags: tuple[str, ...] = ()
    """Flags put before ``acp``."""
    safe_modes: tuple[str, ...] | None = None
    """Modes a prompt token may choose; others need ``approve`` too. ``None``: all."""
    permissions: dict[str, Any] | None = None
    """Default rules for new sessions, as in the HTTP contract."""
    retry_in_band: int = Field(0, ge=0, le=3)
    """Prompt again after a suspected network error, only when no tool ran."""
    model_picker: bool = True
    """Announce ``_meta.parameterizedModelPicker`` (dialect ``cursor``)."""


class Owner(Section):
    """One person on a shared box."""

    env: dict[str, SecretStr] = Field(default_factory=dict)
    env_files: dict[str, Path] = Field(default_factory=dict)
    """Variables whose value is the content of a file, so that keys stay out of this one."""


def default_agents() -> dict[str, Agent]:
    """Cursor's CLI, found on this box."""
    return {
        "cursor": Agent(
            dialect="cursor",
            title="Cursor",
            auth_method="cursor_login",
            default_model="default[]",
        )
    }


class Settings(BaseSettings):
    """The whole configuration, checked once at start and immutable afterwards."""

    model_config = SettingsConfigDict(
        env_prefix="CURSOR_BRIDGE_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    default_agent: str = ""
    roots: Annotated[tuple[Path, ...], NoDecode] = ()
    server: Server = Server()
    storage: Storage = Storage()
    limits: Limits = Limits()
    permissions: Permissions = Permissions()
    agents: dict[str, Agent] = Field(default_factory=default_agents)
    owners: dict[str, Owner] = Field(default_factory=dict)
    token: SecretStr | None = None
    no_auth: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    dumpable: bool = False
    """Leave the process dumpable, for profilers (otherwise PR_SET_DUMPABLE is 0)."""

    @field_validator("roots", mode="before")
    @classmethod
    def _split_roots(cls, value: object) -> object:
        """The environment gives one text, separated like PATH."""
        return tuple(p for p in value.split(":") if p) if isinstance(value, str) else value

    @property
    def state_dir(self) -> Path:
        """The state folder with ``~`` resolved."""
        return state_dir_of(self.storage)


def state_dir_of(storage: Storage) -> Path:
    """The state folder with ``~`` resolved."""
    return storage.state_dir.expanduser()


def waiting_for_restart(running: Settings, reread: Settings) -> list[str]:
    """The dotted names of settings that differ and cannot be changed while the bridge runs."""
    before, after = _flat(running.model_dump()), _flat(reread.model_dump())
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return sorted(name for name in changed if not _is_reread(name))


def _is_reread(name: str) -> bool:
    return name == "roots" or (name.startswith("limits.") and name != "limits.body_bytes")


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {}
        flat |= inner or {prefix + name: value}
    return flat


def load(path: Path | None = None, **overrides: Any) -> Settings:
    """Read the settings; ``path`` is the TOML file, ``overrides`` come from the command line.

    Tables of ``[agents.cursor]`` are laid over the built-in ones, so that a file may change one
    value. Raises ``OSError`` and ``tomllib.TOMLDecodeError`` for the file, pydantic's
    ``ValidationError`` for its content.
    """
    values = tomllib.loads(path.read_text("utf-8")) if path else {}
    if isinstance(agents := values.get("agents"), dict):
        values["agents"] = _over_defaults(agents)

    class Loaded(Settings):
        """The settings with this file as the source of lowest rank."""

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, values)

    return Loaded(**overrides)


def _over_defaults(agents: dict[str, Any]) -> dict[str, Any]:
    merged = {name: agent.model_dump() for name, agent in default_agents().items()}
    for name, table in agents.items():
        merged[name] = merged.get(name, {}) | table if isinstance(table, dict) else table
    return merged
