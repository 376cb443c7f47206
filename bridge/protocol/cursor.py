"""What is Cursor's own: failures that arrive as text.

Cursor reports trouble with the login, the plan or the network as a last text chunk that begins
with a blank line, followed by ``end_turn``; there is no JSON-RPC error. The text is passed on as
it is; this module only says what it looks like. A person may ask the model to print such a line,
so only the *last* chunk counts, from its very start.

Sources: pingdotgg/t3code#7830, #12374, #10480; kandev#3765; Cursor forum 163218, 155812.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

Kind = Literal["auth", "plan", "network", "model", "loop", "other"]

_FORMS: Final[tuple[tuple[Kind, re.Pattern[str]], ...]] = (
    ("auth", re.compile(r"Please sign in to continue\b")),
    ("plan", re.compile(r"(?:Upgrade your plan|Add a payment method) to continue\b")),
    ("other", re.compile(r"Check your settings to continue\b")),
    ("loop", re.compile(r"(?:Error: )?NonRetriableError: Agent Looping Detected")),
    ("auth", re.compile(r"(?:Error: )?(?:\w+Error: )?\[(?:unauthenticated|permission_denied)\]")),
    ("plan", re.compile(r"(?:Error: )?(?:\w+Error: )?\[resource_exhausted\]")),
    ("model", re.compile(r"(?:Error: )?(?:\w: )?AI Model Not Found")),
    ("network", re.compile(r"(?:Error: )?(?:\w+Error: )?\[(?:unavailable|canceled|aborted)\]")),
    ("network", re.compile(r"(?:Error: )?(?:getaddrinfo |PING timed out|connect ECONN)")),
    ("network", re.compile(r"(?:Error: )?(?:\w+Error: )?Stream ended without turnEnded")),
    ("other", re.compile(r"(?:Error: )?(?:\w+Error: )?\[internal\]")),
    ("network", re.compile(r"Error: RetriableError: ")),
    ("other", re.compile(r"Error: (?:NonRetriableError|[A-Z]): ")),
)

_QUOTE_LIMIT: Final = 500


def suspected_error(last_chunk: str) -> dict[str, Any] | None:
    """``{kind, text}`` if the last text chunk of an ``end_turn`` reads like a failure."""
    text = last_chunk.lstrip("\n")
    if text == last_chunk and not last_chunk.startswith("Error: "):
        return None
    for kind, form in _FORMS:
        if form.match(text):
            return {"kind": kind, "text": text[:_QUOTE_LIMIT].rstrip()}
    return None
