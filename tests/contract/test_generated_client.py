"""A TypeScript client made from the document by a public generator compiles and runs a session.

What it needs is installed under ``build/``, which git ignores: openapi-typescript makes the types,
openapi-fetch is the client, tsc is strict.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from tests.contract.test_fuzzed import configuration
from tests.e2e.harness import TOKEN, Subprocess

pytestmark = [pytest.mark.contract, pytest.mark.timeout(300)]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "build" / "generated-client"
PACKAGES = {
    "@types/node": "20.19.25",
    "openapi-fetch": "0.17.0",
    "openapi-typescript": "7.13.0",
    "typescript": "5.9.3",
}
COMPILER = {
    "strict": True,
    "noUncheckedIndexedAccess": True,
    "exactOptionalPropertyTypes": True,
    "target": "es2022",
    "module": "nodenext",
    "moduleResolution": "nodenext",
    "skipLibCheck": True,
    "outDir": "out",
}


def run(*command: str) -> str:
    """What a command prints; its failure is the test's."""
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed() -> Path:
    """The generator's and the compiler's programs."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    package = {"private": True, "type": "module", "dependencies": PACKAGES}
    (FOLDER / "package.json").write_text(json.dumps(package))
    (FOLDER / "tsconfig.json").write_text(
        json.dumps({"compilerOptions": COMPILER, "files": ["session.ts"]})
    )
    run("npm", "install", "--no-audit", "--no-fund", "--no-progress")
    return FOLDER / "node_modules" / ".bin"


def test_a_generated_client_compiles_and_goes_through_a_session(tmp_path: Path) -> None:
    programs = installed()
    document = ROOT / "openapi" / "openapi.json"
    run(str(programs / "openapi-typescript"), str(document), "-o", "schema.d.ts")
    shutil.copy(HERE / "session.ts", FOLDER / "session.ts")
    run(str(programs / "tsc"), "-p", ".")
    process = Subprocess(tmp_path, configuration(tmp_path))
    try:
        caller = anyio.run(process.start)
        told = json.loads(run("node", "out/session.js", caller.url, TOKEN))
    finally:
        process.stop()
    events = told.pop("events")
    assert events[0] == "bridge/session" and "bridge/turn_ended" in events
    assert told == {
        "status": "idle",
        "waiting": "waiting",
        "answered": "answered",
        "resolution": "caller",
        "turn": "completed",
        "outcome": "ok",
        "refused": "session-closed",
        "deleted": 204,
    }
