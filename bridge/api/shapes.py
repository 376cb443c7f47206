"""The JSON shapes of answers and events, as JSON Schema 2020-12 for the OpenAPI document.

Written by hand, because answers are made from the agent's own bytes and are not models. Members
are listed with what may be null; tests hold running answers to them.
"""

from __future__ import annotations

from typing import Any, Final

from bridge.errors import CODES

Schema = dict[str, Any]

STRING: Final[Schema] = {"type": "string"}
BOOL: Final[Schema] = {"type": "boolean"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
OBJECT: Final[Schema] = {"type": "object"}
ANYTHING: Final[Schema] = {}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
TEXTS: Final[Schema] = {"type": "array", "items": {"type": "string"}}


def ref(name: str) -> Schema:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def maybe(schema: Schema) -> Schema:
    """``schema`` or null."""
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema:
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def many(schema: Schema) -> Schema:
    """An array of them."""
    return {"type": "array", "items": schema}


def one_of(*values: str) -> Schema:
    """One of these texts."""
    return {"type": "string", "enum": list(values)}


def shape(about: str, members: dict[str, Schema], *optional: str) -> Schema:
    """An object with these members, all there but the ``optional`` ones."""
    return {
        "type": "object",
        "description": about,
        "properties": members,
        "required": [name for name in members if name not in optional],
        "additionalProperties": False,
    }


_PATTERN: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 1024}

_CHOICES: Final = shape(
    "Modes and the current one.",
    {
        "current": maybe(STRING),
        "available": many(
            shape(
                "A mode.",
                {"id": maybe(STRING), "name": maybe(STRING), "description": maybe(STRING)},
            )
        ),
    },
)
_MODEL: Final = shape(
    "Models and the current one; lists leave out `available`.",
    {
        "current": maybe(STRING),
        "available": many(shape("A model.", {"id": maybe(STRING), "name": maybe(STRING)})),
    },
    "available",
)
_TURN_STATUS: Final = one_of("queued", "running", "waiting", "completed", "cancelled", "failed")
_OUTCOMES: Final = one_of(
    "ok", "refused", "limit", "denied", "cancelled", "suspected-error", "error"
)

SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": {
        "type": "object",
        "description": "RFC 9457, with a stable code and what helps to mend it.",
        "properties": {
            "type": STRING,
            "title": STRING,
            "status": {"type": "integer"},
            "detail": STRING,
            "instance": STRING,
            "code": one_of(*CODES),
            "hint": STRING,
            "available": {"type": "array", "items": {}},
            "errors": many(OBJECT),
            "agentError": OBJECT,
        },
        "required": ["type", "title", "status", "detail", "code"],
        "additionalProperties": True,
    },
    "Session": shape(
        "A session; but for its positions exactly the fold of its events up to lastSeq.",
        {
            "sessionId": STRING,
            "owner": STRING,
            "agent": STRING,
            "agentSessionId": maybe(STRING),
            "cwd": STRING,
            "title": maybe(STRING),
            "status": one_of(
                "starting", "idle", "running", "waiting", "hibernated", "failed", "closed"
            ),
            "problem": maybe(ref("Problem")),
            "createdAt": TIME,
            "updatedAt": TIME,
            "mode": maybe(_CHOICES),
            "model": maybe(_MODEL),
            "configOptions": many(ANYTHING),
            "commands": maybe(many(ANYTHING)),
            "plan": many(ANYTHING),
            "todos": many(ANYTHING),
            "usage": maybe(OBJECT),
            "turn": maybe(ref("Turn")),
            "queue": TEXTS,
            "pendingRequests": many(ref("Request")),
            "permissions": ref("Permissions"),
            "metadata": OBJECT,
            "capabilities": maybe(OBJECT),
            "firstSeq": COUNT,
            "lastSeq": COUNT,
            "lastId": COUNT,
        },
        "configOptions",
        "commands",
    ),
    "SessionList": shape(
        "A page of sessions.",
        {"sessions": many(ref("Session")), "nextCursor": maybe(STRING), "lastId": COUNT},
    ),
    "Turn": shape(
        "One prompt and what followed. Events and lists leave the texts out.",
        {
            "turnId": STRING,
            "sessionId": STRING,
            "status": _TURN_STATUS,
            "outcome": maybe(_OUTCOMES),
            "stopReason": maybe(STRING),
            "cancelledBy": maybe(one_of("caller", "agent")),
            "causedBy": maybe(STRING),
            "text": STRING,
            "finalText": STRING,
            "textTruncated": BOOL,
            "afterSeq": COUNT,
            "firstSeq": maybe(COUNT),
            "lastSeq": maybe(COUNT),
            "createdAt": TIME,
            "startedAt": maybe(TIME),
            "endedAt": maybe(TIME),
            "usage": maybe(OBJECT),
            "result": maybe(OBJECT),
            "error": maybe(ref("Problem")),
            "suspectedError": maybe(
                shape(
                    "A failure the agent reported as text.",
                    {
                        "kind": one_of("auth", "plan", "network", "model", "loop", "other"),
                        "text": STRING,
                    },
                )
            ),
        },
        "text",
        "finalText",
        "textTruncated",
    ),
    "TurnList": shape(
        "A page of turns, newest first.",
        {"turns": many(ref("Turn")), "nextCursor": maybe(STRING)},
    ),
    "CancelResult": shape(
        "The turn that is being cancelled, or null where nothing ran.",
        {"turn": maybe(ref("Turn"))},
    ),
    "Request": shape(
        "What the agent asks and waits for.",
        {
            "requestId": STRING,
            "sessionId": STRING,
            "session": shape(
                "Of whom it is.",
                {"title": maybe(STRING), "cwd": STRING, "agent": STRING, "owner": STRING},
            ),
            "turnId": maybe(STRING),
            "kind": one_of("permission", "question", "plan", "elicitation", "extension"),
            "method": STRING,
            "params": OBJECT,
            "toolCall": maybe(OBJECT),
            "allowedOptionIds": maybe(TEXTS),
            "status": one_of("pending", "answered", "withdrawn"),
            "createdAt": TIME,
            "expiresAt": maybe(TIME),
            "resolution": maybe(
                shape(
                    "How it ended.",
                    {
                        "by": one_of(
                            "caller",
                            "policy",
                            "timeout",
                            "cancel",
                            "agent-exit",
                            "agent-cancelled",
                            "turn-ended",
                            "session-deleted",
                        ),
                        "token": maybe(STRING),
                        "outcome": OBJECT,
                        "at": TIME,
                    },
                )
            ),
        },
    ),
    "RequestList": shape(
        "A page of requests, oldest first.",
        {"requests": many(ref("Request")), "nextCursor": maybe(STRING), "lastId": COUNT},
    ),
    "Permissions": shape(
        "Rules by which requests are answered without asking; the first that fits wins. All "
        "patterns together have at most 16,384 characters. Where a request takes too many steps "
        "to judge, a person is asked.",
        {
            "rules": many(
                shape(
                    "One rule.",
                    {
                        "match": shape(
                            "What it speaks of; every member must fit.",
                            dict.fromkeys(("kind", "path", "title", "method"), _PATTERN),
                            "kind",
                            "path",
                            "title",
                            "method",
                        ),
                        "reply": one_of(
                            "allow_once",
                            "allow_always",
                            "reject_once",
                            "reject_always",
                            "cancel",
                            "ask",
                        ),
                    },
                )
            )
            | {"maxItems": 1000},
            "onTimeout": shape(
                "What is answered when nobody replies.",
                {"afterSeconds": {"type": "number", "exclusiveMinimum": 0}, "reply": STRING},
            ),
        },
        "onTimeout",
    ),
    "Event": shape(
        "One entry of a session's log. `bridge/reset` has no seq and no id, and no session where "
        "it speaks of all of them.",
        {
            "seq": COUNT,
            "id": COUNT,
            "sessionId": maybe(STRING),
            "turnId": maybe(STRING),
            "time": TIME,
            "type": STRING,
            "requestId": STRING,
            "replay": BOOL,
            "subagent": STRING,
            "fileUrl": STRING,
            "params": OBJECT,
        },
        "seq",
        "id",
        "turnId",
        "sessionId",
        "requestId",
        "replay",
        "subagent",
        "fileUrl",
    ),
    "EventPage": shape(
        "Events after a position.",
        {"events": many(ref("Event")), "nextAfter": COUNT, "more": BOOL},
    ),
    "Transcript": shape(
        "What a person reads.",
        {
            "sessionId": STRING,
            "firstSeq": COUNT,
            "lastSeq": COUNT,
            "lastId": COUNT,
            "items": many(ref("Item")),
            "nextBefore": maybe(COUNT),
            "truncated": BOOL,
        },
    ),
    "Item": {
        "type": "object",
        "description": "One item; the members beyond these depend on its type.",
        "properties": {
            "itemId": STRING,
            "type": one_of(
                "user",
                "message",
                "thought",
                "tool",
                "plan",
                "todos",
                "request",
                "turn_end",
                "notice",
            ),
            "turnId": maybe(STRING),
            "firstSeq": COUNT,
            "lastSeq": COUNT,
            "open": BOOL,
        },
        "required": ["itemId", "type", "turnId", "firstSeq", "lastSeq", "open"],
        "additionalProperties": True,
    },
    "Agent": shape(
        "An agent that sessions can have; null is what no live process has shown yet.",
        {
            "agentId": STRING,
            "title": STRING,
            "dialect": one_of("cursor", "acp"),
            "available": BOOL,
            "version": maybe(STRING),
            "authenticated": maybe(BOOL),
            "problem": maybe(STRING),
            "hint": maybe(STRING),
            "capabilities": maybe(OBJECT),
            "modes": maybe(many(OBJECT)),
            "models": maybe(many(OBJECT)),
            "configOptions": maybe(many(ANYTHING)),
        },
    ),
    "AgentList": shape("All agents.", {"agents": many(ref("Agent"))}),
    "AgentSessionList": {
        "type": "object",
        "description": "The agent's own session/list, without those of other owners.",
        "properties": {"sessions": many(OBJECT)},
        "required": ["sessions"],
        "additionalProperties": True,
    },
    "FolderList": shape(
        "Folders inside the roots.",
        {
            "path": maybe(STRING),
            "folders": many(shape("A folder.", {"name": STRING, "path": STRING, "git": BOOL})),
        },
    ),
    "Me": shape(
        "The caller.",
        {
            "owner": STRING,
            "token": shape(
                "The token that was shown.",
                {
                    "name": STRING,
                    "scopes": TEXTS,
                    "agents": maybe(TEXTS),
                    "roots": maybe(TEXTS),
                    "expiresAt": maybe(TIME),
                },
            ),
            "roots": TEXTS,
            "limits": OBJECT,
            "version": STRING,
            "features": TEXTS,
        },
    ),
    "ExtensionResult": shape("What the agent answered.", {"result": ANYTHING}),
    "Health": shape("The bridge's state.", {"status": STRING}),
}
