"""The key and what users wrote stay where they belong, whatever the API echoes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from fake_perplexity import Answer, FakePerplexity
from support import IMPORT, WAIT_S, pro

PROGRAM = [sys.executable, "-c", f"{IMPORT}sys.exit(pro.main())"]  # faster than as a script
MARKER = "pplx-MARKER0123456789abcdefghijklmnopqrstuv"
SECRET_TEXT = "the-unmistakable-question"


def echoing(fake: FakePerplexity) -> None:
    """Have every reply hold the request's headers, in texts, names, addresses and ids."""

    def spoil(seen: Any) -> Answer:
        answer = fake.default(seen)
        if not isinstance(answer.body, dict):
            return answer
        key = seen.headers["authorization"].split()[-1]
        text = json.dumps(answer.body)
        for innocent in ("The short answer", "explains", "source 1"):
            text = text.replace(innocent, f"{innocent} {key} Bearer {key}")
        body = json.loads(text)
        body[f"x-{key}"] = key
        return answer._replace(body=body, headers=(("x-request-id", key),))

    for route in ("POST /v1/agent", "POST /search", "GET /v1/models", "POST /v1/decisions"):
        fake.always(route, spoil)


class Secrets(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enter(tempfile.TemporaryDirectory()))
        self.fake = FakePerplexity()
        self.fake.key = MARKER
        self.enter(self.fake)
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PERPLEXITY_")},
            "PERPLEXITY_API_KEY": MARKER,
            "PERPLEXITY_BASE_URL": self.fake.url,
            "PERPLEXITY_DATA_DIR": str(self.folder / "data"),
            "PERPLEXITY_LOG_LEVEL": "DEBUG",
            "PYTHONDEVMODE": "1",
            "PYTHONWARNINGS": "always",
        }

    def enter(self, context: Any) -> Any:
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def run_words(self, *words: str, stdin: str = "") -> bytes:
        done = subprocess.run(
            [*PROGRAM, *words],
            input=stdin.encode(),
            capture_output=True,
            env=self.environ,
            timeout=WAIT_S * 3,
            check=False,
        )
        return done.stdout + b"\n" + done.stderr

    def calls(self) -> str:
        """Lines that call every tool, the key among the arguments too."""
        wanted: list[tuple[str, dict[str, Any]]] = [
            ("ask", {"query": f"{SECRET_TEXT} {MARKER}"}),
            ("ask", {"query": "q", "model": MARKER}),
            ("ask", {"query": "q", "project": MARKER}),
            ("ask", {MARKER: "q"}),
            ("chat", {"action": "send", "title": MARKER, "message": f"m {MARKER}"}),
            ("chat", {"action": "list"}),
            ("chat", {"action": "read", "chat_id": 1}),
            ("research", {"query": f"r {MARKER}"}),
            ("jobs", {"action": "list", "refresh": True}),
            ("search", {"query": MARKER}),
            (
                "decide",
                {"state": MARKER, "questions": {MARKER: {"type": "noul", "instructions": "?"}}},
            ),
            (
                "embed",
                {"action": "index", "source": "text", "items": [{"key": MARKER, "text": MARKER}]},
            ),
            ("embed", {"action": "search", "query": MARKER}),
            ("models", {"provider": MARKER}),
            ("usage", {"project": MARKER}),
            ("help", {"action": "tool", "name": MARKER}),
        ]
        version = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        lines: list[Any] = [{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": version}]
        for number, (tool, arguments) in enumerate(wanted, 1):
            params = {"name": pro.PREFIX + tool, "arguments": arguments}
            lines.append({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        return "".join(json.dumps(line) + "\n" for line in lines)

    def assert_clean(self, output: bytes) -> None:
        self.assertNotIn(MARKER.encode(), output)
        for path in self.folder.rglob("*"):
            if path.is_file():
                self.assertNotIn(MARKER.encode(), path.read_bytes(), path.name)

    def serve(self, lines: str) -> bytes:
        """Speak to the server until every request is answered, then end the input."""
        with subprocess.Popen(
            PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ,
        ) as server:
            assert server.stdin and server.stdout and server.stderr
            server.stdin.write(lines.encode())
            server.stdin.flush()
            answers = [server.stdout.readline() for _ in lines.splitlines()]
            server.stdin.close()
            rest = server.stdout.read() + server.stderr.read()
            server.wait(WAIT_S)
        return b"".join(answers) + rest

    def test_the_key_is_nowhere_although_every_reply_echoes_it(self) -> None:
        echoing(self.fake)
        output = self.serve(self.calls())
        self.assertIn(b"[redacted]", output)
        self.assert_clean(output)

    def test_the_key_is_nowhere_although_every_refusal_echoes_it(self) -> None:
        def refuse(seen: Any) -> Answer:
            key = seen.headers["authorization"]
            return Answer(
                400, {"error": {"message": f"bad header {key}", "type": key, "code": key}}
            )

        for route in ("POST /v1/agent", "POST /search", "GET /v1/models", "POST /v1/decisions"):
            self.fake.always(route, refuse)
        self.assert_clean(self.serve(self.calls()))

    def test_a_redirect_does_not_carry_the_key_away(self) -> None:
        with FakePerplexity() as other:
            moved = Answer(body=f"{other.url}/{MARKER}", fault="redirect")
            for route in ("POST /v1/agent", "POST /search", "GET /v1/models"):
                self.fake.always(route, moved)
            self.assert_clean(self.serve(self.calls()))
            self.assertEqual(other.requests, [])

    def test_the_command_line_and_its_files_do_not_hold_the_key(self) -> None:
        echoing(self.fake)
        report, page = str(self.folder / "report.md"), str(self.folder / "usage.html")
        output = b"".join(
            [
                self.run_words("ask", f"say {MARKER}", "--output", report),
                self.run_words("ask", "q", "--json"),
                self.run_words("ask", "q", "--dry-run"),
                self.run_words("search", "q"),
                self.run_words("usage", "--html", page),
                self.run_words("usage", "--csv"),
                self.run_words("doctor"),
                self.run_words("audit"),
                self.run_words("setup", "cursor"),
                self.run_words("setup", "links"),
                self.run_words("ask", "q", f"--{MARKER}"),
                self.run_words(MARKER),
            ]
        )
        self.assertTrue(Path(report).exists() and Path(page).exists())
        self.assert_clean(output)

    def test_what_a_user_asks_is_not_written_to_standard_error(self) -> None:
        self.fake.always("POST /v1/agent", Answer(200, b"not json"))
        done = subprocess.run(
            [*PROGRAM, "ask", SECRET_TEXT],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self.environ,
            timeout=WAIT_S * 3,
            check=False,
        )
        self.assertNotIn(SECRET_TEXT.encode(), done.stderr)
        self.assertNotIn(b"Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
