"""The page at /docs is enough to write a client from: all of the document is there, linked."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from bridge.api import meanings, openapi, pages, reference

DOCUMENT: dict[str, Any] = openapi.document("1.2.3")
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
OPERATIONS: list[dict[str, Any]] = [
    operation for methods in DOCUMENT["paths"].values() for operation in methods.values()
]


class Read(HTMLParser):
    """What a page links to, its ids, and the text inside each element that has an id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.texts: dict[str, str] = {}
        self.targets: dict[str, set[str]] = {}
        self._open: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        name = given.get("id") or ""
        if name:
            self.ids.append(name)
        if tag not in ("meta", "br"):
            self._open.append((tag, name))
        if link := given.get("href"):
            self.links.append(link)
            for _, each in self._open:
                self.targets.setdefault(each, set()).add(link)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for _, each in self._open:
            self.texts[each] = self.texts.get(each, "") + data + " "


PAGE = Read(reference.page(DOCUMENT))


def named(schema: dict[str, Any]) -> set[str]:
    """The names of the schemas that a schema refers to, itself or in what it is made of."""
    found = set(re.findall(r"'#/components/schemas/(\w+)'", str(schema)))
    return {name for name in found if not name.endswith("Problem") or name == "Problem"}


def test_every_link_of_the_pages_leads_somewhere() -> None:
    assert len(PAGE.links) > 300
    assert [link for link in PAGE.links if link[:1] != "#" or link[1:] not in PAGE.ids] == []
    assert len(PAGE.ids) == len(set(PAGE.ids))
    public = {
        path
        for path, methods in DOCUMENT["paths"].items()
        if methods.get("get", {}).get("security") == []
    }
    assert set(Read(pages.INDEX).links) <= public


def test_the_pages_are_plain_and_load_nothing() -> None:
    for page in (PAGE, Read(pages.INDEX)):
        assert page.tags & {"script", "style", "link", "img", "iframe", "form"} == set()
    assert "`" not in " ".join(PAGE.texts.values())


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: str(each["operationId"]))
def test_an_operation_is_shown_with_all_there_is_to_it(operation: dict[str, Any]) -> None:
    name = operation["operationId"]
    text, links = PAGE.texts[name], PAGE.targets.get(name, set())
    for each in operation["parameters"]:
        assert each["name"] in text and said(each["description"]) in text
    if "requestBody" in operation:
        (body,) = named(operation["requestBody"])
        for member, each in SCHEMAS[body]["properties"].items():
            assert member in text and said(each["description"]) in text
            assert {f"#{inner}" for inner in named(each)} <= links
    for status, answer in operation["responses"].items():
        content = dict(answer.get("content", {}))
        problem = content.pop("application/problem+json", None)
        if content or problem is None:
            assert f" {status} " in f" {text}" and said(answer["description"]) in text
            assert {f"#{inner}" for inner in named(content)} <= links
            assert all(media in text for media in content)
    assert (operation["x-required-scope"] or "no token") in text


def test_a_problem_is_a_link_at_its_operations_and_one_row_of_the_table() -> None:
    of_all = set.intersection(*(problems_of(each) for each in OPERATIONS))
    for operation in OPERATIONS:
        links = PAGE.targets.get(operation["operationId"], set())
        assert {f"#{name}" for name in problems_of(operation) - of_all} <= links
        assert not {f"#{name}" for name in of_all} & links
    assert {name for name in SCHEMAS if name.endswith("Problem")} <= set(PAGE.ids)


def test_every_event_is_shown_with_its_params() -> None:
    events = {name: each for name, each in SCHEMAS.items() if re.fullmatch(r"Event[A-Z]\w+", name)}
    del events["EventPage"]
    assert len(events) > 15
    for name, schema in events.items():
        own = schema["allOf"][1]["properties"]
        assert own["type"]["const"] in PAGE.texts[name]
        assert own["params"]["properties"]
        for member, each in own["params"]["properties"].items():
            assert member in PAGE.texts[name]
            assert {f"#{inner}" for inner in named(each)} <= PAGE.targets[name]


def test_members_inside_of_members_are_shown_by_their_path() -> None:
    text = PAGE.texts["Permissions"]
    for path in ("rules[].match.path", "rules[].reply", "onTimeout.afterSeconds"):
        assert path in text
    assert "allow_always" in text


def test_every_member_has_its_words_and_no_words_are_left_over() -> None:
    missing, found = [], set()
    for name in SCHEMAS:
        if "allOf" in SCHEMAS[name]:
            continue
        for path in paths(SCHEMAS[name]):
            found.add((name, path))
            if path not in meanings.MEMBERS.get(name, {}):
                missing.append((name, path))
    assert missing == []
    assert {(name, path) for name, each in meanings.MEMBERS.items() for path in each} <= found
    names, parameters = set(), set()
    for operation in OPERATIONS:
        name = operation["operationId"]
        names |= {(name, int(status)) for status in operation["responses"]}
        parameters |= {(name, each["name"]) for each in operation["parameters"]}
    assert set(meanings.ANSWERS) <= names
    assert set(meanings.PARAMETERS) <= parameters


def test_answers_of_one_operation_are_told_apart() -> None:
    for operation in OPERATIONS:
        told = [
            answer["description"]
            for answer in operation["responses"].values()
            if set(answer.get("content", {})) != {"application/problem+json"}
        ]
        assert len(told) == len(set(told)), operation["operationId"]


def problems_of(operation: dict[str, Any]) -> set[str]:
    """The problems that an operation may be answered with."""
    return set(re.findall(r"'#/components/schemas/(\w+Problem)'", str(operation["responses"])))


def paths(schema: dict[str, Any], before: str = "") -> list[str]:
    """The dotted paths of all members that are shown with a schema."""
    found: list[str] = []
    for member, each in schema.get("properties", {}).items():
        found.append(f"{before}{member}")
        for inner in each.get("anyOf", [each]):
            found += paths(inner, f"{before}{member}.")
            found += paths(inner.get("items", {}), f"{before}{member}[].")
    return found


def said(words: str) -> str:
    """Words as the page's text has them: without backticks, which are elements there."""
    return re.split(r"[`\[<]", words)[0].strip()
