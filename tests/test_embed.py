"""perplexity_embed: what is sent, what is stored, what is found, and what it costs."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import random
import re
import shutil
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

from fake_perplexity import Answer, FakePerplexity, Seen
from support import (
    IMPORT,
    ROOT,
    WAIT_S,
    Background,
    Desk,
    inserted,
    new_chat,
    plain_cosine,
    pro,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUTE = "POST /v1/embeddings"
SMALL = "pplx-embed-v1-0.6b"
LARGE = "pplx-embed-v1-4b"
SMALLEST = pro.Combination(SMALL, 128, "int8")
KEYS = [
    "action", "project", "warnings", "latency_ms", "embedded_chunks", "embedded_items",
    "skipped_items", "remaining", "requests", "input_tokens", "cost_usd", "cost_source",
    "calls_cost_unknown", "candidates", "hits", "groups", "unindexed_chat", "unindexed_job",
    "removed", "untrusted",
]  # fmt: skip
BAKING = [
    ("sourdough", "Sourdough bread needs a live starter and a very hot oven."),
    ("baking", "To bake a loaf, mix flour, water and salt, and let the bread dough rise at home."),
    ("python", "Python asyncio lets a program run many tasks concurrently."),
    ("tasks", "An asyncio TaskGroup starts coroutines together."),
    ("volcano", "A volcano erupts when magma rises through the crust."),
]


def luck_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same numbers in every run, nothing secret


def items_of(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "text": text} for key, text in pairs]


def encoded(vector: bytes) -> str:
    return base64.b64encode(vector).decode()


def vectors_answer(*vectors: bytes, usage: Any = None) -> Answer:
    data = [{"index": at, "embedding": encoded(vector)} for at, vector in enumerate(vectors)]
    return Answer(200, {"data": data, "usage": usage or {"prompt_tokens": 3}})


class Purely(unittest.TestCase):
    def refusal(self, work: Callable[[], Any]) -> str:
        with self.assertRaises(pro.ToolError) as caught:
            work()
        return caught.exception.message

    def test_the_models_on_offer_are_those_with_a_size_and_a_price(self) -> None:
        self.assertEqual(list(pro.EMBED_SIZES), [SMALL, LARGE])
        self.assertEqual(list(pro.EMBED_PRICES), [SMALL, LARGE])
        fields = {field.name: field for field in pro.fields_of(pro.EmbedArgs)}
        self.assertEqual(fields["model"].shape.choices, (SMALL, LARGE))

    def test_a_refused_entry_is_named_by_its_place(self) -> None:
        good = {"key": "a", "text": "b"}
        second = "; entry 2 is not so."
        text_rule = f"items: each text is a string of at most 100000 characters{second}"
        key_rule = f"items: each key is a non-blank string of at most 128 characters{second}"
        cases: list[tuple[dict[str, Any], str]] = [
            ({"key": "b", "text": "x" * 100_001}, text_rule),
            ({"key": "b", "text": 7}, text_rule),
            ({"key": "  ", "text": "x"}, key_rule),
            ({"key": "k" * 129, "text": "x"}, key_rule),
            ({"key": 7, "text": "x"}, key_rule),
            ({"key": "b"}, text_rule),
            ({}, text_rule),
            (good, f"items: each key is used once{second}"),
        ]
        given: Any = {"action": "index", "source": "text"}
        declared = pro.TOOLS["perplexity_embed"]

        def read(*entries: Any) -> Any:
            return pro.read_arguments(declared, {**given, "items": list(entries)}).items

        for entry, said in cases:
            self.assertEqual(self.refusal(lambda: read(good, entry)), said)  # noqa: B023 - called at once
        named = {entry["key"] for key in ("", None) for entry in read({"key": key, "text": "x"})}
        self.assertEqual(named, {entry["key"] for entry in read({"text": "x"})})
        self.assertEqual(read({**good, "lang": "en"})[0]["key"], "a")
        longest = {"key": "k" * 128, "text": "x" * 100_000}
        self.assertEqual([item["key"] for item in read(good, longest)], ["a", "k" * 128])

    def test_vectors_are_placed_by_their_index(self) -> None:
        rows = [bytes([n]) * 128 for n in (7, 8, 200)]
        data = [{"index": at, "embedding": encoded(rows[at])} for at in (2, 0, 1)]
        self.assertEqual(pro.read_vectors({"data": data}, ["a", "b", "c"], SMALLEST), rows)

    def test_signed_bytes_and_packed_bits_come_out_as_they_were_sent(self) -> None:
        signed = bytes(value % 256 for value in (-128, -1, 0, 127)) * 32
        for size in (128, 1024):
            combination = pro.Combination(SMALL, size, "int8")
            body = {"data": [{"index": 0, "embedding": encoded(signed * (size // 128))}]}
            self.assertEqual(pro.read_vectors(body, ["a"], combination), [signed * (size // 128)])
            packed = bytes(range(size // 8))
            body = {"data": [{"index": 0, "embedding": encoded(packed)}]}
            binary = combination._replace(encoding="binary")
            self.assertEqual(pro.read_vectors(body, ["a"], binary), [packed])

    def test_a_reply_that_is_not_one_vector_a_text_is_refused_and_names_the_text(self) -> None:
        good = encoded(bytes(128))
        first, second = ({"index": at, "embedding": good} for at in (0, 1))
        cases: list[tuple[Any, str]] = [
            ([first], "no vector for two"),
            ([], "no vector for one"),
            (None, "no vector for one"),
            ([first, second, second], "two vectors for two"),
            ([first, {"index": 2, "embedding": good}], "none of 2 texts"),
            ([first, {"index": True, "embedding": good}], "none of 2 texts"),
            ([first, {"index": "1", "embedding": good}], "none of 2 texts"),
            ([first, {"embedding": good}], "none of 2 texts"),
            ([first, 5], "none of 2 texts"),
            ([first, {"index": -1, "embedding": good}], "none of 2 texts"),
            ([first, {"index": 10**30, "embedding": good}], "none of 2 texts"),
            ([first, {"index": 1, "embedding": encoded(bytes(127))}], "two: The vector has 127"),
            ([first, {"index": 1, "embedding": encoded(bytes(1024))}], "two: The vector has 1024"),
            ([first, {"index": 1, "embedding": good[:-4] + "!!!!"}], "two: The vector is not va"),
            ([first, {"index": 1, "embedding": [0] * 128}], "two: The vector is not base64 text"),
            ([first, {"index": 1}], "two: The vector is not base64 text"),
        ]
        for data, said in cases:
            for body in ({"data": data}, {"data": data, "usage": None}):
                refused = self.refusal(lambda: pro.read_vectors(body, ["one", "two"], SMALLEST))  # noqa: B023 - called at once
                self.assertIn(said, refused)
        others: tuple[Any, ...] = (None, [], "text", 7, {"data": {"0": good}})
        for body in others:
            self.refusal(lambda: pro.read_vectors(body, ["one"], SMALLEST))  # noqa: B023 - called at once


class EmbedTest(unittest.TestCase):
    """A fake, a data folder, and a runtime between them."""

    def setUp(self) -> None:
        self.fake = self.enterContext_(FakePerplexity())
        self.folder = self.enterContext_(tempfile.TemporaryDirectory())
        self.path = Path(self.folder) / "data" / "perplexity.db"
        self.runtime = self.new_runtime()

    def enterContext_(self, context: Any) -> Any:  # noqa: N802 - Python 3.10 lacks the method
        entered = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return entered

    def new_runtime(self, **settings: Any) -> pro.Runtime:
        desk = Desk(self.fake, self.folder, PERPLEXITY_MAX_ATTEMPTS="1")
        runtime = pro.Runtime(desk.settings._replace(busy_timeout_s=WAIT_S)._replace(**settings))
        self.addCleanup(runtime.close)
        self.addCleanup(self.land, runtime)
        return runtime

    @staticmethod
    def land(runtime: pro.Runtime) -> None:
        assert runtime.settle(WAIT_S)
        with runtime.vectors._lock:
            pass

    def call(self, runtime: pro.Runtime | None = None) -> pro.Call:
        return pro.Call(runtime or self.runtime, pro.TOOLS["perplexity_embed"])

    def outcome(self, runtime: pro.Runtime | None = None, **arguments: Any) -> pro.Outcome:
        call = self.call(runtime)
        outcome: pro.Outcome = Background(None, "embed", call=call, **arguments).join()
        return outcome

    def run_embed(self, runtime: pro.Runtime | None = None, **arguments: Any) -> dict[str, Any]:
        outcome = self.outcome(runtime, **arguments)
        self.assertIsNone(outcome.kind, outcome.text + outcome.detail)
        self.assertEqual(list(outcome.structured), KEYS)
        found = outcome.structured
        self.assertIsInstance(found, dict)
        return found

    def index(self, *pairs: tuple[str, str], **arguments: Any) -> dict[str, Any]:
        given = {"action": "index", "source": "text", "items": items_of(*pairs), **arguments}
        return self.run_embed(**given)

    def search(self, query: str, **arguments: Any) -> dict[str, Any]:
        return self.run_embed(action="search", query=query, **arguments)

    def bodies(self) -> list[dict[str, Any]]:
        return [seen.body for seen in self.fake.calls(*ROUTE.split())]

    def texts_sent(self) -> list[str]:
        return [text for body in self.bodies() for text in body["input"]]

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.path, timeout=WAIT_S)) as db, db:
            return db.execute(sql, values).fetchall()

    def events(self, columns: str = "status, cost_nano_usd, cost_source") -> list[tuple[Any, ...]]:
        return self.rows(f"SELECT {columns} FROM usage_events ORDER BY id")  # noqa: S608 - a test's own

    def chunks(self) -> list[tuple[Any, ...]]:
        sql = "SELECT ref, chunk_index, text FROM embedding_chunks ORDER BY ref, chunk_index"
        return self.rows(sql)

    def answer_with(self, change: Callable[[dict[str, Any]], Any]) -> Callable[[Seen], Answer]:
        """The fake's own reply, changed."""

        def reply(seen: Seen) -> Answer:
            answer = self.fake.default(seen)
            body = json.loads(json.dumps(answer.body))
            change(body)
            return Answer(200, body)

        return reply

    def new_chat(self, user: str, assistant: str, project: str = "default") -> int:
        with self.runtime.store.writing() as db:
            return new_chat(db, project, user, assistant)

    def new_job(self, text: str | None, status: str = "completed", **more: Any) -> int:
        with self.runtime.store.writing() as db:
            return inserted(
                db,
                "research_jobs",
                project="default",
                query="q",
                depth="medium",
                response_id=f"resp_{time.monotonic_ns()}",
                status=status,
                started_at="2026-05-01 10:00:00.000000",
                result_text=text,
                **more,
            )

    @contextlib.contextmanager
    def in_background(self, work: Callable[[], Any]) -> Iterator[list[Any]]:
        """Run work in a thread; what it returns or raises is in the list when the block ends."""
        ended: list[Any] = []

        def run() -> None:
            try:
                ended.append(work())
            except BaseException as error:  # noqa: BLE001 - handed to the test
                ended.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield ended
        thread.join(WAIT_S)
        self.assertFalse(thread.is_alive(), "the call did not end")


