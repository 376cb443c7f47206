"""When a bridge must not start, since strangers could get in."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config import Server, Settings
from bridge.exposure import check_exposure, is_loopback
from bridge.tokens import StartupError, TokenStore
from tests.canaries import secret

FIXED = secret("fixed")


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "tokens.json", lambda: 0.0)


@pytest.mark.parametrize(
    "weak", ["schlüssel-mit-umlaut-0123", "abcdefgh" * 100, "tab\tin-it-0123456"]
)
def test_a_fixed_token_no_header_can_carry_keeps_the_bridge_from_starting(weak: str) -> None:
    with pytest.raises(StartupError, match="header"):
        check_exposure(Settings(token=weak))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.0.2.1", False),
        ("localhost.example", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


@pytest.mark.parametrize("proxy", ["*", "", "proxy.example", "10.0.0.0/99"])
def test_a_proxy_that_could_be_anybody_keeps_the_bridge_from_starting(proxy: str) -> None:
    check_exposure(Settings(server=Server(trusted_proxies=("127.0.0.1", "10.0.0.0/8", "::1"))))
    with pytest.raises(StartupError, match="trusted_proxies"):
        check_exposure(Settings(server=Server(trusted_proxies=(proxy,))))


def test_strangers_are_kept_out_by_not_starting(store: TokenStore) -> None:
    everywhere = Server(host="0.0.0.0")
    check_exposure(Settings(), store)
    check_exposure(Settings(no_auth=True), store)
    check_exposure(Settings(server=everywhere))
    with pytest.raises(StartupError, match="no token yet"):
        check_exposure(Settings(server=everywhere), store)
    with pytest.raises(StartupError, match="loopback"):
        check_exposure(Settings(server=everywhere, no_auth=True))
    with pytest.raises(StartupError, match="contradict"):
        check_exposure(Settings(token=FIXED, no_auth=True))
    store.create("phone")
    check_exposure(Settings(server=everywhere), store)
