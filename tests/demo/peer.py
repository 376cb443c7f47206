"""A client in memory, joined to a demo agent's conversation without pipes or clocks."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from bridge.demo.client import Client
from bridge.demo.dialogue import Dialogue, Setup
from bridge.demo.store import Store
from bridge.demo.turn import World

Message = dict[str, Any]
Answer = Callable[[Message], Any]

LIMIT_S = 10.0


class Refused(Exception):
    """An error object as an exception; answers may raise it as well."""

    def __init__(self, error: Message) -> None:
        super().__init__(str(error))
        self.error = error


def selected(option_id: str) -> Answer:
    """Answers a permission request."""
    return lambda _: {"outcome": {"outcome": "selected", "optionId": option_id}}


def outcome(name: str, **more: Any) -> Answer:
    """Answers a ``cursor/…`` request, nested."""
    return lambda _: {"outcome": {"outcome": name, **more}}


class Peer:
    """Sends messages, keeps what comes, answers the agent's requests by ``answers``.

    A request for which there is no answer stays open. ``is_held`` makes every wait of the agent's
    endless.
    """

    def __init__(self, home: Path, *, login: str = "") -> None:
        self.home = home
        self.messages: list[Message] = []
        self.lines: list[bytes] = []
        self.answers: dict[str, Answer] = {}
        self.stderr = b""
        self.exits: list[int] = []
        self.is_held = False
        self._next_id = 100
        self._arrived = asyncio.Event()
        world = World(
            sleep=self._sleep,
            now=lambda: 1_800_000_000.0,
            new_id=lambda: str(uuid.uuid4()),
            write_stderr=self._take_stderr,
            exit_process=self.exits.append,
        )
        self.dialogue = Dialogue(Client(self), Store(home), world, Setup(login=login))

    # What the agent's outlet is here.

    def put(self, data: bytes) -> None:
        for line in data.splitlines():
            self.lines.append(line)
            if line.startswith(b"{"):
                self._take(json.loads(line))
        self._arrived.set()

    async def drained(self) -> None:
        await asyncio.sleep(0)

    async def flush(self) -> None:
        await asyncio.sleep(0)

    # What a test does.

    def send(self, *messages: Message) -> None:
        """Send messages, all in one piece."""
        lines = (json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in messages)
        self.dialogue.feed(b"".join(lines))

    async def call(self, method: str, /, **params: Any) -> Any:
        """Send a request and wait for its result. Raises ``Refused``."""
        return await self.answer_to(self.begin(method, **params))

    def begin(self, method: str, /, **params: Any) -> int:
        """Send a request; its id."""
        self._next_id += 1
        self.send({"id": self._next_id, "method": method, "params": params})
        return self._next_id

    async def answer_to(self, request_id: int) -> Any:
        """Wait for the result of a request that was begun. Raises ``Refused``."""
        message = await self.until(lambda m: m.get("id") == request_id and "method" not in m)
        if "error" in message:
            raise Refused(message["error"])
        return message["result"]

    async def until(self, is_wanted: Callable[[Message], bool]) -> Message:
        """The first message like that, whether it has come already or is still to come."""
        with anyio.fail_after(LIMIT_S):
            while True:
                for message in self.messages:
                    if is_wanted(message):
                        return message
                self._arrived.clear()
                await self._arrived.wait()

    async def settled(self) -> None:
        """Wait until the agent has nothing more to do."""
        with anyio.fail_after(LIMIT_S):
            await self.dialogue.settle()

    async def open(self, cwd: Path | str = "/nowhere", **capabilities: Any) -> str:
        """Initialize and begin a session; its id."""
        await self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)
        created = await self.call("session/new", cwd=str(cwd), mcpServers=[])
        await self.settled()
        return str(created["sessionId"])

    async def prompt(self, session_id: str, text: str) -> Any:
        """Prompt and wait for the turn's end."""
        return await self.call("session/prompt", **prompt_params(session_id, text))

    def cancel(self, session_id: str) -> None:
        """Cancel what runs in the session."""
        self.send({"method": "session/cancel", "params": {"sessionId": session_id}})

    def updates(self, kind: str | None = None, session_id: str | None = None) -> list[Message]:
        """The updates so far, of one kind and session or of all."""
        sent = [m["params"] for m in self.messages if m.get("method") == "session/update"]
        return [
            each["update"]
            for each in sent
            if kind in (None, each["update"]["sessionUpdate"])
            and session_id in (None, each["sessionId"])
        ]

    def requests(self, method: str) -> list[Message]:
        """The agent's requests by that name."""
        return [m for m in self.messages if m.get("method") == method and "id" in m]

    def text(self, session_id: str | None = None) -> str:
        """All text the agent said."""
        chunks = self.updates("agent_message_chunk", session_id)
        return "".join(each["content"]["text"] for each in chunks)

    def statuses(self) -> list[str]:
        """The statuses of tool calls, in order."""
        kinds = ("tool_call", "tool_call_update")
        return [u["status"] for u in self.updates() if u["sessionUpdate"] in kinds]

    def _take(self, message: Message) -> None:
        self.messages.append(message)
        method = message.get("method")
        if "id" not in message or method not in self.answers:
            return
        try:
            answered = {"result": self.answers[method](message["params"])}
        except Refused as refused:
            answered = {"error": refused.error}
        answer = {"id": message["id"], **answered}
        asyncio.get_running_loop().call_soon(self.send, answer)

    def _take_stderr(self, data: bytes) -> None:
        self.stderr += data

    async def _sleep(self, seconds: float) -> None:
        if self.is_held:
            await asyncio.Event().wait()
        await asyncio.sleep(0)


def prompt_params(session_id: str, text: str) -> Message:
    """Params of session/prompt."""
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
