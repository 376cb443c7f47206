"""What a body must be, said in the words of JSON and at a place that is in the body."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.api import schemas
from bridge.api.reading import checked
from bridge.errors import CallerError

CLASSES = [each for each in vars(schemas).values() if isinstance(each, type)]


def errors_of(model: type[Any], body: object) -> list[dict[str, str]]:
    """What is said of a body that does not fit."""
    with pytest.raises(CallerError) as caught:
        checked(model, body)
    assert caught.value.code == "invalid-request"
    errors: list[dict[str, str]] = caught.value.extra["errors"]
    return errors


@pytest.mark.parametrize(
    ("model", "body", "pointers"),
    [
        (schemas.CreateSessionBody, [1], ["#"]),
        (schemas.CreateSessionBody, {"mcpServers": [{}, 3]}, ["#/mcpServers/1"]),
        (schemas.CreateSessionBody, {"a/b~ é%": 1}, ["#/a~1b~0%20%C3%A9%25"]),
        (schemas.CreateSessionBody, {"config": {"x/y": 1}}, ["#/config/x~1y"]),
        (schemas.PromptBody, {}, ["#/prompt"]),
        (schemas.PromptBody, {"prompt": 5}, ["#/prompt"]),
        (schemas.PromptBody, {"prompt": ["x"]}, ["#/prompt", "#/prompt/0"]),
        (schemas.PromptBody, {"prompt": [{"type": 1}]}, ["#/prompt", "#/prompt/0/type"]),
        (schemas.PromptBody, {"prompt": [{}]}, ["#/prompt", "#/prompt/0/type"]),
    ],
)
def test_a_pointer_is_where_the_fault_lies_in_the_body(
    model: type[Any], body: object, pointers: list[str]
) -> None:
    """RFC 6901, section 6: ``#`` is the whole document; branches of a union are no places."""
    found = [each["pointer"] for each in errors_of(model, body)]
    assert sorted(set(found)) == pointers


@given(
    st.recursive(
        st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["prompt", "type"]), inner),
    ).filter(lambda body: not isinstance(body, dict) or "type" in body)
)
def test_a_pointer_leads_somewhere_and_no_class_is_named(body: object) -> None:
    for error in errors_of(schemas.PromptBody, body):
        assert not any(each.__name__ in error["detail"] for each in CLASSES)
        place: Any = body
        parts = [unquote(part) for part in error["pointer"].split("/")[1:]]
        for part in parts if "required" not in error["detail"] else parts[:-1]:
            place = place[int(part) if re.fullmatch("[0-9]+", part) else part]
        json.dumps(place)
