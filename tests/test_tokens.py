"""Tokens: made once, known by their hash, gone when revoked; and when a bridge must not start."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bridge.cli.tokens import token as token_command
from bridge.config import Settings
from bridge.exposure import check_exposure
from bridge.tokens import NO_AUTH, StartupError, TokenError, TokenStore
from tests.canaries import secret

FIXED = secret("fixed")


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "tokens.json"


@pytest.fixture
def store(path: Path, clock: Clock) -> TokenStore:
    return TokenStore(path, clock)


def test_a_token_is_known_by_itself_and_by_nothing_like_it(store: TokenStore) -> None:
    token = store.create("phone", owner="ann", for_owners=["bob"], scopes=["read"], agents=["a"])
    assert re.fullmatch(r"cab_[A-Za-z0-9_-]{43}", token)
    principal = store.lookup(token.encode())
    assert principal is not None
    assert (principal.owner, principal.token_name) == ("ann", "phone")
    assert principal.scopes == {"read"}
    assert principal.agents == frozenset({"a"})
    assert principal.for_owners == {"bob"}
    for other in (token[:-1], token + "0", token.upper(), " " + token, ""):
        assert store.lookup(other.encode()) is None


@given(presented=st.binary(max_size=600))
def test_looking_up_any_bytes_never_fails(
    tmp_path_factory: pytest.TempPathFactory, presented: bytes
) -> None:
    store = TokenStore(tmp_path_factory.getbasetemp() / "none.json", Clock(), fixed=FIXED)
    assert store.lookup(presented) is None
    assert store.lookup(b"a" * 1_000_000) is None


def test_only_the_hash_is_stored_in_a_file_for_the_owner_alone(
    store: TokenStore, path: Path
) -> None:
    token = store.create("phone")
    assert token not in path.read_text()
    assert token[4:] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "tokens.json",
        "tokens.json.lock",
    ]
    assert stat.S_IMODE(path.with_name("tokens.json.lock").stat().st_mode) == 0o600


def test_what_was_written_is_read_again(store: TokenStore, path: Path, clock: Clock) -> None:
    token = store.create(
        "phone", scopes=["admin"], roots=[str(path.parent)], expires_at=clock.now + 60
    )
    again = TokenStore(path, clock)
    assert again.records() == store.records()
    assert again.lookup(token.encode()) == store.lookup(token.encode())


def test_a_root_is_stored_as_where_it_leads(store: TokenStore, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    store.create("phone", roots=[str(tmp_path / "link")])
    assert store.records()[0].roots == (str(tmp_path.resolve()),)


def test_a_running_store_notices_what_another_one_does(
    store: TokenStore, path: Path, clock: Clock
) -> None:
    commands = TokenStore(path, clock)
    token = commands.create("phone").encode()
    clock.now += 0.5
    principal = store.lookup(token)
    assert principal is not None
    assert store.is_live(principal.token_id)
    commands.revoke("phone")
    clock.now += 0.5
    assert store.lookup(token) is None
    assert not store.is_live(principal.token_id)


def test_a_clock_that_is_set_back_does_not_put_the_look_off(
    store: TokenStore, path: Path, clock: Clock
) -> None:
    token = store.create("phone").encode()
    assert store.lookup(token) is not None
    TokenStore(path, clock).revoke("phone")
    clock.now -= 3600
    assert store.lookup(token) is None


def test_a_token_is_taken_the_moment_another_process_has_made_it(
    store: TokenStore, path: Path, clock: Clock
) -> None:
    assert store.lookup(b"x") is None
    assert store.lookup(TokenStore(path, clock).create("phone").encode()) is not None


def test_two_writers_lose_nothing_of_each_other(path: Path, clock: Clock) -> None:
    first, second = TokenStore(path, clock), TokenStore(path, clock)
    first.create("a")
    second.create("b")
    first.create("c")
    assert [record.name for record in second.records()] == ["a", "b", "c"]


def test_an_expired_token_is_none(store: TokenStore, clock: Clock) -> None:
    token = store.create("phone", expires_at=clock.now + 60).encode()
    principal = store.lookup(token)
    assert principal is not None
    assert not store.is_empty()
    clock.now += 60
    assert store.lookup(token) is None
    assert not store.is_live(principal.token_id)
    assert store.is_empty()


def test_a_token_made_anew_under_an_old_name_is_another_one(store: TokenStore) -> None:
    before = store.lookup(store.create("phone").encode())
    store.revoke("phone")
    after = store.lookup(store.create("phone").encode())
    assert before is not None
    assert after is not None
    assert not store.is_live(before.token_id)
    assert store.is_live(after.token_id)


@pytest.mark.parametrize(
    "asked",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "a" * 65},
        {"name": "../a"},
        {"name": "a\n"},
        {"name": "a", "owner": "ä"},
        {"name": "a", "for_owners": [""]},
        {"name": "a", "scopes": []},
        {"name": "a", "scopes": ["root"]},
    ],
)
def test_what_no_token_can_be_is_refused(store: TokenStore, asked: dict[str, Any]) -> None:
    with pytest.raises(TokenError):
        store.create(**asked)
    assert store.records() == []


def test_names_are_taken_once_and_only_names_there_are_can_be_revoked(store: TokenStore) -> None:
    store.create("phone")
    with pytest.raises(TokenError, match="phone"):
        store.create("phone")
    with pytest.raises(TokenError, match="laptop"):
        store.revoke("laptop")


GOOD: dict[str, Any] = {
    "id": "tok_1",
    "name": "a",
    "owner": "local",
    "scopes": ["read"],
    "agents": None,
    "roots": None,
    "forOwners": [],
    "createdAt": "2026-12-01T00:00:00.000Z",
    "expiresAt": None,
    "sha256": "0" * 64,
}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"version": 2, "tokens": []}',
        '{"version": 1, "tokens": [1]}',
        "[" * 100_000,
        *(
            json.dumps({"version": 1, "tokens": [GOOD | change]})
            for change in (
                {"sha256": "0"},
                {"sha256": None},
                {"scopes": ["root"]},
                {"scopes": "read"},
                {"owner": None},
                {"createdAt": "yesterday"},
                {"expiresAt": 1},
                {"agents": [1]},
            )
        ),
    ],
)
def test_a_damaged_file_keeps_the_bridge_from_starting(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(StartupError, match=r"tokens\.json"):
        TokenStore(path, Clock())
    path.unlink()
    path.mkdir()
    with pytest.raises(StartupError):
        TokenStore(path, Clock())


def test_a_path_that_cannot_be_looked_at_keeps_the_bridge_from_starting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError):
        TokenStore(tmp_path / "file" / "tokens.json", Clock())


def test_a_file_damaged_under_a_running_bridge_changes_nothing(
    store: TokenStore, path: Path, clock: Clock
) -> None:
    token = store.create("phone").encode()
    path.write_text("{")
    clock.now += 0.5
    assert store.lookup(token) is not None


def test_a_write_that_fails_leaves_the_file_as_it_was(store: TokenStore, path: Path) -> None:
    store.create("phone")
    before = path.read_bytes()
    path.unlink()
    path.mkdir()
    (path / "in the way").touch()
    with pytest.raises(StartupError):
        store.create("laptop")
    (path / "in the way").unlink()
    path.rmdir()
    path.write_bytes(before)
    assert [record.name for record in store.records()] == ["phone"]
    assert len(list(path.parent.iterdir())) == 2


def test_the_first_start_makes_a_token_and_no_later_one_does(
    store: TokenStore, path: Path, clock: Clock
) -> None:
    with store.first() as token:
        assert token is not None
    principal = store.lookup(token.encode())
    assert principal is not None
    assert (principal.owner, principal.token_name) == ("local", "first-start")
    assert principal.may("admin")
    with TokenStore(path, clock).first() as again:
        assert again is None
    store.revoke("first-start")
    with TokenStore(path, clock).first() as again:
        assert again is None


def test_a_first_token_that_was_not_shown_is_made_anew_by_the_next_start(
    store: TokenStore, path: Path, clock: Clock
) -> None:
    with pytest.raises(BrokenPipeError), store.first() as unseen:
        raise BrokenPipeError
    with TokenStore(path, clock).first() as token:
        assert token is not None
    assert unseen is not None and store.lookup(unseen.encode()) is None
    assert [each.name for each in store.records()] == ["first-start"]
    with TokenStore(path, clock).first() as again:
        assert again is None


def test_a_fixed_token_has_all_scopes_and_is_in_no_file(path: Path, clock: Clock) -> None:
    store = TokenStore(path, clock, fixed=FIXED)
    principal = store.lookup(FIXED.encode())
    assert principal is not None
    assert principal.owner == "local"
    assert principal.may("admin")
    assert store.is_live(principal.token_id)
    with store.first() as first:
        assert first is None
    assert not path.exists()
    assert not TokenStore(path, clock).is_live(principal.token_id)
    assert store.is_live(NO_AUTH.token_id)


@pytest.mark.parametrize(
    "weak", ["", "secret", "123456789012345", "a" * 40, "ab" * 20, "ä" * 5 + "b" * 12, "x " * 600]
)
def test_a_weak_fixed_token_keeps_the_bridge_from_starting(path: Path, weak: str) -> None:
    with pytest.raises(StartupError, match="CURSOR_BRIDGE_TOKEN"):
        TokenStore(path, Clock(), fixed=weak)
    with pytest.raises(StartupError, match="CURSOR_BRIDGE_TOKEN"):
        check_exposure(Settings(token=weak))


@pytest.mark.anyio
async def test_what_waits_for_a_token_ends_with_it_and_with_no_other(path: Path) -> None:
    store = TokenStore(path, Clock())
    principal = store.lookup(store.create("phone").encode())
    assert principal is not None
    ended = anyio.Event()

    async def wait() -> None:
        with store.while_live(principal) as scope:
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        ended.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            store.create("laptop")
            store.revoke("laptop")
            await anyio.wait_all_tasks_blocked()
            assert not ended.is_set()
            store.revoke("phone")
    with store.while_live(principal):
        await anyio.sleep_forever()
    with store.while_live(NO_AUTH, 0):
        await anyio.sleep_forever()


@pytest.mark.anyio
async def test_what_waits_ends_with_an_expiry_too(store: TokenStore, clock: Clock) -> None:
    principal = store.lookup(store.create("phone", expires_at=clock.now + 0.01).encode())
    assert principal is not None
    with anyio.fail_after(5), store.while_live(principal):
        await anyio.sleep_forever()


@pytest.mark.anyio
async def test_a_watching_bridge_ends_what_waits_within_a_second_of_a_revocation(
    store: TokenStore, path: Path
) -> None:
    commands = TokenStore(path, Clock())
    principal = store.lookup(commands.create("phone").encode())
    assert principal is not None
    running = TokenStore(path, anyio.current_time)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(running.watch)
        commands.revoke("phone")
        with anyio.fail_after(1), running.while_live(principal):
            await anyio.sleep_forever()
        tasks.cancel_scope.cancel()


def run(tmp_path: Path, *arguments: str) -> tuple[int, str, str]:
    command = [*arguments, "--state-dir", str(tmp_path)]
    result = CliRunner().invoke(token_command, command)
    return result.exit_code, result.stdout, result.stderr


def test_the_command_prints_the_token_alone_and_lists_everything_else(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "create", "--name", "phone", "--expires", "30d")
    assert code == 0
    assert re.fullmatch(r"cab_\S{43}\n", out)
    assert out.strip() not in err
    options = "--owner ann --for-owner bob --scope read --agent a --root / --expires 1s"
    assert run(tmp_path, "create", "--name", "other", *options.split())[0] == 0
    code, listed, _ = run(tmp_path, "list")
    assert code == 0
    assert out.strip() not in listed
    first, second = listed.splitlines()
    assert "phone  owner=local  scopes=read,prompt,approve" in first
    assert "other  owner=ann  scopes=read  for-owners=bob  agents=a  roots=/" in second
    assert run(tmp_path, "revoke", "phone")[:2] == (0, "")
    assert "phone" not in run(tmp_path, "list")[1]


def test_the_command_fails_with_2_and_says_why(tmp_path: Path) -> None:
    assert run(tmp_path, "list") == (0, "", "There are no tokens.\n")
    run(tmp_path, "create", "--name", "phone")
    for arguments in (
        ["create", "--name", "phone"],
        ["create", "--name", "a b"],
        ["create", "--name", "a", "--expires", "soon"],
        ["create", "--name", "a", "--scope", "root"],
        ["create"],
        ["revoke", "nobody"],
        ["list", "--config", str(tmp_path / "none.toml")],
    ):
        code, out, err = run(tmp_path, *arguments)
        assert (code, out) == (2, ""), arguments
        assert err
    (tmp_path / "bad.toml").write_text("[limits]\nmax_processes = 0\n")
    code, _, err = run(tmp_path, "list", "--config", str(tmp_path / "bad.toml"))
    assert code == 2
    assert "limits.max_processes" in err
    (tmp_path / "tokens.json").write_text("{")
    assert run(tmp_path, "list")[0] == 2
