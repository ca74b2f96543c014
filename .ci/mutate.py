"""Break each claim on purpose, and see the test that is named for it fail: python3 .ci/mutate.py.

Each file in tests/data/mutations holds one change: the file it is made in, the test that must
notice it, the text as it is and the text that breaks the claim. The tests are run on a copy, once
as it is and once for each change. Words choose among the changes by their names; --check only looks
whether each text still stands where it is to be changed.
"""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "data" / "mutations"
LIMIT_S = 300.0


class Mutation(NamedTuple):
    """One change, and the test that must fail for it."""

    name: str
    file: str
    test: str
    old: str
    new: str


def mutations() -> list[Mutation]:
    """All changes; ValueError for one that is written in another form."""
    found = []
    for path in sorted(FOLDER.glob("*.txt")):
        head, _, rest = path.read_text("utf-8").partition("--- old\n")
        old, _, new = rest.partition("\n--- new\n")
        facts = dict(line.split(": ", 1) for line in head.splitlines())
        found.append(Mutation(path.stem, facts["file"], facts["test"], old, new.removesuffix("\n")))
    return found


def drifted(mutation: Mutation) -> bool:
    """Whether the text to be changed is not there, or more than once."""
    return (ROOT / mutation.file).read_text("utf-8").count(mutation.old) != 1


def passes(test: str, mutation: Mutation | None) -> bool:
    """Whether a test passes on a copy with the change made."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for file in ("perplexity_pro_mcp.py", "pyproject.toml", "README.md", "SECURITY.md"):
            shutil.copy(ROOT / file, copy)
        shutil.copytree(
            ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__")
        )
        for folder in (".ci", ".github"):
            shutil.copytree(ROOT / folder, copy / folder)
        if mutation:
            path = copy / mutation.file
            path.write_text(path.read_text("utf-8").replace(mutation.old, mutation.new), "utf-8")
        try:
            done = subprocess.run(
                [sys.executable, "-m", "unittest", "-q", "-f", test],
                cwd=copy / "tests",
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                check=False,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--check"]
    chosen = [one for one in mutations() if not words or any(word in one.name for word in words)]
    bad = [f"drifted: {one.name}" for one in chosen if drifted(one)]
    if not bad and "--check" not in sys.argv:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            tests = sorted({one.test for one in chosen})
            sound = zip(tests, pool.map(lambda test: passes(test, None), tests), strict=True)
            bad += [f"fails as it is: {test}" for test, well in sound if not well]
            runs = zip(chosen, pool.map(lambda one: passes(one.test, one), chosen), strict=True)
            bad += [f"survived: {one.name} ({one.test})" for one, well in runs if well]
    print("\n".join(bad) or "none survived")
    print(f"{len(chosen)} changes, {len(bad)} to look at")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
