"""What every test shares: asyncio as anyio's backend."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The bridge runs on asyncio alone (uvloop where it is installed)."""
    return "asyncio"
