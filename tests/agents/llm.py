"""A small stand-in for a hosted LLM, so that real agents run without a network.

Speaks just enough of four streaming APIs for the agents of ``real.py``: chat completions and
Responses (OpenAI), messages (Anthropic), generateContent (Gemini). Listens on 127.0.0.1 alone.

What it does depends on the last thing the user said: ``PLEASE-RUN command`` calls the agent's
shell tool, ``PLEASE-COUNT n ms`` talks slowly, anything else gets a short answer; so does
whatever follows the result of a tool. Standard library only.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

ANSWER = ("This is ", "the stand-in ", "speaking.")
AFTER_TOOL = ("The tool ", "has run.")

_numbers = itertools.count(1)
_WORDS = re.compile(r"PLEASE-(RUN|COUNT)\s+([^\n<]*)")
_SHELLS = re.compile(r"(?:^|_|\b)(?:shell|bash|exec|terminal|run_shell)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, whatever its API: the last user text, the tools, whether a tool answered last."""

    text: str
    tools: dict[str, Json]
    is_after_tool: bool
    is_stream: bool = True
    form: Json | None = None
    """The schema of a structured answer that is asked for instead of text."""


@dataclass(frozen=True, slots=True)
class Say:
    """Text in pieces, so many seconds apart."""

    pieces: tuple[str, ...]
    gap_s: float = 0.0

    def __iter__(self) -> Iterator[str]:
        for piece in self.pieces:
            time.sleep(self.gap_s)
            yield piece


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call."""

    name: str
    arguments: Json


def decide(asked: Asked) -> Say | Call:
    """What the model does."""
    if asked.form is not None:
        return Say((json.dumps(_filled(asked.form)),))
    if asked.is_after_tool:
        return Say(AFTER_TOOL)
    found = _WORDS.search(asked.text)
    if found is None:
        return Say(ANSWER)
    word, rest = found[1], found[2].strip()
    if word == "COUNT":
        count, gap_ms = (int(each) for each in rest.split()[:2])
        return Say(tuple(f"number {i} " for i in range(count)), gap_ms / 1000)
    for name, schema in asked.tools.items():
        if _SHELLS.search(name):
            return Call(name, _arguments(schema, rest))
    return Say((f"I have no shell among {sorted(asked.tools)}.",))


def _filled(form: Json) -> Any:
    """Some value that fits a schema."""
    if form.get("enum"):
        return form["enum"][0]
    match str(form.get("type", "string")).lower():
        case "object":
            return {name: _filled(each) for name, each in form.get("properties", {}).items()}
        case "array":
            return []
        case "integer" | "number":
            return 1
        case "boolean":
            return False
        case _:
            return "a test"


def _arguments(schema: Json, command: str) -> Json:
    """What a shell tool's schema asks for."""
    given: Json = {}
    for name, each in (schema.get("properties") or {}).items():
        kind = each.get("type")
        kind = next((k for k in kind if k != "null"), "string") if isinstance(kind, list) else kind
        if name in ("command", "cmd", "script"):
            is_list = kind == "array"
            given[name] = ["bash", "-lc", command] if is_list else command
        elif name in (schema.get("required") or []):
            given[name] = {"integer": 1000, "number": 1000, "boolean": False}.get(kind, "a test")
    return given


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def read_chat(body: Json) -> Asked:
    """OpenAI chat completions."""
    text, is_after_tool = "", False
    for message in body.get("messages") or []:
        if message["role"] == "user":
            said = _plain(message.get("content"))
            if not is_after_tool or _WORDS.search(said):
                text, is_after_tool = (said if _WORDS.search(said) else text + said), False
        elif message["role"] == "tool":
            is_after_tool = True
        elif message["role"] == "assistant" and not message.get("tool_calls"):
            text, is_after_tool = "", False
    tools = {
        tool["function"]["name"]: tool["function"].get("parameters") or {}
        for tool in body.get("tools") or []
        if "function" in tool
    }
    return Asked(text, tools, is_after_tool, bool(body.get("stream")))


def read_responses(body: Json) -> Asked:
    """OpenAI Responses."""
    text, is_after_tool = "", False
    given = body.get("input")
    for item in given if isinstance(given, list) else []:
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") == "user":
            text, is_after_tool = _plain(item.get("content")), False
        elif kind.endswith("_output"):
            is_after_tool = True
    tools = {
        tool["name"]: tool.get("parameters") or {}
        for tool in body.get("tools") or []
        if tool.get("type") == "function"
    }
    return Asked(text, tools, is_after_tool)


def read_messages(body: Json) -> Asked:
    """Anthropic messages."""
    text, is_after_tool = "", False
    for message in body.get("messages") or []:
        if message["role"] != "user":
            continue
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        said = _plain(content)
        has_result = any(part.get("type") == "tool_result" for part in parts)
        is_after_tool = has_result and not _WORDS.search(said)
        text = said if not has_result else text
    tools = {tool["name"]: tool.get("input_schema") or {} for tool in body.get("tools") or []}
    return Asked(text, tools, is_after_tool, bool(body.get("stream")))


def read_gemini(body: Json) -> Asked:
    """Gemini generateContent."""
    text, is_after_tool = "", False
    for content in body.get("contents") or []:
        if content.get("role", "user") != "user":
            continue
        parts = content.get("parts") or []
        if any("functionResponse" in part for part in parts):
            is_after_tool = True
        elif said := _plain(parts).strip():
            text, is_after_tool = said, False
    tools = {
        each["name"]: each.get("parametersJsonSchema") or each.get("parameters") or {}
        for tool in body.get("tools") or []
        for each in tool.get("functionDeclarations") or []
    }
    wanted = body.get("generationConfig") or {}
    form = wanted.get("responseJsonSchema") or wanted.get("responseSchema")
    return Asked(text, tools, is_after_tool, form=form)


