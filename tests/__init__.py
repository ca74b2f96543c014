"""The tests; `python3 -m unittest discover` finds them here as with `-s tests`."""

from __future__ import annotations

import unittest
from pathlib import Path


def load_tests(
    loader: unittest.TestLoader, _standard: unittest.TestSuite, pattern: str | None
) -> unittest.TestSuite:
    """All modules of this folder, which import each other by their plain names."""
    return loader.discover(
        str(Path(__file__).parent), pattern or "test*.py", str(Path(__file__).parent)
    )
