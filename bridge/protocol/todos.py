"""The agent's todo list, as Cursor reports it in more ways than one.

``cursor/update_todos`` replaces the list, or with ``merge: true`` patches it by ``id`` (a patch
may hold an id and a status alone). Builds differ: ``title`` for ``content``, statuses such as
``TODO_STATUS_IN_PROGRESS``, entries without ids on the tool-call path (pingdotgg/t3code#11170).
What comes out is one spelling of it. Lists are never changed in place.
"""

from __future__ import annotations

from typing import Any, Final

Todo = dict[str, Any]

MAX_TODOS: Final = 1000
_PREFIX: Final = "todo_status_"


def merge(todos: list[Todo], params: dict[str, Any]) -> list[Todo]:
    """``todos`` after one update; ``params`` is ``{todos, merge?}`` as the agent sent it.

    Every entry has ``content`` and ``status``; ``id`` and unknown members stay as they came.
    Applying the same update twice changes nothing, nor does one without a list.
    """
    given = params.get("todos")
    if not isinstance(given, list):
        return todos
    known = {_key(todo): todo for todo in todos}
    is_merge = params.get("merge") is True
    merged = dict(known) if is_merge else {}
    for raw in given:
        if not isinstance(raw, dict):
            continue
        patch = _spelled(raw)
        key = _same(patch, merged) if is_merge else _key(patch)
        if key in merged or len(merged) < MAX_TODOS:
            merged[key] = _completed(merged.get(key) or known.get(key, {}), patch)
    return list(merged.values())


def _key(todo: Todo) -> tuple[str, str]:
    """What names an entry: its id, else its text."""
    if (todo_id := todo.get("id")) is not None:
        return "id", str(todo_id)
    return "content", str(todo.get("content", ""))


def _same(patch: Todo, merged: dict[tuple[str, str], Todo]) -> tuple[str, str]:
    """The entry that a patch is about: one list may be told with ids and without them in turns."""
    key = _key(patch)
    if key in merged or "content" not in patch:
        return key
    alike = (
        other
        for other, todo in merged.items()
        if todo["content"] == patch["content"] and ("id" in todo) != ("id" in patch)
    )
    return next(alike, key)


def _spelled(raw: dict[str, Any]) -> Todo:
    """The members that say something, in one spelling."""
    told = {name: value for name, value in raw.items() if value is not None}
    title = told.pop("title", None)
    if "content" not in told and title is not None:
        told["content"] = title
    if not isinstance(told.get("content", ""), str):
        del told["content"]
    if "status" in told:
        told["status"] = _status(told["status"])
    return told


def _status(raw: object) -> str:
    return raw.lower().removeprefix(_PREFIX) if isinstance(raw, str) else "pending"


def _completed(before: Todo, patch: Todo) -> Todo:
    return {"content": "", "status": "pending"} | before | patch
