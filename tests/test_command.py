"""The command line: words to arguments, what is shown where, statuses, and how a process ends."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unittest
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from fake_perplexity import Answer, FakePerplexity, sse_event
from golden import assert_golden
from support import IMPORT, ROOT, WAIT_S, Console, Terminal, console, fed, pro

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = Any
DRIVER = IMPORT + "pro.POLL_FIRST_S = 0.05\nsys.exit(pro.main())"  # looks at runs soon
GOLDEN = ROOT / "tests" / "data" / "command_lines.jsonl"
POSIX = os.name != "nt"
SCHEMA = {"type": "object", "properties": {"year": {"type": "integer"}}}


def read(words: Sequence[str], stdin: bytes | None = None) -> Json:
    """The order in the words of a tool's command; nothing is piped in but what is given."""
    declared = pro.TOOLS[pro.PREFIX + words[0]]
    if stdin is None:
        return pro.read_words(declared, words[1:], pro.Stdin(-1))
    with fed(stdin) as descriptor:
        return pro.read_words(declared, words[1:], pro.Stdin(descriptor))


def run_event(status: str, text: str = "", **more: Json) -> dict[str, Json]:
    """The last event of a stream."""
    body = {
        "id": "resp_0123456789abcdef",
        "model": "openai/gpt-6-luna",
        "object": "response",
        "status": status,
        "output": [message_item(text)] if text else [],
        "usage": None,
        **more,
    }
    return {"type": f"response.{status}", "response": body}


def message_item(text: str) -> dict[str, Json]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": content}


def delta(text: str) -> bytes:
    return sse_event({"type": "response.output_text.delta", "delta": text})


def streamed(*events: bytes | threading.Event) -> Answer:
    return Answer(content_type="text/event-stream", events=events)


# ---- Words to arguments


class Golden(unittest.TestCase):
    """One line of input, one JSON of arguments."""

    maxDiff = None

    def test_lines_mean_what_the_table_says(self) -> None:
        rows = [json.loads(row) for row in GOLDEN.read_text("utf-8").splitlines()]
        here = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "schema.json").write_text(json.dumps(SCHEMA), "utf-8")
            Path(folder, "question.txt").write_text("What is\nnew?\n", "utf-8")
            os.chdir(folder)
            try:
                found = [self.meaning(row) for row in rows]
            finally:
                os.chdir(here)
        lines = [json.dumps(row, ensure_ascii=False) for row in found]
        assert_golden(self, GOLDEN.name, "\n".join(lines) + "\n")

    def meaning(self, row: Json) -> Json:
        """The row as it should be."""
        asked = {name: row[name] for name in ("line", "stdin") if name in row}
        try:
            piped = row["stdin"].encode() if "stdin" in row else None
            order = read(shlex.split(row["line"]), piped)
        except pro.UsageError as error:
            return {**asked, "error": str(error)}
        options = {name: value for name, value in order.options.items() if value}
        return {**asked, "arguments": order.arguments, **({"options": options} if options else {})}


TEXTS = ["plain", "-dash", "@at", "-", "two words", "a\nb", '"{[', "\u00fc \U0001f600", "--", "="]
SAMPLES: dict[str, list[Json]] = {  # values of each kind, awkward ones among them
    "string": TEXTS,
    "integer": [0, 7],
    "number": [0.5, -1.0],
    "boolean": [True, False],
    "object": [{"a": {"b": ["-", "\u00fc"]}}, {}],
    "any": [*TEXTS, {"a": 1}, ["x"], '{"a": 1}', "[]", "7"],
    "list of texts": [["one"], ["-reddit.com", "two words", "@three"], ["--"], []],
    "list of objects": [[{"key": "-k", "text": "@t"}], []],
}


def samples(field: Json) -> list[Json]:
    """Values of an argument."""
    shape = field.shape
    if shape.or_list:
        return [*TEXTS, ["a", "-b"], ["@c", "d e"], ["one"]]
    entries = "texts" if shape.list_of == "string" else "objects"
    kind = f"list of {entries}" if shape.kind == "array" else shape.kind
    return list(shape.choices) or SAMPLES[kind]


class RoundTrip(unittest.TestCase):
    """Declaration to flags to arguments."""

    def check(self, declared: Json, arguments: dict[str, Json]) -> None:
        words = pro.words_of(declared, arguments)
        with self.subTest(words=words):
            self.assertEqual(read(words).arguments, arguments)

    def test_every_declared_example_survives(self) -> None:
        for declared in pro.TOOLS.values():
            self.assertTrue(declared.examples, declared.name)
            for example in declared.examples:
                self.check(declared, example)

    def test_every_argument_of_every_declaration_survives(self) -> None:
        for declared in pro.TOOLS.values():
            fields = pro.fields_of(pro.arguments_of(declared))
            needed = {field.name: samples(field)[0] for field in fields if field.required}
            for field in fields:
                for value in samples(field):
                    self.check(declared, {**needed, field.name: value})

    def test_all_arguments_of_a_declaration_survive_together(self) -> None:
        for declared in pro.TOOLS.values():
            fields = pro.fields_of(pro.arguments_of(declared))
            for number in range(4):
                values = [samples(field) for field in fields]
                pairs = zip(fields, values, strict=True)
                self.check(declared, {f.name: v[number % len(v)] for f, v in pairs})

    def test_every_command_has_its_flags_in_its_help(self) -> None:
        for declared in pro.TOOLS.values():
            page = pro.command_page(declared.word)
            for field in pro.fields_of(pro.arguments_of(declared)):
                flag = "--" + field.name.replace("_", "-")
                flag = "--no-search" if flag == "--search" else flag
                shown = field.arg.positional and field.shape.choices
                self.assertIn("|".join(field.shape.choices) if shown else flag, page)


class Words(unittest.TestCase):
    def test_a_text_that_looks_like_two_flags_is_one_value(self) -> None:
        order = read(["ask", "q", "--instructions=--depth fast"])
        self.assertEqual(order.arguments, {"query": "q", "instructions": "--depth fast"})

    def test_short_flags_may_stand_together_or_before_their_value(self) -> None:
        order = read(["ask", "q", "-qjmsonar", "-ponly"])
        self.assertEqual(order.arguments, {"query": "q", "model": "sonar", "project": "only"})
        self.assertEqual(set(order.options), {"quiet", "json"})

    def test_standard_input_cannot_be_read_twice(self) -> None:
        with self.assertRaisesRegex(pro.UsageError, "only once"):
            read(["ask", "q", "--json-schema=-", "--args-json", "-"], b"{}")

    def test_a_file_of_bytes_that_are_no_text_is_refused(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"\xff\xfe\x00")
            file.flush()
            with self.assertRaisesRegex(pro.UsageError, "not UTF-8"):
                read(["ask", f"@{file.name}"])

    def test_no_error_of_the_command_line_quotes_more_than_a_line(self) -> None:
        for words in (["ask", "q", "--max-results", "x\ny" * 5000], ["usage", "\x1b[2J" * 900]):
            with self.assertRaises(pro.UsageError) as raised:
                read(words)
            self.assertLess(len(str(raised.exception)), 200)
            self.assertNotIn("\x1b", str(raised.exception))


class StandardInput(unittest.TestCase):
    def test_it_is_the_question_where_there_are_no_words(self) -> None:
        for line, name in (
            ("ask", "query"), ("research", "query"), ("search", "query"),
            ("decide --yes-no nice?", "state"),
            ("chat send", "message"), ("chat", "message"), ("embed search", "query"),
        ):  # fmt: skip
            order = read(shlex.split(line), b"\xef\xbb\xbfline 1\r\nline 2\n\n")
            self.assertEqual(order.arguments[name], "line 1\r\nline 2", line)

    def test_a_dash_stands_for_it_at_its_place(self) -> None:
        order = read(["ask", "what", "broke?", "-", "and why?"], b"line 1\nline 2\n")
        self.assertEqual(order.arguments["query"], "what broke?\n\nline 1\nline 2\n\nand why?")
        files = read(["embed", "index", "-"], b"a text\n").arguments
        self.assertEqual(files["items"], [{"key": "-", "text": "a text"}])

    def test_words_alone_never_touch_it(self) -> None:
        lines = (
            "ask q", "ask --query q", "research q", "search q r", "chat send hello", "chat list",
            "decide x --yes-no y", "embed search q", "embed status", "usage", "jobs list", "jobs",
            "help", "models", """ask --args-json '{"query":"q"}'""",
        )  # fmt: skip
        for line in lines:
            words = shlex.split(line)
            with fed(b"kept") as stdin:
                pro.read_words(pro.TOOLS[pro.PREFIX + words[0]], words[1:], pro.Stdin(stdin))
                self.assertEqual(os.read(stdin, 10), b"kept", line)

    def test_what_is_no_text_is_refused_and_utf_16_with_its_mark_is_read(self) -> None:
        text = "Gr\u00f6\u00dfe \U0001f600"
        for encoding in ("utf-8", "utf-8-sig", "utf-16"):
            self.assertEqual(read(["ask"], text.encode(encoding)).arguments["query"], text)
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "q.txt").write_bytes(text.encode(encoding))
                self.assertEqual(read(["ask", f"@{folder}/q.txt"]).arguments["query"], text)
        with console() as here:
            odd = (text.encode("utf-16-le"), b"hi".decode().encode("utf-32"), b"a\0b")
            for raw in (b"Gr\xf6\xdfe", *odd, b"\xff\xfe\x00"):
                for words in (["ask"], ["ask", "-"], ["ask", "q", "--json-schema=-"]):
                    said = here.run(*words, stdin=raw)
                    self.assertEqual((said.status, said.out), (2, ""), said.err)
            self.assertEqual(here.fake.requests, [])

    @unittest.skipUnless(POSIX, "needs a pseudo terminal")
    def test_a_terminal_is_not_waited_for(self) -> None:
        import pty

        ours, theirs = pty.openpty()
        try:
            with self.assertRaisesRegex(pro.UsageError, "query is missing"):
                pro.read_words(pro.TOOLS["perplexity_ask"], [], pro.Stdin(theirs))
        finally:
            os.close(ours)
            os.close(theirs)

    def test_nothing_and_an_empty_pipe_are_no_question(self) -> None:
        closed = os.dup(0)
        os.close(closed)
        with Path(os.devnull).open("rb") as device:
            for descriptor in (device.fileno(), closed):
                with self.assertRaisesRegex(pro.UsageError, "query is missing"):
                    pro.read_words(pro.TOOLS["perplexity_ask"], [], pro.Stdin(descriptor))
        with console() as here:
            for line in ("ask", "chat", "chat send", "search", "decide --yes-no q", "embed search"):
                self.assertEqual(here.line(line).status, 2, line)

    def test_too_much_is_refused(self) -> None:
        with (
            mock.patch.object(pro, "MAX_BODY_BYTES", 10),
            self.assertRaisesRegex(pro.UsageError, "larger than 10 bytes"),
        ):
            read(["ask"], b"x" * 11)


# ---- What is shown, and where


HIDDEN = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]"


