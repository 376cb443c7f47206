"""The page on the contract, its tests and the document: what one says, the others hold."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from openapi_spec_validator import validate

from bridge.api import openapi
from bridge.api.event_shapes import EVENTS
from bridge.api.operations import OPERATIONS
from bridge.api.problem_shapes import name_of
from bridge.api.problems import KINDS
from bridge.app import VERSION
from bridge.errors import CODES, Code

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text("utf-8")
MANIFEST = tomllib.loads((ROOT / "tests" / "e2e" / "manifest.toml").read_text("utf-8"))
DOCUMENT = openapi.document(VERSION)


def test_each_statement_of_the_page_has_a_test_and_each_entry_a_statement() -> None:
    stated = re.findall(r"^- \*\*([A-Z]\d+)\*\*", PAGE, re.MULTILINE)
    assert len(stated) == len(set(stated)) > 80
    assert set(stated) == set(MANIFEST["statements"])


def test_each_problem_code_has_a_row_and_a_test() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| ([\d, ]+) \|", PAGE, re.MULTILINE))
    statuses: dict[str, str] = {code: str(KINDS[code].status) for code in CODES}
    assert rows == statuses | {"invalid-request": "400, 422"}
    assert set(MANIFEST["codes"]) == set(CODES)


def test_each_test_that_the_manifest_names_exists() -> None:
    for section in MANIFEST.values():
        for named in section.values():
            file, name = named.split("::")
            text = (ROOT / "tests" / file).read_text("utf-8")
            assert re.search(rf"def {name}\(", text), named


def test_a_test_of_a_code_speaks_of_it() -> None:
    for code, named in MANIFEST["codes"].items():
        text = (ROOT / "tests" / named.split("::")[0]).read_text("utf-8")
        assert code in text or str(KINDS[code].status) in text, code


def test_the_document_is_valid_and_the_committed_one_is_the_codes_own() -> None:
    validate(DOCUMENT)
    committed = (ROOT / "openapi" / "openapi.json").read_text("utf-8")
    assert committed == openapi.text(VERSION), "run scripts/openapi"


def test_every_operation_says_its_scope_its_answers_and_its_problems() -> None:
    for each in OPERATIONS:
        shown = DOCUMENT["paths"][each.path][each.method.lower()]
        assert shown["x-required-scope"] == (" or ".join(each.access.scopes) or None)
        assert shown["operationId"] == each.name and shown["summary"]
        statuses = {str(KINDS[code].status) for code in each.problems}
        assert statuses | {str(status) for status in each.answers} <= set(shown["responses"])


def test_every_problem_and_every_event_is_a_schema_that_is_referred_to() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    text = json.dumps(DOCUMENT)
    for code in CODES:
        assert schemas[name_of(code)]["allOf"][1]["properties"]["code"]["const"] == code
    unused = {name for name in schemas if f'"#/components/schemas/{name}"' not in text}
    of_no_operation: tuple[Code, ...] = (
        "bridge-restarted",
        "turn-stalled",
        "http-method-not-allowed",
    )
    assert unused <= {name_of(code) for code in of_no_operation}
    assert set(EVENTS) <= set(schemas)


def test_every_reference_leads_somewhere() -> None:
    for found in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(DOCUMENT)):
        at: Any = DOCUMENT
        for part in found.split("/"):
            at = at[part]
        assert at
