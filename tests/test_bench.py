"""The workloads that need no process of their own still run; what they measure is not judged."""

from __future__ import annotations

import pytest

from bench import commit, hot_path

pytestmark = pytest.mark.anyio


async def test_a_line_goes_all_the_way_from_the_pipe_to_the_socket() -> None:
    figures = await hot_path.measure(lines=2000, rounds=1)
    assert figures["sent_bytes"] > figures["line_bytes"]


def test_commits_are_counted() -> None:
    figures = commit.measure(seconds=0.1, rate=1000, sessions=3)
    assert figures["commit"]["count"] == 100
