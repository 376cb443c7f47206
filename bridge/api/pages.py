"""The two pages without a build step: where one lands, and the contract for people.

Both work offline, load nothing from anywhere and run no script, so the strictest content policy
fits them.
"""

from __future__ import annotations

from html import escape
from typing import Any

INDEX = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>cursor-acp-bridge</title>
<meta name="viewport" content="width=device-width, initial-scale=1"></head>
<body>
<main>
<h1>cursor-acp-bridge</h1>
<p>The bridge is running. It speaks HTTP and Server-Sent Events; the token in the address you
opened (after <code>#token=</code>) goes into the <code>Authorization: Bearer</code> header.</p>
<ul>
<li><a href="/docs">The HTTP contract</a></li>
<li><a href="/openapi.json">The same as an OpenAPI document</a></li>
<li><a href="/healthz">Health</a></li>
</ul>
</main>
</body>
</html>
"""


def docs(document: dict[str, Any]) -> str:
    """The OpenAPI document as one page of plain HTML."""
    sections = [
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        f"<section id='{escape(name)}'><h3>{escape(name)}</h3>"
        f"<p>{escape(schema.get('description', ''))}</p>{_members(schema)}</section>"
        for name, schema in document["components"]["schemas"].items()
    ]
    title = escape(document["info"]["title"])
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>{title}</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'></head><body><main>"
        f"<h1>{title} {escape(document['info']['version'])}</h1>"
        f"<p>{escape(document['info'].get('description', ''))}</p>"
        f"<h2>Operations</h2>{''.join(sections)}<h2>Schemas</h2>{''.join(schemas)}"
        "</main></body></html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(answer.get('description', ''))}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    scope = operation.get("x-required-scope") or "none"
    return (
        f"<section id='{escape(operation['operationId'])}'>"
        f"<h3><code>{escape(method.upper())} {escape(path)}</code></h3>"
        f"<p>{escape(operation['summary'])}. Scope: {escape(scope)}.</p>"
        f"<p>{escape(operation.get('description', ''))}</p>"
        f"<table>{rows}</table></section>"
    )


def _members(schema: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(_kind(each))}</td>"
        f"<td>{escape(each.get('description', ''))}</td></tr>"
        for name, each in schema.get("properties", {}).items()
    )
    return f"<table>{rows}</table>" if rows else ""


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " | ".join(_kind(each) for each in schema[word])
    if schema.get("type") == "array":
        return f"[{_kind(schema.get('items', {}))}]"
    kind = schema.get("type", "any")
    return " | ".join(kind) if isinstance(kind, list) else str(kind)