class Indexing(EmbedTest):
    def test_texts_are_indexed_and_the_reported_cost_is_exact(self) -> None:
        usage = {
            "prompt_tokens": 114,
            "total_tokens": 114,
            "cost": {"input_cost": 4.56e-7, "total_cost": 4.56e-7, "currency": "USD"},
        }
        self.fake.script(ROUTE, self.answer_with(lambda body: body.update(usage=usage)))
        outcome = self.outcome(
            action="index", source="text", items=items_of(*BAKING), project="oven"
        )
        found = outcome.structured
        self.assertEqual(list(found), KEYS)
        self.assertGreaterEqual(found.pop("latency_ms"), 0)
        self.assertTrue(found.pop("untrusted"))
        self.assertEqual(
            found,
            {
                **dict.fromkeys(KEYS[13:-1]),
                "action": "index",
                "project": "oven",
                "warnings": ["Filed under oven (new project)."],
                "embedded_chunks": 5,
                "embedded_items": 5,
                "skipped_items": 0,
                "remaining": 0,
                "requests": 1,
                "input_tokens": 114,
                "cost_usd": "0.000000456",
                "cost_source": "reported",
                "calls_cost_unknown": 0,
            },
        )
        self.assertEqual(
            outcome.text,
            "Indexed 5 chunks of 5 items (0 skipped, 0 chunks remaining) in 1 request.\n"
            "Warning: Filed under oven (new project).\n"
            "Usage: 114 tokens, cost 0.000000456 USD (reported), project oven.",
        )
        self.assertEqual(
            self.events("tool, api, status, model, project_name, cost_nano_usd, cost_source"),
            [("perplexity_embed", "embeddings", "ok", SMALL, "oven", 456, "reported")],
        )
        texts = [text for _, text in BAKING]
        wanted = {"model": SMALL, "input": texts, "encoding_format": "base64_int8"}
        self.assertEqual(self.bodies(), [wanted])
        kept = [(f"t:{key}", 0, text) for key, text in sorted(BAKING)]
        self.assertEqual(self.chunks(), kept)

    def test_only_a_size_other_than_the_full_one_is_sent(self) -> None:
        for model, full in ((SMALL, 1024), (LARGE, 2560)):
            self.index(("a", "a"), model=model, dimensions=full, encoding="binary")
            wanted = {"model": model, "input": ["a"], "encoding_format": "base64_binary"}
            self.assertEqual(self.bodies()[-1], wanted)
            self.index(("a", "a"), model=model, dimensions=256)
            body = self.bodies()[-1]
            self.assertEqual((body["dimensions"], body["encoding_format"]), (256, "base64_int8"))

    def test_unchanged_texts_cost_nothing(self) -> None:
        self.index(*BAKING)
        outcome = self.outcome(action="index", source="text", items=items_of(*BAKING))
        self.assertEqual(
            outcome.text,
            "Indexed 0 chunks of 0 items (5 skipped, 0 chunks remaining) in 0 requests.",
        )
        found = outcome.structured
        self.assertEqual((found["requests"], found["latency_ms"]), (0, 0))
        self.assertEqual((found["cost_usd"], found["cost_source"]), (None, None))
        self.assertEqual((found["input_tokens"], found["calls_cost_unknown"]), (0, 0))
        self.assertEqual(len(self.events()), 1)
        self.assertEqual(len(self.bodies()), 1)

    def test_unchanged_texts_need_no_key(self) -> None:
        self.index(*BAKING)
        keyless = self.new_runtime(key=None)
        found = self.run_embed(keyless, action="index", source="text", items=items_of(*BAKING))
        self.assertEqual(found["skipped_items"], 5)
        outcome = self.outcome(keyless, action="index", source="text", items=items_of(("n", "new")))
        self.assertEqual(outcome.kind, "authentication")

    def test_a_changed_text_replaces_all_chunks_of_its_key(self) -> None:
        self.index(("long", "a" * 9000), ("other", "stays"))
        found = self.index(("long", "short"), ("other", "stays"))
        self.assertEqual((found["embedded_chunks"], found["skipped_items"]), (1, 1))
        self.assertEqual(self.texts_sent()[4:], ["short"])
        self.assertEqual(self.chunks(), [("t:long", 0, "short"), ("t:other", 0, "stays")])

    def test_an_unchanged_chunk_of_a_changed_text_is_not_paid_for_again(self) -> None:
        pages = [letter * 3000 for letter in "abcd"]
        self.index(("book", "\n\n".join(pages)))
        self.index(("book", "\n\n".join([pages[0], "e" * 3000, *pages[2:]])))
        self.assertEqual(self.texts_sent()[4:], ["e" * 3000])
        found = self.index(("book", "\n\n".join([pages[0], "e" * 3000])))
        self.assertEqual((found["requests"], found["skipped_items"]), (0, 1))
        kept = [("t:book", 0, pages[0]), ("t:book", 1, "e" * 3000)]
        self.assertEqual(self.chunks(), kept)

    def test_what_the_older_server_indexed_is_known_again(self) -> None:
        text = "word " * 3000
        rest, chunks = text, []
        while rest:
            end = rest[:4000].rfind(" ") if len(rest) > 4000 else 4000
            chunks.append(rest[:end].strip())
            rest = rest[end:]
        self.index(("plain", "x"))
        self.rows("DELETE FROM embedding_chunks")
        sql = """INSERT INTO embedding_chunks (project_id, source, ref, chunk_index, text,
            text_hash, model, dimensions, encoding, vector, created_at) VALUES
            ((SELECT id FROM projects), 'text', 't:plain', ?, ?, ?, ?, 1024, 'int8', zeroblob(1024),
            '2026-10-11 10:00:00')"""
        for at, chunk in enumerate(chunks):
            self.rows(sql, at, chunk, hashlib.sha256(chunk.encode()).hexdigest(), SMALL)
        found = self.index(("plain", text))
        self.assertEqual((found["embedded_chunks"], found["skipped_items"]), (0, 1))

    def test_combinations_are_kept_apart_and_listed(self) -> None:
        self.index(*BAKING, project="oven")
        second = {"model": LARGE, "dimensions": 256, "encoding": "binary", "project": "oven"}
        found = self.index(*BAKING, **second)
        self.assertEqual(found["embedded_chunks"], 5)
        body = self.bodies()[1]
        self.assertEqual(
            (body["model"], body["dimensions"], body["encoding_format"]),
            (LARGE, 256, "base64_binary"),
        )
        outcome = self.outcome(action="status", project="oven")
        self.assertEqual(
            outcome.text,
            f"text: 5 chunks ({SMALL}, 1024, int8)\ntext: 5 chunks ({LARGE}, 256, binary)\n"
            "Not indexed: 0 chat messages, 0 jobs.",
        )
        groups = [tuple(group.values()) for group in outcome.structured["groups"]]
        wanted = [("text", SMALL, 1024, "int8", 5), ("text", LARGE, 256, "binary", 5)]
        self.assertEqual(groups, wanted)
        self.assertEqual(len(self.bodies()), 2)

    def test_messages_of_both_roles_are_indexed_and_blank_ones_are_not(self) -> None:
        self.new_chat("What is yeast?", "A fungus.")
        self.new_chat("Elsewhere", "Not here.", project="other")
        self.new_chat("And rye?", " \n ")
        status = self.run_embed(action="status")
        self.assertEqual((status["unindexed_chat"], status["unindexed_job"]), (3, 0))
        found = self.run_embed(action="index", source="chat")
        self.assertEqual(self.texts_sent(), ["What is yeast?", "A fungus.", "And rye?"])
        self.assertEqual((found["embedded_items"], found["embedded_chunks"]), (3, 3))
        self.assertEqual(self.run_embed(action="status")["unindexed_chat"], 0)
        other = self.run_embed(action="status", dimensions=128)
        self.assertEqual(other["unindexed_chat"], 3)

    def test_only_completed_reports_are_indexed(self) -> None:
        number = self.new_job("A long report")
        self.new_job("half", status="incomplete")
        self.new_job("an answer of a chat, which is there as a message", tool="perplexity_chat")
        self.new_job(None)
        self.new_job("  ")
        found = self.run_embed(action="index", source="job")
        self.assertEqual(self.texts_sent(), ["A long report"])
        self.assertEqual(found["embedded_items"], 1)
        hit = self.search("report", source="job")["hits"][0]
        self.assertEqual((hit["job_id"], hit["chat_id"], hit["key"]), (number, None, None))

    def test_a_deleted_chat_takes_its_vectors_along(self) -> None:
        chat = self.new_chat("one", "two")
        self.new_chat("three", "four")
        self.run_embed(action="index", source="chat")
        with self.runtime.store.writing() as db:
            db.execute("DELETE FROM chats WHERE id = ?", (chat,))
        self.assertEqual(self.run_embed(action="status")["groups"][0]["chunks"], 2)
        self.assertEqual({hit["text"] for hit in self.search("one")["hits"]}, {"three", "four"})

    def test_a_limit_makes_indexing_resumable_without_paying_twice(self) -> None:
        texts = [(f"k{n}", f"{n}" * 5000) for n in range(1, 6)]
        left = []
        for _ in range(3):
            found = self.index(*texts, limit=3)
            left.append((found["embedded_items"], found["remaining"], found["skipped_items"]))
        self.assertEqual(left, [(2, 6, 0), (2, 2, 2), (1, 0, 4)])
        sent = self.texts_sent()
        self.assertEqual((len(sent), len(set(sent))), (10, 10))

    def test_the_key_is_never_sent_or_stored_but_what_only_looks_like_one_is(self) -> None:
        example = "pplx-" + "a1B2" * 8
        self.new_chat(f"My key is {self.fake.key}!", f"Keys look like {example}.")
        self.run_embed(action="index", source="chat")
        self.index(("own", f"again {self.fake.key}"))
        wanted = ["My key is [redacted]!", f"Keys look like {example}.", "again [redacted]"]
        self.assertEqual(self.texts_sent(), wanted)
        self.assertEqual([text for _, _, text in self.chunks()], wanted)

    def test_the_key_in_an_old_chunk_is_not_shown(self) -> None:
        self.index(("a", "harmless"))
        leak = f"leak {self.fake.key}"
        self.rows("UPDATE embedding_chunks SET text = ?, ref = ?", leak, f"t:{leak}")
        outcome = self.outcome(action="search", query="harmless")
        hit = outcome.structured["hits"][0]
        self.assertEqual((hit["text"], hit["key"]), ("leak [redacted]", "leak [redacted]"))
        self.assertNotIn(self.fake.key, outcome.text)

    def test_a_text_longer_than_fifty_chunks_is_cut_and_said_so(self) -> None:
        text = "\n\n".join("word " * 300 for _ in range(66))
        with mock.patch.object(pro, "MAX_CHUNKS_PER_TEXT", 3):
            found = self.index(("whole book", text), ("fine", "short"))
        self.assertEqual(found["embedded_chunks"], 4)
        self.assertEqual(len(found["warnings"]), 1)
        self.assertIn("the first 3 chunks", found["warnings"][0])
        self.assertIn('key "whole book"', found["warnings"][0])
        self.assertNotIn("fine", found["warnings"][0])

    def test_too_many_chunks_for_a_project_are_refused_before_anything_is_sent(self) -> None:
        with mock.patch.object(pro, "MAX_STORED_CHUNKS", 5):
            self.index(*BAKING)
            refused = self.outcome(action="index", source="text", items=items_of(("six", "x")))
            self.assertEqual(refused.kind, "invalid_request")
            self.assertIn("6 chunks", refused.text)
            self.assertIn("5 are allowed. Delete some first", refused.text)
            self.assertEqual(len(self.bodies()), 1)
            # In place of a known text, in another combination or project there is room.
            self.assertEqual(self.index(("volcano", "changed"))["embedded_chunks"], 1)
            self.assertEqual(self.index(("six", "x"), dimensions=128)["embedded_chunks"], 1)
            self.assertEqual(self.index(("six", "x"), project="other")["embedded_chunks"], 1)

    def test_progress_is_reported_batch_by_batch(self) -> None:
        said: list[str] = []
        call = pro.Call(self.runtime, pro.TOOLS["perplexity_embed"], said.append)
        texts = items_of(*[(f"k{n}", f"text {n}") for n in range(70)])
        pro.run_tool(call, {"action": "index", "source": "text", "items": texts})
        self.assertEqual(said, ["Embedded 64 of 70 chunks", "Embedded 70 of 70 chunks"])

    def test_a_blank_text_is_left_out_and_named_and_takes_its_old_chunks_along(self) -> None:
        self.index(("notes/a.md", "was full"), ("b", "stays"))
        found = self.index(("notes/a.md", " \n"), ("b", "stays"), ("c", ""), ("d", "new"))
        self.assertEqual((found["embedded_items"], found["skipped_items"]), (1, 3))
        told = 'Left out, since their texts are blank: key "notes/a.md", key "c".'
        self.assertIn(told, found["warnings"])
        self.assertEqual(self.chunks(), [("t:b", 0, "stays"), ("t:d", 0, "new")])
        found = self.index(("e", ""))
        self.assertEqual((found["embedded_chunks"], found["remaining"]), (0, 0))
        self.assertIn('key "e"', found["warnings"][0])

    def test_nothing_to_index_is_no_failure(self) -> None:
        for source in ("chat", "job"):
            found = self.run_embed(action="index", source=source)
            self.assertEqual((found["embedded_chunks"], found["requests"]), (0, 0))
        self.assertEqual(self.rows("SELECT name FROM projects"), [])

    def test_a_project_that_never_was_is_refused_but_for_texts_that_are_given(self) -> None:
        self.index(("a", "b"), project="workshop")
        for given in (
            {"action": "index", "source": "chat"},
            {"action": "index", "source": "job"},
            {"action": "delete", "confirm": True},
            {"action": "search", "query": "b"},
            {"action": "status"},
        ):
            outcome = self.outcome(**given, project="worksop")
            self.assertEqual(outcome.kind, "not_found", given)
            self.assertIn("did you mean 'workshop'?", outcome.text)
        self.index(("a", "b"), project="new")
        names = [name for (name,) in self.rows("SELECT name FROM projects ORDER BY name")]
        self.assertEqual(names, ["new", "workshop"])


