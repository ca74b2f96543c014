"""Drive the `llm` model with the program it is for; run by `tests/fake_perplexity.py -- …`.

The oldest release that is supported and the newest one, each in an environment of its own. One
that cannot be installed here is named and left out; one that is there must get along.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# Schemas came with 0.23, which counts on httpx coming along with something else.
RELEASES = {"llm==0.23": ["httpx"], "llm": list[str]()}
MODEL = "perplexity-pro"
SCHEMA = {"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]}
FROM_PYTHON = f"""
import asyncio, llm
async def main():
    talk = llm.get_async_model("{MODEL}").conversation()
    await talk.prompt("What is new in Python?").text()
    print(await talk.prompt("And before that?").text())
asyncio.run(main())
first = llm.get_model("{MODEL}").prompt("What is new in Python?")
print(first.text())
if hasattr(first, "reply"):
    print(first.reply("And before that?").text())
"""


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


class Session:
    """One release of llm in front of the fake."""

    def __init__(self, folder: Path, release: str) -> None:
        self.python = folder / "bin" / "python"
        self.folder = folder
        self.release = release
        self.failures = 0
        self.environment = {**os.environ, "LLM_USER_PATH": str(folder / "llm"), "NO_COLOR": "1"}
        self.environment.pop("PERPLEXITY_API_KEY", None)
        self.environment["PERPLEXITY_DATA_DIR"] = str(folder / "data")

    def run(self, *words: str, stdin: str | None = None, **variables: str) -> Ended:
        """Run llm with these words."""
        return self.start([str(self.folder / "bin" / "llm"), *words], stdin, variables)

    def start(self, command: list[str], stdin: str | None, variables: dict[str, str]) -> Ended:
        done = subprocess.run(
            command,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**self.environment, **variables},
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def check(self, what: str, fact: object, shown: object) -> None:
        """Count and show what is not as it must be."""
        if not fact:
            self.failures += 1
            print(f"FAILED: {self.release}: {what}\n{shown}")

    def answers(self, what: str, ended: Ended) -> str:
        """The answer of a command that must succeed."""
        self.check(what, ended.status == 0 and ended.out.strip(), ended)
        self.check(f"{what}: no traceback", "Traceback" not in ended.err, ended.err)
        return ended.out

    def refuses(self, what: str, ended: Ended, words: str) -> None:
        """A command that must fail with one sentence that holds some words."""
        lines = ended.err.strip().splitlines()
        fine = ended.status != 0 and "Traceback" not in ended.err and words in ended.err
        self.check(what, fine and len(lines) == 1, ended)

    def logged(self) -> dict[str, object]:
        """The newest entry of llm's own log."""
        found = json.loads(self.run("logs", "-n", "1", "--json").out)
        entry: dict[str, object] = found[0]
        return entry


def installed(folder: Path, release: str, beside: list[str]) -> bool:
    """Whether the release and this project are there now; if not, one line says why."""
    venv.create(folder, with_pip=True)
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        release,
        *beside,
        str(ROOT),
    ]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=400, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"left out: {release} ({reason})")
    return done.returncode == 0


def talk(session: Session, key: str) -> None:
    """What the model is for, and what may go wrong."""
    session.refuses("no key", session.run("-m", MODEL, "hi"), "key")
    session.run("keys", "set", "perplexity", "--value", key)
    first = session.answers("a question", session.run("-m", MODEL, "What is new in Python?"))
    session.check("sources are Markdown links", "](<http" in first, first)
    entry = session.logged()
    said = json.loads(json.dumps(entry["response_json"]))
    session.check(
        "the log holds the usage", entry["input_tokens"] and entry["output_tokens"], entry
    )
    session.check(
        "the log holds model, sources and cost",
        said["model"] and said["sources"] and said["usage"]["cost_usd"],
        said,
    )
    session.answers("the conversation goes on", session.run("-c", "And before that?"))
    options = ("-o", "preset", "low", "-o", "recency", "week", "-o", "domains", "python.org")
    session.answers("options", session.run("-m", "pplx", *options, "Releases?"))
    session.answers("a pipe", session.run("-m", MODEL, "-s", "Be brief", stdin="What is 2+2?"))
    shaped = session.run("-m", MODEL, "--schema", json.dumps(SCHEMA), "Which year?")
    answer = session.answers("a schema", shaped)
    session.check("the answer is JSON alone", isinstance(json.loads(answer), dict), answer)
    deep = session.run("-m", MODEL, "-o", "preset", "high", "A long report")
    session.answers("a run in the background", deep)
    shown = session.run("models", "-q", MODEL, "--options").out
    session.check("options are described", "max_output_tokens: int" in shown, shown)
    session.check("choices are named", "hour, day, week" in shown, shown)
    late = session.run("-m", MODEL, "-o", "preset", "xhigh", "-o", "timeout", "1", "Another")
    session.refuses("a report that is late", late, "perplexity-pro jobs result")
    session.answers("the command line's word", session.run("-m", MODEL, "-o", "depth", "low", "x"))
    python = session.start([str(session.python), "-c", FROM_PYTHON], None, {})
    told = session.answers("from Python, asynchronous and plain", python)
    session.check("conversations go on", "Earlier you said: What is new in Python?" in told, told)
    bad = session.run("-m", MODEL, "-o", "recency", "decade", "x")
    session.refuses("a wrong value", bad, "recency")
    capped = session.run("-m", MODEL, "x", PERPLEXITY_BUDGET_DAILY_USD="0")
    session.refuses("a cap", capped, "PERPLEXITY_BUDGET_DAILY_USD")
    nobody = session.run("-m", MODEL, "x", PERPLEXITY_BASE_URL="http://127.0.0.1:9")
    session.refuses("no network", nobody, "connection")
    wrong = session.run("-m", MODEL, "--key", "pplx-wrong-key-0000000000", "x")
    session.refuses("a wrong key", wrong, "key")


def main() -> None:
    failures = 0
    key = os.environ["PERPLEXITY_API_KEY"]
    for release, beside in RELEASES.items():
        with tempfile.TemporaryDirectory() as name:
            if installed(Path(name), release, beside):
                session = Session(Path(name), release)
                talk(session, key)
                failures += session.failures
                print(f"{release}: {'FAILED' if session.failures else 'ok'}")
    sys.exit(1 if failures else 0)


main()
