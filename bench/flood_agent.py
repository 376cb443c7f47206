"""An agent that answers a prompt with a number of updates, as fast as the pipe takes them.

The prompt is the number. Both sides of a comparison read from this very program.
"""

from __future__ import annotations

import json
import sys
from typing import Any

TEXT = "the quick brown fox jumps over the lazy dog, again and again, until the pipe is full"
PER_WRITE = 250


def line(message: dict[str, Any]) -> bytes:
    """A message as it goes over the pipe."""
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def update() -> bytes:
    """One update of about 260 bytes."""
    content = {"type": "text", "text": TEXT}
    params = {
        "sessionId": "bench-session",
        "update": {"sessionUpdate": "agent_message_chunk", "content": content},
    }
    return line({"method": "session/update", "params": params})


def main() -> None:
    """Answer until stdin ends."""
    out = sys.stdout.buffer
    one = update()
    for raw in sys.stdin.buffer:
        message = json.loads(raw)
        if "id" not in message or "method" not in message:
            continue
        result: dict[str, Any] = {}
        if message["method"] == "initialize":
            result = {"protocolVersion": 1, "agentCapabilities": {}}
        elif message["method"] == "session/new":
            result = {"sessionId": "bench-session"}
        elif message["method"] == "session/prompt":
            left = int(message["params"]["prompt"][0]["text"])
            while left > 0:
                count = min(left, PER_WRITE)
                out.write(one * count)
                left -= count
            result = {"stopReason": "end_turn"}
        out.write(line({"id": message["id"], "result": result}))
        out.flush()


if __name__ == "__main__":
    main()
