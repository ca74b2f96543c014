"""Look for secrets, loose workflows and misspelt words in the files git knows; needs no network.

`check.py` looks at all of them, `check.py FILE…` at these. A line that must hold what looks like a
secret ends with the words `no secret`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECRETS = {
    "a Perplexity key": r"\bpplx-[A-Za-z0-9]{40,}\b",
    "a GitHub token": r"\bgh[pousr]_[A-Za-z0-9]{36,}\b",
    "a PyPI token": r"\bpypi-[A-Za-z0-9_-]{40,}\b",
    "a cloud key": r"\bAKIA[0-9A-Z]{16}\b",
    "another vendor's key": r"\bsk-[A-Za-z0-9_-]{40,}\b",
    "a token with claims": r"\beyJhbGciOi[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}\.",
}
# Keys of tests: made up, and they must look real.
MADE_UP = re.compile(r"MARKER|0123456789|(.)\1{7}|(?:a1B2){3}")
PRIVATE_KEY = "-----BEGIN (?:RSA |EC |OPENSSH )?PRIVATE KEY-----"
LOOPBACK_KEY = "tests/data/localhost.pem"  # of the stand-in, for 127.0.0.1 only
MISSPELT = (
    r"\b(?:teh|recieve[ds]?|seperat(?:e|ed|es|ely)|occured|occurence|wich|adress(?:es)?|"
    r"arguement|beggining|calender|commited|compatability|definately|dependan(?:t|cy)|"
    r"enviroment|existance|explicitely|independant|lenght|neccessary|occurr?ing?ly|parrallel|"
    r"persistant|posible|preceed(?:s|ing)?|refered|reponse|succesful(?:ly)?|sucess|supress|"
    r"transfered|untill|writen)\b"
)


def faults_of_workflow(text: str) -> list[str]:
    """What a workflow leaves to chance or gives away."""
    faults = [
        f"{action!r} is not pinned by the hash of a commit"
        for action in re.findall(r"uses:\s*(\S+)", text)
        if not re.search(r"@[0-9a-f]{40}$", action)
    ]
    if not re.search(r"(?m)^permissions:", text):
        faults.append("no permissions at its head: it gets those of the repository")
    if re.search(r"\bpull_request_target\b", text):
        faults.append("pull_request_target runs others' code with this repository's rights")
    if re.search(r"run:.*\$\{\{[^}]*(?:github\.event|head_ref)", text):
        faults.append("a text from outside is put into a command")
    checkouts = text.count("actions/checkout@")
    if text.count("persist-credentials: false") < checkouts:
        faults.append("a checkout leaves its credentials behind")
    return faults


def faults_of(name: str, text: str) -> list[str]:
    """What is wrong in a file, with the number of the line where one is to blame."""
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.endswith("no secret"):
            continue
        for what, pattern in SECRETS.items():
            found = re.search(pattern, line)
            if found and not MADE_UP.search(found[0]):
                faults.append(f"{number}: {what}")
        if re.search(PRIVATE_KEY, line) and name != LOOPBACK_KEY:
            faults.append(f"{number}: a private key")
        word = re.search(MISSPELT, line, re.IGNORECASE)
        if word and name != ".ci/check.py" and not name.startswith("tests/data/"):
            faults.append(f"{number}: {word[0]!r} is misspelt")
    return faults + (faults_of_workflow(text) if name.startswith(".github/workflows/") else [])


def main() -> None:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = sys.argv[1:] or subprocess.run(
        listed, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.rstrip("\0").split("\0")
    found = []
    for name in names:
        raw = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b"\0"
        if b"\0" not in raw:
            found += [
                f"{name}: {fault}" for fault in faults_of(name, raw.decode("utf-8", "replace"))
            ]
    print("\n".join(found) or f"{len(names)} files: no secret, no loose workflow, no known slip")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
