"""Globs over paths and titles: ``*`` within a segment, ``**`` across, everything else literal.

A pattern comes from one party and the text from another, so matching must not backtrack without
bound: between two ``**`` the earliest match is always as good as a later one, which lets the
expressions be atomic. ``a/**/b`` matches ``a/b`` too; ``a/**`` what is inside ``a``, not ``a``.
"""

from __future__ import annotations

import re

_ACROSS = "**"
_FOLDERS = "/**"
_WILD = re.compile(r"(/\*\*(?=/)|\*+)")
_REPEATED = re.compile(r"(?:/\*\*)+(?=/|\Z)")


def path_matches(pattern: str, path: str) -> bool:
    """Whether an absolute ``path`` fits an absolute ``pattern``; neither has ``.`` or ``..``."""
    return _compiled(_REPEATED.sub(_FOLDERS, pattern)).fullmatch(path) is not None


def text_matches(pattern: str, text: str) -> bool:
    """As for paths, but ``*`` runs over anything, since a text has no segments."""
    return _compiled(re.sub(r"\*+", _ACROSS, pattern)).fullmatch(text) is not None


def _compiled(pattern: str) -> re.Pattern[str]:
    """Literals and wildcards in turn, grouped by the ``**`` between them (``re`` caches these)."""
    literal, *rest = _WILD.split(pattern)
    groups: list[list[str]] = [[re.escape(literal)]]
    for wild, text in zip(rest[::2], rest[1::2], strict=True):
        if wild == "*":
            groups[-1].append(re.escape(text))
        else:
            if wild == _FOLDERS:
                # The slash that begins the folders may be the one that follows them.
                groups[-1][-1] += "(?=/)"
            groups.append([re.escape(text)])
    openings = ["", *[".*?"] * (len(groups) - 1)]
    *before, last = zip(openings, groups, strict=True)
    return re.compile("".join([*(_earliest(*group) for group in before), _last(*last)]), re.DOTALL)


def _earliest(opening: str, parts: list[str]) -> str:
    return f"(?>{opening}{parts[0]}{''.join(_soonest(part) for part in parts[1:])})"


def _last(opening: str, parts: list[str]) -> str:
    """The last group has to end where the text ends, so its last wildcard may stretch."""
    first, *more = parts
    if not more:
        return f"{opening}{first}"
    return f"{opening}{first}{''.join(_soonest(part) for part in more[:-1])}[^/]*{more[-1]}"


def _soonest(part: str) -> str:
    return f"(?>[^/]*?{part})"
