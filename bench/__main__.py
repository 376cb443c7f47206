"""``python -m bench``: the workloads whose figures stand in docs/performance.md.

Comparisons are made in pairs within one run, because machines are shared and drift.
"""

from __future__ import annotations

import json
from typing import Any

import click

from bench import flat_out
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


@main.command("flat-out")
@click.option("--events", default=300_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--subscribers", default=[1, 10], multiple=True, show_default=True)
@as_json
def flat_out_command(events: int, rounds: int, subscribers: tuple[int, ...], is_json: bool) -> None:
    """One session as fast as the pipe gives it, against uvicorn and sse-starlette alone."""
    for count in subscribers:
        show(flat_out.measure(events, count, rounds), is_json)


if __name__ == "__main__":
    main()
