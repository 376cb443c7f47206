"""Small commands: the demo agent and the OpenAPI document."""

from __future__ import annotations

import sys

import click

from bridge.api.openapi import text
from bridge.app import VERSION


@click.command("demo-agent")
def demo_agent() -> None:
    """Speak ACP on stdin and stdout as a scripted agent in Cursor's dialect."""
    from bridge.demo.agent import main

    sys.exit(main())


@click.command("openapi")
def openapi() -> None:
    """Print the OpenAPI document."""
    click.echo(text(VERSION), nl=False)
