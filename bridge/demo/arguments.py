"""Arguments of a script, read leniently: what is missing or odd is the default."""

from __future__ import annotations


def word(args: str, index: int) -> str:
    """The argument at ``index`` without the punctuation around it, or ``""``."""
    words = args.split(maxsplit=index + 1)
    return words[index].strip(".,;:!?\"'`()") if len(words) > index else ""


def number(args: str, index: int, *, default: int, most: int) -> int:
    """The argument at ``index``, at most ``most``."""
    text = word(args, index).replace("_", "")
    if not text.isascii() or not text.isdecimal() or len(text) > 12:
        return default
    return min(int(text), most)
