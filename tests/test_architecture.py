"""The file keeps its shape: powers stay in their chapters, references only look back."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import unittest
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).resolve().parent.parent
SOURCE = (ROOT / "perplexity_pro_mcp.py").read_text(encoding="utf-8")
BANNER = re.compile(r"^# ==== (\d+)\. ([^=]+?) =+$")

# What each chapter may reach. Whatever is not listed here is a breach: modules by the chapters that
# may import them, attributes of the modules that all chapters share by the chapters that may use
# them, and what touches the disk, statements of SQL and built-in names alike.
ALL = range(21)


def each(words: str, chapters: Collection[int]) -> dict[str, Collection[int]]:
    """The same chapters for several names."""
    return dict.fromkeys(words.split(), chapters)


IMPORTS: dict[str, Collection[int]] = {
    **each("contextlib functools json operator os re sys", {0}),
    **each("threading time typing", {0}),
    **each("datetime decimal difflib hashlib unicodedata", ALL),
    **each("math bisect heapq itertools struct base64 secrets random shlex", ALL),
    **each("csv html textwrap mimetypes queue", ALL),
    "collections.abc": {0},
    "email.utils": {2, 6},
    "fcntl": {5},
    "getpass": {18},
    "http": {6},
    "http.client": {6},
    "http.server": {16},
    "io": {6, 18},
    **each("asyncio atexit llm.parts", {19}),
    "llm": {19},  # the program that alone loads chapter 19, from itself
    "pydantic": {19},  # which it brings along
    "logging": {3},
    "msvcrt": {5, 18},
    "pathlib": {5, 9, 18},
    "readline": {18},
    "select": {15, 18},
    "shutil": {18},
    "signal": {15, 18},
    "socket": {6},
    "socketserver": {16},
    "sqlite3": {9},
    "ssl": {6, 18},
    "stat": {5},
    "termios": {18},
    "tomllib": {17},
    "urllib.parse": ALL,
    "webbrowser": {16},
    "zlib": {6},
}
OS: dict[str, Collection[int]] = {
    **each("O_CREAT O_EXCL O_RDONLY O_RDWR O_WRONLY open", {5}),
    **each("chown fsync geteuid stat supports_dir_fd", {5}),
    **each("W_OK access fsencode isatty pathsep", {18}),
    **each("read set_blocking", {15, 18}),
    **each("dup dup2 pipe write _exit", {15}),
    **each("close fdopen", {5, 15}),
    "environ": {3},
    "fstat": {5, 15, 18},
    "getpid": {11, 12},
    "name": ALL,
    "path": {3, 5, 18},
    "urandom": {9, 11, 12, 15},
}
SYS: dict[str, Collection[int]] = {
    **each("exit", {0, 20}),
    **each("flags path", {0}),
    **each("executable version_info platform maxsize", ALL),
    "argv": {20},
    "stderr": {15, 18},
    "stdin": {18},
    "stdout": {15, 18},
}
OF_MODULES: dict[str, dict[str, Collection[int]]] = {
    "os": OS,
    "sys": SYS,
    "io": {"BytesIO": {6}, "StringIO": {18}, "TextIOWrapper": {18}},
    "operator": {"itemgetter": {0}},
}
# Modules that are reached through others, which must be said here as well.
THROUGH = {(6, "http.client"), (6, "email.utils")}
PACKAGES = {"urllib", "http", "email"}
THREADS = {6, 9, 11, 12, 15, 16}
# Of a path, what touches the disk. Chapter 18 only looks at files, before it names them.
ON_DISK = each(
    "open read_text read_bytes write_text write_bytes unlink rename mkdir rmdir chmod touch stat "
    "symlink_to hardlink_to iterdir glob rglob lstat exists is_file is_dir is_symlink resolve "
    "expanduser samefile walk readlink lchmod copy_into move_into is_mount",
    {5, 9},
)
LOOKS = {(18, name) for name in ("exists", "is_dir", "is_file", "resolve", "stat")}
OPENS = {(16, "webbrowser.open")}  # the user's browser
NAMES: dict[str, Collection[int]] = {"open": {5}, "print": {18}, "input": {18}}
NEVER = {"eval", "exec", "compile", "__import__", "breakpoint", "globals", "locals", "__builtins__"}
NEVER |= {"__loader__", "__spec__", "__globals__", "__subclasses__", "__code__", "__closure__"}
NEVER |= {"gi_frame", "cr_frame", "ag_frame", "tb_frame", "f_back", "f_globals", "f_builtins"}
# Whose attributes may be looked up by a name that is not written down: our own records.
RECORDS = {"args", "usage", "result", "settings"}
STATEMENTS = {"execute", "executemany", "executescript"}
SQL = re.compile(
    r"(?:\s|/\*.*?\*/|--[^\n]*\n)*(?:select\b.+\bfrom\b|with\s+(recursive\s+)?\w+\s*(\([^)]*\))?"
    r"\s*as\s*\(|insert\s+(or\s+\w+\s+)?into|replace\s+into|update\s+(or\s+\w+\s+)?\w+\s+set"
    r"|delete\s+from|pragma\s|begin(\s+\w+)?\Z|create\s+((temp|unique|virtual)\w*\s+)?(table|index"
    r"|trigger|view)|alter\s+table|drop\s+(table|index|trigger|view)|(at|de)tach\b|vacuum\b|reindex\b)",
    re.IGNORECASE | re.DOTALL,
)


class Chapters:
    """A source text, its tree, and the chapter of each line."""

    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        self.starts = [
            (number, int(found[1]), found[2])
            for number, line in enumerate(source.splitlines(), 1)
            if (found := BANNER.match(line))
        ]
        self._lines = [number for number, _, _ in self.starts]
        self.parents = {
            id(child): node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }
        self.hidden: set[int] = set()  # what only type checkers see, and annotations
        for node in ast.walk(self.tree):
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                self.hidden.update(id(n) for part in node.body for n in ast.walk(part))
            for hint in (getattr(node, "annotation", None), getattr(node, "returns", None)):
                if isinstance(hint, ast.AST):
                    self.hidden.update(id(inner) for inner in ast.walk(hint))
        self.local = self._local_names()
        self.modules = {
            (name.asname or name.name).partition(".")[0]
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import)
            for name in node.names
        }

    def of(self, node: ast.AST) -> int:
        """The chapter in which a node stands."""
        line = getattr(node, "lineno", 0)
        return [0, *(number for _, number, _ in self.starts)][bisect_right(self._lines, line)]

    def seen(self) -> Iterator[ast.AST]:
        """The nodes that run."""
        return (node for node in ast.walk(self.tree) if id(node) not in self.hidden)

    def _local_names(self) -> set[int]:
        """Uses of a function's own variables, which may bear the name of something else."""
        found: set[int] = set()
        for function in ast.walk(self.tree):
            if not isinstance(function, (ast.FunctionDef, ast.Lambda)):
                continue
            inside = list(ast.walk(function))
            own = {node.arg for node in inside if isinstance(node, ast.arg)}
            own |= {
                n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            found.update(id(n) for n in inside if isinstance(n, ast.Name) and n.id in own)
        return found


def imports(node: ast.AST) -> Iterator[tuple[str, str | None]]:
    """The modules that a statement imports, and what each is called."""
    if isinstance(node, ast.Import):
        yield from ((name.name, name.asname) for name in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = node.module or "."
        for name in node.names:
            nested = f"{package}.{name.name}" in IMPORTS
            yield f"{package}.{name.name}" if nested else package, name.asname


def breaches(source: str) -> list[str]:
    """Every use of a power in a chapter that has not got it."""
    book, found = Chapters(source), list[str]()

    def allow(node: ast.AST, what: str, chapters: Collection[int]) -> None:
        if book.of(node) not in chapters:
            line = getattr(node, "lineno", 0)
            found.append(f"{what} in line {line}, chapter {book.of(node)}")

    for node in book.seen():
        for module, alias in imports(node):
            allow(node, f"import {module}", () if alias else IMPORTS.get(module, ()))
        if isinstance(node, ast.Call):
            _check_look_up(node, allow)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            _check_name(book, node, allow)
        elif isinstance(node, ast.Attribute):
            _check_attribute(book, node, allow)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            allow(node, "SQL", {9} if SQL.match(node.value) else ALL)
            # The name of one, for a look-up.
            allow(node, node.value, () if node.value in NEVER else ALL)
    return found


def _check_name(book: Chapters, node: ast.Name, allow: Callable[..., None]) -> None:
    """A built-in name, or a module, which may be named only where an attribute follows."""
    if id(node) in book.local:
        return
    allow(node, node.id, () if node.id in NEVER else NAMES.get(node.id, ALL))
    if node.id == "threading":
        allow(node, node.id, THREADS)
    parent = book.parents.get(id(node))
    if node.id not in book.modules or isinstance(parent, ast.Attribute):
        return
    call = ast.unparse(parent) if parent else ""
    fixed = isinstance(parent, ast.Call) and len(parent.args) > 1
    named = parent.args[1] if fixed and isinstance(parent, ast.Call) else None
    if call.startswith("getattr(") and isinstance(named, ast.Constant):
        allow(node, call, {"os": {5}, "sys": {18}}.get(node.id, ()))
        allowed = {"os": "O_", "sys": "_base_executable"}[node.id]
        allow(node, call, ALL if str(named.value).startswith(allowed) else ())
    elif call.startswith(("getattr(signal, ", "hasattr(select, ")):
        allow(node, call, {15, 18})
    else:
        allow(node, call, {6} if call == "vars(client)" else ())


def _check_look_up(node: ast.Call, allow: Callable[..., None]) -> None:
    """An attribute by its name: written down and harmless, or of one of our records."""
    if ast.unparse(node.func) != "getattr":
        return
    name, text = node.args[1], ast.unparse(node)
    if not isinstance(name, ast.Constant):
        allow(node, text, ALL if ast.unparse(node.args[0]) in RECORDS else {0, 15, 18})
    elif name.value in STATEMENTS or name.value in ON_DISK:
        allow(node, text, {9} if name.value in STATEMENTS else {5, 9})


def _check_attribute(book: Chapters, node: ast.Attribute, allow: Callable[..., None]) -> None:
    base = node.value.id if isinstance(node.value, ast.Name) else ""
    text, here = ast.unparse(node), book.of(node)
    is_module = node.attr in sys.stdlib_module_names - {base} or node.attr.startswith("_")
    is_module = is_module or base in PACKAGES
    reaches = base in book.modules and is_module and (here, text) not in THROUGH
    if base in OF_MODULES:
        allow(node, text, OF_MODULES[base].get(node.attr, ()))
    elif reaches or (node.attr in NEVER and text != "re.compile"):
        allow(node, text, ())
    elif node.attr in STATEMENTS:
        allow(node, text, {9})
    parent, moves = book.parents.get(id(node)), False
    if isinstance(parent, ast.Call) and parent.func is node:
        given = len(parent.args) + len(parent.keywords)
        moves = (given == 1 and node.attr == "replace") or (
            given > 0 and node.attr in {"copy", "move"}
        )
    touches = node.attr in ON_DISK and not text.startswith(("os.", "self."))
    if moves or (touches and (here, node.attr) not in LOOKS and (here, text) not in OPENS):
        allow(node, text, {5, 9})


BOOK = Chapters(SOURCE)
TREE = BOOK.tree


class Architecture(unittest.TestCase):
    def test_the_chapters_are_those_of_the_contents_in_order(self) -> None:
        page = ast.get_docstring(TREE, clean=False) or ""
        contents = re.findall(r"^ {1,3}(\d+)\. (.+?) {2,}\S", page, re.MULTILINE)
        self.assertEqual([(int(n), t) for n, t in contents], [(c, t) for _, c, t in BOOK.starts])

    def test_the_audited_path_and_the_whole_are_as_long_as_the_documents_say(self) -> None:
        lines = SOURCE.count("\n")
        ends = [number for number, _, _ in BOOK.starts[1:]] + [lines + 1]
        lengths = {c: end - n for (n, c, _), end in zip(BOOK.starts, ends, strict=True)}
        audited = sum(lengths[chapter] for chapter in (3, 5, 6))
        page = " ".join((ast.get_docstring(TREE) or "").split())
        said = re.search(r"first, at most ([\d,]+) lines of at most ([\d,]+)", page)
        most, whole = (int(n.replace(",", "")) for n in said.groups()) if said else (0, 0)
        self.assertLessEqual(audited, most)
        self.assertGreater(audited, most - 150)  # the figures are no guesses
        self.assertLessEqual(lines, whole)
        for name in ("README.md", "SECURITY.md"):
            words = " ".join((ROOT / name).read_text("utf-8").split())
            self.assertIn(f"at most {most:,} lines", words, name)

    def test_names_are_defined_once(self) -> None:
        names = [name for name, _ in self.definitions()]
        self.assertEqual(sorted({name for name in names if names.count(name) > 1}), [])

    def definitions(self) -> Iterator[tuple[str, int]]:
        """The names that the module defines, with their chapters."""
        for node in TREE.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield node.name, BOOK.of(node)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for inner in ast.walk(target):
                        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                            yield inner.id, BOOK.of(node)

    def test_chapters_only_look_back(self) -> None:
        home = dict(self.definitions())
        ahead = {
            f"{node.id} in line {node.lineno}"
            for node in ast.walk(TREE)
            if isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and id(node) not in BOOK.local
            and home.get(node.id, 0) > BOOK.of(node)
        }
        self.assertEqual(sorted(ahead), [])

    def test_private_names_stay_in_their_chapter(self) -> None:
        home = {n: c for n, c in self.definitions() if n.startswith("_") and n != "__version__"}
        strays = {
            f"{node.id} in line {node.lineno}"
            for node in ast.walk(TREE)
            if isinstance(node, ast.Name)
            and id(node) not in BOOK.local
            and home.get(node.id, BOOK.of(node)) != BOOK.of(node)
        }
        self.assertEqual(sorted(strays), [])

    def test_each_power_stays_in_its_chapter(self) -> None:
        self.assertEqual(breaches(SOURCE), [])

    def test_only_the_standard_library_is_imported(self) -> None:
        roots = {module.partition(".")[0] for module in IMPORTS}
        others = {"llm", "pydantic", "tomllib"}  # the last is part of it since 3.11
        self.assertEqual(sorted(roots - set(sys.stdlib_module_names) - others), [])

    def test_an_old_interpreter_can_parse_the_file_and_so_be_told(self) -> None:
        ast.parse(SOURCE, feature_version=(3, 6))  # no walrus, no positional-only parameters
        futures = [
            n.lineno
            for n in ast.walk(TREE)
            if isinstance(n, ast.ImportFrom) and n.module == "__future__"
        ]  # 3.6 knows no annotations
        self.assertEqual(futures, [])

    def test_interpreters_that_are_too_old_are_told_in_one_sentence(self) -> None:
        for minor in range(6, 10):
            found = shutil.which(f"python3.{minor}")
            if not found:
                continue
            done = subprocess.run(
                [found, str(ROOT / "perplexity_pro_mcp.py")],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            if done.returncode == 127:
                continue  # the name stands for a version that is not there
            self.assertRegex(done.stderr, r"\Aperplexity-pro-mcp needs Python 3\.10 [^\n]+\n\Z")
            self.assertEqual((done.returncode, done.stdout), (1, ""))

    def test_no_module_state_changes_after_import(self) -> None:
        changing = [node.lineno for node in ast.walk(TREE) if isinstance(node, ast.Global)]
        self.assertEqual(changing, [])


class Breaches(unittest.TestCase):
    """What a change might try in a chapter that reaches the world through others only."""

    CAUGHT: ClassVar = (
        "import http.client",
        "import asyncio",
        "import smtplib",
        "import _socket",
        "import pty",
        "import linecache",
        "import _thread",
        "import concurrent.futures",
        "import subprocess",
        "import ctypes",
        "import importlib",
        "import builtins",
        "from os import system",
        "from urllib import request",
        "import os as o",
        "from http import client as c",
        "o = os",
        "os.posix_spawn('/bin/sh', [], {})",
        "os.execv('/bin/sh', [])",
        "os.remove('x')",
        "os.environb",
        "os.write(1, b'x')",
        "os.system('x')",
        "getattr(os, name)",
        "getattr(os, 'system')",
        "getattr(os, 'O_RDONLY')",
        "vars(os)['system']",
        "webbrowser.open('https://example.org')",
        "import webbrowser",
        "builtins.exec('x')",
        "exec('x')",
        "run = eval",
        "__import__('socket')",
        "x.__globals__['open']",
        "getattr(x, '__globals__')",
        "globals()['open']",
        "io.open('x')",
        "open('x')",
        "path.read_text()",
        "path.open()",
        "path.replace(target)",
        "path.unlink()",
        "db.execute('x')",
        "statement = 'select * from usage_events'",
        "statement = 'SELECT 1 FROM t'",
        "statement = 'delete from jobs'",
        "threading.Thread(target=f)",
        "print('x')",
        "sys.stdout.write('x')",
        "sys.modules['socket']",
        "contextlib.os.system('x')",
        "random._os.system('x')",
        "typing.sys.modules['socket'].create_connection(x)",
        "contextlib.sys.stdout.write('x')",
        "urllib.request.urlopen('https://example.org')",
        "getattr(path, 'write_text')('x')",
        "getattr(path, name)('x')",
        "getattr(db, 'execute')('x')",
        "operator.methodcaller('write_text', 'x')(path)",
        "operator.attrgetter('write_text')(path)",
        "path.replace(target=x)",
        "path.copy(x)",
        "path.move(x)",
        "path.walk()",
        "path.readlink()",
        "x.gi_frame.f_builtins['open']",
        "statement = 'REPLACE INTO jobs VALUES (1)'",
        "statement = 'INSERT OR REPLACE INTO jobs VALUES (1)'",
        "statement = 'UPDATE OR IGNORE jobs SET a = 1'",
        "statement = 'ALTER TABLE jobs ADD b'",
        "statement = 'DROP TRIGGER t'",
        "statement = 'WITH a AS (SELECT 1) DELETE FROM jobs'",
        "statement = '/* x */ DELETE FROM jobs'",
    )

    def test_each_is_caught(self) -> None:
        known = "import os, sys, io, threading, webbrowser, builtins, contextlib, random, typing\n"
        known += "import operator, urllib.parse\n"
        for line in self.CAUGHT:
            source = f"{known}# ==== 14. Tools ====\ndef do_it(path, db, x):\n    {line}\n"
            with self.subTest(line):
                here = [one for one in breaches(source) if "chapter 14" in one]
                self.assertNotEqual(here, [])

    def test_what_is_allowed_is_no_breach(self) -> None:
        lines = {
            5: "getattr(os, 'O_NOFOLLOW', 0) | os.open(x, os.O_RDONLY)",
            9: "db.execute('SELECT 1 FROM t')",
            14: "text.replace('a', 'b'); re.compile('x'); os.name",
        }
        for chapter, line in lines.items():
            source = f"import os, re\n# ==== {chapter}. X ====\ndef f(db, x, text):\n    {line}\n"
            self.assertEqual(breaches(source), [])


if __name__ == "__main__":
    unittest.main()
