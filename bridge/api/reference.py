"""The contract as one page for people, made in one pass from the OpenAPI document.

It is enough to write a client from: every operation with its parameters, its body and its answers,
every schema and event with its members, every problem once. Knows nothing but the document: what
the page says is said there. Every name of a schema is the id of the place that shows it, so that
a reference is a link. Plain HTML: no script, no style, nothing from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final

Json = dict[str, Any]

_PROBLEM: Final = "application/problem+json"
_CODE: Final = re.compile(r"(`+)(.+?)\1")
_LINK: Final = re.compile(r"\[([^\]]+)\]\((#[\w-]+)\)")
_TYPES: Final = {"date-time": "RFC 3339 time", "binary": "bytes"}


def page(document: Json) -> str:
    """The whole page."""
    return _Page(document).html()


class _Page:
    def __init__(self, document: Json) -> None:
        self._document = document
        self._schemas: dict[str, Json] = document["components"]["schemas"]
        self._operations = [
            (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]
        self._bodies = {
            _name_of(_content(operation["requestBody"])["schema"])
            for _, _, operation in self._operations
            if "requestBody" in operation
        }
        self._problems = {
            name: code for name, schema in self._schemas.items() if (code := _code_of(schema))
        }
        self._everywhere = set.intersection(
            *(set(self._codes(operation)) for _, _, operation in self._operations)
        )

    def html(self) -> str:
        info = self._document["info"]
        title = escape(info["title"])
        return (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
            f"<title>{title}: the HTTP contract</title>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'></head><body>"
            f"<main><h1>{title} {escape(info['version'])}</h1>"
            f"<p>{_text(info.get('description', ''))}</p>{self._contents()}"
            f"<h2 id='operations'>Operations</h2>{self._all_operations()}"
            f"<h2 id='schemas'>Schemas</h2>{self._all_schemas()}"
            f"<h2 id='events'>Events</h2>{self._all_events()}"
            f"<h2 id='problems'>Problems</h2>{self._all_problems()}"
            f"<h2 id='headers'>Headers of answers</h2>{self._all_headers()}"
            "</main></body></html>"
        )

    def _contents(self) -> str:
        tags = "".join(
            f"<li>{escape(tag['name'])}<ul>"
            + "".join(
                f"<li><a href='#{escape(operation['operationId'])}'><code>{method} {escape(path)}"
                f"</code></a> {_text(operation['summary'])}</li>"
                for method, path, operation in self._operations
                if tag["name"] in operation["tags"]
            )
            + "</ul></li>"
            for tag in self._document["tags"]
        )
        rest = (("schemas", self._shown()), ("events", self._events()))
        lists = "".join(
            f"<li><a href='#{name}'>{name.capitalize()}</a>: "
            + ", ".join(f"<a href='#{escape(each)}'>{escape(each)}</a>" for each in names)
            + "</li>"
            for name, names in rest
        )
        return (
            f"<nav><ul><li><a href='#operations'>Operations</a><ul>{tags}</ul></li>{lists}"
            "<li><a href='#problems'>Problems</a></li>"
            "<li><a href='#headers'>Headers of answers</a></li></ul></nav>"
        )

    # -- operations ----------------------------------------------------------------------------

    def _all_operations(self) -> str:
        codes = self._code_links([each for each in self._problems if each in self._everywhere])
        sections = "".join(self._operation(*each) for each in self._operations)
        return f"<p>Whatever is asked may be answered with one of {codes}.</p>{sections}"

    def _operation(self, method: str, path: str, operation: Json) -> str:
        scope = operation.get("x-required-scope")
        asked = f"Needs a token with the scope {escape(scope)}." if scope else "Needs no token."
        about = operation.get("description", "")
        return (
            f"<section id='{escape(operation['operationId'])}'>"
            f"<h3><code>{method} {escape(path)}</code></h3>"
            f"<p>{_text(operation['summary'])}. {asked} {_text(about)}</p>"
            f"{_parameters(operation.get('parameters', []))}"
            f"{self._body(operation.get('requestBody'))}"
            f"{self._answers(operation)}</section>"
        )

    def _body(self, body: Json | None) -> str:
        if body is None:
            return ""
        name = _name_of(_content(body)["schema"])
        needed = "" if body["required"] else ", which may be left out"
        return (
            f"<div id='{escape(name)}'><h4>Body, JSON{needed}</h4>"
            f"{self._about(self._schemas[name])}</div>"
        )

    def _answers(self, operation: Json) -> str:
        rows = []
        for status, answer in operation["responses"].items():
            if not (forms := _forms(answer)) and _PROBLEM in answer.get("content", {}):
                continue
            headers = ", ".join(
                f"<a href='#header-{escape(name)}'>{escape(name)}</a>" for name in answer["headers"]
            )
            rows.append((status, "<br>".join(forms), _text(answer["description"]), headers))
        codes = [each for each in self._codes(operation) if each not in self._everywhere]
        problems = f"<p>Problems: {self._code_links(codes)}.</p>" if codes else ""
        table = _table(("Status", "Body", "When", "Headers"), rows)
        return f"<h4>Answers</h4>{table}{problems}"

    def _codes(self, operation: Json) -> list[str]:
        """The names of the problems' schemas, each once."""
        found: dict[str, None] = {}
        for answer in operation["responses"].values():
            schema = answer.get("content", {}).get(_PROBLEM, {}).get("schema", {})
            for each in schema.get("oneOf", [schema] if schema else []):
                found[_name_of(each)] = None
        return list(found)

    def _code_links(self, names: list[str]) -> str:
        return ", ".join(
            f"{_statuses(self._schemas[name])} "
            f"<a href='#{escape(name)}'><code>{escape(self._problems[name])}</code></a>"
            for name in names
        )

    # -- schemas, events, problems, headers ----------------------------------------------------

    def _events(self) -> list[str]:
        return [name for name, schema in self._schemas.items() if _kind_of_event(schema)]

    def _shown(self) -> list[str]:
        """The schemas that are nothing more special: no body, event or problem."""
        others = {*self._bodies, *self._problems, *self._events()}
        return [name for name in self._schemas if name not in others]

    def _all_schemas(self) -> str:
        return "".join(
            f"<section id='{escape(name)}'><h3>{escape(name)}</h3>"
            f"{self._about(self._schemas[name])}</section>"
            for name in self._shown()
        )

    def _all_events(self) -> str:
        return "".join(
            f"<section id='{escape(name)}'>"
            f"<h3><code>{escape(_kind_of_event(self._schemas[name]))}</code></h3>"
            f"<p>An {_reference('Event')} with these <code>params</code>.</p>"
            f"{self._about(_own(self._schemas[name])['properties']['params'])}</section>"
            for name in self._events()
        )

    def _all_problems(self) -> str:
        rows = []
        for name, code in self._problems.items():
            own = _own(self._schemas[name])["properties"]
            further = ", ".join(
                f"<code>{escape(member)}</code>"
                for member in own
                if member not in ("code", "status")
            )
            about = _text(self._schemas[name]["description"])
            statuses = _statuses(self._schemas[name])
            rows.append(
                (f"<code id='{escape(name)}'>{escape(code)}</code>", statuses, about, further)
            )
        table = _table(("Code", "Status", "Meaning", "Further members"), rows)
        return f"<p>Each is a {_reference('Problem')}, as <code>{_PROBLEM}</code>.</p>{table}"

    def _all_headers(self) -> str:
        return _table(
            ("Header", "Meaning"),
            [
                (
                    f"<code id='header-{escape(name)}'>{escape(name)}</code>",
                    _text(each["description"]),
                )
                for name, each in self._document["components"]["headers"].items()
            ],
        )

    def _about(self, schema: Json) -> str:
        about = schema.get("description")
        rows = [
            (f"<code>{escape(name)}</code>", _kind(each), "" if is_there else "optional", words)
            for name, each, is_there, words in _members(schema)
        ]
        choices = schema.get("anyOf", ())
        listed = "".join(f"<li>{_kind(each)}</li>" for each in choices)
        return (
            (f"<p>{_text(about)}</p>" if about else "")
            + (_table(("Member", "Type", "", "Meaning"), rows) if rows else "")
            + (f"<ul>{listed}</ul>" if listed else "")
        )


