"""What the tests share: the module under test, a fake Perplexity, calls in this process."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import json
import math
import os
import queue
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from fake_perplexity import FakePerplexity

ROOT = Path(__file__).resolve().parent.parent


def _loaded(name: str, path: Path) -> Any:
    """A module from its file, under the name that others import."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from collections.abc import Iterator

    import perplexity_pro_mcp as pro
else:  # from the file itself, so that the tests run from any folder
    pro = _loaded("perplexity_pro_mcp", ROOT / "perplexity_pro_mcp.py")

__all__ = [
    "IMPORT",
    "INITIALIZE",
    "META",
    "ROOT",
    "WAIT_S",
    "Background",
    "Client",
    "Desk",
    "ServerProcess",
    "ServerThread",
    "WithFolder",
    "cancel",
    "desk",
    "inserted",
    "new_chat",
    "pro",
    "request",
    "script",
    "tool_call",
]

# How code for another process begins: the program as a module starts faster than as a script.
IMPORT = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import perplexity_pro_mcp as pro\n"
WAIT_S = 20.0  # a bound on every wait, never a pause

# A shell that starts the tests in the background lets them ignore Ctrl-C, as would what they start.
for _name in ("SIGINT", "SIGHUP"):
    if signal.getsignal(getattr(signal, _name, signal.SIGINT)) == signal.SIG_IGN:
        signal.signal(getattr(signal, _name), signal.SIG_DFL)


def script(name: str) -> Any:
    """A script of the folder .ci, as a module."""
    return _loaded(f"ci_{name}", ROOT / ".ci" / f"{name}.py")


def plain_cosine(a: bytes, b: bytes) -> float:
    """The cosine similarity of two int8 vectors, as defined; a zero vector is like nothing."""
    left, right = memoryview(a).cast("b"), memoryview(b).cast("b")
    dot = sum(x * y for x, y in zip(left, right, strict=True))
    norms = sum(x * x for x in left) * sum(y * y for y in right)  # below 2**53: exact as a float
    return dot / math.sqrt(norms) if norms else 0.0


def inserted(db: sqlite3.Connection, table: str, **columns: Any) -> int:
    """A row that a test brings along; its id. A name of a project stands for its id."""
    at = "2026-05-01 10:00:00.000000"
    if "project" in columns:
        name = columns.pop("project")
        values = (time.time_ns(), name, at[:19])
        db.execute("INSERT OR IGNORE INTO projects (id, name, created_at) VALUES (?, ?, ?)", values)
        found = db.execute("SELECT id FROM projects WHERE name = ?", (name,)).fetchone()
        columns["project_id"] = found[0]
    for name in ("created_at", "updated_at") if table == "chats" else ():
        columns.setdefault(name, at)
    sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES (:{', :'.join(columns)})"  # noqa: S608 - a test's own
    return db.execute(sql, columns).lastrowid or 0


def new_chat(db: sqlite3.Connection, project: str, user: str = "q", assistant: str = "a") -> int:
    """A chat of one turn that a test brings along; its id."""
    chat = inserted(db, "chats", project=project, title="a chat")
    for role, content in (("user", user), ("assistant", assistant)):
        row = {"chat_id": chat, "role": role, "content": content, "created_at": "2026-05-01 10:00"}
        inserted(db, "chat_messages", **row)
    return chat


