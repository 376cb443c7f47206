"""Modes, models and configuration options, kept in step.

Agents say the same thing up to three times: ``modes``, ``models`` and ``configOptions`` whose
categories are ``mode`` and ``model``; some have only one of them. The bridge shows all three in
step, whichever changes. Values are replaced, never mutated, so that a published view stays what
it was.

Shapes: ``mode`` is ``{current, available: [{id, name, description}]}``, ``model`` is
``{current, available: [{id, name}]}``, ``configOptions`` the agent's own list, verbatim.
Source: ACP, session modes and session config options; Cursor's dialect, where ``modes``,
``models`` and ``configOptions`` arrive together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

View = dict[str, Any]

_CATEGORIES: Final = ("mode", "model")


def from_result(result: Any) -> View:
    """``mode``, ``model`` and ``configOptions`` of a session/new or session/load result."""
    if not isinstance(result, dict):
        return {"mode": None, "model": None, "configOptions": []}
    found: View = {
        "mode": _mode(result.get("modes")),
        "model": _model(result.get("models")),
        "configOptions": _options(result.get("configOptions")),
    }
    for category in _CATEGORIES:
        if found[category] is None:
            found[category] = _from_option(find(found["configOptions"], category), category)
    return found


def with_options(view: View, options: Any) -> View:
    """What changes when the agent reports all its options anew."""
    listed = _options(options)
    changed: View = {"configOptions": listed}
    for category in _CATEGORIES:
        option = find(listed, category)
        fresh = _from_option(option, category)
        if fresh is None:
            continue
        known = view.get(category)
        if known and isinstance(known.get("available"), list) and not fresh["available"]:
            fresh["available"] = known["available"]
        if category == "mode" and known:
            fresh["available"] = _described(fresh["available"], known["available"])
        changed[category] = fresh
    return changed


def with_current(view: View, category: str, value: str) -> View:
    """What changes when the mode or the model becomes ``value``."""
    known = view.get(category) or {"current": None, "available": []}
    changed: View = {category: {**known, "current": value}}
    listed: list[Any] = view.get("configOptions") or []
    option = find(listed, category)
    if option is not None and option.get("currentValue") != value:
        changed["configOptions"] = [
            {**each, "currentValue": value} if each is option else each for each in listed
        ]
    return changed


def with_value(view: View, config_id: str, value: Any) -> View:
    """What changes when one option is set and the agent did not echo them all."""
    listed: list[Any] = view.get("configOptions") or []
    replaced = [
        {**each, "currentValue": value} if _id_of(each) == config_id else each for each in listed
    ]
    return with_options(view, replaced)


def find(options: Any, category: str) -> dict[str, Any] | None:
    """The option that stands for ``mode`` or ``model``, by its category, else by its id."""
    if not isinstance(options, list):
        return None
    named = [each for each in options if isinstance(each, dict)]
    for each in named:
        if each.get("category") == category:
            return each
    return next((each for each in named if each.get("id") == category), None)


def ids_of(options: Any, category: str) -> set[str]:
    """The ids of every option of a category: an agent may have more than one."""
    listed = options if isinstance(options, list) else []
    return {
        each["id"]
        for each in listed
        if isinstance(_id_of(each), str) and category in (each.get("category"), each["id"])
    }


def option_ids(options: Any) -> list[str]:
    """The ids of all options, in order."""
    return [each["id"] for each in options or [] if isinstance(_id_of(each), str)]


def values_of(option: dict[str, Any]) -> list[Any] | None:
    """The values an option may take, its groups flattened; ``None`` where it names none."""
    listed = option.get("options")
    if not isinstance(listed, list):
        return None
    return [each.get("value") for each in _choices(listed)]


def _choices(listed: list[Any]) -> Iterator[dict[str, Any]]:
    for each in listed:
        if not isinstance(each, dict):
            continue
        if isinstance(each.get("options"), list):
            yield from _choices(each["options"])
        else:
            yield each


def _id_of(option: Any) -> Any:
    return option.get("id") if isinstance(option, dict) else None


def _options(listed: Any) -> list[Any]:
    return list(listed) if isinstance(listed, list) else []


def _mode(modes: Any) -> View | None:
    if not isinstance(modes, dict):
        return None
    available = [
        {"id": each.get("id"), "name": each.get("name"), "description": each.get("description")}
        for each in modes.get("availableModes") or []
        if isinstance(each, dict)
    ]
    return {"current": modes.get("currentModeId"), "available": available}


def _model(models: Any) -> View | None:
    if not isinstance(models, dict):
        return None
    available = [
        {"id": each.get("modelId"), "name": each.get("name")}
        for each in models.get("availableModels") or []
        if isinstance(each, dict)
    ]
    return {"current": models.get("currentModelId"), "available": available}


def _from_option(option: dict[str, Any] | None, category: str) -> View | None:
    if option is None:
        return None
    available: list[dict[str, Any]] = []
    for each in _choices(option.get("options") or []):
        shown = {"id": each.get("value"), "name": each.get("name")}
        if category == "mode":
            shown["description"] = each.get("description")
        available.append(shown)
    return {"current": option.get("currentValue"), "available": available}


def _described(fresh: list[dict[str, Any]], known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Descriptions that ``modes`` gave and the option list leaves out."""
    by_id = {each.get("id"): each.get("description") for each in known}
    return [
        each if each.get("description") else {**each, "description": by_id.get(each.get("id"))}
        for each in fresh
    ]