# -- pieces ----------------------------------------------------------------------------------


def _parameters(parameters: list[Json]) -> str:
    rows = [
        (
            f"<code>{escape(each['name'])}</code>",
            escape(each["in"]),
            _kind(each["schema"]),
            _text(each["description"]),
        )
        for each in parameters
    ]
    table = _table(("Name", "In", "Type", "Meaning"), rows)
    return f"<h4>Parameters</h4>{table}" if rows else ""


def _members(schema: Json, path: str = "") -> Iterator[tuple[str, Json, bool, str]]:
    """``(dotted name, schema, whether it is always there, words)``, nested ones behind theirs."""
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        yield f"{path}{name}", each, name in required, _text(each.get("description", ""))
        for mark, inner in _nested(each):
            yield from _members(inner, f"{path}{name}{mark}.")


def _nested(schema: Json) -> Iterator[tuple[str, Json]]:
    """What is shown below a member: its own object, or that of its items."""
    for each in schema.get("anyOf", [schema]):
        if "properties" in each:
            yield "", each
        if "properties" in each.get("items", {}):
            yield "[]", each["items"]


def _forms(answer: Json) -> list[str]:
    """The media types of an answer that is no problem, with what each holds."""
    return [
        f"<code>{escape(media)}</code>: {_kind(each.get('x-event-schemas', each['schema']))}"
        for media, each in answer.get("content", {}).items()
        if media != _PROBLEM
    ] or ([] if answer.get("content") else ["none"])


