"""Permission rules: what is read, what matches, what is decided, and what never allows."""

from __future__ import annotations

import json
import posixpath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import CallerError
from bridge.protocol.globs import path_glob, text_glob
from bridge.protocol.held import Answer, HeldRequest, kind_of
from bridge.protocol.rules import Permissions, decide, on_timeout, parse
from bridge.protocol.subject import Steps

AT = "2026-12-01T10:00:00.000Z"
LINKS = {"/ws/out": "/etc", "/ws/in": "/ws/src"}
OPTIONS = [
    {"optionId": "yes", "kind": "allow_once"},
    {"optionId": "always", "kind": "allow_always"},
    {"optionId": "no", "kind": "reject_once"},
]


def resolve(path: str) -> str:
    """A realpath over a make-believe file system with two links."""
    if "\0" in path:
        raise ValueError("embedded null byte")
    done = "/"
    for segment in path.split("/"):
        done = posixpath.normpath(posixpath.join(done, segment))
        done = LINKS.get(done, done)
    return done


def request(
    *paths: str,
    diffs: tuple[str, ...] = (),
    kind: str | None = "edit",
    title: str = "Edit File",
    options: Any = OPTIONS,
    method: str = "session/request_permission",
    tool_call: dict[str, Any] | None = None,
) -> HeldRequest:
    tool = {
        "toolCallId": "t",
        "title": title,
        "kind": kind,
        "locations": [{"path": path} for path in paths],
        "content": [{"type": "diff", "path": path} for path in diffs] + [{"type": "content"}, 7],
    }
    held_as = kind_of(method)
    assert held_as is not None
    return HeldRequest(
        request_id="req_1",
        session_id="ses_1",
        turn_id=None,
        kind=held_as,
        method=method,
        params=json.dumps({"toolCall": tool, "options": options}).encode(),
        rpc_id=b"0",
        created_at=AT,
        tool_call=tool_call,
    )


def rules(*pairs: tuple[dict[str, Any], str], **limit: Any) -> Permissions:
    raw: dict[str, Any] = {"rules": [{"match": match, "reply": reply} for match, reply in pairs]}
    return parse(raw | limit, allow_always=True)


def decided(permissions: Permissions, held: HeldRequest, *, allow_always: bool = False) -> Any:
    answer = decide(permissions, held, cwd="/ws", resolve=resolve, allow_always=allow_always)
    return shown(answer)


def shown(answer: Answer | None) -> Any:
    if answer is None:
        return "ask"
    return answer.outcome.get("optionId") or answer.outcome.get("outcome") or answer.error


@pytest.mark.parametrize(
    ("raw", "pointers"),
    [
        (None, [""]),
        ([], [""]),
        ({"rule": []}, ["/rule"]),
        ({"rules": {}}, ["/rules"]),
        ({"rules": [7]}, ["/rules/0", "/rules/0/match", "/rules/0/reply"]),
        ({"rules": [{"reply": "ask"}]}, ["/rules/0/match"]),
        ({"rules": [{"match": {}}]}, ["/rules/0/reply"]),
        ({"rules": [{"match": {}, "reply": "allow"}]}, ["/rules/0/reply"]),
        ({"rules": [{"match": {}, "reply": ["ask"]}]}, ["/rules/0/reply"]),
        ({"rules": [{"match": {}, "reply": "allow_always"}]}, ["/rules/0/reply"]),
        ({"rules": [{"match": {}, "reply": "ask", "a/b~": 1}]}, ["/rules/0/a~1b~0"]),
        ({"rules": [{"match": {"tool": "x"}, "reply": "ask"}]}, ["/rules/0/match/tool"]),
        ({"rules": [{"match": {"kind": 1}, "reply": "ask"}]}, ["/rules/0/match/kind"]),
        ({"rules": [{"match": {"path": ""}, "reply": "ask"}]}, ["/rules/0/match/path"]),
        ({"rules": [{"match": {"path": "a\0"}, "reply": "ask"}]}, ["/rules/0/match/path"]),
        ({"rules": [{"match": {"path": "x" * 2000}, "reply": "ask"}]}, ["/rules/0/match/path"]),
        ({"rules": [{"match": {"path": "../a"}, "reply": "ask"}]}, ["/rules/0/match/path"]),
        ({"rules": [{"match": {"title": "*"}, "reply": "allow_once"}]}, ["/rules/0/match/title"]),
        ({"rules": [{"match": {"method": "*"}, "reply": "reject_once"}]}, ["/rules/0/reply"]),
        (
            {"rules": [{"match": {"method": "cursor/*"}, "reply": "allow_once"}]},
            ["/rules/0/reply"],
        ),
        (
            {"rules": [{"match": {"method": "*/create_plan"}, "reply": "ask"}]},
            ["/rules/0/match/method"],
        ),
        ({"onTimeout": []}, ["/onTimeout", "/onTimeout/afterSeconds", "/onTimeout/reply"]),
        ({"onTimeout": {"afterSeconds": 0, "reply": "cancel"}}, ["/onTimeout/afterSeconds"]),
        ({"onTimeout": {"afterSeconds": True, "reply": "cancel"}}, ["/onTimeout/afterSeconds"]),
        ({"onTimeout": {"afterSeconds": "9", "reply": "cancel"}}, ["/onTimeout/afterSeconds"]),
        ({"onTimeout": {"afterSeconds": 1e400, "reply": "ask"}}, ["/onTimeout/afterSeconds"]),
        ({"onTimeout": {"afterSeconds": 9, "reply": "allow_always"}}, ["/onTimeout/reply"]),
        (
            {"rules": [{"match": {}, "reply": "x"}, {"match": {"y": 1}, "reply": "ask"}]},
            ["/rules/0/reply", "/rules/1/match/y"],
        ),
    ],
)
def test_every_fault_is_named_where_it_lies(raw: object, pointers: list[str]) -> None:
    with pytest.raises(CallerError) as caught:
        parse(raw, allow_always=False, pointer="")
    assert caught.value.code == "invalid-request"
    assert [error["pointer"] for error in caught.value.extra["errors"]] == pointers
    assert all(error["detail"] for error in caught.value.extra["errors"])


