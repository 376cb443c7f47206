"""The four streaming APIs that agents use, as far as the stand-in speaks them.

``read_…`` takes a request's body down to what was asked; ``write_…`` gives the events of a streamed
answer as pairs of a name (or None) and the data; ``whole`` is an answer in one piece. Chat
completions and Responses (OpenAI), messages (Anthropic), generateContent (Gemini). Knows neither
HTTP nor what the words mean. Standard library only.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from tests.agents.model import WORDS, Asked, Call, Json, Say

_numbers = itertools.count(1)


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
            if not is_after_tool or WORDS.search(said):
                text, is_after_tool = said, False
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
        is_after_tool = has_result and not WORDS.search(said)
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


def refusal(status: int) -> Json:
    """An error in a form that all of the APIs' clients can read."""
    error = {
        "type": "invalid_request_error",
        "code": status,
        "status": "INVALID_ARGUMENT",
        "message": f"the stand-in refuses with {status}",
    }
    return {"type": "error", "error": error}


def whole(path: str, did: Say | Call, model: str) -> Json:
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
