"""What SECURITY.md claims and no other module holds: fences, caps over processes, odd keys."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from fake_perplexity import Answer, FakePerplexity
from support import ROOT, WAIT_S, Desk, desk, pro

FILE = ROOT / "perplexity_pro_mcp.py"
FENCE = re.compile(r"<(untrusted-web-content-[0-9a-f]{16})>\n(.*?)\n</\1>", re.DOTALL)
ODD_KEY = "sk-or-v1-0123456789abcdefghijABCDEFGHIJ"  # of no shape that is known


class Fenced(unittest.TestCase):
    """A model meets no text from the web but inside a fence."""

    def assert_fenced(self, text: str, *words: str) -> None:
        inside = "\n".join(found[2] for found in FENCE.finditer(text))
        outside = FENCE.sub("", text)
        for word in words:
            self.assertIn(word, inside)
            self.assertNotIn(word, outside)

    def text(self, owner: Desk, tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
        outcome = owner.run(tool, **arguments)
        self.assertIsNone(outcome.kind, outcome.text)
        return outcome.text, outcome.structured

    def test_answers_of_every_tool(self) -> None:
        with desk() as owner, mock.patch.object(pro, "POLL_FIRST_S", 0.01):
            text, found = self.text(owner, "ask", query="what is wal mode?")
            self.assert_fenced(text, found["answer"][:40], found["sources"][0]["url"])
            text, found = self.text(owner, "chat", action="send", title="t", message="and then?")
            self.assert_fenced(text, found["answer"][:40])
            chat = {"action": "read", "chat_id": found["chat_id"]}
            said = found["answer"][:40]
            self.assert_fenced(self.text(owner, "chat", **chat)[0], said)
            _, started = self.text(owner, "research", query="compare")
            wait = {"action": "result", "job_id": started["job_id"], "wait_seconds": 50}
            text, found = self.text(owner, "jobs", **wait)
            self.assert_fenced(text, found["answer"][:40])

    def test_pages_that_were_found_and_texts_that_were_stored(self) -> None:
        with desk(PERPLEXITY_MAX_RESULT_CHARS="4000") as owner:
            text, found = self.text(owner, "search", query="sqlite")
            self.assert_fenced(text, found["results"][0]["url"], found["results"][0]["title"])
            pages = [
                {"url": f"https://example.org/{n}", "title": f"T{n}", "snippet": "word " * 300}
                for n in range(10)
            ]
            owner.fake.script("POST /search", Answer(200, {"id": "s", "results": pages}))
            self.text(owner, "search", query="more than fits")
            (job,) = owner.ok("jobs", action="list")["jobs"]
            text, found = self.text(owner, "jobs", action="result", job_id=job["job_id"])
            self.assert_fenced(text, found["results"][0]["url"])
            items = [{"key": "a", "text": "Bread needs salt."}]
            owner.ok("embed", action="index", source="text", items=items)
            text, _ = self.text(owner, "embed", action="search", query="bread")
            self.assert_fenced(text, "Bread needs salt.")


class Caps(unittest.TestCase):
    def test_two_stores_on_one_folder_never_pass_a_cap_together(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="0.005") as owner:
            other = Desk(owner.fake, owner.folder, PERPLEXITY_BUDGET_DAILY_USD="0.005")
            owner.ok("usage")
            try:
                with ThreadPoolExecutor(12) as pool:
                    both = [owner, other] * 12
                    list(pool.map(lambda n: both[n].run("search", query=f"q{n}"), range(24)))
            finally:
                other.runtime.settle(WAIT_S)
                other.runtime.close()
            self.assertEqual(len(owner.fake.calls("POST", "/search")), 5)

    def test_the_question_counts_every_batch(self) -> None:
        amounts = []
        for count in (1, 40):
            with desk(PERPLEXITY_CONFIRM_USD="0") as owner:
                items = [{"key": f"k{n}", "text": f"{n} " * 3000} for n in range(count)]
                text = owner.refused("embed", action="index", source="text", items=items)
                found = re.search(r"up to \$([\d.]+)", text)
                amounts.append(float(found[1] if found else 0))
                self.assertEqual(owner.fake.calls("POST", "/v1/embeddings"), [])
        self.assertGreater(amounts[1], 20 * amounts[0])

    def test_the_schema_of_a_database_is_not_trusted_with_functions(self) -> None:
        with desk() as owner:
            owner.ok("usage")
            with owner.runtime.store.reading() as db:
                self.assertEqual(db.execute("PRAGMA trusted_schema").fetchone()[0], 0)


class OddKey(unittest.TestCase):
    """A key that is not shaped like one is found all the same."""

    def setUp(self) -> None:
        self.fake = FakePerplexity()
        self.fake.key = ODD_KEY
        self.enter(self.fake)
        self.folder = self.enter(tempfile.TemporaryDirectory())

    def enter(self, context: Any) -> Any:
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def test_it_stays_out_of_replies(self) -> None:
        def echo(seen: Any) -> Any:
            answer = self.fake.default(seen)
            answer.body["results"][0]["snippet"] = f"It is {ODD_KEY}."
            return answer

        def echo_in_models(seen: Any) -> Any:
            answer = self.fake.default(seen)
            answer.body["data"][0]["owned_by"] = ODD_KEY
            return answer

        self.fake.always("POST /search", echo)
        self.fake.always("GET /v1/models", echo_in_models)
        owner = Desk(self.fake, self.folder)
        with contextlib.closing(owner.runtime):
            self.assertNotIn(ODD_KEY, pro.json_text(owner.ok("models")))
            outcome = owner.run("search", query="q")
            self.assertIn("[redacted]", outcome.text)
            self.assertNotIn(ODD_KEY, outcome.text + pro.json_text(outcome.structured))

    def test_it_stays_off_the_terminal(self) -> None:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PERPLEXITY_")}
        environ.update(PERPLEXITY_API_KEY=ODD_KEY, PERPLEXITY_BASE_URL=self.fake.url)
        environ.update(PERPLEXITY_DATA_DIR=f"{self.folder}/data")
        for words in ([ODD_KEY], ["ask", f"--{ODD_KEY}"], ["usage", "--since", ODD_KEY]):
            done = subprocess.run(
                [sys.executable, str(FILE), *words],
                capture_output=True,
                env=environ,
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=WAIT_S,
            )
            self.assertNotEqual(done.returncode, 0)
            self.assertNotIn(ODD_KEY.encode(), done.stdout + done.stderr, words)


class Strays(unittest.TestCase):
    def test_a_file_beside_the_script_or_in_the_working_directory_never_runs(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder, mark = Path(name), Path(name, "mark")
            shutil.copy(FILE, folder)
            for module in ("datetime", "secrets", "random", "json", "sqlite3", "logging", "queue"):
                Path(folder, f"{module}.py").write_text(f"open({str(mark)!r}, 'w')\n", "utf-8")
            environ = {k: v for k, v in os.environ.items() if not k.startswith("PERPLEXITY_")}
            environ.update(PERPLEXITY_DATA_DIR=f"{name}/data", PYTHONPATH="")
            environ.update(PERPLEXITY_LOG_LEVEL="DEBUG", PERPLEXITY_API_KEY="x" * 20)
            environ.update(PERPLEXITY_BASE_URL="http://127.0.0.1:9")
            for start in ([str(folder / FILE.name)], ["-m", FILE.stem]):
                for words in (["usage"], ["ask", "q"], ["doctor", "--offline"]):
                    done = subprocess.run(
                        [sys.executable, *start, *words],
                        cwd=folder,
                        env=environ,
                        stdin=subprocess.DEVNULL,
                        capture_output=True,
                        check=False,
                        timeout=WAIT_S,
                    )
                    self.assertNotIn(b"Traceback", done.stderr)
                    self.assertFalse(mark.exists(), (start, words))


if __name__ == "__main__":
    unittest.main()
