"""A small stand-in for a hosted LLM, so that real agents run without a network.

Speaks just enough of four APIs (``dialects.py``) for the agents of ``real.py``; the words that
tell it what to do are those of ``model.py``. Listens on 127.0.0.1 alone. ``StandIn`` serves for as
long as a block lasts; ``python -m tests.agents.llm`` prints its address and serves until it is
ended. Standard library only.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.agents.dialects import (
    read_chat,
    read_gemini,
    read_messages,
    read_responses,
    refusal,
    whole,
    write_chat,
    write_gemini,
    write_messages,
    write_responses,
)
from tests.agents.model import Json, Refuse, decide


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        del format, args

    def do_GET(self) -> None:
        models = [{"id": "stand-in", "object": "model", "name": "models/stand-in"}]
        self._json({"object": "list", "data": models, "models": models})

    def do_POST(self) -> None:
        path = self.path.split("?")[0]
        body = json.loads(self._body() or b"{}")
        model = str(body.get("model") or "stand-in")
        if path.endswith("/chat/completions"):
            asked, write = read_chat(body), write_chat
        elif path.endswith("/responses"):
            asked, write = read_responses(body), write_responses
        elif path.endswith("/messages"):
            asked, write = read_messages(body), write_messages
        elif path.endswith("enerateContent"):
            asked, write = read_gemini(body), write_gemini
        else:
            self._json({"totalTokens": 1, "input_tokens": 1})
            return
        did = decide(asked)
        if isinstance(did, Refuse):
            self._json(refusal(did.status), did.status)
            return
        is_stream = asked.is_stream and not path.endswith(":generateContent")
        if is_stream:
            self._stream(write(did, model))
        else:
            self._json(whole(path, did, model))

    def _stream(self, events: Iterator[tuple[str | None, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for kind, data in events:
                text = data if isinstance(data, str) else json.dumps(data)
                frame = (f"event: {kind}\n" if kind else "") + f"data: {text}\n\n"
                raw = frame.encode()
                self.wfile.write(b"%x\r\n%b\r\n" % (len(raw), raw))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _json(self, value: Json, status: int = 200) -> None:
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)


class StandIn:
    """The server, in a thread of its own for as long as the block lasts."""

    def __enter__(self) -> str:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def main() -> None:
    """Print the address and serve."""
    with StandIn() as base:
        sys.stdout.write(base + "\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
