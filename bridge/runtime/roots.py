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

    def folder(self, principal: Principal, path: str | None) -> str:
        """The resolved folder; the caller's first root for ``None``.

        Raises ``path-outside-roots``, or ``invalid-request`` for what is no absolute path of an
        existing folder.
        """
        roots = self.of(principal)
        if path is None:
            if not roots:
                raise CallerError("path-outside-roots", "This token has no folder to work in.")
            path = roots[0]
        if "\0" in path or not os.path.isabs(path):
            raise CallerError("invalid-request", "A folder is named by its absolute path.")
        try:
            resolved = os.path.realpath(path)
        except (OSError, ValueError):
            raise CallerError("invalid-request", "This path cannot be followed.") from None
        if not any(is_inside(resolved, root) for root in roots):
            raise CallerError(
                "path-outside-roots", "This folder lies outside the configured roots."
            )
        if not os.path.isdir(resolved):
            raise CallerError("invalid-request", "There is no such folder.")
        return resolved

    def list(self, principal: Principal, path: str | None) -> dict[str, Any]:
        """The contract's folders below ``path``; without it the caller's roots."""
        if path is None:
            return {"path": None, "folders": [_shown(root, root) for root in self.of(principal)]}
        folder = self.folder(principal, path)
        try:
            with os.scandir(folder) as found:
                names = sorted(each.name for each in found if _is_folder(each))
        except OSError:
            raise CallerError("invalid-request", "This folder cannot be read.") from None
        inside = [_shown(name, os.path.join(folder, name)) for name in names]
        return {"path": folder, "folders": inside}


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
