"""Logging: one line a record, redacted, and nothing of what callers send."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from bridge import logs

NASTY = "a\r\nb\x1b[31m\u2028\u202e\ud800 Bearer abcdefghijkl the-secret-value"


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, logging.raiseExceptions)
    levels = {
        name: (logger.level, logger.propagate, logger.handlers[:])
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
    }
    yield
    root.handlers[:], root.level, logging.raiseExceptions = before
    for name, (level, propagate, handlers) in levels.items():
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers[:] = handlers
    root.setLevel(before[1])


@pytest.fixture
def stream(restored: None) -> io.StringIO:
    stream = io.StringIO()
    logs.configure("debug", stream, secrets=["the-secret-value"])
    return stream


def test_a_record_is_one_line_of_json_whatever_it_says(stream: io.StringIO) -> None:
    logging.getLogger("bridge.x").warning("said %s", NASTY, extra={"path": NASTY, "n": 1})
    text = stream.getvalue()
    assert text.isascii()
    assert len(text.splitlines()) == 1
    record = json.loads(text)
    assert (record["level"], record["logger"], record["n"]) == ("warning", "bridge.x", 1)
    assert "abcdefghijkl" not in text
    assert "the-secret-value" not in text
    assert record["path"].startswith("a\r\nb")


def test_an_exception_is_part_of_the_line(stream: io.StringIO) -> None:
    try:
        raise RuntimeError(NASTY)
    except RuntimeError:
        logging.getLogger("bridge").exception("failed")
    assert len(stream.getvalue().splitlines()) == 1
    record = json.loads(stream.getvalue())
    assert "RuntimeError" in record["exception"]
    assert "the-secret-value" not in record["exception"]


def test_a_message_that_does_not_fit_its_arguments_is_logged_all_the_same(
    stream: io.StringIO,
) -> None:
    logging.getLogger("bridge").info("%d", "x")
    assert "not formatted: TypeError" in json.loads(stream.getvalue())["message"]


def test_a_person_gets_a_line_to_read(restored: None) -> None:
    stream = Terminal()
    logs.configure("info", stream)
    logging.getLogger("bridge").info('said "%s"', "a\x1b[31m\nb", extra={"path": "/a b"})
    line = stream.getvalue()
    assert line.endswith('INFO    said "a\\u001b[31m\\nb" path="/a b"\n')
    assert len(line.splitlines()) == 1


def test_what_callers_send_is_not_logged_even_at_debug_level(stream: io.StringIO) -> None:
    logging.getLogger("sse_starlette.sse").debug("chunk: %s", b"data: secret")
    logging.getLogger("websockets.server").debug("< TEXT 'secret'")
    logging.getLogger("uvicorn.error").debug("< GET %s HTTP/1.1", "/acp?token=secret")
    logging.getLogger("uvicorn.error").info('%s - "WebSocket %s" [accepted]', "a", "/acp?token=s")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    assert stream.getvalue() == ""


def test_the_servers_own_words_come_out_once(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").error("Application startup failed. Exiting.")
    assert len(stream.getvalue().splitlines()) == 1


def test_a_higher_level_holds_for_libraries_too(restored: None) -> None:
    stream = io.StringIO()
    logs.configure("error", stream)
    logging.getLogger("uvicorn.error").warning("unheard")
    logging.getLogger("asyncio").warning("unheard")
    assert stream.getvalue() == ""


def test_strangers_cannot_fill_the_log(stream: io.StringIO) -> None:
    server = logging.getLogger("uvicorn.error")
    server.info("connection rejected (%d %s)", 401, "Unauthorized")
    server.error("ASGI callable returned without completing handshake.")
    server.warning("Invalid HTTP request received.")
    assert stream.getvalue() == ""


def test_a_reader_that_went_away_hurts_nobody(stream: io.StringIO) -> None:
    stream.close()
    logging.getLogger("bridge").warning("unheard")
