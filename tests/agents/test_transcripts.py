"""Recorded conversations of other people's agents, replayed through the core.

Recorded by ``PROBE_RECORD=tests/agents/transcripts python -m tests.agents.probe NAME…``. Every
line must be understood, pass on as it came, and cost no warning but the ones explained here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.protocol.connection import Connection, Notified, Requested, Warned
from bridge.protocol.projection import Applied, Projection
from tests.agents.real import RECIPES

FOLDER = Path(__file__).with_name("transcripts")
RECORDINGS = sorted(FOLDER.glob("*.jsonl"))

EXPLAINED: dict[str, set[str]] = {}
"""Warning codes that an agent's habits cause, by agent; none so far."""


def lines_of(path: Path) -> list[tuple[str, str]]:
    """``(who, line)`` for each line of a recording."""
    entries = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [(entry["who"], entry["line"]) for entry in entries]


class Replay:
    """The core, fed with a recording."""

    def __init__(self) -> None:
        self.connection = Connection()
        self.projection = Projection({"todos": []})
        self.warnings: list[str] = []
        self.seq = 0

    def call(self, line: str) -> None:
        """A request of the client's: ours get the same id."""
        message = json.loads(line)
        if "method" in message and "id" in message:
            call_id, _ = self.connection.call(message["method"], b"{}")
            assert call_id == message["id"]

    def receive(self, line: str) -> None:
        """A line of the agent's."""
        for event in self.connection.receive(line.encode() + b"\n"):
            if isinstance(event, Warned):
                self.warnings.append(event.code)
            elif isinstance(event, Notified | Requested):
                assert event.params in line.encode()
                self.seq += 1
                time = "2026-12-01T00:00:00.000Z"
                self.projection.apply(Applied(self.seq, time, event.method, event.params))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recorded_conversation_is_understood_without_a_warning(path: Path) -> None:
    replay = Replay()
    for who, line in lines_of(path):
        match who:
            case "start":
                replay.connection = Connection()
            case "client":
                replay.call(line)
            case _:
                replay.receive(line)
    assert set(replay.warnings) <= EXPLAINED.get(path.stem, set())
    assert replay.seq > 10
    assert not replay.connection.pending
    kinds: set[Any] = {item["type"] for item in replay.projection.open_items()}
    assert "message" in kinds


def test_all_five_agents_have_been_recorded() -> None:
    assert {path.stem for path in RECORDINGS} == set(RECIPES)