class Refusals(EmbedTest):
    def test_each_is_made_before_any_request_and_creates_no_project(self) -> None:
        one = items_of(("a", "b"))
        text = {"action": "index", "source": "text"}
        search = {"action": "search", "query": "x"}
        cases: list[tuple[dict[str, Any], str]] = [
            ({"action": "find"}, "action: must be one of index, search, status, delete"),
            ({}, "action: is required"),
            ({**text, "source": "web", "items": one}, "source: must be one of chat, job, text"),
            ({"action": "index", "items": one}, "source: is required for action index"),
            ({"action": "index"}, "source: is required for action index"),
            ({**text, "items": one, "model": "pplx-x"}, "model: must be one of"),
            ({**text, "items": one, "encoding": "float"}, "encoding: must be one of int8, binary"),
            (
                {**text, "items": one, "dimensions": 130},
                f"dimensions: must be a whole number from 128 to 1024 for {SMALL}, a multiple of",
            ),
            ({**text, "items": one, "dimensions": 2560}, "dimensions: must be"),
            ({**text, "items": one, "limit": 0}, "limit: must be a whole number from 1 to 2048"),
            ({**text, "items": one, "limit": 2049}, "limit: must be"),
            ({**text, "items": items_of(("a", "b")) * 2}, "items: each key is used once; entry 2"),
            ({**text, "items": [*one, "b"]}, "items: must be a list of objects"),
            ({**text, "items": "b"}, "items: must be a list of objects"),
            ({**text, "items": [{"key": "a"}]}, "items: each text is a string of at most"),
            ({**text}, "items: 1 to 100"),
            ({**text, "items": []}, "items: 1 to 100"),
            ({**text, "items": items_of(("a", "b")) * 101}, "items: must have at most 100 entries"),
            ({"action": "index", "source": "chat", "items": one}, "items: go with"),
            ({**search, "items": one}, "items: go with"),
            ({"action": "search"}, "query: is required"),
            ({"action": "search", "query": " \n"}, "query: is required"),
            ({**search, "query": "x" * 4001}, "query: must be at most 4000 characters"),
            ({**search, "top_k": 0}, "top_k: must be a whole number from 1 to 20"),
            ({**search, "top_k": 21}, "top_k: must be"),
            ({**search, "min_score": 1.01}, "min_score: must be a number from -1 to 1"),
            ({**search, "min_score": -2}, "min_score: must be"),
            ({**search, "project": "a/b"}, "project: must be"),
            ({"action": "status", "dimensions": 129}, "dimensions: must be"),
            ({"action": "delete", "dimensions": 2568, "confirm": True}, "dimensions: must be"),
            (
                {"action": "delete", "dimensions": 2048, "model": SMALL, "confirm": True},
                f"dimensions: must be a whole number from 128 to 1024 for {SMALL}",
            ),
        ]
        for arguments, said in cases:
            with self.subTest(said=said, arguments=str(arguments)[:100]):
                outcome = self.outcome(**arguments)
                self.assertEqual(outcome.kind, "invalid_request")
                self.assertTrue(outcome.structured["message"].startswith(said), outcome.text)
        self.assertEqual(self.fake.requests, [])
        self.run_embed(action="status")
        self.assertEqual(self.rows("SELECT name FROM projects"), [])

    def test_a_size_must_be_a_multiple_of_8_that_the_model_has(self) -> None:
        said = "dimensions: must be a whole number from 128 to {}, a multiple of 8."
        for model, full in ((SMALL, 1024), (LARGE, 2560)):
            for size in (130, 127, 120, 0, -8, full + 8, 10**18):
                refused = self.outcome(action="status", model=model, dimensions=size)
                words = said.format(f"{full} for {model}")
                self.assertEqual(refused.structured["message"].partition(" Call ")[0], words)
            for size in (128, 136, full):
                self.assertIsNone(self.outcome(action="status", model=model, dimensions=size).kind)
        refused = self.outcome(action="delete", dimensions=2568, confirm=True)
        self.assertIn(said.format(2560), refused.text)
        self.assertIsNone(self.outcome(action="delete", dimensions=2560, confirm=True).kind)

    def test_the_examples_are_valid(self) -> None:
        for example in pro.TOOLS["perplexity_embed"].examples:
            self.run_embed(**example)


