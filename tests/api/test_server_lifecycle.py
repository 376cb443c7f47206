"""How the server starts, stops, and is handed its socket."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from bridge.api.server import BridgeServer, make_config
from tests.api.serving import LIMIT_S, Caller, Probe, ask, calling, serving, settings_with

pytestmark = pytest.mark.anyio

HOST = b"Host: 127.0.0.1\r\n"
CLOSE = b"Connection: close\r\n"


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture
async def server(probe: Probe) -> AsyncIterator[BridgeServer]:
    async with serving(probe, settings_with()) as running:
        yield running
        probe.release.set()


async def test_stopping_winds_up_first_and_serves_meanwhile(probe: Probe) -> None:
    winding, wound = anyio.Event(), anyio.Event()

    async def wind_up() -> None:
        winding.set()
        await wound.wait()

    server = BridgeServer(make_config(probe, settings_with()), on_stop=wind_up, takes_signals=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        with anyio.fail_after(LIMIT_S):
            await server.listening.wait()
            server.stop()
            await winding.wait()
            answer = await ask(server, b"GET / HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
            wound.set()


async def test_being_asked_twice_ends_the_server_without_winding_up(probe: Probe) -> None:
    server = BridgeServer(
        make_config(probe, settings_with()), on_stop=anyio.sleep_forever, takes_signals=False
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        with anyio.fail_after(LIMIT_S):
            await server.listening.wait()
            server.stop()
            server.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_winds_up_and_ends_the_server_without_an_error(
    probe: Probe, number: signal.Signals
) -> None:
    wound = anyio.Event()

    async def wind_up() -> None:
        wound.set()

    server = BridgeServer(make_config(probe, settings_with()), on_stop=wind_up)
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve)
            await server.listening.wait()
            os.kill(os.getpid(), number)
    assert wound.is_set()


async def test_stopping_ends_idle_and_refused_connections(server: BridgeServer) -> None:
    async with calling(server) as idle, calling(server) as refused:
        await refused.send(b"nonsense\r\n\r\n")
        await refused.until(b"invalid-request")
        server.stop()
        assert await idle.rest() == b""
        assert await refused.rest() is not None


async def test_a_start_that_fails_ends_the_process(probe: Probe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = settings_with()
        settings = settings.model_copy(
            update={"server": settings.server.model_copy(update={"port": taken.getsockname()[1]})}
        )
        server = BridgeServer(make_config(probe, settings), takes_signals=False)
        with pytest.raises(SystemExit), anyio.fail_after(LIMIT_S):
            await server.serve()
        assert not server.listening.is_set()


async def test_a_listening_socket_can_be_handed_over(probe: Probe) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = BridgeServer(
        make_config(probe, settings_with(), fd=listener.detach()), takes_signals=False
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        with anyio.fail_after(LIMIT_S):
            await server.listening.wait()
        answer = await ask(server, b"GET / HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")
        server.stop()


async def test_a_unix_socket_can_be_handed_over_too(probe: Probe, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    server = BridgeServer(
        make_config(probe, settings_with(), fd=listener.detach()), takes_signals=False
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        with anyio.fail_after(LIMIT_S):
            await server.listening.wait()
        assert server.address == f"unix:{path}"
        async with await anyio.connect_unix(path) as stream:
            caller = Caller(stream)
            await caller.send(b"GET / HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")
            assert b" 200 " in await caller.rest()
        server.stop()


async def test_a_caller_that_does_not_read_its_last_response_is_dropped(probe: Probe) -> None:
    server = BridgeServer(make_config(probe, settings_with()), takes_signals=False, flush_s=0)
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve)
            await server.listening.wait()
            async with calling(server) as caller:
                await caller.send(b"GET /big HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")
                await caller.until(b"HTTP/1.1 200")
                while server.server_state.connections:
                    await server.on_tick(0)
                    await anyio.wait_all_tasks_blocked()
                assert not (await caller.rest()).endswith(b"ok 0")
            server.stop()
