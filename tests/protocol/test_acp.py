"""What the bridge sends to agents, and the little it reads of what they send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.protocol import acp
from bridge.protocol.acp import UpdatePeek, peek_session_id, peek_update

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SURROGATES = st.text(st.characters(categories=["Cs", "Lu"]))
DEEP = b"[" * 100_000


def deep_list() -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


# -- what we send ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (acp.authenticate("cursor_login"), {"methodId": "cursor_login"}),
        (acp.new_session("/w"), {"cwd": "/w", "mcpServers": []}),
        (
            acp.new_session("/w", [{"name": "a"}], ["/b"], {"c": 1}),
            {
                "cwd": "/w",
                "mcpServers": [{"name": "a"}],
                "additionalDirectories": ["/b"],
                "_meta": {"c": 1},
            },
        ),
        (acp.load_session("s", "/w"), {"sessionId": "s", "cwd": "/w", "mcpServers": []}),
        (acp.list_sessions(), {}),
        (acp.list_sessions("/w", "next"), {"cwd": "/w", "cursor": "next"}),
        (
            acp.prompt("s", [{"type": "text", "text": "hi"}], {"a": 1}),
            {"sessionId": "s", "prompt": [{"type": "text", "text": "hi"}], "_meta": {"a": 1}},
        ),
        (acp.prompt("s", []), {"sessionId": "s", "prompt": []}),
        (acp.cancel("s"), {"sessionId": "s"}),
        (acp.set_mode("s", "plan"), {"sessionId": "s", "modeId": "plan"}),
        (acp.set_model("s", "default[]"), {"sessionId": "s", "modelId": "default[]"}),
        (
            acp.set_config_option("s", "model", "default[]"),
            {"sessionId": "s", "configId": "model", "value": "default[]"},
        ),
        (
            acp.set_config_option("s", "fast", False),
            {"sessionId": "s", "configId": "fast", "value": False, "type": "boolean"},
        ),
    ],
)
def test_params_have_the_shape_of_the_schema(params: bytes, expected: dict[str, Any]) -> None:
    assert json.loads(params) == expected
    assert b"\n" not in params


def test_initialize_offers_no_files_and_no_terminal_but_forms_and_links() -> None:
    params = json.loads(acp.initialize("1.2.3"))
    assert params["protocolVersion"] == 1
    assert params["clientInfo"]["version"] == "1.2.3"
    assert params["clientCapabilities"] == {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
        "elicitation": {"form": {}, "url": {}},
    }


def test_initialize_asks_for_the_model_picker_only_when_told() -> None:
    params = json.loads(acp.initialize("1", has_model_picker=True))
    assert params["clientCapabilities"]["_meta"] == {"parameterizedModelPicker": True}


# -- what we read ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "peek"),
    [
        (
            b'{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m",'
            b'"content":{"type":"text","text":"hi","annotations":null}},"_meta":{}}',
            UpdatePeek("s", "agent_message_chunk", message_id="m", text="hi"),
        ),
        (
            b'{"update":{"content":{"text":"hi","type":"resource"}},"sessionId":"s"}',
            UpdatePeek("s"),
        ),
        (
            b'{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t",'
            b'"status":"completed","content":[{"type":"diff"}],"rawOutput":[1]}}',
            UpdatePeek("s", "tool_call_update", tool_call_id="t", status="completed"),
        ),
        (
            b'{"sessionId":"s","update":{"sessionUpdate":"x","content":{"type":"text",'
            b'"text":"a\\ud83d"}}}',
            UpdatePeek("s", "x", text="a\ud83d"),
        ),
        (
            b'{"sessionId":1,"update":{"sessionUpdate":["x"],"toolCallId":"t","status":2}}',
            UpdatePeek(tool_call_id="t"),
        ),
        (
            b'{"sessionId":"s","update":{"sessionUpdate":"x","messageId":7,'
            b'"content":{"type":"text","text":7}}}',
            UpdatePeek("s", "x"),
        ),
        (b'{"sessionId":"s","update":{"sessionUpdate":"x","content":"y"}}', UpdatePeek("s", "x")),
        (b'{"sessionId":"s","update":{"sessionUpdate":null}}', UpdatePeek("s")),
        (b'{"sessionId":"s","update":null}', UpdatePeek("s")),
        (b'{"sessionId":"s","update":[]}', UpdatePeek("s")),
        (b'{"sessionId":"s"}', UpdatePeek("s")),
        (b'{"sessionId":null,"update":{}}', UpdatePeek()),
        (b"[]", UpdatePeek()),
        (b"null", UpdatePeek()),
        (b"", UpdatePeek()),
        (b'{"sessionId":"s","update":' + DEEP, UpdatePeek()),
        (b'{"sessionId":"\xff"}', UpdatePeek()),
    ],
)
def test_a_wrong_type_is_an_absent_field(params: bytes, peek: UpdatePeek) -> None:
    assert peek_update(params) == peek
    assert peek_session_id(params) == peek.session_id


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_no_bytes_make_a_peek_raise(params: bytes) -> None:
    peek_update(params)
    peek_session_id(params)


@settings(deadline=None)
@given(JSON, JSON, JSON, JSON)
def test_no_types_make_a_peek_raise(session: Any, kind: Any, content: Any, text: Any) -> None:
    update = {"sessionUpdate": kind, "content": content, "toolCallId": "t"}
    for chunk in (update, {**update, "content": {"type": "text", "text": text}}):
        peek = peek_update(json.dumps({"sessionId": session, "update": chunk}).encode())
        assert peek.tool_call_id == "t"
        assert peek.session_id == (session if isinstance(session, str) else None)
        assert peek.kind == (kind if isinstance(kind, str) else "")
    assert peek.text == (text if isinstance(text, str) else None)


# -- JSON --------------------------------------------------------------------------------------


@settings(deadline=None)
@given(JSON)
def test_values_survive_the_round_trip_on_one_line(value: Any) -> None:
    raw = acp.dumps(value)
    assert b"\n" not in raw
    assert b"\r" not in raw
    assert json.loads(raw.decode()) == value
    assert acp.loads(raw) == value


@settings(deadline=None)
@given(SURROGATES)
def test_lone_surrogates_survive_as_escapes(text: str) -> None:
    raw = acp.dumps({text: [text]})
    raw.decode()
    # Two halves that meet are one character again.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert acp.loads(raw) == {whole: [whole]}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"NaN",
        b"1e999",
        b"-Infinity",
        b'["\\ud83d",NaN]',
        b'["\\ud83d",1e999]',
        b'["\\ud83d",1.5,}',
        b'"\\ud83d\xff"',
        b'"\xff"',
        b"9" * 5000,
        DEEP,
        b'["\\ud83d",' + DEEP,
        b"{} {}",
    ],
)
def test_what_is_no_json_is_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        acp.loads(raw)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["text", "other"]) | SURROGATES, JSON | SURROGATES),
    st.booleans(),
)
def test_leaving_members_out_changes_no_other(value: dict[str, Any], is_ascii: bool) -> None:
    raw = json.dumps(value).encode() if is_ascii else acp.dumps(value)
    rest = {name: each for name, each in acp.loads(raw).items() if name != "text"}
    assert acp.loads_but(raw, ["text"]) == rest


@pytest.mark.parametrize(
    "raw", [b'{"text":' + DEEP, b'{"a":"\\ud83d","text":' + DEEP, b'{"a":NaN}']
)
def test_leaving_members_out_of_what_is_no_json_is_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        acp.loads_but(raw, ["text"])


def test_numbers_beside_a_lone_surrogate_are_read() -> None:
    assert acp.loads(b'["\\ud83d",1.5,2]') == ["\ud83d", 1.5, 2]


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [None, {"a": (1.5, float("inf"))}],
        {"\ud83d": float("nan")},
        deep_list(),
        ["\ud83d", deep_list()],
    ],
    ids=["nan", "inside", "beside-a-surrogate", "deep", "deep-with-a-surrogate"],
)
def test_what_json_cannot_hold_is_a_value_error(value: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        acp.dumps(value)


def test_null_and_finite_numbers_are_written() -> None:
    assert acp.dumps([None, 1.5, {"a": None}]) == b'[null,1.5,{"a":null}]'
