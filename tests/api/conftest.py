"""Fixtures of the guard's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config import Server
from tests.api.door import APP, Door


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


@pytest.fixture
def open_door(tmp_path: Path) -> Door:
    """With an origin and a host beyond the bridge's own."""
    server = Server(cors_origins=(APP,), allowed_hosts=("bridge.example",))
    return Door(tmp_path, server=server)
