"""Setting an agent's mode, model and options, and what is on offer.

``session/set_config_option`` is used where the agent offers an option for it, the older
``session/set_mode`` and ``session/set_model`` otherwise. What is not offered is refused with
``available``; whether an offered model really answers only its use shows (openabdev/openab#493).
"""

from __future__ import annotations

from typing import Any

from bridge.errors import AgentError, BridgeError, CallerError, Code
from bridge.principal import Principal
from bridge.protocol import acp, options
from bridge.runtime.services import Services
from bridge.runtime.session import LiveSession


def check_mode(session: LiveSession, mode_id: str) -> None:
    """Raises ``mode-not-available``, with what there is, for a mode that is not offered."""
    _check(session, "mode", mode_id)


async def set_mode(session: LiveSession, mode_id: str) -> None:
    """Choose a mode. Raises ``mode-not-available`` with what there is."""
    check_mode(session, mode_id)
    await _choose(session, "mode", mode_id, "session/set_mode", acp.set_mode)


async def set_model(session: LiveSession, model_id: str) -> None:
    """Choose a model by its ACP id (``default[]``; Cursor's CLI names are another namespace)."""
    _check(session, "model", model_id)
    await _choose(session, "model", model_id, "session/set_model", acp.set_model)


async def set_option(session: LiveSession, config_id: str, value: Any) -> None:
    """Set a configuration option. Raises ``config-not-available``."""
    listed = session.projection.view.get("configOptions")
    option = options.by_id(listed, config_id)
    if option is None:
        raise CallerError(
            "config-not-available",
            f"The agent has no option {config_id!r}.",
            available=options.option_ids(listed),
        )
    offered = options.values_of(option)
    if offered is not None and value not in offered:
        raise CallerError(
            "config-not-available",
            f"The option {config_id!r} has no value {value!r}.",
            available=offered,
        )
    await _set_option(session, config_id, value)
    session.commit()


def check_choices(
    services: Services,
    agent: str,
    principal: Principal,
    mode: str | None,
    config: dict[str, Any],
    listed: Any = None,
) -> None:
    """A mode outside the agent's safe ones approves by itself, so it needs that scope.

    ``config`` may choose the mode too: by an option of that category in ``listed``, or by one
    named ``mode``. Raises ``forbidden``.
    """
    safe = services.agent(agent).safe_modes
    if safe is None or principal.may("approve"):
        return
    names = {"mode"} | options.ids_of(listed, "mode")
    chosen = [mode] if mode is not None else []
    chosen += [str(value) for name, value in config.items() if name in names]
    for each in chosen:
        if each not in safe:
            raise CallerError("forbidden", f"The mode {each!r} needs the scope 'approve' as well.")


async def leave_unsafe(session: LiveSession, principal: Principal) -> None:
    """Out of the mode an agent starts in, where the caller could not have chosen that one.

    Into the first of the safe modes that is offered. Raises ``forbidden`` where none is.
    """
    safe = session.services.agent(session.agent).safe_modes
    mode = session.projection.view.get("mode")
    if safe is None or principal.may("approve") or not mode or mode["current"] in safe:
        return
    offered = next((each for each in safe if each in _ids(mode)), None)
    if offered is None:
        raise CallerError(
            "forbidden",
            f"This agent starts in the mode {mode['current']!r}, which needs the scope 'approve'.",
        )
    await set_mode(session, offered)


async def restore(session: LiveSession, before: dict[str, Any]) -> None:
    """Ask again for what was chosen before; what is no longer offered is said as a warning."""
    for category, method in (("mode", set_mode), ("model", set_model)):
        chosen = (before.get(category) or {}).get("current")
        current = (session.projection.view.get(category) or {}).get("current")
        if chosen is not None and chosen != current:
            await _try(session, f"{category} {chosen}", method(session, chosen))
    wanted = {each["id"]: each.get("currentValue") for each in _plain(before)}
    for option in _plain(session.projection.view):
        value = wanted.get(option["id"], option.get("currentValue"))
        if value != option.get("currentValue"):
            await _try(session, option["id"], set_option(session, option["id"], value))


