"""What the events of a session must tell of its turns, read as a caller would read them.

``Story`` is given the events in order and what callers asked for; whatever contradicts the contract
fails an assertion: the order at a turn's end, the tools and requests it closes, whether it was
denied, which prompt was sent, and what follows an accepted plan.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class Story:
    """All turns of one session."""

    def __init__(self) -> None:
        self.resends: dict[str, bool] = {}
        """Whether the prompt of a turn asked for the one that was cancelled before it."""
        self.texts: dict[str, str] = {}
        """The text of each prompt by its turn."""
        self.ended: dict[str, Json] = {}
        self.causes: set[str] = set()
        self._open_tools: set[tuple[str, str]] = set()
        self._pending: dict[str, str | None] = {}
        self._refused: set[str] = set()
        self._running: str | None = None
        self._sent: list[Json] = []
        self._cancelled: list[Json] = []
        self._proceeds: dict[str, str] = {}
        self._due: str | None = None

    def accepted(self, turn_id: str | None, request_id: str, reply: Json) -> None:
        """A caller accepted a plan and wants to go on from there; of a turn, the last one counts.

        Outside of a turn there is nothing to wait for.
        """
        if "proceed" not in reply:
            return
        if turn_id is None:
            self._due = request_id
        else:
            self._proceeds[turn_id] = request_id

    def take(self, event: Json) -> None:
        """The next event."""
        turn_id, params = event["turnId"], event["params"]
        match event["type"]:
            case "bridge/turn_queued":
                self._queued(turn_id, params["turn"])
            case "bridge/turn_started":
                self._started(turn_id, params["prompt"])
            case "bridge/turn_ended":
                self._ended(turn_id, params["turn"])
            case "bridge/tool_closed":
                self._open_tools.remove((turn_id, params["toolCallId"]))
            case "bridge/request_resolved":
                self._resolved(params["request"])
            case "session/update" if params["update"]["sessionUpdate"] == "tool_call" and turn_id:
                self._open_tools.add((turn_id, params["update"]["toolCallId"]))
            case _ if request_id := event.get("requestId"):
                self._pending[request_id] = turn_id
            case _:
                pass

    def holds_now(self) -> None:
        """Between commits: no request of a turn outlives it, no plan is forgotten."""
        assert all(turn in (None, self._running) for turn in self._pending.values())
        assert self._due is None, "an accepted plan was to be followed by a turn"

    def _queued(self, turn_id: str, turn: Json) -> None:
        if (cause := turn["causedBy"]) is not None:
            assert cause == self._due, "only a completed turn's plan is followed, or one of no turn"
            self._due = None
            self.texts[turn_id] = "go on"

    def _started(self, turn_id: str, prompt: list[Json]) -> None:
        assert self._running is None and turn_id not in self.ended
        self._running = turn_id
        before = self._cancelled if self.resends.get(turn_id) else []
        assert [*map(_text, prompt)] == [*map(_text, before), self.texts[turn_id]]
        self._sent, self._cancelled = prompt, []

    def _ended(self, turn_id: str, turn: Json) -> None:
        assert turn_id not in self.ended and turn["endedAt"] and turn["outcome"]
        assert turn_id not in [turn for turn, _ in self._open_tools], "a tool was left open"
        assert turn_id not in self._pending.values(), "requests are resolved before their turn"
        self.ended[turn_id] = turn
        if turn["cancelledBy"] == "caller":
            is_restart = (turn["error"] or {}).get("code") == "bridge-restarted"
            assert turn["status"] == "cancelled" or is_restart
        if turn_id != self._running:
            assert turn["startedAt"] is None
            return
        self._running = None
        if turn["stopReason"] == "cancelled" and turn["cancelledBy"] == "agent":
            assert (turn["outcome"] == "denied") == (turn_id in self._refused)
        if turn["status"] == "cancelled":
            self._cancelled = self._sent
        if turn["status"] == "completed":
            self._due = self._proceeds.get(turn_id)

    def _resolved(self, request: Json) -> None:
        turn_id = self._pending.pop(request["requestId"])
        assert turn_id == request["turnId"] and turn_id not in self.ended
        if request["status"] == "answered" and not _allows(request["resolution"]["outcome"]):
            self._refused.add(self._running or "")


def _text(block: Json) -> str:
    text: str = block["text"]
    return text


def _allows(outcome: Json) -> bool:
    return (
        outcome.get("optionId") == "yes"
        or outcome.get("outcome") == "accepted"
        or outcome.get("action") == "accept"
        or "result" in outcome
    )
