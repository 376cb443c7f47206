"""How conversations are taken up again: ``session/load``, its replay, and what may become of it.

Every docstring names where the fact comes from.
"""

from __future__ import annotations

import json

import anyio
import pytest

from tests.e2e.harness import Json
from tests.e2e.stage import (  # noqa: F401
    ONCE,
    Stage,
    case,
    module_backend,
    module_playhouse,
    one_stage,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", name="limits")
def short_limits() -> Json:
    """An agent that hangs is given up soon; starting one may take its time on a busy box."""
    return {"load_session_s": 2.0, "load_quiet_s": 0.2, "max_processes": 24}


async def lost(stage: Stage, **body: str) -> tuple[str, Json]:
    """A session whose process ended, and the turn that tried to go on."""
    session_id, _ = await stage.play("exit")
    _, turn = await stage.play("again", session_id=session_id, **body)
    return session_id, turn


@case("load", default_model="default[]")
async def test_a_revived_session_does_not_mix_the_replay_into_the_next_turn(
    stage: Stage,
) -> None:
    """Emanuele-web04/synara#811: the replay goes on after the response; the mode is forgotten."""
    session_id = await stage.session_id(mode="plan", config={"effort": "high"})
    await stage.play("exit", session_id=session_id)
    before = len(await stage.caller.log(session_id))
    _, turn = await stage.play("again", session_id=session_id)
    assert turn["text"] == "new answer to again"
    later = (await stage.caller.log(session_id))[before:]
    assert not [e for e in later if "replay" in str(e["params"]) or "old " in str(e["params"])]
    session = await stage.session(session_id)
    assert (session["mode"]["current"], session["model"]["current"]) == ("plan", "default[]")
    effort = next(each for each in session["configOptions"] if each["id"] == "effort")
    assert effort["currentValue"] == "high"
    methods = stage.methods()
    restored = methods[methods.index("session/load") + 1 : -1]
    assert restored == ["session/set_config_option"] * 3
    assert [each["open"] for each in await stage.items(session_id, "message")] == [False]


@case("load")
async def test_a_conversation_taken_up_from_elsewhere_is_logged_as_replay(stage: Stage) -> None:
    """ACP: session/load streams the conversation back."""
    session = await stage.begin(resume="begun-elsewhere")
    events = await stage.caller.log(session["sessionId"])
    replayed = [e for e in events if e.get("replay")]
    assert len(replayed) >= 3
    assert [item["text"] for item in await stage.items(session["sessionId"], "user")] == [
        "old prompt"
    ]
    answer = await stage.ask(resume="begun-elsewhere")
    assert (answer.status_code, answer.json()["code"]) == (409, "session-already-open")
    assert answer.json()["sessionId"] == session["sessionId"]


@case("load_lost")
async def test_a_lost_conversation_is_told_and_never_silently_new(stage: Stage) -> None:
    """openclaw/acpx#161, freebuddy#108: -32602 with ``Session "x" not found``."""
    session_id, turn = await lost(stage)
    assert (turn["status"], turn["error"]["code"]) == ("failed", "session-lost")
    assert "onLost: new" in turn["error"]["hint"]
    assert stage.methods().count("session/new") == 1
    _, turn = await stage.play("again", session_id=session_id, onLost="new")
    assert turn["text"] == "You said: again"
    assert "session-lost" in await stage.warnings(session_id)


@case("load_lost")
async def test_a_lost_conversation_cannot_be_taken_up_from_elsewhere(stage: Stage) -> None:
    """forum 155516: the list of sessions may name what can no longer be loaded."""
    answer = await stage.ask(resume="begun-elsewhere")
    assert (answer.status_code, answer.json()["code"]) == (410, "session-lost")
    assert await stage.listed() == []


@case("load_unknown")
async def test_every_agent_has_words_of_its_own_for_what_it_does_not_have(stage: Stage) -> None:
    """Seen: -32002 with ``Resource not found``; a code alone says too little."""
    _, turn = await lost(stage)
    assert turn["error"]["code"] == "session-lost"
    assert turn["error"]["agentError"]["code"] == -32002


@case("load_invalid")
async def test_an_id_that_an_agent_calls_invalid_is_one_that_it_does_not_have(
    stage: Stage,
) -> None:
    """google-gemini/gemini-cli: a load within the minute of the start overwrites what it loads."""
    session_id, turn = await lost(stage)
    assert turn["error"]["code"] == "session-lost"
    _, turn = await stage.play("again", session_id=session_id, onLost="new")
    assert turn["text"] == "You said: again"


@case("no_load")
async def test_an_agent_without_load_loses_its_conversation_with_its_process(
    stage: Stage,
) -> None:
    """openabdev/openab#493: builds before June 2026."""
    _, turn = await lost(stage)
    assert turn["error"]["code"] == "session-lost"
    assert "session/load" not in stage.methods()


@case("load_broken")
async def test_a_load_that_fails_for_another_reason_loses_nothing(stage: Stage) -> None:
    """zed-industries/zed#57035: -32603 may be over on the next process; it is never a loss."""
    session_id, turn = await lost(stage, onLost="new")
    assert (turn["status"], turn["error"]["code"]) == ("failed", "agent-error")
    assert turn["error"]["agentError"]["data"] == {"details": "disk on fire"}
    assert stage.methods().count("session/load") == 2
    assert stage.methods().count("session/new") == 1
    session = await stage.session(session_id)
    assert (session["status"], session["problem"]["code"]) == ("failed", "agent-error")
    _, turn = await stage.play("again", session_id=session_id)
    assert turn["error"]["code"] == "agent-error"


@case("load_dies")
async def test_a_process_that_ends_while_it_loads_is_told_with_its_last_words(stage: Stage) -> None:
    """pingdotgg/t3code#11216: a session whose replay is too much for the agent itself."""
    session_id, turn = await lost(stage, onLost="new")
    assert (turn["status"], turn["error"]["code"]) == ("failed", "agent-exited")
    assert turn["error"]["exitCode"] == 4
    assert turn["error"]["stderrTail"].strip() == "cannot read the store"
    assert (await stage.session(session_id))["status"] == "failed"


@case("load_hangs")
async def test_a_load_that_never_ends_is_given_up_and_its_replay_forgotten(stage: Stage) -> None:
    """t3code gives a load 90 s; forum 158388: no replay at all on older builds."""
    session_id, _ = await stage.play("exit")
    before = len(await stage.caller.log(session_id))
    with anyio.fail_after(15):
        _, turn = await stage.play("again", session_id=session_id)
    assert (turn["status"], turn["error"]["code"]) == ("failed", "agent-timeout")
    later = (await stage.caller.log(session_id))[before:]
    assert not [e for e in later if e["type"] == "session/update"]


@case("load_asks")
async def test_what_is_asked_in_a_replay_is_answered_like_anything_else(stage: Stage) -> None:
    """Unanswered requests block an agent for ever, also those of a replay (ids ``replay-2-1``)."""
    session_id, _ = await stage.play("exit")
    turn = await stage.caller.prompt(session_id, "again")
    with anyio.fail_after(15):
        while not (waiting := await stage.caller.pending(session_id)):
            await stage.caller.settled(session_id, turn["turnId"])
    assert waiting[0]["params"]["toolCall"]["toolCallId"] == "replay-2-1"
    assert waiting[0]["turnId"] is None or waiting[0]["turnId"] == turn["turnId"]
    answer = await stage.caller.reply(session_id, waiting[0]["requestId"], ONCE)
    assert answer.status_code == 200
    turn = await stage.caller.settled(session_id, turn["turnId"])
    assert (turn["status"], turn["text"]) == ("completed", "You said: again")
    answers = [each["result"]["outcome"]["outcome"] for each in stage.answers()]
    assert sorted(answers) == ["accepted", "selected"]
    assert json.dumps(await stage.caller.log(session_id)).count("old answer") == 0
