"""Drive the server with clients that others wrote; run by `tests/fake_perplexity.py -- …`.

A client that cannot be installed here is named and left out. One that is there must get along.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
SERVER = [sys.executable, str(HERE.parent / "perplexity_pro_mcp.py")]
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"  # from npm, so pyproject.toml cannot pin it
SDKS = {"sdk-1": ("2025-06-18",), "sdk-2": ("2025-11-25", "2026-07-28")}
ASK = {"query": "What is new in Python?"}


def installs(what: str, command: list[str], where: Path) -> bool:
    """Whether the client is there now; if not, one line says why it is left out."""
    try:
        done = subprocess.run(
            command, cwd=where, capture_output=True, text=True, timeout=300, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"left out: {what} ({error})")
        return False
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        reason = next((line for line in lines if "error" in line.lower()), lines[-1])
        print(f"left out: {what} ({reason})")
    return done.returncode == 0


def talks(command: list[str], environment: dict[str, str] | None = None) -> str | None:
    """What the client printed, or None after showing how it failed."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=180, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        print(f"FAILED, no end: {' '.join(command)}")
        return None
    if done.returncode == 0:
        return done.stdout
    print(f"FAILED: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return None


def sdk_failures(group: str, revisions: tuple[str, ...], scratch: Path) -> int:
    """Sessions of one generation of the SDK that went wrong."""
    home = scratch / group
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    wanted = subprocess.run(
        [sys.executable, str(HERE / "pins.py"), group], capture_output=True, text=True, check=True
    ).stdout.split()
    pip = [python, "-m", "pip", "install", "--quiet", *wanted]
    name = " ".join(wanted)
    # An old release may install and then not get along with the newest of what it builds on.
    if not (installs(name, pip, scratch) and installs(name, [python, "-c", "import mcp"], scratch)):
        return 0
    session = [python, str(HERE / "sdk_session.py")]
    said = [talks([*session, revision, *SERVER]) for revision in revisions]
    print("".join(filter(None, said)), end="")
    return said.count(None)


def inspector_of(scratch: Path) -> list[str] | None:
    """The command of the inspector, once it is installed and starts."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        print("left out: the inspector (no npm here)")
        return None
    here = ["--prefix", str(scratch), "--no-audit", "--no-fund", "--ignore-scripts"]
    if not installs(INSPECTOR, [npm, "install", *here, INSPECTOR], scratch):
        return None
    package = scratch / "node_modules" / "@modelcontextprotocol" / "inspector"
    entry = json.loads((package / "package.json").read_text("utf-8"))["bin"]["mcp-inspector"]
    command = [node, str(package / entry)]
    started = installs(f"{INSPECTOR}, too new for this node", [*command, "--version"], scratch)
    return [*command, "--cli"] if started else None


def inspected(command: list[str], era: str, home: str) -> str:
    """What is wrong with the two replies that the inspector shows; nothing if all is well."""
    given = {k: v for k, v in os.environ.items() if k.startswith("PERPLEXITY_")}
    passed_on = [part for name, value in given.items() for part in ("-e", f"{name}={value}")]
    start = [*command, *SERVER, *passed_on, "--protocol-era", era, "--format", "json", "--method"]
    own_home = {**os.environ, "HOME": home}  # it keeps a catalogue there
    listed = talks([*start, "tools/list", "--strict"], own_home)
    call = ["tools/call", "--tool-name", "perplexity_ask", "--tool-args-json", json.dumps(ASK)]
    asked = talks([*start, *call], own_home)
    if listed is None or asked is None:
        return "it ended with an error"
    names = [tool["name"] for tool in json.loads(listed)["result"]["tools"]]
    if "perplexity_ask" not in names:
        return f"perplexity_ask is not among {names}"
    answer = json.loads(asked)["result"]
    return "" if answer["structuredContent"]["answer"].strip() else f"no answer in {answer}"


def inspector_failures(scratch: Path) -> int:
    """Eras in which the inspector's command line did not get its list and its answer."""
    command = inspector_of(scratch)
    failures = 0
    for era in ("legacy", "modern") if command else ():
        problem = inspected(command or [], era, str(scratch))
        failures += bool(problem)
        print(f"FAILED: {INSPECTOR}, {era}: {problem}" if problem else f"{INSPECTOR}, {era}: ok")
    return failures


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        failures = sum(sdk_failures(group, SDKS[group], scratch) for group in SDKS)
        failures += inspector_failures(scratch)
    sys.exit(1 if failures else 0)


main()
