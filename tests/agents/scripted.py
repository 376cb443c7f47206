"""A scripted ACP agent: what it says is a data file, so that any habit can be played.

    python tests/agents/scripted.py CASE.json

A case is an object; a step that nobody knows ends the process with status 2.

    "on": {METHOD: {"before": steps, "result": R, "error": E, "after": steps}}
        how ``initialize``, ``session/new``, ``session/load``, ``session/set_mode`` … are answered;
        without an entry they are answered plainly. With ``"first": {…}`` the first try of all
        processes that share ``FAKE_AGENT_STATE`` (the beginning of a path) is played from there.
    "prompts": [{"match": REGEX or null, "steps": steps}]
        the first that fits the prompt's text is played; a prompt that no step answers ends with
        ``end_turn``, one that nothing fits is repeated back.
    "start": steps           played before anything is read
    "sessionId": TEXT        the id of every session, in every process; else each has its own
    "firstId": N             the id of the first request to the client (0, as Cursor does)

Steps, one verb each:

    {"text": T} {"thought": T} {"update": U}      session/update; a text may have a "messageId"
    {"notify": METHOD, "params": P}               any notification
    {"ask": METHOD, "params": P, "id": I,         a request; waits for the answer unless
     "wait": true, "then": {OUTCOME: steps}}      ``wait`` is false, and plays what fits it
    {"await": ID, "then": {OUTCOME: steps}}       the answer to a request that was not waited for
    {"wait_answers": N}                           until N answers have come in all
    {"raw": TEXT} {"base64": TEXT}                bytes as they are, with a line feed behind
    {"partial": TEXT}                             the same without the line feed
    {"respond": RESULT} {"fail": ERROR}           answer the prompt; steps behind it come late
    {"wait_cancel": true} {"sleep": MS}           until session/cancel; so many milliseconds
    {"ignore_cancel": true}                       never go on, whatever comes
    {"flood": N} {"big": BYTES} {"nest": DEPTH}   N small updates; one large, one deep
    {"repeat": N, "steps": steps}
    {"stderr": TEXT} {"stderr_flood": BYTES}
    {"exit": STATUS} {"signal": NAME} {"close_stdout": true} {"stop_reading": true}
    {"stay": true}                                (in start) ignore SIGTERM and the end of stdin
    {"spawn": "holder" | "setsid" | "daemon"}     a child that holds our stdout and stderr, in our
                                                  group or not; or one that left all three

OUTCOME is an option id, an outcome, an action, an error's code, or ``else``. In texts
``{sessionId}``, ``{cwd}``, ``{prompt}``, ``{promptId}``, ``{answer}`` (the last one, as JSON) and
``{n}`` (the prompt's first number) are filled in; a number may be ``"{n}"``. With
``FAKE_AGENT_LOG`` set, each line in, and each write out of up to 100 kB, is appended to that file
as JSON: ``{"dir": "in" | "out", "pid": N, "line": TEXT}``. Standard library only.
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
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Json = dict[str, Any]
Steps = list[Json]

LOGGED_OUT_BYTES = 100_000
_NAMES = re.compile(r"\{(sessionId|cwd|prompt|promptId|answer|n)\}")

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

    def send(self, message: Json) -> None:
        """One message."""
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        """Bytes as they are; nothing if nobody can read them any more.

        Past the interpreter's buffer: a thread stuck in a full pipe would abort the exit.
        """
        with self._lock:
            view = memoryview(data)
            with suppress(OSError):
                while view:
                    view = view[os.write(1, view) :]
        self.note("out", data)

    def note(self, direction: str, data: bytes) -> None:
        """Keep a line for the test that started us."""
        if not self._log or (direction == "out" and len(data) > LOGGED_OUT_BYTES):
            return
        entry = {"dir": direction, "pid": os.getpid(), "line": data.decode("utf-8", "replace")}
        with open(self._log, "ab", 0) as file:
            file.write(json.dumps(entry).encode() + b"\n")


class Agent:
    """Plays one case."""

    def __init__(self, case: Json) -> None:
        self.case = case
        self.wire = Wire()
        self.ids = itertools.count(case.get("firstId", 0))
        self.answers: dict[str, Json] = {}
        self.answered = threading.Condition()
        self.count = 0
        self.cancels: dict[str, threading.Event] = defaultdict(threading.Event)
        self.is_reading = True
        self.is_staying = False
        self.sessions: dict[str, str] = {}

    def run(self) -> None:
        """Read until stdin ends."""
        for line in sys.stdin.buffer:
            if not self.is_reading:
                break
            self.wire.note("in", line)
            if line.strip():
                self.parse(line)
        if not self.is_reading or self.is_staying:
            threading.Event().wait()

    def parse(self, line: bytes) -> None:
        """One line of the client; what is no JSON is answered as JSON-RPC 2.0 wants it."""
        try:
            message = json.loads(line)
        except ValueError:
            self.wire.send({"id": None, "error": {"code": -32700, "message": "Parse error"}})
        else:
            self.receive(message)

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
            self.cancels[params["sessionId"]].set()
        elif method == "session/prompt":
            self.cancels[params["sessionId"]].clear()
            self.play(self.prompt, message["id"], params)
        elif "id" in message:
            self.play(self.request, message["id"], method, params)

    def play(self, play: Callable[..., None], *args: Any) -> None:
        """Play beside reading, so that what is played can wait for what is read."""
        threading.Thread(target=play, args=args, daemon=True).start()

    def request(self, rpc_id: Any, method: str, params: Json) -> None:
        """Anything but a prompt."""
        entry = self.entry(method)
        session_id = params.get("sessionId") or self.case.get("sessionId") or str(uuid.uuid4())
        if "cwd" in params:
            self.sessions[session_id] = params["cwd"]
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
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return entry
        first: Json = entry["first"]
        return first

    def plain(self, method: str, session_id: str) -> Json:
        """What a plain agent answers."""
        listed = [{"sessionId": each, "cwd": cwd} for each, cwd in self.sessions.items()]
        known: Json = {
            "session/new": {"sessionId": session_id},
            "session/list": {"sessions": listed},
        }
        plain: Json = (known | {"initialize": INITIALIZE}).get(method, {})
        return plain

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
        known = {"sessionId": session_id, "cwd": agent.sessions.get(session_id, "/")}
        said = {"prompt": text, "promptId": str(rpc_id), "n": number[0] if number else "1"}
        self.known = known | said | {"answer": ""}

    def steps(self, steps: Steps) -> None:
        """Play them in order."""
        for step in steps:
            self.step(step)

    def fill(self, value: Any) -> Any:
        """Fill in what is known, wherever a text stands."""
        if isinstance(value, str):
            return _NAMES.sub(lambda found: self.known[found[1]], value)
        if isinstance(value, dict):
            return {name: self.fill(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.fill(each) for each in value]
        return value

    def step(self, step: Json) -> None:
        """One step."""
        verb = next(iter(step))
        if (play := getattr(self, f"do_{verb}", None)) is None:
            sys.stderr.write(f"no such step: {verb}\n")
            os._exit(2)
        play(self.fill(step[verb]), step)

    def update(self, update: Json, times: int = 1) -> None:
        """A session/update."""
        params = {"sessionId": self.known["sessionId"], "update": update}
        message = {"jsonrpc": "2.0", "method": "session/update", "params": params}
        self.agent.wire.send_bytes((json.dumps(message) + "\n").encode() * times)

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
        rpc_id = self.fill(step["id"]) if "id" in step else next(self.agent.ids)
        self.agent.answers.pop(json.dumps(rpc_id), None)
        params = self.fill(step.get("params", {}))
        self.agent.wire.send({"id": rpc_id, "method": method, "params": params})
        if step.get("wait", True):
            self.do_await(rpc_id, step)

    def do_await(self, rpc_id: Any, step: Json) -> None:
        key = json.dumps(rpc_id)
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

    def do_partial(self, text: str, _: Json) -> None:
        self.agent.wire.send_bytes(text.encode("utf-8", "surrogatepass"))

    def do_respond(self, result: Any, _: Json) -> None:
        self.is_answered = True
        self.agent.wire.send({"id": self.rpc_id, "result": result})

    def do_fail(self, error: Json, _: Json) -> None:
        self.is_answered = True
        self.agent.wire.send({"id": self.rpc_id, "error": error})

    def do_wait_cancel(self, _: Any, __: Json) -> None:
        self.agent.cancels[self.known["sessionId"]].wait()

    def do_ignore_cancel(self, _: Any, __: Json) -> None:
        threading.Event().wait()

    def do_sleep(self, pause_ms: Any, _: Json) -> None:
        time.sleep(int(pause_ms) / 1000)

    def do_wait_answers(self, count: Any, _: Json) -> None:
        with self.agent.answered:
            self.agent.answered.wait_for(lambda: self.agent.count >= int(count))

    def do_flood(self, count: Any, _: Json) -> None:
        content = {"type": "text", "text": "0123456789" * 8}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        for sent in range(0, int(count), 1000):
            self.update(update, min(int(count) - sent, 1000))

    def do_big(self, size: Any, _: Json) -> None:
        self.do_text("x" * int(size), {})

    def do_nest(self, depth: Any, _: Json) -> None:
        head = '{"jsonrpc":"2.0","method":"session/update","params":'
        self.do_raw(head + "[" * int(depth) + "]" * int(depth) + "}", {})

    def do_repeat(self, count: Any, step: Json) -> None:
        for _number in range(int(count)):
            self.steps(step["steps"])

    def do_stderr(self, text: str, _: Json) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def do_stderr_flood(self, size: Any, _: Json) -> None:
        self.do_stderr("\n".join(["e" * 999] * (int(size) // 1000)), {})

    def do_exit(self, status: Any, _: Json) -> None:
        os._exit(int(status))

    def do_signal(self, name: str, _: Json) -> None:
        os.kill(os.getpid(), getattr(signal, name))
        # It may reach another thread than this one, which must not go on until then.
        threading.Event().wait()

    def do_close_stdout(self, _: Any, __: Json) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def do_stop_reading(self, _: Any, __: Json) -> None:
        self.agent.is_reading = False

    def do_stay(self, _: Any, __: Json) -> None:
        self.agent.is_staying = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def do_spawn(self, kind: str, _: Json) -> None:
        outputs = subprocess.DEVNULL if kind == "daemon" else None
        subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()"],
            stdin=subprocess.DEVNULL,
            stdout=outputs,
            stderr=outputs,
            start_new_session=kind != "holder",
        )


def main() -> None:
    """Play the case named on the command line."""
    with open(sys.argv[1], encoding="utf-8") as file:
        case = json.load(file)
    agent = Agent(case)
    Play(agent, "", "", None).steps(case.get("start", []))
    agent.run()


if __name__ == "__main__":
    main()
