"""What callers hand through to agents has ACP's shapes, or is said not to."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.protocol.handed import block_misfit, completed_server, is_command

ODD_NOTES: tuple[Any, ...] = (
    5,
    {"audience": "user"},
    {"audience": ["nobody"]},
    {"audience": [{}]},
    {"priority": "x"},
    {"priority": True},
    {"lastModified": 3},
    {"_meta": 5},
)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": ""},
        {"type": "text", "text": "x", "unknown": {"kept": True}},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///x", "name": "x"},
        {"type": "resource", "resource": {"uri": "x", "text": "y"}},
        {"type": "resource", "resource": {"uri": "x", "blob": "y", "mimeType": None}},
        {"type": "text", "text": "x", "annotations": None, "_meta": {"a": 1}},
        {"type": "text", "text": "x", "annotations": {"audience": ["user"], "priority": 0.5}},
        {"type": "resource_link", "uri": "x", "name": "x", "size": 5, "title": "t"},
    ],
)
def test_a_block_of_its_shape_fits(block: dict[str, Any]) -> None:
    assert block_misfit(block) is None


@pytest.mark.parametrize(
    ("block", "word"),
    [
        ({"type": "text"}, "text"),
        ({"type": "text", "text": 1}, "text"),
        ({"type": "image", "data": "x"}, "mimeType"),
        ({"type": "resource_link", "name": "x"}, "uri"),
        ({"type": "resource"}, "uri"),
        ({"type": "resource", "resource": []}, "uri"),
        ({"type": "resource", "resource": {"uri": "x"}}, "blob"),
        ({"type": "resource", "resource": {"uri": "x", "text": "", "mimeType": 5}}, "mimeType"),
        *(({"type": "text", "text": "x", "annotations": odd}, "annotations") for odd in ODD_NOTES),
        *(({"type": "text", "text": "x", "_meta": odd}, "_meta") for odd in (5, [1], "x")),
        ({"type": "image", "data": "", "mimeType": "image/png", "uri": 5}, "uri"),
        *(
            ({"type": "resource_link", "uri": "x", "name": "x", name: odd}, name)
            for name, odd in (("size", "big"), ("size", 1.5), ("size", True), ("title", {}))
        ),
    ],
)
def test_a_block_without_what_it_needs_is_named(block: dict[str, Any], word: str) -> None:
    assert word in (block_misfit(block) or "")


def test_a_server_gets_the_lists_that_may_be_left_out() -> None:
    assert completed_server({"name": "x", "command": "/x"}) == {
        "args": [],
        "env": [],
        "name": "x",
        "command": "/x",
    }
    web = {"name": "x", "type": "http", "url": "https://x", "more": 1}
    assert completed_server(web) == {"headers": [], **web}


@pytest.mark.parametrize(
    "server",
    [
        {},
        {"name": "x"},
        {"name": "x", "command": 1},
        {"name": "x", "command": "/x", "args": "a"},
        {"name": "x", "command": "/x", "env": [{"name": "A"}]},
        {"name": "x", "command": "/x", "env": {"A": "b"}},
        {"name": "x", "type": "http"},
        {"name": "x", "type": "ws", "url": "x"},
        {"name": "x", "type": "sse", "url": "x", "headers": ["a: b"]},
        {"name": "x", "type": "http", "url": "x", "_meta": 5},
        {"name": "x", "command": "/x", "env": [{"name": "A", "value": "b", "_meta": 1}]},
    ],
)
def test_a_misshapen_server_is_refused(server: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="MCP server"):
        completed_server(server)


def test_without_a_type_a_server_is_a_command() -> None:
    assert is_command({"name": "x"}) and is_command({"type": "http", "command": "/x"})
    assert not is_command({"type": "sse", "url": "x"})
