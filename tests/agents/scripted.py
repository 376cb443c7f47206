"""A scripted ACP agent: what it says is a data file, so that any habit can be played.

    python tests/agents/scripted.py CASE.json

A case is an object. ``on`` maps a method (``initialize``, ``session/new``, ``session/load`` …) to
``{"before": steps, "result": …, "error": …, "after": steps}``; methods without an entry are
answered plainly. ``prompts`` is a list of ``{"match": regex, "steps": steps}``, the first that fits
the prompt's text is played; a prompt that no step answers ends with ``end_turn``. ``sessionId``
fixes the id of every session; otherwise each has its own. ``state`` names a file in which ``tries``
are counted, for cases that behave differently the second time: an ``on`` entry with ``"first"``
holds what is played then.

Steps, one verb each:

    {"text": T} {"thought": T} {"update": U}      session/update with that content
    {"notify": METHOD, "params": P}               any notification
    {"ask": METHOD, "params": P, "id": I,         a request; waits for the answer unless
     "wait": true, "then": {OUTCOME: steps}}      ``wait`` is false, and plays what fits it
    {"raw": TEXT} {"base64": TEXT}                bytes as they are, with a line feed behind
    {"respond": RESULT} {"fail": ERROR}           answer the prompt
    {"wait_cancel": true} {"ignore_cancel": true} until session/cancel; never mind it
    {"wait_answers": N}                           until N answers have come in all
    {"flood": N} {"big": BYTES}                   N small updates; one large one
    {"repeat": N, "steps": steps}
    {"stderr": TEXT} {"stderr_flood": BYTES}
    {"exit": STATUS} {"signal": NAME}
    {"close_stdout": true} {"stop_reading": true}
    {"spawn": "holder" | "setsid"}                a child that holds our pipes, or a daemon

In texts ``{sessionId}``, ``{cwd}``, ``{prompt}``, ``{answer}`` and ``{n}`` (the first number of the
prompt) are filled in; a number may be ``"{n}"``. With ``FAKE_AGENT_LOG`` set, every line in and out
is kept there as JSON with the pid. Standard library only.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from typing import Any

Json = dict[str, Any]
Steps = list[Json]

INITIALIZE: Json = {
    "protocolVersion": 1,
    "agentCapabilities": {
        "loadSession": True,
        "promptCapabilities": {"image": True, "audio": False, "embeddedContext": False},
        "sessionCapabilities": {"list": {}},
    },
    "authMethods": [{"id": "fake_login", "name": "Fake login"}],
}


class Wire:
    """Lines in and out, and the log of both."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log = os.environ.get("FAKE_AGENT_LOG")
        self._out = sys.stdout.buffer

    def send(self, message: Json) -> None:
        """One message."""
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        """Bytes as they are."""
        with self._lock:
            self._out.write(data)
            self._out.flush()
        self.note("out", data)

    def note(self, direction: str, data: bytes) -> None:
        """Keep a line for the test that started us."""
        if not self._log or len(data) > 100_000:
            return
        entry = {"dir": direction, "pid": os.getpid(), "line": data.decode("utf-8", "replace")}
        with self._lock, open(self._log, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def close(self) -> None:
        """Close stdout and live on."""
        with self._lock:
            self._out.flush()
            os.close(1)


class Agent:
    """Plays one case."""

    def __init__(self, case: Json) -> None:
        self.case = case
        self.wire = Wire()
        self.ids = itertools.count(case.get("firstId", 0))
        self.answers: dict[str, Json] = {}
        self.answered = threading.Condition()
        self.count = 0
        self.cancelled = threading.Event()
        self.is_reading = True
        self.sessions: dict[str, str] = {}

    def run(self) -> None:
        """Read until stdin ends."""
        for line in sys.stdin.buffer:
            self.wire.note("in", line)
            if line.strip():
                self.receive(json.loads(line))
            if not self.is_reading:
                threading.Event().wait()

    def receive(self, message: Json) -> None:
        """One message of the client."""
        if "method" not in message:
            with self.answered:
                self.answers[json.dumps(message.get("id"))] = message
                self.count += 1
                self.answered.notify_all()
            return
        method, params = message["method"], message.get("params") or {}
        if method == "session/cancel":
            self.cancelled.set()
        elif method == "session/prompt":
            self.cancelled.clear()
            threading.Thread(target=self.prompt, args=(message["id"], params), daemon=True).start()
        elif "id" in message:
            threading.Thread(
                target=self.request, args=(message["id"], method, params), daemon=True
            ).start()

    # -- answering ----------------------------------------------------------------------------

    def request(self, rpc_id: Any, method: str, params: Json) -> None:
        """Anything but a prompt."""
        entry = self.entry(method)
        session_id = params.get("sessionId") or self.case.get("sessionId") or str(uuid.uuid4())
        self.sessions[session_id] = params.get("cwd") or self.sessions.get(session_id, "/")
        play = Play(self, session_id, "", rpc_id)
        play.steps(entry.get("before", []))
        if play.is_answered:
            return
        if "error" in entry:
            self.wire.send({"id": rpc_id, "error": play.fill(entry["error"])})
        else:
            result = entry["result"] if "result" in entry else self.plain(method, session_id)
            self.wire.send({"id": rpc_id, "result": play.fill(result)})
        play.steps(entry.get("after", []))

    def entry(self, method: str) -> Json:
        """The case's entry for a method; ``first`` counts its tries over processes."""
        entry: Json = self.case.get("on", {}).get(method, {})
        if "first" not in entry:
            return entry
        path = os.environ["FAKE_AGENT_STATE"] + "." + method.replace("/", "-")
        is_first = not os.path.exists(path)
        with open(path, "a", encoding="utf-8") as file:
            file.write("x")
        first: Json = entry["first"]
        return first if is_first else entry

    def plain(self, method: str, session_id: str) -> Json:
        """What a plain agent answers."""
        if method == "initialize":
            return INITIALIZE
        if method == "session/new":
            return {"sessionId": session_id}
        if method == "session/list":
            return {"sessions": [{"sessionId": each} for each in self.sessions]}
        return {}

    def prompt(self, rpc_id: Any, params: Json) -> None:
        """Play what fits the prompt."""
        text = "\n".join(
            str(block.get("text", "")) for block in params["prompt"] if block["type"] == "text"
        )
        play = Play(self, params["sessionId"], text, rpc_id)
        for script in self.case.get("prompts", []):
            if script.get("match") is None or re.search(script["match"], text):
                play.steps(script["steps"])
                break
        else:
            play.steps([{"text": "You said: {prompt}"}])
        if not play.is_answered:
            play.step({"respond": {"stopReason": "end_turn"}})


class Play:
    """The steps of one prompt (or of one answer)."""

    def __init__(self, agent: Agent, session_id: str, text: str, rpc_id: Any) -> None:
        self.agent = agent
        self.rpc_id = rpc_id
        self.is_answered = False
        number = re.search(r"\d+", text)
        self.known = {
            "sessionId": session_id,
            "cwd": agent.sessions.get(session_id, "/"),
            "prompt": text,
            "n": number[0] if number else "1",
            "answer": "",
        }

    def steps(self, steps: Steps) -> None:
        """Play them in order."""
        for step in steps:
            self.step(step)

    def fill(self, value: Any) -> Any:
        """Fill in what is known, wherever a text stands."""
        if isinstance(value, str):
            for name, known in self.known.items():
                value = value.replace("{" + name + "}", known)
            return value
        if isinstance(value, dict):
            return {name: self.fill(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.fill(each) for each in value]
        return value

    def step(self, step: Json) -> None:
        """One step."""
        verb = next(iter(step))
        getattr(self, f"do_{verb}")(self.fill(step[verb]), step)

    def update(self, update: Json) -> None:
        """A session/update."""
        params = {"sessionId": self.known["sessionId"], "update": update}
        self.agent.wire.send({"method": "session/update", "params": params})

    def do_text(self, text: str, step: Json) -> None:
        content = {"type": "text", "text": text}
        extra = {"messageId": step["messageId"]} if "messageId" in step else {}
        self.update({"sessionUpdate": "agent_message_chunk", "content": content, **extra})

    def do_thought(self, text: str, _: Json) -> None:
        content = {"type": "text", "text": text}
        self.update({"sessionUpdate": "agent_thought_chunk", "content": content})

    def do_update(self, update: Json, _: Json) -> None:
        self.update(update)

    def do_notify(self, method: str, step: Json) -> None:
        self.agent.wire.send({"method": method, "params": self.fill(step.get("params", {}))})

    def do_ask(self, method: str, step: Json) -> None:
        rpc_id = step["id"] if "id" in step else next(self.agent.ids)
        key = json.dumps(rpc_id)
        self.agent.answers.pop(key, None)
        params = self.fill(step.get("params", {}))
        self.agent.wire.send({"id": rpc_id, "method": method, "params": params})
        if step.get("wait", True):
            with self.agent.answered:
                self.agent.answered.wait_for(lambda: key in self.agent.answers)
                answer = self.agent.answers.pop(key)
            self.known["answer"] = json.dumps(answer.get("result", answer.get("error")))
            self.branch(answer, step.get("then", {}))

    def branch(self, answer: Json, then: dict[str, Steps]) -> None:
        """Play what fits an answer: by option id, inner outcome, action, or error code."""
        result = answer.get("result")
        outcome = result.get("outcome") if isinstance(result, dict) else None
        inner = outcome if isinstance(outcome, dict) else {}
        error = (answer.get("error") or {}).get("code")
        action = result.get("action") if isinstance(result, dict) else None
        for key in (inner.get("optionId"), inner.get("outcome"), action, error, "else"):
            if key is not None and str(key) in then:
                self.steps(then[str(key)])
                return

    def do_raw(self, text: str, _: Json) -> None:
        self.agent.wire.send_bytes(text.encode("utf-8", "surrogatepass") + b"\n")

    def do_base64(self, text: str, _: Json) -> None:
        self.agent.wire.send_bytes(base64.b64decode(text) + b"\n")

    def do_respond(self, result: Any, _: Json) -> None:
        self.is_answered = True
        self.agent.wire.send({"id": self.rpc_id, "result": result})

    def do_fail(self, error: Json, _: Json) -> None:
        self.is_answered = True
        self.agent.wire.send({"id": self.rpc_id, "error": error})

    def do_wait_cancel(self, _: Any, __: Json) -> None:
        self.agent.cancelled.wait()

    def do_ignore_cancel(self, _: Any, __: Json) -> None:
        threading.Event().wait()

    def do_wait_answers(self, count: int, _: Json) -> None:
        with self.agent.answered:
            self.agent.answered.wait_for(lambda: self.agent.count >= count)

    def do_flood(self, count: Any, _: Json) -> None:
        content = {"type": "text", "text": "0123456789" * 8}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        params = {"sessionId": self.known["sessionId"], "update": update}
        line = json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params})
        data, left = (line + "\n").encode(), int(count)
        while left > 0:
            self.agent.wire.send_bytes(data * min(left, 1000))
            left -= 1000

    def do_big(self, size: Any, _: Json) -> None:
        self.do_text("x" * int(size), {})

    def do_repeat(self, count: Any, step: Json) -> None:
        for _number in range(int(count)):
            self.steps(step["steps"])

    def do_stderr(self, text: str, _: Json) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def do_stderr_flood(self, size: Any, _: Json) -> None:
        for _number in range(int(size) // 1000):
            sys.stderr.write("e" * 999 + "\n")
        sys.stderr.flush()

    def do_exit(self, status: int, _: Json) -> None:
        os._exit(status)

    def do_signal(self, name: str, _: Json) -> None:
        os.kill(os.getpid(), getattr(signal, name))

    def do_close_stdout(self, _: Any, __: Json) -> None:
        self.agent.wire.close()

    def do_stop_reading(self, _: Any, __: Json) -> None:
        self.agent.is_reading = False

    def do_spawn(self, kind: str, _: Json) -> None:
        command = [sys.executable, "-c", "import signal; signal.pause()"]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=kind == "setsid")


def main() -> None:
    """Play the case named on the command line."""
    with open(sys.argv[1], encoding="utf-8") as file:
        case = json.load(file)
    for step in case.get("start", []):
        Play(Agent(case), "", "", None).step(step)
    Agent(case).run()


if __name__ == "__main__":
    main()
