"""The conversation with an agent: events out of any bytes, bytes out of our own words."""

from __future__ import annotations

import itertools
import json
from typing import Any, assert_never

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.protocol.connection import (
    Connection,
    Notified,
    Received,
    Refused,
    Requested,
    Responded,
    RpcError,
    Warned,
)

LIMIT = 400
CALLS = 3
PIECES = st.sampled_from(
    [
        b'{"jsonrpc":"2.0","method":"session/update","params":{"a":"\xc3\xa4"}}\n',
        b'{"id":0,"method":"session/request_permission","params":{}}\r\n',
        b'{"id":"bridge-1","result":{"a":1}}\n',
        b'{"id":"bridge-2","error":{"code":-32000,"message":"x","data":[1]}}\n',
        b'{"id":"bridge-3","result":"\xff"}\n',
        b'{"id":"bridge-3","method":"x"}\n',
        b'{"method":"x","params":{"a":"\\ud83d"}}\n',
        b'{"id":1,"method":',
        b'"params":',
        b'"error":',
        b'{"a":"',
        b"\\ud83d",
        b"\xff",
        b"\r",
        b"\n",
        b"[",
        b"{",
        b"}",
        b'"',
        b",",
        b"Using worktree: /tmp/x\n",
        b"[" * 150 + b"\n",
        b"x" * (LIMIT + 1) + b"\n",
    ]
)
STREAMS = st.lists(st.one_of(PIECES, st.binary(max_size=6)), max_size=12).map(b"".join)


def talking() -> Connection:
    connection = Connection(max_line_bytes=LIMIT)
    for _ in range(CALLS):
        connection.call("session/prompt", b"{}")
    return connection


def events_of(reads: list[bytes]) -> list[Received]:
    connection = talking()
    events = [event for read in reads for event in connection.receive(read)]
    return events + connection.eof()


def said(line: bytes) -> list[Received]:
    """What one line says to a connection with ``bridge-1`` to ``bridge-3`` in flight."""
    return talking().receive(line + b"\n")


def warning(event: Received) -> str:
    assert isinstance(event, Warned)
    assert len(event.detail) <= 200
    assert event.detail.isprintable()
    return event.code


def message(wire: bytes) -> Any:
    assert wire.endswith(b"\n")
    assert wire.count(b"\n") == 1
    assert b"\r" not in wire
    return json.loads(wire)


# -- any bytes ---------------------------------------------------------------------------------


@settings(deadline=None)
@given(STREAMS, st.lists(st.integers(0, 10_000), max_size=8))
def test_any_cut_of_the_bytes_gives_the_same_events(data: bytes, places: list[int]) -> None:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    reads = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert events_of(reads) == events_of([data])


@settings(deadline=None)
@given(STREAMS)
def test_garbage_never_raises_and_costs_one_warning_a_line(data: bytes) -> None:
    events = events_of([data])
    assert events_of([bytes([byte]) for byte in data]) == events
    warned = [warning(event) for event in events if isinstance(event, Warned)]
    assert len(warned) <= data.count(b"\n") + 1


def raws_of(event: Received) -> list[bytes]:
    """All the raw JSON an event hands on."""
    match event:
        case Notified(_, params):
            return [params]
        case Requested(rpc_id, _, params):
            return [rpc_id, params]
        case Responded(_, result, error):
            data = error.data if error is not None else None
            return [raw for raw in (result, data) if raw is not None]
        case Refused(wire):
            return [wire.removesuffix(b"\n")]
        case Warned():
            return []
        case _:
            assert_never(event)


@settings(deadline=None)
@given(STREAMS)
def test_whatever_comes_out_is_one_line_of_json(data: bytes) -> None:
    for raw in itertools.chain.from_iterable(map(raws_of, events_of([data]))):
        assert not {10, 13} & set(raw)
        json.loads(raw.decode())


# -- what agents say ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rpc_id", [b"0", b"null", b'""', b'"x"', b"-1", b"1.50", b"1e2", b"{}", b"false"]
)
def test_presence_makes_a_request_and_its_id_goes_back_as_it_came(rpc_id: bytes) -> None:
    (event,) = said(b'{"jsonrpc":"2.0","id":%b,"method":"m","params":{"a":1}}' % rpc_id)
    assert event == Requested(rpc_id, "m", b'{"a":1}')
    assert b'"id":%b,' % rpc_id in talking().answer(rpc_id, b"{}")


def test_a_request_with_the_id_of_one_of_our_calls_is_a_request() -> None:
    connection = talking()
    line = b'{"id":"bridge-1","method":"m","result":{},"error":{}}\n'
    assert connection.receive(line) == [Requested(b'"bridge-1"', "m", b"{}")]
    assert "bridge-1" in connection.pending


