"""Chapter 10: bodies field by field, and replies in which nothing is where it should be."""

from __future__ import annotations

import copy
import json
import random
import time
import unittest
from typing import TYPE_CHECKING, Any

from golden import assert_golden
from support import desk, pro

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = Any
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FILTERS: dict[str, Json] = {
    "domains": ["example.org", "example.com"],
    "after": "2026-09-15",
    "before": "2026-10-09",
    "country": "US",
    "max_results": 5,
}

# Calls that make agent requests; the golden file holds the body of each.
SONNET, OPUS = "anthropic/claude-sonnet-5-5", "anthropic/claude-opus-5-5"
AGENT_CALLS: list[dict[str, Json]] = [
    {"tool": "ask", "depth": "fast"},
    {"tool": "ask", "depth": "low", "recency": "week"},
    {"tool": "ask", "depth": "medium", **FILTERS, "instructions": "Be terse."},
    {"tool": "ask", "depth": "fast", "max_output_tokens": 16, "json_schema": SCHEMA},
    {"tool": "research", "depth": "medium"},
    {"tool": "research", "depth": "high", "domains": ["-a.com"]},
    {"tool": "ask"},
    {"tool": "ask", "search": False},
    {"tool": "ask", "model": "openai/gpt-6-luna", **FILTERS, "max_output_tokens": 64000},
    {"tool": "ask", "model": "openai/gpt-6-luna", "max_results": 1},
    {"tool": "ask", "model": SONNET},
    {"tool": "ask", "model": SONNET, "max_output_tokens": 100},
    {"tool": "ask", "model": OPUS, "search": False, "json_schema": SCHEMA},
    {"tool": "chat", "title": "t", "depth": "fast"},
    {"tool": "chat", "chat_id": 1, "depth": "fast"},
    {"tool": "chat", "chat_id": 1, "replay": True, "model": "xai/grok-4.7"},
]
# Searches, likewise.
SEARCHES: list[dict[str, Json]] = [
    {"query": "q"},
    {"query": ["a", "b"], "search_type": "web"},
    {"query": "q", "max_results": 1},
    {"query": "q", "max_tokens": 16384},
    {"query": "q", "max_tokens_per_page": 4096},
    {"query": "q", "domains": ["-Reddit.com", "-pinterest.com"]},
    {"query": "q", "recency": "hour"},
    {"query": "q", "after": "2026-01-05"},
    {"query": "q", "before": "2026-12-31"},
    {"query": "q", "updated_after": "2026-01-05"},
    {"query": "q", "updated_before": "2026-12-31"},
    {"query": "q", "languages": ["en", "de"]},
    {"query": "q", "country": "us"},
    {"query": "q", "domains": [], "languages": []},
]

GOOD_RUN: dict[str, Json] = {
    "id": "resp_7c0e4d56-1f7a-4a55-9b1e-5f3c2d1e0a01",
    "object": "response",
    "status": "completed",
    "model": "openai/gpt-6-luna",
    "created_at": 1791572838,
    "error": None,
    "incomplete_details": None,
    "output": [
        {
            "type": "search_results",
            "queries": ["height of Everest"],
            "results": [
                {
                    "id": 1,
                    "url": "https://example.org/everest",
                    "title": "Mount Everest",
                    "snippet": "Everest is 8,849 metres high.",
                    "date": "2024-02-11",
                    "last_updated": "2026-10-01",
                    "source": "web",
                },
                {"id": 2, "url": "https://example.org/peaks", "title": "Highest peaks"},
            ],
        },
        {"type": "fetch_url_results", "contents": [{"url": "https://example.net/", "title": "N"}]},
        {"type": "finance_results", "results": [{"sources": ["https://example.com/q"]}]},
        {"type": "skill_loaded", "name": "x"},
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": "<think>hm</think>8,849 metres.[1] See [more](https://example.com/x).",
                    "annotations": [
                        {"type": "url_citation", "url": "https://example.com/a", "title": "A"}
                    ],
                }
            ],
        },
    ],
    "usage": {
        "input_tokens": 3210,
        "output_tokens": 42,
        "total_tokens": 3252,
        "input_tokens_details": {"cached_tokens": 1780},
        "output_tokens_details": {"reasoning_tokens": 0},
        "tool_calls_details": {"search_web": {"invocation": 1, "cost_usd": 0.001}},
        "cost": {"currency": "USD", "total_cost": 0.00122},
    },
}
GOOD_SEARCH: dict[str, Json] = {
    "id": "3db7385a-25f7-41ce-97be-4e0045c8e667",
    "server_time": None,
    "results": [
        {
            "title": "Ownership",
            "url": "https://example.org/ownership",
            "snippet": "# Ownership\n...",
            "date": "2026-10-08",
            "last_updated": "2026-10-09",
        },
        {"title": "Comptime", "url": "https://example.org/c", "snippet": "x", "date": None},
    ],
}
GOOD_MODELS: dict[str, Json] = {
    "object": "list",
    "data": [
        {
            "id": "anthropic/claude-haiku-4-5",
            "object": "model",
            "created": 0,
            "owned_by": "anthropic",
            "pricing": {
                "input": 1,
                "output": 5,
                "cache_write": 1.25,
                "cache_read": 0.1,
                "unit": "usd_per_1m_tokens",
            },
        },
        {"id": "google/gemini-3.8-flash", "owned_by": "google", "pricing": {"input": 0.75}},
    ],
}
ODD: list[Json] = [
    *(None, True, False, 0, -1, 1.5, 1e999, 10**30),
    *("", " ", "x", "\ud83d", "\x1b[1m\u202e", "https://[", "9" * 100, "x" * 30_000),
    *([], {}, [None], [[]], ["x"], [{}], {"a": 1}, {"message": ["x"]}),
]


