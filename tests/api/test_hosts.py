"""What a configuration may name as hosts and origins."""

from __future__ import annotations

import pytest

from bridge.api.hosts import Host, Hosts, Origins, parse_host
from bridge.tokens import StartupError


@pytest.mark.parametrize(
    ("value", "host"),
    [
        (b"a", Host("a", None)),
        (b"A.example:1", Host("a.example", 1)),
        (b"[2001:DB8:0::1]:65535", Host("2001:db8::1", 65535)),
        (b"[fe80::1%25eth0]", None),
        (b"a-.b_c", Host("a-.b_c", None)),
        (b"-a", None),
        (b"a" * 254, None),
        (b"a:65536", None),
    ],
)
def test_a_host_is_a_name_or_an_address_with_a_port_at_most(
    value: bytes, host: Host | None
) -> None:
    assert parse_host(value) == host


@pytest.mark.parametrize("entry", ["*", "*.example", "https://a.example", "a/b", "", "ä.example"])
def test_an_allowed_host_that_is_none_keeps_the_bridge_from_starting(entry: str) -> None:
    with pytest.raises(StartupError, match="allowed_hosts"):
        Hosts("127.0.0.1", [entry])


@pytest.mark.parametrize("entry", ["*", "null", "app.example", "https://", "https://a/", "://a"])
def test_a_configured_origin_that_is_none_keeps_the_bridge_from_starting(entry: str) -> None:
    with pytest.raises(StartupError, match="cors_origins"):
        Origins([entry])


def test_an_allowed_host_may_be_written_with_a_port() -> None:
    hosts = Hosts("::1", ["Bridge.example:8443"])
    assert hosts.allows(Host("bridge.example", None), None)
    assert not hosts.allows(Host("::", None), "::")
