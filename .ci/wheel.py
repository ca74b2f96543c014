"""Build the distribution twice, compare, install it into an empty environment and speak to it.

Run by an interpreter that has the `dev` dependency group installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

import uv

ROOT = Path(__file__).resolve().parent.parent
SENT = (
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "wheel-check", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
)


def require(fact: object, otherwise: str) -> None:
    """Stop the check with a sentence unless the fact holds."""
    if not fact:
        sys.exit(f"wheel: {otherwise}")


def built(scratch: Path, stamp: int) -> dict[str, bytes]:
    """The files of one build, made from a copy whose own dates must not matter."""
    tree = scratch / f"tree-{stamp}"
    ignored = shutil.ignore_patterns(".git", "dist", "__pycache__", ".*_cache", ".venv")
    shutil.copytree(ROOT, tree, ignore=ignored)
    for path in tree.rglob("*"):
        os.utime(path, (stamp, stamp))
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600"}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."]
    subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)
    return {path.name: path.read_bytes() for path in (tree / "dist").iterdir()}


def wheel_of(files: dict[str, bytes], scratch: Path) -> Path:
    """The wheel, after a look at what is in it: one module and what describes it."""
    name = next(name for name in files if name.endswith(".whl"))
    wheel = scratch / name
    wheel.write_bytes(files[name])
    with zipfile.ZipFile(wheel) as archive:
        inside = archive.namelist()
        metadata = archive.read(next(n for n in inside if n.endswith("/METADATA"))).decode()
    modules = [n for n in inside if ".dist-info/" not in n]
    require(modules == ["perplexity_pro_mcp.py"], f"holds more than the module: {modules}")
    require("Requires-Dist" not in metadata, "names a dependency")
    return wheel


def bare_environment(home: Path) -> dict[str, str]:
    """What a desktop client hands over: next to nothing."""
    names = ("PATH", "SYSTEMROOT", "TEMP", "TMP")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "HOME": str(home), "USERPROFILE": str(home)}


def speak(command: list[str], environment: dict[str, str]) -> None:
    """Two requests and a notification in; exactly two lines out, then a clean end."""
    lines = "".join(json.dumps(message) + "\n" for message in SENT)
    done = subprocess.run(
        command, input=lines.encode(), capture_output=True, env=environment, timeout=60, check=False
    )
    shown = " ".join(Path(part).name for part in command)
    require(done.returncode == 0, f"{shown} ended with {done.returncode}: {done.stderr!r}")
    replies = done.stdout.decode().splitlines()
    require(len(replies) == 2, f"{shown} answered {len(replies)} lines instead of 2: {replies}")
    by_id = {reply["id"]: reply["result"] for reply in map(json.loads, replies)}
    require(by_id[0]["protocolVersion"] == "2025-11-25", f"{shown} chose another protocol")
    require(by_id[1]["tools"], f"{shown} lists no tools")
    print(f"{shown}: {len(by_id[1]['tools'])} tools over pipes")


def installed(wheel: Path, scratch: Path) -> Path:
    """The folder of the scripts, after an installation that may fetch nothing."""
    home = scratch / "clean"
    venv.create(home, with_pip=True)
    scripts = Path(sysconfig.get_path("scripts", "venv", {"base": str(home)}))
    pip = [str(scripts / "python"), "-m", "pip", "install", "--quiet", "--no-index", str(wheel)]
    subprocess.run(pip, check=True)
    return scripts


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        files, again = built(scratch, 1_000_000_000), built(scratch, 1_500_000_000)
        require(files == again, "two builds of the same sources differ")
        require(len(files) == 2, f"expected a wheel and a source archive, got {sorted(files)}")
        wheel = wheel_of(files, scratch)
        scripts = installed(wheel, scratch)
        bare = bare_environment(scratch / "home")
        for script in ("perplexity-pro-mcp", "perplexity-pro"):
            speak([str(scripts / script)], bare)
        version = [str(scripts / "perplexity-pro"), "--version"]
        told = subprocess.run(version, capture_output=True, env=bare, text=True, check=True).stdout
        require(wheel.name.split("-")[1] in told, f"--version says {told!r}")
        # The two ways through uv that the README shows, here without a network.
        bare["UV_CACHE_DIR"] = str(scratch / "uv")
        offline = [uv.find_uv_bin(), "--offline", "--no-config", "--quiet"]
        python = ["--python", sys.executable]
        speak([*offline, "tool", "run", *python, "--from", str(wheel), "perplexity-pro-mcp"], bare)
        module = str(ROOT / "perplexity_pro_mcp.py")
        speak([*offline, "run", *python, "--script", module], bare)
        print("same bytes twice: " + ", ".join(sorted(files)))


main()