def write_chat(did: Say | Call, model: str) -> Iterator[tuple[str | None, Any]]:
    """Events of a chat completion."""
    head = {"id": _id("chat"), "object": "chat.completion.chunk", "created": 1, "model": model}

    def choice(delta: Json, finish: str | None = None) -> tuple[None, Json]:
        return None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield choice({"role": "assistant", "content": ""})
    if isinstance(did, Say):
        for piece in did:
            yield choice({"content": piece})
        yield choice({}, "stop")
    else:
        function = {"name": did.name, "arguments": json.dumps(did.arguments)}
        call = {"index": 0, "id": _id("call"), "type": "function", "function": function}
        yield choice({"tool_calls": [call]})
        yield choice({}, "tool_calls")
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    yield None, {**head, "choices": [], "usage": usage}
    yield None, "[DONE]"


def write_responses(did: Say | Call, model: str) -> Iterator[tuple[str | None, Any]]:
    """Events of a Responses stream."""
    numbers = itertools.count()
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    }
    response = {"id": _id("resp"), "object": "response", "created_at": 1, "model": model}

    def event(kind: str, **members: Any) -> tuple[str, Json]:
        return kind, {"type": kind, "sequence_number": next(numbers), **members}

    yield event("response.created", response={**response, "status": "in_progress", "output": []})
    if isinstance(did, Say):
        item: Json = {"id": _id("msg"), "type": "message", "role": "assistant", "content": []}
        yield event("response.output_item.added", output_index=0, item=item)
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        empty = {"type": "output_text", "text": "", "annotations": []}
        yield event("response.content_part.added", **place, part=empty)
        for piece in did:
            yield event("response.output_text.delta", **place, delta=piece)
        part = {**empty, "text": "".join(did.pieces)}
        yield event("response.output_text.done", **place, text=part["text"])
        item = {**item, "status": "completed", "content": [part]}
    else:
        item = {
            "id": _id("fc"),
            "type": "function_call",
            "status": "completed",
            "call_id": _id("call"),
            "name": did.name,
            "arguments": json.dumps(did.arguments),
        }
        yield event("response.output_item.added", output_index=0, item={**item, "arguments": ""})
    yield event("response.output_item.done", output_index=0, item=item)
    completed = {**response, "status": "completed", "output": [item], "usage": usage}
    yield event("response.completed", response=completed)


def write_messages(did: Say | Call, model: str) -> Iterator[tuple[str | None, Any]]:
    """Events of an Anthropic message."""

    def event(kind: str, **members: Any) -> tuple[str, Json]:
        return kind, {"type": kind, **members}

    message: Json = {
        "id": _id("msg"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    yield event("message_start", message=message)
    if isinstance(did, Say):
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for piece in did:
            delta = {"type": "text_delta", "text": piece}
            yield event("content_block_delta", index=0, delta=delta)
    else:
        block = {"type": "tool_use", "id": _id("toolu"), "name": did.name, "input": {}}
        yield event("content_block_start", index=0, content_block=block)
        delta = {"type": "input_json_delta", "partial_json": json.dumps(did.arguments)}
        yield event("content_block_delta", index=0, delta=delta)
    yield event("content_block_stop", index=0)
    stop = "end_turn" if isinstance(did, Say) else "tool_use"
    yield event(
        "message_delta",
        delta={"stop_reason": stop, "stop_sequence": None},
        usage={"output_tokens": 1},
    )
    yield event("message_stop")


def write_gemini(did: Say | Call, model: str) -> Iterator[tuple[str | None, Any]]:
    """Chunks of a Gemini stream."""
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}

    def chunk(part: Json, finish: str | None = None) -> tuple[None, Json]:
        candidate: Json = {"index": 0, "content": {"role": "model", "parts": [part]}}
        if finish:
            candidate["finishReason"] = finish
        return None, {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}

    if isinstance(did, Say):
        for piece in did:
            yield chunk({"text": piece})
    else:
        call = {"id": _id("fc"), "name": did.name, "args": did.arguments}
        yield chunk({"functionCall": call, "thoughtSignature": "c3RhbmQtaW4="})
    yield chunk({"text": ""}, "STOP")


def _id(prefix: str) -> str:
    return f"{prefix}_{next(_numbers):08d}"


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
        is_stream = asked.is_stream and not path.endswith(":generateContent")
        if is_stream:
            self._stream(write(did, model))
        else:
            self._json(_whole(path, did, model))

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

    def _json(self, value: Json) -> None:
        raw = json.dumps(value).encode()
        self.send_response(200)
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


def _whole(path: str, did: Say | Call, model: str) -> Json:
    """An answer that is not streamed: titles and summaries that agents ask for by the way."""
    text = "".join(did.pieces) if isinstance(did, Say) else "a title"
    if path.endswith("/messages"):
        content = [{"type": "text", "text": text}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        return {
            "id": _id("msg"),
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": content,
            "stop_reason": "end_turn",
            "usage": usage,
        }
    if path.endswith("enerateContent"):
        said = {"role": "model", "parts": [{"text": text}]}
        return {"candidates": [{"index": 0, "content": said, "finishReason": "STOP"}]}
    message: Json = {"role": "assistant", "content": text}
    finish = "stop"
    if isinstance(did, Call):
        function = {"name": did.name, "arguments": json.dumps(did.arguments)}
        message["tool_calls"] = [{"id": _id("call"), "type": "function", "function": function}]
        finish = "tool_calls"
    return {
        "id": _id("chat"),
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


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