def odd_forms(good: Json) -> Iterator[Json]:
    """The reply with each of its parts left out, or put in every wrong form, one at a time."""

    def places(value: Json, path: tuple[Json, ...]) -> Iterator[tuple[Json, ...]]:
        if path:
            yield path
        names = value if isinstance(value, dict) else range(len(value))
        for name in names:
            if isinstance(value[name], (dict, list)):
                yield from places(value[name], (*path, name))
            else:
                yield (*path, name)

    for path in places(good, ()):
        for odd in (..., *ODD):
            body = copy.deepcopy(good)
            holder = body
            for name in path[:-1]:
                holder = holder[name]
            if odd is ...:
                del holder[path[-1]]
            else:
                holder[path[-1]] = copy.deepcopy(odd)
            yield body
    yield from (copy.deepcopy(odd) for odd in ODD)


def each(*values: Json) -> tuple[Json, ...]:
    return values


def run_with(*items: Json, **keys: Json) -> Any:
    return pro.read_run({"status": "completed", "output": list(items), **keys})


def message(*texts: Json) -> Json:
    return {"type": "message", "content": [{"type": "output_text", "text": t} for t in texts]}


def results(*pages: Json) -> Json:
    return {"type": "search_results", "results": list(pages)}


def page(number: Json, url: Json = "https://a.example/", **more: Json) -> Json:
    return {"id": number, "url": url, "title": "T", **more}


def source(url: str, *ids: int) -> Any:
    return pro.Source(url, "T", None, ids[0] if ids else None, list(ids))


def golden_pairs(cases: list[Json], make: Callable[[Json], Json]) -> str:
    """A line for what goes in and a line for the body that comes out."""
    lines = []
    for case in cases:
        lines += [json.dumps(case), json.dumps(make(case)), ""]
    return "\n".join(lines)


def given(tool: str, **arguments: Json) -> Any:
    """The arguments of a call as its tool gets them."""
    usual = {"ask": {"query": "q"}, "search": {"query": "q"}}[tool]
    return pro.read_arguments(pro.TOOLS[f"perplexity_{tool}"], {**usual, **arguments})


class Refusals(unittest.TestCase):
    def assert_refused(self, words: str, tool: str = "ask", **arguments: Json) -> None:
        with self.assertRaises(pro.ToolError, msg=repr(arguments)[:100]) as caught:
            given(tool, **arguments)
        self.assertEqual(caught.exception.kind, "invalid_request")
        self.assertRegex(caught.exception.message, words)
        self.assertRegex(caught.exception.message, r"[^.]\.\Z")


class Filters(Refusals):
    def test_domains_are_brought_into_the_form_that_filters(self) -> None:
        for entry, domain in {
            "python.org": "python.org",
            " Docs.Python.ORG ": "docs.python.org",
            "https://python.org": "python.org",
            "http://python.org/": "python.org",
            "python.org.": "python.org",
            "-reddit.com": "-reddit.com",
            "-https://reddit.com/": "-reddit.com",
            "b\u00fccher.example": "xn--bcher-kva.example",
            "-\u4f8b\u3048.jp": "-xn--r8jz45g.jp",
            "gov": "gov",
            ".gov": ".gov",
            "*.edu": "*.edu",
            "en.wikipedia.org/wiki/Python": "en.wikipedia.org/wiki/Python",
            "-Reddit.com/r/python/": "-reddit.com/r/python",
            "_dmarc.a-b.co.uk": "_dmarc.a-b.co.uk",
        }.items():
            self.assertEqual(given("ask", domains=[entry]).domains, [domain])

    def test_what_is_no_domain_is_refused_by_name(self) -> None:
        for entry in (
            *("-", "--reddit.com", "-..reddit.com", "a..b", "**.a.com", "*a.com"),
            *("a.com/x y", "a.com?x", "a.com:80", "user@a.com", "a b.com", "/x", "a.com/\u202e"),
            *("a.com\nb.com", "ftp://a.com", "-a.com-", "a.-b.com", "a.com\x00"),
            *("a" * 254, "\u00fc" * 64 + ".com", "\u00fc" * 5_000_000, "[::1]"),
        ):
            self.assert_refused(r"\Adomains: .* is not a domain", domains=[entry])
        self.assert_refused("domains: give each domain as an entry", domains=["a.com,b.com"])

    def test_domains_are_all_allowed_or_all_denied_and_at_most_twenty(self) -> None:
        for mixed in (["a.com", "-b.com"], ["-a.com", "a.com"]):
            self.assert_refused(r"\Adomains: .* cannot be mixed", domains=mixed)
        twenty = [f"a{number}.com" for number in range(20)]
        self.assertEqual(given("ask", domains=twenty).domains, twenty)
        self.assert_refused(r"\Adomains: .*20 entries, not 21", domains=[*twenty, "b"])

    def test_each_domain_is_sent_once_and_an_empty_list_not_at_all(self) -> None:
        domains = given("ask", domains=["a.com", "A.com", "b.com", "a.com."]).domains
        self.assertEqual(domains, ["a.com", "b.com"])

    def test_dates_are_turned_round(self) -> None:
        for text, wire in {
            "2026-01-05": "01/05/2026",
            "2024-02-29": "02/29/2024",
            "0001-12-31": "12/31/0001",
        }.items():
            body = pro.search_body(given("search", after=text))
            self.assertEqual(body["search_after_date_filter"], wire)

    def test_dates_in_other_forms_or_of_no_calendar_are_refused_by_name(self) -> None:
        for text in (
            *("2026-02-30", "2025-02-29", "2026-13-01", "2026-00-10", "0000-01-01"),
            *("02/01/2026", "2026-1-5", "20260105", "2026-W01-1", "2026-01-05T00:00:00"),
            *(" 2026-01-05", "2026-01-05\n", "today", "\u0662026-01-05", "x" * 10_000),
        ):
            for tool, name in (("ask", "before"), ("search", "updated_after")):
                self.assert_refused(rf"\A{name}: must be a date .* not ", tool, **{name: text})

    def test_spans_run_forwards(self) -> None:
        with desk() as owner:
            for first, last in (("after", "before"), ("updated_after", "updated_before")):
                span = {first: "2026-01-05", last: "2026-01-05"}
                owner.ok("search", query="q", **span)
                said = owner.refused("search", query="q", **{**span, first: "2026-01-06"})
                self.assertIn(f"{first}: must not be later than {last}.", said)
            said = owner.refused("usage", since="2026-01-06", until="2026-01-05")
            self.assertIn("since: must not be later than until.", said)

    def test_countries_have_two_letters(self) -> None:
        for text in ("us", "US", "Us"):
            self.assertEqual(given("ask", country=text).country, "US")
        for text in ("u", "usa", "U1", "u s", "US\n", "\u00fcs"):
            self.assert_refused(r"\Acountry: .*such as US", country=text)

    def test_what_cannot_be_sent_is_refused_by_name_and_nothing_is_sent(self) -> None:
        dates = ("after", "before", "updated_after", "updated_before")
        codes = (["EN"], ["eng"], ["e"], ["en", "de "], ["en"] * 21)
        with desk() as owner:
            for tool, names in (("ask", dates[:2]), ("search", dates)):
                for name in names:
                    span = {name: "2026-01-05", "recency": "day"}
                    said = owner.refused(tool, query="q", **span)
                    self.assertIn("recency: cannot be combined with a date filter", said)
            for languages in codes:
                self.assertIn(
                    "languages: ", owner.refused("search", query="q", languages=languages)
                )
            self.assertEqual(owner.fake.calls("POST", "/search"), [])


