"""What members, parameters and answers of the contract mean, for who writes a client.

Owns the words alone: which members there are is said by the shapes and the bodies, and a test
holds that each of them has its words here and that no words are left over. A nested member goes by
its dotted path, ``[]`` for the items of a list: ``rules[].match.kind``.
"""

from __future__ import annotations

from typing import Any, Final

Words = dict[str, str]

_ID: Final = "Random and opaque."
_SESSION_ID: Final = "The session's id, `ses_…`."
_TURN_ID: Final = "The turn it belongs to, null outside of turns."
_FIRST_SEQ: Final = "Position of the first event that is kept."
_LAST_SEQ: Final = "Position of the last event it includes; `after=` this goes on behind it."
_LAST_ID: Final = "The same over all sessions, for `GET /v1/events?after=`."
_NEXT: Final = "Handed back as `cursor` for the next page; null on the last one."
_HARD: Final = "End the agent's process at once; the session is hibernated."
_META: Final = "ACP's `_meta`, passed on to the agent."
_WAIT: Final = (
    "`wait=SECONDS` (RFC 7240), 50 at most: until the turn has ended or waits for a person."
)
_CHOSEN: Final = "must be one that the agent offers, else 422 with `available`"

MEMBERS: Final[dict[str, Words]] = {
    "Problem": {
        "type": "`urn:cursor-acp-bridge:problem:` and the code.",
        "title": "The code in words.",
        "status": "The HTTP status that goes with the code.",
        "detail": "What happened this time; for people.",
        "instance": "The path that was asked for.",
        "code": "What a program looks at; see [Problems](#problems).",
        "hint": "What would mend it.",
        "available": "What could have been chosen instead.",
        "errors": "Where the body or query does not fit: `{pointer, detail}` each.",
        "agentError": "The agent's own JSON-RPC error: `code`, `message`, `data`.",
    },
    "Session": {
        "sessionId": _SESSION_ID,
        "owner": "Whose it is; all tokens of an owner share sessions.",
        "agent": "The `agentId` of its agent.",
        "agentSessionId": "The agent's own id of the conversation; null before it has one.",
        "cwd": "The folder it works in.",
        "title": "Given by a caller, or by the agent.",
        "status": "`waiting`: for a person's reply. `hibernated`: no process until a prompt.",
        "problem": "Why it is `failed`.",
        "createdAt": "When it was made.",
        "updatedAt": "When its last event was.",
        "mode": "Null where the agent has no modes.",
        "mode.current": "The `id` of the mode that holds.",
        "mode.available": "What `PUT …/mode` may choose.",
        "mode.available[].id": "What `modeId` names.",
        "mode.available[].name": "For people.",
        "mode.available[].description": "For people.",
        "model": "Null where the agent has no models.",
        "model.current": "The `id` of the model that holds.",
        "model.available": "What `PUT …/model` may choose; lists of sessions leave it out.",
        "model.available[].id": "What `modelId` names.",
        "model.available[].name": "For people.",
        "configOptions": "The agent's options as it says them; lists of sessions leave them out.",
        "commands": "The agent's slash commands as it says them; lists of sessions leave them out.",
        "plan": "The agent's plan: `{content, priority, status}` each.",
        "todos": "Cursor's todos: `{id, content, status}` each.",
        "usage": "Tokens and cost as the agent says them; null where it says nothing.",
        "turn": "The turn that runs or ran last, without its texts.",
        "queue": "The ids of the turns that wait, the next one first.",
        "pendingRequests": "What waits for a person.",
        "permissions": "The rules that hold.",
        "metadata": "The caller's own; the bridge does not look into it.",
        "capabilities": "What the agent says it can; null before its first process has said it.",
        "firstSeq": _FIRST_SEQ,
        "lastSeq": _LAST_SEQ,
        "lastId": _LAST_ID,
    },
    "SessionList": {"sessions": "Latest activity first.", "nextCursor": _NEXT, "lastId": _LAST_ID},
    "Turn": {
        "turnId": _ID,
        "sessionId": _SESSION_ID,
        "status": "`completed`, `cancelled` and `failed` are its ends.",
        "outcome": "How it ended; null until then. `denied`: the agent stopped after a refusal. "
        "`suspected-error`: see `suspectedError`.",
        "stopReason": "The agent's own word for its end.",
        "cancelledBy": "Who cancelled it.",
        "causedBy": "The `requestId` of the accepted plan it carries out, else null.",
        "text": "All messages of the agent, joined with blank lines.",
        "finalText": "The last message of the agent: mostly the answer.",
        "textTruncated": "Whether `text` is cut at its limit.",
        "afterSeq": "Its events follow this position.",
        "firstSeq": "Its first event; null while it is queued.",
        "lastSeq": "Its last event; null until it has ended.",
        "createdAt": "When it was asked for.",
        "startedAt": "When it began.",
        "endedAt": "When it ended.",
        "usage": "Tokens and cost as the agent says them; null where it says nothing.",
        "result": "The agent's own answer to the prompt.",
        "error": "Why it is `failed`.",
        "suspectedError": "Set where the text looks like a failure that the agent told as text.",
        "suspectedError.kind": "What it seems to be about.",
        "suspectedError.text": "The text.",
    },
    "TurnList": {"turns": "Newest first, without texts.", "nextCursor": _NEXT},
    "CancelResult": {"turn": "The turn; its end comes as `bridge/turn_ended`."},
    "Request": {
        "requestId": _ID,
        "sessionId": _SESSION_ID,
        "session": "What a list for a person needs.",
        "session.title": "The session's title.",
        "session.cwd": "Its folder.",
        "session.agent": "Its agent.",
        "session.owner": "Its owner.",
        "turnId": _TURN_ID,
        "kind": "Says which reply fits.",
        "method": "The agent's own method, as `session/request_permission`.",
        "params": "What it asks, as it sent it.",
        "toolCall": "A permission's tool call, with what is known of it from before.",
        "allowedOptionIds": "The options of a permission that may be chosen; else null.",
        "status": "`withdrawn`: the agent no longer waits.",
        "createdAt": "When it was asked.",
        "expiresAt": "When `onTimeout` answers it; null: never.",
        "resolution": "Null while it waits.",
        "resolution.by": "Who or what ended it.",
        "resolution.token": "The name of the token that replied, else null.",
        "resolution.outcome": "The reply, or what stood for it.",
        "resolution.at": "When.",
    },
    "RequestList": {"requests": "Oldest first.", "nextCursor": _NEXT, "lastId": _LAST_ID},
    "Permissions": {
        "rules": "Looked at in order.",
        "rules[].match": "`{}` fits every permission.",
        "rules[].match.kind": "The kind of the tool call: `read`, `edit`, `execute`, …",
        "rules[].match.path": "A glob (`*` within a name, `**` across folders) that every path of "
        "the request must fit, where it really leads; a relative one begins at `cwd`.",
        "rules[].match.title": "The tool call's title, `*` for any part; never allows.",
        "rules[].match.method": "The method, or its beginning and `*`; left out: permissions.",
        "rules[].reply": "`cancel` cancels the request, `ask` leaves it to a person.",
        "onTimeout": "Left out: requests wait for ever.",
        "onTimeout.afterSeconds": "Counted from the request's `createdAt`.",
        "onTimeout.reply": "One of the replies of a rule.",
    },
    "Event": {
        "seq": "Position in its session, from 1, without a gap.",
        "id": "Position over all sessions, growing.",
        "sessionId": "Whose it is.",
        "turnId": _TURN_ID,
        "time": "When it was logged.",
        "type": "The agent's method, or `bridge/…` for what the bridge says.",
        "requestId": "Of what is asked: the id to reply to.",
        "replay": "True where an agent tells a conversation from elsewhere again.",
        "subagent": "The subagent's own session id, where one speaks.",
        "fileUrl": "Where the generated image can be had.",
        "params": "What is said; see the type's own schema.",
    },
    "EventPage": {
        "events": "In order.",
        "nextAfter": "What `after` is to be for the next page.",
        "more": "Whether there is more already.",
    },
    "Transcript": {
        "sessionId": _SESSION_ID,
        "firstSeq": _FIRST_SEQ,
        "lastSeq": _LAST_SEQ,
        "lastId": _LAST_ID,
        "items": "What is shown, oldest first.",
        "nextBefore": "Handed back as `before` for the page of older turns; null: there is none.",
        "truncated": "Whether a turn had more than fits.",
    },
    "Item": {
        "itemId": "Stable; an item that grows keeps it.",
        "type": "Says which further members there are. `user`, `message`, `thought`: `text`. "
        "`tool`: `toolCallId`, `title`, `kind`, `status`, `content`, `locations`, `rawInput`, "
        "`rawOutput`. `plan`: `entries`. `todos`: `todos`. `request`: `requestId`, `kind`, "
        "`method`, `params`, `status`, `resolution`. `turn_end`: how the turn ended. `notice`: "
        "`code`, `detail`.",
        "turnId": _TURN_ID,
        "firstSeq": "The event it began with.",
        "lastSeq": "The last event that changed it.",
        "open": "Whether it may still change.",
    },
    "Agent": {
        "agentId": "What `agent` names.",
        "title": "For people.",
        "dialect": "What it speaks.",
        "available": "Whether it can be started.",
        "version": "What it says of itself.",
        "authenticated": "Whether it is logged in.",
        "problem": "Why it is not available.",
        "hint": "What would mend that.",
        "capabilities": "What it says it can, as ACP has it.",
        "modes": "Its modes.",
        "models": "Its models.",
        "configOptions": "Its options.",
    },
    "AgentList": {"agents": "Those that the token may use."},
    "AgentSessionList": {"sessions": "The agent's own rows; `sessionId` is what `resume` names."},
    "FolderList": {
        "path": "The folder that was asked for; null for the list of roots.",
        "folders": "Those in it.",
        "folders[].name": "Its last part.",
        "folders[].path": "What `cwd` may be.",
        "folders[].git": "Whether it is a git repository.",
    },
    "Me": {
        "owner": "Whose sessions the token works with.",
        "token": "What the bridge knows of it.",
        "token.name": "As it was made.",
        "token.scopes": "What it may do.",
        "token.agents": "The agents it is narrowed to; null: all.",
        "token.roots": "The roots it is narrowed to; null: all.",
        "token.expiresAt": "Null: never.",
        "roots": "Where sessions may work.",
        "limits": "The bridge's bounds, by name.",
        "version": "The bridge's version.",
        "features": "Names of what this bridge can.",
    },
    "ExtensionResult": {"result": "As it came."},
    "Health": {"status": "`ok`, `ready`, or why it is not."},
    "Answered": {
        "questionId": "The `id` of the question in `params.questions`.",
        "selectedOptionIds": "The `id` of each chosen option; one, unless `allowMultiple`.",
    },
    "CancelBody": {
        "turnId": "Cancel only if this turn runs.",
        "hard": _HARD,
    },
    "CancelTurnBody": {"hard": _HARD},
    "ConfigBody": {"value": f"The value; {_CHOSEN}."},
    "ContentBlock": {"type": "`text`, `image`, `resource_link`, … as ACP has them."},
    "CreateSessionBody": {
        "agent": "An `agentId`; left out: the bridge's default.",
        "cwd": "An absolute folder inside the roots; left out: the first root.",
        "title": "Left out: what the agent calls it.",
        "mode": f"A mode's `id`; {_CHOSEN}.",
        "model": f"A model's `id`; {_CHOSEN}.",
        "config": "Options by their id; values that the agent offers.",
        "additionalDirectories": "Further folders inside the roots, for agents that take them.",
        "mcpServers": "MCP servers as ACP has them; never shown again.",
        "metadata": "The caller's own; the bridge does not look into it.",
        "permissions": "Rules of this session; left out: those configured for the agent.",
        "resume": "The agent's own id of a conversation to take up.",
        "_meta": _META,
    },
    "ExtensionBody": {
        "method": "A method of the agent's own, as `cursor/…` or `_…`.",
        "params": "As the agent wants them.",
    },
    "ModeBody": {"modeId": f"A mode's `id`; {_CHOSEN}."},
    "ModelBody": {"modelId": f"A model's `id`; {_CHOSEN}."},
    "PatchSessionBody": {
        "title": "Null takes it away.",
        "metadata": "A merge patch (RFC 7396): null removes a member.",
        "permissions": "Replaces all rules, also for what waits already.",
    },
    "ProceedBody": {
        "modeId": "The mode to carry it out in; left out: the one that holds.",
        "prompt": "What the agent is told.",
    },
    "PromptBody": {
        "prompt": "A text, or ACP content blocks.",
        "onBusy": "Where a turn runs: 409, wait behind it, or cancel it and go first.",
        "onLost": "Where the agent has lost the conversation: fail, or begin a new one.",
        "resendCancelled": "Put the prompt that was cancelled last before this one.",
        "_meta": _META,
    },
    "ReplyBody": {
        "outcome": "`selected` for permissions; `answered`, `skipped` for questions; `accepted`, "
        "`rejected` for plans; `cancelled` for all three.",
        "optionId": "With `selected`: one of the request's `allowedOptionIds`.",
        "kind": "With `selected`, in place of `optionId`: the one option of this kind.",
        "answers": "With `answered`.",
        "reason": "With `skipped` and `rejected`: for the agent.",
        "planUri": "With `accepted`: where the plan was put.",
        "proceed": "With `accepted`: the prompt that follows.",
        "action": "For elicitations.",
        "content": "With `accept`: the form's values, by name.",
        "result": "For extensions: the answer, any JSON.",
        "error": "For extensions: `{code, message}` in place of `result`.",
    },
}
"""By schema, then by member."""