class Batches(EmbedTest):
    """70 short texts go out as 64 and 6."""

    def test_a_batch_has_at_most_64_texts_and_100000_characters(self) -> None:
        cases = (
            ([1] * 100, "a", [64, 36]),
            ([4000] * 26, "a", [25, 1]),
            ([4000] * 24 + [3999, 1, 1], "a", [26, 1]),
            ([4000] * 12, "\u8a9e", [10, 2]),  # never more tokens than the API takes
        )
        for lengths, letter, sizes in cases:
            before = len(self.bodies())
            pairs = [(f"{letter}{n}", letter * length) for n, length in enumerate(lengths)]
            self.index(*pairs, project=f"p{before}")
            self.assertEqual([len(body["input"]) for body in self.bodies()[before:]], sizes)

    MANY = tuple((f"k{n:02d}", f"text number {n}") for n in range(70))

    def test_each_is_a_request_with_an_event_and_the_costs_add_up(self) -> None:
        found = self.index(*self.MANY)
        self.assertEqual([len(body["input"]) for body in self.bodies()], [64, 6])
        self.assertEqual((found["requests"], found["embedded_chunks"]), (2, 70))
        events = self.events()
        self.assertEqual([event[::2] for event in events], [("ok", "reported")] * 2)
        total = sum(event[1] for event in events)
        self.assertEqual(found["cost_usd"], pro.usd_text(total))
        self.assertEqual(total, found["input_tokens"] * 4)

    def test_what_was_stored_before_a_failure_stays_and_is_said(self) -> None:
        self.fake.script(ROUTE, self.fake.default, Answer(500, {"error": {"message": "boom"}}))
        outcome = self.outcome(action="index", source="text", items=items_of(*self.MANY))
        self.assertEqual(outcome.kind, "upstream_failure")
        self.assertIn("Stored before that, and kept: 64 chunks of 64 items", outcome.text)
        self.assertEqual(len(self.chunks()), 64)
        found = self.index(*self.MANY)
        self.assertEqual((found["embedded_items"], found["skipped_items"]), (6, 64))
        self.assertEqual(len(self.bodies()[2]["input"]), 6)

    def test_a_first_failure_says_nothing_of_stored_items(self) -> None:
        self.fake.script(ROUTE, Answer(429, {"error": {"message": "slow down"}}))
        outcome = self.outcome(action="index", source="text", items=items_of(*BAKING))
        self.assertEqual(outcome.kind, "rate_limited")
        self.assertNotIn("stored", outcome.text)
        self.assertEqual(self.events(), [("rate_limited", 0, "computed")])
        self.assertEqual(self.chunks(), [])

    def test_an_item_across_batches_goes_on_where_it_stopped(self) -> None:
        filler = ("filler", "x" * 80_000)
        book = ("book", "\n\n".join(str(n) * 3998 for n in range(6)))
        self.fake.script(ROUTE, self.fake.default, Answer(500, {}))
        outcome = self.outcome(action="index", source="text", items=items_of(filler, book))
        self.assertEqual(outcome.kind, "upstream_failure")
        self.assertIn("Stored before that, and kept: 25 chunks of 2 items", outcome.text)
        found = self.index(filler, book, ("short", "after it"))
        self.assertEqual((found["embedded_chunks"], found["embedded_items"]), (2, 2))
        self.assertEqual([len(body["input"]) for body in self.bodies()], [25, 1, 2])
        stored = [text for ref, _, text in self.chunks() if ref == "t:book"]
        self.assertEqual(stored, book[1].split("\n\n"))
        for text in stored:
            hit = self.search(text, top_k=1)["hits"][0]
            self.assertEqual((round(hit["score"], 9), hit["text"][:99]), (1.0, text[:99]))

    def test_a_reply_that_cannot_be_used_stores_nothing_of_its_batch_but_its_cost(self) -> None:
        def wrong(body: dict[str, Any]) -> None:
            next(e for e in body["data"] if e["index"] == 5)["embedding"] = encoded(bytes(7))

        self.fake.script(ROUTE, self.fake.default, self.answer_with(wrong))
        outcome = self.outcome(action="index", source="text", items=items_of(*self.MANY))
        self.assertEqual(outcome.kind, "unexpected_response")
        self.assertIn('key "k69": The vector has 7 bytes where 1024 were asked for', outcome.text)
        self.assertIn("Stored before that, and kept: 64 chunks of 64 items", outcome.text)
        self.assertEqual(len(self.chunks()), 64)
        first, second = self.events()
        self.assertEqual((first[0], second[0]), ("ok", "unexpected_response"))
        self.assertEqual(second[2], "reported")
        self.assertGreater(second[1], 0)

    def test_gaps_and_doubles_are_refused_too(self) -> None:
        changes: list[tuple[Callable[[list[Any]], Any], str]] = [
            (lambda data: data.pop(), "no vector for key"),
            (lambda data: data.append(data[0]), "two vectors for key"),
            (lambda data: data.clear(), 'no vector for key "sourdough"'),
        ]
        for change, said in changes:
            reply = self.answer_with(lambda body, change=change: change(body["data"]))  # type: ignore[misc]
            self.fake.script(ROUTE, reply)
            outcome = self.outcome(action="index", source="text", items=items_of(*BAKING))
            self.assertEqual(outcome.kind, "unexpected_response")
            self.assertIn(said, outcome.text)
        self.assertEqual(self.chunks(), [])
        self.assertEqual([event[0] for event in self.events()], ["unexpected_response"] * 3)

    def test_a_cost_that_is_missing_or_in_another_currency_is_computed(self) -> None:
        for usage in (
            {"prompt_tokens": 114},
            {"prompt_tokens": 114, "cost": {"total_cost": 9.0, "currency": "EUR"}},
            {"prompt_tokens": 114, "cost": {"total_cost": "0.1", "currency": "USD"}},
            {"prompt_tokens": 114, "cost": {"total_cost": -1, "currency": "USD"}},
        ):
            reply = self.answer_with(lambda body, usage=usage: body.update(usage=usage))  # type: ignore[misc]
            self.fake.script(ROUTE, reply)
            found = self.index(*BAKING)
            self.assertEqual((found["cost_usd"], found["cost_source"]), ("0.000000456", "computed"))
            self.run_embed(action="delete", confirm=True)
        usage = {"prompt_tokens": 114}
        self.fake.script(ROUTE, self.answer_with(lambda body: body.update(usage=usage)))
        found = self.index(*BAKING, model=LARGE)
        self.assertEqual((found["cost_usd"], found["cost_source"]), ("0.00000342", "computed"))

    def test_an_unreadable_usage_is_an_unknown_cost_and_never_zero(self) -> None:
        for usage in (None, {}, "x", {"prompt_tokens": "114"}, {"prompt_tokens": 10**30}):
            reply = self.answer_with(lambda body, usage=usage: body.update(usage=usage))  # type: ignore[misc]
            self.fake.script(ROUTE, reply)
            found = self.index(*BAKING)
            self.assertEqual((found["cost_usd"], found["cost_source"]), (None, "none"))
            self.assertEqual((found["calls_cost_unknown"], found["input_tokens"]), (1, None))
            self.run_embed(action="delete", confirm=True)

    def test_costs_of_different_sources_are_mixed(self) -> None:
        bare = self.answer_with(lambda body: body["usage"].pop("cost"))
        self.fake.script(ROUTE, self.fake.default, bare)
        found = self.index(*self.MANY)
        self.assertEqual(found["cost_source"], "mixed")
        self.assertEqual([event[2] for event in self.events()], ["reported", "computed"])
        unknown = self.answer_with(lambda body: body.pop("usage"))
        self.fake.script(ROUTE, self.fake.default, unknown)
        found = self.index(*self.MANY, dimensions=128)
        self.assertEqual((found["cost_source"], found["calls_cost_unknown"]), ("reported", 1))

    def test_no_further_batch_is_sent_when_the_time_is_nearly_used_up(self) -> None:
        with mock.patch.object(pro, "_BATCH_MARGIN_S", 1e6):
            found = self.index(*self.MANY)
            self.assertEqual((found["embedded_chunks"], found["remaining"]), (64, 6))
            self.assertEqual(len(self.bodies()), 1)
            self.assertIn("call again", found["warnings"][0])
            found = self.index(*self.MANY)
        self.assertEqual((found["embedded_chunks"], found["remaining"]), (6, 0))
        self.assertEqual(found["warnings"], [])

    def test_a_batch_that_took_longer_than_what_is_left_is_the_last(self) -> None:
        clock = mock.Mock(wraps=time.monotonic)
        self.enterContext_(mock.patch("perplexity_pro_mcp.time.monotonic", clock))

        def slow(seen: Seen) -> Answer:
            clock.side_effect = lambda: began + 40.0
            answer: Answer = self.fake.default(seen)
            return answer

        began = time.monotonic()
        self.fake.script(ROUTE, slow)
        found = self.index(*self.MANY)
        self.assertEqual((found["embedded_chunks"], found["requests"]), (64, 1))

    def test_a_deleted_project_keeps_the_spend_and_gets_back_no_chats(self) -> None:
        self.new_chat("one", "two", project="gone")
        gate = self.fake.hold(ROUTE)
        index: dict[str, Any] = {"action": "index", "source": "chat", "project": "gone"}
        with self.in_background(lambda: self.run_embed(**index)) as ended:
            self.fake.wait_for(ROUTE, 1)
            with self.runtime.store.writing() as db:
                db.execute("DELETE FROM projects WHERE name = 'gone'")
            gate.set()
        found = ended[0]
        self.assertEqual((found["embedded_items"], found["skipped_items"]), (0, 2))
        self.assertEqual(found["remaining"], 0)
        self.assertEqual(self.chunks(), [])
        self.assertEqual(self.events("status, project_name"), [("ok", "gone")])

    def test_nothing_more_is_sent_for_a_project_that_was_deleted_on_the_way(self) -> None:
        gate = self.fake.hold(ROUTE)
        with self.in_background(lambda: self.index(*self.MANY, project="gone")) as ended:
            self.fake.wait_for(ROUTE, 1)
            with self.runtime.store.writing() as db:
                pro.delete_project(db, "gone")
            gate.set()
        found = ended[0]
        self.assertEqual((found["embedded_items"], found["remaining"]), (0, 6))
        self.assertEqual(len(self.bodies()), 1)
        self.assertEqual(self.rows("SELECT name FROM projects WHERE name = 'gone'"), [])
        self.assertEqual(
            found["warnings"][-2:],
            [
                "Project 'gone' was deleted meanwhile, so nothing more was sent.",
                "Paid for, but not kept, since it was deleted meanwhile: 64 items.",
            ],
        )

    def test_a_chat_deleted_on_the_way_is_skipped(self) -> None:
        gone = self.new_chat("one", "two")
        self.new_chat("three", "four")
        gate = self.fake.hold(ROUTE)
        with self.in_background(lambda: self.run_embed(action="index", source="chat")) as ended:
            self.fake.wait_for(ROUTE, 1)
            with self.runtime.store.writing() as db:
                db.execute("DELETE FROM chats WHERE id = ?", (gone,))
            gate.set()
        found = ended[0]
        self.assertEqual((found["embedded_items"], found["skipped_items"]), (2, 2))
        self.assertEqual(found["remaining"], 0)
        self.assertEqual([text for *_, text in self.chunks()], ["three", "four"])

    def test_vectors_that_storage_refuses_are_kept_and_not_paid_for_again(self) -> None:
        impatient = self.new_runtime(busy_timeout_s=0.05)
        self.run_embed(impatient, action="status")
        gate = self.fake.hold(ROUTE)
        given = {"action": "index", "source": "text", "items": items_of(*self.MANY)}
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            with self.in_background(lambda: self.run_embed(impatient, **given)) as ended:
                self.fake.wait_for(ROUTE, 1)
                db.execute("BEGIN IMMEDIATE")
                gate.set()
            db.execute("ROLLBACK")
        found = ended[0]
        self.assertEqual((found["embedded_chunks"], found["remaining"]), (0, 70))
        self.assertIn("Not saved yet", found["warnings"][0])
        self.assertEqual(len(self.bodies()), 1)
        found = self.run_embed(impatient, **given)
        self.assertEqual((found["skipped_items"], found["embedded_chunks"]), (64, 6))
        sent = self.texts_sent()
        self.assertEqual(len(sent), len(set(sent)))
        self.assertEqual([event[0] for event in self.events()], ["ok", "ok"])


