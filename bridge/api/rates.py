"""Token buckets, bounded in number: how often an address may guess and a token may prompt.

A bucket that has not been used for as long as it takes to fill is as good as new, so the least
recently used may be forgotten. Knows neither HTTP nor what the keys mean; the clock is given.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable

Clock = Callable[[], float]


class Buckets:
    """``per_minute`` uses for each key, that many at once, refilled evenly."""

    def __init__(self, per_minute: int, clock: Clock, *, most_keys: int = 4096) -> None:
        self._capacity = float(per_minute)
        self._rate = per_minute / 60
        self._clock = clock
        self._most_keys = most_keys
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, key: str) -> int:
        """Use up one; 0 where it was granted, else the whole seconds until the next."""
        now = self._clock()
        level, since = self._levels.pop(key, (self._capacity, now))
        level = min(self._capacity, level + (now - since) * self._rate)
        is_granted = level >= 1
        self._levels[key] = (level - 1 if is_granted else level, now)
        if len(self._levels) > self._most_keys:
            self._levels.popitem(last=False)
        return 0 if is_granted else max(1, math.ceil((1 - level) / self._rate))


class Rates:
    """All allowances the guard keeps; counts are per minute."""

    def __init__(
        self, *, failed_logins: int, prompts: int, sessions: int, clock: Clock = time.monotonic
    ) -> None:
        self._clock = clock
        self.refusals = Buckets(60, clock)
        """Audit lines of refused access per address: a flood must not push out the rest."""
        self.set(failed_logins=failed_logins, prompts=prompts, sessions=sessions)

    def set(self, *, failed_logins: int, prompts: int, sessions: int) -> None:
        """Other allowances from now on; everybody begins with a full one."""
        self.failed_logins = Buckets(failed_logins, self._clock)
        self.prompts = Buckets(prompts, self._clock)
        self.sessions = Buckets(sessions, self._clock)


def address_key(address: str) -> str:
    """What shares one allowance: an IPv4 address, or the /64 an IPv6 caller can choose from."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address
