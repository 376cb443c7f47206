"""One turn: what a script may do while it plays.

Rules: everything said is recorded, so that session/load can tell it again. Waiting goes through
the world; a cancelled turn is a cancelled task and says nothing more. Answers to
``cursor/…`` are nested, ``{"outcome": {"outcome": "accepted"}}``; a flat one reads as cancelled,
as Cursor reads it (tiann/hapi#1044).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bridge.demo.client import ChunkLines, Client
from bridge.demo.options import Options
from bridge.demo.replay import Record
from bridge.demo.store import Store
from bridge.demo.wire import RpcError

THINKING_S: Final = 0.12
CHUNK_S: Final = 0.03
WORK_S: Final = 0.4


class TurnCancelled(Exception):
    """The client answered a permission request with ``cancelled``: the turn ends as such."""


@dataclass(frozen=True, slots=True)
class World:
    """What a conversation needs from outside: time, ids, stderr, and the way out.

    ``pace`` is a factor on all waiting that nobody asked for by its length.
    """

    sleep: Callable[[float], Awaitable[None]]
    now: Callable[[], float]
    new_id: Callable[[], str]
    write_stderr: Callable[[bytes], object]
    exit_process: Callable[[int], object]
    pace: float = 1.0

    async def rest(self, seconds: float) -> None:
        """Wait as a model makes one wait."""
        await self.sleep(seconds * self.pace)


@dataclass(slots=True)
class Session:
    """A conversation in this process; ``history`` holds the prompts the agent remembers."""

    session_id: str
    cwd: Path
    options: Options
    chunks: ChunkLines
    title: str | None = None
    history: list[str] = field(default_factory=list)
    turn: Turn | None = None
    running: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Turn:
    """The turn of one prompt.

    ``args`` is what follows the word that is being played; ``after_end`` are lines that are sent
    some seconds after the turn has ended.
    """

    session: Session
    client: Client
    world: World
    store: Store
    prompt: str
    args: str = ""
    ignores_cancel: bool = False
    stop_reason: str = "end_turn"
    record: Record = field(default_factory=Record)
    after_end: list[tuple[float, bytes]] = field(default_factory=list)

    def say(self, text: str) -> None:
        """One chunk of text."""
        self.record.add_text("message", text)
        self.client.outlet.put(self.session.chunks.line("agent_message_chunk", text))

    def think(self, text: str) -> None:
        """One chunk of thought."""
        self.record.add_text("thought", text)
        self.client.outlet.put(self.session.chunks.line("agent_thought_chunk", text))

    async def tell(self, text: str) -> None:
        """Text as a model brings it, some words at a time."""
        words = text.split(" ")
        for start in range(0, len(words), 3):
            piece = " ".join(words[start : start + 3])
            self.say(piece if start + 3 >= len(words) else piece + " ")
            await self.world.rest(CHUNK_S)

    def update(self, update: dict[str, Any]) -> None:
        """Any other ``session/update``; not recorded."""
        self.client.update(self.session.session_id, update)

    async def drained(self) -> None:
        """Let cancel through, and do not run ahead of a slow client."""
        await self.client.outlet.drained()

    async def ask_cursor(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A ``cursor/…`` request; returns the inner outcome. Raises ``RpcError``."""
        outcome = nested(await self.client.ask(method, params))
        if outcome["outcome"] == "cancelled":
            # A cancel of the turn is often just behind: a model would not have gone on yet.
            await self.world.rest(THINKING_S)
        return outcome

    async def tell_cursor(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """A ``cursor/…`` request that is a notification at heart: a failure is only logged."""
        try:
            return await self.ask_cursor(method, params)
        except RpcError:
            text = f'{{"method":"{method}","error":"[object Object]"}}'
            self.world.write_stderr(f"ACP extension notification failed {text}\n".encode())
            return None


class Tool:
    """A tool call: announced as ``pending``, then updated; recorded as it ended."""

    def __init__(self, turn: Turn, title: str, kind: str, raw_input: Any, **more: Any) -> None:
        self._turn = turn
        prefix = more.pop("prefix", "toolu_demo_")
        self.call: dict[str, Any] = {
            "toolCallId": prefix + turn.world.new_id(),
            "title": title,
            "kind": kind,
            "status": "pending",
            "rawInput": raw_input,
            **more,
        }
        turn.record.add_tool(self.call)
        turn.update({"sessionUpdate": "tool_call", **self.call})

    @property
    def call_id(self) -> str:
        """Its ``toolCallId``."""
        return str(self.call["toolCallId"])

    def set(self, status: str, **more: Any) -> None:
        """Report a new status, and what came of it."""
        self.call.update(status=status, **more)
        update = {"sessionUpdate": "tool_call_update", "toolCallId": self.call_id}
        self._turn.update({**update, "status": status, **more})

    def reject(self) -> None:
        """The person said no. Cursor calls that completed; only the details tell (forum 153825)."""
        text = "Rejected by the user"
        self.set(
            "completed",
            rawOutput={"rejected": True, "rawErrorMessages": [text]},
            content=[{"type": "content", "content": {"type": "text", "text": text}}],
        )

    async def permission(self, *content: dict[str, Any]) -> str:
        """Ask the person: ``allow_once``, ``allow_always`` or ``reject_once``.

        An error of the client's is a rejection. Raises :class:`TurnCancelled`.
        """
        params = {
            "sessionId": self._turn.session.session_id,
            "toolCall": {**self._shown(), "content": list(content)},
            "options": [
                {"optionId": option_id, "name": name, "kind": kind}
                for option_id, (name, kind) in _PERMISSIONS.items()
            ],
        }
        try:
            outcome = nested(await self._turn.client.ask("session/request_permission", params))
        except RpcError:
            return "reject_once"
        if outcome["outcome"] == "cancelled":
            raise TurnCancelled
        option_id = outcome.get("optionId")
        known = _PERMISSIONS.get(option_id) if isinstance(option_id, str) else None
        return known[1] if known and outcome["outcome"] == "selected" else "reject_once"

    def _shown(self) -> dict[str, Any]:
        keys = ("toolCallId", "title", "kind", "status", "locations")
        return {key: self.call[key] for key in keys if key in self.call}


def nested(result: Any) -> dict[str, Any]:
    """The inner outcome of an answer; ``{"outcome": "cancelled"}`` unless it is nested."""
    match result:
        case {"outcome": {"outcome": str()} as inner}:
            return dict(inner)
    return {"outcome": "cancelled"}


_PERMISSIONS: Final = {
    "allow-once": ("Allow once", "allow_once"),
    "allow-always": ("Allow always", "allow_always"),
    "reject-once": ("Reject", "reject_once"),
}
