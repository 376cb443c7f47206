"""Scripts that use tools: commands that are not run, edits that are not made, and one that is.

Rules: nothing here starts a process. Only ``write`` and ``image`` touch the disk, inside the
session's folder, never through a link and never over a file that is not the demo's own.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

from bridge.demo.arguments import number, word
from bridge.demo.client import ChunkLines
from bridge.demo.picture import png
from bridge.demo.turn import THINKING_S, WORK_S, Tool, Turn, TurnCancelled

_MARK: Final = "Written by the demo agent.\n"
_COMMAND: Final = "echo cursor-demo-marker"
_MAX_TOOLS: Final = 16
_READ_BYTES: Final = 64 * 1024


async def tool(turn: Turn) -> None:
    """A command that is always the same."""
    await _command(turn, _COMMAND)
    await turn.tell("\nNothing was run on this machine: the demo agent only pretends.")


async def run(turn: Turn) -> None:
    """``run COMMAND``"""
    await _command(turn, turn.args.strip() or _COMMAND)
    await turn.tell("\nNothing was run on this machine: the demo agent only pretends.")


async def tools(turn: Turn) -> None:
    """``tools [N]``: several ask at the same time (zed-industries/zed#56535)."""
    count = max(1, number(turn.args, 0, default=3, most=_MAX_TOOLS))
    try:
        async with asyncio.TaskGroup() as group:
            for n in range(1, count + 1):
                group.create_task(_command(turn, f"echo tool-{n}"))
    except* TurnCancelled:
        raise TurnCancelled from None
    await turn.tell(f"\n{count} commands at once, none of them really run.")


async def edit(turn: Turn) -> None:
    """An edit as a diff. Inside the folder Cursor seldom asks, and so does this not."""
    if await _refuses(turn):
        return
    path = str(turn.session.cwd / (word(turn.args, 0) or "demo.txt"))
    raw_input = {"path": path}
    call = Tool(turn, "Edit File", "edit", raw_input, locations=[{"path": path, "line": 1}])
    await turn.world.rest(THINKING_S)
    call.set("in_progress")
    await turn.world.rest(WORK_S)
    old, new = "first\nsecond\n", "first\nsecond, edited\nthird\n"
    call.set("completed", content=[_diff(path, old, new)])
    await turn.tell("That is how an edit looks; the file itself was left alone.")


async def write(turn: Turn) -> None:
    """``write FILE``"""
    if await _refuses(turn):
        return
    path = _inside(turn.session.cwd, word(turn.args, 0) or "demo.txt")
    old = _own_text(path) if path is not None else None
    if path is None or old is None:
        await turn.tell("I only write files of my own, inside the session's folder.")
        return
    new = f"{_MARK}{turn.prompt.strip()[:200]}\n"
    diff = _diff(str(path), old or None, new)
    raw_input = {"path": str(path), "contents": new}
    call = Tool(turn, "Edit File", "edit", raw_input, locations=[{"path": str(path)}])
    if await call.permission(diff) == "reject_once":
        call.reject()
        await turn.tell(f"Then I leave {path.name} alone.")
        return
    call.set("in_progress")
    failure = _write(path, new.encode("utf-8", "replace"))
    if failure:
        call.set("failed", rawOutput={"error": failure})
        await turn.tell(f"I could not write {path.name}: {failure}.")
        return
    call.set("completed", content=[diff])
    await turn.tell(f"I wrote {path.name}, {len(new)} characters.")


async def image(turn: Turn) -> None:
    """A picture in the folder, and ``cursor/generate_image`` that names it."""
    description = "A gradient, from the demo agent"
    call = Tool(turn, "Generate Image", "other", {"description": description})
    call.set("in_progress")
    path, failure = _write_picture(turn.session.cwd)
    if failure:
        call.set("failed", rawOutput={"error": failure})
        await turn.tell(f"I could not write the picture: {failure}.")
        return
    params = {"toolCallId": call.call_id, "description": description, "filePath": str(path)}
    outcome = await turn.tell_cursor("cursor/generate_image", params)
    call.set("completed", rawOutput={"filePath": str(path)})
    said = outcome["outcome"] if outcome else "an error"
    await turn.tell(f"The picture is {path.name}; your client answered {said}.")


async def subagent(turn: Turn) -> None:
    """A task, told in the ways seen: a tool call, a session of its own, ``cursor/task``."""
    description, prompt = "Look around", "List what is in this folder."
    task = {"description": description, "prompt": prompt}
    raw_input = {"_toolName": "task", **task, "subagentType": "unspecified"}
    call = Tool(turn, f"Task: {description}", "other", raw_input, prefix="tool_")
    call.set("in_progress")
    agent_id = turn.world.new_id()
    chunks = ChunkLines(agent_id)
    for text in ("I am the subagent. ", "I looked around. ", "It is tidy here."):
        turn.client.outlet.put(chunks.line("agent_message_chunk", text))
        await turn.world.rest(THINKING_S)
    duration_ms = 1250
    params = {
        "toolCallId": call.call_id,
        **task,
        "subagentType": {"custom": {"unspecified": {}}},
        "model": "composer-2.5-fast",
        "agentId": agent_id,
        "durationMs": duration_ms,
    }
    await turn.tell_cursor("cursor/task", params)
    call.set("completed", rawOutput={"durationMs": duration_ms, "isBackground": False})
    await turn.tell("My subagent says that it is tidy here.")


async def _command(turn: Turn, command: str) -> None:
    if await _refuses(turn):
        return
    name = command.split()[0]
    call = Tool(turn, f"`{command}`", "execute", {"command": command})
    if not turn.store.is_allowed(name):
        text = {"type": "text", "text": f"Not in allowlist: {name}"}
        answer = await call.permission({"type": "content", "content": text})
        if answer == "reject_once":
            call.reject()
            turn.say(f"Then I do without `{command}`. ")
            return
        if answer == "allow_always":
            turn.store.allow(name)
    call.set("in_progress")
    await turn.world.rest(WORK_S)
    stdout = command[5:] + "\n" if command.startswith("echo ") else f"(not run: {command})\n"
    call.set("completed", rawOutput={"exitCode": 0, "stdout": stdout, "stderr": ""})
    turn.say(f"`{command}` answered: {stdout.strip()} ")


async def _refuses(turn: Turn) -> bool:
    if turn.session.options.mode == "agent":
        return False
    await turn.tell(f"I use no tools in {turn.session.options.mode} mode. ")
    return True


def _diff(path: str, old: str | None, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def _inside(folder: Path, name: str) -> Path | None:
    """The real path of ``name`` below ``folder``, or None where it leads elsewhere."""
    try:
        root = folder.resolve()
        path = (root / name).resolve()
    except (OSError, ValueError, RuntimeError):
        return None
    is_file_place = path.parent.is_dir() and not path.is_dir()
    return path if path != root and path.is_relative_to(root) and is_file_place else None


def _own_text(path: Path) -> str | None:
    """What is in a file of the demo's own, ``""`` where there is none yet, else None."""
    try:
        if not path.exists():
            return ""
        with open(path, "rb") as file:
            text = file.read(_READ_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    return text if text.startswith(_MARK) else None


def _write(path: Path, data: bytes, extra_flags: int = os.O_TRUNC) -> str | None:
    """Write a file; returns why not."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | extra_flags
    try:
        with open(os.open(path, flags, 0o644), "wb") as file:
            file.write(data)
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


def _write_picture(folder: Path) -> tuple[Path, str | None]:
    failure: str | None = None
    path = folder
    for n in range(1, 1000):
        path = folder / f"demo-image-{n}.png"
        if not path.exists():
            failure = _write(path, png(96, 64), os.O_EXCL)
            break
    else:
        failure = "there are too many of them"
    return path, failure