class Bodies(Refusals):
    maxDiff = None

    def test_agent_bodies_are_those_that_were_reviewed(self) -> None:
        with desk() as owner:

            def body(case: dict[str, Json]) -> Json:
                words = {k: v for k, v in case.items() if k != "tool"}
                asked = (
                    {"action": "send", "message": "q"} if case["tool"] == "chat" else {"query": "q"}
                )
                owner.ok(case["tool"], **asked, **words)
                made = dict(owner.fake.calls("POST", "/v1/agent")[-1].body)
                if "previous_response_id" in made:
                    made["previous_response_id"] = "resp_1"
                return made

            text = golden_pairs(AGENT_CALLS, body)
        assert_golden(self, "agent_bodies.jsonl", text)

    def test_search_bodies_are_those_that_were_reviewed(self) -> None:
        with desk() as owner:

            def body(case: dict[str, Json]) -> Json:
                owner.ok("search", **case)
                return owner.fake.calls("POST", "/search")[-1].body

            text = golden_pairs(SEARCHES, body)
        assert_golden(self, "search_bodies.jsonl", text)

    def test_every_option_of_a_search_reaches_the_body(self) -> None:
        with desk() as owner:
            owner.ok(
                "search",
                query=["rust borrow checker", "zig comptime"],
                search_type="web",
                max_results=6,
                max_tokens=8000,
                max_tokens_per_page=2048,
                domains=["-reddit.com"],
                after="2026-09-01",
                before="2026-09-30",
                updated_after="2026-10-01",
                updated_before="2026-10-09",
                languages=["en"],
                country="us",
            )
            sent = owner.fake.calls("POST", "/search")[-1].body
        self.assertEqual(
            sent,
            {
                "query": ["rust borrow checker", "zig comptime"],
                "search_type": "web",
                "max_results": 6,
                "max_tokens": 8000,
                "max_tokens_per_page": 2048,
                "search_domain_filter": ["-reddit.com"],
                "search_after_date_filter": "09/01/2026",
                "search_before_date_filter": "09/30/2026",
                "last_updated_after_filter": "10/01/2026",
                "last_updated_before_filter": "10/09/2026",
                "search_language_filter": ["en"],
                "country": "US",
            },
        )

    def test_a_message_of_an_old_turn_names_its_kind(self) -> None:
        self.assertEqual(
            pro.message_item("assistant", "OK"),
            {"type": "message", "role": "assistant", "content": "OK"},
        )

    def test_schemas_that_the_api_answers_with_a_riddle_are_refused(self) -> None:
        local = {"type": "object", "$defs": {"a": {}}, "properties": {"a": {"$ref": "#/$defs/a"}}}
        named = {"type": "object", "properties": {"type": {"type": "string", "enum": ["strng"]}}}
        words = {"type": "object", "description": '"$ref":"http://x"', "default": {"type": "x"}}
        either = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
        for schema in (SCHEMA, local, named, words, either):
            self.assertEqual(given("ask", json_schema=schema).json_schema, schema)
        for schema in each({}, {"type": "array"}, {"type": ["object"]}, {"properties": {}}):
            self.assert_refused(r'\Ajson_schema: .*"type": "object"', json_schema=schema)
        foreign = {"type": "object", "properties": {"a": {"$ref": "https://example.org/s.json"}}}
        self.assert_refused(r"\Ajson_schema: .*\$ref", json_schema=foreign)
        for inner in (
            {"a": {"type": "strng"}},
            {"a": {"type": "array", "items": {"type": ["strng", "null"]}}},
            {"a": {"anyOf": [{"type": "string"}, {"type": "strng"}]}},
        ):
            schema = {"type": "object", "properties": inner}
            self.assert_refused("json_schema: .*no type 'strng'", json_schema=schema)
        large = {"type": "object", "description": "x" * 20_000}
        self.assert_refused(r"\Ajson_schema: .*20000 characters", json_schema=large)


