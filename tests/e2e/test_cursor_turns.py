"""How turns end with Cursor: failures that come as text, cancels, and what becomes of both.

Every docstring names where the fact comes from.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from tests.e2e.harness import Event, Json
from tests.e2e.stage import (  # noqa: F401
    ONCE,
    Stage,
    case,
    module_backend,
    module_limits,
    module_playhouse,
    one_stage,
)

pytestmark = pytest.mark.anyio

IN_BAND = {
    "auth": "auth",
    "unauthenticated": "auth",
    "plan": "plan",
    "payment": "plan",
    "quota": "plan",
    "network": "network",
    "only": "network",
    "dns": "network",
    "ping": "network",
    "ended": "network",
    "model": "model",
    "loop": "loop",
    "settings": "other",
    "internal": "other",
    "older": "other",
}
"""The kind of each failure that has been seen, by the word that makes the agent say it."""


# -- failures as text ---------------------------------------------------------------------------


@case("in_band")
async def test_a_failure_that_comes_as_text_is_named_and_left_as_it_is(stage: Stage) -> None:
    """pingdotgg/t3code#7830, #12374, #10480; kandev#3765; Cursor forum 163218, 155812."""
    session_id = await stage.session_id()
    for word, kind in IN_BAND.items():
        _, turn = await stage.play(word, session_id=session_id)
        assert (turn["status"], turn["outcome"]) == ("completed", "suspected-error"), word
        assert turn["stopReason"] == "end_turn"
        assert turn["suspectedError"]["kind"] == kind, word
        assert turn["text"].endswith("\n\n" + turn["suspectedError"]["text"])
        assert turn["text"].startswith("Some words.") is (word != "only")
    assert await stage.warnings(session_id) == ["suspected-error"] * len(IN_BAND)


@case("in_band")
async def test_a_person_may_ask_for_such_a_line(stage: Stage) -> None:
    """Only the last chunk counts, from its start, as Cursor sends it: behind a blank line."""
    session_id = await stage.session_id()
    for word in ("print", "middle", "looks like", "a tool behind"):
        _, turn = await stage.play(word, session_id=session_id)
        assert (turn["outcome"], turn["suspectedError"]) == ("ok", None), word
    _, turn = await stage.play("cancelled by the agent", session_id=session_id)
    assert (turn["outcome"], turn["suspectedError"]) == ("cancelled", None)
    assert await stage.warnings(session_id) == []


@case("in_band", dialect="acp")
async def test_another_agent_s_text_is_never_suspected(stage: Stage) -> None:
    """The forms are Cursor's; others fail by an error, as the protocol says."""
    _, turn = await stage.play("auth")
    assert (turn["outcome"], turn["suspectedError"]) == ("ok", None)


@case("in_band", retry_in_band=2)
async def test_a_lost_network_is_tried_again_where_that_is_configured(stage: Stage) -> None:
    """pingdotgg/t3code#12940: Cursor's own retries are off in ACP."""
    session_id, turn = await stage.play("dns")
    assert turn["outcome"] == "suspected-error"
    codes = await stage.warnings(session_id)
    assert codes.count("retrying") == 2
    assert stage.methods().count("session/prompt") == 3


@case("in_band", retry_in_band=2)
@pytest.mark.parametrize("word", ["after tool", "behind a permission", "behind a task", "auth"])
async def test_nothing_is_tried_again_after_a_tool_ran_or_for_another_reason(
    stage: Stage, word: str
) -> None:
    """HAPI's cursorAutoRetry: a second run might do the work twice; a login does not come back."""
    session_id, turn = await stage.play(word, ONCE)
    assert turn["outcome"] == "suspected-error"
    assert await stage.warnings(session_id) == ["suspected-error"]
    assert stage.methods().count("session/prompt") == 1


