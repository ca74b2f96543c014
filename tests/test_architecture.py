"""The file keeps its shape: powers stay in their chapters, references only look back."""

import ast
import re
import sys
import unittest
from bisect import bisect_right
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = (ROOT / "perplexity_pro_mcp.py").read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
BANNER = re.compile(r"^# ==== (\d+)\. ([^=]+?) =+$")
STARTS = [
    (number, int(found[1]), found[2])
    for number, line in enumerate(SOURCE.splitlines(), 1)
    if (found := BANNER.match(line))
]

# Modules and names that open something, and the chapters that may use them.
MODULE_POWERS = {
    "urllib.request": {6},
    "urllib.error": {6},
    "http": {6, 16},
    "socket": {6},
    "ssl": {6, 18},
    "sqlite3": {9},
    "tempfile": set(),
    "shutil": {18},
    "signal": {15, 18},
    "socketserver": {16},
    "threading": {0, 6, 11, 12, 15, 16},
    "webbrowser": {16},
    "llm": {19},
    "pathlib": {0, 5, 9, 17, 18},
}
CALL_POWERS = {"open": {5}, "print": {18}, "input": {18}}
NAME_POWERS = {"sqlite3": {9}, "threading": {6, 9, 11, 12, 15, 16}}
ATTRIBUTE_POWERS = {  # (object, attribute)
    ("os", "environ"): {3},
    ("os", "getenv"): set(),
    ("os", "open"): {5},
    ("os", "system"): set(),
    ("os", "popen"): set(),
    ("sys", "stdin"): {15, 18},
    ("sys", "stdout"): {15, 18},
    ("sys", "argv"): {18, 20},
}
FORBIDDEN = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"subprocess", "pickle", "ctypes", "multiprocessing", "marshal", "shelve"}
SQL = re.compile(r"\b(SELECT .* FROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM|PRAGMA|BEGIN)\b")


def chapter(line: int) -> int:
    return [0, *(c for _, c, _ in STARTS)][bisect_right([n for n, _, _ in STARTS], line)]


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        return [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return []


def type_checking_lines() -> set[int]:
    """Lines that only type checkers see."""
    lines: set[int] = set()
    for node in ast.walk(TREE):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            lines.update(range(node.lineno, (node.body[-1].end_lineno or node.lineno) + 1))
    return lines


def annotation_names() -> set[int]:
    """The names inside annotations: they are never evaluated."""
    found: set[int] = set()
    for node in ast.walk(TREE):
        for hint in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(hint, ast.AST):
                found.update(id(inner) for inner in ast.walk(hint))
    return found


def local_names() -> set[int]:
    """Uses of a function's own variables, which may bear the name of something further down."""
    found: set[int] = set()
    for function in ast.walk(TREE):
        if not isinstance(function, (ast.FunctionDef, ast.Lambda)):
            continue
        inside = list(ast.walk(function))
        own = {node.arg for node in inside if isinstance(node, ast.arg)}
        own |= {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        found.update(id(n) for n in inside if isinstance(n, ast.Name) and n.id in own)
    return found


class Architecture(unittest.TestCase):
    def test_the_chapters_are_those_of_the_contents_in_order(self) -> None:
        page = ast.get_docstring(TREE, clean=False) or ""
        contents = re.findall(r"^ {1,3}(\d+)\. (.+?) {2,}\S", page, re.MULTILINE)
        self.assertEqual([(int(n), t) for n, t in contents], [(c, t) for _, c, t in STARTS])

    def test_names_are_defined_once(self) -> None:
        names = [
            node.name for node in TREE.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        ]
        self.assertEqual(sorted({name for name in names if names.count(name) > 1}), [])

    def test_chapters_only_look_back(self) -> None:
        home: dict[str, int] = {}
        for node in TREE.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                home[node.name] = chapter(node.lineno)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        home[target.id] = chapter(node.lineno)
        local = local_names()
        ahead = {
            f"{node.id} in line {node.lineno}"
            for node in ast.walk(TREE)
            if isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and id(node) not in local
            and home.get(node.id, 0) > chapter(node.lineno)
        }
        self.assertEqual(sorted(ahead), [])

    def test_private_names_stay_in_their_chapter(self) -> None:
        home = {
            node.name: chapter(node.lineno)
            for node in TREE.body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name.startswith("_")
        }
        strays = {
            f"{node.id} in line {node.lineno}"
            for node in ast.walk(TREE)
            if isinstance(node, ast.Name)
            and home.get(node.id, chapter(node.lineno)) != chapter(node.lineno)
        }
        self.assertEqual(sorted(strays), [])

    def test_each_power_stays_in_its_chapter(self) -> None:
        hidden, annotated = type_checking_lines(), annotation_names()
        strays = []
        for node in ast.walk(TREE):
            line = getattr(node, "lineno", None)
            if line is None or line in hidden:
                continue
            here = chapter(line)
            used = [(name, MODULE_POWERS.get(name)) for name in imported(node)]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                used.append((node.func.id, CALL_POWERS.get(node.func.id)))
            if isinstance(node, ast.Name) and id(node) not in annotated:
                used.append((node.id, NAME_POWERS.get(node.id)))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                pair = (node.value.id, node.attr)
                used.append((".".join(pair), ATTRIBUTE_POWERS.get(pair)))
            strays += [
                f"{name} in line {line}, chapter {here}"
                for name, chapters in used
                if chapters is not None and here not in chapters
            ]
        self.assertEqual(strays, [])

    def test_sql_is_written_in_storage_only(self) -> None:
        strays = [
            node.lineno
            for node in ast.walk(TREE)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and SQL.search(node.value)
            and chapter(node.lineno) != 9
        ]
        self.assertEqual(strays, [])

    def test_only_the_standard_library_is_imported(self) -> None:
        roots = {name.split(".")[0] for node in ast.walk(TREE) for name in imported(node) if name}
        newer = {"tomllib"}  # part of it since 3.11, and only used where it is there
        own = {"llm"}  # the program that alone loads chapter 19, from itself
        self.assertEqual(sorted(roots - set(sys.stdlib_module_names) - newer - own), [])
        self.assertEqual(sorted(roots & FORBIDDEN_MODULES), [])

    def test_nothing_runs_text_as_code(self) -> None:
        calls = [
            f"{node.func.id} in line {node.lineno}"
            for node in ast.walk(TREE)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in FORBIDDEN
        ]
        self.assertEqual(calls, [])

    def test_an_old_interpreter_can_parse_the_file_and_so_be_told(self) -> None:
        ast.parse(SOURCE, feature_version=(3, 8))

    def test_no_module_state_changes_after_import(self) -> None:
        changing = [node.lineno for node in ast.walk(TREE) if isinstance(node, ast.Global)]
        self.assertEqual(changing, [])


if __name__ == "__main__":
    unittest.main()
