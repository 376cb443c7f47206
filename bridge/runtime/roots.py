"""Which folders sessions may work in.

A path counts only where it really leads: it is resolved first, compared by whole segments, and
the resolved path is what is used from then on. A token may be narrowed to some of the roots.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from bridge.errors import CallerError
from bridge.principal import Principal

_NAMES_ROOTS = (
    "GET /v1/folders lists the roots; the operator sets them by `roots`, or `serve --root`."
)


class Roots:
    """The configured roots, resolved; may be replaced while the bridge runs."""

    def __init__(self, roots: Iterable[str | os.PathLike[str]]) -> None:
        self.all: tuple[str, ...] = tuple(
            os.path.realpath(os.path.expanduser(os.fspath(root))) for root in roots
        )

    def of(self, principal: Principal) -> tuple[str, ...]:
        """The roots of one caller."""
        if principal.roots is None:
            return self.all
        narrowed = [os.path.realpath(os.path.expanduser(each)) for each in principal.roots]
        return tuple(each for each in narrowed if any(is_inside(each, root) for root in self.all))

    def folder(self, principal: Principal, path: str | None, member: str = "cwd") -> str:
        """The resolved folder; the caller's first root for ``None``. ``member`` asked for it.

        Raises ``path-outside-roots``, or ``invalid-request`` for what is no absolute path of an
        existing folder.
        """
        roots = self.of(principal)
        if path is None:
            if not roots:
                raise CallerError("path-outside-roots", "This token has no folder to work in.")
            path = roots[0]
        if "\0" in path or not os.path.isabs(path):
            raise CallerError("invalid-request", f"`{member}` names a folder by its absolute path.")
        try:
            resolved = os.path.realpath(path)
        except (OSError, ValueError):
            raise CallerError("invalid-request", f"`{member}` cannot be followed.") from None
        if not any(is_inside(resolved, root) for root in roots):
            raise CallerError(
                "path-outside-roots",
                f"`{member}` lies outside the configured roots: {path}",
                hint=_NAMES_ROOTS,
            )
        if not os.path.isdir(resolved):
            raise CallerError(
                "invalid-request", f"`{member}` names a folder that is not there: {path}"
            )
        return resolved

    def has(self, folder: str) -> bool:
        """Whether a folder lies inside the roots of now, wherever it leads by now."""
        resolved = os.path.realpath(folder)
        return any(is_inside(resolved, root) for root in self.all)

    def check(self, folders: Iterable[str]) -> None:
        """Raise ``path-outside-roots`` where one of a session's folders is outside by now."""
        for folder in folders:
            if not self.has(folder):
                raise CallerError(
                    "path-outside-roots",
                    f"The session's folder {folder} lies outside the roots as they are now.",
                    hint="What it has said can still be read; the operator may add a root.",
                )

    def list(self, principal: Principal, path: str | None) -> dict[str, Any]:
        """The contract's folders below ``path``; without it the caller's roots."""
        if path is None:
            return {"path": None, "folders": [_shown(root, root) for root in self.of(principal)]}
        folder = self.folder(principal, path, "path")
        try:
            with os.scandir(folder) as found:
                names = sorted(each.name for each in found if _is_folder(each))
        except OSError:
            raise CallerError("invalid-request", "This folder cannot be read.") from None
        inside = [_shown(name, os.path.join(folder, name)) for name in names]
        return {"path": folder, "folders": inside}


def is_path(text: str) -> bool:
    """Whether the system takes it for a path, and UTF-8 carries it: no NUL, no lone surrogate."""
    return "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def is_inside(path: str, root: str) -> bool:
    """Whether a resolved path is the root or lies below it."""
    return os.path.commonpath([path, root]) == root


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    except OSError:
        return False


def _shown(name: str, path: str) -> dict[str, Any]:
    return {
        "name": os.path.basename(name) or name,
        "path": path,
        "git": os.path.exists(os.path.join(path, ".git")),
    }