def _kind(schema: Json) -> str:
    """The type in a word, with links to the schemas in it."""
    if "$ref" in schema:
        return _reference(_name_of(schema))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(_kind(each) for each in schema[word])
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(each))}</code>" for each in schema["enum"])
    kind = schema.get("type", "any JSON")
    names = kind if isinstance(kind, list) else [kind]
    return " or ".join(_plain(name, schema) for name in names)


def _plain(name: str, schema: Json) -> str:
    if name == "array":
        return f"list of ({_kind(schema.get('items', {}))})"
    return escape(_TYPES.get(schema.get("format", ""), name) if name == "string" else name)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    first = "".join(f"<th align='left'>{each}</th>" for each in head)
    rest = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table border='1' cellspacing='0' cellpadding='4'><tr>{first}</tr>{rest}</table>"


def _text(words: str) -> str:
    """Escaped, with code and links to places on this page as Markdown has them."""
    marked = _CODE.sub(r"<code>\2</code>", escape(words))
    return _LINK.sub(r"<a href='\2'>\1</a>", marked)


def _reference(name: str) -> str:
    return f"<a href='#{escape(name)}'>{escape(name)}</a>"


def _name_of(schema: Json) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[-1]


def _content(body: Json) -> Json:
    content: Json = body["content"]["application/json"]
    return content


def _own(schema: Json) -> Json:
    """What a schema adds to the one that it is made of; empty where it is of one piece."""
    parts = schema.get("allOf", [])
    own: Json = parts[-1] if parts else {}
    return own


def _code_of(schema: Json) -> str:
    return str(_own(schema).get("properties", {}).get("code", {}).get("const", ""))


def _statuses(problem: Json) -> str:
    return " or ".join(map(str, _own(problem)["properties"]["status"]["enum"]))


def _kind_of_event(schema: Json) -> str:
    return str(_own(schema).get("properties", {}).get("type", {}).get("const", ""))
