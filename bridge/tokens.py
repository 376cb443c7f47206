"""The tokens by which callers are known: their file, their look-up, and their end.

Owns ``<state_dir>/tokens.json``: a list of records with the SHA-256 of each token, never the
token (256 random bits need no salt and no slow hash). The file is replaced atomically under a
lock, so that commands and a running bridge may write at once; a running bridge notices a change
within half a second. Look-ups hash what was presented and find it by the hash: no comparison of
secrets takes place whose time could tell anything. A damaged file is an error, never an empty
list. Knows nothing of HTTP.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from bridge.clock import parse_rfc3339, rfc3339
from bridge.principal import Principal

Clock = Callable[[], float]

FILE_NAME = "tokens.json"
FIRST_START = "first-start"
DEFAULT_SCOPES = ("read", "prompt", "approve")
ALL_SCOPES = ("read", "prompt", "approve", "admin")
FIXED_ID = "fixed"
NO_AUTH = Principal("local", "no-auth", frozenset(ALL_SCOPES), token_id="no-auth")
"""Everybody, where ``--no-auth`` says so."""

_PREFIX = "cab_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_PRESENTED_BYTES = 512
_CHECK_EVERY_S = 0.5


class StartupError(Exception):
    """The bridge must not start like this; the text says why and what to do."""


class TokenError(Exception):
    """A token cannot be made or revoked as asked; the text is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Record:
    """What the file holds of one token; times are seconds since the epoch, ``None``: no end."""

    id: str
    name: str
    owner: str
    scopes: tuple[str, ...]
    agents: tuple[str, ...] | None
    roots: tuple[str, ...] | None
    for_owners: tuple[str, ...]
    created_at: float
    expires_at: float | None
    sha256: str

    def principal(self) -> Principal:
        """Who a caller with this token is."""
        return Principal(
            owner=self.owner,
            token_name=self.name,
            scopes=frozenset(self.scopes),
            agents=None if self.agents is None else frozenset(self.agents),
            roots=self.roots,
            for_owners=frozenset(self.for_owners),
            expires_at=self.expires_at,
            token_id=self.id,
        )

    def as_json(self) -> dict[str, Any]:
        """The record as the file spells it."""
        return {
            "id": self.id,
            "name": self.name,
            "owner": self.owner,
            "scopes": list(self.scopes),
            "agents": None if self.agents is None else list(self.agents),
            "roots": None if self.roots is None else list(self.roots),
            "forOwners": list(self.for_owners),
            "createdAt": rfc3339(self.created_at),
            "expiresAt": None if self.expires_at is None else rfc3339(self.expires_at),
            "sha256": self.sha256,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Record:
        """The inverse; raises ``KeyError``, ``TypeError`` or ``ValueError`` on anything else."""
        if _SHA256.fullmatch(value["sha256"]) is None:
            raise ValueError("sha256")
        scopes = _texts(value["scopes"])
        if not set(scopes) <= set(ALL_SCOPES):
            raise ValueError("scopes")
        return cls(
            id=_text(value["id"]),
            name=_text(value["name"]),
            owner=_text(value["owner"]),
            scopes=scopes,
            agents=None if value["agents"] is None else _texts(value["agents"]),
            roots=None if value["roots"] is None else _texts(value["roots"]),
            for_owners=_texts(value["forOwners"]),
            created_at=parse_rfc3339(value["createdAt"]),
            expires_at=None if value["expiresAt"] is None else parse_rfc3339(value["expiresAt"]),
            sha256=value["sha256"],
        )


class TokenStore:
    """The tokens of one bridge. Synchronous but for :meth:`watch`."""

    def __init__(self, path: Path, clock: Clock, *, fixed: str | None = None) -> None:
        """Raises :class:`StartupError` where the file is damaged or ``fixed`` is a weak token."""
        self._path = path
        self._clock = clock
        self._fixed: bytes | None = None
        if fixed is not None:
            check_strength(fixed)
            self._fixed = _digest(fixed.encode("ascii"))
        self._fixed_principal = Principal(
            "local", "CURSOR_BRIDGE_TOKEN", frozenset(ALL_SCOPES), token_id=FIXED_ID
        )
        self._signature: tuple[int, int, int] | None = None
        self._next_check = 0.0
        self._by_digest: dict[bytes, Record] = {}
        self._by_id: dict[str, Record] = {}
        self._waiting: dict[anyio.CancelScope, str] = {}
        self._load()

    def lookup(self, token: bytes) -> Principal | None:
        """Who ``token`` is, ``None`` for everything that is no live token of ours."""
        self._reload_if_due()
        if not 0 < len(token) <= _MOST_PRESENTED_BYTES:
            return None
        digest = _digest(token)
        if digest == self._fixed:
            return self._fixed_principal
        if digest not in self._by_digest:
            # Perhaps it was made just now. Whoever tries many is stopped before this.
            self._reload()
        record = self._by_digest.get(digest)
        return record.principal() if record is not None and self._is_unexpired(record) else None

    def is_live(self, token_id: str) -> bool:
        """Whether the token of a principal is still good: neither revoked nor expired."""
        self._reload_if_due()
        if token_id == NO_AUTH.token_id:
            return True
        if token_id == FIXED_ID:
            return self._fixed is not None
        record = self._by_id.get(token_id)
        return record is not None and self._is_unexpired(record)

    def is_empty(self) -> bool:
        """Whether nobody could get in now."""
        return self._fixed is None and not any(map(self._is_unexpired, self._by_id.values()))

    def records(self) -> list[Record]:
        """All records of the file, expired ones too, oldest first."""
        self._load()
        return list(self._by_id.values())

    @contextmanager
    def first(self) -> Iterator[str | None]:
        """On the first start of all, the token ``first-start``, for the block to show it.

        It cannot be shown again, so a start whose block did not end well, a kill included, does
        not count: the next one makes the token anew.
        """
        unshown = self._path.with_name(f"{FILE_NAME}.unshown")
        if self._fixed is not None or (self._path.exists() and not unshown.exists()):
            yield None
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unshown.touch(mode=0o600)
        with suppress(TokenError):
            self.revoke(FIRST_START)
        yield self.create(FIRST_START, scopes=ALL_SCOPES)
        unshown.unlink()

    def create(
        self,
        name: str,
        *,
        owner: str = "local",
        for_owners: Iterable[str] = (),
        scopes: Iterable[str] = DEFAULT_SCOPES,
        agents: Iterable[str] | None = None,
        roots: Iterable[str] | None = None,
        expires_at: float | None = None,
    ) -> str:
        """Make a token and return it, the only time it can be seen.

        Raises :class:`TokenError` for a name that is taken or any value that is not allowed.
        """
        token = _PREFIX + secrets.token_urlsafe(32)
        record = Record(
            id=f"tok_{secrets.token_hex(8)}",
            name=name,
            owner=owner,
            scopes=tuple(dict.fromkeys(scopes)),
            agents=None if agents is None else tuple(agents),
            roots=None if roots is None else tuple(os.path.realpath(root) for root in roots),
            for_owners=tuple(for_owners),
            created_at=self._clock(),
            expires_at=expires_at,
            sha256=_digest(token.encode()).hex(),
        )
        _check(record)
        with self._locked():
            records = self.records()
            if any(other.name == name for other in records):
                raise TokenError(f"There is a token named {name} already; revoke it first.")
            self._save([*records, record])
        return token

    def revoke(self, name: str) -> None:
        """End the token ``name``; raises :class:`TokenError` where there is none."""
        with self._locked():
            records = self.records()
            kept = [record for record in records if record.name != name]
            if len(kept) == len(records):
                raise TokenError(f"There is no token named {name}.")
            self._save(kept)

    async def watch(self) -> None:
        """Look at the file twice a second, for ever, so that :meth:`while_live` is timely."""
        while True:
            await anyio.sleep(_CHECK_EVERY_S)
            self._reload_if_due()

    @contextmanager
    def while_live(
        self, principal: Principal, limit_s: float = math.inf
    ) -> Iterator[anyio.CancelScope]:
        """What is awaited inside ends after ``limit_s``, or with the token (see :meth:`watch`)."""
        end = principal.expires_at
        left_s = limit_s if end is None else min(limit_s, end - self._clock())
        with anyio.CancelScope(deadline=anyio.current_time() + left_s) as scope:
            self._waiting[scope] = principal.token_id
            try:
                if not self.is_live(principal.token_id):
                    scope.cancel()
                yield scope
            finally:
                del self._waiting[scope]

    def _is_unexpired(self, record: Record) -> bool:
        return record.expires_at is None or self._clock() < record.expires_at

    def _reload_if_due(self) -> None:
        now = self._clock()
        # The lower bound is for a clock that was set back: it must not put the check off.
        if self._next_check - _CHECK_EVERY_S <= now < self._next_check:
            return
        self._next_check = now + _CHECK_EVERY_S
        self._reload()

    def _reload(self) -> None:
        try:
            self._load()
        except StartupError:
            # Damaged under a running bridge: what was good stays good, and nothing is added.
            return

    def _load(self) -> None:
        signature = _signature(self._path)
        if signature is not None and signature == self._signature:
            return
        records = _read(self._path) if signature is not None else []
        before = self._by_id
        self._signature = signature
        self._by_id = {record.id: record for record in records}
        self._by_digest = {bytes.fromhex(record.sha256): record for record in records}
        for scope, token_id in self._waiting.items():
            if token_id in before and token_id not in self._by_id:
                scope.cancel()

    def _save(self, records: list[Record]) -> None:
        text = json.dumps({"version": 1, "tokens": [r.as_json() for r in records]}, indent=2)
        temporary = self._path.with_name(f".{FILE_NAME}.{secrets.token_hex(4)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(self._path.parent)
        self._load()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._path.with_name(f"{FILE_NAME}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def check_strength(token: str) -> None:
    """Raise :class:`StartupError` for a fixed token that is empty, guessable or cannot be sent."""
    if not token:
        raise StartupError("CURSOR_BRIDGE_TOKEN is empty; unset it or give it a long random value.")
    if len(token) < 16 or len(set(token)) < 5:
        raise StartupError(
            "The fixed token (CURSOR_BRIDGE_TOKEN, or `token` in the file) is too easy to guess; "
            "use at least 16 random characters."
        )
    if re.fullmatch(r"[\x21-\x7e]+", token) is None or len(token) > _MOST_PRESENTED_BYTES:
        raise StartupError("CURSOR_BRIDGE_TOKEN has characters or a length no header can carry.")


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _check(record: Record) -> None:
    owners = (("owner", owner) for owner in (record.owner, *record.for_owners))
    for what, value in (("name", record.name), *owners):
        if _NAME.fullmatch(value) is None:
            raise TokenError(
                f"{value!r} is no {what}: letters, digits, '.', '_', '@' and '-', at most 64."
            )
    if not record.scopes or not set(record.scopes) <= set(ALL_SCOPES):
        raise TokenError(f"A token has one or more of the scopes {', '.join(ALL_SCOPES)}.")


def _read(path: Path) -> list[Record]:
    try:
        content = json.loads(path.read_bytes())
        if content["version"] != 1:
            raise ValueError("version")
        return [Record.from_json(entry) for entry in content["tokens"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StartupError(
            f"The token file {path} cannot be read ({type(error).__name__}: {error}). "
            "Mend it, or move it away and make new tokens with `cursor-bridge token create`."
        ) from error


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartupError(f"The token file {path} cannot be read ({error}).") from error
    return status.st_ino, status.st_mtime_ns, status.st_size


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("a list was expected")
    return tuple(map(_text, value))
