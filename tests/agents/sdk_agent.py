"""An agent on the official Python SDK, so that another implementation reads what the bridge sends.

Words: ``permission`` asks before it says what was chosen, ``wait`` talks until it is cancelled,
anything else is echoed.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import acp
from acp import helpers
from acp.schema import (
    AgentCapabilities,
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallUpdate,
)


class EchoAgent:
    """As little as an agent needs."""

    def __init__(self) -> None:
        self._client: Any = None
        self._cancelled = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        """The SDK hands over its connection."""
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        """Version 1, nothing special."""
        return InitializeResponse(protocol_version=1, agent_capabilities=AgentCapabilities())

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        """A fresh id."""
        del cwd
        return NewSessionResponse(session_id=str(uuid.uuid4()))

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        """See the module."""
        self._cancelled.clear()
        text = "".join(getattr(block, "text", "") for block in prompt)
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

    async def _say(self, session_id: str, text: str) -> None:
        update = helpers.update_agent_message_text(text)
        await self._client.session_update(session_id=session_id, update=update)


if __name__ == "__main__":
    agent: Any = EchoAgent()
    asyncio.run(acp.run_agent(agent))