@pytest.mark.parametrize(
    "params",
    [
        b"{}",
        b'{"sessionId":"of-a-subagent","update":{"sessionUpdate":"unheard_of","x":[null]}}',
        b'{ "spaces" :  1 , "dup":1,"dup":2, "n":1.0, "big":123456789012345678901234567890 }',
        b'{"a":"\\ud83d","b":"\\u00e4 \xc3\xa4 \xe2\x80\xa8 \x7f"}',
    ],
)
def test_params_pass_byte_for_byte(params: bytes) -> None:
    assert said(b'{"method":"_vendor/x","params":%b}' % params) == [Notified("_vendor/x", params)]


def test_absent_params_are_an_empty_object() -> None:
    assert said(b'{"method":"m"}') == [Notified("m", b"{}")]


def test_text_blank_lines_and_crlf_between_messages_do_no_harm() -> None:
    events = said(b'Using worktree: /w\r\n\r\n{"method":"m"}\r\n\nbye')
    assert [type(event) for event in events] == [Warned, Notified, Warned]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"Using worktree: /w", "not-a-message"),
        (b"{}", "not-a-message"),
        (b'{"error":{"code":-32700,"message":"Parse error"}}', "not-a-message"),
        (b'[{"jsonrpc":"2.0","method":"m"}]', "not-a-message"),
        (b"null", "not-a-message"),
        (b'{"id":null,"error":{"code":1,"message":"x"}}', "unknown-response"),
        (b'{"id":1,"result":{}}', "unknown-response"),
        (b'{"id":"bridge-4","result":{}}', "unknown-response"),
        (b'{"id":["bridge-1"],"result":{}}', "unknown-response"),
        (b'{"method":"m","params":{"a":' + b"[" * 100_000, "too-deep"),
        (b'{"method":"m","params":{"a":"\xff"}}', "invalid-utf8"),
        (b'{"id":"\xff","method":"m"}', "invalid-utf8"),
        (b'{"id":7,"result":"\xff"}', "invalid-utf8"),
        (b'{"method":"m","params":[]}', "params-not-an-object"),
        (b'{"method":"m","params":null}', "params-not-an-object"),
        (b'{"method":7}', "method-not-valid"),
        (b'{"method":"a\\nid: 7"}', "method-not-valid"),
        (b'{"method":"\\u2028"}', "method-not-valid"),
        (b'{"method":"\\ud83d"}', "method-not-valid"),
        (b'{"method":"%b"}' % (b"m" * 201), "method-not-valid"),
        (b'{"method":"bridge/turn_ended","params":{}}', "method-not-valid"),
    ],
)
def test_a_bad_line_is_one_warning_and_the_next_is_heard(line: bytes, code: str) -> None:
    connection = Connection()
    for _ in range(CALLS):
        connection.call("session/prompt", b"{}")
    first, second = connection.receive(line + b'\n{"method":"m"}\n')
    assert warning(first) == code
    assert second == Notified("m", b"{}")
    assert len(connection.pending) == CALLS


@pytest.mark.parametrize(
    ("line", "code", "rpc_code"),
    [
        (b'{"id":0,"method":"m","params":[1]}', "params-not-an-object", -32602),
        (b'{"id":0,"method":"m","params":"x"}', "params-not-an-object", -32602),
        (b'{"id":0,"method":null}', "method-not-valid", -32600),
        (b'{"id":0,"method":"bridge/session"}', "method-not-valid", -32600),
        (b'{"id":0,"method":"m","params":{"a":"\xff"}}', "invalid-utf8", -32700),
    ],
)
def test_a_request_that_cannot_be_passed_on_is_refused(
    line: bytes, code: str, rpc_code: int
) -> None:
    warned, refused = said(line)
    assert warning(warned) == code
    assert isinstance(refused, Refused)
    answer = message(refused.wire)
    assert answer["id"] == 0
    assert answer["error"]["code"] == rpc_code


def test_a_long_line_of_garbage_is_one_short_warning() -> None:
    connection = Connection()
    (event,) = connection.receive(b"\x1b\xff\xe2\x80\xae" * 1_000_000 + b"\n")
    assert warning(event) == "not-a-message"


def test_a_line_over_the_limit_is_one_warning_that_says_its_size() -> None:
    (event,) = said(b"x" * 5000)
    assert event == Warned("line-too-long", "a line of 5000 bytes was skipped")