class Desk:
    """A runtime in front of a fake, and calls to its tools."""

    def __init__(self, fake: FakePerplexity, folder: str, **environ: str) -> None:
        self.fake = fake
        self.folder = folder
        variables = {
            "PERPLEXITY_API_KEY": fake.key,
            "PERPLEXITY_BASE_URL": fake.url,
            "PERPLEXITY_DATA_DIR": f"{folder}/data",
            "PERPLEXITY_OBSERVE": "off",
            **environ,
        }
        self.settings = pro.read_settings(variables)
        self.runtime = pro.Runtime(self.settings)

    def call(self, tool: str, progress: Any = None, *, patient: bool = False) -> Any:
        return pro.Call(self.runtime, pro.TOOLS[pro.PREFIX + tool], progress, patient=patient)

    def run(self, tool: str, /, **arguments: Any) -> Any:
        """The outcome of a call: its own, or what the clock answers when its time is over."""
        return Background(self, tool, **arguments).join()

    def ok(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The structured content of a call that must succeed."""
        outcome = self.run(tool, **arguments)
        assert outcome.kind is None, outcome.text + outcome.detail
        structured: dict[str, Any] = outcome.structured
        return structured

    def refused(self, tool: str, /, **arguments: Any) -> str:
        """The text of a call that must fail."""
        outcome = self.run(tool, **arguments)
        assert outcome.kind is not None, outcome.text
        assert not outcome.detail, outcome.detail
        return str(outcome.text)

    @contextlib.contextmanager
    def locked(self, timeout_s: float = 5.0) -> Iterator[None]:
        """The database as another process holds it while writing."""
        path = f"{self.folder}/data/perplexity.db"
        with contextlib.closing(sqlite3.connect(path, timeout=timeout_s)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.rollback()

    def events(self) -> list[dict[str, Any]]:
        """The ledger's rows, oldest first."""
        with self.runtime.store.reading() as db:
            cursor = db.execute("SELECT * FROM usage_events ORDER BY id")
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]


@contextlib.contextmanager
def desk(**environ: str) -> Iterator[Desk]:
    """A desk on a scratch folder; everything on its way is let go at the end."""
    with tempfile.TemporaryDirectory() as folder, FakePerplexity() as fake:
        made = Desk(fake, folder, **environ)
        try:
            yield made
        finally:
            fake.stop()
            made.runtime.settle(WAIT_S)
            made.runtime.close()


class Background:
    """A call in a thread of its own, and a clock that answers for it when its time is over."""

    def __init__(self, owner: Any, tool: str, /, call: Any = None, **arguments: Any) -> None:
        self.call = call or owner.call(tool)
        self.outcome: Any = None
        self.cancelled = False
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(arguments,), daemon=True)
        self._thread.start()

    def _run(self, arguments: dict[str, Any]) -> None:
        try:
            self.outcome = pro.run_tool(self.call, arguments)
        except pro.Cancelled:
            self.cancelled = True
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        self._over.set()

    def joined(self) -> Background:
        """The call, once it waits for a request: its own, or one that was on its way."""
        looks = iter(range(int(WAIT_S / 0.002)))
        while not self.call.requests and not self._over.wait(0.002):
            assert next(looks, None) is not None, "the call joined no request in time"
        return self

    def join(self) -> Any:
        """What the caller gets, as a server would have it: None for a call that was cancelled."""
        looks = iter(range(int(WAIT_S / 0.005)))  # a clock may be a test's own
        while not self._over.wait(0.005):
            assert next(looks, None) is not None, "the call did not end in time"
            if self.call.cancelled.is_set():
                self.cancelled = True
                return None
            if self.call.remaining_s() <= 0 and (late := pro.handed_off(self.call)):
                return late
        if self._error:
            raise self._error
        if not self.cancelled:
            self.call.delivered()
        return self.outcome

    def end(self) -> None:
        """Wait for the call's own thread, which may go on after the answer."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the call's thread did not end in time"


# ---- Both ends of the protocol

META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(number: Any, method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": number, "method": method, **more}
    return message if params is None else {**message, "params": params}


def tool_call(number: Any, tool: str, _meta: Any = None, **arguments: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"name": f"perplexity_{tool}", "arguments": arguments}
    return request(number, "tools/call", params if _meta is None else {**params, "_meta": _meta})


def cancel(number: Any, **more: Any) -> dict[str, Any]:
    params = {"requestId": number, **more}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


INITIALIZE = request(0, "initialize", {"protocolVersion": "2025-11-25"})


class Client:
    """A client's ends of a server's input and output."""

    def __init__(self, descriptor_in: int, descriptor_out: int, *, reading: bool = True) -> None:
        self.input = descriptor_in
        self.output = descriptor_out
        self.written = b""
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        if reading:
            self.read()

    def read(self) -> None:
        """Begin to read what the server writes."""
        self.reader.start()

    def _read(self) -> None:
        with os.fdopen(self.output, "rb") as stream:
            for line in stream:
                self.written += line
                self._lines.put(line)
        self._lines.put(b"")

    def send(self, *messages: Any) -> None:
        """Send messages; bytes as they are."""
        lines = [m if isinstance(m, bytes) else json.dumps(m).encode() + b"\n" for m in messages]
        data = b"".join(lines)
        while data:
            data = data[os.write(self.input, data) :]

    def line(self) -> bytes:
        """The next line; empty where the output has ended."""
        try:
            return self._lines.get(timeout=WAIT_S)
        except queue.Empty:
            raise AssertionError(f"the server wrote nothing; {self.errors()}") from None

    def receive(self) -> Any:
        line = self.line()
        assert line, f"the output ended; {self.errors()}"
        return json.loads(line)

    def before(self, number: Any) -> list[Any]:
        """What comes before the answer to a request, the answer left out."""
        messages: list[Any] = []
        ends_at = time.monotonic() + WAIT_S
        while (message := self.receive()).get("id") != number:
            messages.append(message)
            assert time.monotonic() < ends_at, f"{number} was not answered"
        return messages

    def ask(self, message: Any) -> Any:
        """The one answer to a message."""
        self.send(message)
        return self.receive()

    def begin(self, version: str = "2025-11-25", **params: Any) -> None:
        """Shake hands."""
        self.ask(request("begin", "initialize", {"protocolVersion": version, **params}))

    def quiet(self) -> bool:
        """Whether nothing was written before the answer to a ping that is sent now."""
        return bool(self.ask(request("quiet?", "ping"))["id"] == "quiet?")

    def close(self) -> None:
        """End the server's input."""
        if self.input >= 0:
            os.close(self.input)
            self.input = -1

    def errors(self) -> str:
        """What the server wrote to standard error, where it has its own."""
        return ""


