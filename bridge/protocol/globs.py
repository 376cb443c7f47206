"""Globs over paths and titles: ``*`` within a segment, ``**`` across, everything else literal.

``a/**/b`` matches ``a/b`` too; ``a/**`` what is inside ``a``, not ``a``.

A pattern comes from one party and the text from another, so matching must take few steps whatever
they are. All states of the pattern advance at once, as the bits of one number (R. Baeza-Yates and
G. Gonnet, A New Approach to Text Searching, 1992): one step a character, nothing is tried twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ACROSS = "**"
_ANYTHING = "***"
"""More than two stars are as good as two, but ``/***/`` is no ``/**/``."""
_FOLDERS = "/**"
_STARS = re.compile(r"(\*+)")
_REPEATED = re.compile(r"(?:/\*\*)+(?=/|\Z)")


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern ready to be matched: state ``n`` is reached once ``n`` literals were read."""

    size: int
    literal: str
    """The beginning of the pattern, before its first wildcard."""
    reads: dict[str, int]
    """By character: the states that are reached by reading it."""
    within: int
    """The states in which ``*`` stays, reading anything but a slash."""
    across: int
    """The states in which ``**`` stays, reading anything."""
    folders: int
    """The states behind ``/**/``'s first slash, which may be its last one as well."""

    def matches(self, text: str) -> bool:
        """Whether the whole of ``text`` fits; takes at most ``len(text)`` steps."""
        if not text.startswith(self.literal):
            return False
        begun = len(self.literal)
        states = 1 << begun
        states |= (states & self.folders) << 1
        reads, across, folders = self.reads.get, self.across, self.folders
        anywhere = self.within | across
        for character in text[begun:]:
            entered = (states << 1) & reads(character, 0)
            stayed = states & (across if character == "/" else anywhere)
            states = entered | (entered & folders) << 1 | stayed
            if not states:
                return False
        return bool(states >> self.size & 1)


def path_glob(pattern: str) -> Glob:
    """A glob for absolute paths; neither the pattern nor a path has ``.`` or ``..``."""
    return _compiled(_REPEATED.sub(_FOLDERS, pattern))


def text_glob(pattern: str) -> Glob:
    """As for paths, but ``*`` runs over anything, since a text has no segments."""
    return _compiled(_STARS.sub(_ANYTHING, pattern))


def _compiled(pattern: str) -> Glob:
    literal, *rest = _STARS.split(pattern)
    within = across = folders = 0
    read = literal
    for stars, text in zip(rest[::2], rest[1::2], strict=True):
        here = 1 << len(read)
        if stars == "*":
            within |= here
        else:
            across |= here
            if stars == _ACROSS and read.endswith("/") and text.startswith("/"):
                folders |= here
        read += text
    reads: dict[str, int] = {}
    for state, character in enumerate(read, 1):
        reads[character] = reads.get(character, 0) | 1 << state
    return Glob(len(read), literal, reads, within, across, folders)
