"""An agent on the official Python SDK, so that another implementation reads what the bridge sends.

Words: ``permission`` asks before it says what was chosen, ``wait`` talks until it is cancelled,
anything else is echoed. With ``SDK_AGENT_STATE`` naming a folder it keeps what was said there, and
any later process can load it again: prompts and answers are replayed before session/load is
answered. Without it, it cannot load.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from pathlib import Path
from typing import Any

import acp
from acp import helpers
from acp.schema import (
    AgentCapabilities,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallUpdate,
)


class EchoAgent:
    """As little as an agent needs."""

    def __init__(self, folder: str | None) -> None:
        self._folder = Path(folder) if folder else None
        self._client: Any = None
        self._cancelled = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        """The SDK hands over its connection."""
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        """Version 1, nothing special."""
        capabilities = AgentCapabilities(load_session=self._folder is not None)
        return InitializeResponse(protocol_version=1, agent_capabilities=capabilities)

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        """A fresh id."""
        del cwd
        session_id = str(uuid.uuid4())
        self._keep(session_id)
        return NewSessionResponse(session_id=session_id)

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:
        """Replay what is kept; RequestError -32002 for a session that is not."""
        del cwd
        kept = self._folder / session_id if self._folder else None
        if kept is None or not kept.exists():
            raise acp.RequestError.resource_not_found(session_id)
        for line in kept.read_text("utf-8").splitlines():
            for who, text in json.loads(line).items():
                replay = (
                    helpers.update_user_message_text(text)
                    if who == "user"
                    else helpers.update_agent_message_text(text)
                )
                await self._client.session_update(session_id=session_id, update=replay)
        return LoadSessionResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        """See the module."""
        self._cancelled.clear()
        text = "".join(getattr(block, "text", "") for block in prompt)
        self._keep(session_id, user=text)
        if "permission" in text:
            await self._say(session_id, await self._ask(session_id))
        elif "wait" in text:
            await self._say(session_id, "waiting")
            await self._cancelled.wait()
            return PromptResponse(stop_reason="cancelled")
        else:
            for word in text.split():
                await self._say(session_id, word + " ")
        return PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Let a waiting prompt end."""
        del session_id
        self._cancelled.set()

    async def _ask(self, session_id: str) -> str:
        options = [
            PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
            PermissionOption(option_id="no", name="No", kind="reject_once"),
        ]
        tool = ToolCallUpdate(tool_call_id="call-1", title="A tool")
        answer = await self._client.request_permission(
            session_id=session_id, tool_call=tool, options=options
        )
        return f"chosen: {getattr(answer.outcome, 'option_id', 'nothing')}"

    def _keep(self, session_id: str, **said: str) -> None:
        if self._folder is not None:
            with open(self._folder / session_id, "a", encoding="utf-8") as file:
                file.write(json.dumps(said) + "\n")

    async def _say(self, session_id: str, text: str) -> None:
        self._keep(session_id, agent=text)
        update = helpers.update_agent_message_text(text)
        await self._client.session_update(session_id=session_id, update=update)


if __name__ == "__main__":
    agent: Any = EchoAgent(os.environ.get("SDK_AGENT_STATE"))
    asyncio.run(acp.run_agent(agent))
