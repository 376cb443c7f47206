"""Every event type as a schema, so that generated clients know them."""

from __future__ import annotations

from typing import Any, Final

from bridge.api.shapes import COUNT, OBJECT, STRING, Schema, maybe, one_of, ref, shape

_FROM_AGENTS: Final = (
    "session/update",
    "session/request_permission",
    "cursor/ask_question",
    "cursor/create_plan",
    "cursor/update_todos",
    "cursor/task",
    "cursor/generate_image",
    "elicitation/create",
    "elicitation/complete",
)
_FROM_THE_BRIDGE: Final[dict[str, Schema]] = {
    "bridge/session": shape(
        "What changed of the Session; the first one carries all of it.",
        {"changed": {"type": "object", "description": "Members of Session."}},
    ),
    "bridge/turn_queued": shape("A turn was made.", {"turn": ref("Turn")}),
    "bridge/turn_started": shape(
        "A turn began.", {"turn": ref("Turn"), "prompt": {"type": "array", "items": OBJECT}}
    ),
    "bridge/turn_ended": shape("A turn ended.", {"turn": ref("Turn")}),
    "bridge/request_resolved": shape(
        "A request was answered or withdrawn.", {"request": ref("Request")}
    ),
    "bridge/tool_closed": shape(
        "The agent left a tool call open; the bridge closed it.",
        {"toolCallId": STRING, "status": one_of("completed", "failed")},
    ),
    "bridge/agent_exited": shape(
        "The agent process ended.",
        {"exitCode": maybe({"type": "integer"}), "signal": maybe(STRING), "stderrTail": STRING},
    ),
    "bridge/warning": shape(
        "Something that does not stop the session.", {"code": STRING, "detail": STRING}
    ),
    "bridge/session_deleted": shape("The session was closed.", {"purged": {"type": "boolean"}}),
    "bridge/reset": shape(
        "The position is not in the log; the stream goes on from where it can.",
        {
            "reason": one_of("evicted", "ahead"),
            "firstSeq": COUNT,
            "lastSeq": COUNT,
            "lastId": COUNT,
        },
        "firstSeq",
        "lastSeq",
        "lastId",
    ),
}


def _name(kind: str) -> str:
    words = kind.replace("/", "_").split("_")
    return "Event" + "".join(word.capitalize() for word in words)


def _event(kind: str, params: Schema) -> dict[str, Any]:
    return {
        "description": f"An Event of the type {kind}.",
        "allOf": [
            ref("Event"),
            {"type": "object", "properties": {"type": {"const": kind}, "params": params}},
        ],
    }


EVENTS: Final[dict[str, Schema]] = {
    **{_name(kind): _event(kind, OBJECT) for kind in _FROM_AGENTS},
    **{_name(kind): _event(kind, params) for kind, params in _FROM_THE_BRIDGE.items()},
}
EVENTS["AnyEvent"] = {
    "description": "Any event; agents may send types beyond the named ones.",
    "anyOf": [*[ref(name) for name in EVENTS], ref("Event")],
}
