"""The Session as callers see it: a fold of its events, and nothing else.

``bridge/session`` carries changed members whole; the agent's own updates convey the few listed in
:func:`fold_update`. Whoever applies a session's events in order arrives at exactly what
``GET /v1/sessions/{id}`` shows at that position (``firstSeq``, ``lastSeq``, ``lastId`` aside).

A view is a dict whose values are replaced, never mutated: a shallow copy is a snapshot.
"""

from __future__ import annotations

from typing import Any, Final

from bridge.protocol import options, todos

View = dict[str, Any]

FOLDED_UPDATES: Final = frozenset(
    {
        "current_mode_update",
        "config_option_update",
        "available_commands_update",
        "plan",
        "usage_update",
        "session_info_update",
    }
)

_NEW: Final[View] = {
    "sessionId": None,
    "owner": None,
    "agent": None,
    "agentSessionId": None,
    "cwd": None,
    "title": None,
    "status": "starting",
    "problem": None,
    "createdAt": None,
    "updatedAt": None,
    "mode": None,
    "model": None,
    "configOptions": [],
    "commands": None,
    "plan": [],
    "todos": [],
    "usage": None,
    "turn": None,
    "queue": [],
    "pendingRequests": [],
    "permissions": {"rules": []},
    "metadata": {},
    "capabilities": None,
}
"""Every member, as it is before anything is known of it."""


def new_view(session_id: str, *, owner: str, agent: str, cwd: str, at: str, **known: Any) -> View:
    """The view of a session that nothing has happened to; ``at`` is an RFC 3339 time.

    ``known`` are members that are known from the beginning.
    """
    return {
        **_NEW,
        "sessionId": session_id,
        "owner": owner,
        "agent": agent,
        "cwd": cwd,
        "createdAt": at,
        "updatedAt": at,
        **known,
    }


def fold_update(view: View, update: Any) -> tuple[View, View]:
    """What a ``session/update`` changes: ``(conveyed by it, to be said by bridge/session)``.

    ``update`` is ``params.update``. Shapes that do not fit change nothing.
    """
    if not isinstance(update, dict):
        return {}, {}
    match update.get("sessionUpdate"):
        case "current_mode_update" if isinstance(mode := update.get("currentModeId"), str):
            return _split(options.with_current(view, "mode", mode), "mode")
        case "config_option_update" if isinstance(listed := update.get("configOptions"), list):
            return _split(options.with_options(view, listed), "configOptions")
        case "available_commands_update" if isinstance(
            commands := update.get("availableCommands"), list
        ):
            return {"commands": commands}, {}
        case "plan" if isinstance(entries := update.get("entries"), list):
            return {"plan": entries}, {}
        case "usage_update":
            return {"usage": update}, {}
        case "session_info_update" if isinstance(title := update.get("title"), str):
            return {"title": title}, {}
        case _:
            return {}, {}


def fold_todos(view: View, params: Any) -> View:
    """What a ``cursor/update_todos`` conveys."""
    if not isinstance(params, dict):
        return {}
    return {"todos": todos.merge(view.get("todos") or [], params)}


def _split(changed: View, conveyed: str) -> tuple[View, View]:
    said = {name: value for name, value in changed.items() if name != conveyed}
    return {conveyed: changed[conveyed]}, said
