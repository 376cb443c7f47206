"""The environment an agent runs with: an allow-list, then the configuration, then our own marks.

Rules: what is not named here does not reach an agent, because the bridge's environment may hold
keys of every kind, and a stale ``CURSOR_API_KEY`` beats a good login. Later wins: inherited, the
agent's ``env``, the owner's ``env``, the owner's files. An owner who has a login of their own is
given no other, since nobody knows which of two would count. No ``CURSOR_BRIDGE_*`` but the run tag
ever gets through, not even from the configuration.

Knows nothing of processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import SecretStr

from bridge.config import Owner
from bridge.errors import AgentError
from bridge.runtime.process import RUN_TAG

Values = Mapping[str, "str | SecretStr"]

_OURS = "CURSOR_BRIDGE_"
_MAX_FILE_BYTES = 64 * 1024
_SECRET = ("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_NAMES = frozenset(
    (
        *("HOME", "PATH", "LANG", "LANGUAGE", "TERM", "SHELL", "USER", "LOGNAME", "TMPDIR", "TZ"),
        *_PROXIES,
        *(name.lower() for name in _PROXIES),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
        *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("CURSOR_CONFIG_DIR", "AGENT_CLI_CREDENTIAL_STORE", *_SECRET),
    )
)
_PREFIXES = ("XDG_", "LC_")


def inherited(base: Mapping[str, str]) -> dict[str, str]:
    """The part of ``base`` that any program started by the bridge may have."""
    return {
        name: value for name, value in base.items() if name in _NAMES or name.startswith(_PREFIXES)
    }


def build(
    agent_env: Values, owner_env: Values, tag: str, base: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """All variables of an agent; ``owner_env`` as :func:`owner_variables` gives it."""
    owners = dict(_plain(owner_env))
    shared = {**inherited(base), **dict(_plain(agent_env))}
    if not owners.keys().isdisjoint(_SECRET):
        shared = {name: value for name, value in shared.items() if name not in _SECRET}
    configured = {**shared, **owners}
    return {
        **{name: value for name, value in configured.items() if not name.startswith(_OURS)},
        "NO_OPEN_BROWSER": "1",
        RUN_TAG: tag,
    }


def secret_values(
    agent_env: Values, owner_env: Values, base: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """The values to mask in what an agent says on stderr: all configured ones and known keys."""
    keys = {name: base[name] for name in _SECRET if name in base}
    values = (value for env in (agent_env, owner_env, keys) for _, value in _plain(env))
    return tuple(sorted({value for value in values if value}))


def owner_variables(owner: Owner) -> dict[str, str]:
    """An owner's variables, those from files read now, so that a changed key counts at once.

    Raises :class:`AgentError` ``agent-unavailable`` for a file that cannot be used.
    """
    return {
        **dict(_plain(owner.env)),
        **{name: _read(name, path.expanduser()) for name, path in owner.env_files.items()},
    }


def _read(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES or b"\0" in content:
            raise ValueError("too long or binary")
        return content.decode("utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise AgentError(
            "agent-unavailable",
            f"The file for the variable {name} of this owner cannot be used.",
            hint="See env_files of this owner in the configuration.",
        ) from error


def _plain(values: Values) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        yield name, value.get_secret_value() if isinstance(value, SecretStr) else value
