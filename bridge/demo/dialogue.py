"""One conversation over stdio: the client's requests, answered as Cursor answers them.

Rules: everything but a prompt is answered at once, in order; a prompt is a task, one at a time in
a session (Cursor steers with a second one, tiann/hapi#1609; here it is refused). ``cancel`` ends it
promptly, leaves its tools open, and its prompt is forgotten. What cannot be read is answered with
an error or passed over, and never ends the process. Source: ACP, version 1; for the shapes,
kurrent-io/kcap-cli, donovan-yohan/relay-ide#1552.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bridge.demo import scripts, wire
from bridge.demo.client import ChunkLines, Client
from bridge.demo.options import DEFAULT_MODEL, Options, available_models
from bridge.demo.prompt import text_of, title_of
from bridge.demo.replay import replayed
from bridge.demo.sign_in import SignIn
from bridge.demo.store import Store
from bridge.demo.turn import Session, Turn, TurnCancelled, World
from bridge.demo.wire import RpcError, invalid_params

Params = dict[str, Any]

INITIALIZED: Final[dict[str, Any]] = {
    "protocolVersion": 1,
    "agentCapabilities": {
        "loadSession": True,
        "mcpCapabilities": {"http": True, "sse": True},
        "promptCapabilities": {"audio": False, "embeddedContext": False, "image": True},
        "sessionCapabilities": {"list": {}},
    },
    "authMethods": [
        {
            "id": "cursor_login",
            "name": "Cursor Login",
            "description": "Authenticate using existing Cursor login credentials. "
            "Run 'agent login' first if not logged in.",
        }
    ],
}
_COMMANDS_AFTER_S: Final = 0.3
_LATE_REPLAY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Setup:
    """How a conversation is set up: its first model, and whether a login is asked for."""

    model_id: str = DEFAULT_MODEL
    login: str = ""


class Dialogue:
    """Takes bytes from the client; answers through ``client``."""

    def __init__(self, client: Client, store: Store, world: World, setup: Setup) -> None:
        self._client = client
        self._store = store
        self._world = world
        self._setup = setup
        self._sign_in = SignIn(setup.login)
        self._lines = wire.LineSplitter()
        self._sessions: dict[str, Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_picker = False
        self._own_answer = {"session/prompt": self._prompt, "session/load": self._load}
        self._methods: dict[str, Callable[[Params], dict[str, Any]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/list": self._list,
            "session/set_mode": self._set_mode,
            "session/set_model": self._set_model,
            "session/set_config_option": self._set_config_option,
            "cursor/list_available_models": _list_models,
        }

    def feed(self, data: bytes) -> None:
        """Bytes as they arrive."""
        for line in self._lines.feed(data):
            self._take(line)

    async def close(self) -> None:
        """The input has ended: a last line is still read, then turns are dropped."""
        for line in self._lines.end():
            self._take(line)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def settle(self) -> None:
        """Wait until every turn, and all that is due after it, is over."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _take(self, line: bytes | None) -> None:
        if line is None:
            self._client.refuse(None, RpcError(wire.INVALID_REQUEST, "Line too long"))
            return
        if not line.strip():
            return
        try:
            message = wire.decode(line)
        except RpcError as error:
            self._client.refuse(None, error)
            return
        self._dispatch(message)

    def _dispatch(self, message: dict[str, Any]) -> None:
        method, request_id = message.get("method"), message.get("id")
        is_known_id = type(request_id) in (int, str)
        if "method" not in message:
            self._client.take_answer(message)
        elif not isinstance(method, str) or (request_id is not None and not is_known_id):
            shown = request_id if is_known_id else None
            self._client.refuse(shown, RpcError(wire.INVALID_REQUEST, "Invalid request"))
        elif request_id is None:
            self._notified(method, message.get("params"))
        else:
            self._requested(request_id, method, message.get("params"))

    def _notified(self, method: str, params: Any) -> None:
        if method == "session/cancel" and isinstance(params, dict):
            session_id = params.get("sessionId")
            session = self._sessions.get(session_id) if isinstance(session_id, str) else None
            if session and session.running and session.turn and not session.turn.ignores_cancel:
                session.running.cancel()

    def _requested(self, request_id: Any, method: str, params: Any) -> None:
        try:
            given = {} if params is None else params
            if not isinstance(given, dict):
                raise invalid_params("params is no object")
            if method in self._own_answer:
                self._own_answer[method](request_id, given)
            elif method in self._methods:
                self._client.respond(request_id, self._methods[method](given))
            else:
                data = {"method": method}
                raise RpcError(wire.METHOD_NOT_FOUND, "Method not found", data)
        except RpcError as error:
            self._client.refuse(request_id, error)
        except OSError as error:
            self._client.refuse(request_id, _internal(error))

    # The methods, in the order a client calls them.

    def _initialize(self, params: Params) -> dict[str, Any]:
        capabilities = params.get("clientCapabilities")
        self._client.capabilities = capabilities if isinstance(capabilities, dict) else {}
        meta = self._client.capabilities.get("_meta")
        self._has_picker = isinstance(meta, dict) and meta.get("parameterizedModelPicker") is True
        return INITIALIZED

    def _authenticate(self, params: Params) -> dict[str, Any]:
        self._sign_in.authenticate(params.get("methodId"))
        return {}

    def _new(self, params: Params) -> dict[str, Any]:
        self._sign_in.check()
        cwd = _string(params, "cwd")
        session_id = self._world.new_id()
        self._store.create(session_id, cwd, self._world.now())
        session = self._open(session_id, cwd)
        return {"sessionId": session_id, **session.options.state()}

    def _list(self, params: Params) -> dict[str, Any]:
        cwd = params.get("cwd")
        return {
            "sessions": [
                {
                    "sessionId": each.session_id,
                    "cwd": each.cwd,
                    "title": each.title,
                    "updatedAt": datetime.fromtimestamp(each.updated_at, UTC).isoformat(),
                }
                for each in self._store.list(cwd if isinstance(cwd, str) else None)
            ]
        }

    def _set_mode(self, params: Params) -> dict[str, Any]:
        session = self._session(params)
        session.options.set_mode(params.get("modeId"))
        update = {"sessionUpdate": "current_mode_update", "currentModeId": session.options.mode}
        self._client.update(session.session_id, update)
        return {}

    def _set_model(self, params: Params) -> dict[str, Any]:
        self._session(params).options.set_model(params.get("modelId"))
        return {}

    def _set_config_option(self, params: Params) -> dict[str, Any]:
        session = self._session(params)
        config_id = params.get("configId")
        if not isinstance(config_id, str):
            # anyrobert/cursor-api-proxy#17: an ``id`` in its place is an internal error.
            data = [{"expected": "string", "code": "invalid_type", "path": ["configId"]}]
            raise RpcError(wire.INTERNAL_ERROR, "Internal error", data)
        session.options.set(config_id, params.get("value"))
        return {"configOptions": session.options.config_options()}

    def _load(self, request_id: Any, params: Params) -> None:
        self._sign_in.check()
        session_id = _string(params, "sessionId")
        known = self._sessions.get(session_id)
        if known is not None and known.running is not None:
            raise RpcError(wire.INVALID_REQUEST, "A prompt is running in this session")
        saved = self._store.load(session_id)
        if saved is None:
            raise _not_found(session_id)
        given = params.get("cwd")
        session = self._open(session_id, given if isinstance(given, str) else saved.cwd)
        session.title = saved.title
        session.history = [text_of(turn["prompt"]) for turn in saved.turns]
        early, late = replayed(saved.turns)
        for update in early:
            self._client.update(session_id, update)
        self._client.respond(request_id, session.options.state())
        self._start(self._update_late(session_id, _LATE_REPLAY_S, late))

    def _prompt(self, request_id: Any, params: Params) -> None:
        session = self._session(params)
        blocks = params.get("prompt")
        if not isinstance(blocks, list) or not all(isinstance(each, dict) for each in blocks):
            raise invalid_params("prompt is no list of content blocks")
        if session.running is not None:
            raise RpcError(wire.INVALID_REQUEST, "A prompt is running in this session")
        session.turn = Turn(session, self._client, self._world, self._store, text_of(blocks))
        session.running = self._start(scripts.play(session.turn))
        # Apart from the playing, so that a cancel that comes before its first step is answered.
        self._start(self._finish(request_id, session, session.running, blocks))

    # What goes on beside the requests.

    async def _finish(
        self,
        request_id: Any,
        session: Session,
        playing: asyncio.Task[None],
        blocks: list[Params],
    ) -> None:
        await asyncio.wait({playing})
        turn, session.turn, session.running = session.turn, None, None
        if turn is None:
            return
        answer = _answer_of(playing, turn)
        if isinstance(answer, RpcError):
            self._client.refuse(request_id, answer)
            return
        if answer != "cancelled":
            self._remember(session, turn, blocks)
        self._client.respond(request_id, {"stopReason": answer})
        for delay_s, line in turn.after_end:
            await self._world.rest(delay_s)
            self._client.outlet.put(line)

    def _remember(self, session: Session, turn: Turn, blocks: list[Params]) -> None:
        session.history.append(turn.prompt)
        try:
            if session.title is None:
                session.title = title_of(turn.prompt)
                update = {"sessionUpdate": "session_info_update", "title": session.title}
                self._client.update(session.session_id, update)
                self._store.add_title(session.session_id, session.title)
            kept = {"prompt": blocks, "items": turn.record.items()}
            self._store.add_turn(session.session_id, kept)
        except OSError as error:
            # The turn has happened; only a later load will miss it.
            self._world.write_stderr(f"could not keep the turn: {error.strerror}\n".encode())

    async def _update_late(self, session_id: str, delay_s: float, updates: list[Params]) -> None:
        if updates:
            await self._world.rest(delay_s)
        for update in updates:
            self._client.update(session_id, update)

    def _open(self, session_id: str, cwd: str) -> Session:
        options = Options(self._setup.model_id, has_picker=self._has_picker)
        session = Session(session_id, Path(cwd), options, ChunkLines(session_id))
        self._sessions[session_id] = session
        commands = {
            "sessionUpdate": "available_commands_update",
            "availableCommands": [
                {"name": word, "description": script.about}
                for word, script in scripts.SCRIPTS.items()
            ],
        }
        self._start(self._update_late(session_id, _COMMANDS_AFTER_S, [commands]))
        return session

    def _session(self, params: Params) -> Session:
        session_id = _string(params, "sessionId")
        session = self._sessions.get(session_id)
        if session is None:
            raise _not_found(session_id)
        return session

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _string(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise invalid_params(f"{name} is no string")
    return value


def _answer_of(playing: asyncio.Task[None], turn: Turn) -> RpcError | str:
    """A stop reason or an error; a script that breaks must not leave its turn open."""
    if playing.cancelled():
        return "cancelled"
    match playing.exception():
        case None:
            return turn.stop_reason
        case TurnCancelled():
            return "cancelled"
        case RpcError() as error:
            return error
        case error:
            return _internal(error)


def _list_models(_: Params) -> dict[str, Any]:
    return available_models()


def _not_found(session_id: str) -> RpcError:
    return invalid_params(f'Session "{session_id}" not found')


def _internal(error: BaseException) -> RpcError:
    return RpcError(wire.INTERNAL_ERROR, "Internal error", {"message": str(error)})