ANSWERS: Final[dict[tuple[str, int], str]] = {
    ("createSession", 201): "The agent is ready.",
    ("createSession", 202): "With `Prefer: respond-async`: it is `starting`; follow its events.",
    ("prompt", 200): "With `Prefer: wait`: the turn has ended. With `Accept: text/event-stream`: "
    "the turn's events, up to its end.",
    ("prompt", 202): "The turn was made and goes on; with `Prefer: wait` it waits for a person, or "
    "the time was up.",
    ("getTurn", 200): "The turn with its texts, ended or not.",
    ("cancelTurn", 200): "There was nothing left to cancel; the turn is null.",
    ("cancelTurn", 202): "It is being cancelled.",
    ("cancel", 200): "Nothing runs, or another turn was named; the turn is null.",
    ("cancel", 202): "It is being cancelled.",
    ("deleteSession", 204): "It is closed, or was before.",
    ("reply", 200): "The request with its resolution; also where the same token repeats its reply.",
    ("streamSessionEvents", 200): "With `Accept: text/event-stream`: a stream without end. Else a "
    "page.",
    ("streamSessionEvents", 204): "The session is closed and the position is its end: do not come "
    "back.",
    ("streamEvents", 200): "With `Accept: text/event-stream`: a stream without end. Else a page.",
    ("readyz", 200): "It can.",
    ("readyz", 503): "It cannot: it starts, is being stopped, or has no disk to write to.",
}
"""By operation and status, where the summary does not say it all."""