class Budgets(EmbedTest):
    def test_a_batch_is_estimated_by_its_bytes_and_refused_above_a_cap(self) -> None:
        text = "語" * 100
        for cap, kind in ((301 * 30 - 1, "budget_exceeded"), (301 * 30, None)):
            capped = self.new_runtime(caps=(("call", cap),))
            items = items_of(("k", text), ("l", "a"))
            given = {"action": "index", "source": "text", "items": items, "model": LARGE}
            self.assertEqual(self.outcome(capped, **given).kind, kind)
            self.assertEqual(len(self.bodies()), int(kind is None))

    def test_caps_and_the_question_are_about_all_batches_and_come_before_the_first(self) -> None:
        texts = items_of(*[(f"k{n}", f"{n} " * 2000) for n in range(60)])
        given = {"action": "index", "source": "text", "items": texts, "limit": 2048}
        for limits, kind in (
            ({"caps": (("call", 1_000_000),)}, "budget_exceeded"),
            ({"confirm_nano": 1_000_000}, "confirmation_required"),
        ):
            outcome = self.outcome(self.new_runtime(**limits), **given)
            self.assertEqual(outcome.kind, kind, outcome.text)
            self.assertEqual(self.bodies(), [])
        asked: list[str] = []

        def agrees(question: str) -> bool:
            asked.append(question)
            return True

        call = self.call(self.new_runtime(confirm_nano=1_000_000))
        call.ask_user = agrees
        self.assertIsNone(pro.run_tool(call, given).kind)
        self.assertGreater(len(self.bodies()), 1)
        self.assertEqual(len(asked), 1)
        billed = sum(cost for _, cost, _ in self.events())
        told_usd = float(re.findall(r"up to \$([\d.]+\d)", asked[0])[0])
        self.assertGreaterEqual(told_usd * 1e9, billed)

    def test_half_a_character_is_refused_and_not_billed(self) -> None:
        for entry in (("a", "a\ud800b"), ("\ud800", "text")):
            outcome = self.outcome(action="index", source="text", items=items_of(entry))
            self.assertEqual(outcome.kind, "invalid_request")
        self.assertEqual(self.bodies(), [])

    def test_an_index_whose_project_is_deleted_on_the_way_keeps_only_the_spend(self) -> None:
        self.index(("a", "b"), project="gone")
        gate = self.fake.hold(ROUTE)
        given = {"project": "gone"}
        with self.in_background(lambda: self.index(("c", "d"), **given)) as ended:
            self.fake.wait_for(ROUTE, 2)
            with self.runtime.store.writing() as db:
                db.execute("DELETE FROM projects WHERE name = 'gone'")
            gate.set()
        self.assertEqual((ended[0]["embedded_chunks"], ended[0]["remaining"]), (0, 0))
        self.assertEqual(self.chunks(), [])
        self.assertEqual(self.rows("SELECT name FROM projects WHERE name = 'gone'"), [])
        self.assertEqual(self.events("status, project_name"), [("ok", "gone")] * 2)