class Runs(unittest.TestCase):
    def test_a_good_reply_is_read_whole(self) -> None:
        run = pro.read_run(GOOD_RUN)
        self.assertEqual(run.id, "resp_7c0e4d56-1f7a-4a55-9b1e-5f3c2d1e0a01")
        self.assertEqual((run.status, run.finished), ("completed", True))
        self.assertEqual((run.error, run.incomplete_reason, run.warnings), (None, None, []))
        self.assertEqual(run.model, "openai/gpt-6-luna")
        self.assertEqual(run.answer, "8,849 metres.[1] See [more](https://example.com/x).")
        self.assertEqual((run.searches, run.fetches), (1, 1))
        self.assertEqual(
            run.sources,
            [
                pro.Source("https://example.org/everest", "Mount Everest", "2024-02-11", 1, [1]),
                pro.Source("https://example.org/peaks", "Highest peaks", None, 2, [2]),
                pro.Source("https://example.net/", "N", None, None, []),
                pro.Source("https://example.com/q", None, None, None, []),
                pro.Source("https://example.com/a", "A", None, None, []),
            ],
        )
        self.assertEqual((run.usage.cost_nano, run.usage.total_tokens), (1_220_000, 3252))

    def test_any_part_of_a_reply_may_be_missing_or_odd(self) -> None:
        kinds: dict[str, Any] = {
            "id": (str, type(None)),
            "status": str,
            "finished": bool,
            "model": (str, type(None)),
            "answer": str,
            "incomplete_reason": (str, type(None)),
            "error": (str, type(None)),
        }
        read = 0
        for body in odd_forms(GOOD_RUN):
            try:
                run = pro.read_run(body)
            except pro.ToolError as error:
                self.assertEqual((error.kind, error.sent), ("unexpected_response", True))
                continue
            read += 1
            for name, kind in kinds.items():
                self.assertIsInstance(getattr(run, name), kind, name)
            for found in run.sources:
                self.assertTrue(
                    pro.usable_url(found.url) and isinstance(found.title, (str, type(None)))
                )
                self.assertTrue(all(type(number) is int for number in found.ids))
            pro.cited(run.answer, run.sources)
            pro.answer_json_of(run.answer)
            pro.outside_domains([found.url for found in run.sources], ["example.org"])
            pro.json_text(pro.jsonable(run))
        self.assertGreater(read, 1500)

    def test_several_parts_may_be_odd_at_once(self) -> None:
        luck = random.Random(11)  # noqa: S311 - the same numbers in every run, nothing secret

        def spoiled(value: Json) -> Json:
            if luck.random() < 0.05:
                return copy.deepcopy(luck.choice(ODD))
            if isinstance(value, dict):
                return {name: spoiled(item) for name, item in value.items() if luck.random() > 0.03}
            if isinstance(value, list):
                return [spoiled(item) for item in value for _ in range(luck.randint(0, 2))]
            return value

        for _ in range(1000):
            body = spoiled(GOOD_RUN)
            if isinstance(body, dict):
                body.setdefault("status", "completed")
            try:
                pro.json_text(pro.jsonable(pro.read_run(body)))
            except pro.ToolError as error:
                self.assertEqual(error.kind, "unexpected_response")

    def test_what_is_no_run_says_that_it_may_have_been_billed(self) -> None:
        for body in each(None, [], "x", {}, {"status": None}, {"status": " "}, {"status": 5}):
            with self.assertRaises(pro.ToolError) as caught:
                pro.read_run(body)
            self.assertEqual(caught.exception.kind, "unexpected_response")
            self.assertTrue(caught.exception.sent)

    def test_a_run_is_over_when_it_says_so_or_holds_an_error(self) -> None:
        error = {"code": "internal_error", "message": "It broke.", "type": "internal_error"}
        for status, held, over in (
            ("queued", None, False),
            ("in_progress", None, False),
            ("paused", None, False),
            ("requires_action", None, False),
            ("completed", None, True),
            ("incomplete", None, True),
            ("failed", error, True),
            ("cancelled", error, True),
            ("completed", error, True),
            ("paused", error, True),
            ("in_progress", "it broke", True),
        ):
            run = pro.read_run({"status": status, "error": held})
            self.assertEqual((run.status, run.finished), (status, over))
            self.assertEqual(run.error is not None, held is not None)

    def test_an_error_in_any_form_becomes_a_line(self) -> None:
        for error, words in (
            ({"message": " It\nbroke. "}, "It broke."),
            ("It broke.", "It broke."),
            ({"message": "<html>504</html>"}, "the run failed without saying why"),
            ({"message": [5]}, "the run failed without saying why"),
            ({"code": 5}, "error 5"),
            ({"code": "context_length_exceeded", "message": None}, "context_length_exceeded"),
            ({"type": "internal_error"}, "internal_error"),
            ({}, "the run failed without saying why"),
            ("", "the run failed without saying why"),
            ([1], "the run failed without saying why"),
            (True, "the run failed without saying why"),
            ({"message": "x" * 5000}, "x" * 299 + "\u2026"),
        ):
            self.assertEqual(pro.read_run({"status": "failed", "error": error}).error, words)
        self.assertIsNone(pro.read_run({"status": "completed", "error": None}).error)

    def test_the_name_of_a_preset_is_no_model_until_the_run_is_over(self) -> None:
        for status, model, shown in (
            ("queued", "medium", None),
            ("in_progress", "medium", None),
            ("in_progress", "openai/gpt-6-luna", "openai/gpt-6-luna"),
            ("completed", "medium", "medium"),
            ("completed", "a/b\x1b\n" + "c" * 300, "a/b " + "c" * 195 + "\u2026"),
            ("completed", " ", None),
            ("completed", 5, None),
        ):
            self.assertEqual(pro.read_run({"status": status, "model": model}).model, shown)

    def test_only_an_id_that_may_stand_in_a_path_is_one(self) -> None:
        for number in ("resp_a-1_B", "resp_" + "a" * 100):
            self.assertEqual(pro.read_run({"status": "queued", "id": number}).id, number)
        for number in each(
            *("", "resp_", "../models", "resp_a/b", "resp_a?b", "resp_%2e", "resp_a\n", "x"),
            *("resp_" + "a" * 101, "resp_\u00e4", None, 5, ["resp_a"]),
        ):
            self.assertIsNone(pro.read_run({"status": "queued", "id": number}).id)

    def test_what_a_run_says_of_itself_is_short_and_clean(self) -> None:
        details = {"reason": "max_output_tokens"}
        run = pro.read_run({"status": "incomplete", "incomplete_details": details})
        self.assertEqual(run.incomplete_reason, "max_output_tokens")
        details = {"reason": "a\n\u202eb" + "c" * 500}
        run = pro.read_run({"status": "x\x1b\n" + "y" * 500, "incomplete_details": details})
        self.assertEqual((len(run.status), len(run.incomplete_reason or "")), (40, 100))
        self.assertTrue(run.status.startswith("x y"))
        self.assertTrue((run.incomplete_reason or "").startswith("a bc"))

    def test_the_answer_is_the_text_of_every_part_of_every_message(self) -> None:
        run = run_with(message("One.", "\n\n", "Two."), results(), message(" ", "Three."))
        self.assertEqual(run.answer, "One.\n\nTwo.\n\nThree.")
        untyped = {"content": [{"text": "Four."}, {"type": "other", "text": "No."}, "x", None]}
        call = {"type": "function_call", "content": [{"text": "Five."}]}
        self.assertEqual(run_with(untyped, call).answer, "Four.")

    def test_a_refusal_is_the_answer_and_no_answer_is_said(self) -> None:
        refusal = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
        self.assertEqual((run_with(refusal).answer, run_with(refusal).warnings), ("No.", []))
        call = {"type": "function_call", "name": "get_stock", "arguments": "{}"}
        for items, words in (
            ([], "without an answer"),
            ([{"type": "message", "content": []}], "without an answer"),
            ([message(" ")], "without an answer"),
            ([call], "asked for a function"),
        ):
            (warning,) = run_with(*items).warnings
            self.assertIn(words, warning)
        self.assertEqual(pro.read_run({"status": "queued"}).warnings, [])

    def test_the_answer_is_cleaned(self) -> None:
        run = run_with(message("Gr\u00f6\u00dfe \U0001f642\x1b[1m\u202e\u200b\r\n[1]"))
        self.assertEqual(run.answer, "Gr\u00f6\u00dfe \U0001f642[1m\r\n[1]")


