"""Bodies that callers send, checked strictly: what is not named here is refused.

Member names are the contract's camelCase. What only the agent can judge (content blocks, MCP
servers, permission rules, replies) is typed loosely here and checked where it is used.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

JsonObject = dict[str, Any]
Name = Annotated[str, Field(min_length=1, max_length=512)]
Rules = Annotated[
    JsonObject, WithJsonSchema({"$ref": "#/components/schemas/Permissions"}, mode="validation")
]
Path = Annotated[str, Field(min_length=1, max_length=4096)]


class Body(BaseModel):
    """A request body; unknown members are errors."""

    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, validate_by_name=False, strict=True
    )


class CreateSessionBody(Body):
    """POST /v1/sessions."""

    agent: Name | None = None
    cwd: Path | None = None
    title: Annotated[str, Field(max_length=1024)] | None = None
    mode: Name | None = None
    model: Name | None = None
    config: dict[str, str | bool] = Field(default_factory=dict)
    additional_directories: Annotated[list[Path], Field(max_length=64)] = Field(
        default_factory=list
    )
    mcp_servers: Annotated[list[JsonObject], Field(max_length=64)] = Field(default_factory=list)
    metadata: JsonObject = Field(default_factory=dict)
    permissions: Rules | None = None
    resume: Name | None = None
    meta: JsonObject | None = Field(default=None, alias="_meta")


class PatchSessionBody(Body):
    """PATCH /v1/sessions/{sessionId}; ``metadata`` is a merge patch (RFC 7396)."""

    title: Annotated[str, Field(max_length=1024)] | None = None
    metadata: JsonObject | None = None
    permissions: Rules | None = None


class ContentBlock(BaseModel):
    """An ACP content block; members beyond ``type`` are passed on as they are."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: Name


class PromptBody(Body):
    """POST …/prompt."""

    prompt: (
        Annotated[str, Field(min_length=1)]
        | Annotated[list[ContentBlock], Field(min_length=1, max_length=1024)]
    )
    on_busy: Literal["reject", "queue", "interrupt"] = "reject"
    on_lost: Literal["fail", "new"] = "fail"
    resend_cancelled: bool = False
    meta: JsonObject | None = Field(default=None, alias="_meta")

    def blocks(self) -> tuple[JsonObject, ...]:
        """The prompt as content blocks."""
        if isinstance(self.prompt, str):
            return ({"type": "text", "text": self.prompt},)
        return tuple(block.model_dump() for block in self.prompt)


class CancelBody(Body):
    """POST …/cancel; everything may be left out."""

    turn_id: Name | None = None
    hard: bool = False


class CancelTurnBody(Body):
    """POST …/turns/{turnId}/cancel."""

    hard: bool = False


class ModeBody(Body):
    """PUT …/mode."""

    mode_id: Name


class ModelBody(Body):
    """PUT …/model."""

    model_id: Name


class ConfigBody(Body):
    """PUT …/config/{configId}."""

    value: str | bool


class ExtensionBody(Body):
    """POST …/ext."""

    method: Name
    params: JsonObject = Field(default_factory=dict)


class Answered(BaseModel):
    """One answered question."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    question_id: str
    selected_option_ids: list[str]


class ProceedBody(BaseModel):
    """What follows an accepted plan."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    mode_id: str | None = None
    prompt: str


class ReplyBody(BaseModel):
    """POST …/reply: one flat form; which members fit depends on the request's kind."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    outcome: (
        Literal["selected", "answered", "skipped", "accepted", "rejected", "cancelled"] | None
    ) = None
    option_id: str | None = None
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"] | None = None
    answers: list[Answered] | None = None
    reason: str | None = None
    plan_uri: str | None = None
    proceed: ProceedBody | None = None
    action: Literal["accept", "decline", "cancel"] | None = None
    content: JsonObject | None = None
    result: Any = None
    error: JsonObject | None = None