@case("in_band", retry_in_band=2)
@pytest.mark.parametrize("word", ["thought behind", "limited", "no reason"])
async def test_a_line_that_is_not_the_end_of_an_ordinary_turn_is_no_failure(
    stage: Stage, word: str
) -> None:
    """pingdotgg/t3code#7830: it is the last thing of a turn that ends with ``end_turn``."""
    _, turn = await stage.play(word)
    assert (turn["outcome"] != "suspected-error", turn["suspectedError"]) == (True, None)
    assert stage.methods().count("session/prompt") == 1


@case("in_band")
async def test_nothing_is_tried_again_unless_that_is_configured(stage: Stage) -> None:
    """It is the operator who pays for the second try."""
    await stage.play("dns")
    assert stage.methods().count("session/prompt") == 1


# -- stop reasons and texts ---------------------------------------------------------------------


@case("stop_reasons")
async def test_every_stop_reason_has_its_outcome(stage: Stage) -> None:
    """ACP: stop reasons; one agent fails with the code 400; Cursor never tells a usage."""
    session_id = await stage.session_id()
    for word, status, outcome in (
        ("max_tokens", "completed", "limit"),
        ("max_turn_requests", "completed", "limit"),
        ("refusal", "completed", "refused"),
        ("cancelled", "cancelled", "cancelled"),
        ("error", "failed", "error"),
        ("nothing", "completed", "ok"),
    ):
        _, turn = await stage.play(word, session_id=session_id)
        assert (turn["status"], turn["outcome"]) == (status, outcome), word
        told = word not in ("error", "nothing")
        assert turn["usage"] == ({"totalTokens": 3} if told else None)
    assert (await stage.session(session_id))["usage"] is None


@case("messages")
async def test_the_text_of_a_turn_is_its_messages(stage: Stage) -> None:
    """Messages end at thoughts, tools and other ids."""
    _, turn = await stage.play("x")
    assert turn["text"] == "first message\n\nsecond\n\nthird\n\nfourth"
    assert turn["finalText"] == "fourth"


# -- cancelling ---------------------------------------------------------------------------------


def said(text: str, *, in_turn: bool = True) -> Callable[[Event], bool]:
    """Whether an event is a chunk of this text, in a turn or behind it."""

    def wanted(event: Event) -> bool:
        update = event.params.get("update", {}) if event.kind == "session/update" else {}
        assert event.data is not None
        is_in_turn = event.data["turnId"] is not None
        return bool(update.get("content", {}).get("text") == text and is_in_turn is in_turn)

    return wanted


async def begun(stage: Stage, text: str, first: str) -> tuple[str, Json]:
    """A session whose turn has said its first words."""
    session_id = await stage.session_id()
    turn = await stage.caller.prompt(session_id, text)
    await stage.until(session_id, said(first))
    return session_id, turn


@case("hanging")
async def test_a_cancel_reaches_the_agent_and_what_was_said_stays(stage: Stage) -> None:
    """openabdev/openab#489: ``session/cancel`` is a notification; the prompt then ends."""
    session_id, turn = await begun(stage, "silent", "so far")
    ended = await stage.cancel(session_id, turn)
    assert (ended["status"], ended["outcome"], ended["stopReason"], ended["text"]) == (
        "cancelled",
        "cancelled",
        "cancelled",
        "so far",
    )
    assert "id" not in stage.received()[-1]


@case("hanging")
@pytest.mark.parametrize("word", ["open", "unfinished"])
async def test_a_tool_left_open_by_a_cancel_is_closed(stage: Stage, word: str) -> None:
    """Hezaerd/noyau#64: an in_progress tool never gets an end, in others without a cancel."""
    session_id = await stage.session_id()
    turn = await stage.caller.prompt(session_id, word)
    await stage.until(session_id, lambda e: e.kind == "session/update")
    if word == "open":
        turn = await stage.cancel(session_id, turn)
        assert (turn["status"], turn["cancelledBy"]) == ("cancelled", "caller")
    else:
        turn = await stage.caller.settled(session_id, turn["turnId"])
        assert turn["outcome"] == "ok"
    events = await stage.caller.log(session_id)
    assert [e["type"] for e in events[-3:]] == [
        "bridge/tool_closed",
        "bridge/turn_ended",
        "bridge/session",
    ]
    closed = "failed" if word == "open" else "completed"
    assert events[-3]["params"] == {"toolCallId": "open", "status": closed}
    assert [tool["open"] for tool in await stage.items(session_id, "tool")] == [False]


