"""Every problem of the contract as a schema of its own, so that generated clients know them."""

from __future__ import annotations

from typing import Any, Final

from bridge.api.problems import KINDS
from bridge.api.shapes import OBJECT, STRING, Schema, maybe, ref, shape
from bridge.errors import CODES, Code

_MEMBERS: Final[dict[Code, dict[str, Schema]]] = {
    "agent-error": {
        "agentError": shape(
            "The agent's own JSON-RPC error.",
            {"code": {"type": "integer"}, "message": STRING, "data": {}},
        )
    },
    "request-already-answered": {"resolution": OBJECT},
    "request-withdrawn": {"resolution": maybe(OBJECT)},
    "session-already-open": {"sessionId": STRING},
    "turn-in-progress": {"turnId": STRING},
    "agent-auth-required": {"authMethods": {"type": "array", "items": {}}},
    "agent-exited": {
        "exitCode": maybe({"type": "integer"}),
        "signal": maybe(STRING),
        "stderrTail": STRING,
    },
}
_STATUSES: Final[dict[Code, list[int]]] = {"invalid-request": [400, 422]}


def name_of(code: Code) -> str:
    """The schema's name: ``turn-in-progress`` is ``TurnInProgressProblem``."""
    return "".join(word.capitalize() for word in code.split("-")) + "Problem"


def any_of(codes: list[Code]) -> Schema:
    """A problem with one of these codes."""
    if len(codes) == 1:
        return ref(name_of(codes[0]))
    return {
        "oneOf": [ref(name_of(code)) for code in codes],
        "discriminator": {
            "propertyName": "code",
            "mapping": {code: ref(name_of(code))["$ref"] for code in codes},
        },
    }


def _problem(code: Code) -> Schema:
    own: dict[str, Any] = {
        "code": {"type": "string", "const": code},
        "status": {"type": "integer", "enum": _STATUSES.get(code, [KINDS[code].status])},
    }
    return {
        "description": f"{KINDS[code].title}.",
        "allOf": [
            ref("Problem"),
            {
                "type": "object",
                "properties": own | _MEMBERS.get(code, {}),
                "required": ["code", "status"],
            },
        ],
    }


PROBLEMS: Final[dict[str, Schema]] = {name_of(code): _problem(code) for code in CODES}
