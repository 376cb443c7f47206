"""Whether what a person filled in fits the form that an agent asked with.

ACP permits flat forms only: an object whose members are texts, numbers, booleans, or lists of
texts (its elicitation page; schema version 1). A member of a kind that is not known here may hold
any of those values. ``pattern`` and ``format`` are left to the agent: a pattern of its making
could hold up the bridge for ever. What is broken in the form itself forbids nothing.
"""

from __future__ import annotations

from typing import Any, TypeGuard


def fields(params: dict[str, Any]) -> dict[str, Any]:
    """The members of the form in the params of ``elicitation/create``, by name."""
    properties = _schema(params).get("properties")
    return properties if isinstance(properties, dict) else {}


def misfit(params: dict[str, Any], content: dict[str, Any]) -> str | None:
    """Why ``content`` does not fit, in one sentence for the caller; ``None`` if it does."""
    known = fields(params)
    required = _schema(params).get("required")
    for name in required if isinstance(required, list) else []:
        if isinstance(name, str) and name not in content:
            return f"The form requires `{name}`."
    for name, value in content.items():
        if name not in known:
            return f"The form has no field `{name}`."
        if not _fits(_object(known[name]), value):
            return f"`{name}` is not what the form asks for."
    return None


def _schema(params: dict[str, Any]) -> dict[str, Any]:
    return _object(params.get("requestedSchema"))


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _fits(field: dict[str, Any], value: object) -> bool:
    match field.get("type"):
        case "string":
            return isinstance(value, str) and _fits_text(field, value)
        case "integer":
            return _is_integer(value) and _within(field, value, "minimum", "maximum")
        case "number":
            return (_is_integer(value) or isinstance(value, float)) and _within(
                field, value, "minimum", "maximum"
            )
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return _is_texts(value) and _fits_choice(field, value)
    return isinstance(value, str | int | float) or _is_texts(value)


def _fits_text(field: dict[str, Any], value: str) -> bool:
    return _within(field, len(value), "minLength", "maxLength") and _is_offered(field, value)


def _fits_choice(field: dict[str, Any], value: list[str]) -> bool:
    items = _object(field.get("items"))
    return _within(field, len(value), "minItems", "maxItems") and all(
        _is_offered(items, item) for item in value
    )


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _within(field: dict[str, Any], size: Any, low: str, high: str) -> bool:
    least, most = field.get(low), field.get(high)
    is_below = isinstance(least, int | float) and size < least
    is_above = isinstance(most, int | float) and size > most
    return not (is_below or is_above)


def _is_offered(field: dict[str, Any], value: str) -> bool:
    """``enum`` lists values, ``oneOf`` and ``anyOf`` titled ones; none of them: any text."""
    if isinstance(plain := field.get("enum"), list):
        return value in plain
    for name in ("oneOf", "anyOf"):
        if isinstance(titled := field.get(name), list):
            return any(
                isinstance(option, dict) and option.get("const") == value for option in titled
            )
    return True
