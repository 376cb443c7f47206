"""A session's files: found below its folder, opened once, and sent from what was opened.

Whoever works in that folder can replace anything in it at any moment, the folder itself included.
So a path is resolved once, then opened folder by folder without following a link, and what was
opened must be an ordinary file. Ranges are not served: RFC 9110, 14.2, lets a server ignore them.
"""

from __future__ import annotations

import mimetypes
import os
import stat
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import BinaryIO, Final
from urllib.parse import quote

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from bridge.api import reading
from bridge.api.context import context_of
from bridge.errors import CallerError

_PIECE_BYTES: Final = 65536
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""To go through a folder is enough where the system knows that; reading it may not be allowed."""
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Not waiting: to open a pipe would take until somebody writes to it."""


async def read(request: Request) -> Response:
    """GET /v1/sessions/{sessionId}/files"""
    folder = context_of(request).running.queries.folder(
        reading.principal_of(request), request.path_params["sessionId"]
    )
    path = request.query_params.get("path") or ""
    try:
        file, name = await anyio.to_thread.run_sync(open_below, folder, path)
    except (OSError, ValueError):
        raise CallerError("not-found", "There is no such file in the session's folder.") from None
    return FileStream(file, name, is_head=request.method == "HEAD")


class FileStream(StreamingResponse):
    """An open file as an attachment, as long as it was at first; closes it."""

    def __init__(self, file: BinaryIO, name: str, *, is_head: bool) -> None:
        status = os.fstat(file.fileno())
        self._file = file
        super().__init__(
            _pieces(file, 0 if is_head else status.st_size),
            media_type=mimetypes.guess_type(name)[0] or "application/octet-stream",
            headers={
                "Content-Length": str(status.st_size),
                "Content-Disposition": _attachment(name),
                "Content-Security-Policy": "sandbox",
                "Last-Modified": formatdate(status.st_mtime, usegmt=True),
                "Accept-Ranges": "none",
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._file:
            await super().__call__(scope, receive, send)


def open_below(folder: str, path: str) -> tuple[BinaryIO, str]:
    """The ordinary file that ``path`` leads to, below the resolved ``folder``, and its name.

    Raises ``OSError`` or ``ValueError`` where there is none, links that lead out included.
    """
    if not path or os.path.isabs(path):
        raise ValueError("no relative path")
    target = os.path.realpath(os.path.join(folder, path))
    if os.path.commonpath([target, folder]) != folder:
        raise ValueError("outside of the folder")
    *above, name = target.split(os.sep)[1:]
    holder = os.open(os.sep, _FOLDER)
    try:
        for each in above:
            inner = os.open(each, _FOLDER, dir_fd=holder)
            os.close(holder)
            holder = inner
        # Looked at before it is opened, for opening a device may do something.
        if not stat.S_ISREG(os.stat(name, dir_fd=holder, follow_symlinks=False).st_mode):
            raise ValueError("no ordinary file")
        opened = os.open(name, _FILE, dir_fd=holder)
    finally:
        os.close(holder)
    file = open(opened, "rb")
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        file.close()
        raise ValueError("no ordinary file any more")
    return file, name


def _attachment(name: str) -> str:
    quoted = quote(name, safe="", errors="replace")
    given = f'filename="{name}"' if quoted == name else f"filename*=utf-8''{quoted}"
    return f"attachment; {given}"


async def _pieces(file: BinaryIO, size: int) -> AsyncIterator[bytes]:
    opened = anyio.wrap_file(file)
    while size and (piece := await opened.read(min(size, _PIECE_BYTES))):
        size -= len(piece)
        yield piece
