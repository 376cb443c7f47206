"""Files are found below their folder whatever happens to it meanwhile, and sent as opened."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import anyio
import pytest
from starlette.types import Message

from bridge.api.files import FileStream, open_below

SECRET = b"outside"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(SECRET)
    folder = Path(os.path.realpath(tmp_path)) / "ws"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.txt").write_bytes(b"inside")
    return folder


def test_a_file_below_is_opened_by_name_and_by_a_link_that_stays_inside(folder: Path) -> None:
    (folder / "link").symlink_to("sub")
    for path in ("sub/a.txt", "link/a.txt", "./sub/../sub/a.txt"):
        file, name = open_below(str(folder), path)
        with file:
            assert (file.read(), name) == (b"inside", "a.txt")


def test_what_is_no_ordinary_file_is_not_opened_and_nobody_waits(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    held = socket.socket(socket.AF_UNIX)
    held.bind(os.path.relpath(folder / "socket"))
    (folder / "device").symlink_to("/dev/null")
    (folder / "memory").symlink_to("/proc/self/mem")
    (folder / "loop").symlink_to("loop")
    for path in ("pipe", "socket", "device", "memory", "loop", "sub", "none", ".", "a\0b", ""):
        with pytest.raises((OSError, ValueError)):
            open_below(str(folder), path)
    held.close()


def test_a_folder_that_became_a_link_leads_nowhere(folder: Path) -> None:
    """The session's own folder too: whoever works in it can move it away."""
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(folder.parent, target_is_directory=True)
    with pytest.raises((OSError, ValueError)):
        open_below(str(folder), "secret")


def test_a_folder_that_may_only_be_gone_through_holds_nobody_up(folder: Path) -> None:
    (folder / "sub").chmod(0o111)
    file, _ = open_below(str(folder), "sub/a.txt")
    file.close()
    (folder / "sub").chmod(0o755)


def test_a_link_swapped_in_at_any_moment_leaks_nothing(folder: Path) -> None:
    """A folder and a link to the outside change places while files are asked for."""
    inner, outer, spare = folder / "sub", folder / "out", folder / "spare"
    (folder.parent / "a.txt").write_bytes(SECRET)
    outer.symlink_to(folder.parent, target_is_directory=True)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            inner.rename(spare)
            outer.rename(inner)
            inner.rename(outer)
            spare.rename(inner)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        seen = set()
        for _ in range(3000):
            try:
                file, _ = open_below(str(folder), "sub/a.txt")
            except (OSError, ValueError):
                continue
            with file:
                seen.add(file.read())
    finally:
        is_over.set()
        swapper.join()
    assert seen == {b"inside"}


@pytest.mark.anyio
async def test_a_file_that_grows_is_sent_as_long_as_it_was(folder: Path) -> None:
    path = folder / "sub" / "a.txt"
    file, name = open_below(str(folder), "sub/a.txt")
    response = FileStream(file, name, is_head=False)
    path.write_bytes(b"inside and more")
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        await anyio.sleep_forever()
        raise AssertionError

    await response({"type": "http", "asgi": {}}, receive, send)
    assert b"".join(each.get("body", b"") for each in sent) == b"inside"
    assert (b"content-length", b"6") in sent[0]["headers"]
    assert file.closed


def test_a_name_that_is_no_text_is_spelled_somehow(folder: Path) -> None:
    odd = os.fsdecode(b"\xff\n.txt")
    (folder / odd).write_bytes(b"x")
    file, name = open_below(str(folder), odd)
    response = FileStream(file, name, is_head=True)
    assert response.headers["content-disposition"] == "attachment; filename*=utf-8''%3F%0A.txt"
    file.close()
