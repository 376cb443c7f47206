"""``python -m bench``: the workloads whose figures stand in docs/performance.md.

Comparisons are made in pairs within one run, because machines are shared and drift.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

import click

from bench import (
    commit,
    flat_out,
    hot_path,
    idle_subscribers,
    kills,
    large,
    latency,
    slow_readers,
    stored,
)
from bench.figures import lines
from bench.machine import description

as_json = click.option("--json", "is_json", is_flag=True, help="One line of JSON.")


def show(figures: dict[str, Any], is_json: bool) -> None:
    """Print what a workload measured, with the machine it was measured on."""
    figures["machine"] = description()
    click.echo(json.dumps(figures) if is_json else "\n".join(lines(figures)))


@click.group()
def main() -> None:
    """Run a workload."""
    # So that what was started is ended and removed, whoever asks us to stop.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


@main.command("flat-out")
@click.option("--events", default=300_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--subscribers", default=[1, 10], multiple=True, show_default=True)
@as_json
def flat_out_command(events: int, rounds: int, subscribers: tuple[int, ...], is_json: bool) -> None:
    """One session as fast as the pipe gives it, against uvicorn and sse-starlette alone."""
    for count in subscribers:
        show(flat_out.measure(events, count, rounds), is_json)


@main.command("hot-path")
@click.option("--lines", default=100_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@as_json
def hot_path_command(lines: int, rounds: int, is_json: bool) -> None:
    """Processor time of one line between the pipe and the socket."""
    show(asyncio.run(hot_path.measure(lines, rounds)), is_json)


@main.command("latency")
@click.option("--updates", default=2000, show_default=True)
@click.option("--rate", default=200.0, show_default=True)
@click.option("--idle", default=[0, 100], multiple=True, show_default=True)
@as_json
def latency_command(updates: int, rate: float, idle: tuple[int, ...], is_json: bool) -> None:
    """From the agent's write to a subscriber's read, idle sessions beside it."""
    for count in idle:
        show(latency.measure(updates, rate, count), is_json)


@main.command("idle-subscribers")
@click.option("--subscribers", default=1000, show_default=True)
@as_json
def idle_subscribers_command(subscribers: int, is_json: bool) -> None:
    """What subscribers cost that hear nothing."""
    show(idle_subscribers.measure(subscribers), is_json)


@main.command("slow-readers")
@click.option("--events", default=300_000, show_default=True)
@click.option("--good", default=10, show_default=True)
@click.option("--slow", default=20, show_default=True)
@click.option("--frozen", default=50, show_default=True)
@as_json
def slow_readers_command(events: int, good: int, slow: int, frozen: int, is_json: bool) -> None:
    """What good readers lose by slow and frozen ones."""
    show(slow_readers.measure(events, good, slow, frozen), is_json)


@main.command("resume")
@click.option("--entries", default=1_000_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@as_json
def resume_command(entries: int, rounds: int, is_json: bool) -> None:
    """The replay of a long session."""
    show(stored.resume(entries, rounds), is_json)


@main.command("transcript")
@click.option("--entries", default=200_000, show_default=True)
@click.option("--turns", default=2000, show_default=True)
@as_json
def transcript_command(entries: int, turns: int, is_json: bool) -> None:
    """The transcript's first page of a session of many turns."""
    show(stored.transcript(entries, turns), is_json)


@main.command("large-session")
@click.option("--entries", default=1_000_000, show_default=True)
@click.option("--turns", default=1000, show_default=True)
@as_json
def large_session_command(entries: int, turns: int, is_json: bool) -> None:
    """Reads of a session of many entries, and starts that hold it."""
    show(large.session(entries, turns), is_json)


@main.command("recovery")
@click.option("--updates", default=300_000, show_default=True)
@click.option("--size", default=86, show_default=True, help="Bytes of text each.")
@as_json
def recovery_command(updates: int, size: int, is_json: bool) -> None:
    """The start after a kill in a long turn."""
    show(large.recovery(updates, size), is_json)


@main.command("many-sessions")
@click.option("--sessions", default=10_000, show_default=True)
@click.option("--damaged/--no-damaged", default=True, help="Make the tables again in the end.")
@as_json
def many_sessions_command(sessions: int, damaged: bool, is_json: bool) -> None:
    """Starts, lists and searches beside many old sessions."""
    show(large.sessions(sessions, damaged), is_json)


@main.command("commit")
@click.option("--seconds", default=10.0, show_default=True)
@click.option("--rate", default=5000, show_default=True)
@click.option("--sessions", default=100, show_default=True)
@as_json
def commit_command(seconds: float, rate: int, sessions: int, is_json: bool) -> None:
    """What a one-entry commit costs the loop."""
    show(commit.measure(seconds, rate, sessions), is_json)


@main.command("kill-bridge")
@click.option("--rounds", default=200, show_default=True)
@as_json
def kill_bridge_command(rounds: int, is_json: bool) -> None:
    """SIGKILL of the bridge in the middle of turns."""
    show(kills.kill_bridge(rounds), is_json)


@main.command("kill-agent")
@click.option("--rounds", default=500, show_default=True)
@as_json
def kill_agent_command(rounds: int, is_json: bool) -> None:
    """SIGKILL of the agent in the middle of turns."""
    show(kills.kill_agent(rounds), is_json)


if __name__ == "__main__":
    main()
