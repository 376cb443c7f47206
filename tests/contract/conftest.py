"""Spares a run without these tests what it takes to import them: a schema of all operations."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what the run's marker expression, the default one above all, leaves out by name."""
    return True if "not contract" in config.getoption("markexpr") else None
