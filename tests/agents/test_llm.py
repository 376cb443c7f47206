"""The stand-in for an LLM understands each API it is asked by, and does what its words say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.agents.llm import StandIn

Json = dict[str, Any]

WRITER = {
    "type": "object",
    "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["file_path", "content"],
}
SHELL = {
    "type": "object",
    "properties": {"command": {"type": "array"}, "why": {"type": ["null", "string"]}},
    "required": ["command", "why"],
}


def chat(text: str, tools: dict[str, Json]) -> tuple[str, Json]:
    """OpenAI chat completions."""
    functions = [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in tools.items()
    ]
    messages = [{"role": "user", "content": text}]
    return "/v1/chat/completions", {"messages": messages, "tools": functions, "stream": True}


def responses(text: str, tools: dict[str, Json]) -> tuple[str, Json]:
    """OpenAI Responses."""
    functions = [
        {"type": "function", "name": name, "parameters": schema} for name, schema in tools.items()
    ]
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "content": content}
    return "/v1/responses", {"input": [item], "tools": functions, "stream": True}


def messages(text: str, tools: dict[str, Json]) -> tuple[str, Json]:
    """Anthropic messages."""
    functions = [{"name": name, "input_schema": schema} for name, schema in tools.items()]
    said = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    return "/v1/messages", {"messages": said, "tools": functions, "stream": True}


def gemini(text: str, tools: dict[str, Json]) -> tuple[str, Json]:
    """Gemini generateContent."""
    declared = [{"name": name, "parametersJsonSchema": schema} for name, schema in tools.items()]
    contents = [{"role": "user", "parts": [{"text": text}]}]
    body = {"contents": contents, "tools": [{"functionDeclarations": declared}]}
    return "/v1beta/models/stand-in:streamGenerateContent?alt=sse", body


APIS = pytest.mark.parametrize("api", [chat, responses, messages, gemini])


@pytest.fixture(name="llm", scope="module")
def stand_in() -> Iterator[httpx.Client]:
    """A stand-in for the module."""
    with StandIn() as base, httpx.Client(base_url=base, trust_env=False) as client:
        yield client


def streamed(llm: httpx.Client, asked: tuple[str, Json]) -> str:
    """The answer's events as one text, whose JSON texts are taken out of their quotes."""
    path, body = asked
    answer = llm.post(path, json=body)
    assert answer.status_code == 200
    events = re.findall(r"^data: (\{.*\})$", answer.text, re.MULTILINE)
    assert events and all(json.loads(event) for event in events)
    return "\n".join(events).replace('\\"', '"')


@APIS
def test_plain_words_get_a_short_text_in_pieces(llm: httpx.Client, api: Any) -> None:
    said = streamed(llm, api("hello", {}))
    assert [piece in said for piece in ("This is ", "the stand-in ", "speaking.")] == [True] * 3


@APIS
def test_run_calls_the_shell_with_what_its_schema_asks_for(llm: httpx.Client, api: Any) -> None:
    said = streamed(llm, api("PLEASE-RUN ls -l", {"read": WRITER, "run_shell_command": SHELL}))
    assert "run_shell_command" in said
    assert '{"command": ["bash", "-lc", "ls -l"], "why": "a test"}' in said


@APIS
def test_write_calls_the_tool_for_files(llm: httpx.Client, api: Any) -> None:
    said = streamed(llm, api("PLEASE-WRITE /tmp/a.txt", {"bash": SHELL, "write_file": WRITER}))
    assert '"write_file"' in said and '"file_path": "/tmp/a.txt"' in said


@APIS
def test_write_falls_back_to_the_shell(llm: httpx.Client, api: Any) -> None:
    said = streamed(llm, api("PLEASE-WRITE /tmp/a b", {"bash": SHELL}))
    assert "> '/tmp/a b'" in said


@APIS
def test_big_is_as_big_as_asked_for(llm: httpx.Client, api: Any) -> None:
    assert len(streamed(llm, api("PLEASE-BIG 64", {}))) > 65536


@APIS
def test_fail_is_an_http_error(llm: httpx.Client, api: Any) -> None:
    path, body = api("PLEASE-FAIL 429", {})
    answer = llm.post(path, json=body)
    assert answer.status_code == 429 and "refuses with 429" in answer.text


def test_the_last_thing_said_counts(llm: httpx.Client) -> None:
    path, body = chat("hello", {})
    body["messages"].insert(0, {"role": "user", "content": "PLEASE-FAIL 400"})
    assert "stand-in " in streamed(llm, (path, body))
