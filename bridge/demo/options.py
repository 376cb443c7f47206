"""Modes, models and configuration options as Cursor shows them, kept in step.

Rules: ``modes``, ``models`` and ``configOptions`` say the same thing, whichever was set. Model ids
are ACP's (``composer-2.5[fast=true]``); the command line's (``auto``) are unknown here
(OpenMausBot#361). With ``parameterizedModelPicker`` the ids lose their brackets (all but
``default[]``) and the parameters become options of their own, rebuilt after each switch
(zed-industries/zed#57571). An unknown value is -32602.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from bridge.demo.wire import invalid_params

Option = dict[str, Any]

MODES: Final = (
    ("agent", "Agent", "Full agent capabilities with tool access"),
    ("plan", "Plan", "Read-only mode for planning and designing before implementation"),
    ("ask", "Ask", "Q&A mode - no edits or command execution"),
)
DEFAULT_MODEL: Final = "composer-2.5[fast=true]"
_SWITCH: Final = ("true", "false")
_PARAMETERS: Final = {
    "fast": ("Fast", "model_config"),
    "thinking": ("Thinking", "model_config"),
    "context": ("Context", "model_config"),
    "effort": ("Effort", "thought_level"),
    "reasoning": ("Reasoning", "thought_level"),
}


@dataclass(frozen=True, slots=True)
class Model:
    """A model, its parameters with the values they may take, the first being the default."""

    base: str
    name: str
    parameters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variants: tuple[str, ...] = ()

    @property
    def picker_id(self) -> str:
        """Its id where the parameters are options of their own."""
        return self.base if self.parameters else f"{self.base}[]"

    def defaults(self) -> dict[str, str]:
        """Each parameter's default."""
        return {name: values[0] for name, values in self.parameters.items()}


MODELS: Final = (
    Model("default", "Auto", {}, ("default[]",)),
    Model(
        "composer-2.5",
        "Composer 2.5",
        {"fast": _SWITCH},
        ("composer-2.5[fast=true]", "composer-2.5[fast=false]"),
    ),
    Model(
        "claude-opus-4-8",
        "Opus 4.8",
        {
            "thinking": _SWITCH,
            "context": ("300k", "1m"),
            "effort": ("high", "medium", "low"),
            "fast": ("false", "true"),
        },
        ("claude-opus-4-8[thinking=true,context=300k,effort=high,fast=false]",),
    ),
    Model(
        "gpt-5.4",
        "GPT-5.4",
        {"reasoning": ("medium", "low", "high"), "context": ("272k", "1m"), "fast": _SWITCH[::-1]},
        ("gpt-5.4[reasoning=medium,context=272k,fast=false]",),
    ),
    Model("gemini-3.1-pro", "Gemini 3.1 Pro", {}, ("gemini-3.1-pro[]",)),
)


class Options:
    """One session's mode, model and parameters."""

    def __init__(self, model_id: str = DEFAULT_MODEL, *, has_picker: bool = False) -> None:
        self.mode = "agent"
        self._has_picker = has_picker
        self._model, self._values = _lookup(model_id)
        self._variant = model_id

    @property
    def model_id(self) -> str:
        """The current model as the client knows it."""
        return self._model.picker_id if self._has_picker else self._variant

    @property
    def model_name(self) -> str:
        """The current model as a person knows it."""
        return self._model.name

    def state(self) -> dict[str, Any]:
        """``{modes, models, configOptions}``, the part of a session/new result that is settable."""
        return {
            "modes": {
                "currentModeId": self.mode,
                "availableModes": [
                    {"id": mode_id, "name": name, "description": description}
                    for mode_id, name, description in MODES
                ],
            },
            "models": {
                "currentModelId": self.model_id,
                "availableModels": [
                    {"modelId": model_id, "name": name} for model_id, name in self._offered()
                ],
            },
            "configOptions": self.config_options(),
        }

    def config_options(self) -> list[Option]:
        """The options: the mode, the model, and with the picker the model's parameters."""
        listed: list[Option] = [
            _select("mode", "Mode", "mode", self.mode, []),
            _select("model", "Model", "model", self.model_id, self._offered()),
        ]
        listed[0]["options"] = [
            {"value": mode_id, "name": name, "description": description}
            for mode_id, name, description in MODES
        ]
        if self._has_picker:
            listed.extend(self._parameter_options())
        return listed

    def set(self, config_id: str, value: Any) -> None:
        """Set any option. Raises -32602."""
        if config_id == "mode":
            self.set_mode(value)
        elif config_id == "model":
            self.set_model(value)
        else:
            self._set_parameter(config_id, value)

    def set_mode(self, mode_id: Any) -> None:
        """Choose a mode. Raises -32602."""
        if mode_id not in [known for known, _, _ in MODES]:
            raise invalid_params(f"Invalid mode: {mode_id}")
        self.mode = mode_id

    def set_model(self, model_id: Any) -> None:
        """Choose a model, by an id with brackets or one that is offered. Raises -32602."""
        self._model, self._values = _lookup(model_id, has_picker=self._has_picker)
        self._variant = model_id

    def _set_parameter(self, config_id: str, value: Any) -> None:
        known = self._model.parameters if self._has_picker else {}
        if config_id not in known:
            raise invalid_params(f"Unknown config option: {config_id}")
        if value not in known[config_id]:
            raise invalid_params(f"Invalid value for {config_id}: {value}")
        self._values = {**self._values, config_id: value}

    def _offered(self) -> list[tuple[str, str]]:
        if self._has_picker:
            return [(model.picker_id, model.name) for model in MODELS]
        return [(variant, model.name) for model in MODELS for variant in model.variants]

    def _parameter_options(self) -> list[Option]:
        return [
            _select(
                name,
                _PARAMETERS[name][0],
                _PARAMETERS[name][1],
                self._values[name],
                [(value, _label(value)) for value in values],
            )
            for name, values in self._model.parameters.items()
        ]


def available_models() -> dict[str, Any]:
    """The result of ``cursor/list_available_models``: each model with its own options."""
    listed = []
    for model in MODELS:
        shown = Options(model.variants[0], has_picker=True)
        listed.append(
            {
                "value": model.picker_id,
                "name": model.name,
                "configOptions": shown.config_options()[2:],
            }
        )
    return {"models": listed}


def _lookup(model_id: Any, *, has_picker: bool = False) -> tuple[Model, dict[str, str]]:
    for model in MODELS:
        if has_picker and model_id == model.picker_id:
            return model, model.defaults()
        if model_id in model.variants:
            return model, {**model.defaults(), **_values_in(model_id)}
    raise invalid_params(f"Invalid model: {model_id}")


def _values_in(model_id: str) -> dict[str, str]:
    inner = model_id.partition("[")[2].rstrip("]")
    pairs = (pair.partition("=") for pair in inner.split(",") if pair)
    return {name: value for name, _, value in pairs}


def _select(
    option_id: str, name: str, category: str, current: str, values: list[tuple[str, str]]
) -> Option:
    return {
        "id": option_id,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": current,
        "options": [{"value": value, "name": label} for value, label in values],
    }


def _label(value: str) -> str:
    return {"true": "On", "false": "Off"}.get(value, value.capitalize())
