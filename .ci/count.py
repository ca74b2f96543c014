"""Add up the closing lines that unittest wrote into the logs, and say what did not end well.

A log `pythonX.Y.log` is a run of the test suite and counts each of its tests. Any other log is one
check: it counts only if it failed, so that a red run never closes with "0 failed".
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
_CLOSING = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", re.MULTILINE)
_BAD = ("failures", "errors", "unexpected successes")


class Count(NamedTuple):
    passed: int = 0
    failed: int = 0
    skipped: int = 0


def read_closing(log: str, status: int) -> Count:
    """What a suite's last lines say; a run that broke off, or ran nothing, is one failure."""
    ran = _RAN.findall(log)
    closing = list(_CLOSING.finditer(log))
    if not ran or not closing or int(ran[-1]) == 0:
        return Count(failed=1)
    noted = {
        name: int(number)
        for name, _, number in (item.partition("=") for item in (closing[-1][1] or "").split(", "))
        if number
    }
    bad = sum(noted.get(name, 0) for name in _BAD)
    skipped = noted.get("skipped", 0)
    # A failure outside any test, or in a part of one, makes the difference smaller, never larger.
    passed = max(0, int(ran[-1]) - bad - skipped)
    return Count(passed, max(bad, int(status != 0)), skipped)


def count_of(folder: Path) -> Count:
    """The sum over all that ran in the folder."""
    counts = []
    for path in sorted(folder.glob("*.status")):
        status = int(path.read_text())
        if path.stem.startswith("python"):
            log = path.with_suffix(".log").read_text(errors="replace")
            counts.append(read_closing(log, status))
        elif status:
            counts.append(Count(failed=1))
    return Count(*map(sum, zip(*counts, strict=True))) if counts else Count(failed=1)


total = count_of(Path(sys.argv[1]))
print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
sys.exit(1 if total.failed else 0)
