"""Files that hold what others read; PERPLEXITY_TEST_REWRITE=1 writes them anew for review."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import unittest

DATA = Path(__file__).resolve().parent / "data"


def assert_golden(case: unittest.TestCase, name: str, text: str) -> None:
    """The text is what the file holds."""
    path = DATA / name
    if os.environ.get("PERPLEXITY_TEST_REWRITE"):
        path.write_text(text, encoding="utf-8", newline="\n")
    held = path.read_text(encoding="utf-8") if path.exists() else ""
    case.assertEqual(
        held, text, f"{name} differs; PERPLEXITY_TEST_REWRITE=1 writes it, then read the difference"
    )