class Reasoning(unittest.TestCase):
    def test_blocks_before_the_answer_go(self) -> None:
        for text, answer in {
            '<think>a</think>{"a":1}': '{"a":1}',
            " \n<THINK>\na\nb</Think>\n\nYes.": "Yes.",
            "<think>a</think><think>b</think>Yes.": "Yes.",
            "<think></think>": "",
            "Yes.": "Yes.",
            "": "",
            "Write `<think>a</think>` around it.": "Write `<think>a</think>` around it.",
            "```\n<think>a</think>\n```": "```\n<think>a</think>\n```",
            "<think>a</think>Use `<think>` and `</think>`.": "Use `<think>` and `</think>`.",
            "<thinking>a</thinking>": "<thinking>a</thinking>",
        }.items():
            self.assertEqual(pro.without_reasoning(text), (answer, None))

    def test_a_block_without_end_is_no_answer_and_says_so(self) -> None:
        for text in ("<think>", "<think>on and on", "<think>a</think> <think>b"):
            answer, warning = pro.without_reasoning(text)
            self.assertEqual(answer, "")
            self.assertIn("unfinished reasoning", str(warning))
        self.assertIn("unfinished reasoning", run_with(message("<think>a")).warnings[0])


class Sources(unittest.TestCase):
    def test_a_page_is_listed_once_with_every_id_in_order_of_first_use(self) -> None:
        run = run_with(
            results(page(11), page(12, "https://b.example/")),
            {"type": "fetch_url_results", "contents": [page(None, "https://c.example/")]},
            {"type": "people_search_results", "results": [page(3), page(11), page(4)]},
        )
        self.assertEqual(
            [(found.url, found.id, found.ids) for found in run.sources],
            [
                ("https://a.example/", 11, [11, 3, 4]),
                ("https://b.example/", 12, [12]),
                ("https://c.example/", None, []),
            ],
        )
        self.assertEqual((run.searches, run.fetches), (2, 1))

    def test_a_run_that_only_fetched_has_sources_without_ids(self) -> None:
        run = run_with({"type": "fetch_url_results", "contents": [page(7, "https://c.example/")]})
        self.assertEqual(run.sources[0].url, "https://c.example/")

    def test_no_lists_no_sources(self) -> None:
        empty = {"type": "search_results"}
        for item in (results(), empty, {**empty, "results": None}):
            self.assertEqual(run_with(item).sources, [])

    def test_title_and_date_come_from_the_first_that_has_them(self) -> None:
        run = run_with(
            results(page(1, title=None), page(2, title=" \n"), page(3, title="A\n\x1bB")),
            results(page(4, title="C", date="2026-10-08"), page(5, date="2027-01-01")),
        )
        ids = [1, 2, 3, 4, 5]
        wanted = pro.Source("https://a.example/", "A B", "2026-10-08", 1, ids)
        self.assertEqual(run.sources, [wanted])

    def test_dates_are_days_or_nothing(self) -> None:
        for date, day in {
            "2026-10-08": "2026-10-08",
            "2026-10-08T12:00:00Z": "2026-10-08",
            "10/08/2026": None,
            "2026-1-8": None,
            "soon": None,
        }.items():
            self.assertEqual(run_with(results(page(1, date=date))).sources[0].date, day)

    def test_at_most_sixty_four_ids_are_kept_and_the_rest_is_counted(self) -> None:
        run = run_with(results(*(page(number) for number in range(70)), page(3)))
        self.assertEqual(run.sources[0].ids, list(range(64)))
        self.assertEqual(run.warnings[0], "6 further source ids left out.")

    def test_ids_that_are_no_counts_are_left_out(self) -> None:
        odd: list[Json] = [None, True, "1", 1.5, -1, 10**30, [1], {}]
        run = run_with(results(*(page(number) for number in odd)))
        self.assertEqual((run.sources[0].id, run.sources[0].ids), (None, []))

    def test_addresses_that_cannot_be_followed_are_left_out_and_counted(self) -> None:
        bad: list[Json] = [
            *(None, 5, "", "x", "ftp://a.example", "javascript:alert(1)", "https://", "https:///x"),
            *("https://a b", "https://a<b>/", "https://a\nb", "https://[a", "//a.example"),
            *("https://\u2100.example/", "https://a\u202e.example/"),
            "https://a/" + "x" * pro.MAX_URL_CHARS,
        ]
        run = run_with(results(*(page(1, url) for url in bad), "x", None))
        self.assertEqual(run.sources, [])
        left_out = f"{len(bad)} sources without a usable address left out."
        self.assertEqual(run.warnings[0], left_out)

    def test_addresses_are_kept_in_full(self) -> None:
        long = "https://a.example/" + "x" * 1000
        urls = [f"{long}1", f"{long}2", "https://a.example/?q=1#x", "HTTPS://A.example/"]
        urls += ["https://de.wikipedia.org/wiki/Gr\u00f6\u00dfe_(Mathematik)", "http://[::1]:80/"]
        run = run_with(results(*(page(number, url) for number, url in enumerate(urls))))
        self.assertEqual([found.url for found in run.sources], urls)

    def test_what_would_end_an_address_or_hide_in_it_is_written_by_its_bytes(self) -> None:
        for url, kept in {
            "https://example.com/Annual Report 2026.pdf": "https://example.com/Annual%20Report%202026.pdf",
            'https://example.com/?q="exact"': "https://example.com/?q=%22exact%22",
            "https://a/<script>": "https://a/%3Cscript%3E",
            "https://a/\x1b[1m": "https://a/%1B[1m",
            "https://a/\u202ex%20y": "https://a/%E2%80%AEx%20y",
        }.items():
            self.assertEqual(run_with(results(page(1, url))).sources[0].url, kept)
        self.assertEqual(
            pro.read_search({"results": [{"url": "https://a/x y"}]})[0][0].url, "https://a/x%20y"
        )


