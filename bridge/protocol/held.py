"""The agent's requests that wait for a person: what they are, and which one answer each gets.

Owns the kinds of held requests, the table of those that wait, and the answers that the bridge
gives without asking anybody. Rules:

* a request is a row, not a task: the agent waits because no line has reached it yet;
* a row leaves ``pending`` once, by an answer or by a withdrawal, and never comes back;
* whoever makes it leave holds the one ``Answer`` that is to be written to the agent.

Whether a reply fits its request is ``replies``' business, who may decide by rule ``rules``'.
Knows nothing of time (moments come in as RFC 3339 text), of processes, or of HTTP.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, Literal

from bridge.errors import CallerError
from bridge.protocol.acp import dumps, loads

Kind = Literal["permission", "question", "plan", "elicitation", "extension"]
Status = Literal["pending", "answered", "withdrawn"]
AnsweredBy = Literal["caller", "policy", "timeout"]
WithdrawnBy = Literal["cancel", "agent-exit", "agent-cancelled", "turn-ended", "session-deleted"]

REQUEST_CANCELLED = -32800
"""The error that says a request was given up (ACP's ``$/cancel_request``, as in LSP)."""

LASTING = "allow_always"

_KINDS: dict[str, Kind] = {
    "session/request_permission": "permission",
    "elicitation/create": "elicitation",
    "cursor/ask_question": "question",
    "cursor/create_plan": "plan",
}
_OPTION_KINDS = frozenset({"allow_once", LASTING, "reject_once", "reject_always"})


def wire_method(method: str) -> str:
    """``method`` without the underscore that some ACP libraries put before ``cursor/``."""
    return method[1:] if method.startswith("_cursor/") else method


def kind_of(method: str) -> Kind | None:
    """How a request of this name is held; ``None``: not held (answered at once, or refused)."""
    name = wire_method(method)
    if name in _AUTOMATIC:
        return None
    if known := _KINDS.get(name):
        return known
    return "extension" if name.startswith(("cursor/", "_")) else None


def decoded(raw: bytes) -> dict[str, Any]:
    """The params of a request as an object; ``{}`` where they are none, or broken."""
    try:
        value = loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


# --- What the bridge answers by itself --------------------------------------------------------


def auto_answer(method: str, params: bytes) -> bytes | None:
    """The result for a request that Cursor documents as a notification, else ``None``.

    They do come with an id (xintaofei/codeg#783), and their outcome must be nested, since a flat
    one is read as the user's cancel (tiann/hapi#1044). What cannot be read is ``rejected``, never
    accepted (xintaofei/codeg#785).
    """
    make = _AUTOMATIC.get(wire_method(method))
    return dumps({"outcome": make(decoded(params))}) if make else None


def _accept_todos(params: dict[str, Any]) -> dict[str, Any]:
    todos = params.get("todos")
    if not isinstance(todos, list):
        return {"outcome": "rejected"}
    return {"outcome": "accepted", "todos": todos}


def _complete_task(params: dict[str, Any]) -> dict[str, Any]:
    echoed = {name: params[name] for name in ("agentId", "durationMs") if name in params}
    return {"outcome": "completed"} | echoed if params else {"outcome": "rejected"}


def _take_image(params: dict[str, Any]) -> dict[str, Any]:
    path = params.get("filePath")
    if not (isinstance(path, str) and path):
        return {"outcome": "rejected"}
    return {"outcome": "generated", "filePath": path}


_AUTOMATIC = {
    "cursor/update_todos": _accept_todos,
    "cursor/task": _complete_task,
    "cursor/generate_image": _take_image,
}


# --- Values -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proceed:
    """What follows an accepted plan: ``mode_id`` (``None``: as it is), then ``prompt``."""

    mode_id: str | None
    prompt: str


@dataclass(frozen=True, slots=True)
class Followup:
    """A ``proceed`` that is to be done: the accepted request, and the token that replied."""

    proceed: Proceed
    request_id: str
    token: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The one answer to a request: ``result`` (JSON) or ``error`` (code, message) for the wire.

    ``outcome`` is the inner outcome, as the contract shows it and repeats are compared by.
    ``is_refusal``: the agent was told no (a turn that it then ends as cancelled was denied).
    """

    result: bytes | None
    error: tuple[int, str] | None
    outcome: dict[str, Any]
    proceed: Proceed | None = None
    is_refusal: bool = False


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a request left ``pending``; ``token`` names the caller's token, ``at`` is RFC 3339."""

    by: AnsweredBy | WithdrawnBy
    token: str | None
    outcome: dict[str, Any]
    at: str

    def as_json(self) -> dict[str, Any]:
        """The contract's ``resolution``."""
        return {"by": self.by, "token": self.token, "outcome": self.outcome, "at": self.at}


@dataclass(frozen=True, slots=True)
class HeldRequest:
    """One request of the agent; ``params`` and ``rpc_id`` are the bytes it sent.

    ``tool_call`` is what is known of the tool it speaks of, folded. ``allowed_option_ids`` is
    ``None`` for everything but permissions.
    """

    request_id: str
    session_id: str
    turn_id: str | None
    kind: Kind
    method: str
    params: bytes
    rpc_id: bytes
    created_at: str
    expires_at: str | None = None
    tool_call: dict[str, Any] | None = None
    allowed_option_ids: tuple[str, ...] | None = None
    status: Status = "pending"
    resolution: Resolution | None = None

    def as_json(self, session_ref: dict[str, Any]) -> dict[str, Any]:
        """The contract's Request; ``session_ref`` is ``{title, cwd, agent, owner}``."""
        ids = self.allowed_option_ids
        return {
            "requestId": self.request_id,
            "sessionId": self.session_id,
            "session": session_ref,
            "turnId": self.turn_id,
            "kind": self.kind,
            "method": self.method,
            "params": decoded(self.params),
            "toolCall": self.tool_call,
            "allowedOptionIds": None if ids is None else list(ids),
            "status": self.status,
            "createdAt": self.created_at,
            "expiresAt": self.expires_at,
            "resolution": self.resolution.as_json() if self.resolution else None,
        }


def permission_options(params: dict[str, Any], *, allow_always: bool) -> list[tuple[str, str]]:
    """The options a reply may choose, as ``(optionId, kind)``, in the agent's order.

    Without ``allow_always`` every id that could mean a lasting permission is left out: also one
    that is offered twice, once as lasting, and one whose kind ACP does not know.
    """
    options = params.get("options")
    offered = [
        (option["optionId"], option.get("kind"))
        for option in (options if isinstance(options, list) else [])
        if isinstance(option, dict) and isinstance(option.get("optionId"), str)
    ]
    lasting = {
        option_id
        for option_id, kind in offered
        if not isinstance(kind, str) or kind == LASTING or kind not in _OPTION_KINDS
    }
    return [
        (option_id, kind if isinstance(kind, str) else "")
        for option_id, kind in offered
        if allow_always or option_id not in lasting
    ]


def allowed_option_ids(kind: Kind, params: bytes, *, allow_always: bool) -> tuple[str, ...] | None:
    """The ids of :func:`permission_options` without doubles; ``None`` for other kinds."""
    if kind != "permission":
        return None
    options = permission_options(decoded(params), allow_always=allow_always)
    return tuple(dict.fromkeys(option_id for option_id, _ in options))


def withdrawn_answer(kind: Kind) -> Answer:
    """What the agent is told where nobody will reply any more; never a permission."""
    if kind == "extension":
        message = "Request cancelled"
        refused = {"error": {"code": REQUEST_CANCELLED, "message": message}}
        return Answer(None, (REQUEST_CANCELLED, message), refused, is_refusal=True)
    if kind == "elicitation":
        return Answer(dumps({"action": "cancel"}), None, {"action": "cancel"}, is_refusal=True)
    outcome = {"outcome": "cancelled"}
    return Answer(dumps({"outcome": outcome}), None, outcome, is_refusal=True)


# --- The table --------------------------------------------------------------------------------

_NEXT: dict[tuple[Status, Literal["answer", "withdraw"]], Status] = {
    ("pending", "answer"): "answered",
    ("pending", "withdraw"): "withdrawn",
}


def settled_error(request: HeldRequest) -> CallerError:
    """What a caller hears who comes too late; carries the ``resolution``."""
    resolution = request.resolution.as_json() if request.resolution else None
    if request.status == "withdrawn":
        return CallerError(
            "request-withdrawn",
            "The agent no longer waits for this request.",
            resolution=resolution,
        )
    return CallerError(
        "request-already-answered",
        "This request already has its answer.",
        resolution=resolution,
    )


class HeldRequests:
    """The requests of any number of sessions, in the order in which they were held.

    Those that are settled stay readable until ``max_settled`` later ones are, or until they are
    forgotten; those that wait are never dropped.
    """

    def __init__(self, max_settled: int = 1000) -> None:
        self._max_settled = max_settled
        self._pending: dict[str, HeldRequest] = {}
        self._settled: OrderedDict[str, HeldRequest] = OrderedDict()

    def __repr__(self) -> str:
        return f"<HeldRequests pending={len(self._pending)} settled={len(self._settled)}>"

    def hold(self, request: HeldRequest) -> None:
        """Take in a new request. Raises ``ValueError`` if it is not new or does not wait."""
        if request.status != "pending" or request.request_id in self:
            raise ValueError(f"{request.request_id} is {request.status} and cannot be held anew")
        self._pending[request.request_id] = request

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._pending or request_id in self._settled

    def __len__(self) -> int:
        return len(self._pending)

    def get(self, request_id: str) -> HeldRequest:
        """The request as it stands. Raises ``request-not-found``."""
        found = self._pending.get(request_id) or self._settled.get(request_id)
        if found is None:
            raise CallerError("request-not-found", "There is no such request.")
        return found

    def pending(
        self, *, session_id: str | None = None, turn_id: str | None = None
    ) -> list[HeldRequest]:
        """Those that wait, oldest first; of one session or one turn, if named."""
        return [
            request
            for request in self._pending.values()
            if session_id in (None, request.session_id) and turn_id in (None, request.turn_id)
        ]

    def by_rpc_id(self, session_id: str, rpc_id: bytes) -> HeldRequest | None:
        """The request that waits under the agent's own id (its raw JSON), the newest of several.

        Only among those that wait: agents use an id again once it is answered.
        """
        found = [r for r in self.pending(session_id=session_id) if r.rpc_id == rpc_id]
        return found[-1] if found else None

    def due(self, now: str) -> list[HeldRequest]:
        """Those whose ``expires_at`` is not after ``now``; RFC 3339 UTC texts sort as times."""
        return [r for r in self._pending.values() if r.expires_at and r.expires_at <= now]

    def set_expiry(self, request_id: str, expires_at: str | None) -> HeldRequest:
        """Move the time limit of a request that waits. Raises as :meth:`answer` does."""
        request = self._waiting(request_id, "answer")
        self._pending[request_id] = changed = replace(request, expires_at=expires_at)
        return changed

    def answer(
        self, request_id: str, answer: Answer, by: AnsweredBy, token: str | None, at: str
    ) -> HeldRequest:
        """Settle a request by an answer; the caller of this method alone may send it.

        Raises ``request-not-found``, ``request-already-answered`` or ``request-withdrawn``.
        """
        request = self._waiting(request_id, "answer")
        return self._settle(request, "answer", Resolution(by, token, answer.outcome, at))

    def withdraw(self, request_id: str, by: WithdrawnBy, at: str) -> tuple[HeldRequest, Answer]:
        """Settle a request that nobody will answer; the ``Answer`` is for the agent, if it lives.

        Raises ``request-not-found``, ``request-already-answered`` or ``request-withdrawn``.
        """
        request = self._waiting(request_id, "withdraw")
        answer = withdrawn_answer(request.kind)
        resolution = Resolution(by, None, answer.outcome, at)
        return self._settle(request, "withdraw", resolution), answer

    def forget(self, session_id: str) -> None:
        """Drop the settled requests of a session (those that wait must be withdrawn first)."""
        gone = [r.request_id for r in self._settled.values() if r.session_id == session_id]
        for request_id in gone:
            del self._settled[request_id]

    def _waiting(self, request_id: str, move: Literal["answer", "withdraw"]) -> HeldRequest:
        request = self.get(request_id)
        if (request.status, move) not in _NEXT:
            raise settled_error(request)
        return request

    def _settle(
        self, request: HeldRequest, move: Literal["answer", "withdraw"], resolution: Resolution
    ) -> HeldRequest:
        settled = replace(request, status=_NEXT[request.status, move], resolution=resolution)
        del self._pending[request.request_id]
        self._settled[request.request_id] = settled
        while len(self._settled) > self._max_settled:
            self._settled.popitem(last=False)
        return settled


def held_from_json(shown: dict[str, Any]) -> HeldRequest:
    """A settled request read back from how it was shown; its ``rpc_id`` is gone."""
    ids = shown["allowedOptionIds"]
    told = shown["resolution"]
    return HeldRequest(
        request_id=shown["requestId"],
        session_id=shown["sessionId"],
        turn_id=shown["turnId"],
        kind=shown["kind"],
        method=shown["method"],
        params=dumps(shown["params"]),
        rpc_id=b"null",
        created_at=shown["createdAt"],
        expires_at=shown["expiresAt"],
        tool_call=shown["toolCall"],
        allowed_option_ids=None if ids is None else tuple(ids),
        status=shown["status"],
        resolution=told and Resolution(told["by"], told["token"], told["outcome"], told["at"]),
    )