class Turns(EmbedTest):
    def test_two_calls_on_one_project_wait_for_each_other(self) -> None:
        gate = self.fake.hold(ROUTE)
        with self.in_background(lambda: self.index(*BAKING)) as first:
            self.fake.wait_for(ROUTE, 1)
            with self.in_background(lambda: self.index(*BAKING)) as second:
                self.run_embed(action="status")
                self.assertEqual((first, second), ([], []))
                gate.set()
        self.assertEqual((first[0]["embedded_items"], second[0]["embedded_items"]), (5, 0))
        self.assertEqual(second[0]["skipped_items"], 5)
        self.assertEqual(len(self.bodies()), 1)

    def test_other_texts_of_the_project_do_not_wait(self) -> None:
        gate = self.fake.hold(ROUTE)
        with self.in_background(lambda: self.index(*BAKING[:3])) as first:
            self.fake.wait_for(ROUTE, 1)
            with self.in_background(lambda: self.index(*BAKING)) as second:
                self.fake.wait_for(ROUTE, 2)
                gate.set()
        self.assertEqual((first[0]["embedded_items"], second[0]["embedded_items"]), (3, 2))
        self.assertEqual((second[0]["skipped_items"], second[0]["remaining"]), (3, 0))
        self.assertEqual(len(self.texts_sent()), 5)

    def test_what_a_dead_process_had_on_its_way_is_embedded_once_its_mark_is_old(self) -> None:
        self.index(("a", "b"))
        mark = "UPDATE observer_lease SET until = ?"
        self.fake.script(ROUTE, Answer(500, {}))
        self.outcome(action="index", source="text", items=items_of(("c", "d")))
        self.assertEqual(self.rows("SELECT * FROM observer_lease"), [])  # a refusal leaves none
        gate = self.fake.hold(ROUTE)
        hurried = self.new_runtime(wait_s=1.5)
        given = {"action": "index", "source": "text", "items": items_of(("c", "d"))}
        self.outcome(hurried, **given)
        self.rows(mark, time.time() - 1)
        with self.in_background(lambda: self.index(("c", "d"))) as ended:
            self.fake.wait_for(ROUTE, 4)
            gate.set()
        self.assertEqual(ended[0]["embedded_items"], 1)

    def test_calls_on_other_projects_do_not_wait(self) -> None:
        gate = self.fake.hold(ROUTE)
        with self.in_background(lambda: self.index(*BAKING)):
            self.fake.wait_for(ROUTE, 1)
            with self.in_background(lambda: self.index(*BAKING, project="other")):
                self.fake.wait_for(ROUTE, 2)
                gate.set()

    def test_a_call_that_waits_can_be_cancelled(self) -> None:
        gate = self.fake.hold(ROUTE)
        waiting = self.call()
        given = {"action": "index", "source": "text", "items": items_of(*BAKING)}
        with self.in_background(lambda: self.index(*BAKING)):
            self.fake.wait_for(ROUTE, 1)
            with self.in_background(lambda: pro.run_tool(waiting, given)) as ended:
                waiting.cancel()
            self.assertIsInstance(ended[0], pro.Cancelled)
            gate.set()
        self.assertEqual(self.index(*BAKING)["skipped_items"], 5)

    def test_a_call_that_waits_too_long_says_so(self) -> None:
        gate = self.fake.hold(ROUTE)
        hurried = self.new_runtime(wait_s=0.2)
        given = {"action": "index", "source": "text", "items": items_of(*BAKING)}
        with self.in_background(lambda: self.index(*BAKING)):
            self.fake.wait_for(ROUTE, 1)
            outcome = self.outcome(hurried, **given)
            gate.set()
        self.assertEqual(outcome.kind, "storage_busy")
        self.assertIn("still indexing project 'default'", outcome.text)
        self.assertEqual(len(self.bodies()), 1)

    def test_a_batch_that_outlives_its_call_is_stored_once_and_awaited_by_the_next(self) -> None:
        hurried = self.new_runtime(wait_s=1.0)
        gate = self.fake.hold(ROUTE)
        given = {"action": "index", "source": "text", "items": items_of(*BAKING)}
        found = self.run_embed(hurried, **given)
        self.assertEqual((found["embedded_chunks"], found["remaining"]), (0, 5))
        self.assertEqual((found["requests"], found["calls_cost_unknown"]), (1, 1))
        self.assertEqual((found["cost_usd"], found["cost_source"]), (None, "none"))
        self.assertIn("Not stored yet: 5 chunks.", found["warnings"][0])
        self.assertEqual(self.events("status"), [("interrupted",)])
        self.assertEqual(self.outcome(hurried, **given).kind, "storage_busy")
        with self.in_background(lambda: self.index(*BAKING)) as ended:
            gate.set()
        self.assertEqual((ended[0]["embedded_items"], ended[0]["skipped_items"]), (0, 5))
        self.assertEqual(len(self.bodies()), 1)
        self.assertEqual([event[::2] for event in self.events()], [("ok", "reported")])
        self.assertEqual(self.rows("SELECT count(*) FROM research_jobs"), [(0,)])

    def test_a_cancelled_batch_is_stored_all_the_same_and_leaves_no_job(self) -> None:
        gate = self.fake.hold(ROUTE)
        call = self.call()
        given = {"action": "index", "source": "text", "items": items_of(*BAKING)}
        with self.in_background(lambda: pro.run_tool(call, given)) as ended:
            self.fake.wait_for(ROUTE, 1)
            call.cancel()
        self.assertIsInstance(ended[0], pro.Cancelled)
        hurried = self.new_runtime(wait_s=0.2)
        self.assertEqual(self.outcome(hurried, **given).kind, "storage_busy")
        with self.in_background(lambda: self.index(*BAKING)) as after:
            gate.set()
        self.assertEqual((after[0]["embedded_items"], after[0]["skipped_items"]), (0, 5))
        self.assertEqual(len(self.bodies()), 1)
        self.assertEqual(self.rows("SELECT count(*) FROM research_jobs"), [(0,)])

    def test_two_processes_embed_every_text_once(self) -> None:
        child = f"""
import json
{IMPORT}
settings = pro.Settings(key=sys.argv[1], base_url=sys.argv[2], data_dir=sys.argv[3],
                        busy_timeout_s=30)
runtime = pro.Runtime(settings)
print("ready", flush=True)
items = json.loads(sys.stdin.readline())
call = pro.Call(runtime, pro.TOOLS["perplexity_embed"])
outcome = pro.run_tool(call, {{"action": "index", "source": "text", "items": items}})
print(json.dumps(outcome.structured), flush=True)
"""
        self.run_embed(action="status")  # makes the file, which is not the subject here
        texts = [(f"k{n}", f"{n:05d}" * 1010) for n in range(75)]
        folder = str(self.path.parent)
        arguments = [sys.executable, "-c", child, self.fake.key, self.fake.url, folder]
        children = [
            subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        gate = self.fake.hold(ROUTE)
        for process in children:
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)  # the last added is done first
            assert process.stdout
            self.assertEqual(process.stdout.readline(), "ready\n")
        for process in children:
            assert process.stdin
            process.stdin.write(json.dumps(items_of(*texts)) + "\n")
            process.stdin.flush()
        self.fake.wait_for(ROUTE, 1)
        gate.set()
        said = [json.loads(process.communicate(timeout=WAIT_S)[0]) for process in children]
        self.assertEqual(sum(found["embedded_chunks"] for found in said), 150)
        self.assertEqual([found["remaining"] for found in said], [0, 0])
        chunks = self.chunks()
        self.assertEqual(len(chunks), 150)
        self.assertEqual(len({chunk[:2] for chunk in chunks}), 150)
        self.assertEqual(len(self.events()), len(self.bodies()))
        sent = self.texts_sent()
        self.assertEqual((len(sent), len(set(sent))), (150, 150))
        again = self.index(*texts)
        self.assertEqual((again["skipped_items"], again["requests"]), (75, 0))


class SearchTest(EmbedTest):
    """Vectors of one's own making, stored and searched for."""

    def put(self, vectors: list[bytes], combination: pro.Combination = SMALLEST) -> None:
        """Store vectors under the texts row 0, row 1, ..."""
        with self.runtime.store.writing() as db:
            db.execute("INSERT OR IGNORE INTO projects (name) VALUES ('default')")
            sql = """REPLACE INTO embedding_chunks (project_id, source, ref, chunk_index, text,
                text_hash, vector, created_at, model, dimensions, encoding) VALUES
                ((SELECT id FROM projects WHERE name = 'default'),
                'text', ?, 0, ?, '', ?, '', ?, ?, ?)"""
            for row, vector in enumerate(vectors):
                db.execute(sql, (f"t:{row}", f"row {row}", vector, *combination))

    def found(self, query: bytes, **arguments: Any) -> list[tuple[float, str]]:
        """Search for a vector, by way of the whole tool."""
        self.fake.script(ROUTE, vectors_answer(query))
        hits = self.search("anything", **{"dimensions": 128, **arguments})["hits"]
        return [(hit["score"], hit["key"]) for hit in hits]


