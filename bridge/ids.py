"""Ids of the bridge's own: opaque, 128 random bits, with a prefix that says what they name."""

from __future__ import annotations

import re
import secrets
from typing import Literal

Kind = Literal["ses", "turn", "req"]

_SHAPE = re.compile(r"(?:ses|turn|req)_[0-9a-f]{32}")


def new_id(kind: Kind) -> str:
    """A fresh id such as ``ses_0f3c…`` (32 hexadecimal digits after the prefix)."""
    return f"{kind}_{secrets.token_hex(16)}"


def is_id(text: str, kind: Kind) -> bool:
    """Whether ``text`` has the shape of one of our ids; anything else names nothing."""
    return text.startswith(kind) and _SHAPE.fullmatch(text) is not None
