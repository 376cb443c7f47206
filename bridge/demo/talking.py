"""Scripts that only talk: text, thoughts, floods of them, and odd ways to end a turn."""

from __future__ import annotations

from typing import Any, Final

from bridge.demo.arguments import number, word
from bridge.demo.turn import THINKING_S, Turn
from bridge.demo.wire import RpcError

_CHUNKS_AT_ONCE: Final = 128
_MAX_CHUNKS: Final = 1_000_000
_MAX_KIB: Final = 128 * 1024
_STOP_REASONS: Final = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")


async def hello(turn: Turn) -> None:
    """A few thoughts, then an echo."""
    options = turn.session.options
    for thought in ("Reading the prompt. ", "Nothing here needs a tool. ", "I will echo it."):
        turn.think(thought)
        await turn.world.rest(THINKING_S)
    before = len(turn.session.history)
    await turn.tell(
        f"You said: {turn.prompt.strip()[:2000]}\n\n"
        f"I am a demo agent, in {options.mode} mode with the model {options.model_name}; "
        f"I remember {before} earlier prompt{'' if before == 1 else 's'}. "
        "Say `help` to see what I can play."
    )


async def stream(turn: Turn) -> None:
    """``stream N [MS]``"""
    count = number(turn.args, 0, default=20, most=_MAX_CHUNKS)
    pause_s = number(turn.args, 1, default=50, most=60_000) / 1000
    for index in range(1, count + 1):
        turn.say(f"{index} ")
        if pause_s:
            await turn.world.sleep(pause_s)
        elif index % _CHUNKS_AT_ONCE == 0:
            await turn.drained()


async def big(turn: Turn) -> None:
    """``big KIB``"""
    kib = number(turn.args, 0, default=1024, most=_MAX_KIB)
    line = "All of this came in a single line of the protocol, sixty-four b.\n"
    turn.say((line * (kib * 1024 // len(line) + 1))[: kib * 1024])


async def emoji(turn: Turn) -> None:
    """An emoji cut in two, as a Node process sends it when a chunk ends inside one."""
    turn.say("Half of it here \ud83d")
    await turn.world.rest(THINKING_S)
    turn.say("\ude80 and half of it there.")


async def silent(turn: Turn) -> None:
    """Nothing at all."""
    await turn.drained()


async def recall(turn: Turn) -> None:
    """What is remembered; cancelled prompts are not (diodeme/Gold-Band#130)."""
    if not turn.session.history:
        await turn.tell("I remember no earlier prompt.")
        return
    listed = "\n".join(f"{n}. {text[:200]}" for n, text in enumerate(turn.session.history, 1))
    await turn.tell(f"I remember:\n{listed}")


async def finish(turn: Turn) -> None:
    """``finish REASON``"""
    reason = word(turn.args, 0)
    if reason in _STOP_REASONS:
        turn.stop_reason = reason
    await turn.tell(f"This turn ends with the stop reason {turn.stop_reason}.")


async def mode(turn: Turn) -> None:
    """``mode [ID]``: the agent itself changes its mode."""
    options = turn.session.options
    wanted = word(turn.args, 0) or "agent"
    try:
        options.set_mode(wanted)
    except RpcError:
        await turn.tell(f"I have no mode {wanted}.")
        return
    turn.update({"sessionUpdate": "current_mode_update", "currentModeId": options.mode})
    updated = {"sessionUpdate": "config_option_update", "configOptions": options.config_options()}
    turn.update(updated)
    await turn.tell(f"I am in {options.mode} mode now.")


async def outline(turn: Turn) -> None:
    """The protocol's own ``plan`` update, which Cursor seldom sends."""
    steps = ("Look around", "Change what is needed", "Run the tests")
    for done in range(len(steps) + 1):
        turn.update({"sessionUpdate": "plan", "entries": _entries(steps, done)})
        await turn.world.rest(THINKING_S)
    await turn.tell("The plan is done, three steps of three.")


def _entries(steps: tuple[str, ...], done: int) -> list[dict[str, Any]]:
    statuses = ["completed"] * done + ["in_progress"] + ["pending"] * len(steps)
    return [
        {"content": step, "priority": "medium", "status": status}
        for step, status in zip(steps, statuses, strict=False)
    ]