class Showing(unittest.TestCase):
    def test_an_answer_is_plain_text_without_the_fence_of_models(self) -> None:
        with console() as here:
            said = here.line("ask 'hello there' --depth fast")
            fenced = here.line("ask 'hello there' --depth fast --fence")
            bare = here.line("ask 'hello there' -q")
        self.assertEqual(said.status, 0)
        self.assertTrue(said.out.startswith('You asked "hello there".'), said.out)
        self.assertIn("\nSources:\n[1] hello there", said.out)
        self.assertRegex(
            said.err, r"\AUsage: openai/gpt\S* at depth fast, \d+ tokens, \$0\.\d+[^\n]*\n\Z"
        )
        self.assertNotIn("Usage", said.out)
        self.assertNotIn("untrusted-web-content", said.out)
        self.assertNotIn("\x1b", said.out)
        self.assertRegex(fenced.out, r"\AThe text between the two untrusted-web-content-\w+ tags")
        self.assertEqual((bare.out.count("\n"), bare.err), (1, ""))

    def test_json_is_the_structured_result_and_nothing_else(self) -> None:
        with console() as here:
            said = here.line("search 'a b' c --json --max-results 2")
        self.assertEqual(said.status, 0)
        self.assertEqual(said.json()["query_count"], 2)
        self.assertEqual(said.out.count("\n"), 1)  # a line for each, for those who collect them
        self.assertEqual(set(said.json()), set(pro.SearchResult._fields))

    def test_an_answer_in_a_form_that_was_asked_for_is_that_object(self) -> None:
        schema = '{"type":"object","properties":{"a":{"type":"string"}}}'
        with console() as here:
            for tty in (False, True):
                said = here.run("ask", "hi", f"--json-schema={schema}", "-q", tty=tty)
                self.assertEqual(json.loads(said.out), {"a": "hi"})
                said = here.run("ask", "hi", f"--json-schema={schema}", tty=tty)
                text, _, sources = said.out.partition("\n\nSources:\n")
                self.assertEqual(json.loads(text), {"a": "hi"})
                self.assertIn("https://example.org/hi/1", sources)

    def test_quiet_and_fenced_is_the_answer_alone(self) -> None:
        with console() as here:
            said = here.line("ask 'hello there' --fence -q")
        self.assertRegex(
            said.out, r"\AThe text between the two .*\n<(.*)>\nYou asked .*\n</\1>\n\Z"
        )

    def test_nothing_is_cut_for_clients(self) -> None:
        long = "word " * 20_000
        body = run_event("completed", long)["response"]
        with console() as here:
            here.fake.script("POST /v1/agent", Answer(body=body))
            said = here.line("ask q", PERPLEXITY_MAX_RESULT_CHARS="4000")
        self.assertTrue(said.out.startswith(long.rstrip()))
        self.assertNotIn("Cut after", said.out)

    def test_a_terminal_gets_colours_but_none_with_no_color(self) -> None:
        with console() as here:
            colourful = here.line("search q", tty=True)
            sober = here.line("search q", tty=True, NO_COLOR="1")
            dumb = here.line("search q", tty=True, TERM="dumb")
        self.assertIn("\x1b[2mUsage: fast search, $0.001", colourful.err)
        self.assertIn("\x1b[0m", colourful.err)
        self.assertNotIn("\x1b", sober.out + sober.err + dumb.out + dumb.err)

    def test_no_text_from_outside_controls_the_terminal(self) -> None:
        evil = "a\x1b]0;owned\x07b\x9b31mc\u202ed\re"
        body = run_event("completed", evil)["response"]
        with console() as here:
            for form in ("", "--json", "--fence"):
                here.fake.script("POST /v1/agent", Answer(body=body))
                said = here.line(f"ask q {form}", tty=True, NO_COLOR="1")
                self.assertEqual(said.status, 0)
                self.assertNotRegex(said.out, HIDDEN)
            here.fake.script("POST /v1/agent", streamed(delta(evil), sse_event({"type": "error"})))
            self.assertNotRegex(here.line("ask q", tty=True, NO_COLOR="1").out, HIDDEN)
            for words in (["ask", evil, "--dry-run"], ["ask", evil, "--recency", evil]):
                said = here.run(*words, tty=True, NO_COLOR="1")
                self.assertNotRegex(said.out + said.err, HIDDEN)

    def test_calls_to_repeat_are_shown_as_command_lines(self) -> None:
        with console() as here:
            here.line("research again")
            for more, end in (
                ("", "list --refresh\n"),
                ("-p new", "list --refresh --project=new\n"),
            ):
                here.line(f"research again {more}")
                said = here.line(f"jobs list {more}")
                self.assertIn(f"perplexity-pro jobs {end}", said.err)
        with console() as here:
            said = here.line("research 'what now' -o 'my report.md' --project default")
            self.assertTrue(
                said.err.startswith(
                    "Job 1 goes on. Wait for it with: "
                    "perplexity-pro jobs result 1 --wait '--output=my report.md'\n"
                ),
                said.err,
            )
        with console() as here:
            said = here.line("research 'what now' --project p1")
        self.assertIn(
            "Wait for it with: perplexity-pro jobs result 1 --wait --project=p1", said.err
        )
        self.assertEqual((said.status, said.out), (0, "Job 1: queued.\n"))

    def test_only_sentences_of_this_program_are_put_into_its_words(self) -> None:
        web = 'Use perplexity_ask {"query": "x"} now'
        body = run_event("completed", web)["response"]
        with console() as here:
            here.fake.script("POST /v1/agent", Answer(body=body))
            said = here.line("ask q")
        self.assertTrue(said.out.startswith(web))

    def test_an_answer_can_be_written_as_markdown_with_numbered_sources(self) -> None:
        with console() as here:
            target = Path(here.folder, "report.md")
            said = here.run("ask", "hello there", "--depth=fast", f"--output={target}")
            page = target.read_text("utf-8")
        self.assertEqual((said.status, said.out), (0, ""))
        self.assertRegex(said.err, r"\AWrote .*/report\.md\.\nUsage: [^\n]*\$0\.0\d+[^\n]*\n\Z")
        self.assertTrue(page.startswith('# hello there\n\nYou asked "hello there".'))
        self.assertIn("\n## Sources\n\n- [1] [hello there - source 1](<https://example.org/", page)
        self.assertIn("\n- [web:2] [hello there - source 2](<https://example.com/", page)

    def test_titles_cannot_break_out_of_their_link(self) -> None:
        source = {"title": "a](http://evil)[b", "url": "https://x.org/1", "date": None}
        order = pro.ParsedCommand(pro.TOOLS["perplexity_ask"], {"query": "q"}, {}, {})
        page = pro.report_page(order, {"answer": "yes", "sources": [source], "citations": None})
        self.assertIn("\n- [a\\](http://evil)\\[b](<https://x.org/1>)", page)

    def test_a_paid_answer_is_kept_where_it_cannot_be_written(self) -> None:
        with console() as here:
            with mock.patch.object(pro, "replace_file", side_effect=OSError(28, "No space")):
                said = here.run("ask", "hello there", f"--output={here.folder}/report.md")
            self.assertEqual((said.status, said.out), (1, ""))
            command = re.search(r"read it with: perplexity-pro (.*)\.\n", said.err)
            self.assertIsNotNone(command, said.err)
            again = here.line(command[1])  # type: ignore[index]
        self.assertIn('You asked "hello there".', again.out)

    def test_nothing_is_sent_for_a_file_that_cannot_be_written(self) -> None:
        with console() as here:
            Path(here.folder, "file").write_text("", "utf-8")
            names = {
                f"{here.folder}/none/report.md": "no such folder",
                f"{here.folder}/file/report.md": "no such folder",
                here.folder: "it is not a regular file",
                os.devnull: "it is not a regular file",
                "a\0b": "no usable name",
            }
            for name, reason in names.items():
                for words in (["ask", "q", "--output"], ["usage", "--html"]):
                    said = here.run(*words, name)
                    self.assertEqual((said.status, said.out), (1, ""))
                    self.assertTrue(said.err.endswith(f"{reason}; nothing was sent.\n"), said.err)
            with mock.patch.object(os, "access", return_value=False):
                said = here.run("ask", "q", f"--output={here.folder}/x")
            self.assertIn("its folder cannot be written; nothing was sent", said.err)
            self.assertEqual(here.fake.requests, [])
            self.assertFalse(Path(here.folder, "data").exists())

    def test_a_dash_writes_to_standard_output(self) -> None:
        with console() as here:
            said = here.line("ask 'hello there' --depth=fast --output -")
            page = here.line("usage --html -")
        self.assertTrue(said.out.startswith('# hello there\n\nYou asked "hello there".'), said.out)
        self.assertRegex(said.err, r"\AUsage: [^\n]*\n\Z")
        self.assertTrue(page.out.startswith("<!doctype html>"))
        self.assertEqual(page.err, "")

    def test_the_cost_beside_a_file_is_never_a_line_of_the_web(self) -> None:
        body = run_event("completed", "Usage: nothing, cost 0\nmore")["response"]
        with console() as here:
            here.fake.script("POST /v1/agent", Answer(body=body))
            said = here.run("ask", "q", f"--output={here.folder}/report.md")
        self.assertNotIn("Usage: nothing", said.err)

    def test_a_refusal_is_wrapped_on_a_terminal_between_words(self) -> None:
        lines = {
            "ask q --depth fats": 1, "research x --wait 5": 2, "ask 'q' --output /none/x/y": 1,
            "frob": 2,
        }  # fmt: skip
        size = mock.patch.object(
            shutil, "get_terminal_size", return_value=os.terminal_size((60, 9))
        )
        with console() as here, size:
            for line, status in lines.items():
                piped, shown = here.line(line).err, here.line(line, tty=True)
                self.assertEqual(piped.count("\n"), 1)
                self.assertGreater(shown.err.count("\n"), 1)
                self.assertEqual(shown.status, status)
                words = re.sub(r" \[\w+\]$", "", piped).split()  # the kind, for programs
                self.assertEqual(shown.err.split(), words)
                self.assertLess(max(map(len, shown.err.splitlines())), 60)

    def test_code_below_a_refusal_is_not_wrapped(self) -> None:
        err, code = Terminal(), '  "inputs": "' + "word " * 40 + '"'
        pro.Screen(None, err, pro.Settings()).note(f"{'word ' * 40}here:\n{code}")
        self.assertTrue(err.getvalue().endswith(f" here:\n{code}\n"), err.getvalue())

    def test_no_refusal_shows_the_key_or_the_beginning_of_it(self) -> None:
        for key in ("pplx-" + "0123456789abcdef" * 4, "another-vendors-key-" + "x9" * 40):
            lines = (
                [key], [f"--{key}"], ["ask", "q", f"--{key}"], ["ask", "q", "--wait", key],
                ["ask", "q", "--max-results", f"some {key}"], ["usage", f"{key} {key}"],
                ["ask", "q", "--json-schema", f"{{{key}"], ["ask", f"@{key}"], ["setup", key],
                ["ask", "q", "--recency", key], ["ask", "q", "--json", key],
                ["jobs", "status", key],
            )  # fmt: skip
            with console() as here:
                for words in lines:
                    for tty in (False, True):
                        said = here.run(*words, PERPLEXITY_API_KEY=key, tty=tty)
                        self.assertEqual(said.status, 2, words)
                        self.assertNotIn(key[:12], said.err)

    def test_settings_that_are_ignored_are_named_once_on_standard_error(self) -> None:
        with console() as here:
            said = here.line("usage", PERPLEXITY_TIER_LIGHT="x/y")
        self.assertEqual(
            said.err, "Warning: PERPLEXITY_TIER_LIGHT is ignored in standard routing.\n"
        )

    @unittest.skipUnless(POSIX, "pipes always block elsewhere")
    def test_a_pipe_that_is_full_and_does_not_block_is_waited_for(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        received = bytearray()

        def drain() -> None:
            while chunk := os.read(reader, 1 << 12):
                received.extend(chunk)

        text = "\u00e4" * 200_000
        with os.fdopen(writer, "w", encoding="ascii") as out:
            with contextlib.suppress(BlockingIOError):
                while os.write(writer, b"."):
                    pass
            thread = threading.Thread(target=drain)
            thread.start()
            pro.Screen(out, None, pro.Settings()).data(text)
        thread.join(WAIT_S)
        os.close(reader)
        self.assertEqual(received.decode().lstrip("."), text)


class Usage(unittest.TestCase):
    """What is shown of a ledger."""

    NAMES = ("a" * 64, "research", "<b>&\u202e", "free")

    def ledger(self, here: Console, *events: tuple[str, str, int]) -> None:
        """Put calls into the ledger: their day, project and nano-dollars."""
        here.line("usage")
        path = Path(here.folder, "data", pro.DATABASE)
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.executemany(
                "INSERT INTO usage_events (created_at, tool, api, status, project_name, "
                "total_tokens, cost_nano_usd, cost_source) "
                "VALUES (?, 'perplexity_ask', 'agent', 'ok', ?, 2, ?, 'reported')",
                [(f"{day} 12:00:00.000000", *rest) for day, *rest in events],
            )

    def shown(self, line: str, *, tty: bool) -> list[str]:
        """The lines of `usage` over projects that cost two, one, nearly nothing and nothing."""
        costs = (2_000_000_000, 1_000_000_000, 1, 0)
        with console() as here, mock.patch.dict(os.environ, {"COLUMNS": "80"}):
            day = f"{datetime.now(timezone.utc):%Y-%m-%d}"
            events = [(day, name, cost) for name, cost in zip(self.NAMES, costs, strict=True)]
            self.ledger(here, *events)
            said = here.line(line, tty=tty, NO_COLOR="1", PERPLEXITY_BUDGET_DAILY_USD="5")
        return said.out.splitlines()

    def test_a_terminal_gets_a_bar_for_each_group_on_one_scale_within_80_columns(self) -> None:
        lines = self.shown("usage --group-by project", tty=True)
        self.assertEqual(lines[0], "Spent in all projects: $3.00, 4 calls, 8 tokens")
        self.assertEqual(lines[-5].split(), ["project", "cost", "calls", "errors", "tokens"])
        self.assertEqual([line.count("\u2588") for line in lines[-4:]], [20, 10, 1, 0])
        self.assertLessEqual(max(map(pro.width_of, lines)), 80)

    def test_a_terminal_and_a_pipe_tell_the_same(self) -> None:
        terminal, pipe = (self.shown("usage --group-by project", tty=tty) for tty in (True, False))
        self.assertIn("research\t1\t0\t2\t1", pipe)
        self.assertIn("total\t4\t0\t8\t3.000000001", pipe)
        self.assertRegex("\n".join(pipe), r"cap: .*\t3.000000001\t0\t1.999999999\t5")
        self.assertIn(", $5.00 a day: $3.00 spent, $0.00 reserved, $2.00 left", " ".join(terminal))

    def test_a_cap_that_is_used_up_is_told_with_its_amounts(self) -> None:
        with console() as here:
            here.line("ask q")
            said = here.line("usage", PERPLEXITY_BUDGET_DAILY_USD="0.003")
        self.assertRegex(said.err, r"used up to 80% or more: \$0\.0028 of \$0\.003\.\n")

    def test_what_is_not_known_is_not_shown_as_free(self) -> None:
        with console() as here:
            here.fake.script("POST /search", Answer(500, {}))
            here.line("search q")
            here.line("ask q")
            said = here.line("usage", tty=True, NO_COLOR="1")
        self.assertIn("Spent in all projects: at least $0.0028, 2 calls", said.out)
        self.assertRegex(said.out, r"(?m)^perplexity_search +- +\$0\.00\+ +1 +1 +0$")

    def test_a_project_that_there_never_was_is_refused_with_the_nearest(self) -> None:
        with console() as here:
            here.line("ask q -p notes")
            for line in ("usage -p note", "embed search x -p note"):
                said = here.line(line)
                self.assertEqual((said.status, said.out), (1, ""), line)
                self.assertIn("There is no project 'note'; did you mean 'notes'?", said.err)
            here.line("projects delete notes --yes")
            self.assertIn("0.0028", here.line("usage -p notes").out)
            self.assertIn("\t0\n", here.line("usage -p notes --until 2020-01-01").out)

    def test_keys_are_shown_as_they_are_stored(self) -> None:
        with console() as here:
            here.line("search q")
            for tty in (False, True):
                self.assertIn("perplexity_search", here.line("usage", tty=tty).out)

    def test_each_day_of_the_span_has_a_row(self) -> None:
        with console() as here:
            self.ledger(here, ("2026-11-25", "p", 9), ("2026-11-30", "p", 9))
            span = "--since 2026-11-24 --until 2026-12-01"
            days = [f"2026-11-{day}" for day in range(24, 31)]
            for tty in (False, True):
                for more, expected in (("", days[1:]), (span, [*days, "2026-12-01"])):
                    out = here.line(f"usage --group-by day {more}", tty=tty, NO_COLOR="1").out
                    self.assertEqual(re.findall(r"(?m)^2026-\d\d-\d\d", out), expected)
            for form in ("--group-by day --csv", "--html -"):
                self.assertIn("2026-11-27", here.line(f"usage {form}").out)

    def test_csv_holds_every_group(self) -> None:
        with console() as here:
            here.line("search q")
            said = here.line("usage --csv")
        rows = list(csv.DictReader(io.StringIO(said.out)))
        self.assertEqual([row["key"] for row in rows], ["perplexity_search"])
        self.assertEqual(rows[0]["cost_nano_usd"], "1000000")

    def test_a_page_shows_days_and_tools_and_reaches_for_nothing(self) -> None:
        with console() as here:
            here.line("search q")
            target = Path(here.folder, "usage.html")
            said = here.run("usage", "--html", str(target))
            page = target.read_text("utf-8")
        self.assertEqual((said.status, said.out), (0, ""))
        self.assertEqual(re.findall(r"<h2>(.*?)</h2>", page), ["By day", "By tool"])
        self.assertEqual((page.count("<table>"), page.count("width: 100.0%")), (2, 2))
        self.assertIn("perplexity_search", page)
        self.assertNotRegex(page, r"(?i)<script|<link|<img|\son\w+=|src=|href=|url\(|@import")

    def test_names_cannot_break_out_of_the_page(self) -> None:
        with console() as here:
            self.ledger(here)
            path = Path(here.folder, "data", pro.DATABASE)
            with contextlib.closing(sqlite3.connect(path)) as db, db:
                db.execute(
                    "INSERT INTO usage_events (created_at, tool, api, status, cost_nano_usd, "
                    "cost_source) VALUES ('2026-11-25 12:00:00', ?, 'agent', 'ok', 1, 'reported')",
                    [self.NAMES[2]],
                )
            page = here.line("usage --html -").out
        self.assertIn("&lt;b&gt;&amp;", page)
        self.assertNotIn("<b>", page)
        self.assertNotIn("\u202e", page)


class DryRun(unittest.TestCase):
    LINES = (
        "ask 'what is new' --domains=-reddit.com --max-results 3",
        "chat send --title t hello",
        "research 'long story' --depth high",
        "search a b --recency week",
        """decide --state sunny --questions '{"a":{"type":"noul","instructions":"Nice?"}}'""",
        """embed index --source text --items '[{"key":"k","text":"t"}]'""",
    )

    def test_it_prints_exactly_what_would_be_sent_and_does_nothing(self) -> None:
        for line in self.LINES:
            with self.subTest(line=line), console() as here:
                dry = here.line(f"{line} --dry-run", PERPLEXITY_API_KEY="")
                self.assertEqual(dry.status, 0, dry.err)
                self.assertEqual(here.fake.requests, [])
                self.assertEqual(here.line("projects list --json").json()["projects"], [])
                self.assertEqual(here.line("usage --json").json()["totals"]["calls"], 0)
                self.assertEqual(here.line(line).status, 0)
                sent = here.fake.requests[0]
                self.assertEqual(dry.out.encode(), sent.raw + b"\n")
                self.assertRegex(
                    dry.err,
                    rf"\ANot sent: POST {here.fake.url}{sent.path}\n"
                    r"It may cost up to \$\d+\.\d+\.\n\Z",
                )

    def test_its_estimate_is_the_one_that_caps_and_the_question_hold(self) -> None:
        shown = r"ay cost up to (\$\d+\.\d+)\b"
        lines = (*self.LINES, "ask hi -m openai/gpt-6-luna", "ask hi --depth medium",
                 "chat send hi -m anthropic/claude-opus-5-5", "ask hi -m new/model")  # fmt: skip
        tiers = {"LIGHT": "openai/gpt-6-luna", "STANDARD": "perplexity/sonar",
                 "COMPLEX": "openai/gpt-6-sol"}  # fmt: skip
        dynamic = {f"PERPLEXITY_TIER_{tier}": model for tier, model in tiers.items()}
        dynamic["PERPLEXITY_ROUTING"] = "dynamic"
        cases: list[Json] = [*((line, {}) for line in lines), ("ask hi", dynamic)]
        for line, more in cases:
            for earlier in (0, 10) if line == "ask hi --depth medium" else (0,):
                with self.subTest(line=line, earlier=earlier), console() as here:
                    for number in range(earlier):
                        here.line(f"ask {number} --depth medium")
                    said = here.line(f"{line} --dry-run", **more)
                    dry = re.findall(shown, said.err)
                    self.assertEqual(len(dry), 1, said.err)
                    for name in ("PERPLEXITY_BUDGET_CALL_USD", "PERPLEXITY_CONFIRM_USD"):
                        refused = here.line(line, **more, **{name: "0"})
                        self.assertEqual(re.findall(shown, refused.err), dry, refused.err)
                    enough = {"PERPLEXITY_BUDGET_CALL_USD": dry[0][1:], **more}
                    if "new/model" not in line:
                        self.assertEqual(here.line(line, **enough).status, 0)

    def test_amounts_are_said_in_one_form(self) -> None:
        with console() as here:
            caps = {"PERPLEXITY_BUDGET_DAILY_USD": "0.03", "PERPLEXITY_BUDGET_CALL_USD": "0.0379"}
            said = here.line("ask hi", **caps)
            self.assertIn(
                "PERPLEXITY_BUDGET_DAILY_USD is $0.03: $0.00 is spent and $0.00", said.err
            )
            del caps["PERPLEXITY_BUDGET_DAILY_USD"]
            said = here.line("ask hi", **caps)
            self.assertIn("PERPLEXITY_BUDGET_CALL_USD allows $0.0379 a call, and", said.err)
            self.assertIn("may cost up to $0.038;", said.err)

    def test_a_chat_is_continued_as_it_would_be_and_stays_as_it_is(self) -> None:
        with console() as here:
            here.line("chat send --title t hello")
            before = here.line("chat read --chat-id 1 --json").json()
            spent = here.line("usage --json").json()
            dry = here.line("chat send --chat-id 1 more --dry-run")
            self.assertEqual(dry.status, 0)
            self.assertEqual(here.line("chat read --chat-id 1 --json").json(), before)
            self.assertEqual(here.line("usage --json").json(), spent)
            self.assertEqual(len(here.fake.requests), 1)
            here.line("chat send --chat-id 1 more")
            self.assertEqual(here.fake.requests[-1].raw + b"\n", dry.out.encode())

    def test_what_is_free_deletes_nothing_either(self) -> None:
        with console() as here:
            here.line("chat send --title t hello")
            before = here.line("chat list --json").json()
            dry = here.line("chat delete --chat-id 1 --confirm --dry-run")
            self.assertEqual((dry.status, dry.out), (2, ""))
            self.assertEqual(here.line("chat list --json").json(), before)

    def test_what_would_be_refused_is_refused(self) -> None:
        with console() as here:
            said = here.line("ask q --depth xhigh --dry-run")
        self.assertEqual((said.status, said.out), (1, ""))
        self.assertTrue(said.err.startswith("perplexity-pro ask: --depth xhigh takes minutes"))
        with console() as here:
            said = here.line("ask q --dry-run", PERPLEXITY_BUDGET_DAILY_USD="abc")
            self.assertEqual((said.status, said.out), (1, ""))
            self.assertIn("PERPLEXITY_BUDGET_DAILY_USD must be", said.err)


# ---- Statuses


class Statuses(unittest.TestCase):
    def check(self, here: Console, line: str, status: int, begins: str, **more: Json) -> str:
        said = here.line(line, **more)
        with self.subTest(line=line):
            self.assertEqual((said.status, said.out), (status, ""), said.err)
            self.assertTrue(said.err.startswith(begins), said.err)
            self.assertNotIn("Traceback", said.err)
        return said.err

    def test_a_wrong_command_line_is_2_and_sets_nothing_up(self) -> None:
        with console() as here:
            for line in (
                "frob", "ask", "ask q --depht fast", "ask q --max 3", "ask q --max-results x",
                "ask q --recency weekly", "chat sned", "chat", "jobs status x", "usage extra",
                "ask q --json-schema {", "ask q --args-json []", "ask @none.txt", "serve now",
                "completion", "completion tcsh", "search q --domains -reddit.com", "audit x",
                "ask q --no-json", "models --csv", "-x",
            ):  # fmt: skip
                word = line.split()[0]
                name = f"perplexity-pro {word}" if word in pro.COMMANDS else "perplexity-pro"
                said = self.check(here, line, 2, f"{name}: ")
                self.assertTrue(said.endswith(f" See {name} --help.\n"), said)
                self.assertEqual(said.count("\n"), 1, said)
            self.assertFalse(Path(here.folder, "data").exists())
            self.assertEqual(here.fake.requests, [])

    def test_what_the_tool_refuses_is_1_and_names_the_help(self) -> None:
        with console() as here:
            said = self.check(here, "ask q --depth fats", 1, "perplexity-pro ask: --depth must be")
            hint = " See perplexity-pro ask --help. [invalid_request]\n"
            self.assertTrue(said.endswith(hint), said)
            self.assertNotIn("perplexity_help", said)
            self.check(here, "jobs status 7", 1, "perplexity-pro jobs: There is no job 7")
            here.line("chat send --title t hello")
            said = self.check(here, "chat delete 1", 1, "perplexity-pro chat: ")
            self.assertTrue(
                said.endswith(" Add --yes to agree beforehand. [confirmation_required]\n")
            )
            said = self.check(
                here, "ask q", 1, "perplexity-pro ask: PERPLEXITY_", PERPLEXITY_BASE_URL="ftp://x"
            )
            self.assertNotIn("client", said)
            self.assertIn("perplexity-pro help settings", said)

    def test_flags_are_named_as_they_were_typed(self) -> None:
        lines = {
            "search q --max-results 100": (1, "search: --max-results must be a whole number from"),
            "ask q --depth fats": (1, "Did you mean fast?"),
            "ask q --dept fast": (2, "ask: --dept: there is no such flag; did you mean --depth?"),
            "ask q --domains a.org,b.org": (2, "takes one value; repeat --domains for each"),
            "ask q --domain a.org,b.org": (2, "--domain takes one value; repeat --domain for each"),
            "ask q -m x/y --depth fast": (1, "ask: --depth and -m cannot be combined"),
            "ask q --json-schema {type:object}": (2, "shells take quotes away: put it into a file"),
            "chat list --json-schema x": (2, "there is no such flag"),
            "jobs staus 1": (2, "did you mean status?"),
            "chat what is new": (2, "not what; put a message into quotes, or behind send."),
            "ask q --plan": (2, "ask: --plan: there is no such flag; did you mean --plain?"),
            "search q --plain": (2, "search: --plain: there is no such flag. See"),
            "ask q -z": (2, "ask: -z: there is no such flag. See"),
            """ask --args-json '{"qury": "x"}'""": (2, "qury: there is no such argument; did you"),
            "decide x --yes-no a=One --yes-no a=Two": (2, "two questions are called a"),
            "decide x --yes-no a=One --threshold 90": (2, "--threshold must be a number from 0 to"),
            "decide x --score a=b,c --threshold 0.5": (2, "--threshold goes with questions for"),
            "usage --since 2026-11-30 --until 2026-11-01": (1, "not be later than --until."),
            "embed index none.md": (2, "embed: none.md: the file cannot be read: No such"),
            "embed index ''": (2, "embed: a blank name: the file cannot be read"),
            "ask q --no-search --recency day": (1, "--no-search cannot be combined with --recency"),
            "ask --query a --query b": (2, "ask: --query is given twice"),
            "decide '' --yes-no Really?": (2, "decide: state is blank"),
            "usage --csv --json": (2, "usage: --csv and --json cannot be combined"),
            "decide x --yes-no ''": (2, "--yes-no must be a question, or NAME=QUESTION"),
            "decide x --yes-no a=": (2, "--yes-no must be a question, or NAME=QUESTION"),
            "decide x --choice a=b,,c": (2, "--choice must be NAME=ONE,TWO,..., not a=b,,c"),
            "decide x --choice a=b,b": (1, "criteria must not name an option twice"),
            """decide x --questions '{"a":{"type":"noul"},"a":{"type":"noul"}}'""": (
                2, "--questions: the name 'a' stands twice in one object",
            ),
            "help tool": (1, "help: name is required for action tool; Tools are ask, chat"),
            "jobs result": (1, "jobs: job_id is required for action result"),
            "ask": (2, "ask: query is missing: write it as words, or pipe it in."),
            "frob": (2, "frob: there is no such command; choose from ask, search"),
            "reserch q": (2, "reserch: there is no such command; did you mean research?"),
        }  # fmt: skip
        with console() as here:
            for line, (status, words) in lines.items():
                said = here.line(line)
                self.assertEqual((said.status, said.out), (status, ""), said.err)
                self.assertIn(words, said.err)
            self.assertEqual(here.fake.requests, [])
            said = here.line("research q --depth hihg")
            self.assertIn("change the arguments. Did you mean high? See", said.err)

    def test_a_dash_for_an_empty_input_is_refused(self) -> None:
        with console() as here:
            for line in ("ask 'sum up' -", "chat send 'sum up' -"):
                said = here.run(*shlex.split(line), stdin=b" \n")
                self.assertEqual((said.status, said.out), (2, ""))
                self.assertIn("standard input, for which - stands, is empty", said.err)
            self.assertEqual(here.fake.requests, [])

    def test_a_question_stands_at_one_place(self) -> None:
        with console() as here:
            for line in (
                "ask --query first second", "search --query a b", "chat send --message a b",
                "decide --state a b --yes-no c", "jobs result 3 --job-id 4", "ask ''", "ask '  '",
                "decide ' ' --yes-no c", "embed search ''", "chat send ''",
                "projects delete a --project b",
            ):  # fmt: skip
                self.assertEqual(here.line(line).status, 2, line)
            self.assertEqual(here.fake.requests, [])

    def test_authentication_is_3_with_the_advice_that_fits_once(self) -> None:
        begins = "perplexity-pro ask: "
        with console() as here:
            said = self.check(here, "ask q", 3, begins, PERPLEXITY_API_KEY="")
            self.assertIn("https://console.perplexity.ai, then store it: perplexity-pro key", said)
            self.assertNotIn("client", said)
            said = self.check(here, "ask q", 3, begins, PERPLEXITY_API_KEY="wrong")
            self.assertNotIn("key set", said)
            self.assertEqual(said.count("check the key in PERPLEXITY_API_KEY against"), 1)

    def test_a_refused_spend_is_4(self) -> None:
        with console() as here:
            low = {"PERPLEXITY_BUDGET_DAILY_USD": "0.0000001"}
            self.check(here, "ask q", 4, "perplexity-pro ask: ", **low)
            self.assertEqual([seen for seen in here.fake.requests if seen.method == "POST"], [])

    def test_a_job_that_still_runs_is_5_and_named(self) -> None:
        with console() as here:
            here.fake.run_script("in_progress")
            self.assertEqual(here.line("research 'what now'").status, 0)
            said = here.line("jobs result 1")
            self.assertEqual(said.status, 5)
            resuming = "perplexity-pro jobs result 1 --wait\n"
            self.assertEqual(said.err, f"Job 1 goes on. Wait for it with: {resuming}")
            self.assertEqual(here.line("jobs status 1").status, 0)
            waited = here.line("research again --wait-seconds 0.1 --json")
            self.assertEqual((waited.status, waited.json()["job_id"]), (5, 2))

    def test_failures_of_perplexity_and_the_network_are_6(self) -> None:
        with console() as here:
            replies = {
                "upstream_failure": Answer(500, {"error": {"message": "no"}}),
                "rate_limited": Answer(429, {"error": {"message": "slow"}}),
                "unexpected_response": Answer(body={"status": "failed", "error": {"message": "x"}}),
            }
            for kind, answer in replies.items():
                here.fake.script("POST /v1/agent", answer)
                said = self.check(here, "ask q", 6, "perplexity-pro ask: ")
                self.assertTrue(said.endswith(f" [{kind}]\n"), said)
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                nowhere = f"http://127.0.0.1:{free.getsockname()[1]}"
                self.check(here, "ask q", 6, "perplexity-pro ask: ", PERPLEXITY_BASE_URL=nowhere)

    def test_a_fault_of_this_program_is_a_line_and_1(self) -> None:
        with console() as here, mock.patch.object(pro, "read_words", side_effect=ZeroDivisionError):
            self.check(here, "ask q", 1, "perplexity-pro: something unexpected went wrong: Zero")
        with console() as here, mock.patch.object(pro, "agent_body", side_effect=ZeroDivisionError):
            said = self.check(here, "ask q", 1, "perplexity-pro ask: Something unexpected")
            self.assertRegex(said, r"\(ZeroDivisionError in line \d+\) \[internal_error\]\n\Z")

    def test_every_status_is_in_the_help_and_the_reference(self) -> None:
        with console() as here:
            page = here.line("--help").out
        reference = (ROOT / ".github" / "REFERENCE.md").read_text("utf-8")
        for number, words in pro.STATUSES:
            self.assertIn(f"  {number:<4} {words}\n", page)
            self.assertIn(f"\n| {number} | {words} |\n", reference)
        used = {1, 2, pro.STILL_RUNNING, pro.UNLIKELY, 130, *pro._STATUS_OF.values()}
        self.assertEqual({number for number, _ in pro.STATUSES}, {0, *used})


# ---- Answers as pages

PAGE = """# \u65b0\u3057\u3044 news

Python **3.14** adds `t-strings`; see [the notes](https://docs.python.org/3/) for what 2 * 3 is, \
and some words more so that it wraps.[1]

- a point that is long enough to be wrapped where it hangs below itself
1. first

| Version | \u5099\u8003 |
|---|---|
| 3.13 | \u81ea\u7531\u306a\u30b9\u30ec\u30c3\u30c9 |
| 3.14 | **t** |

```python
def f(x):    # a line of code that is longer than the terminal is wide
```
"""
JAPANESE = "\u65e5\u672c\u8a9e\u306e\u6bb5\u843d\u3067\u3059\u3002"


class Pages(unittest.TestCase):
    """Markdown in a terminal."""

    def shown(self, text: str, size: int = 10_000, width: int = 40, **settings: Json) -> str:
        out = Terminal()
        with mock.patch.dict(os.environ, {"COLUMNS": str(width)}):
            page = pro.Markdown(pro.Screen(out, None, pro.Settings(**settings)))
        for at in range(0, len(text), size):
            page.feed(text[at : at + size])
        page.finish()
        return out.getvalue()

    def plain(self, text: str, **more: Json) -> list[str]:
        shown = self.shown(text, **more)
        return re.sub("\x1b\\[[0-9;]*m|\x1b\\]8;;.*?\x1b\\\\\\\\", "", shown).splitlines()

    def test_every_line_fits_and_lists_and_tables_stand_below_themselves(self) -> None:
        lines = self.plain(PAGE)
        self.assertEqual(lines[0], "\u65b0\u3057\u3044 news")
        self.assertIn("- a point that is long enough to be", lines)
        self.assertIn("  wrapped where it hangs below itself", lines)
        self.assertIn("1. first", lines)
        self.assertIn("Version  \u5099\u8003", lines)
        self.assertIn("   3.14  t", lines)
        code = [line for line in lines if line.startswith("def f")]
        self.assertEqual(len(code), 1)
        rest = [line for line in lines if line not in code]
        self.assertLessEqual(max(map(pro.width_of, rest)), 40, rest)
        text = " ".join(lines)
        for gone in ("**", "`", "|--", "# \u65b0"):
            self.assertNotIn(gone, text)
        self.assertIn("2 * 3", text)

    def test_it_looks_the_same_however_it_arrives(self) -> None:
        whole = self.shown(PAGE + JAPANESE * 9)
        for size in (1, 2, 3, 7, 50):
            self.assertEqual(self.shown(PAGE + JAPANESE * 9, size), whole, size)

    def test_words_are_shown_before_their_line_ends(self) -> None:
        out = Terminal()
        page = pro.Markdown(pro.Screen(out, None, pro.Settings()))
        page.feed("A first sentence of th")
        self.assertEqual(out.getvalue(), "A first sentence of")

    def test_wide_characters_count_as_two_and_close_no_line(self) -> None:
        for width in (20, 31, 40):
            lines = self.plain(JAPANESE * 20, width=width)
            self.assertLessEqual(max(map(pro.width_of, lines)), width)
            self.assertGreater(min(map(pro.width_of, lines[:-1])), width - 5)
            self.assertFalse([line for line in lines if line[0] == "\u3002"])

    def test_styles_are_those_of_the_marks(self) -> None:
        shown = self.shown(
            "**bold** *it* `a * b` 2*3 \u306f**\u592a\u5b57**\u3067\u3059 snake_case"
        )
        self.assertIn("\x1b[1mbold\x1b[22m", shown)
        self.assertIn("\x1b[3mit\x1b[23m", shown)
        self.assertIn("\x1b[36ma * b\x1b[39m", shown)
        self.assertIn(" 2*3 ", shown)
        self.assertIn("\x1b[1m\u592a", shown)
        self.assertIn("snake_case", shown)
        self.assertTrue(self.shown("an **open one\n\nnext").endswith("\x1b[0m\n\nnext\n"))

    def test_links_are_links_where_the_terminal_shows_them(self) -> None:
        text = "see [the notes](https://x.org/a) or [bad](javascript:alert(1))"
        self.assertIn("the notes (https://x.org/a)", " ".join(self.plain(text)))
        linked = self.shown(text, shows_links=True)
        self.assertIn("\x1b]8;;https://x.org/a\x1b\\the notes\x1b]8;;\x1b\\", linked)
        self.assertNotIn("8;;javascript", linked)

    def test_no_text_of_an_answer_controls_the_terminal(self) -> None:
        evil = "a\x1b]0;owned\x07b [x](https://a\x1b\\\\b) \x9b31m\n| \x1b[2J | b |\n```\n\x1b[5m\n"
        for size in (1, 100):
            shown = self.shown(evil, size, shows_links=True)
            ours = "\x1b\\[(?:[0-9]{1,2};?)*m|\x1b\\]8;;[\x21-\x7e]*\x1b\\\\"
            rest = re.sub(ours, "", shown)
            self.assertNotRegex(rest, "[\x1b\x07\x9b]")

    def test_sources_bear_the_answers_numbers_and_cited_ones_come_first(self) -> None:
        urls = [f"https://example.org/{n}" for n in range(3)]
        sources = [{"title": f"Page {n}", "url": u} for n, u in enumerate(urls)]
        result = {"sources": [{**sources[2], "marker": "[web:2]"}, *sources[:2]]}
        for links in (False, True):
            screen = pro.Screen(Terminal(), None, pro.Settings(shows_links=links))
            text = "\n".join(pro.source_list(result["sources"], screen))
            found = re.findall(r"Page (\d)", text)
            self.assertEqual(found, ["2", "0", "1"])
            self.assertIn("[web:2] ", text)
            self.assertEqual(text.count("https://example.org/2"), 1)
            self.assertEqual("\x1b]8;;https://example.org/2\x1b\\" in text, links)

    def test_a_terminal_gets_a_page_and_pipes_no_color_and_plain_the_plain_text(self) -> None:
        body = run_event("completed", "**bold** text")
        with console() as here:
            for more in (
                {"tty": True},
                {},
                {"tty": True, "NO_COLOR": "1"},
                {"tty": True, "flag": "--plain"},
            ):
                flag = more.pop("flag", "")
                answer = (
                    streamed(sse_event(body)) if "tty" in more else Answer(body=body["response"])
                )
                here.fake.script("POST /v1/agent", answer)
                said = here.line(f"ask q {flag}", **more)
                is_page = more == {"tty": True} and not flag
                self.assertEqual("\x1b[1mbold" in said.out, is_page, said.out)
                self.assertEqual(said.out == "**bold** text\n\nNo sources.\n", not is_page)
                self.assertIn("Usage: openai/gpt-6-luna", said.err)

    def test_json_escapes_what_steers_a_terminal(self) -> None:
        evil = "\x9b31m \u202e \U000e0041 \u200b caf\u00e9"
        with console() as here:
            body = {**run_event("completed", evil)["response"], "model": "m"}
            here.fake.script("POST /v1/agent", Answer(body=body))
            said = here.line("ask q --json")
        self.assertTrue(said.out.isprintable() or not re.search(HIDDEN, said.out), said.out)
        self.assertNotRegex(said.out, "[\u200b\u202e\U000e0041]")
        self.assertIn("caf\u00e9", said.out)
        self.assertEqual(pro.escaped_json({"a": "\x9b"}), '{"a": "\\u009b"}')
        self.assertEqual(json.loads(pro.escaped_json([evil])), [evil])


# ---- What can be typed


class Typing(unittest.TestCase):
    def test_decide_takes_words_files_and_standard_input(self) -> None:
        flags = (
            """--yes-no "Is it angry?" --choice team=billing,tech --score urgency=low,mid,high"""
        )
        questions = {
            "Is it angry?": {"type": "noul", "instructions": "Is it angry?"},
            "team": {"type": "choice", "criteria": {"billing": None, "tech": None}},
            "urgency": {"type": "score", "criteria": ["low", "mid", "high"]},
        }
        with console() as here:
            Path(here.folder, "t.txt").write_text("a ticket\n", "utf-8")
            for line in (
                "decide a ticket", "decide -", f"decide @{here.folder}/t.txt", "decide",
                "decide --state 'a ticket'",
            ):  # fmt: skip
                said = here.line(f"{line} {flags}", stdin=b"a ticket\n")
                self.assertEqual(said.status, 0, said.err)
                sent = here.fake.requests[-1].body
                self.assertEqual((sent["state"], sent["questions"]), ("a ticket", questions))
            self.assertEqual(
                [row.split("\t")[:2] for row in said.out.splitlines()],
                [["Is it angry?", "noul"], ["team", "choice"], ["urgency", "score"]],
            )
            named = read(shlex.split("decide x --yes-no angry='Is it?' --yes-no 'Is a = b?'"))
            self.assertEqual(
                named.arguments["questions"],
                {
                    "angry": {"type": "noul", "instructions": "Is it?"},
                    "Is a = b?": {"type": "noul", "instructions": "Is a = b?"},
                },
            )
            for line in ("decide x --choice team", "decide x --score a=low", "decide x"):
                self.assertEqual(here.line(line).status, 2, line)

    def test_the_likelihood_of_a_choice_is_its_own_and_levels_have_names(self) -> None:
        choice = {"choice": "ham", "confidence": 0.745, "probabilities": {"spam": 0.4, "ham": 0.6}}
        answers = {
            "kind": {"type": "choice", **choice},
            "urgency": {"type": "score", "score": 1.01, "confidence": 0.7},
        }
        line = "decide x --choice kind=spam,ham --score urgency=low,mid,high"
        with console() as here:
            for more, status in (("", 0), ("--threshold .59", 0), ("--threshold 0.61 -q", 7)):
                body = {"id": "d", "model": "pplx-decider-v1.1-27b", "answers": answers}
                here.fake.script("POST /v1/decisions", Answer(body=body))
                said = here.line(f"{line} {more}", tty=True, NO_COLOR="1")
                self.assertEqual(said.status, status, said.err)
                if "-q" in more:
                    self.assertEqual(said.out, "")
                else:
                    self.assertRegex(said.out, r"kind +ham +0\.600\n")
                    self.assertRegex(said.out, r"urgency +mid \(1\.01 of 0 to 2\) +-\n")

    def test_a_threshold_sets_the_status(self) -> None:
        answers = {"a": {"type": "noul", "noul": 0.81}}
        with console() as here:
            for threshold, status in (("0.8", 0), ("0.82", pro.UNLIKELY)):
                body = {"id": "d", "model": "pplx-decider-v1.1-27b", "answers": answers}
                here.fake.script("POST /v1/decisions", Answer(body=body))
                said = here.line(f"decide x --yes-no a=Is? --threshold {threshold}")
                self.assertEqual(said.status, status, said.err)
                self.assertTrue(said.out.startswith("a\tnoul\tyes\t0.81"), said.out)

    def test_images_are_named_by_where_they_are_and_one_by_one(self) -> None:
        pixel = base64.b64decode(
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
            "rkJggg=="
        )
        with console() as here, tempfile.TemporaryDirectory() as other:
            for name in ("a.png", "b.png"):
                Path(here.folder, name).write_bytes(pixel)
            line = f"decide --image {here.folder}/a.png --image {here.folder}/b.png --yes-no red?"
            for files in ("", other):  # a folder for clients says nothing about who types
                said = here.line(line, PERPLEXITY_FILES_DIR=files)
                self.assertEqual(said.status, 0, said.err)
                self.assertEqual(json.dumps(here.fake.requests[-1].body).count("data:image/png"), 2)
            words = " ".join(here.line("decide --help").out.split())
            self.assertIn("over MCP: below PERPLEXITY_FILES_DIR", words)
            url = f"data:image/png;base64,{base64.b64encode(pixel).decode()}"
            self.assertEqual(here.run("decide", "--image", url, "--yes-no", "red?").status, 0)
            said = here.line("decide --image https://example.org/a.png --yes-no red?")
            self.assertIn("is a link", said.err)

    def test_files_are_indexed_by_their_names(self) -> None:
        with console() as here:
            for name in ("a.md", "b.md"):
                Path(here.folder, name).write_text(f"text of {name}", "utf-8")
            said = here.line(f"embed index {here.folder}/a.md {here.folder}/b.md -", stdin=b"piped")
            self.assertEqual(said.status, 0, said.err)
            self.assertEqual(
                here.fake.requests[-1].body["input"], ["text of a.md", "text of b.md", "piped"]
            )
            found = here.line("embed search text --json").json()["hits"]
            said = here.line("embed search text --source job")
            self.assertNotIn("Warning", said.out)
            self.assertEqual(said.err.count("Warning: Nothing is stored for"), 1, said.err)
            self.assertEqual(len(found), 3)

    def test_a_chat_goes_on_with_the_newest_and_is_named_by_its_first_line(self) -> None:
        with console() as here:
            self.assertEqual(here.line("chat -c 'too early'").status, 2)
            here.line("chat send 'Remember: teal.\n\nAnd more.'")
            here.line("chat 'a second one'")
            said = here.line("chat -c 'and what now'")
            self.assertIn(", chat 2", said.err)
            chats = here.line("chat list --json").json()["chats"]
            self.assertEqual([c["title"] for c in chats], ["a second one", "Remember: teal."])
            self.assertEqual([c["message_count"] for c in chats], [4, 2])

    def test_actions_may_be_left_out_where_one_is_plainly_meant(self) -> None:
        lines = {"jobs": "list", "jobs 3": "result", "projects": "list", "embed": "status"}
        for line, action in lines.items():
            self.assertEqual(read(line.split()).arguments["action"], action)

    def test_tables_are_tabs_in_a_pipe_and_columns_in_a_terminal(self) -> None:
        with console() as here:
            here.line("chat send 'one\ttwo'")
            here.line("research 'a long question'")
            for line, start in {"chat list": "1\t2\t2", "jobs": "2\tqueued\tmedium\t2"}.items():
                piped, shown = here.line(line), here.line(line, tty=True, NO_COLOR="1")
                self.assertTrue(piped.out.startswith(start), piped.out)
                self.assertEqual(piped.out.count("\n"), 1)
                self.assertRegex(piped.out, r"\t20\d\d-\d\d-\d\dT[\d:.]+Z\t")
                self.assertIn("just now", shown.out)
                self.assertNotIn("\t", shown.out)
            models = here.line("models --provider anthropic")
            self.assertTrue(all(row.count("\t") == 4 for row in models.out.splitlines()))
            self.assertIn("Routing standard", models.err)

    def test_names_are_never_broken_where_a_terminal_is_narrow(self) -> None:
        size = mock.patch.object(
            shutil, "get_terminal_size", return_value=os.terminal_size((50, 20))
        )
        with console() as here, size:
            ids = [row.split("\t")[0] for row in here.line("models").out.splitlines()]
            shown = here.line("models", tty=True).out
            self.assertLessEqual(max(map(len, shown.splitlines())), 50)
            self.assertLessEqual(set(ids), set(shown.split()))
            self.assertIn("USD per million tokens", shown)
            settings = here.line("help settings", tty=True).out
            for variable in pro.VARIABLES:
                self.assertLessEqual(set(variable.name.split()), set(settings.split()))
            self.assertLessEqual(max(map(len, settings.splitlines())), 50)
            self.assertTrue(settings.startswith("PERPLEXITY_API_KEY\n"), settings[:40])
            self.assertNotRegex(settings, "default [^,]*: ?images")
            piped = here.line("help settings").out.splitlines()
            self.assertEqual(len(piped), len(pro.VARIABLES))
            self.assertTrue(all(line.count("\t") == 2 for line in piped))

    def test_names_are_whole_at_every_width(self) -> None:
        with console() as here:
            for width in (30, 60, 80, 89, 90, 91, 120):
                size = os.terminal_size((width, 20))
                with mock.patch.object(shutil, "get_terminal_size", return_value=size):
                    shown = here.line("help settings", tty=True).out
                for variable in pro.VARIABLES:
                    self.assertLessEqual(set(variable.name.split()), set(shown.split()), width)

    def test_which_files_are_taken_is_said_of_mcp_and_of_a_shell(self) -> None:
        with console() as here:
            rows = [row.split("\t") for row in here.line("help settings").out.splitlines()]
        ((default, meaning),) = [row[1:] for row in rows if row[0] == "PERPLEXITY_FILES_DIR"]
        self.assertEqual(default, "none")
        self.assertRegex(meaning, "over MCP.* only below it.*command line.* you name")
        readme = " ".join(Path(ROOT, "README.md").read_text("utf-8").split())
        for sentence in re.findall(r"[^.|]*(?<!`)`PERPLEXITY_FILES_DIR`[^.|]*", readme):
            self.assertRegex(sentence, "(?i)over MCP.*you name")

    def test_failures_are_explained_in_a_shells_words(self) -> None:
        with console() as here:
            for line in ("help errors", "help topic errors", "help tool ask"):
                for tty in (False, True):
                    said = " ".join(here.line(line, tty=tty).out.split())
                    self.assertIn("perplexity-pro key set", said, line)
                    self.assertIn("with --yes", said, line)
                    for words in ("_meta", "set PERPLEXITY_API_KEY", "confirm true"):
                        self.assertNotIn(words, said, line)

    def test_a_chat_is_read_as_answers_are_shown(self) -> None:
        with console() as here:
            here.line("chat 'hello there'")
            said = here.line("chat read 1", tty=True)
            self.assertRegex(said.out, r"\A\n\x1b\[1mYou, just now\x1b\[0m\nhello there\n\n")
            self.assertIn("Chat 1 (hello there), 2 of 2 messages.", said.err)
            self.assertNotIn("Sources", here.line("chat read 1 -q", tty=True).out)
            self.assertNotIn("\x1b", here.line("chat read 1 --plain", tty=True).out)
            self.assertIn("\x1b[1mSources\x1b[0m\n[1]", said.out)
            self.assertNotRegex(said.out, r"\d\dT\d\d:")
            self.assertIn("Not cited:", here.line("chat read 1").out)

    def test_one_is_not_many(self) -> None:
        with console() as here:
            here.line("chat 'a first one'")
            self.assertEqual(here.line("chat list").err, "1 chat in project default.\n")
            self.assertEqual(here.line("chat 'a second'").status, 0)
            self.assertEqual(here.line("chat list").err, "2 chats in project default.\n")
            self.assertIn("0 jobs in project", here.line("jobs").err)
            here.line("research q")
            self.assertIn("1 job in project", here.line("jobs").err)

    def test_times_and_amounts_are_said_as_people_say_them(self) -> None:
        now = datetime.now(timezone.utc)
        for seconds, words in {
            5: "just now", 61: "1 minute ago", 7300: "2 hours ago", 200_000: "2 days ago"
        }.items():  # fmt: skip
            text = (now - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
            self.assertEqual(pro.ago(text), words)
        for usd, words in {
            "0.00381": "$0.0038", "0.001": "$0.001", "0.06": "$0.06", "0": "$0.00", "1.5": "$1.50",
            "12.3456": "$12.35", "0.0000024": "$0.0000024", None: "cost unknown",
        }.items():  # fmt: skip
            self.assertEqual(pro.dollars(usd), words)

    def test_a_terminal_asks_before_it_deletes_or_spends_and_yes_agrees(self) -> None:
        with console() as here:
            here.line("chat send --title t hello")
            delete, dear = "chat delete 1", "ask q --depth medium"
            limit = {"PERPLEXITY_CONFIRM_USD": "0.001"}
            for answer, status in (("", 1), ("n", 1), ("y", 0)):
                for line in (dear, delete):
                    with (
                        mock.patch("builtins.input", return_value=answer) as asked,
                        mock.patch.object(sys, "stdin", Terminal()),
                    ):
                        said = here.line(line, tty=True, **limit)
                    self.assertEqual((said.status, asked.call_count), (status, 1), said.err)
                    self.assertNotIn("call again", said.err)
                    self.assertEqual("Nothing was done." in said.err, status == 1)
                    self.assertNotIn("confirm", said.err)
            here.line("chat send --title t hello")
            said = here.line("ask q --depth medium", **limit)
            self.assertEqual(said.status, 1)
            self.assertIn("Add --yes", said.err)
            for line in (
                "ask q --depth medium -y",
                "chat delete 2 --yes",
                "ask q --yes --depth low",
            ):
                self.assertEqual(here.line(line, **limit).status, 0)

    def test_no_sentence_for_clients_reaches_a_shell(self) -> None:
        lines = (
            "ask q --depth fats", "jobs status 9", "chat read 9", "ask q", "chat delete 1",
            "projects delete x", "projects budget default --daily-usd 5", "help", "help costs",
            "help errors", "help settings", "research q", "usage", "chat list --project none",
            "decide x --yes-no y --image none.png", "embed index",
        )  # fmt: skip
        with console() as here:
            here.line("chat send --title t hello")
            here.line("projects budget default --daily-usd 1")
            for line in lines:
                for more in ({}, {"PERPLEXITY_API_KEY": ""}):
                    said = here.line(line, **more)
                    for words in (
                        "confirm=true",
                        "env block",
                        "restart the client",
                        "perplexity_help",
                    ):
                        self.assertNotIn(words, said.out + said.err, line)


class Keys(unittest.TestCase):
    def test_a_key_is_stored_for_its_owner_alone_and_found_by_default(self) -> None:
        with console() as here:
            bare = {"PERPLEXITY_API_KEY": ""}
            self.assertEqual(here.line("key", **bare).status, 3)
            said = here.line("key set", stdin=f"{here.fake.key}\n".encode(), **bare)
            self.assertEqual(said.status, 0, said.err)
            stored = Path(here.folder, "data", "api-key")
            if POSIX:
                self.assertEqual(stored.stat().st_mode & 0o777, 0o600)
            self.assertEqual(here.line("ask q", **bare).status, 0)
            status = here.line("key status", **bare)
            self.assertEqual((status.status, status.out.count("\n")), (0, 1), status.err)
            self.assertIn(f"ending in {here.fake.key[-4:]}", status.out)
            self.assertNotIn(here.fake.key, said.out + said.err + status.out + status.err)
            typed = here.run("ask", "q", f"--{here.fake.key}", **bare)
            self.assertNotIn(here.fake.key[:12], typed.err)
            self.assertEqual(here.line("key clear", **bare).status, 0)
            self.assertFalse(stored.exists())
            self.assertEqual(here.line("ask q", **bare).status, 3)
            self.assertIn("no stored key", here.line("key clear", **bare).err)

    def test_the_variable_comes_first_and_that_is_said(self) -> None:
        with console() as here:
            said = here.line("key set", stdin=b"pplx-another-key-that-is-not-used")
            self.assertIn("PERPLEXITY_API_KEY is set too, and comes first", said.err)
            self.assertIn("From PERPLEXITY_API_KEY, ending in", here.line("key status").out)
            self.assertIn("PERPLEXITY_API_KEY still gives a key", here.line("key clear").err)

    def test_what_is_no_key_is_refused_and_not_shown(self) -> None:
        with console() as here:
            for text in (b"", b"two words here", b"YOUR_KEY", b"\xff\xfe\x00"):
                said = here.line("key set", stdin=text, PERPLEXITY_API_KEY="")
                self.assertEqual((said.status, said.out), (2, ""), said.err)
                self.assertNotIn("two words", said.err)
            self.assertEqual(here.line("key sett").status, 2)
            self.assertFalse(Path(here.folder, "data").exists())

    def test_a_key_among_the_words_or_of_another_vendor_is_warned_of(self) -> None:
        with console() as here:
            here.environ["PERPLEXITY_API_KEY"] = ""
            said = here.line("key set pplx-0123456789abcdef0123456789abcdef")
            self.assertEqual((said.status, said.out), (2, ""))
            self.assertIn("history", said.err)
            self.assertNotIn("0123456789", said.err)
            said = here.line("key set", stdin=b"sk-0123456789abcdef0123456789abcdef")
            self.assertEqual(said.status, 0)
            self.assertIn("another vendor", said.err)

    def test_a_key_that_perplexity_refuses_is_3_with_the_reason(self) -> None:
        with console() as here:
            said = here.line("key status", PERPLEXITY_API_KEY="pplx-" + "a1" * 20)
            self.assertEqual(said.status, 3)
            self.assertIn("rejected", said.err)


class Prompt(unittest.TestCase):
    def test_a_conversation_at_a_prompt(self) -> None:
        with console() as here:
            page = Path(here.folder, "talk.md")
            lines = iter(
                [
                    f"/save {page}",
                    "hello",
                    "a paste\nof two lines",
                    "/nwe",
                    "/usr/lib is what",
                    "/model nosuch\nis a paste",
                    "/help",
                    f"/save {page}",
                    "/model x-y/z",
                    "/new",
                    "fresh",
                ]
            )

            def typed(_: str = "") -> str:
                line = next(lines, None)
                if line is None:
                    raise EOFError
                return line

            with (
                mock.patch("builtins.input", typed),
                mock.patch.object(pro.Stdin, "is_fed", lambda _: False),
            ):
                said = here.line("chat", NO_COLOR="1", tty=True)
            self.assertEqual(said.status, 0, said.err)
            bodies = [seen.body for seen in here.fake.requests if seen.method == "POST"]
            sent = ["/usr/lib is what", "/model nosuch\nis a paste", "fresh"]
            asked = ["hello", "a paste\nof two lines", *sent]
            self.assertEqual([body["input"] for body in bodies], asked)
            self.assertIn("previous_response_id", bodies[1])
            self.assertNotIn("previous_response_id", bodies[-1])
            self.assertEqual(bodies[-1]["model"], "x-y/z")
            for sentence in (
                "There is no answer to save yet.", "Did you mean /new? There are /model ID",
                "A new chat begins", "From the next message on: x-y/z.",
            ):  # fmt: skip
                self.assertIn(sentence, said.err)
            text = page.read_text("utf-8")
            self.assertIn("# hello", text)
            self.assertIn("# a paste of two lines", text)

    def test_it_begins_as_its_flags_say_and_says_which_chat_goes_on(self) -> None:
        with console() as here:
            here.line("chat send --title Colours 'Remember: teal.'")
            for line in ("chat -c -m x-y/z", "chat --depth low"):
                with (
                    mock.patch("builtins.input", side_effect=["which one?", EOFError]),
                    mock.patch.object(pro.Stdin, "is_fed", lambda _: False),
                ):
                    said = here.line(line, NO_COLOR="1", tty=True)
                self.assertEqual(said.status, 0, said.err)
                self.assertEqual("Chat 1: Colours" in said.err, "-c" in line)
            bodies = [seen.body for seen in here.fake.requests if seen.method == "POST"][1:]
            self.assertEqual(bodies[0]["model"], "x-y/z")
            self.assertEqual(["previous_response_id" in body for body in bodies], [True, False])

    @unittest.skipUnless(POSIX, "needs a pseudo terminal")
    def test_lines_that_come_at_once_are_one_message(self) -> None:
        import pty

        ours, theirs = pty.openpty()
        with console() as here, os.fdopen(theirs, "r+b", buffering=0) as end:
            environ = {**os.environ, **here.environ, "TERM": "dumb"}
            command = [sys.executable, "-c", DRIVER, "chat"]
            process = subprocess.Popen(
                command, env=environ, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            os.write(ours, b"one\ntwo\nthree\n")
            here.fake.wait_for("POST /v1/agent", 1)
            os.write(ours, b"\x04")
            with process:
                process.communicate(timeout=WAIT_S)
            bodies = [seen.body for seen in here.fake.requests if seen.method == "POST"]
            self.assertEqual([body["input"] for body in bodies], ["one\ntwo\nthree"])
        os.close(ours)


# ---- Waiting and streaming


class Watched(Terminal):
    """A terminal that tells when a text has come."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.seen = text, threading.Event()

    def write(self, text: str) -> int:
        if self.text in text:
            self.seen.set()
        return super().write(text)


class Streaming(unittest.TestCase):
    def early(self, here: Console, first: str, awaited: str, rest: str) -> tuple[str, str]:
        """What the terminal shows before the rest of an answer comes, and in the end."""
        gate = threading.Event()
        last = sse_event(run_event("completed", first + rest))
        pieces = [delta(first[at : at + 3]) for at in range(0, len(first), 3)]
        here.fake.script("POST /v1/agent", streamed(*pieces, gate, delta(rest), last))
        out, statuses = Watched(awaited), list[int]()
        settings = pro.read_settings({**here.environ, "NO_COLOR": "1"})
        screen = pro.Screen(out, Terminal(), settings)
        work = threading.Thread(
            target=lambda: statuses.append(pro.command_line(["ask", "q"], settings, screen))
        )
        work.start()
        self.assertTrue(out.seen.wait(WAIT_S), out.getvalue())
        before = out.getvalue()
        gate.set()
        work.join(WAIT_S)
        self.assertEqual(statuses, [0])
        return before, out.getvalue()

    def test_an_answer_is_on_the_terminal_before_it_is_finished(self) -> None:
        with console() as here:
            before, after = self.early(here, "Now", "Now", " or never.")
            self.assertTrue(here.fake.requests[0].body["stream"])
        self.assertEqual(before, "Now")
        self.assertEqual(after, "Now or never.\n\nNo sources.\n")

    def test_reasoning_before_the_answer_is_held_back(self) -> None:
        with console() as here:
            first = "<think>hm, <b>well</b></think>\n\nYes"
            before, after = self.early(here, first, "es", ", sure.")
        self.assertEqual(before.strip(), "Yes")
        self.assertTrue(after.startswith("Yes, sure.\n\nNo sources.\n"), after)

    def test_the_end_is_not_printed_twice_however_its_spaces_differ(self) -> None:
        with console() as here:
            for line in ("ask 'hello there' --depth fast", "chat send --title t hi"):
                said = here.line(line, tty=True, NO_COLOR="1")
                self.assertEqual(said.out.count("You asked"), 1, said.out)
                self.assertIn("\nSources:\n", said.out)

    def test_an_answer_that_ends_otherwise_than_it_began_is_shown_whole(self) -> None:
        last = sse_event(run_event("completed", "Three."))
        with console() as here:
            here.fake.script("POST /v1/agent", streamed(delta("One "), last))
            said = here.line("ask q", tty=True, NO_COLOR="1")
        self.assertTrue(said.out.startswith("One \n\nThree.\n"), said.out)

    def test_a_stream_that_fails_or_stops_is_an_error_with_a_status(self) -> None:
        failed = {"type": "response.failed", "error": {"message": "It broke.", "code": "x"}}
        with console() as here:
            for events in ((delta("One "), sse_event(failed)), (delta("One "),)):
                here.fake.script("POST /v1/agent", streamed(*events))
                said = here.line("ask q", tty=True, NO_COLOR="1")
                self.assertEqual((said.status, said.out), (6, "One "))
                self.assertIn("\nperplexity-pro ask: ", said.err)

    def test_pipes_json_and_files_get_no_stream(self) -> None:
        with console() as here:
            here.line("ask q")
            here.line("ask q --json")
            self.assertEqual([seen.body.get("stream") for seen in here.fake.requests], [None] * 2)
            self.assertEqual(here.line("ask q --json", tty=True).json()["status"], "completed")
            saved = here.line(f"ask q --output {here.folder}/report.md", tty=True)
            self.assertEqual((saved.status, saved.out), (0, ""))


class Waiting(unittest.TestCase):
    def test_the_line_that_moves_leaves_nothing_behind(self) -> None:
        err = Terminal()
        with mock.patch.dict(os.environ, {"COLUMNS": "60"}):
            screen = pro.Screen(Terminal(), err, pro.Settings())
            self.assertEqual(screen.width, 60)
        screen.status("ask: 1 s, searching: \u5929\u6c17\u3068\u6c17\u6e29\u306b\u3064\u3044\u3066")
        screen.status("ask: 2 s")
        wide, narrow = err.getvalue().split("\r")[1:]
        self.assertEqual(pro.width_of(narrow), pro.width_of(wide))
        screen.status("\u5929" * 90)
        self.assertLess(pro.width_of(err.getvalue().rpartition("\r")[2]), 60)

    def test_nothing_moves_on_a_dumb_terminal(self) -> None:
        err = Terminal()
        pro.Screen(Terminal(), err, pro.read_settings({"TERM": "dumb"})).status("ask: 1 s")
        self.assertEqual(err.getvalue(), "")
        pro.Screen(Terminal(), err, pro.read_settings({"NO_COLOR": "1"})).status("ask: 1 s")
        self.assertEqual(err.getvalue(), "\rask: 1 s")

    def test_a_report_is_waited_for_with_a_line_that_moves_and_goes_away(self) -> None:
        with console() as here, mock.patch.multiple(pro, POLL_FIRST_S=0.05, TICK_S=0.01):
            here.fake.run_script("in_progress", "in_progress", "completed")
            with mock.patch.object(pro, "_ended", wraps=pro._ended) as ended:
                said = here.line("research 'what now' --wait", tty=True, NO_COLOR="1")
            self.assertEqual(ended.call_count, 2)
            here.fake.run_script("in_progress", "completed")
            saved = here.line("research 'and then' --wait -o-")
            self.assertTrue(saved.out.startswith("# and then\n"), saved.out)
            self.assertEqual(saved.err.count("Job 2 runs."), 1)
            piped = here.line("jobs result 1 --wait --json")
        self.assertEqual(said.status, 0)
        self.assertIn(
            "Job 1 runs. To wait for it elsewhere: perplexity-pro jobs result 1", said.err
        )
        self.assertIn("\rjob 1: 0 s", said.err)
        moved = said.err.rpartition("\r")
        self.assertNotIn("job 1:", moved[2])
        self.assertEqual(moved[0].rpartition("\r")[2].strip(), "")
        self.assertTrue(said.out.startswith('You asked "what now".'))
        self.assertEqual(piped.json()["status"], "completed")
        self.assertEqual(piped.err, "")

    def test_an_answer_that_comes_right_after_ctrl_c_is_kept_and_named(self) -> None:
        with console() as here:
            gate = here.fake.hold("POST /v1/agent")
            cancel = pro.Call.cancel

            def interrupt(_: Json) -> None:
                here.fake.wait_for("POST /v1/agent", 1)
                raise KeyboardInterrupt

            def release(call: Json) -> None:
                cancel(call)
                gate.set()

            with (
                mock.patch.object(pro, "EXIT_GRACE_S", 0.2),
                mock.patch.object(pro._Watch, "tick", interrupt),
                mock.patch.object(pro.Call, "cancel", release),
            ):
                said = here.line("ask 'hello there'")
            self.assertEqual((said.status, said.out), (130, ""))
            self.assertIn("job 1 is kept. Go on with: perplexity-pro jobs result 1", said.err)
            self.assertIn('You asked "hello there"', here.line("jobs result 1").out)

    def test_a_failed_run_ends_the_wait(self) -> None:
        with console() as here, mock.patch.object(pro, "POLL_FIRST_S", 0.01):
            here.fake.run_script("in_progress", "failed")
            said = here.line("research 'what now' --wait --json")
            again = here.line(f"jobs result 1 --output {here.folder}/report.md")
            self.assertEqual(here.line("jobs status 1").status, 0)
        self.assertEqual((said.status, said.json()["status"]), (6, "failed"))
        self.assertEqual(again.status, 6)
        self.assertIn("The run failed", again.out)


# ---- Help and completion


class Help(unittest.TestCase):
    PAGES = ("--help", "--version", "help", "help ask", "help costs", "help topic projects")

    def test_it_needs_no_key_no_network_and_no_folder_and_survives_bad_settings(self) -> None:
        broken = {
            "PERPLEXITY_API_KEY": "", "PERPLEXITY_BASE_URL": "ftp://x", "PERPLEXITY_ROUTING": "odd",
            "PERPLEXITY_DATA_DIR": "/proc/none", "PERPLEXITY_READ_TIMEOUT": "-1",
            "PERPLEXITY_TIER_LIGHT": "x/y",
        }  # fmt: skip
        pages = [*self.PAGES, *(f"{word} --help" for word in pro.COMMANDS)]
        with console() as here:
            for line in pages:
                said = here.line(line, **broken)
                self.assertEqual(said.status, 0, said.err)
                self.assertTrue(said.out, line)
                self.assertLessEqual(said.err.count("\n"), 1)
            self.assertIn("Warning: PERPLEXITY", here.line("help", **broken).err)
            self.assertEqual(here.fake.requests, [])
            self.assertFalse(Path(here.folder, "data").exists())

    def test_a_page_says_what_a_word_or_a_flag_does_here(self) -> None:
        with console() as here:
            pages = {word: " ".join(here.line(f"{word} -h").out.split()) for word in pro.COMMANDS}
            self.assertIn("--no-search Answer without the web", pages["ask"])
            self.assertNotIn("--no-again", pages["ask"])
            self.assertNotIn("delete", pages["search"].partition("--yes")[2][:60])
            self.assertIn("Each word is a query of its own", pages["search"])
            self.assertIn("names of files, or - for standard input", pages["embed"])
            self.assertEqual(here.line("help").out, here.line("--help").out)
            self.assertNotIn("1099511627776", here.line("help limits").out)
            said = here.line("help exit").err
            self.assertEqual(said.count("projects"), 1)
            self.assertIn("flags go behind one", here.line("--json ask hi").err)
            self.assertIn("name the files to index, or -", here.line("embed index").err)
            here.line("search rust borrow checker")
            self.assertIn("3 queries", here.line("search rust borrow checker").err)

    def test_a_page_fits_a_narrow_terminal(self) -> None:
        size = mock.patch.object(
            shutil, "get_terminal_size", return_value=os.terminal_size((50, 20))
        )
        with console() as here, size:
            for word in pro.COMMANDS:
                lines = here.line(f"{word} --help", tty=True).out.splitlines()
                self.assertLessEqual(max(map(len, lines)), 50, word)
                for line in lines[lines.index("flags:") + 1 :] if "flags:" in lines else ():
                    self.assertRegex(line, r"\A(  \S| {24}\S|\Z|examples:)", word)

    def test_flags_that_take_several_values_say_so(self) -> None:
        with console() as here:
            page = " ".join(here.line("ask --help").out.split())
        self.assertRegex(
            page, r"--domains TEXT Up to 20: only these [^-]*\(-a.org\) \(may be repeated\) --"
        )
        self.assertEqual(page.count("may be repeated"), 1)

    def test_one_word_is_a_command_before_it_is_a_topic(self) -> None:
        with console() as here:
            for word in pro.COMMANDS:
                self.assertEqual(here.line(f"help {word}").out, here.line(f"{word} --help").out)
            self.assertEqual(here.line("help perplexity_ask").out, here.line("ask -h").out)
            self.assertTrue(here.line("help topic projects").out.startswith("A project groups"))
            self.assertTrue(here.line("help costs").out.startswith("Costs observed"))
            said = here.line("help xyzzy")
        self.assertEqual((said.status, said.out), (1, ""))
        self.assertIn("there is no help for xyzzy; try one of ask, search", said.err)

    def test_examples_are_command_lines_that_can_be_read(self) -> None:
        with console() as here:
            for name in ("ticket.txt", "notes.md", "report.md", "mail.txt", "bug.txt"):
                Path(here.folder, name).write_text("text", "utf-8")
            before = Path.cwd()
            os.chdir(here.folder)
            try:
                for declared in pro.TOOLS.values():
                    if declared.word == "help":
                        continue
                    page = here.line(f"help {declared.word}").out.partition("\nexamples:\n")[2]
                    lines = re.findall(r"perplexity-pro ([^|\n]*)", page)
                    self.assertTrue(lines, declared.word)
                    for line in lines:
                        read(shlex.split(line), b"piped")
            finally:
                os.chdir(before)

    def test_pages_fit_into_80_columns(self) -> None:
        with console() as here, mock.patch.dict(os.environ, {"COLUMNS": "80"}):
            for line in ["--help", *(f"{word} --help" for word in pro.COMMANDS)]:
                page = here.line(line).out
                self.assertLessEqual(max(map(len, page.splitlines())), 80, line)
                self.assertNotIn("\u2026", page)

    def test_audit_names_hosts_files_and_variables_but_no_secret(self) -> None:
        with console() as here:
            proxy = "http://user:hush@proxy.example:3128"
            said = here.line("audit", HTTPS_PROXY=proxy, PERPLEXITY_API_KEY_FILE="/k/key")
        for expected in (here.fake.url, "proxy.example:3128", "/k/key", "data/perplexity.db"):
            self.assertIn(expected, said.out)
        self.assertNotIn("hush", said.out)
        self.assertNotIn(here.fake.key, said.out)


class Completion(unittest.TestCase):
    def script(self, shell: str) -> str:
        with console() as here:
            return here.line(f"completion {shell}").out

    def test_every_place_offers_what_fits_there(self) -> None:
        with console() as here:
            here.line("ask q -p alpha")
            here.line("ask q -p beta")
            for line, offers in {
                "": list(pro.COMMANDS),
                "jobs": ["list", "result", "cancel", "--wait", "--json"],
                "ask": ["--max-results", "--no-search", "--dry-run", "-p"],
                "ask --depth": list(pro.SYNC_DEPTHS),
                "ask --depth =": list(pro.SYNC_DEPTHS),
                "research --depth": list(pro.RESEARCH_DEPTHS),
                "setup": ["cursor", "links", "--write"],
                "doctor": ["--offline", "--json"],
                "computer": ["login", "--thread"],
                "help": ["ask", "costs"],
                "usage -p": ["alpha", "beta"],
                "projects delete": ["alpha", "beta"],
            }.items():
                said = here.line(f"completion -- {line}")
                self.assertEqual((said.status, said.err), (0, ""), line)
                self.assertLessEqual(set(offers), set(said.out.splitlines()), line)
            for line in ("ask -o", "nonsense"):
                self.assertEqual(here.line(f"completion -- {line}").out, "")

    def test_names_of_projects_are_read_without_making_or_waiting_for_anything(self) -> None:
        with console() as here:
            said = here.line("completion -- usage --project")
            self.assertEqual((said.status, said.out, said.err), (0, "", ""))
            self.assertFalse(Path(here.folder, "data").exists())
            Path(here.folder, "data").mkdir()
            Path(here.folder, "data", pro.DATABASE).write_bytes(b"no database" * 1000)
            said = here.line("completion -- usage --project")
            self.assertEqual((said.status, said.out, said.err), (0, "", ""))

    def test_every_shell_gets_a_script_that_asks_the_program(self) -> None:
        for shell in ("bash", "zsh", "fish", "powershell"):
            self.assertIn("perplexity-pro completion", self.script(shell))

    @unittest.skipUnless(shutil.which("bash"), "needs bash")
    def test_bash_completes_commands_actions_flags_and_values(self) -> None:
        program = shlex.join([sys.executable, "-c", DRIVER])
        script = f'perplexity-pro() {{ {program} "$@"; }}\n{self.script("bash")}'
        expected = {
            ("",): set(pro.COMMANDS),
            ("ch",): {"chat"},
            ("chat", "s"): {"send"},
            ("jobs", ""): {"list", "status", "result", "cancel"},
            ("jobs", "result", ""): set(),
            ("ask", "-m", ""): set(),
            ("ask", "--recency", "=", "m"): {"month"},
            ("ask", "--max"): {"--max-results", "--max-output-tokens"},
            ("ask", "--recency", "w"): {"week"},
            ("ask", "--output", ""): set(),
        }
        for words, offers in expected.items():
            line = " ".join(shlex.quote(word) for word in ("perplexity-pro", *words))
            test = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; _perplexity_pro"
            done = subprocess.run(
                ["bash", "-c", f'{script}\n{test}; echo "${{COMPREPLY[@]}}"'],  # noqa: S607 - any bash
                capture_output=True, text=True, check=True, timeout=WAIT_S,
            )  # fmt: skip
            self.assertEqual(set(done.stdout.split()), offers, words)

    @unittest.skipUnless(shutil.which("fish"), "needs fish")
    def test_fish_takes_the_script(self) -> None:
        script = self.script("fish")
        command = ["fish", "--no-execute"]
        done = subprocess.run(
            command, input=script, capture_output=True, text=True, check=False, timeout=WAIT_S
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))


# ---- As a process


class Process(unittest.TestCase):
    """What only shows from outside."""

    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.fake = FakePerplexity().start()
        self.addCleanup(self.fake.stop)
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PERPLEXITY_", "PYTHON"))},
            "PERPLEXITY_API_KEY": self.fake.key,
            "PERPLEXITY_BASE_URL": self.fake.url,
            "PERPLEXITY_DATA_DIR": f"{self.folder.name}/data",
        }

    def start(self, *words: str | bytes, **more: Json) -> subprocess.Popen[bytes]:
        environ = {**self.environ, **more.pop("env", {})}
        streams = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, *words], env=environ, **{**streams, **more}
        )

    def run_words(self, *words: str | bytes, **more: Json) -> tuple[int, bytes, bytes]:
        text = more.pop("input", None)
        more.update({"stdin": subprocess.PIPE} if text is not None else {})
        with self.start(*words, **more) as process:
            out, err = process.communicate(text, WAIT_S)
        self.assertNotIn(b"Traceback", err)
        return process.returncode, out or b"", err

    def test_the_transport_that_older_configurations_name_is_the_only_one(self) -> None:
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
        for words in ("--transport stdio", "--transport=stdio", "serve --transport stdio"):
            status, out, _ = self.run_words(*words.split(), input=ping)
            self.assertEqual((status, json.loads(out)["id"]), (0, 1), words)
        status, out, err = self.run_words("serve", "--transport", "http", input=ping)
        self.assertEqual((status, out), (2, b""))
        self.assertIn(b"standard input and output only", err)

    def test_piped_text_is_joined_and_the_answer_comes_as_utf_8_in_any_locale(self) -> None:
        env = {
            "LC_ALL": "C",
            "PYTHONIOENCODING": "ascii",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
        }
        text = "caf\u00e9 \U0001f600"
        status, out, err = self.run_words("ask", "what is", "-", input=text.encode(), env=env)
        self.assertEqual((status, err.count(b"\n")), (0, 1))
        self.assertIn(text, out.decode("utf-8"))
        self.assertEqual(self.fake.requests[0].body["input"], f"what is\n\n{text}")

    @unittest.skipUnless(POSIX and shutil.which("bash"), "needs bash")
    def test_scripts_and_loops_keep_what_they_read_themselves(self) -> None:
        command = f"{shlex.quote(sys.executable)} -c {shlex.quote(DRIVER)}"
        loop = f'while read q; do {command} ask -q "$q"; done'
        script = f"{command} ask -q a; export TOKEN=secret; {command} ask -q b; echo done"
        for text, shell, asked in (
            ("one\ntwo\nthree\n", ["bash", "-c", loop], ["one", "two", "three"]),
            (script, ["bash"], ["a", "b"]),
        ):
            before = len(self.fake.requests)
            done = subprocess.run(
                shell, input=text.encode(), capture_output=True, check=True, timeout=WAIT_S,
                env=self.environ,
            )  # fmt: skip
            self.assertEqual([seen.body["input"] for seen in self.fake.requests[before:]], asked)
        self.assertTrue(done.stdout.endswith(b"done\n"))

    def test_an_open_and_silent_pipe_is_not_waited_for(self) -> None:
        reader, writer = os.pipe()
        try:
            for words in (
                ("ask", "hello"), ("research", "hello"), ("chat", "send", "hello"),
                ("ask", "--args-json", '{"query":"q"}'), ("embed", "search", "q"),
            ):  # fmt: skip
                status, _, _ = self.run_words(*words, stdin=reader)
                self.assertEqual(status, 0, words)
        finally:
            os.close(reader)
            os.close(writer)

    def test_words_are_utf_8_whatever_the_locale(self) -> None:
        env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        self.assertEqual(self.run_words("ask", "Gr\u00f6\u00dfe \U0001f600", env=env)[0], 0)
        self.assertEqual(self.fake.requests[-1].body["input"], "Gr\u00f6\u00dfe \U0001f600")
        if POSIX:
            status, out, err = self.run_words("ask", b"Gr\xf6\xdfe", env=env)
            self.assertEqual((status, out, len(self.fake.requests)), (2, b"", 1), err)

    @unittest.skipUnless(POSIX, "needs /dev/stdout")
    def test_an_answer_can_be_written_to_the_device_of_standard_output(self) -> None:
        for name in ("/dev/stdout", "/dev/fd/1", "-"):
            status, out, err = self.run_words("ask", "q", "--output", name)
            self.assertEqual(status, 0, err)
            self.assertTrue(out.startswith(b"# q\n"), out)

    def test_a_dry_run_sends_nothing_and_makes_no_file(self) -> None:
        env = {"PERPLEXITY_BUDGET_DAILY_USD": "1", "PERPLEXITY_CONFIRM_USD": "0"}
        for line in (
            "ask q", "ask q --model openai/gpt-6-sol", "chat send hello", "research q", "search q",
            "decide x --yes-no y", "chat send more --chat-id 1",
            """embed index --source text --items [{"key":"k","text":"t"}]""",
        ):  # fmt: skip
            status, _, err = self.run_words(*line.split(), "--dry-run", env=env)
            self.assertEqual(status, 1 if "--chat-id" in line else 0, (line, err))
            self.assertEqual(b"It may cost up to $" in err, status == 0, err)
            self.assertEqual(self.fake.requests, [], line)
            self.assertEqual([*Path(self.folder.name).iterdir()], [], line)

    @unittest.skipUnless(POSIX, "signals of this kind are not there elsewhere")
    def test_a_signal_lets_the_answer_come_that_is_paid_for(self) -> None:
        for signals in (["SIGINT"], ["SIGTERM"], ["SIGHUP"], ["SIGINT", "SIGTERM"]):
            gate = self.fake.hold("POST /v1/agent")
            count = len(self.fake.requests)
            with self.start("ask", "hello there") as process:
                self.fake.wait_for("POST /v1/agent", count + 1)
                for name in signals:
                    process.send_signal(getattr(signal, name))
                    assert process.stderr
                    if name == signals[0]:
                        self.assertIn(b"already paid for", process.stderr.readline())
                gate.set()
                out, err = process.communicate(timeout=WAIT_S)
            self.assertEqual(process.returncode, 128 + getattr(signal, signals[0]), err)
            self.assertIn(b'You asked "hello there"', out, signals)
        _, out, _ = self.run_words("usage", "--json")
        self.assertEqual(json.loads(out)["totals"]["errors"], 0)

    @unittest.skipUnless(POSIX, "signals of this kind are not there elsewhere")
    def test_two_signals_at_once_let_it_come_as_well(self) -> None:
        for name in ("SIGTERM", "SIGHUP"):
            gate = self.fake.hold("POST /v1/agent")
            count = len(self.fake.requests)
            with self.start("ask", "hello there") as process:
                self.fake.wait_for("POST /v1/agent", count + 1)
                process.send_signal(signal.SIGSTOP)  # so that it finds both when it goes on
                for number in (signal.SIGINT, getattr(signal, name), signal.SIGCONT):
                    process.send_signal(number)
                assert process.stderr
                self.assertIn(b"already paid for", process.stderr.readline())
                gate.set()
                out, err = process.communicate(timeout=WAIT_S)
            self.assertIn(process.returncode, {130, 128 + getattr(signal, name)}, err)
            self.assertIn(b'You asked "hello there"', out, name)

    @unittest.skipUnless(POSIX, "signals of this kind are not there elsewhere")
    def test_the_same_signal_twice_ends_at_once_and_where_nothing_is_paid_one_does(self) -> None:
        gate = self.fake.hold("POST /v1/agent")
        with self.start("ask", "q") as process:
            self.fake.wait_for("POST /v1/agent", 1)
            process.send_signal(signal.SIGTERM)
            assert process.stderr
            self.assertIn(b"already paid for", process.stderr.readline())
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=5)
        gate.set()
        self.assertEqual((process.returncode, out), (143, b""), err)
        self.assertRegex(err, rb"usage|job \d+ is kept")
        self.fake.run_script("in_progress")
        with self.start("research", "q", "--wait") as process:
            self.fake.wait_for("GET /v1/agent/{id}", 1)
            process.send_signal(signal.SIGHUP)
            out, err = process.communicate(timeout=5)
        self.assertEqual(process.returncode, 129)
        self.assertRegex(err, rb": perplexity-pro jobs result \d+ --wait")

    def test_a_reader_that_leaves_early_is_no_error(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        process = self.start("ask", "q", stdout=writer)
        os.close(writer)
        with process:
            _, err = process.communicate(timeout=WAIT_S)
        self.assertEqual((process.returncode, err), (0, b""))

    @unittest.skipUnless(Path("/dev/full").exists(), "needs /dev/full")
    def test_a_full_device_is_1_with_a_line_that_names_the_kept_answer(self) -> None:
        with Path("/dev/full").open("wb") as full:
            status, _, err = self.run_words("ask", "q", stdout=full)
            self.assertEqual(status, 1)
            self.assertIn(b"cannot write standard output: No space left on device; the answer", err)
            status, _, err = self.run_words("--help", stdout=full)
            self.assertEqual((status, err.count(b"\n")), (1, 1))
        status, out, _ = self.run_words("jobs", "result", "1")
        self.assertEqual(status, 0)
        self.assertIn(b"You asked", out)

    def interrupted(self, route: str, *words: str) -> tuple[int, bytes, bytes]:
        """Press Ctrl-C once a request has arrived, and read what was left."""
        with self.start(*words) as process:
            self.fake.wait_for(route, 1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=WAIT_S)
        self.assertNotIn(b"Traceback", err)
        return process.returncode, out, err

    @unittest.skipUnless(POSIX, "Ctrl-C cannot be sent to one process elsewhere")
    def test_ctrl_c_during_a_wait_names_the_job_and_the_way_back(self) -> None:
        self.fake.run_script("in_progress")
        route = "GET /v1/agent/{id}"
        status, out, err = self.interrupted(route, "research", "q", "--wait", "--json")
        self.assertEqual((status, out), (130, b""))
        self.assertIn(b": perplexity-pro jobs result 1 --wait", err)
        self.fake.finish_all()
        status, out, _ = self.run_words("jobs", "result", "1", "--wait", "--json")
        self.assertEqual((status, json.loads(out)["status"]), (0, "completed"))

    @unittest.skipUnless(POSIX, "needs a pseudo terminal")
    def test_ctrl_c_in_the_middle_of_a_stream_is_130_without_a_traceback(self) -> None:
        import pty

        gate = threading.Event()
        self.fake.script("POST /v1/agent", streamed(delta("Once upon "), gate, delta("a time")))
        ours, theirs = pty.openpty()
        process = self.start("ask", "q", stdout=theirs, stderr=theirs, stdin=theirs)
        os.close(theirs)
        seen = b""
        with process:
            while b"Once upon" not in seen:
                seen += os.read(ours, 1000)
            process.send_signal(signal.SIGINT)
            while b"already paid for" not in seen:  # a width of 0 is none: the line is not broken
                seen += os.read(ours, 1000)
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # the terminal's end, as Linux puts it
                while chunk := os.read(ours, 1000):
                    seen += chunk
            self.assertEqual(process.wait(WAIT_S), 130)
        os.close(ours)
        gate.set()
        self.assertNotIn(b"Traceback", seen)
        self.assertIn(b"Once upon\r\nWaiting", seen)
        self.assertIn(b"Stopped", seen)

    @unittest.skipUnless(POSIX, "needs a pseudo terminal")
    def test_what_was_typed_ahead_answers_no_question(self) -> None:
        import pty

        self.run_words("chat", "send", "hello")
        ours, theirs = pty.openpty()
        os.write(ours, b"y\n")
        process = self.start("chat", "delete", "1", stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        seen = b""
        with process:
            while b"[y/N] " not in seen:
                seen += os.read(ours, 1000)
            os.write(ours, b"\n")
            with contextlib.suppress(OSError):  # the terminal's end, as Linux puts it
                while chunk := os.read(ours, 1000):
                    seen += chunk
            process.wait(WAIT_S)
        os.close(ours)
        self.assertIn(b"Nothing was done.", seen)

    def test_json_goes_into_the_file_that_is_named(self) -> None:
        file = Path(self.folder.name, "answer.json")
        for words in (["ask", "q"], ["research", "q", "--wait"], ["research", "fresh"]):
            status, out, err = self.run_words(*words, "--json", "-o", str(file))
            self.assertEqual((status, out), (0, b""), err)
            self.assertIn("status", json.loads(file.read_text("utf-8")), words)
            file.unlink()

    @unittest.skipUnless(POSIX, "needs a pseudo terminal")
    def test_without_words_a_terminal_gets_a_page_that_says_both(self) -> None:
        import pty

        ours, theirs = pty.openpty()
        status, out, err = self.run_words(stdin=theirs)
        os.close(theirs)
        os.close(ours)
        self.assertEqual(status, 0)
        self.assertIn(b"An MCP server, when", out)
        self.assertIn(b"perplexity-pro ask", out)
        self.assertIn(b"perplexity-pro serve", err)

    @unittest.skipUnless(POSIX, "needs a pseudo terminal")
    def test_a_terminal_that_lacks_characters_shows_their_numbers(self) -> None:
        import pty

        ours, theirs = pty.openpty()
        env = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
        process = self.start("ask", "caf\u00e9", stdin=theirs, stdout=theirs, env=env)
        os.close(theirs)
        seen = b""
        with process:
            with contextlib.suppress(OSError):
                while chunk := os.read(ours, 1000):
                    seen += chunk
            self.assertEqual(process.wait(WAIT_S), 0)
        os.close(ours)
        self.assertIn(rb"caf\xe9", seen)

    def test_without_words_a_pipe_gets_the_server(self) -> None:
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for words in ((), ("serve",)):
            status, out, err = self.run_words(*words, input=json.dumps(message).encode() + b"\n")
            self.assertEqual((status, err), (0, b""))
            self.assertEqual(json.loads(out)["id"], 1)

    def test_help_survives_a_home_that_is_none(self) -> None:
        env = {"HOME": "/proc/1", "PERPLEXITY_DATA_DIR": "", "PERPLEXITY_API_KEY": ""}
        for words in (("--help",), ("--version",), ("help", "ask")):
            status, out, err = self.run_words(*words, env=env)
            self.assertEqual((status, err), (0, b""))
            self.assertTrue(out)

    def test_importing_the_module_does_nothing(self) -> None:
        code = (
            f"{IMPORT}import threading\n"
            "print(threading.active_count(), sys.stdout is sys.__stdout__, len(sys.argv))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, timeout=WAIT_S,
            env={**self.environ, "HOME": self.folder.name}, cwd=self.folder.name,
        )  # fmt: skip
        self.assertEqual((done.stdout, done.stderr), (b"1 True 1\n", b""))
        self.assertEqual(list(Path(self.folder.name).iterdir()), [])


if __name__ == "__main__":
    unittest.main()