class ServerThread(Client):
    """A server in a thread of this process."""

    def __init__(self, runtime: Any, *, reading: bool = True) -> None:
        self.runtime = runtime
        self.status: int | None = None
        inner_in, outer_in = os.pipe()
        outer_out, inner_out = os.pipe()
        self._inner = (inner_in, inner_out)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        super().__init__(outer_in, outer_out, reading=reading)

    def _serve(self) -> None:
        self.status = pro.serve(self.runtime, *self._inner)
        for descriptor in self._inner:
            os.close(descriptor)

    def end(self) -> None:
        """Close the input and wait for the server's end."""
        self.close()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive(), "the server did not end"


class ServerProcess(Client):
    """A server in a process of its own; `command` is what the interpreter gets."""

    def __init__(self, environment: dict[str, str], *command: str, **options: Any) -> None:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(
            (sys.executable, *command), env=environment, **{**pipes, **options}
        )
        self._errors: list[bytes] = []
        self._noted = threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        streams = (self.process.stdin, self.process.stdout)
        ends = [os.dup(stream.fileno()) if stream else -1 for stream in streams]
        for stream in filter(None, streams):
            stream.close()
        super().__init__(*ends, reading=ends[1] >= 0)

    def _listen(self) -> None:
        with contextlib.suppress(ValueError):  # the test closed it
            for line in self.process.stderr or ():
                with self._noted:
                    self._errors.append(line)
                    self._noted.notify_all()

    def wait(self) -> int:
        """The exit status, once all output has been read."""
        status = self.process.wait(WAIT_S)
        for thread in (self.reader, self._listener):
            if thread.ident:
                thread.join(WAIT_S)
        return status

    def end(self) -> int:
        self.close()
        return self.wait()

    def errors(self) -> str:
        return b"".join(self._errors).decode()

    def wait_for_note(self, text: str) -> None:
        with self._noted:
            noted = self._noted.wait_for(lambda: text in self.errors(), WAIT_S)
        assert noted, f"{text} was not noted: {self.errors()}"

    def kill(self) -> None:
        """Leave nothing behind, whatever the test found."""
        with contextlib.suppress(OSError):
            self.process.kill()
        self.close()
        self.wait()
        if self.process.stderr:
            self.process.stderr.close()