@case("hanging")
async def test_an_agent_that_ignores_a_cancel_is_ended_and_can_go_on(stage: Stage) -> None:
    """Clients wait about 5 s and then end the process (tiann/hapi); it goes on by session/load."""
    session_id, turn = await begun(stage, "stubborn", "so far")
    ended = await stage.cancel(session_id, turn)
    assert (ended["status"], ended["text"]) == ("cancelled", "so far")
    assert (await stage.play("hi", session_id=session_id))[1]["status"] == "completed"
    assert stage.methods().count("session/load") == 1


@case("hanging")
async def test_an_agent_that_says_nothing_and_never_ends_is_ended_too(stage: Stage) -> None:
    """zed-industries/zed#57856: a hang without an end."""
    session_id = await stage.session_id()
    turn = await stage.caller.prompt(session_id, "never")
    assert (await stage.cancel(session_id, turn))["status"] == "cancelled"
    assert (await stage.session(session_id))["status"] == "hibernated"


@case("hanging")
@pytest.mark.parametrize("word", ["asks", "stuck"])
async def test_what_waits_is_answered_when_its_turn_is_cancelled(stage: Stage, word: str) -> None:
    """ACP: pending permissions are answered ``cancelled``; some agents are stuck all the same."""
    session_id, turn = await stage.play(word)
    assert turn["status"] == "waiting"
    assert (await stage.cancel(session_id, turn))["status"] == "cancelled"
    answer, cancel = stage.received()[-2:]
    assert answer["result"] == {"outcome": {"outcome": "cancelled"}}
    assert cancel["method"] == "session/cancel"
    assert await stage.caller.pending(session_id) == []
    assert (await stage.play("hi", session_id=session_id))[1]["status"] == "completed"


@case("hanging")
@pytest.mark.parametrize("word", ["late", "trickle 5"])
async def test_text_that_comes_after_a_cancelled_turn_is_not_the_next_ones(
    stage: Stage, word: str
) -> None:
    """Some agents say ``cancelled`` at once and go on talking for seconds."""
    session_id = await stage.session_id()
    turn = await stage.caller.prompt(session_id, word)
    assert (await stage.cancel(session_id, turn))["text"] == ""
    await stage.until(session_id, said("late ", in_turn=False))


@case("hanging")
async def test_text_that_comes_before_a_cancelled_turn_ends_is_still_its_own(stage: Stage) -> None:
    """Others finish what they are about to say and answer then."""
    session_id = await stage.session_id()
    turn = await stage.caller.prompt(session_id, "talks 4")
    ended = await stage.cancel(session_id, turn)
    assert (ended["status"], ended["text"]) == ("cancelled", "more " * 4)


@case("hanging")
async def test_an_end_turn_after_a_cancel_is_still_a_cancelled_turn(stage: Stage) -> None:
    """Agents that end with ``end_turn`` once their model call is over."""
    session_id = await stage.session_id()
    turn = await stage.caller.prompt(session_id, "ends")
    ended = await stage.cancel(session_id, turn)
    assert (ended["status"], ended["stopReason"]) == ("cancelled", "end_turn")


@case("hanging")
async def test_a_prompt_behind_a_cancel_that_is_answered_with_nothing_is_warned_of(
    stage: Stage,
) -> None:
    """zed-industries/claude-agent-acp 0.23: what was cancelled ends the next prompt as well.

    Its answer comes with the prompt after that; no wait in between helps.
    """
    session_id, turn = await begun(stage, "silent", "so far")
    await stage.cancel(session_id, turn)
    _, turn = await stage.play("swallowed", session_id=session_id)
    assert (turn["status"], turn["outcome"], turn["text"]) == ("completed", "ok", "")
    assert await stage.warnings(session_id) == ["nothing-heard"]
    _, turn = await stage.play("behind it", session_id=session_id)
    assert turn["text"] == "answer to both"
    assert await stage.warnings(session_id) == ["nothing-heard"]


