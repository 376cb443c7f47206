"""The OpenAPI 3.1 document, made from the table of operations. Served and committed as it is."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from bridge.api import meanings
from bridge.api.event_shapes import EVENTS
from bridge.api.operation import Operation
from bridge.api.operations import OPERATIONS
from bridge.api.problem_shapes import PROBLEMS, any_of
from bridge.api.problems import KINDS, MEDIA_TYPE
from bridge.api.shapes import SCHEMAS, STRING, ref
from bridge.errors import Code

_ANY: Final[tuple[Code, ...]] = (
    "host-not-allowed",
    "origin-not-allowed",
    "body-too-large",
    "unsupported-media-type",
    "uri-too-long",
    "headers-too-large",
    "internal-error",
)
_WITH_TOKEN: Final[tuple[Code, ...]] = ("unauthorized", "forbidden", "rate-limited")

_QUERY: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "limit": ({"type": "integer", "minimum": 1}, "Most items; clamped to the maximum."),
    "cursor": ({"type": "string"}, "Where the page before ended: its nextCursor."),
    "after": (
        {"type": "string", "pattern": "^([0-9]{1,19}|latest)$"},
        "The position after which events begin, or `latest`.",
    ),
    "before": (
        {"type": "string", "pattern": "^[0-9]{1,19}$"},
        "Only turns that began before this position.",
    ),
    "wait": (
        {"type": "string", "pattern": "^[0-9]+$"},
        "Seconds to wait for a first event (clamped to 50).",
    ),
    "types": (
        {"type": "string"},
        "Event types, separated by commas; `bridge/*` takes all that begin so.",
    ),
    "named": ({"type": "string", "enum": ["true", "false", "1", "0"]}, "Whether to send `event:`."),
    "format": ({"type": "string", "enum": ["sse", "json"]}, "Overrides the Accept header."),
    "sessions": ({"type": "string"}, "Only these sessions, separated by commas."),
    "status": ({"type": "string"}, "Only those with this status."),
    "agent": ({"type": "string"}, "Only those with this agent."),
    "q": ({"type": "string"}, "Part of the title or the folder, in any case."),
    "purge": (
        {"type": "string", "enum": ["true", "false", "1", "0"]},
        "Remove the log as well.",
    ),
    "path": ({"type": "string"}, "A path."),
    "cwd": ({"type": "string"}, "Only conversations of this folder."),
}
_HEADERS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "Idempotency-Key": (
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        "Any text of the caller's: a repeat of the request under it finds what the first one made, "
        "for 24 hours.",
    ),
    "Prefer": ({"type": "string"}, "What to wait for (RFC 7240)."),
    "Last-Event-ID": (
        {"type": "string", "pattern": "^[0-9]{1,19}$"},
        "The last `id:` that arrived; goes before `after`.",
    ),
}
_LEFT_OUT: Final = frozenset({"default"})
_RESPONSE_HEADERS: Final[dict[str, Any]] = {
    "X-Request-Id": {"description": "The caller's own where it was sane.", "schema": STRING},
    "Location": {"description": "The path of what was made.", "schema": STRING},
    "Preference-Applied": {"description": "The preference that was heeded.", "schema": STRING},
    "Retry-After": {
        "description": "Seconds after which the same request may go through.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "WWW-Authenticate": {"description": "Bearer.", "schema": STRING},
}
_BY_STATUS: Final = {"401": ("WWW-Authenticate",), "429": ("Retry-After",)}
_MEDIA: Final = {
    "binary": ("application/octet-stream", {"type": "string", "format": "binary"}),
    "text": ("text/plain", {"type": "string"}),
    "html": ("text/html", {"type": "string"}),
    "object": ("application/json", {"type": "object"}),
}


def document(version: str) -> dict[str, Any]:
    """The whole document."""
    bodies = [each.body for each in OPERATIONS if each.body is not None]
    _, made = models_json_schema(
        [(body, "validation") for body in dict.fromkeys(bodies)],
        ref_template="#/components/schemas/{model}",
    )
    schemas = SCHEMAS | PROBLEMS | EVENTS | _optional(made["$defs"])
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cursor-acp-bridge",
            "version": version,
            "description": "Coding agents that speak ACP, behind HTTP and Server-Sent Events.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "tags": [{"name": name} for name in dict.fromkeys(each.tag for each in OPERATIONS)],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "headers": _RESPONSE_HEADERS,
            "schemas": {name: meanings.explained(name, schema) for name, schema in schemas.items()},
        },
    }


def text(version: str) -> str:
    """The document as it is committed: indented, with a final newline."""
    return json.dumps(document(version), indent=2, ensure_ascii=False) + "\n"


def _optional(schema: Any) -> Any:
    """Models' schemas without defaults: generators take a member that has one for always there.

    What a default is stands in the description of its member.
    """
    if isinstance(schema, list):
        return [_optional(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _optional(each) for name, each in schema.items() if name not in _LEFT_OUT}
    if isinstance(default := schema.get("default"), str | bool):
        kept["description"] = f"Left out: {json.dumps(default)}."
    return kept


def _operation(each: Operation) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.summary,
        "tags": [each.tag],
        "x-required-scope": " or ".join(each.access.scopes) or None,
        "parameters": _parameters(each),
        "responses": _responses(each),
    }
    if each.notes:
        shown["description"] = each.notes
    if each.access.is_public:
        shown["security"] = []
    if each.body is not None:
        content = {"schema": ref(each.body.__name__)}
        types = ["application/json"]
        if each.method == "PATCH":
            types.append("application/merge-patch+json")
        shown["requestBody"] = {
            "required": not each.is_body_optional,
            "content": dict.fromkeys(types, content),
        }
    return shown


def _parameters(each: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": part[1:-1],
            "in": "path",
            "description": meanings.PATH[part[1:-1]],
            "required": True,
            "schema": STRING,
        }
        for part in each.path.split("/")
        if part.startswith("{")
    ]
    for where, names, known in (("query", each.query, _QUERY), ("header", each.headers, _HEADERS)):
        for name in names:
            schema, about = known[name]
            about = meanings.PARAMETERS.get((each.name, name), about)
            found.append({"name": name, "in": where, "description": about, "schema": schema})
    return found


def _responses(each: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(status): _answer(each, status, name) for status, name in each.answers.items()
    }
    for status, codes in _problems(each).items():
        known = responses.get(status)
        content = {MEDIA_TYPE: {"schema": any_of(codes)}}
        if known is not None:
            known.setdefault("content", {}).update(content)
        else:
            listed = ", ".join(f"`{code}`" for code in codes)
            responses[status] = {"description": f"Problem: {listed}", "content": content}
    for status, answer in responses.items():
        answer["headers"] = {
            name: {"$ref": f"#/components/headers/{name}"} for name in _headers(each, status)
        }
    return responses


def _headers(each: Operation, status: str) -> list[str]:
    names = ["X-Request-Id", *_BY_STATUS.get(status, ())]
    if each.name in ("createSession", "prompt") and status in ("200", "201", "202"):
        names.append("Location")
    if "Prefer" in each.headers and status in ("200", "202"):
        names.append("Preference-Applied")
    return names


def _problems(each: Operation) -> dict[str, list[Code]]:
    codes: list[Code] = [*each.problems, *_ANY]
    if not each.access.is_public:
        codes += _WITH_TOKEN
    if each.is_strict:
        codes.append("not-acceptable")
    if "{" in each.path:
        codes.append("not-found")
    if each.body is not None or each.query or each.headers:
        codes.append("invalid-request")
    by_status: dict[str, list[Code]] = {"400": ["invalid-request"]}
    for code in dict.fromkeys(codes):
        by_status.setdefault(str(KINDS[code].status), []).append(code)
    return dict(sorted(by_status.items()))


def _answer(each: Operation, status: int, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = {"description": meanings.ANSWERS.get((each.name, status), each.summary)}
    if name in _MEDIA:
        media, schema = _MEDIA[name]
        shown["content"] = {media: {"schema": schema}}
    elif name:
        shown["content"] = {"application/json": {"schema": ref(name)}}
    if each.is_stream and status == 200:
        shown["content"]["text/event-stream"] = {
            "schema": {"type": "string"},
            "x-event-schemas": ref("AnyEvent"),
        }
    return shown
