"""What an agent's environment holds, and what is masked in what it says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from bridge.config import Owner
from bridge.errors import AgentError
from bridge.redact import redact
from bridge.runtime.environment import build, owner_variables, secret_values

TAG = "state.one"
MARKS = {"NO_OPEN_BROWSER": "1", "CURSOR_BRIDGE_RUN": TAG}


def test_only_listed_variables_are_inherited() -> None:
    listed = {
        "HOME": "/home/a",
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "SHELL": "/bin/sh",
        "USER": "a",
        "LOGNAME": "a",
        "TMPDIR": "/tmp",
        "XDG_CONFIG_HOME": "/home/a/.config",
        "HTTPS_PROXY": "http://proxy",
        "no_proxy": "localhost",
        "SSL_CERT_FILE": "/ca.pem",
        "NODE_EXTRA_CA_CERTS": "/ca.pem",
        "CURSOR_API_KEY": "k",
        "CURSOR_AUTH_TOKEN": "t",
        "CURSOR_CONFIG_DIR": "/c",
        "AGENT_CLI_CREDENTIAL_STORE": "file",
    }
    others = {
        "AWS_SECRET_ACCESS_KEY": "x",
        "GITHUB_TOKEN": "x",
        "SSH_AUTH_SOCK": "x",
        "LD_PRELOAD": "x",
        "NODE_OPTIONS": "x",
        "PYTHONPATH": "x",
        "CURSOR_BRIDGE_TOKEN": "x",
        "CURSOR_BRIDGE_RUN": "older.run",
        "MY_HOME": "x",
    }
    assert build({}, {}, TAG, listed | others) == listed | MARKS


def test_the_configuration_is_laid_over_what_is_inherited_the_owner_last() -> None:
    agent = {"CURSOR_API_KEY": SecretStr("agent"), "A": SecretStr("agent"), "B": SecretStr("agent")}
    built = build(agent, {"B": "owner"}, TAG, {"CURSOR_API_KEY": "stale", "HOME": "/h"})
    expected = {"HOME": "/h", "CURSOR_API_KEY": "agent", "A": "agent", "B": "owner"}
    assert built == expected | MARKS


def test_settings_of_the_bridge_do_not_get_through_from_the_configuration_either() -> None:
    configured = {"CURSOR_BRIDGE_TOKEN": "x", "CURSOR_BRIDGE_RUN": "x", "NO_OPEN_BROWSER": "0"}
    assert build(configured, configured, TAG, {}) == MARKS


def test_an_owner_with_a_login_of_their_own_is_given_no_other() -> None:
    base = {"CURSOR_API_KEY": "the box's", "PATH": "/bin"}
    shared = {"CURSOR_AUTH_TOKEN": "the agent's", "A": "1"}
    for name in ("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN"):
        found = build(shared, {name: "ada's"}, "tag", base)
        logins = {key: value for key, value in found.items() if key.startswith("CURSOR_A")}
        assert (logins, found["A"], found["PATH"]) == ({name: "ada's"}, "1", "/bin")
    assert build(shared, {"B": "2"}, "tag", base)["CURSOR_API_KEY"] == "the box's"


def test_an_owner_s_variables_come_from_files_too(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("crsr_secret\n")
    owner = Owner(env={"A": SecretStr("1")}, env_files={"CURSOR_API_KEY": tmp_path / "key"})
    assert owner_variables(owner) == {"A": "1", "CURSOR_API_KEY": "crsr_secret"}


@pytest.mark.parametrize("content", [None, b"\0", b"\xff", b"x" * 70_000])
def test_a_file_that_cannot_be_used_is_named_by_its_variable_alone(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(AgentError, match="variable KEY") as refused:
        owner_variables(Owner(env_files={"KEY": tmp_path / "key"}))
    assert (refused.value.code, str(tmp_path) in str(refused.value)) == ("agent-unavailable", False)


def test_configured_values_and_inherited_keys_count_as_secret() -> None:
    base = {"CURSOR_API_KEY": "inherited", "HOME": "/home/a"}
    found = secret_values({"A": SecretStr("agent")}, {"B": "owner", "C": ""}, base)
    assert found == ("agent", "inherited", "owner")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.DEF-123_~+/=", "Authorization: Bearer [redacted]"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic [redacted]"),
        ("token cab_0123456789abcdef.", "token [redacted]."),
        ("sk-proj-abc_DEF123 and key_abcdef1 and crsr_abcdef1", "[redacted] and [redacted] and "),
        ("id eyJhbGciOi.eyJzdWIi.c2ln end", "id [redacted] end"),
        (
            "visit: https://cursor.com/loginDeepControl?challenge=x&uuid=y now",
            "visit: [redacted] now",
        ),
        ("via http://me:pass@proxy:3128/x", "via http://[redacted]@proxy:3128/x"),
        ("the value s3cr3t-! and s3cr3t-!-longer", "the value [redacted] and [redacted]"),
        (
            "1 true monkey_business task-list risk-free",
            "1 true monkey_business task-list risk-free",
        ),
        ("https://cursor.com/docs and eyes", "https://cursor.com/docs and eyes"),
    ],
)
def test_what_lets_its_reader_act_as_another_is_masked(text: str, expected: str) -> None:
    shown = redact(text, ("s3cr3t-!", "s3cr3t-!-longer", "1", "true", "monkey"))
    assert shown.removesuffix("[redacted]") == expected.removesuffix("[redacted]")


def test_a_secret_that_was_cut_off_is_masked_as_far_as_it_goes() -> None:
    secret = "Zq9keyabcdefghijklmnop"
    assert redact(f"refused: {secret}"[:25], [secret]) == "refused: [redacted]"
    assert redact(f"refused: {secret[:7]}", [secret]) == f"refused: {secret[:7]}"


@pytest.mark.parametrize(
    "piece",
    ["http://", "https://a", "a.b.", "a+", "eyJ-", "eyJa.eyJa-", "bearer ", "a://b:", "sk-"],
)
def test_no_text_of_an_agent_keeps_the_loop_busy(piece: str) -> None:
    began = time.process_time()
    redact(piece * (65_536 // len(piece)))
    # A pattern that goes over a run again for each of its beginnings takes ten seconds and more.
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "text",
    ["monkeyJar.py", "eyJ", "keyJ.x", "a.b.c", "the-eyj-a.b", "x://y/z@w", "Bearer", "eyja.b"],
)
def test_ordinary_words_stay(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    ["id=eyJhbGciOi.eyJzdWIi.c2ln", "x-eyJhbGciOi.eyJzdWIi", "(https://x/loginDeepControl?a)"],
)
def test_what_is_glued_to_a_secret_goes_with_it_at_most(text: str) -> None:
    assert "eyJ" not in redact(text) and "loginDeepControl" not in redact(text)
