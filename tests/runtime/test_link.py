"""What a link does when what it hands over cannot be handled."""

from __future__ import annotations

import pytest

from bridge.protocol.connection import Received
from bridge.runtime.link import AgentLink
from bridge.runtime.process import ExitStatus

pytestmark = pytest.mark.anyio


class Faulty:
    """An owner with a fault in it."""

    def __init__(self) -> None:
        self.broken: list[AgentLink] = []

    def handle(self, link: AgentLink, received: list[Received]) -> None:
        raise RuntimeError("a fault of ours")

    def link_started(self, link: AgentLink) -> None:
        raise AssertionError(link)

    def link_broke(self, link: AgentLink) -> None:
        self.broken.append(link)

    def link_ended(self, link: AgentLink, status: ExitStatus) -> None:
        raise AssertionError(status)


async def test_a_fault_of_ours_ends_the_agent_so_that_nothing_waits_for_ever() -> None:
    owner = Faulty()
    link = AgentLink(owner, max_line_bytes=1000)
    link.output_received(b'{"jsonrpc":"2.0","method":"a/b","params":{}}\n')
    assert owner.broken == [link]
