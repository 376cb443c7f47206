"""What deploy/ and its page tell is what the bridge has: options, variables, files, times."""

from __future__ import annotations

import configparser
import re
import shlex
import time
import tomllib
from pathlib import Path

import pytest

from bridge.cli.serve import read_settings, serve
from bridge.config import Settings
from bridge.exposure import check_exposure
from bridge.tokens import StartupError, TokenStore

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "deploying.md").read_text("utf-8")
STOPPING_S = 5
"""How long agents may take once the grace time is over, as docs/operations.md says."""


def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(DEPLOY / "cursor-bridge.service", "utf-8")
    return parser["Service"]


def container() -> str:
    return (DEPLOY / "Containerfile").read_text("utf-8").replace("\\\n", " ")


def test_the_service_starts_the_bridge_with_options_it_has() -> None:
    program, command, *words = shlex.split(unit()["ExecStart"].replace("%S", "/var/lib"))
    assert (Path(program).name, command) == ("cursor-bridge", "serve")
    context = serve.make_context("serve", words)
    assert context.params["state_dir"] == Path("/var/lib/cursor-bridge")
    assert unit()["StateDirectory"] == "cursor-bridge"
    assert str(Path(unit()["ExecStart"].split()[0])) in PAGE
    assert [str(root) for root in context.params["roots"]] == [unit()["ReadWritePaths"]]


def test_the_state_folder_is_made_before_a_token_is_put_there() -> None:
    folder = "/var/lib/" + unit()["StateDirectory"]
    head = (DEPLOY / "cursor-bridge.service").read_text("utf-8").partition("[Unit]")[0]
    for text in (PAGE, head.replace("\n#", "\n")):
        user = unit()["User"]
        made = f"install -d -m 700 -o {user} -g {unit()['Group']} {folder}\n"
        assert made in text
        following = " ".join(text.partition(made)[2].replace("\\", "").split()).lstrip("# ")
        program, *words = unit()["ExecStart"].split()[0], "token", "create", "--name", "me"
        assert following.startswith(
            " ".join(["sudo -u", user, program, *words, "--state-dir", folder])
        )


def test_service_and_container_give_the_bridge_the_time_it_needs_to_stop() -> None:
    needed_s = Settings().limits.drain_grace_s + STOPPING_S
    assert float(unit()["TimeoutStopSec"]) > needed_s
    (given,) = re.findall(r"--stop-timeout=(\d+)", container())
    assert float(given) > needed_s
    # What is wrong with the configuration will be wrong at the next try.
    assert unit()["RestartPreventExitStatus"] == "2"


def test_the_container_serves_where_its_port_is_published_and_asks_for_a_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = container()
    for name, value in re.findall(r"\b(CURSOR_BRIDGE_\w+)=(\S+)", text):
        monkeypatch.setenv(name, value)
    settings = read_settings(None, state_dir=tmp_path)
    assert settings.server.host == "0.0.0.0" and settings.roots == (Path("/projects"),)
    (port,) = re.findall(r"^EXPOSE (\d+)$", text, re.MULTILINE)
    assert settings.server.port == int(port) and f"127.0.0.1:{port}:{port}" in text
    with pytest.raises(StartupError, match="CURSOR_BRIDGE_TOKEN"):
        from_nothing = settings.model_copy(update={"token": None})
        check_exposure(from_nothing, TokenStore(tmp_path / "tokens.json", time.time))


def test_the_container_is_made_of_files_that_its_context_lets_through() -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    copied = [
        name
        for line in re.findall(r"^COPY (?!--)(.*)$", container(), re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert {f"!{name.removeprefix('./')}" for name in copied} == {
        line for line in ignored if line.startswith("!")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {project["readme"], *project["license-files"]} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_proxies_pass_on_the_bridges_address_and_bodies_of_its_size() -> None:
    default = Settings()
    address = f"127.0.0.1:{default.server.port}"
    caddy = (DEPLOY / "Caddyfile").read_text("utf-8")
    assert f"reverse_proxy {address}\n" in caddy
    assert f"max_size {default.limits.body_bytes}\n" in caddy
    assert f"proxy_pass http://{address};" in PAGE
    assert f"client_max_body_size {default.limits.body_bytes // 1024**2}m;" in PAGE


def test_every_variable_the_page_and_the_files_name_is_a_setting() -> None:
    texts = [PAGE, *(path.read_text("utf-8") for path in DEPLOY.iterdir())]
    named = {name for text in texts for name in re.findall(r"CURSOR_BRIDGE_(\w+)", text)}
    assert named
    for name in named:
        fields = Settings.model_fields
        first, *rest = name.lower().split("__")
        assert first in fields, name
        for each in rest:
            section = fields[first].annotation
            assert section is not None and each in section.model_fields, name
