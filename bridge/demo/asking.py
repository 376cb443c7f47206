"""Scripts that ask the person: questions, plans, todos, forms, and what nobody has heard of."""

from __future__ import annotations

from typing import Any, Final

from bridge.demo.arguments import word
from bridge.demo.turn import THINKING_S, Tool, Turn
from bridge.demo.wire import METHOD_NOT_FOUND, RpcError

_QUESTIONS: Final = (
    ("database", "Which database should it use?", ("SQLite", "PostgreSQL", "None"), False),
    ("checks", "Which checks should run?", ("Types", "Lint", "Tests"), True),
)
_TODOS: Final = ("Read the code", "Make the change", "Run the tests")
_PLAN: Final = """# A demo plan

1. Read the code.
2. Make the change.
3. Run the tests.
"""


async def question(turn: Turn) -> None:
    """``cursor/ask_question``"""
    call = Tool(turn, "Ask Question", "other", {"_toolName": "askQuestion"})
    questions = [_question(*each) for each in _QUESTIONS]
    params = {"toolCallId": call.call_id, "title": "Before I begin", "questions": questions}
    try:
        outcome = await turn.ask_cursor("cursor/ask_question", params)
    except RpcError:
        outcome = {"outcome": "cancelled"}
    call.set("completed", rawOutput=outcome)
    if outcome["outcome"] == "answered":
        await turn.tell(f"You answered: {_answered(outcome.get('answers'))}.")
    elif outcome["outcome"] == "skipped":
        await turn.tell(f"You skipped it: {outcome.get('reason') or 'no reason given'}.")
    else:
        await turn.tell("User cancelled the question.")


async def plan(turn: Turn) -> None:
    """``cursor/create_plan``; accepting it only ends the turn (tiann/hapi#1097)."""
    call = Tool(turn, "Create Plan", "other", {"_toolName": "createPlan"})
    params = {
        "toolCallId": call.call_id,
        "name": "A demo plan",
        "overview": "Three steps, none of them real.",
        "plan": _PLAN,
        "todos": _todos("pending"),
        "isProject": False,
    }
    try:
        outcome = await turn.ask_cursor("cursor/create_plan", params)
    except RpcError as error:
        if error.code == METHOD_NOT_FOUND:
            # Cursor goes idle without a word (getpaseo/paseo#3645).
            return
        outcome = {"outcome": "rejected", "reason": error.message}
    call.set("completed", rawOutput=outcome)
    if outcome["outcome"] == "rejected":
        await turn.tell(f"You rejected the plan: {outcome.get('reason') or 'no reason given'}.")
    elif outcome["outcome"] != "accepted":
        await turn.tell("User cancelled the plan.")


async def todos(turn: Turn) -> None:
    """``cursor/update_todos``: all of them, then patches of id and status."""
    raw_todos = [{"content": text, "status": "TODO_STATUS_PENDING"} for text in _TODOS]
    call = Tool(turn, "Update TODOs", "other", {"_toolName": "updateTodos", "todos": raw_todos})
    await _send_todos(turn, call, _todos("pending"), is_merged=False)
    for index in range(len(_TODOS)):
        patch = [{"id": str(index + 1), "status": "in_progress"}]
        if index:
            patch.insert(0, {"id": str(index), "status": "completed"})
        await _send_todos(turn, call, patch, is_merged=True)
        await turn.world.rest(THINKING_S)
    last = [{"id": str(len(_TODOS)), "status": "completed"}]
    await _send_todos(turn, call, last, is_merged=True)
    call.set("completed")
    await turn.tell("All three todos are done.")


async def elicit(turn: Turn) -> None:
    """``elicit [url]``: the protocol's own way to ask, where the client offers it."""
    form = "url" if word(turn.args, 0) == "url" else "form"
    offered = turn.client.capabilities.get("elicitation")
    if not isinstance(offered, dict) or not isinstance(offered.get(form), dict):
        await turn.tell(f"Your client does not offer elicitation by {form}.")
        return
    elicitation_id = turn.world.new_id()
    params = _url_params(elicitation_id) if form == "url" else _form_params()
    params["sessionId"] = turn.session.session_id
    try:
        answer = await turn.client.ask("elicitation/create", params)
    except RpcError as error:
        await turn.tell(f"Your client refused: {error.message}.")
        return
    action = answer.get("action") if isinstance(answer, dict) else None
    if form == "url" and action == "accept":
        await turn.world.rest(THINKING_S)
        turn.client.notify("elicitation/complete", {"elicitationId": elicitation_id})
    content = answer.get("content") if isinstance(answer, dict) else None
    await turn.tell(f"You chose {action}, with {content}.")


async def vendor(turn: Turn) -> None:
    """A request that no client knows; a good one shows it all the same."""
    params = {"sessionId": turn.session.session_id, "message": "Any answer will do."}
    try:
        answer = await turn.client.ask("cursor/demo_choice", params)
    except RpcError as error:
        await turn.tell(f"Your client answered with the error {error.code}.")
        return
    await turn.tell(f"Your client answered {answer}.")


async def _send_todos(
    turn: Turn, call: Tool, todos: list[dict[str, str]], *, is_merged: bool
) -> None:
    params = {"toolCallId": call.call_id, "todos": todos, "merge": is_merged}
    await turn.tell_cursor("cursor/update_todos", params)


def _todos(status: str) -> list[dict[str, str]]:
    return [
        {"id": str(number), "content": text, "status": status}
        for number, text in enumerate(_TODOS, 1)
    ]


def _question(
    question_id: str, prompt: str, labels: tuple[str, ...], is_multiple: bool
) -> dict[str, Any]:
    options = [{"id": label.lower(), "label": label} for label in labels]
    asked: dict[str, Any] = {"id": question_id, "prompt": prompt, "options": options}
    if is_multiple:
        asked["allowMultiple"] = True
    return asked


def _answered(answers: Any) -> str:
    listed = answers if isinstance(answers, list) else []
    shown = []
    for each in listed:
        match each:
            case {"questionId": str(question_id), "selectedOptionIds": list(selected)}:
                shown.append(f"{question_id}: {', '.join(map(str, selected)) or 'nothing'}")
    return "; ".join(shown) or "nothing"


def _form_params() -> dict[str, Any]:
    return {
        "mode": "form",
        "message": "Who should the demo greet?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "title": "Name", "minLength": 1, "maxLength": 40},
                "tone": {"type": "string", "title": "Tone", "enum": ["formal", "friendly"]},
                "times": {"type": "integer", "title": "Times", "minimum": 1, "maximum": 5},
                "loud": {"type": "boolean", "title": "Loud", "default": False},
            },
            "required": ["name"],
        },
    }


def _url_params(elicitation_id: str) -> dict[str, Any]:
    return {
        "mode": "url",
        "message": "A page to look at; nothing happens there.",
        "elicitationId": elicitation_id,
        "url": "https://example.com/demo",
    }
