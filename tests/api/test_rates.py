"""Token buckets: what is granted, when again, and that their number is bounded."""

from __future__ import annotations

import pytest

from bridge.api.rates import Buckets, address_key


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_grants_its_number_at_once_and_then_evenly() -> None:
    clock = Clock()
    buckets = Buckets(60, clock)
    assert [buckets.take("a") for _ in range(61)] == [0] * 60 + [1]
    clock.now = 0.5
    assert buckets.take("a") == 1
    clock.now = 1.0
    assert buckets.take("a") == 0
    assert buckets.take("b") == 0


def test_a_bucket_never_holds_more_than_its_number() -> None:
    clock = Clock()
    buckets = Buckets(2, clock)
    clock.now = 1_000_000.0
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 30]


def test_the_least_recently_used_key_is_forgotten_first() -> None:
    buckets = Buckets(1, Clock(), most_keys=2)
    assert [buckets.take(key) for key in ("a", "b", "a", "c")] == [0, 0, 60, 0]
    assert len(buckets) == 2
    assert buckets.take("a") == 60
    assert buckets.take("b") == 0


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("unix", "unix"),
    ],
)
def test_an_ipv6_caller_shares_the_allowance_of_its_network(address: str, key: str) -> None:
    assert address_key(address) == key
