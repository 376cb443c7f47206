"""pytest's side of the canaries: one folder for all logs of a run, read when the run is over.

Every bridge that a test starts logs into it at debug level: those in pytest's own processes by a
handler that is there from the first test to the last, those in processes of their own because the
harness points them to it. A leak fails the run, whichever test caused it, and names file and line.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from bridge import logs
from tests import canaries

_LOUD = ("bridge", "uvicorn")
"""Loggers that write at every level; the others as in a bridge of its own."""


class RunLog:
    """The plugin, in pytest's main process and in each of its workers."""

    def __init__(self) -> None:
        self.is_main = canaries.FOLDER not in os.environ
        if self.is_main:
            os.environ[canaries.FOLDER] = tempfile.mkdtemp(prefix="bridge-run-")
        self.folder = Path(os.environ[canaries.FOLDER])
        self.found: list[canaries.Leak] = []
        path = canaries.log_file("in-process")
        assert path is not None
        self._file = open(path, "a", encoding="utf-8")
        # No values to be masked are known to this one: nothing may rely on that.
        self._handler = logs.handler(self._file, is_json=True)
        logging.getLogger().addHandler(self._handler)
        for name, level in {**dict.fromkeys(_LOUD, logging.DEBUG), **logs.LEAST_LEVELS}.items():
            logging.getLogger(name).setLevel(level)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Look for canaries, once all workers have ended."""
        yield
        self._file.flush()
        if self.is_main:
            self.found = list(canaries.leaks(self.folder))
            if self.found and session.exitstatus in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where something leaked."""
        if self.found:
            terminalreporter.section(
                "secrets or texts in the logs of this run", red=True, bold=True
            )
            for leak in self.found[:50]:
                terminalreporter.line(str(leak))
            terminalreporter.line(f"{len(self.found)} in all")

    def pytest_unconfigure(self) -> None:
        """Remove the logs of a run without leaks."""
        logging.getLogger().removeHandler(self._handler)
        self._file.close()
        if self.is_main:
            del os.environ[canaries.FOLDER]
            if not self.found:
                shutil.rmtree(self.folder, ignore_errors=True)