@case("hanging")
async def test_an_error_after_a_cancel_is_still_a_cancelled_turn(stage: Stage) -> None:
    """Agents whose prompt fails when it is cancelled."""
    session_id, turn = await begun(stage, "fails", "so far")
    ended = await stage.cancel(session_id, turn)
    assert (ended["status"], ended["error"], ended["text"]) == ("cancelled", None, "so far")


@case("basic")
async def test_a_cancelled_prompt_can_be_sent_again_in_front(stage: Stage) -> None:
    """diodeme/Gold-Band#130: Cursor forgets a cancelled prompt."""
    session_id, turn = await begun(stage, "slow thing", "before ")
    await stage.cancel(session_id, turn)
    turn = await stage.caller.prompt(session_id, "and this", resendCancelled=True)
    await stage.until(session_id, lambda e: e.kind == "bridge/turn_started" and e.seq > 9)
    await stage.cancel(session_id, turn)
    texts = [
        [block["text"] for block in message["params"]["prompt"]]
        for message in stage.received()
        if message.get("method") == "session/prompt"
    ]
    assert texts == [["slow thing"], ["slow thing", "and this"]]


@case("dying")
@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("exit", {"exitCode": 3, "signal": None}),
        ("kill", {"exitCode": None, "signal": "SIGKILL"}),
        ("term", {"exitCode": None, "signal": "SIGTERM"}),
        ("crash", {"exitCode": None, "signal": "SIGSEGV"}),
        ("half", {"exitCode": 1, "signal": None}),
        ("status 0", {"exitCode": 0, "signal": None}),
    ],
)
async def test_a_process_that_ends_in_a_turn_ends_it_as_failed(
    stage: Stage, word: str, told: Json
) -> None:
    """JonathanRiche/verde#115: an end of the output is no success; tiann/hapi#1472, #1529."""
    session_id, turn = await stage.play(word)
    assert (turn["status"], turn["error"]["code"]) == ("failed", "agent-exited")
    assert turn["text"] == "so far"
    events = await stage.caller.log(session_id)
    exited = next(e["params"] for e in events if e["type"] == "bridge/agent_exited")
    assert {name: exited[name] for name in told} == told
    expected = "I am going to fail: token=[redacted]" if word == "exit" else ""
    assert exited["stderrTail"].strip() == expected
    assert (await stage.play("hi", session_id=session_id))[1]["status"] == "completed"


@case("dying")
async def test_a_process_that_ends_while_it_asks_takes_its_question_back(stage: Stage) -> None:
    """tiann/hapi#917: it may die at any moment, also while a person thinks."""
    session_id, turn = await stage.play("asked")
    with anyio.fail_after(20):
        while turn["endedAt"] is None:
            turn = await stage.caller.settled(session_id, turn["turnId"])
    assert turn["error"]["code"] == "agent-exited"
    answer = await stage.caller.get(f"/v1/sessions/{session_id}/requests?status=all")
    assert answer.json()["requests"][0]["resolution"]["by"] == "agent-exit"


@case("dying")
async def test_an_exit_behind_the_end_of_a_turn_does_not_undo_it(stage: Stage) -> None:
    """kcap#714: some end right after ``end_turn``; the next prompt brings them back."""
    session_id, turn = await stage.play("behind")
    assert (turn["status"], turn["text"]) == ("completed", "done")
    await stage.until(session_id, lambda e: e.kind == "bridge/agent_exited")
    assert (await stage.play("hi", session_id=session_id))[1]["status"] == "completed"


@case("dying")
async def test_of_much_on_stderr_the_end_is_told(stage: Stage) -> None:
    """Agents that write 2 MB there; what counts stands last."""
    _, turn = await stage.play("loud")
    assert turn["error"]["stderrTail"].endswith("the last words")
    assert len(turn["error"]["stderrTail"]) < 100_000
