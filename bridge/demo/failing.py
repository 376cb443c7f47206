"""Scripts that go wrong, in the ways real agents do."""

from __future__ import annotations

import asyncio
from typing import Final

from bridge.demo.arguments import number, word
from bridge.demo.turn import THINKING_S, Tool, Turn
from bridge.demo.wire import INTERNAL_ERROR, RpcError

CRASH_STATUS: Final = 3
_STUBBORN_S: Final = 600
_MAX_NOISE_KIB: Final = 64 * 1024

# How Cursor words them: pingdotgg/t3code#7830, #12374, #12940; kandev#3765.
_IN_BAND: Final = {
    "auth": "Please sign in to continue",
    "plan": "Upgrade your plan to continue",
    "network": (
        "Error: RetriableError: [canceled] http/2 stream closed with error code CANCEL (0x8)"
    ),
    "loop": "Error: NonRetriableError: Agent Looping Detected. Please try again.",
    "model": "Error: I: AI Model Not Found",
    "other": "[internal] Failed to run step, exceeded max retries",
}


async def hang(turn: Turn) -> None:
    """Wait until cancelled, with a tool left open."""
    turn.think("This will take for ever. ")
    Tool(turn, "`sleep infinity`", "execute", {"command": "sleep infinity"}).set("in_progress")
    await asyncio.Event().wait()


async def stubborn(turn: Turn) -> None:
    """``stubborn [SECONDS]``"""
    turn.ignores_cancel = True
    for second in range(number(turn.args, 0, default=_STUBBORN_S, most=86_400)):
        turn.say(f"Still here after {second} s. ")
        await turn.world.sleep(1.0)
    await turn.tell("Now I am done.")


async def fail(turn: Turn) -> None:
    """``fail [KIND]``: a failure as text, followed by ``end_turn``."""
    await turn.tell("I was about to answer, and then")
    turn.say("\n\n" + _IN_BAND.get(word(turn.args, 0), _IN_BAND["network"]))


async def error(turn: Turn) -> None:
    """A JSON-RPC error instead of a stop reason."""
    await turn.tell("This will not end well.")
    raise RpcError(INTERNAL_ERROR, "Internal error", {"message": "The demo agent was told to fail"})


async def crash(turn: Turn) -> None:
    """The process ends in the middle of a turn."""
    await turn.tell("The process will end now, ")
    Tool(turn, "`exit 3`", "execute", {"command": "exit 3"}).set("in_progress")
    turn.world.write_stderr(b"fatal: the demo agent was told to crash\n")
    await turn.client.outlet.flush()
    turn.world.exit_process(CRASH_STATUS)


async def noise(turn: Turn) -> None:
    """``noise [KIB]``: what is no message on stdout (tiann/hapi#1085), and bytes on stderr."""
    kib = number(turn.args, 0, default=1, most=_MAX_NOISE_KIB)
    turn.client.outlet.put(b"Using worktree: /tmp/demo-worktree\r\n\n")
    for _ in range(kib):
        turn.world.write_stderr(
            b"demo noise \xff\xfe on stderr, not even UTF-8.\n".ljust(1024, b".")
        )
        await turn.drained()
    await turn.tell("There was noise on stdout and stderr; the conversation goes on.")


async def late(turn: Turn) -> None:
    """A chunk that comes after the turn's end, as replays and cancelled models bring them."""
    await turn.tell("One more chunk will come after the end.")
    line = turn.session.chunks.line("agent_message_chunk", "This one is late.")
    turn.after_end.append((THINKING_S, line))