def test_rules_are_shown_as_they_were_given() -> None:
    raw = {
        "rules": [
            {"match": {"kind": "edit", "path": "src/**"}, "reply": "allow_once"},
            {"match": {"method": "cursor/*"}, "reply": "cancel"},
            {"match": {"title": "*rm*"}, "reply": "reject_once"},
            {"match": {}, "reply": "ask"},
        ],
        "onTimeout": {"afterSeconds": 60, "reply": "cancel"},
    }
    permissions = parse(raw, allow_always=False)
    assert permissions.as_json() == raw
    assert permissions.timeout_s == 60
    assert parse(permissions.as_json(), allow_always=False) == permissions


def test_the_default_asks_without_a_limit() -> None:
    for permissions in (Permissions(), parse({}, allow_always=False)):
        assert permissions.as_json() == {"rules": []}
        assert permissions.timeout_s is None
        assert not permissions.is_allowing
        assert decided(permissions, request("a")) == "ask"
        assert on_timeout(permissions, request("a")) is None


def test_whatever_may_allow_without_a_person_is_allowing() -> None:
    assert rules(({}, "ask"), ({}, "allow_once")).is_allowing
    assert rules(({"kind": "read"}, "allow_always")).is_allowing
    assert rules(onTimeout={"afterSeconds": 1, "reply": "allow_once"}).is_allowing
    assert not rules(({}, "reject_once"), ({}, "cancel")).is_allowing
    assert not rules(onTimeout={"afterSeconds": 1, "reply": "reject_always"}).is_allowing


@pytest.mark.parametrize(
    ("pattern", "path", "answer"),
    [
        ("src/**", "/ws/src/a/b.py", "yes"),
        ("src/**", "src/a.py", "yes"),
        ("./src//**", "src/a.py", "yes"),
        ("src/**", "/ws/src", "ask"),
        ("src/**", "/ws/src-evil/a", "ask"),
        ("src/*", "/ws/src/a.py", "yes"),
        ("src/*", "/ws/src/a/b.py", "ask"),
        ("src/**/*.py", "src/a.py", "yes"),
        ("src/**/*.py", "src/x/y/a.py", "yes"),
        ("src/**/*.py", "src/x/y/a.txt", "ask"),
        ("src/**.py", "src/x/y/a.py", "yes"),
        ("/ws/**", "/ws/a", "yes"),
        ("/**", "/etc/passwd", "yes"),
        ("**", "/etc/passwd", "ask"),
        ("**", "../etc/passwd", "ask"),
        ("**", "/ws/../etc/passwd", "ask"),
        ("**", "out/passwd", "ask"),
        ("**", "out/../ws/a", "yes"),
        ("src/**", "in/a.py", "yes"),
        ("in/**", "in/a.py", "ask"),
        ("SRC/**", "src/a.py", "ask"),
        ("src/[ab].py", "src/a.py", "ask"),
        ("src/[ab].py", "src/[ab].py", "yes"),
        ("**", "file:///ws/a", "ask"),
        ("**", "~/a", "ask"),
        ("**", "a\0b", "ask"),
        ("**", "", "ask"),
        ("**", "x" * 5000, "ask"),
    ],
)
def test_a_path_is_judged_by_where_it_leads(pattern: str, path: str, answer: str) -> None:
    assert decided(rules(({"path": pattern}, "allow_once")), request(path)) == answer