async def apply_choices(
    session: LiveSession, *, mode: str | None, model: str | None, config: dict[str, Any]
) -> None:
    """What a caller asked for at the start of a session, in the order agents need.

    The model first, since the other options are rebuilt after each switch.
    """
    if model is not None:
        await set_model(session, model)
    if mode is not None:
        await set_mode(session, mode)
    for config_id, value in config.items():
        await set_option(session, config_id, value)


async def apply_defaults(session: LiveSession) -> None:
    """The configuration's default model and mode; one that is not offered is said as a warning.

    Cursor starts with whatever was chosen last on the box (donovan-yohan/relay-ide#1590).
    """
    agent = session.services.agent(session.agent)
    for category, value, method in (
        ("model", agent.default_model, set_model),
        ("mode", agent.default_mode, set_mode),
    ):
        known = session.projection.view.get(category)
        if not value or not known or not _ids(known):
            continue
        if (offered := _offered_as(value, _ids(known))) is None:
            detail = f"The agent offers no {category} {value}; it goes on with {known['current']}."
            session.note("default-not-offered", detail)
            session.commit()
        elif offered != known["current"]:
            await _try(session, f"{category} {offered}", method(session, offered))


async def _try(session: LiveSession, what: str, doing: Any) -> None:
    try:
        await doing
    except BridgeError as error:
        if error.code == "agent-exited":
            raise
        session.note("option-not-restored", f"{what}: {error.detail}")
        session.commit()


def _plain(view: dict[str, Any]) -> list[dict[str, Any]]:
    """Options that are neither the mode nor the model."""
    return [
        each
        for each in view.get("configOptions") or []
        if isinstance(each, dict)
        and isinstance(each.get("id"), str)
        and each.get("category") not in ("mode", "model")
        and each["id"] not in ("mode", "model")
    ]


def _ids(known: dict[str, Any]) -> list[Any]:
    return [each.get("id") for each in known.get("available") or []]


def _offered_as(value: str, offered: list[Any]) -> str | None:
    """The configured id as it is offered; None where it is not.

    With the model picker Cursor names models without what stands in brackets otherwise
    (tiann/hapi#967), so ``default[]`` is also ``default``, where that is one model.
    """
    if value in offered:
        return value
    bare = value.removesuffix("[]")
    found = [each for each in offered if isinstance(each, str) and each.split("[")[0] == bare]
    return found[0] if len(found) == 1 else None


def _check(session: LiveSession, category: str, value: str) -> None:
    known = session.projection.view.get(category)
    available = _ids(known) if known else []
    if value not in available:
        code: Code = "mode-not-available" if category == "mode" else "model-not-available"
        raise CallerError(code, f"The agent offers no {category} {value!r}.", available=available)


async def _choose(
    session: LiveSession, category: str, value: str, method: str, params: Any
) -> None:
    option = options.find(session.projection.view.get("configOptions"), category)
    if option is not None and value in (options.values_of(option) or []):
        try:
            await _set_option(session, option["id"], value)
        except AgentError as error:
            agent_error = error.extra.get("agentError") or {}
            if agent_error.get("code") != -32601:
                raise
            option = None
    else:
        option = None
    if option is None:
        await _call(session, method, params(session.agent_session_id or "", value))
    session.change(**options.with_current(session.projection.view, category, value))
    session.commit()


async def _set_option(session: LiveSession, config_id: str, value: Any) -> None:
    params = acp.set_config_option(session.agent_session_id or "", config_id, value)
    result = await _call(session, "session/set_config_option", params)
    echoed = result.get("configOptions") if isinstance(result, dict) else None
    view = session.projection.view
    if isinstance(echoed, list):
        session.change(**options.with_options(view, echoed))
    else:
        session.change(**options.with_value(view, config_id, value))
    session.commit()


async def _call(session: LiveSession, method: str, params: bytes) -> Any:
    if session.link is None or not session.link.is_alive:
        raise AgentError("agent-exited", "The agent process has ended.")
    limit_s = session.services.settings.limits.call_s
    return await session.link.call(method, params, limit_s=limit_s)
