"""The bare loop: what one writes first with uvicorn and sse-starlette, and nothing else.

Reads the agent's stdout line by line, puts each line into a queue for each subscriber, and yields
one event a line. Stores nothing, parses nothing, resumes nothing: the price of the stack alone,
under the bridge's own server settings (h11, uvloop, no access log).
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bench.serving import FLOOD

LAST_LINE = b'{"jsonrpc":"2.0","id":'


class Loop:
    """One agent at a time, and whoever subscribes to it."""

    def __init__(self) -> None:
        self._queues: list[asyncio.Queue[bytes | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def events(self, request: Request) -> Response:
        """Subscribe."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._queues.append(queue)
        return EventSourceResponse(self._content(queue), sep="\n")

    async def prompt(self, request: Request) -> Response:
        """Send everything that the agent answers to all subscribers."""
        task = asyncio.create_task(self._run((await request.json())["prompt"]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return JSONResponse({})

    async def _content(self, queue: asyncio.Queue[bytes | None]) -> AsyncIterator[Any]:
        number = 0
        yield ServerSentEvent(data="{}", event="hello")
        while (line := await queue.get()) is not None:
            number += 1
            text = line.decode().rstrip("\n")
            yield ServerSentEvent(data=text, event="session/update", id=str(number))
        yield ServerSentEvent(data="{}", event="end", id=str(number + 1))

    async def _run(self, prompt: str) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*FLOOD, stdin=pipe, stdout=pipe)
        assert process.stdin is not None and process.stdout is not None
        blocks = [{"type": "text", "text": prompt}]
        message = {"id": 1, "method": "session/prompt", "params": {"prompt": blocks}}
        process.stdin.write(json.dumps(message).encode() + b"\n")
        async for line in process.stdout:
            if line.startswith(LAST_LINE):
                break
            for queue in self._queues:
                queue.put_nowait(line)
        for queue in self._queues:
            queue.put_nowait(None)
        process.stdin.close()
        await process.wait()


def main() -> None:
    """Serve on a port of the system's choice, and say which."""
    loop = Loop()
    routes = [Route("/events", loop.events), Route("/prompt", loop.prompt, methods=["POST"])]
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(
        Starlette(routes=routes), http="h11", loop="uvloop", access_log=False, log_level="error"
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