# -- responses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "result"),
    [
        (b',"result":{"stopReason":"end_turn"}', b'{"stopReason":"end_turn"}'),
        (b',"result":null', b"null"),
        (b"", b"null"),
        (b',"result":{},"error":null', b"{}"),
        (b',"result":"\\ud83d"', b'"\\ud83d"'),
    ],
)
def test_a_result_ends_the_call(rest: bytes, result: bytes) -> None:
    connection = talking()
    line = b'{"id":"bridge-2"%b}\n' % rest
    assert connection.receive(line) == [Responded("bridge-2", result, None)]
    assert list(connection.pending) == ["bridge-1", "bridge-3"]
    (again,) = connection.receive(line)
    assert warning(again) == "unknown-response"


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b'{"code":-32000,"message":"m"}', RpcError(-32000, "m", None)),
        (b'{"code":400,"message":"m","data": {"a":1} }', RpcError(400, "m", b'{"a":1}')),
        (b'{"code":"E","message":["m"],"data":null}', RpcError(-32603, '["m"] (E)', b"null")),
        (b'{"code":null,"message":null}', RpcError(-32603, "", None)),
        (b'{"code":1.5}', RpcError(-32603, "(1.5)", None)),
        (b'{"code":%b}' % (b"9" * 100), RpcError(-32603, "(" + "9" * 100 + ")", None)),
        (b'{"message":"a\\ud83d"}', RpcError(-32603, "a\ufffd", None)),
        (b'"boom"', RpcError(-32603, "boom", None)),
        (b"[1,2]", RpcError(-32603, "[1,2]", None)),
        (b"false", RpcError(-32603, "false", None)),
    ],
)
def test_an_error_of_any_shape_ends_the_call_and_beats_a_result(
    raw: bytes, error: RpcError
) -> None:
    for line in (b'{"id":"bridge-1","error":%b}', b'{"result":{},"error":%b,"id":"bridge-1"}'):
        assert said(line % raw) == [Responded("bridge-1", None, error)]


def test_a_response_that_cannot_be_read_still_ends_the_call() -> None:
    connection = talking()
    warned, event = connection.receive(b'{"id":"bridge-1","result":{"a":"\xff"}}\n')
    assert warning(warned) == "invalid-utf8"
    assert isinstance(event, Responded)
    assert event.result is None
    assert event.error is not None
    assert "bridge-1" not in connection.pending


def test_an_id_spelled_with_escapes_is_the_same_id() -> None:
    assert said(b'{"id":"\\u0062ridge-1"}') == [Responded("bridge-1", b"null", None)]


def test_a_response_to_a_forgotten_call_is_a_warning() -> None:
    connection = talking()
    connection.forget("bridge-1")
    connection.forget("never-made")
    (event,) = connection.receive(b'{"id":"bridge-1","result":{}}\n')
    assert warning(event) == "unknown-response"


def test_the_end_of_the_bytes_reads_the_rest_and_leaves_the_calls_pending() -> None:
    connection = talking()
    assert connection.receive(b'{"method":"m"}') == []
    assert connection.eof() == [Notified("m", b"{}")]
    assert connection.eof() == []
    assert len(connection.pending) == CALLS


# -- what we say -------------------------------------------------------------------------------


def test_a_call_is_one_line_with_a_fresh_string_id() -> None:
    connection = Connection()
    call_id, wire = connection.call("session/new", b'{"cwd":\r\n"/w"}')
    other_id, _ = connection.call("session/prompt", b"{}")
    assert message(wire) == {
        "jsonrpc": "2.0",
        "id": call_id,
        "method": "session/new",
        "params": {"cwd": "/w"},
    }
    assert dict(connection.pending) == {call_id: "session/new", other_id: "session/prompt"}


def test_pending_cannot_be_changed_from_outside() -> None:
    pending: Any = talking().pending
    with pytest.raises(TypeError):
        pending["x"] = "y"


def test_a_notification_has_no_id() -> None:
    wire = Connection().notify("session/cancel", b'{"sessionId":"s"}')
    assert message(wire) == {
        "jsonrpc": "2.0",
        "method": "session/cancel",
        "params": {"sessionId": "s"},
    }


def test_an_answer_carries_the_result_as_it_is() -> None:
    wire = Connection().answer(b"0", b'{"outcome":\n{"outcome":"cancelled"}}')
    assert message(wire)["result"] == {"outcome": {"outcome": "cancelled"}}
    assert message(wire)["id"] == 0


def test_a_refusal_quotes_its_message() -> None:
    wire = Connection().refuse(b'"x"', -32601, 'no "such"\nmethod')
    assert message(wire)["error"] == {"code": -32601, "message": 'no "such"\nmethod'}


def test_two_connections_understand_each_other() -> None:
    here, there = Connection(), Connection()
    call_id, wire = here.call("_x/ask", b'{"a":1}')
    (asked,) = there.receive(wire)
    assert isinstance(asked, Requested)
    (answered,) = here.receive(there.answer(asked.rpc_id, asked.params))
    assert answered == Responded(call_id, b'{"a":1}', None)
    call_id, wire = here.call("_x/ask", b"{}")
    (asked,) = there.receive(wire)
    assert isinstance(asked, Requested)
    (refused,) = here.receive(there.refuse(asked.rpc_id, -32601, "no"))
    assert refused == Responded(call_id, None, RpcError(-32601, "no", None))
    assert there.receive(here.notify("_x/tell", b"{}")) == [Notified("_x/tell", b"{}")]


def test_its_repr_shows_the_calls_in_flight() -> None:
    connection = Connection()
    connection.call("initialize", b"{}")
    assert repr(connection) == "<Connection calls=1 pending={'bridge-1': 'initialize'}>"