class Citations(unittest.TestCase):
    SOURCES = (
        source("https://a.example/", 1, 10),
        source("https://b.example/", 3),
        source("https://c.example/"),
    )

    def cited(self, answer: str) -> tuple[list[tuple[str, int | None]], list[str]]:
        _, found, warnings = pro.cited(answer, list(self.SOURCES))
        by_id = {number: found.url for found in self.SOURCES for number in found.ids}
        for item in found:
            if item.source is not None:
                self.assertEqual(item.url, by_id[item.source])
        return [(item.marker, item.source) for item in found], warnings

    def test_markers_name_the_source_that_has_the_id(self) -> None:
        self.assertEqual(
            self.cited("A.[1][3] B [web:10], again [1]. [web:1]"),
            ([("[1]", 1), ("[3]", 3), ("[web:10]", 10), ("[web:1]", 1)], []),
        )

    def test_links_name_the_source_of_their_address_or_carry_it(self) -> None:
        _, found, warnings = pro.cited(
            "See [C](https://c.example/), [D](https://d.example/x_(y)) and [1](https://b.example/).",
            list(self.SOURCES),
        )
        self.assertEqual(
            found,
            [
                pro.Citation("[C](https://c.example/)", None, "https://c.example/"),
                pro.Citation("[D](https://d.example/x_(y))", None, "https://d.example/x_(y)"),
                pro.Citation("[1](https://b.example/)", 3, "https://b.example/"),
            ],
        )
        self.assertEqual(warnings, [])

    def test_markers_without_a_source_are_listed_and_named_in_a_warning(self) -> None:
        found, warnings = self.cited("A [2], B [web:0], C [13][1], D [2].")
        self.assertEqual(found, [("[2]", None), ("[web:0]", None), ("[13]", None), ("[1]", 1)])
        self.assertEqual(warnings, ["No listed source belongs to the markers [2], [web:0], [13]."])

    def test_brackets_that_are_no_markers_are_no_orphans(self) -> None:
        for text in (
            *("in [2024]", "x[0]", "[1000]", "[01]", "[^1]", "[1,3]", "[1, 3]", "[ 1 ]", "[web:]"),
            *("[\u0661]", "[a]", "[](x)", "[web:-1]", "[12345]", "web:1", "[web:01]"),
        ):
            self.assertEqual(self.cited(text), ([], []), text)

    def test_an_id_of_four_digits_counts_where_a_source_has_it(self) -> None:
        _, found, warnings = pro.cited("A [2024].", [source("https://a.example/", 2024)])
        self.assertEqual((found[0].source, warnings), (2024, []))

    def test_markers_inside_code_are_none(self) -> None:
        for text in (
            "Use `x[1]` here.",
            "```python\nx = a[1][2]\n```",
            "```\na[2]\nnever closed",
            "Use `[a](https://a.example/)`.",
        ):
            self.assertEqual(self.cited(text), ([], []), text)
        self.assertEqual(self.cited("`a`[1]`b` ```c[2]``` [3]")[0], [("[1]", 1), ("[3]", 3)])
        self.assertEqual(self.cited("[`x`1]"), ([], []))

    def test_an_answer_made_to_be_slow_is_not(self) -> None:
        for text in (
            "[" * 200_000,
            "[1" * 100_000,
            "`" * 200_001,
            "`a\n" * 70_000,
            "[a](http://" * 20_000,
            "[a](http://" + "x(" * 100_000,
            "[x" + "y" * 300 + "](" * 3000,
        ):
            started = time.monotonic()
            self.cited(text)
            self.assertLess(time.monotonic() - started, 5)