PARAMETERS: Final[dict[tuple[str, str], str]] = {
    ("listSessions", "status"): "One status of a Session; left out: all but `closed`.",
    ("listSessionRequests", "status"): "`all` for those that are settled as well.",
    ("listRequests", "status"): "`all` for those that are settled as well.",
    ("listFolders", "path"): "An absolute folder inside the roots; left out: the roots.",
    ("getFile", "path"): "A path inside the session's folder, relative to it.",
    (
        "createSession",
        "Prefer",
    ): "`respond-async` (RFC 7240): do not wait until the agent is ready.",
    (
        "prompt",
        "Prefer",
    ): "`wait=SECONDS` (RFC 7240), 50 at most: until the turn has ended or waits for a person.",
    (
        "getTurn",
        "Prefer",
    ): "`wait=SECONDS` (RFC 7240), 50 at most: until the turn has ended or waits for a person.",
    ("streamSessionEvents", "after"): "The `seq` after which events begin, or `latest`; left out: "
    "from the first one kept.",
    (
        "streamEvents",
        "after",
    ): "The `id` after which events begin, or `latest`; left out: `latest`.",
    ("getTranscript", "limit"): "Most turns; clamped to the maximum.",
}
"""By operation and parameter, where the words that serve everywhere would say too little."""

PATH: Final[Words] = {
    "sessionId": _SESSION_ID,
    "turnId": "The turn's id, `turn_…`.",
    "requestId": "The request's id, `req_…`.",
    "agentId": "The agent's name.",
    "configId": "The option's id, as in `configOptions`.",
}


def explained(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """``schema`` with the words for its members; what a member says already comes behind them."""
    return _with_members(schema, MEMBERS.get(name, {}), "")


def _with_members(schema: dict[str, Any], words: Words, path: str) -> dict[str, Any]:
    shown = dict(schema)
    if isinstance(items := schema.get("items"), dict):
        shown["items"] = _with_members(items, words, f"{path}[]")
    if "anyOf" in schema:
        shown["anyOf"] = [_with_members(each, words, path) for each in schema["anyOf"]]
    if "properties" in schema:
        before = f"{path}." if path else ""
        shown["properties"] = {
            member: _with_words(each, words, f"{before}{member}")
            for member, each in schema["properties"].items()
        }
    return shown


def _with_words(schema: dict[str, Any], words: Words, path: str) -> dict[str, Any]:
    shown = _with_members(schema, words, path)
    told = [each for each in (words.get(path), schema.get("description")) if each]
    return shown | {"description": " ".join(told)} if told else shown