# ---- The command line


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Said:
    """What a command line left behind."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def json(self) -> Any:
        return json.loads(self.out)


class Console:
    """Runs command lines in this process, against a fake, with streams of its own."""

    def __init__(self, fake: FakePerplexity, folder: str) -> None:
        self.fake, self.folder = fake, folder
        self.environ = {
            "PERPLEXITY_API_KEY": fake.key,
            "PERPLEXITY_BASE_URL": fake.url,
            "PERPLEXITY_DATA_DIR": f"{folder}/data",
            "PERPLEXITY_MAX_ATTEMPTS": "1",
        }

    def run(self, *words: str, **more: Any) -> Said:
        """Run words; `tty` makes both outputs terminals, `stdin` is what is piped in."""
        terminal, piped = more.pop("tty", False), more.pop("stdin", b"")
        out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
        settings = pro.read_settings({**self.environ, **more})
        screen = pro.Screen(out, err, settings)
        with fed(piped) as descriptor:
            stdin = functools.partial(pro.Stdin, descriptor)
            with mock.patch.object(pro, "Stdin", stdin):
                status = pro.command_line(words, settings, screen)
        return Said(status, out.getvalue(), err.getvalue())

    def line(self, line: str, **more: Any) -> Said:
        return self.run(*shlex.split(line), **more)


@contextlib.contextmanager
def console() -> Iterator[Console]:
    with tempfile.TemporaryDirectory() as folder, FakePerplexity() as fake:
        yield Console(fake, folder)


@contextlib.contextmanager
def fed(text: bytes) -> Iterator[int]:
    """A descriptor of a pipe on which the text came and which was then closed."""
    reader, writer = os.pipe()
    try:
        os.write(writer, text)
        os.close(writer)
        yield reader
    finally:
        os.close(reader)


class WithFolder(unittest.TestCase):
    """A scratch data folder, tools over it, and its database file."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="storage-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.path = self.folder / pro.DATABASE
        self.store = self.new_store()

    def new_store(self, **values: Any) -> pro.Store:
        # A patient default: the machine may be busy with other things.
        values = {"busy_timeout_s": WAIT_S, **values}
        store = pro.Store(pro.Settings(data_dir=str(self.folder), **values))
        self.addCleanup(store.close)
        return store

    def place(self, revision: str) -> None:
        """Let the folder hold a database of the older server."""
        old = ROOT / "tests" / "data" / f"pro-2.0.0-revision-{revision}.db"
        shutil.copyfile(old, self.path)

    def call(self, tool: str, **settings: Any) -> pro.Call:
        """A call of a tool in a process of its own."""
        values = {"data_dir": str(self.folder), "busy_timeout_s": WAIT_S, **settings}
        runtime = pro.Runtime(pro.Settings(**values))
        self.addCleanup(runtime.close)
        return pro.Call(runtime, pro.TOOLS[pro.PREFIX + tool])

    def tool(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """What a tool that must succeed returns."""
        outcome = pro.run_tool(self.call(tool), arguments)
        self.assertIsNone(outcome.kind, outcome.text + outcome.detail)
        structured: dict[str, Any] = outcome.structured
        return structured

    def refusal(self, tool: str, /, **arguments: Any) -> str | None:
        """The kind of error of a tool that must fail."""
        return pro.run_tool(self.call(tool), arguments).kind

    def projects(self) -> list[str]:
        return [row["name"] for row in self.tool("projects", action="list")["projects"]]

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of the file itself, or a change to it from outside."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=WAIT_S)) as db, db:
            return db.execute(statement, values).fetchall()

    def project(self, name: str = "demo") -> None:
        """Have a project; its first use also makes the file."""
        with self.store.writing() as db:
            values = (time.time_ns(), name, "2026-05-01 10:00:00")
            db.execute("INSERT OR IGNORE INTO projects VALUES (?, ?, ?)", values)

    def health(self) -> tuple[str, str]:
        """What is wrong with the file, and what a look at it shows."""
        found: tuple[str, str] = pro.Store(pro.Settings(data_dir=str(self.folder))).health()
        return found

    def refused(self, store: pro.Store | None = None, *, writing: bool = False) -> pro.ToolError:
        """The error of a first use."""
        store = store or self.store
        unit = store.writing() if writing else store.reading()
        with self.assertRaises(pro.ToolError) as caught, unit:
            self.fail("was not refused")
        return caught.exception

    def chat(self, user: str = "q") -> int:
        with self.store.writing() as db:
            return new_chat(db, "demo", user)
