"""Every event type as a schema, so that generated clients know them."""

from __future__ import annotations

from typing import Any, Final

from bridge.api.shapes import COUNT, OBJECT, STRING, Schema, maybe, one_of, ref, shape


def _sent(about: str, **members: str) -> Schema:
    """What agents send is passed on as it is: named and explained, but held to no type."""
    named = {name: {"description": words} for name, words in members.items()}
    return {"type": "object", "description": about, "properties": named}


_CALL: Final = "The tool call it belongs to."
_TODOS: Final = "`{id, content, status}` each."
_FROM_AGENTS: Final[dict[str, Schema]] = {
    "session/update": _sent(
        "ACP's notification, as the agent sent it.",
        sessionId="The agent's own id of the conversation.",
        update="What is new; its `sessionUpdate` says of which kind: `agent_message_chunk` and "
        "`agent_thought_chunk` (`content`), `tool_call` and `tool_call_update` (`toolCallId`, "
        "`title`, `kind`, `status`, `content`, …), `plan` (`entries`), and others.",
    ),
    "session/request_permission": _sent(
        "ACP's request for leave to use a tool.",
        sessionId="The agent's own id of the conversation.",
        toolCall="The tool call: `toolCallId`, `title`, `kind`, `rawInput`, `locations`, …",
        options="What may be chosen: `{optionId, name, kind}` each.",
    ),
    "cursor/ask_question": _sent(
        "Questions with answers to choose from.",
        toolCallId=_CALL,
        title="Above all questions.",
        questions="`{id, prompt, options: [{id, label}], allowMultiple?}` each.",
    ),
    "cursor/create_plan": _sent(
        "A plan that wants a person's leave.",
        toolCallId=_CALL,
        name="Its title.",
        overview="A sentence.",
        plan="All of it, as Markdown.",
        todos=_TODOS,
    ),
    "cursor/update_todos": _sent(
        "The todos, answered by the bridge.",
        toolCallId=_CALL,
        todos=_TODOS,
        merge="Whether these are changes, by `id`; else they take the place of all.",
    ),
    "cursor/task": _sent(
        "A subagent's task, answered by the bridge.",
        toolCallId=_CALL,
        description="What it is about.",
        prompt="What it is told.",
    ),
    "cursor/generate_image": _sent(
        "A picture was made; answered by the bridge.",
        toolCallId=_CALL,
        description="What it shows.",
        filePath="Where it lies on the box; see the Event's `fileUrl`.",
    ),
    "elicitation/create": _sent(
        "ACP's form to fill in, or page to open.",
        mode="`form` or `url`.",
        message="What for.",
        requestedSchema="The form's fields, as a JSON Schema of one object.",
        url="The page.",
        elicitationId="Told again by `elicitation/complete`.",
    ),
    "elicitation/complete": _sent(
        "What happened on the page is over.", elicitationId="As in `elicitation/create`."
    ),
}
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
    **{_name(kind): _event(kind, params) for kind, params in _FROM_AGENTS.items()},
    **{_name(kind): _event(kind, params) for kind, params in _FROM_THE_BRIDGE.items()},
}
EVENTS["AnyEvent"] = {
    "description": "Any event; agents may send types beyond the named ones.",
    "anyOf": [*[ref(name) for name in EVENTS], ref("Event")],
}
