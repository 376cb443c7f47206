"""``python -m bench``: workloads whose figures stand in docs/performance.md.

Comparisons are made in pairs within one run, because machines are shared and drift.
"""

from __future__ import annotations

import json

import click

from bench import flat_out


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Run a workload; without one, `flat-out`."""
    if context.invoked_subcommand is None:
        context.invoke(flat_out_command)


@main.command("flat-out")
@click.option("--events", default=30_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--subscribers", default=[1, 10], multiple=True, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def flat_out_command(events: int, rounds: int, subscribers: tuple[int, ...], as_json: bool) -> None:
    """One session as fast as the pipe gives it, against uvicorn and sse-starlette alone."""
    for count in subscribers:
        figures = flat_out.measure(events, count, rounds)
        if as_json:
            click.echo(json.dumps(figures))
            continue
        click.echo(
            f"{count:>3} subscribers: bridge {figures['bridge_events_per_s']:,} events/s "
            f"({figures['bridge_mb_per_s']} MB/s in all), bare loop "
            f"{figures['bare_events_per_s']:,}; ratio {figures['ratio_min']} / "
            f"{figures['ratio_median']} / {figures['ratio_max']} (min/median/max)"
        )


if __name__ == "__main__":
    main()
