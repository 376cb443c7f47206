"""What every test shares: asyncio as anyio's backend, and reports that can be passed on."""

from __future__ import annotations

import compileall
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.run_log import RunLog

BRIDGE = Path(__file__).resolve().parents[1] / "bridge"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the bridge once where no process keeps what it compiles; hundreds import it."""
    if sys.dont_write_bytecode and not hasattr(session.config, "workerinput"):
        compileall.compile_dir(str(BRIDGE), quiet=2)


def pytest_configure(config: pytest.Config) -> None:
    """Whatever bridges log while tests run is read at the end."""
    config.pluginmanager.register(RunLog(), "run-log")


@pytest.fixture
def anyio_backend() -> str:
    """The bridge runs on asyncio alone (uvloop where it is installed)."""
    return "asyncio"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tests log lone surrogates on purpose; a report that holds one ends its worker."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report
