"""A peer whose agent keeps its conversations in the test's own folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.demo.peer import Peer


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    joined = Peer(tmp_path / "home")
    yield joined
    await joined.dialogue.close()
