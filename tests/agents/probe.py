"""Goes through a conversation with real agents and says what each did, without the bridge.

    python -m tests.agents.probe NAME…        names as in ``real.py``

For each agent, against the stand-in for an LLM: a plain prompt, a shell command that is allowed,
one that is rejected, a file that is written, a slow answer that is cancelled, the prompt after it,
a big answer; then SIGKILL for its process group, and session/load of the same conversation in a new
process. With ``PROBE_RECORD`` set to a folder, all lines of both directions are kept there as
``NAME.jsonl``: these are the recordings that ``test_transcripts.py`` replays. Prints one JSON
object an agent. It shows what the bridge has to take from it, so it
trusts nothing of the bridge's own code; a wait that is too long is told, not raised.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.agents.llm import StandIn
from tests.agents.real import RECIPES, RealAgent, prepare

Json = dict[str, Any]

LIMIT_S = 60.0
BIG_KIB = 64
_INHERITED = ("PATH", "LANG", "TMPDIR")


class Peer:
    """An agent's process and the messages it sends, in order."""

    def __init__(self, agent: RealAgent, folder: Path, record: Path | None) -> None:
        self._folder = folder
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._process = subprocess.Popen(
            agent.argv,
            cwd=folder,
            env=inherited | dict(agent.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._record = record
        self._keep("start", "")
        self._messages: queue.Queue[Json | None] = queue.Queue()
        self._number = 0
        self.noise = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._keep("agent", line.decode("utf-8", "replace"))
            try:
                self._messages.put(json.loads(line))
            except ValueError:
                self.noise += 1
        self._messages.put(None)

    def _keep(self, who: str, line: str) -> None:
        """A line for the recording; large texts are shortened, paths of this run are masked."""
        if self._record is None:
            return
        text = re.sub(r"x{200,}", "x" * 200, line.rstrip("\n"))
        text = text.replace(str(self._folder), "/ws").replace(str(self._folder.parent), "/box")
        text = text.replace(str(Path.cwd()), "/project")
        with self._record.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"who": who, "line": text}) + "\n")

    def send(self, message: Json) -> None:
        """One message."""
        assert self._process.stdin is not None
        line = json.dumps({"jsonrpc": "2.0", **message})
        self._keep("client", line)
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def begin(self, method: str, params: Json) -> str:
        """Send a request; returns its id."""
        self._number += 1
        rpc_id = f"bridge-{self._number}"  # as the bridge counts, so that recordings replay
        self.send({"id": rpc_id, "method": method, "params": params})
        return rpc_id

    def next(self, deadline: float) -> Json:
        """The next message; an error in JSON-RPC's shape if there is none in time."""
        try:
            message = self._messages.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return {"error": {"message": "no answer in time"}, "id": None, "is_over": True}
        if message is None:
            return {"error": {"message": "the agent ended"}, "id": None, "is_over": True}
        return message

    def kill(self) -> None:
        """SIGKILL for the whole group, and reap."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


class Probe:
    """One agent's conversation."""

    def __init__(self, name: str, agent: RealAgent, folder: Path) -> None:
        self._name = name
        self._agent = agent
        self._folder = folder
        folder_of_records = os.environ.get("PROBE_RECORD")
        self._record = Path(folder_of_records, f"{name}.jsonl") if folder_of_records else None
        if self._record is not None:
            self._record.unlink(missing_ok=True)
        self._peer = Peer(agent, folder, self._record)
        self._session_id = ""
        self.said: Json = {}

    def call(
        self, method: str, params: Json, reply: str = "allow_once", cancel_at: str = ""
    ) -> Json:
        """A request with all that comes before its answer.

        ``reply`` is the kind of option that answers permissions; text that holds ``cancel_at``
        is answered with session/cancel. Returns ``{"text", "asked", "answer", "seconds"}``.
        """
        began = time.monotonic()
        rpc_id = self._peer.begin(method, params)
        told: Json = {"text": "", "asked": []}
        while True:
            message = self._peer.next(began + LIMIT_S)
            if message.get("is_over") or ("method" not in message and message["id"] == rpc_id):
                told["answer"] = message.get("result", message.get("error"))
                told["seconds"] = round(time.monotonic() - began, 2)
                return told
            if "method" in message and message.get("id") is not None:
                told["asked"].append(self._answer(message, reply))
            elif message.get("method") == "session/update":
                told["text"] += _text(message["params"]["update"])
                if cancel_at and cancel_at in told["text"]:
                    cancel_at = ""
                    self._peer.send({"method": "session/cancel", "params": self._session()})

    def _session(self) -> Json:
        return {"sessionId": self._session_id}

    def _answer(self, request: Json, kind: str) -> Json:
        """Answer a request of the agent's; returns what it asked."""
        method, rpc_id = request["method"], request["id"]
        if method != "session/request_permission":
            error = {"code": -32601, "message": "Method not found"}
            self._peer.send({"id": rpc_id, "error": error})
            return {"method": method}
        options = request["params"]["options"]
        chosen = next((each["optionId"] for each in options if each["kind"] == kind), None)
        outcome = (
            {"outcome": "selected", "optionId": chosen} if chosen else {"outcome": "cancelled"}
        )
        self._peer.send({"id": rpc_id, "result": {"outcome": outcome}})
        return {
            "id": rpc_id,
            "title": request["params"]["toolCall"].get("title"),
            "options": {each["optionId"]: each["kind"] for each in options},
            "chosen": chosen,
        }

    def prompt(self, text: str, **options: str) -> Json:
        """A turn; long text is shortened to its size."""
        prompt = [{"type": "text", "text": text}]
        told = self.call("session/prompt", {**self._session(), "prompt": prompt}, **options)
        if len(told["text"]) > 200:
            told["text"] = f"{len(told['text'])} characters"
        return told

    def initialize(self) -> Json:
        """The handshake, with authenticate where the recipe names a method."""
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        params = {"protocolVersion": 1, "clientCapabilities": capabilities}
        told = self.call("initialize", params)
        if self._agent.auth_method:
            self.said["authenticate"] = self.call(
                "authenticate", {"methodId": self._agent.auth_method}
            )["answer"]
        answer: Json = told["answer"]
        return answer

    def run(self) -> Json:
        """The whole conversation."""
        setup = {"cwd": str(self._folder), "mcpServers": []}
        self.said["capabilities"] = self.initialize().get("agentCapabilities")
        new = self.call("session/new", setup)["answer"]
        self._session_id = new.get("sessionId", "")
        self.said["new"] = new if not self._session_id else sorted(new)
        shell = RECIPES[self._name].shell
        written = self._folder / "written.txt"
        self.said["plain"] = self.prompt("Say something.")
        self.said["shell allowed"] = self.prompt(f"PLEASE-RUN {shell}")
        self.said["shell rejected"] = self.prompt("PLEASE-RUN date > no.txt", reply="reject_once")
        self.said["write"] = self.prompt(f"PLEASE-WRITE {written}")
        self.said["cancelled"] = self.prompt("PLEASE-COUNT 200 50", cancel_at="number 2")
        self.said["after"] = self.prompt("And now?")
        self.said["refused by the model"] = self.prompt("PLEASE-FAIL 400")
        self.said["big"] = self.prompt(f"PLEASE-BIG {BIG_KIB}")
        self.said["files"] = sorted(file.name for file in self._folder.iterdir())
        self._peer.kill()
        self._peer = Peer(self._agent, self._folder, self._record)
        self.initialize()
        loaded = self.call("session/load", {**setup, **self._session()})
        self.said["load"] = {"replayed": len(loaded["text"]), **loaded, "text": ""}
        self.said["after load"] = self.prompt("Go on.")
        self.said["noise"] = self._peer.noise
        self._peer.kill()
        return self.said


def _text(update: Json) -> str:
    """The agent's words in an update."""
    if update.get("sessionUpdate") != "agent_message_chunk":
        return ""
    return str((update.get("content") or {}).get("text") or "")


def main() -> None:
    """Probe the agents named on the command line."""
    for name in sys.argv[1:]:
        with StandIn() as base, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            home, workspace = Path(folder, "home"), Path(folder, "ws")
            workspace.mkdir()
            said = Probe(name, prepare(name, home, base), workspace).run()
            sys.stdout.write(json.dumps({"agent": name, **said}, indent=1) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
