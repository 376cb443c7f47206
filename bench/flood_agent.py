"""An ACP agent that writes updates as fast as the pipe takes them, or at a pace.

The prompt says what: ``N`` updates at once; ``N HZ`` updates a second, each with the moment it was
written (nanoseconds of the system's monotonic clock) at the front of its text; ``N HZ SIZE`` with
texts of about that size. Both sides of a comparison read from this very program.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

TEXT = "the quick brown fox jumps over the lazy dog, again and again, until the pipe is full. "
PER_WRITE = 250
SESSION = "bench-session"


def line(message: dict[str, Any]) -> bytes:
    """A message as it goes over the pipe."""
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def update(text: str) -> bytes:
    """One chunk of the agent's text; about 260 bytes with ``TEXT``."""
    content = {"type": "text", "text": text}
    chunk = {"sessionUpdate": "agent_message_chunk", "content": content}
    return line({"method": "session/update", "params": {"sessionId": SESSION, "update": chunk}})


def flood(count: int) -> None:
    """``count`` updates without a pause."""
    out, one = sys.stdout.buffer, update(TEXT)
    while count > 0:
        out.write(one * min(count, PER_WRITE))
        count -= PER_WRITE


def paced(count: int, rate: float, size: int) -> None:
    """``count`` updates, ``rate`` a second; one that is late makes the next come sooner."""
    out, due = sys.stdout.buffer, time.monotonic()
    fill = (TEXT * (size // len(TEXT) + 1))[:size]
    for _ in range(count):
        due += 1 / rate
        if (ahead := due - time.monotonic()) > 0:
            time.sleep(ahead)
        out.write(update(f"t={time.monotonic_ns()} {fill}"))
        out.flush()


def prompted(text: str) -> dict[str, Any]:
    """Play what a prompt asks for."""
    words = text.split()
    if len(words) == 1:
        flood(int(words[0]))
    else:
        paced(int(words[0]), float(words[1]), int(words[2]) if len(words) > 2 else len(TEXT))
    return {"stopReason": "end_turn"}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of one request."""
    match method:
        case "initialize":
            return {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
        case "session/new":
            return {"sessionId": SESSION}
        case "session/prompt":
            return prompted(params["prompt"][0]["text"])
        case _:
            return {}


def main() -> None:
    """Answer until stdin ends."""
    out = sys.stdout.buffer
    for raw in sys.stdin.buffer:
        message = json.loads(raw)
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params") or {})
            out.write(line({"id": message["id"], "result": result}))
            out.flush()


if __name__ == "__main__":
    main()
