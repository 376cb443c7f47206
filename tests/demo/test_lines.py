"""What comes in broken, and what goes out."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.demo import wire
from tests.demo.peer import Peer, Refused

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello", -32700),
        (b"\xff\xfe", -32700),
        (b'{"jsonrpc":"2.0","id":1', -32700),
        (b"[" * 100_000, -32700),
        (b"9" * 5000, -32700),
        (b"[]", -32600),
        (b"null", -32600),
        (b'{"id":{},"method":"initialize"}', -32600),
        (b'{"id":true,"method":"initialize"}', -32600),
        (b'{"id":1,"method":7}', -32600),
    ],
)
async def test_a_line_that_is_no_message_is_an_error(peer: Peer, line: bytes, code: int) -> None:
    peer.dialogue.feed(line + b"\n")
    assert peer.messages[-1]["error"]["code"] == code
    assert await peer.call("initialize") is not None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"  \r",
        b'{"jsonrpc":"2.0"}',
        b'{"id":0,"result":{}}',
        b'{"id":"0","error":7}',
        b'{"id":null,"method":"initialize"}',
        b'{"method":"session/cancel"}',
        b'{"method":"session/cancel","params":{"sessionId":[]}}',
        b'{"method":"session/cancel","params":{"sessionId":"unknown"}}',
        b'{"method":"$/unknown","params":[]}',
    ],
)
async def test_what_needs_no_answer_is_passed_over(peer: Peer, line: bytes) -> None:
    peer.dialogue.feed(line + b"\n")
    assert peer.messages == []
    assert await peer.call("initialize") is not None


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("session/resume", {}, -32601),
        ("fs/read_text_file", {}, -32601),
        ("session/new", {}, -32602),
        ("session/new", {"cwd": 7}, -32602),
        ("session/prompt", {}, -32602),
        ("session/load", {}, -32602),
    ],
)
async def test_a_request_that_does_not_fit_is_refused(
    peer: Peer, method: str, params: dict[str, Any], code: int
) -> None:
    with pytest.raises(Refused) as caught:
        await peer.call(method, **params)
    assert caught.value.error["code"] == code


@pytest.mark.parametrize("prompt", [None, "text", [1], {}])
async def test_a_prompt_is_a_list_of_blocks(peer: Peer, prompt: Any) -> None:
    session_id = await peer.open()
    with pytest.raises(Refused) as caught:
        await peer.call("session/prompt", sessionId=session_id, prompt=prompt)
    assert caught.value.error["code"] == -32602


async def test_links_pictures_and_unknown_blocks_are_named(peer: Peer) -> None:
    session_id = await peer.open()
    blocks = [
        {"type": "text", "text": "Look"},
        {"type": "resource_link", "name": "a.py", "uri": "file:///a.py"},
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"type": "hologram"},
    ]
    await peer.call("session/prompt", sessionId=session_id, prompt=blocks)
    for shown in ("Look", "[a.py](file:///a.py)", "a picture, 3 bytes", "something I cannot"):
        assert shown in peer.text()


async def test_params_that_are_no_object_are_refused(peer: Peer) -> None:
    peer.send({"id": 5, "method": "initialize", "params": [1]})
    assert peer.messages[-1]["error"]["code"] == -32602


async def test_half_an_emoji_in_a_prompt_is_no_trouble(peer: Peer) -> None:
    session_id = await peer.open()
    assert await peer.prompt(session_id, "half \ud83d") == {"stopReason": "end_turn"}
    other = Peer(peer.home)
    await other.call("session/load", sessionId=session_id)
    await other.settled()
    assert "half \ud83d" in str(other.updates("user_message_chunk")[0]["content"]["text"])
    await other.dialogue.close()


async def test_a_line_over_the_limit_is_skipped_to_its_end(peer: Peer) -> None:
    piece = b"x" * (8 * 1024 * 1024)
    for _ in range(9):
        peer.dialogue.feed(piece)
    peer.dialogue.feed(b"\n")
    assert peer.messages[-1]["error"]["message"] == "Line too long"
    assert await peer.call("initialize") is not None


async def test_a_last_line_needs_no_end(peer: Peer) -> None:
    peer.dialogue.feed(b'{"jsonrpc":"2.0","id":1,"method":"initialize"}')
    assert peer.messages == []
    await peer.dialogue.close()
    assert peer.messages[-1]["id"] == 1


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=5))
def test_any_cut_of_the_bytes_gives_the_same_lines(data: bytes, cuts: list[int]) -> None:
    whole, cut = wire.LineSplitter(50), wire.LineSplitter(50)
    expected = [*whole.feed(data), *whole.end()]
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert [line for piece in pieces for line in cut.feed(piece)] + [*cut.end()] == expected


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
    max_examples=50,
)
@given(
    message=st.dictionaries(
        st.sampled_from(["id", "method", "params", "result", "error"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=5)
        | st.sampled_from(["session/prompt", "session/load", "initialize", "session/list"])
        | st.dictionaries(st.sampled_from(["sessionId", "cwd", "prompt"]), st.text(max_size=3)),
        max_size=5,
    )
)
async def test_no_message_breaks_the_conversation(peer: Peer, message: dict[str, Any]) -> None:
    peer.dialogue.feed(json.dumps(message).encode() + b"\n")
    peer.messages.clear()
    assert await peer.call("cursor/list_available_models") is not None