class Searching(SearchTest):
    def test_the_best_come_first_with_all_their_keys(self) -> None:
        self.index(*BAKING, project="oven")
        outcome = self.outcome(
            action="search", query="how do I bake bread at home", top_k=3, project="oven"
        )
        found = outcome.structured
        self.assertEqual(list(found), KEYS)
        self.assertEqual((found["candidates"], found["requests"]), (5, 1))
        self.assertEqual(found["hits"][0]["key"], "baking")
        self.assertEqual(len(found["hits"]), 3)
        self.assertEqual(
            list(found["hits"][0]),
            ["score", "source", "chunk_index", "text", "chat_id", "message_id", "job_id", "key"],
        )
        self.assertEqual(found["hits"][0]["text"], BAKING[1][1])
        scores = [hit["score"] for hit in found["hits"]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        for key in KEYS[4:8] + KEYS[15:19]:
            self.assertIsNone(found[key], key)
        lines = outcome.text.splitlines()
        self.assertRegex(lines[1], r"^<untrusted-web-content-[0-9a-f]{16}>$")
        self.assertEqual(lines[2], f'1. {scores[0]:.4f} key "baking", chunk 0: {BAKING[1][1]}')
        usage = r"^Usage: \d+ tokens, cost 0\.\d+ USD \(reported\), project oven\.$"
        self.assertRegex(lines[-1], usage)
        wanted = [("perplexity_embed", "embeddings", "ok")]
        self.assertEqual(self.events("tool, api, status")[1:], wanted)

    def test_hits_of_chats_and_jobs_name_where_they_come_from(self) -> None:
        chat = self.new_chat("What is rye?", "Rye is a cereal.")
        job = self.new_job("Rye is grown in Poland.")
        for source in ("chat", "job"):
            self.run_embed(action="index", source=source)
        outcome = self.outcome(action="search", query="rye")
        hits = {hit["text"]: hit for hit in outcome.structured["hits"]}
        messages = [number for (number,) in self.rows("SELECT id FROM chat_messages ORDER BY id")]
        hit = hits["Rye is a cereal."]
        where = (hit["source"], hit["chat_id"], hit["message_id"], hit["job_id"], hit["key"])
        self.assertEqual(where, ("chat", chat, messages[1], None, None))
        hit = hits["Rye is grown in Poland."]
        where = (hit["source"], hit["chat_id"], hit["message_id"], hit["job_id"], hit["key"])
        self.assertEqual(where, ("job", None, None, job, None))
        where_text = f"chat {chat}, message {messages[1]}, chunk 0"
        self.assertIn(f"{where_text}: Rye is a cereal.", outcome.text)
        self.assertIn(f"job {job}, chunk 0: Rye is grown", outcome.text)

    def test_the_ranking_is_that_of_the_plain_definition(self) -> None:
        luck = luck_of(4)
        rows = [luck.randbytes(128) for _ in range(60)] + [bytes(128), b"\x80" * 128, b"\x7f" * 128]
        self.put(rows)
        for query in [luck.randbytes(128) for _ in range(100)] + rows[-3:]:
            scores = [plain_cosine(query, row) for row in rows]
            best = sorted(range(len(rows)), key=lambda row: -scores[row])[:20]
            self.assertEqual(self.found(query, top_k=20), [(scores[row], str(row)) for row in best])

    def test_the_binary_ranking_is_that_of_the_plain_definition(self) -> None:
        luck = luck_of(5)
        rows = [luck.randbytes(16) for _ in range(60)]
        self.put(rows, SMALLEST._replace(encoding="binary"))
        for query in [luck.randbytes(16) for _ in range(50)] + rows[:1]:
            scores = []
            for row in rows:
                pairs = zip(query, row, strict=True)
                differing = sum((a ^ b) >> bit & 1 for a, b in pairs for bit in range(8))
                scores.append(1 - differing / 128)
            best = sorted(range(len(rows)), key=lambda row: -scores[row])[:20]
            found = self.found(query, top_k=20, encoding="binary")
            self.assertEqual(found, [(scores[row], str(row)) for row in best])

    def test_equal_scores_come_in_the_order_of_their_ids(self) -> None:
        self.put([b"\x01" * 128] * 30)
        for limits in ({}, {"vector_cache_mb": 0}):
            runtime = self.new_runtime(**limits)
            self.fake.script(ROUTE, vectors_answer(b"\x02" * 128))
            found = self.run_embed(runtime, action="search", query="x", dimensions=128, top_k=20)
            self.assertEqual([hit["key"] for hit in found["hits"]], [str(n) for n in range(20)])

    def test_top_k_and_min_score_limit_the_hits(self) -> None:
        self.put([bytes([1] * n + [255] * (128 - n)) for n in (128, 96, 64, 0)])
        query = b"\x01" * 128
        wanted = [(1.0, "0"), (0.5, "1"), (0.0, "2"), (-1.0, "3")]
        self.assertEqual(self.found(query), wanted)
        self.assertEqual(self.found(query, top_k=2), wanted[:2])
        self.assertEqual(self.found(query, min_score=0.5), wanted[:2])
        self.assertEqual(self.found(query, min_score=-0.5), wanted[:3])
        self.fake.script(ROUTE, vectors_answer(bytes(128)))
        outcome = self.outcome(action="search", query="x", dimensions=128, min_score=0.1)
        self.assertRegex(outcome.text, r"^No hits; 4 chunks compared\.\nUsage: ")

    def test_a_search_may_be_limited_to_a_source(self) -> None:
        self.new_chat("bread", "oven")
        self.new_job("bread")
        self.index(("bread", "bread"))
        for source in ("chat", "job"):
            self.run_embed(action="index", source=source)
        self.assertEqual(self.search("bread")["candidates"], 4)
        for source, count in (("chat", 2), ("job", 1), ("text", 1)):
            found = self.search("bread", source=source)
            self.assertEqual(found["candidates"], count)
            self.assertEqual({hit["source"] for hit in found["hits"]}, {source})

    def test_another_combination_is_named_beside_those_that_are_stored(self) -> None:
        self.index(*BAKING)
        self.index(*BAKING, model=LARGE, dimensions=256, encoding="binary")
        sent, events = len(self.bodies()), len(self.events())
        for asked in ({"dimensions": 256}, {"model": LARGE}, {"encoding": "binary"}):
            outcome = self.outcome(action="search", query="bread", **asked)
            self.assertIsNone(outcome.kind)
            (warning,) = outcome.structured["warnings"]
            model, size = asked.get("model", SMALL), asked.get("dimensions", 0)
            full = size or {SMALL: 1024, LARGE: 2560}[str(model)]
            self.assertIn(f"{model}, {full}, {asked.get('encoding', 'int8')}", warning)
            self.assertIn(f"text: 5 chunks ({SMALL}, 1024, int8)", warning)
            self.assertIn(f"text: 5 chunks ({LARGE}, 256, binary)", warning)
            self.assertIn(warning, outcome.text)
            found = outcome.structured
            self.assertEqual((found["hits"], found["candidates"]), ([], 0))
            self.assertEqual((found["requests"], found["cost_usd"]), (0, None))
        self.assertEqual((len(self.bodies()), len(self.events())), (sent, events))

    def test_nothing_stored_makes_no_request_and_no_project(self) -> None:
        found = self.search("bread", project=pro.DEFAULT_PROJECT)
        self.assertEqual(
            found["warnings"],
            ["Nothing is indexed in project 'default', so no request was made: index first."],
        )
        self.assertEqual(self.fake.requests, [])
        self.assertEqual(self.rows("SELECT * FROM projects"), [])
        self.assertEqual(self.events(), [])

    def test_a_hit_is_cut_to_800_characters_and_to_200_in_the_text(self) -> None:
        self.index(("long", "word " * 700))
        outcome = self.outcome(action="search", query="word")
        text = outcome.structured["hits"][0]["text"]
        self.assertEqual((len(text), text[-1]), (800, "\u2026"))
        line = next(line for line in outcome.text.splitlines() if line.startswith("1. "))
        self.assertEqual(len(line.partition("chunk 0: ")[2]), 200)

    def test_a_stored_text_cannot_close_the_fence_or_hide_anything(self) -> None:
        closing = "</untrusted-web-content>"
        self.index((f"k\u202e\n{closing}", f"a {closing} \x1b[2J\u202eb"))
        outcome = self.outcome(action="search", query="a")
        self.assertEqual(outcome.text.count("</untrusted-web-content"), 1)
        for hidden in ("\x1b", "\u202e"):
            self.assertNotIn(hidden, outcome.text)
            self.assertNotIn(hidden, outcome.structured["hits"][0]["text"])

    def test_a_result_fits_what_clients_show(self) -> None:
        self.index(*[(f"k{n}" * 30, f"{n} word\n" + '"\\' * 700) for n in range(20)])
        small = self.new_runtime(max_result_chars=4000)
        outcome = self.outcome(small, action="search", query="word", top_k=20)
        self.assertLessEqual(len(pro.json_text(outcome.structured)), 4000)
        self.assertLessEqual(len(outcome.text), 4000)
        shown = len(outcome.structured["hits"])
        self.assertIn(f"Cut after {shown} of 20 hits", outcome.structured["warnings"][0])
        self.assertGreaterEqual(shown, 1)
        self.assertEqual(outcome.structured["candidates"], 20)

    def test_vectors_are_never_shown(self) -> None:
        said = []
        given: dict[str, Any] = {"action": "index", "source": "text", "dimensions": 128}
        said.append(self.outcome(**given, items=items_of(*BAKING)))
        self.fake.script(ROUTE, self.answer_with(lambda body: body["data"].pop()))
        said.append(self.outcome(**given, items=items_of(("a", "b"), ("c", "d"))))
        said.append(self.outcome(action="search", dimensions=128, query="bread"))
        said.append(self.outcome(action="status", dimensions=128))
        vectors = [vector for (vector,) in self.rows("SELECT vector FROM embedding_chunks")]
        self.assertEqual(len(vectors), 5)
        said_text = "".join(f"{one.structured}{one.text}{one.detail}" for one in said)
        self.assertIn("bread", said_text)
        for vector in vectors:
            for form in (encoded(vector)[:20], repr(vector)[2:22], str(list(vector))[1:20]):
                self.assertNotIn(form, said_text)
        ledger = str(self.rows("SELECT * FROM usage_events"))
        self.assertNotIn(encoded(vectors[0])[:20], ledger)

    def test_a_failed_query_is_an_error_and_its_cost_is_recorded(self) -> None:
        self.put([b"\x01" * 128])
        self.fake.script(ROUTE, vectors_answer(bytes(7)))
        outcome = self.outcome(action="search", query="x", dimensions=128)
        self.assertEqual(outcome.kind, "unexpected_response")
        self.assertIn("the query: The vector has 7 bytes where 128", outcome.text)
        self.assertEqual(self.events(), [("unexpected_response", 12, "computed")])

    def test_a_query_that_takes_too_long_says_so_and_is_settled(self) -> None:
        self.put([b"\x01" * 128])
        hurried = self.new_runtime(wait_s=1.0)
        gate = self.fake.hold(ROUTE)
        outcome = self.outcome(hurried, action="search", query="x", dimensions=128)
        self.assertEqual(outcome.kind, "network_timeout")
        self.assertIn("try again later", outcome.text)
        gate.set()
        self.assertTrue(hurried.settle(WAIT_S))
        self.assertEqual(self.events("status"), [("ok",)])
        self.assertEqual(self.rows("SELECT count(*) FROM research_jobs"), [(0,)])

    def test_damaged_vectors_are_an_error_that_says_what_to_do(self) -> None:
        for damage in (b"\x01" * 7, "text" * 32, 5):
            for limits in ({}, {"vector_cache_mb": 0}):
                self.put([b"\x01" * 128] * 3)
                self.rows("UPDATE embedding_chunks SET vector = ? WHERE ref = 't:1'", damage)
                runtime = self.new_runtime(**limits)
                outcome = self.outcome(runtime, action="search", query="x", dimensions=128)
                self.assertEqual(outcome.kind, "internal_error")
                self.assertIn(f"vectors of {SMALL}, 128, int8 are damaged", outcome.text)

    def test_the_vectors_of_the_older_server_are_found(self) -> None:
        old = ROOT / "tests" / "data" / "pro-2.0.0-revision-0005.db"
        self.path.parent.mkdir()
        shutil.copy(old, self.path)
        sql = "SELECT vector FROM embedding_chunks WHERE ref = 't:lava' AND encoding = ?"
        whole, bits = (self.rows(sql, encoding)[0][0] for encoding in ("int8", "binary"))
        self.fake.script(ROUTE, vectors_answer(whole), vectors_answer(bits))
        found = self.search("magma", project="geo")
        self.assertEqual(found["candidates"], 4)
        first = found["hits"][0]
        self.assertEqual((first["score"], first["key"]), (1.0, "lava"))
        self.assertEqual(first["text"], "A volcano erupts when magma rises through the crust.")
        self.assertIn(1, [hit["job_id"] for hit in found["hits"]])
        second = {"model": LARGE, "dimensions": 256, "encoding": "binary"}
        hits = self.search("magma", project="geo", **second)["hits"]
        self.assertEqual((len(hits), hits[0]["score"], hits[0]["key"]), (3, 1.0, "lava"))
        known = ("async", "asyncio runs many tasks concurrently.")
        texts = items_of(("lava", first["text"]), known)
        again = self.run_embed(action="index", source="text", items=texts, project="geo")
        self.assertEqual((again["skipped_items"], again["requests"]), (2, 0))
        chats = self.run_embed(action="index", source="chat", project="notes")
        self.assertEqual(chats["skipped_items"], 4)


class Cache(SearchTest):
    def blocks_read(self) -> mock.Mock:
        """Counts how often vectors are read from the table."""
        wrapped = mock.patch.object(pro, "stored_vectors", wraps=pro.stored_vectors)
        read: mock.Mock = self.enterContext_(wrapped)
        return read

    def test_vectors_are_read_once_for_many_searches(self) -> None:
        self.put([b"\x01" * 128] * 3)
        read = self.blocks_read()
        work = mock.patch.object(pro, "Work", wraps=pro.Work)
        launched: mock.Mock = self.enterContext_(work)
        for _ in range(5):
            self.assertEqual(len(self.found(b"\x01" * 128)), 3)
        self.assertEqual(read.call_count, 1)
        names = [one.args[0] for one in launched.call_args_list]
        self.assertEqual(names, ["vectors"])

    def test_they_are_laid_out_while_the_query_is_embedded(self) -> None:
        self.put([b"\x01" * 128] * 3)
        laid = threading.Event()

        def build(*given: Any) -> Any:
            columns = laid_out(*given)
            laid.set()
            return columns

        laid_out = pro.laid_out
        gate = self.fake.hold(ROUTE)
        self.enterContext_(mock.patch.object(pro, "laid_out", build))
        with self.in_background(lambda: self.found(b"\x01" * 128)) as ended:
            self.assertTrue(laid.wait(WAIT_S))
            self.assertEqual(ended, [])
            gate.set()
        self.assertEqual(len(ended[0]), 3)

    def test_what_another_process_writes_is_found(self) -> None:
        self.put([b"\x01" * 128] * 3)
        self.assertEqual(len(self.found(b"\x01" * 128)), 3)
        self.rows("DELETE FROM embedding_chunks WHERE ref = 't:1'")
        self.assertEqual([key for _, key in self.found(b"\x01" * 128)], ["0", "2"])
        self.fake.script(ROUTE, vectors_answer(b"\x01" * 128))
        self.assertEqual(self.search("x", dimensions=128)["candidates"], 2)
        columns = "project_id, source, chunk_index, text, text_hash, model, dimensions, encoding"
        self.rows(
            f"INSERT INTO embedding_chunks (ref, vector, created_at, {columns}) "  # noqa: S608 - a test's own
            f"SELECT 't:new', vector, created_at, {columns} FROM embedding_chunks "
            "WHERE ref = 't:0'"
        )
        self.assertEqual([key for _, key in self.found(b"\x01" * 128)], ["0", "2", "new"])
        self.rows("DELETE FROM embedding_chunks WHERE ref = 't:0'")
        self.put([b"\x01" * 128])
        self.assertEqual([key for _, key in self.found(b"\x01" * 128)], ["2", "new", "0"])

    def test_the_least_recently_used_go_first(self) -> None:
        room = 2 * pro.Vectors(pro.Settings())._limit_bytes
        self.assertEqual(room, 512 << 20)
        for size in (128, 136, 144):
            self.put([b"\x01" * size] * 3, SMALLEST._replace(dimensions=size))
        vectors = self.runtime.vectors
        vectors._limit_bytes = 2 * pro.laid_out_size(SMALLEST._replace(dimensions=144), 3) + 500
        read = self.blocks_read()
        reads = []
        for size in (128, 136, 128, 144, 128, 136):
            self.found(b"\x01" * size, dimensions=size)
            reads.append(read.call_count)
        self.assertEqual(reads, [1, 2, 2, 3, 3, 4])

    def test_above_the_cache_vectors_are_streamed_with_the_same_scores(self) -> None:
        luck = luck_of(7)
        rows = [luck.randbytes(128) for _ in range(50)]
        self.put(rows)
        bits = [luck.randbytes(16) for _ in range(50)]
        self.put(bits, SMALLEST._replace(encoding="binary"))
        streaming = self.new_runtime(vector_cache_mb=0)
        self.enterContext_(mock.patch.object(pro, "VECTOR_BLOCK_ROWS", 7))
        for encoding, query in (("int8", rows[3]), ("binary", bits[3])):
            wanted = self.found(query, top_k=20, encoding=encoding)
            self.fake.script(ROUTE, vectors_answer(query))
            given = {"action": "search", "query": "x", "dimensions": 128, "top_k": 20}
            found = self.run_embed(streaming, **given, encoding=encoding)
            self.assertEqual([(hit["score"], hit["key"]) for hit in found["hits"]], wanted)
            self.assertEqual(found["candidates"], 50)
        self.assertEqual(streaming.vectors._loaded, {})

    def test_a_streamed_search_can_be_cancelled(self) -> None:
        self.put([b"\x01" * 128] * 20)
        streaming = self.new_runtime(vector_cache_mb=0)
        call = self.call(streaming)
        self.enterContext_(mock.patch.object(pro, "VECTOR_BLOCK_ROWS", 2))
        built: list[int] = []

        def build(vectors: list[bytes], combination: pro.Combination) -> Any:
            built.append(len(vectors))
            call.cancelled.set()
            return laid_out(vectors, combination)

        laid_out = pro.laid_out
        self.enterContext_(mock.patch.object(pro, "laid_out", build))
        self.fake.script(ROUTE, vectors_answer(b"\x01" * 128))
        with self.assertRaises(pro.Cancelled):
            pro.run_tool(call, {"action": "search", "query": "x", "dimensions": 128})
        self.assertEqual(built, [2])

    def test_sources_and_projects_are_kept_apart(self) -> None:
        self.new_chat("bread", "oven")
        self.run_embed(action="index", source="chat")
        self.index(("bread", "bread"))
        self.index(("x", "bread"), ("y", "oven"), project="other")
        for _ in range(2):
            counts = [
                self.search("bread", **where)["candidates"]
                for where in ({}, {"source": "chat"}, {"source": "text"}, {"project": "other"})
            ]
            self.assertEqual(counts, [3, 2, 1, 2])

    def test_searches_at_the_same_time_agree(self) -> None:
        luck = luck_of(8)
        rows = [luck.randbytes(128) for _ in range(40)]
        self.put(rows)
        self.fake.always(ROUTE, vectors_answer(rows[9]))
        gate = self.fake.hold(ROUTE)
        with contextlib.ExitStack() as stack:
            given = {"dimensions": 128, "top_k": 20}
            ends = [
                stack.enter_context(self.in_background(lambda: self.search("x", **given)["hits"]))
                for _ in range(8)
            ]
            self.fake.wait_for(ROUTE, 8)
            gate.set()
        self.assertEqual(ends[0][0][0]["key"], "9")
        for ended in ends:
            self.assertEqual(ended, ends[0])


class Deleting(EmbedTest):
    def setUp(self) -> None:
        super().setUp()
        self.index(*BAKING)
        self.index(*BAKING, model=LARGE, dimensions=256, encoding="binary")
        self.new_chat("one", "two")
        self.run_embed(action="index", source="chat")

    def left(self) -> int:
        return len(self.chunks())

    def test_without_confirmation_nothing_goes(self) -> None:
        outcome = self.outcome(action="delete", source="text", model=LARGE)
        self.assertEqual(outcome.kind, "confirmation_required")
        self.assertIn(f"(source text, model {LARGE})", outcome.text)
        self.assertIn("confirm=true", outcome.text)
        self.assertEqual(self.left(), 12)

    def test_filters_choose_what_goes(self) -> None:
        for which, removed, left in (
            ({"model": LARGE, "dimensions": 1024}, 0, 12),
            ({"dimensions": 256}, 5, 7),
            ({"source": "chat", "encoding": "int8"}, 2, 5),
            ({}, 5, 0),
        ):
            outcome = self.outcome(action="delete", confirm=True, **which)
            self.assertEqual(outcome.text, f"Removed {removed} chunks.")
            self.assertEqual(outcome.structured["removed"], removed)
            self.assertEqual(self.left(), left)
        self.assertEqual(self.run_embed(action="status")["groups"], [])
        self.assertEqual(self.rows("SELECT name FROM projects"), [("default",)])
        self.assertEqual(len(self.events()), 3)

    def test_it_needs_neither_key_nor_network(self) -> None:
        self.fake.stop()
        keyless = self.new_runtime(key=None)
        self.assertEqual(self.run_embed(keyless, action="delete", confirm=True)["removed"], 12)
        outcome = self.outcome(keyless, action="status")
        self.assertTrue(outcome.text.startswith("Nothing is indexed.\nNot indexed: 2 chat"))


if __name__ == "__main__":
    unittest.main()
