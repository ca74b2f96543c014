"""What the tests share: the module under test, a fake Perplexity, calls in this process."""

from __future__ import annotations

import contextlib
import importlib.util
import sqlite3
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

__all__ = ["IMPORT", "ROOT", "WAIT_S", "Background", "Desk", "desk", "pro", "script"]

# How code for another process begins: the program as a module starts faster than as a script.
IMPORT = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import perplexity_pro_mcp as pro\n"
WAIT_S = 20.0  # a bound on every wait, never a pause


def script(name: str) -> Any:
    """A script of the folder .ci, as a module."""
    return _loaded(f"ci_{name}", ROOT / ".ci" / f"{name}.py")


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
        """The outcome of a call in this thread."""
        return pro.run_tool(self.call(tool), arguments)

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
    """A call in a thread of its own."""

    def __init__(self, owner: Desk, tool: str, /, **arguments: Any) -> None:
        self.call = owner.call(tool)
        self.outcome: Any = None
        self.cancelled = False
        self._thread = threading.Thread(target=self._run, args=(arguments,), daemon=True)
        self._thread.start()

    def _run(self, arguments: dict[str, Any]) -> None:
        try:
            self.outcome = pro.run_tool(self.call, arguments)
        except pro.Cancelled:
            self.cancelled = True

    def join(self) -> Any:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the call did not end in time"
        return self.outcome