class StructuredAnswers(unittest.TestCase):
    def test_markers_that_end_a_text_are_removed_and_counted(self) -> None:
        for text, value, count in (
            ('{"city":"Paris[1]"}', {"city": "Paris"}, 1),
            ('{"a":["x [1][web:0]\\n[23]", 5, null, true]}', {"a": ["x", 5, None, True]}, 3),
            ('["[999]", "[web:999]"]', ["", ""], 2),
            ('{"a[1]":"b"}', {"a[1]": "b"}, 0),
            ('["a[1] b", "a[1].", "a [2024] "]', ["a[1] b", "a[1].", "a [2024] "], 0),
            ('["Paris [1][web:2] ", "a[1]\\n"]', ["Paris", "a"], 3),
            ('["[0]", "[1000]", "[2024]", "[01]", "[web:01]"]', None, 0),
            ('["a[1,2]", "a[^1]", "a[\u0661]", "a[ 1]", "a\u00a0[1000]"]', None, 0),
            ('"a\u00a0[1]"', "a\u00a0", 1),
            ("5", 5, 0),
        ):
            expected = json.loads(text) if value is None else value
            found, notes = pro.answer_json_of(text)
            self.assertEqual(found, expected)
            words = f"{count} citation marker{'s' * (count > 1)} removed from the ends of texts in "
            words += "answer_json."
            self.assertEqual(notes, [words] if count else [])

    def test_a_code_block_that_is_all_of_the_answer_is_opened(self) -> None:
        for text in (
            '```json\n{"a": 1}\n```',
            '\n ```\n{"a": 1}```\n\n',
            '```JSON \r\n\n{"a": 1}\n\n```',
        ):
            self.assertEqual(pro.answer_json_of(text), ({"a": 1}, []))

    def test_what_is_not_json_is_null_with_a_warning(self) -> None:
        for text in (
            *("", '{"a":', "Paris", 'Here: {"a":1}', '{"a": NaN}', "```", "``````", "```json\n```"),
            *('```python\n{"a":1}\n```', '{"a":1} {"b":2}', "[" * 100_000),
        ):
            found, notes = pro.answer_json_of(text)
            self.assertIsNone(found)
            self.assertIn("not valid JSON", notes[0])

    def test_what_was_escaped_inside_the_text_is_cleaned_too(self) -> None:
        key = "pplx-" + "a" * 40
        text = '{"half": "\\ud83d", "key": "' + key.replace("p", "\\u0070") + '"}'
        self.assertNotIn(key, text)
        self.assertEqual(pro.answer_json_of(text)[0], {"half": "\ufffd", "key": "[redacted]"})

    def test_nesting_beyond_all_reason_is_null_with_a_warning(self) -> None:
        self.assertIsNotNone(pro.answer_json_of("[" * 100 + "]" * 100)[0])
        found, notes = pro.answer_json_of("[" * 101 + "]" * 101)
        self.assertIsNone(found)
        self.assertIn("nested deeper than 100 levels", notes[0])

    def test_a_number_that_cannot_be_held_is_no_silent_null(self) -> None:
        for number in ("9" * 5000, "1e999", "-1e999"):
            found, notes = pro.answer_json_of('{"a": [{"n": ' + number + "}]}")
            self.assertIsNone(found)
            self.assertIn("number that cannot be held", notes[0])

    def test_an_answer_made_to_be_slow_is_not(self) -> None:
        for text in (
            json.dumps(" " * 300_000 + "x"),
            json.dumps("[1]" * 100_000 + "x"),
            json.dumps("x" + " [1]" * 300_000),
            json.dumps("[" * 300_000),
            "```" + "\n" * 300_000 + "x",
            "```json\n" + " " * 300_000 + "x```",
        ):
            started = time.monotonic()
            pro.answer_json_of(text)
            self.assertLess(time.monotonic() - started, 5)


class Domains(unittest.TestCase):
    def test_pages_from_elsewhere_are_named(self) -> None:
        urls = ["https://docs.Python.org/3", "https://evilpython.org/", "http://python.org:80/"]
        self.assertEqual(
            pro.outside_domains([*urls, *["https://a.example/"] * 2], ["python.org"]),
            ["3 results outside the domains asked for: evilpython.org, a.example."],
        )
        self.assertEqual(pro.outside_domains(urls[::2], ["a.example", "python.org"]), [])

    def test_pages_that_were_to_be_left_out_are_named(self) -> None:
        urls = ["https://old.reddit.com/r", "https://notreddit.com/"]
        self.assertEqual(
            pro.outside_domains(urls, ["-reddit.com", "-x.com"]),
            ["1 result outside the domains asked for: old.reddit.com."],
        )

    def test_without_domains_there_is_nothing_to_say(self) -> None:
        for domains in each(None, []):
            self.assertEqual(pro.outside_domains(["https://a.example/"], domains), [])

    def test_addresses_without_a_host_break_nothing(self) -> None:
        found = pro.outside_domains(["https://[", "x", "https://\u2100/"], ["python.org"])
        self.assertTrue(found[0].startswith("3 results outside"))


