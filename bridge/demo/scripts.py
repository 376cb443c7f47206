"""The words that the demo agent listens to, and what each of them plays.

Rules: one table, word to script; ``help`` is made from it. The first lower-case word of a prompt
that is in the table decides, and what follows on its line are its arguments; ``then`` chains
(``todos then tool``). A prompt without such a word is echoed, or planned in plan mode.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from bridge.demo import asking, failing, talking, working
from bridge.demo.turn import Turn

Play = Callable[[Turn], Awaitable[None]]

_WORD: Final = re.compile(r"(?<!\S)[(\"'`]*([a-z]+)[.,;:!?)\"'`]*(?!\S)")
_READ_CHARACTERS: Final = 16_384
_THEN: Final = re.compile(r"\s+then\s+")


@dataclass(frozen=True, slots=True)
class Script:
    """What a word plays, how it is written, and the line that explains it."""

    play: Play
    usage: str
    about: str


async def explain(turn: Turn) -> None:
    """The table, as text."""
    lines = [f"- `{script.usage}`: {script.about}" for script in SCRIPTS.values()]
    turn.say(
        "I am a demo agent: I speak Cursor's dialect of ACP and play what you ask for.\n\n"
        + "\n".join(lines)
        + "\n\nChain them with `then`, as in `todos then tool then hello`."
    )


SCRIPTS: Final[dict[str, Script]] = {
    "help": Script(explain, "help", "this list"),
    "hello": Script(talking.hello, "hello", "thoughts and text; so does anything else"),
    "stream": Script(talking.stream, "stream N [MS]", "N chunks of text, MS apart (0: flat out)"),
    "big": Script(talking.big, "big [KIB]", "one chunk of that size"),
    "emoji": Script(talking.emoji, "emoji", "an emoji cut in two by a chunk's end"),
    "silent": Script(talking.silent, "silent", "a turn without a word"),
    "recall": Script(talking.recall, "recall", "the prompts I remember"),
    "finish": Script(talking.finish, "finish REASON", "end with that stop reason, as `refusal`"),
    "mode": Script(talking.mode, "mode [ID]", "I change my own mode"),
    "outline": Script(talking.outline, "outline", "a plan in the protocol's own form"),
    "tool": Script(working.tool, "tool", "a command that asks first (nothing is run)"),
    "run": Script(working.run, "run COMMAND", "the same with your command (nothing is run)"),
    "tools": Script(working.tools, "tools [N]", "N commands that ask at once"),
    "edit": Script(working.edit, "edit [FILE]", "a diff (nothing is written)"),
    "write": Script(working.write, "write FILE", "a small file in the folder, after asking"),
    "image": Script(working.image, "image", "a picture in the folder"),
    "subagent": Script(working.subagent, "subagent", "a task with a session of its own"),
    "question": Script(asking.question, "question", "two questions, one with several answers"),
    "plan": Script(asking.plan, "plan", "a plan to accept; accepting ends the turn"),
    "todos": Script(asking.todos, "todos", "a list of todos and patches to it"),
    "elicit": Script(asking.elicit, "elicit [url]", "a form, or a page to open"),
    "vendor": Script(asking.vendor, "vendor", "a request that no client knows"),
    "hang": Script(failing.hang, "hang", "nothing more until you cancel"),
    "stubborn": Script(failing.stubborn, "stubborn [SECONDS]", "cancel is ignored"),
    "fail": Script(
        failing.fail, "fail [KIND]", "a failure as text: auth, plan, network, loop, model, other"
    ),
    "error": Script(failing.error, "error", "a JSON-RPC error ends the turn"),
    "crash": Script(failing.crash, "crash", "the process exits with status 3"),
    "noise": Script(failing.noise, "noise [KIB]", "plain text on stdout, bytes on stderr"),
    "late": Script(failing.late, "late", "a chunk after the turn's end"),
}


async def play(turn: Turn) -> None:
    """Play what the prompt asks for, one script after the other."""
    for word, args in chosen(turn.prompt, turn.session.options.mode):
        turn.args = args
        await SCRIPTS[word].play(turn)
        if turn.stop_reason != "end_turn":
            return


def chosen(prompt: str, mode: str) -> list[tuple[str, str]]:
    """The words to play, each with its arguments; at least one."""
    first = _first(prompt)
    if first is None:
        return [("plan" if mode == "plan" else "hello", "")]
    word, args = first
    parts = _THEN.split(args)
    pending = [(word, parts[0])]
    for part in parts[1:]:
        following, _, rest = part.partition(" ")
        if following.strip(".,;:!?") in SCRIPTS:
            pending.append((following.strip(".,;:!?"), rest))
        else:
            word, args = pending[-1]
            pending[-1] = (word, f"{args} then {part}")
    return pending


def _first(prompt: str) -> tuple[str, str] | None:
    for found in _WORD.finditer(prompt, 0, _READ_CHARACTERS):
        if found[1] in SCRIPTS:
            return found[1], prompt[found.end() :].partition("\n")[0]
    return None
