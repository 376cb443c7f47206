"""A Session and a transcript folded from events as a caller would: by the contract's words alone.

Nothing of the bridge's own folds is used for the Session, so that a mistake there shows here.
"""

from __future__ import annotations

import json
from typing import Any

from bridge.protocol.transcript import TranscriptFold
from tests.e2e.harness import Json

POSITIONS = ("firstSeq", "lastSeq", "lastId")


def fold_session(view: Json, events: list[Json]) -> Json:
    """The Session after ``events``, which follow on what made ``view``."""
    view = dict(view)
    for event in events:
        match event["type"]:
            case "bridge/session":
                view.update(event["params"]["changed"])
            case "session/update" if "subagent" not in event:
                view.update(_update(view, event["params"].get("update") or {}))
            case "cursor/update_todos" | "_cursor/update_todos":
                view["todos"] = _todos(view["todos"], event["params"])
            case _:
                pass
        view["updatedAt"] = event["time"]
    return view


def without_positions(session: Json) -> Json:
    """What the fold arrives at."""
    return {name: value for name, value in session.items() if name not in POSITIONS}


def fold_items(shown: list[Json], events: list[Json]) -> list[Json]:
    """The transcript's items after ``events``."""
    fold = TranscriptFold.from_items(shown)
    for event in events:
        fold.apply(
            seq=event["seq"],
            turn_id=event["turnId"],
            type=event["type"],
            params=json.dumps(event["params"]).encode(),
            request_id=event.get("requestId"),
            is_replay=event.get("replay", False),
            subagent=event.get("subagent"),
        )
    # Through JSON, as it arrives: two halves of an emoji become one.
    items: list[Json] = json.loads(json.dumps(fold.items()))
    return items


def _update(view: Json, update: Json) -> Json:
    match update.get("sessionUpdate"):
        case "current_mode_update":
            known = view["mode"] or {"current": None, "available": []}
            return {"mode": known | {"current": update["currentModeId"]}}
        case "config_option_update":
            return {"configOptions": update["configOptions"]}
        case "available_commands_update":
            return {"commands": update["availableCommands"]}
        case "plan":
            return {"plan": update["entries"]}
        case "usage_update":
            return {"usage": update}
        case "session_info_update" if isinstance(update.get("title"), str):
            return {"title": update["title"]}
    return {}


def _todos(known: list[Json], params: Json) -> list[Json]:
    """A list in place of the old one, or patches to it by id."""
    given = params.get("todos")
    if not isinstance(given, list):
        return known
    if not params.get("merge"):
        return given
    merged: dict[Any, Json] = {_key(each): each for each in known}
    for each in given:
        merged[_key(each)] = merged.get(_key(each), {}) | each
    return list(merged.values())


def _key(todo: Json) -> Any:
    return todo.get("id", todo.get("content"))