class SearchReplies(unittest.TestCase):
    def test_hits_are_read_in_order(self) -> None:
        hits, warnings = pro.read_search(GOOD_SEARCH)
        self.assertEqual(
            hits,
            [
                pro.Hit(
                    "Ownership",
                    "https://example.org/ownership",
                    "# Ownership\n...",
                    "2026-10-08",
                    "2026-10-09",
                ),
                pro.Hit("Comptime", "https://example.org/c", "x", None, None),
            ],
        )
        self.assertEqual(warnings, [])

    def test_no_hits_are_no_error(self) -> None:
        self.assertEqual(pro.read_search({"results": []}), ([], []))

    def test_a_null_beside_the_results_is_no_error_and_an_error_is_one(self) -> None:
        for nothing in each(None, "", {}, []):
            body = {**GOOD_SEARCH, "error": nothing, "detail": nothing}
            self.assertEqual(len(pro.read_search(body)[0]), 2)
        for body in each(
            *(None, [], "x", 5, {"results": {}}, {"results": "x"}, {"results": 0}, {}, {"id": "x"}),
            {"results": None},
            *({"results": [], "error": {"message": "x"}}, {"detail": [{"msg": "x"}]}),
        ):
            with self.assertRaises(pro.ToolError) as caught:
                pro.read_search(body)
            self.assertEqual(caught.exception.kind, "unexpected_response")
            self.assertTrue(caught.exception.sent)

    def test_one_list_for_each_query_is_one_list_of_all(self) -> None:
        first, second = GOOD_SEARCH["results"]
        hits, _ = pro.read_search({"results": [[first], [], [second, first], second]})
        self.assertEqual([hit.title for hit in hits], ["Ownership", "Comptime"] * 2)

    def test_hits_without_an_address_are_dropped_and_counted(self) -> None:
        bad = [None, "x", {}, {"url": None}, {"url": "x"}, {"url": "https://[a", "title": "t"}]
        hits, warnings = pro.read_search({"results": [*bad, GOOD_SEARCH["results"][0]]})
        self.assertEqual(len(hits), 1)
        self.assertEqual(warnings, ["6 results without a usable address left out."])

    def test_a_hit_may_lack_everything_else(self) -> None:
        for odd in each(None, 5, [], {}, " "):
            entry = dict.fromkeys(("title", "snippet", "date", "last_updated"), odd)
            hits, warnings = pro.read_search({"results": [{"url": "https://a.example/", **entry}]})
            self.assertEqual(hits, [pro.Hit("", "https://a.example/", "", None, None)])
            self.assertEqual(warnings, [])

    def test_texts_are_cleaned_and_cut_with_a_warning(self) -> None:
        entry = {"url": "https://a.example/", "title": "A\x1b\u202eB", "snippet": "x" * 20_001}
        (hit,), warnings = pro.read_search({"results": [entry]})
        self.assertEqual(hit.title, "AB")
        self.assertEqual(hit.snippet, "x" * 19_999 + "\u2026")
        self.assertEqual(warnings, ["1 result cut after 20000 characters."])
        entry["snippet"] = "x" * 20_000
        self.assertEqual(pro.read_search({"results": [entry]})[1], [])

    def test_any_part_of_a_reply_may_be_missing_or_odd(self) -> None:
        for body in odd_forms(GOOD_SEARCH):
            try:
                hits, _ = pro.read_search(body)
            except pro.ToolError as error:
                self.assertEqual(error.kind, "unexpected_response")
                continue
            for hit in hits:
                self.assertTrue(all(isinstance(text, str) for text in hit[:3]))
                self.assertTrue(pro.usable_url(hit.url))
            pro.outside_domains([hit.url for hit in hits], ["-example.org"])


class ModelLists(unittest.TestCase):
    def test_models_are_read_with_the_prices_they_have(self) -> None:
        self.assertEqual(
            pro.read_models(GOOD_MODELS),
            [
                pro.Model(
                    "anthropic/claude-haiku-4-5",
                    "anthropic",
                    {
                        "input": 1.0,
                        "output": 5.0,
                        "cache_read": 0.1,
                        "cache_write": 1.25,
                        "unit": "usd_per_1m_tokens",
                    },
                ),
                pro.Model("google/gemini-3.8-flash", "google", {"input": 0.75}),
            ],
        )

    def test_entries_that_name_no_model_are_skipped(self) -> None:
        for entry in (None, "x", {}, {"id": None}, {"id": " "}, {"id": "m" * 201}, {"id": "\x1b"}):
            self.assertEqual(pro.read_models({"data": [entry, {"id": "a/b"}]})[0].id, "a/b")

    def test_the_provider_is_named_by_the_id_where_nothing_else_does(self) -> None:
        for entry, provider in (
            ({"id": "xai/grok"}, "xai"),
            ({"id": "xai/grok", "owned_by": None}, "xai"),
            ({"id": "grok"}, "grok"),
            ({"id": "xai/grok", "owned_by": "X\n" + "y" * 200}, "X " + "y" * 97 + "\u2026"),
        ):
            self.assertEqual(pro.read_models({"data": [entry]})[0].provider, provider)

    def test_prices_that_are_none_are_null_and_never_nothing(self) -> None:
        for price in each(None, "1", True, -1, 1e999, 10**400, float("nan"), [], {}):
            (model,) = pro.read_models({"data": [{"id": "a/b", "pricing": {"input": price}}]})
            self.assertEqual(model.pricing, {}, price)
        (model,) = pro.read_models({"data": [{"id": "a/b", "pricing": {"input": 0}}]})
        self.assertEqual(model.pricing, {"input": 0.0})

    def test_what_is_no_list_is_refused(self) -> None:
        for body in each(None, [], {}, {"data": None}, {"data": {}}, {"data": "x"}):
            with self.assertRaises(pro.ToolError) as caught:
                pro.read_models(body)
            self.assertEqual(caught.exception.kind, "unexpected_response")
            self.assertFalse(caught.exception.sent)

    def test_any_part_of_a_list_may_be_missing_or_odd(self) -> None:
        for body in odd_forms(GOOD_MODELS):
            try:
                models = pro.read_models(body)
            except pro.ToolError as error:
                self.assertEqual(error.kind, "unexpected_response")
                continue
            for model in models:
                self.assertTrue(0 < len(model.id) <= pro.MAX_MODEL_CHARS)
                model.pricing.pop("unit", None)
                self.assertLessEqual(set(map(type, model.pricing.values())), {float})


if __name__ == "__main__":
    unittest.main()
