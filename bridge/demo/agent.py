"""The demo agent's process: arguments, environment, pipes and signals around one conversation.

Rules: called like Cursor's agent, ``[--model ID] acp``; other arguments are passed over. The end of
input is exit 0, SIGTERM 143 and SIGINT 130 at once, an unknown bracket id after ``--model`` 1 with
the reason on stderr (tiann/hapi#1822). Environment: ``CURSOR_DEMO_HOME`` where conversations are
kept; ``CURSOR_DEMO_PACE`` a factor on all waiting whose length the prompt does not name (``0``:
none); ``CURSOR_DEMO_LOGIN`` ``needed`` or ``refused``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from bridge.demo.client import Client
from bridge.demo.dialogue import Dialogue, Setup
from bridge.demo.options import DEFAULT_MODEL, Options
from bridge.demo.pipes import PipeOutlet, start_reading, write_whole
from bridge.demo.store import Store, home_of
from bridge.demo.turn import World
from bridge.demo.wire import RpcError

VERSION: Final = "2026.10.22-de30a9e"
_FLUSH_LIMIT_S: Final = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run on stdin and stdout; returns the exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    if "--version" in args:
        write_whole(1, f"{VERSION}\n".encode())
        return 0
    model_id = _model_in(args)
    try:
        Options(model_id)
    except RpcError:
        write_whole(2, f"Cannot use this model: {model_id}.\n".encode())
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: os._exit(128 + received))
    setup = Setup(model_id, os.environ.get("CURSOR_DEMO_LOGIN", ""))
    asyncio.run(_converse(setup, os.environ))
    return 0


async def _converse(setup: Setup, env: Mapping[str, str]) -> None:
    ended = asyncio.Event()
    outlet = PipeOutlet(1, ended.set)
    world = World(
        sleep=asyncio.sleep,
        now=time.time,
        new_id=lambda: str(uuid.uuid4()),
        write_stderr=lambda data: write_whole(2, data),
        exit_process=os._exit,
        pace=_pace(env.get("CURSOR_DEMO_PACE", "1")),
    )
    dialogue = Dialogue(Client(outlet), Store(home_of(env)), world, setup)
    start_reading(0, dialogue.feed, ended.set)
    await ended.wait()
    await dialogue.close()
    # A client that has closed our stdin may no longer read: then there is no end to wait for.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(outlet.flush(), _FLUSH_LIMIT_S)


def _model_in(args: Sequence[str]) -> str:
    """The first model; names of the command line's own, ``auto`` apart, leave the default."""
    for name, value in itertools.pairwise(args):
        if name == "--model":
            return "default[]" if value == "auto" else value if "[" in value else DEFAULT_MODEL
    return DEFAULT_MODEL


def _pace(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 100.0)
    except ValueError:
        return 1.0


if __name__ == "__main__":
    raise SystemExit(main())