def test_every_path_must_match_those_of_diffs_and_of_the_known_tool_call_too() -> None:
    permissions = rules(({"path": "src/**"}, "allow_once"))
    known = {"locations": [{"path": "/etc/passwd"}]}
    assert decided(permissions, request("src/a", diffs=("src/b",))) == "yes"
    assert decided(permissions, request("src/a", "/etc/passwd")) == "ask"
    assert decided(permissions, request("src/a", diffs=("/etc/passwd",))) == "ask"
    assert decided(permissions, request("src/a", tool_call=known)) == "ask"
    assert decided(permissions, request(tool_call={"locations": [{"path": "src/a"}]})) == "yes"


def test_without_a_path_or_with_a_broken_one_no_path_rule_matches() -> None:
    permissions = rules(({"path": "/**"}, "allow_once"))
    assert decided(permissions, request()) == "ask"
    for broken in ({"locations": [{"line": 1}, {"path": "src/a"}]}, {"locations": ["src/a"]}):
        assert decided(permissions, request("src/a", tool_call=broken)) == "ask"
    assert decided(permissions, request(tool_call={"locations": 1, "content": {}})) == "ask"


def test_a_folder_whose_name_looks_like_a_glob_is_no_glob() -> None:
    permissions = rules(({"path": "**"}, "allow_once"))
    held = request("/w/x/a")
    assert decide(permissions, held, cwd="/w/*", resolve=resolve) is None
    assert decide(permissions, held, cwd="/", resolve=resolve) is not None


@pytest.mark.parametrize(
    ("match", "answer"),
    [
        ({}, "no"),
        ({"kind": "edit"}, "no"),
        ({"kind": "execute"}, "ask"),
        ({"title": "Edit*"}, "no"),
        ({"title": "edit*"}, "ask"),
        ({"title": "Edit"}, "ask"),
        ({"kind": "edit", "title": "Read*"}, "ask"),
        ({"method": "session/request_permission"}, "no"),
        ({"method": "session/*"}, "no"),
    ],
)
def test_all_members_of_a_match_must_fit(match: dict[str, Any], answer: str) -> None:
    assert decided(rules((match, "reject_once")), request("a")) == answer


def test_what_the_request_leaves_out_is_taken_from_the_known_tool_call() -> None:
    permissions = rules(({"kind": "execute"}, "reject_once"))
    assert decided(permissions, request(kind=None, tool_call={"kind": "execute"})) == "no"
    assert decided(permissions, request(kind=None)) == "ask"
    broken = HeldRequest("r", "s", None, "permission", "session/request_permission", b"", b"0", AT)
    assert decided(rules(({"title": "*"}, "cancel")), broken) == "ask"


def test_the_first_rule_that_matches_decides() -> None:
    first = ({"path": "secret/**"}, "ask")
    permissions = rules(first, ({"kind": "edit"}, "allow_once"), ({}, "cancel"))
    assert decided(permissions, request("secret/a")) == "ask"
    assert decided(permissions, request("src/a")) == "yes"
    assert decided(permissions, request("src/a", kind="execute")) == "cancelled"


def test_without_a_single_option_of_that_kind_the_next_rule_is_tried() -> None:
    permissions = rules(({}, "reject_always"), ({}, "allow_once"), ({}, "cancel"))
    assert decided(permissions, request("a")) == "yes"
    twice = [*OPTIONS, {"optionId": "yes-too", "kind": "allow_once"}]
    assert decided(permissions, request("a", options=twice)) == "cancelled"


def test_a_lasting_permission_is_given_only_while_the_configuration_permits_it() -> None:
    permissions = rules(({}, "allow_always"))
    assert decided(permissions, request("a"), allow_always=True) == "always"
    assert decided(permissions, request("a"), allow_always=False) == "ask"


def test_rules_without_a_method_speak_of_permissions_only() -> None:
    permissions = rules(({}, "cancel"))
    assert decided(permissions, request(method="cursor/create_plan")) == "ask"


@pytest.mark.parametrize(
    ("pattern", "method", "answer"),
    [
        ("cursor/create_plan", "cursor/create_plan", "cancelled"),
        ("cursor/create_plan", "_cursor/create_plan", "cancelled"),
        ("_cursor/*", "cursor/ask_question", "cancelled"),
        ("cursor/ask_question", "cursor/create_plan", "ask"),
        ("_vendor/*", "_vendor/x", (-32800, "Request cancelled")),
        ("*", "_vendor/x", (-32800, "Request cancelled")),
    ],
)
def test_what_is_no_permission_is_cancelled_by_method(
    pattern: str, method: str, answer: Any
) -> None:
    assert decided(rules(({"method": pattern}, "cancel")), request(method=method)) == answer


