"""The command ``cursor-bridge``."""

from __future__ import annotations

import click

from bridge.app import VERSION
from bridge.cli.doctor import doctor
from bridge.cli.serve import serve
from bridge.cli.tokens import token
from bridge.cli.tools import demo_agent, openapi


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="cursor-bridge")
def main() -> None:
    """Coding agents that speak ACP, behind HTTP and Server-Sent Events."""


main.add_command(serve)
main.add_command(doctor)
main.add_command(token)
main.add_command(demo_agent)
main.add_command(openapi)

if __name__ == "__main__":
    main()
