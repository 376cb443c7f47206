"""The bare loop: what one writes first with uvicorn and sse-starlette.

Reads the agent's stdout line by line, puts each line into a queue for each subscriber, and yields
one event a line. Stores nothing, parses nothing, resumes nothing: the price of the stack alone.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

queues: list[asyncio.Queue[str | None]] = []


async def events(request: Request) -> Response:
    """Subscribe."""
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    queues.append(queue)

    async def content() -> AsyncIterator[dict[str, Any]]:
        number = 0
        yield {"event": "hello", "data": "{}"}
        while (text := await queue.get()) is not None:
            number += 1
            yield {"id": str(number), "event": "session/update", "data": text}

    return EventSourceResponse(content(), sep="\n")


async def prompt(request: Request) -> Response:
    """Flood all subscribers with that many lines of the agent."""
    count = int((await request.json())["prompt"])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.flood_agent",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    blocks = [{"type": "text", "text": str(count)}]
    message = {"id": 1, "method": "session/prompt", "params": {"prompt": blocks}}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    while line := await process.stdout.readline():
        text = line.decode().rstrip("\n")
        for queue in queues:
            queue.put_nowait(text)
        if '"id":1' in text[:24]:
            break
        await asyncio.sleep(0)
    for queue in queues:
        queue.put_nowait(None)
    queues.clear()
    process.stdin.close()
    await process.wait()
    return JSONResponse({})


app = Starlette(routes=[Route("/events", events), Route("/prompt", prompt, methods=["POST"])])

if __name__ == "__main__":
    uvicorn.run(
        app, port=int(sys.argv[1]), http="h11", loop="uvloop", access_log=False, log_level="error"
    )
