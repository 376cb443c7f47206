"""Modes, models and configuration options, kept in step.

Agents say the same thing up to three times: ``modes``, ``models`` and ``configOptions`` whose
categories are ``mode`` and ``model``; some have only one of them. The bridge shows all three in
step, whichever changes. Values are replaced, never mutated, so that a published view stays what
it was. What has no text to be chosen by is not shown as a mode or a model; nothing an agent sends
raises.

Shapes: ``mode`` is ``{current, available: [{id, name, description}]}``, ``model`` is
``{current, available: [{id, name}]}``, ``configOptions`` the agent's own list, verbatim.
Source: ACP, session modes and session config options; Cursor's dialect, where ``modes``,
``models`` and ``configOptions`` arrive together.
"""

from __future__ import annotations

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
    named = _objects(options)
    for each in named:
        if each.get("category") == category:
            return each
    return next((each for each in named if each.get("id") == category), None)


def ids_of(options: Any, category: str) -> set[str]:
    """The ids of every option of a category: an agent may have more than one."""
    return {
        each["id"]
        for each in _objects(options)
        if isinstance(each.get("id"), str) and category in (each.get("category"), each["id"])
    }


def option_ids(options: Any) -> list[str]:
    """The ids of all options, in order."""
    return [each["id"] for each in _objects(options) if isinstance(each.get("id"), str)]


def values_of(option: dict[str, Any]) -> list[Any] | None:
    """The values an option may take, its groups flattened; ``None`` where it names none."""
    listed = option.get("options")
    if not isinstance(listed, list):
        return None
    return [each.get("value") for each in _choices(listed)]


def by_id(options: Any, config_id: str) -> dict[str, Any] | None:
    """The option of this id; ``None`` where there is none."""
    return next((each for each in _objects(options) if each.get("id") == config_id), None)


def _choices(listed: Any) -> list[dict[str, Any]]:
    """What can be chosen, in order: groups are opened, however deep, what is no object left out."""
    found: list[dict[str, Any]] = []
    rest = _objects(listed)[::-1]
    while rest:
        each = rest.pop()
        if isinstance(each.get("options"), list):
            rest += _objects(each["options"])[::-1]
        else:
            found.append(each)
    return found


def _objects(listed: Any) -> list[dict[str, Any]]:
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _shown(each: dict[str, Any], key: str, *others: str) -> dict[str, Any] | None:
    """One that can be chosen, as the Session shows it; ``None`` where it has no id to choose by."""
    chosen = _text(each.get(key))
    if chosen is None:
        return None
    return {"id": chosen} | {name: _text(each.get(name)) for name in ("name", *others)}


def _id_of(option: Any) -> Any:
    return option.get("id") if isinstance(option, dict) else None


def _options(listed: Any) -> list[Any]:
    return list(listed) if isinstance(listed, list) else []


def _mode(modes: Any) -> View | None:
    if not isinstance(modes, dict):
        return None
    listed = [_shown(each, "id", "description") for each in _objects(modes.get("availableModes"))]
    return _view(modes.get("currentModeId"), listed)


def _model(models: Any) -> View | None:
    if not isinstance(models, dict):
        return None
    listed = [_shown(each, "modelId") for each in _objects(models.get("availableModels"))]
    return _view(models.get("currentModelId"), listed)


def _from_option(option: dict[str, Any] | None, category: str) -> View | None:
    if option is None:
        return None
    others = ("description",) if category == "mode" else ()
    listed = [_shown(each, "value", *others) for each in _choices(option.get("options"))]
    return _view(option.get("currentValue"), listed)


def _view(current: Any, listed: list[dict[str, Any] | None]) -> View:
    return {"current": _text(current), "available": [each for each in listed if each is not None]}


def _described(fresh: list[dict[str, Any]], known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Descriptions that ``modes`` gave and the option list leaves out."""
    by_id = {each.get("id"): each.get("description") for each in known}
    return [
        each if each.get("description") else {**each, "description": by_id.get(each.get("id"))}
        for each in fresh
    ]