def test_a_time_limit_does_what_it_says_and_nothing_more() -> None:
    for reply, answer in (
        ("ask", "ask"),
        ("cancel", "cancelled"),
        ("reject_once", "no"),
        ("allow_once", "yes"),
        ("reject_always", "cancelled"),
        ("allow_always", "cancelled"),
    ):
        permissions = rules(({}, "allow_once"), onTimeout={"afterSeconds": 1, "reply": reply})
        assert shown(on_timeout(permissions, request("a"))) == answer
    limit = rules(onTimeout={"afterSeconds": 1, "reply": "allow_once"})
    assert shown(on_timeout(limit, request(method="cursor/create_plan"))) == "cancelled"


replies = st.sampled_from(["reject_once", "reject_always", "cancel", "ask"])
matches = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["edit", "execute"]),
        "path": st.sampled_from(["**", "/**", "src/*"]),
        "title": st.sampled_from(["*", "Edit*"]),
    },
)


@given(st.lists(st.tuples(matches, replies), max_size=4), st.lists(st.text(max_size=8), max_size=3))
def test_without_an_allowing_rule_nothing_is_allowed(
    pairs: list[tuple[dict[str, Any], str]], paths: list[str]
) -> None:
    permissions = rules(*pairs)
    assert not permissions.is_allowing
    assert decided(permissions, request(*paths), allow_always=True) not in ("yes", "always")


def slow_match(pattern: str, path: str) -> bool:
    """The same globs, by trying everything."""
    if not pattern:
        return not path
    if pattern.startswith("/**/") and slow_match(pattern[3:], path):
        return True
    if pattern.startswith("**"):
        rest = pattern.lstrip("*")
        return any(slow_match(rest, path[n:]) for n in range(len(path) + 1))
    if pattern.startswith("*"):
        reach = len(path.split("/")[0])
        return any(slow_match(pattern[1:], path[n:]) for n in range(reach + 1))
    return path[:1] == pattern[0] and slow_match(pattern[1:], path[1:])


@given(
    st.lists(st.sampled_from(["/", "a", "b", "*", "**", "/**/", "/**", "*a", "a*"]), max_size=7),
    st.text(alphabet="/ab", max_size=9),
)
def test_a_glob_matches_what_trying_everything_finds(parts: list[str], path: str) -> None:
    pattern = "/" + "".join(parts)
    assert path_glob(pattern).matches("/" + path) == slow_match(pattern, "/" + path)


def test_a_hostile_pattern_and_path_are_matched_in_bounded_steps() -> None:
    assert not path_glob("/" + "*a" * 300 + "b").matches("/" + "a" * 4000)
    assert not path_glob("/" + "**a*" * 200 + "b").matches("/" + "a/" * 2000)
    assert not path_glob("/**a*" + "a" * 500 + "b").matches("/" + "a" * 4000)
    assert text_glob("*rm*").matches("sudo rm -rf /\n")
    assert not text_glob("a/*/b").matches("a/b")


HOSTILE = {
    "stars": ({"path": "*a" * 500}, ["a" * 4000 + "b"]),
    "folders": ({"path": "**/" + "*/" * 500 + "b"}, ["a/" * 2000 + "z"]),
    "doubled": ({"path": "**a*" + "a" * 1000 + "b"}, ["a" * 4000]),
    "paths": ({"path": "**/b"}, [str(n) for n in range(20_000)]),
    "same": ({"path": "**/b"}, ["x"] * 40_000),
    "titles": ({"title": "*a" * 500}, ["a"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_rules_and_no_request_take_more_than_so_many_steps(name: str) -> None:
    match, paths = HOSTILE[name]
    count = 16_384 // len("".join(match.values()))
    permissions = rules(*[(match, "reject_once")] * min(count, 999), ({}, "reject_once"))
    steps = Steps()
    held = request(*paths, title="a" * 200_000 + "b")
    answer = decide(permissions, held, cwd="/w", resolve=resolve, steps=steps)
    assert answer is None, "what costs too much is for a person to decide"
    assert 30_000 < steps.taken < 300_000 and steps.are_many


def test_the_patterns_of_all_rules_together_are_bounded() -> None:
    with pytest.raises(CallerError) as caught:
        rules(*[({"path": "a" * 1000}, "reject_once")] * 17)
    [error] = caught.value.extra["errors"]
    assert error["pointer"] == "#/permissions/rules" and "16384" in error["detail"]


def test_a_rule_without_a_match_is_told_that_it_is_missing() -> None:
    with pytest.raises(CallerError) as refused:
        parse({"rules": [{"reply": "ask"}]}, allow_always=False)
    (fault,) = refused.value.extra["errors"]
    assert (fault["pointer"][-8:], fault["detail"][:10]) == ("/0/match", "is missing")
