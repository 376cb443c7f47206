"""Modes, models and options: one view of three, whatever shapes an agent sends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocol import options, todos, view

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
NAMES = st.sampled_from(["mode", "model", "x"]) | ANYTHING


def objects(**members: Any) -> st.SearchStrategy[Any]:
    """Objects with any of these members, or something else."""
    return st.fixed_dictionaries({}, optional=members) | ANYTHING


CHOICES = st.lists(objects(id=NAMES, modelId=NAMES, value=NAMES, name=NAMES, options=ANYTHING))
OPTIONS = (
    st.lists(
        objects(id=NAMES, category=NAMES, currentValue=NAMES, options=CHOICES | ANYTHING),
        max_size=4,
    )
    | ANYTHING
)
RESULTS = objects(
    modes=objects(currentModeId=NAMES, availableModes=CHOICES | ANYTHING),
    models=objects(currentModelId=NAMES, availableModels=CHOICES | ANYTHING),
    configOptions=OPTIONS,
)
KINDS = st.sampled_from(sorted(view.FOLDED_UPDATES))
UPDATES = objects(
    sessionUpdate=KINDS,
    currentModeId=NAMES,
    configOptions=OPTIONS,
    availableCommands=ANYTHING,
    entries=ANYTHING,
    title=ANYTHING,
)


def is_shown(chosen: Any) -> bool:
    """Whether a mode or model has the shape that the document promises."""
    if chosen is None:
        return True
    texts = [each for choice in chosen["available"] for each in choice.values()]
    has_ids = all(isinstance(choice["id"], str) for choice in chosen["available"])
    return has_ids and all(
        each is None or isinstance(each, str) for each in [*texts, chosen["current"]]
    )


@given(RESULTS, st.lists(UPDATES, max_size=4), ANYTHING)
def test_whatever_an_agent_sends_the_view_keeps_its_shape(
    result: Any, updates: list[Any], value: Any
) -> None:
    shown = options.from_result(result)
    for update in updates:
        conveyed, implied = view.fold_update(shown, update)
        shown = shown | conveyed | implied
    listed = shown["configOptions"]
    shown = shown | options.with_value(shown, "mode", value)
    assert is_shown(shown["mode"]) and is_shown(shown["model"])
    assert isinstance(shown["configOptions"], list)
    assert set(options.option_ids(listed)) >= options.ids_of(listed, "model")
    for name in options.option_ids(listed):
        assert options.by_id(listed, name) is not None


@given(st.lists(objects(id=NAMES, content=NAMES, title=NAMES, status=NAMES)), objects(merge=NAMES))
def test_whatever_an_agent_calls_a_todo_the_list_keeps_its_shape(given_: Any, more: Any) -> None:
    params = {**(more if isinstance(more, dict) else {}), "todos": given_}
    merged = todos.merge([], params)
    assert all(isinstance(todo["content"], str) for todo in merged)
    assert all(isinstance(todo["status"], str) for todo in merged)
    assert todos.merge(merged, params) == merged


def test_groups_of_choices_are_opened_however_deep() -> None:
    deep: Any = {"value": "a"}
    for _ in range(5000):
        deep = {"options": [deep]}
    assert options.values_of({"options": [deep, {"value": "b"}]}) == ["a", "b"]


@pytest.mark.parametrize("value", [5, None, {"a": 1}, ["plan"]])
def test_what_is_no_text_is_no_choice(value: Any) -> None:
    option = {"id": "mode", "currentValue": value, "options": [{"value": value}, {"value": "plan"}]}
    shown = options.from_result({"configOptions": [option]})
    assert shown["mode"] == {
        "current": None,
        "available": [{"id": "plan", "name": None, "description": None}],
    }
    assert shown["configOptions"] == [option]
