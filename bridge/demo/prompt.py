"""A prompt's content blocks, read as text."""

from __future__ import annotations

from typing import Any, Final

_TITLE_CHARACTERS: Final = 60


def text_of(blocks: list[Any]) -> str:
    """All text in a prompt; links and pictures are named, on lines of their own."""
    return "\n".join(_text(block) for block in blocks)


def title_of(text: str) -> str:
    """A title: the first line, shortened."""
    lines = text.strip().splitlines()
    title = " ".join(lines[0].split()) if lines else ""
    if len(title) > _TITLE_CHARACTERS:
        title = title[:_TITLE_CHARACTERS].rstrip() + "…"
    return title or "New Agent"


def _text(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[{block.get('name', '')}]({uri})"
        case {"type": "image", "data": str(data)}:
            return f"[a picture, {len(data) * 3 // 4} bytes]"
    return "[something I cannot read]"
