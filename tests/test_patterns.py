"""Every regular expression of the program takes time in proportion to the text it reads."""

from __future__ import annotations

import ast
import itertools
import re
import time
import unittest
from typing import Any

from support import ROOT, pro

SOURCE = (ROOT / "perplexity_pro_mcp.py").read_text(encoding="utf-8")
METHODS = {"search", "match", "fullmatch", "sub", "split", "findall", "finditer"}
SHORT, LONG = 1500, 6000  # characters; where time is the square of them, the ratio is 16


def expressions() -> dict[tuple[Any, int], set[str]]:
    """The expressions with their flags, and the methods that they are used with."""
    found: dict[tuple[Any, int], set[str]] = {}
    named = {
        name: vars(value)["_made"]
        for name, value in vars(pro).items()
        if type(value).__name__ == "pattern"
    }
    for node in ast.walk(ast.parse(SOURCE)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        method, base = node.func.attr, node.func.value
        if method not in METHODS or not isinstance(base, ast.Name):
            continue
        if base.id in named:
            found.setdefault(named[base.id], set()).add(method)
        elif base.id == "re" and node.args and isinstance(node.args[0], ast.Constant):
            text = node.args[0].value
            if isinstance(text, str):
                found.setdefault((text, 0), set()).add(method)
        elif base.id == "re" and node.args and isinstance(node.args[0], ast.Name):
            text = getattr(pro, node.args[0].id, None)
            if isinstance(text, str):
                found.setdefault((text, 0), set()).add(method)
    return found


def texts(expression: str) -> list[str]:
    """Pieces that such an expression begins to match again and again, but never ends."""
    letters = dict.fromkeys(c for c in expression if c not in "\\?*+|(){}^$")
    few = [*list(letters)[:9], *"a1 [(<\n"]
    pairs = ["".join(pair) for pair in itertools.product(few, few)]
    words = ["[1]", "[1][", "http://a.", "<think>", "</think>", "pplx-a", "data:a;", "a,b", "```\n"]
    return list(dict.fromkeys([*few, *pairs, *words]))


def seconds(run: Any, text: str) -> float:
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        run(text)
        best = min(best, time.perf_counter() - begun)
    return best


class Patterns(unittest.TestCase):
    def test_all_are_found(self) -> None:
        found = expressions()
        self.assertGreater(len(found), 40)
        made = sum(type(value).__name__ == "pattern" for value in vars(pro).values())
        self.assertGreater(len([one for one, used in found.items() if used]), made // 2)

    def test_each_takes_time_in_proportion_to_its_text(self) -> None:
        slow_ones = []
        for (expression, flags), methods in expressions().items():
            # What is read as bytes is tried as characters: what takes long is the same.
            told = expression.decode("latin-1") if isinstance(expression, bytes) else expression
            made = re.compile(told, flags)
            for method in methods:
                run = getattr(made, method)
                call = (lambda text, run=run: run("", text)) if method == "sub" else run
                call = (lambda text, run=run: list(run(text))) if method == "finditer" else call
                for piece in texts(told):
                    long = (piece * LONG)[:LONG] + "\x00"
                    begun = time.perf_counter()
                    call(long)
                    if time.perf_counter() - begun < 0.02:
                        continue  # the square of so many would take far longer
                    slow = seconds(call, long)
                    ratio = slow / max(seconds(call, (piece * SHORT)[:SHORT] + "\x00"), 1e-6)
                    if slow > 0.05 and ratio > 9:
                        slow_ones.append((expression, method, piece, round(ratio, 1)))
        self.assertEqual({(one, method): piece for one, method, piece, _ in slow_ones}, {})


if __name__ == "__main__":
    unittest.main()
