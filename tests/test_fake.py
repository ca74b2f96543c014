"""The fake keeps to the contract of the service, checked with a client of the standard library."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest
from decimal import Decimal
from typing import Any, NamedTuple

import fake_perplexity as fp
from fake_perplexity import Answer, FakePerplexity

Json = Any
FAST = {"preset": "fast", "input": "How high is Everest?"}
MEDIUM = {"preset": "medium", "input": "Compare databases.", "background": True}
DECISION: Json = {
    "model": "pplx-decider-v1.1-27b",
    "state": "The export crashes",
    "questions": {"urgent": {"type": "noul", "instructions": "Is it urgent?"}},
}
EMBEDDING: Json = {"model": "pplx-embed-v1-0.6b", "input": ["one text"], "dimensions": 128}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["city", "size"],
}
KEYS = {
    *("id", "object", "status", "model", "output", "usage", "error", "incomplete_details"),
    *("created_at", "completed_at", "background", "store", "instructions", "max_output_tokens"),
    *("previous_response_id", "prompt_cache_key", "reasoning", "service_tier", "tools", "text"),
    *("tool_choice", "temperature", "top_p", "frequency_penalty", "presence_penalty"),
    *("top_logprobs", "parallel_tool_calls", "max_tool_calls", "safety_identifier", "user"),
    *("metadata", "truncation"),
}


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Json:
        return json.loads(self.raw)

    @property
    def error(self) -> Json:
        return self.json["error"]


class FakeCase(unittest.TestCase):
    """Starts a fake per test and sends requests over one kept connection."""

    def setUp(self) -> None:
        self.fake = FakePerplexity().start()
        self.addCleanup(self.fake.stop)
        self.connection = self.connect()

    def connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.fake.url.removeprefix("http://"), timeout=10)
        self.addCleanup(connection.close)
        return connection

    def send(
        self, method: str, path: str, body: Json = None, **headers: str
    ) -> http.client.HTTPResponse:
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        usual = {"Authorization": f"Bearer {self.fake.key}", "Content-Type": "application/json"}
        self.connection.request(method, path, raw, {**usual, **headers})
        return self.connection.getresponse()

    def ask(self, method: str, path: str, body: Json = None, **headers: str) -> Reply:
        response = self.send(method, path, body, **headers)
        raw = response.read()
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, raw)

    def post(self, path: str, body: Json) -> Reply:
        return self.ask("POST", path, body)

    def agent(self, **fields: Json) -> Reply:
        return self.post("/v1/agent", {**FAST, **fields})


class Keys(FakeCase):
    def test_the_key_is_checked_first_on_every_path(self) -> None:
        for method, path in (("GET", "/v1/models"), ("POST", "/search"), ("GET", "/nowhere")):
            for headers in ({"Authorization": "Bearer wrong"}, {"Authorization": ""}):
                with self.subTest(path=path, headers=headers):
                    reply = self.ask(method, path, b"{not json", **headers)
                    self.assertEqual(reply.status, 401)
                    self.assertEqual(reply.error["type"], "invalid_api_key")
                    self.assertEqual(reply.error["code"], 401)
                    self.assertNotIn("x-request-id", reply.headers)

    def test_a_wrong_key_uses_up_no_scripted_answer(self) -> None:
        self.fake.script("GET /v1/models", Answer(503))
        self.assertEqual(self.ask("GET", "/v1/models", Authorization="Bearer no").status, 401)
        self.assertEqual(self.ask("GET", "/v1/models").status, 503)

    def test_the_key_looks_like_a_key(self) -> None:
        self.assertRegex(FakePerplexity.KEY, r"\Applx-fakekey[A-Za-z0-9]{32}\Z")


class Agent(FakeCase):
    def test_a_run_has_all_keys_in_order_and_the_request_id_of_the_run(self) -> None:
        reply = self.agent(store=False, instructions="Be terse & kind")
        self.assertEqual(set(reply.json), KEYS)
        self.assertEqual(list(reply.json), sorted(KEYS))
        self.assertEqual(reply.headers["x-request-id"], reply.json["id"].removeprefix("resp_"))
        self.assertIn(b"terse \\u0026 kind", reply.raw)
        self.assertEqual(reply.headers["transfer-encoding"], "chunked")
        self.assertEqual(reply.headers["x-ratelimit-limit"], "50")

    def test_the_answer_speaks_of_the_question_and_cites_what_was_found(self) -> None:
        search, message = self.agent().json["output"]
        text = message["content"][0]["text"]
        self.assertIn("How high is Everest?", text)
        self.assertIn("[1]", text)
        self.assertIn("[web:2]", text)
        self.assertLessEqual({1, 2}, {result["id"] for result in search["results"]})
        self.assertNotIn("date", search["results"][1])

    def test_both_paths_serve_the_same_runs(self) -> None:
        created = self.post("/v1/responses", FAST).json
        for path in ("/v1/agent/", "/v1/responses/"):
            self.assertEqual(self.ask("GET", path + created["id"]).json["id"], created["id"])
        self.assertEqual(len(self.fake.calls("POST", "/v1/agent")), 1)
        self.assertEqual(len(self.fake.calls("GET", "/v1/agent/{id}")), 2)
        self.assertEqual(self.post("/responses", FAST).status, 200)

    def test_a_bare_model_does_not_search_and_bills_no_tools(self) -> None:
        run = self.post("/v1/agent", {"model": "perplexity/sonar", "input": "hi"}).json
        self.assertEqual([item["type"] for item in run["output"]], ["message"])
        self.assertEqual(run["tools"], [])
        self.assertNotIn("tool_calls_details", run["usage"])
        self.assertNotIn("tool_calls_cost", run["usage"]["cost"])
        self.assertEqual(set(run["usage"]["input_tokens_details"]), {"cached_tokens"})

    def test_costs_are_rounded_parts_and_the_total_is_their_sum(self) -> None:
        run_id = self.post("/v1/agent", MEDIUM).json["id"]
        self.fake.finish_all()
        usage = self.ask("GET", f"/v1/agent/{run_id}").json["usage"]
        cost = usage["cost"]
        names = ("input", "output", "cache_creation", "cache_read", "tool_calls")
        parts = [Decimal(str(cost[f"{name}_cost"])) for name in names]
        self.assertEqual(parts, [round(part, 5) for part in parts])
        self.assertEqual(sum(parts), Decimal(str(cost["total_cost"])))
        self.assertEqual(cost["tool_calls_cost_details"]["search_web"], 0.003)
        self.assertEqual(usage["tool_calls_details"]["search_web"]["invocation"], 3)
        self.assertEqual(len(usage["tool_calls_details"]["fetch_url"]["token_usage"]), 2)
        self.assertEqual(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])

    def test_the_documented_example_costs_what_the_document_says(self) -> None:
        price = fp.TOOL_PRICES["search_web:fast"]
        billed = [("search_web", price)]
        usage = fp.usage_of("openai/gpt-6-luna", 1430, (42, 0), billed, cached=True)
        self.assertEqual(usage["input_tokens"], 3210)
        self.assertEqual(
            usage["cost"],
            {
                "currency": "USD",
                "input_cost": 0,
                "output_cost": 0.00002,
                "cache_creation_cost": 0.00018,
                "cache_read_cost": 0.00002,
                "tool_calls_cost": 0.001,
                "tool_calls_cost_details": {"search_web": 0.001},
                "total_cost": 0.00122,
            },
        )

    def test_a_search_by_a_bare_model_is_dear_unless_fast(self) -> None:
        for extra, cost in (({}, 0.0025), ({"search_type": "fast"}, 0.001)):
            tools = [{"type": "web_search", "max_results": 7, **extra}]
            body = {"model": "perplexity/sonar", "input": "hi", "tools": tools}
            run = self.post("/v1/agent", body).json
            self.assertEqual(run["usage"]["cost"]["tool_calls_cost"], cost)
            self.assertEqual(len(run["output"][0]["results"]), 7)
            self.assertEqual(run["tools"], tools)

    def test_domain_filters_steer_the_results(self) -> None:
        for entries, wanted in ((["nasa.gov"], True), (["-example.org"], False)):
            tools = [{"type": "web_search", "filters": {"search_domain_filter": entries}}]
            results = self.agent(tools=tools).json["output"][0]["results"]
            domain = entries[0].lstrip("-")
            self.assertEqual({f"//{domain}/" in r["url"] for r in results}, {wanted})

    def test_a_small_cap_leaves_the_run_incomplete(self) -> None:
        empty, cut = self.agent(max_output_tokens=3).json, self.agent(max_output_tokens=20).json
        self.assertEqual(empty["output"], [])
        self.assertEqual(empty["max_output_tokens"], 16)
        self.assertEqual(empty["usage"]["output_tokens_details"], {"reasoning_tokens": 16})
        for run in (empty, cut):
            self.assertEqual(run["status"], "incomplete")
            self.assertEqual(run["incomplete_details"], {"reason": "max_output_tokens"})
            self.assertIsNone(run["completed_at"])
        self.assertEqual(cut["output"][-1]["type"], "message")

    def test_a_schema_is_answered_with_json_text(self) -> None:
        wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
        run = self.agent(response_format=wanted).json
        answer = json.loads(run["output"][-1]["content"][0]["text"])
        self.assertEqual(answer, {"city": "How high is Everest?[1]", "size": 42})
        self.assertEqual(run["text"], {"format": {"type": "text"}})

    def test_a_conversation_goes_on_even_from_an_unstored_run(self) -> None:
        first = self.agent(input="My codeword is HERON.", store=False).json["id"]
        second = self.agent(input="And?", previous_response_id=first).json
        third = self.agent(input="Which?", previous_response_id=second["id"]).json
        self.assertIn("HERON", third["output"][-1]["content"][0]["text"])
        self.assertEqual(third["previous_response_id"], second["id"])

    def test_a_replayed_conversation_is_read_too(self) -> None:
        items = [
            {"type": "message", "role": "user", "content": "My codeword is HERON."},
            {"type": "message", "role": "assistant", "content": "OK"},
            {"role": "user", "content": [{"type": "input_text", "text": "Which?"}]},
        ]
        text = self.agent(input=items).json["output"][-1]["content"][0]["text"]
        self.assertIn('You asked "Which?"', text)
        self.assertIn("HERON", text)

    def test_only_a_run_that_ended_well_can_be_continued(self) -> None:
        running = self.post("/v1/agent", MEDIUM).json["id"]
        for previous in (running, "resp_unknown", "nonsense"):
            reply = self.agent(previous_response_id=previous)
            self.assertEqual((reply.status, reply.error["message"]), (400, "invalid request"))


class Refusals(FakeCase):
    EXACT: tuple[tuple[Json, str], ...] = (
        ({"input": ""}, "validation failed: input cannot be empty"),
        ({"input": 7}, "validation failed: input array cannot be empty"),
        ({"input": []}, "validation failed: input array cannot be empty"),
        ({"max_steps": 0}, "validation failed: max steps must be at least 1"),
        ({"max_step": 1}, 'invalid request body: json: unknown field "max_step"'),
        (
            {"preset": None, "model": "anthropic/claude-haiku-4-5"},
            "validation failed: max_output_tokens is required when using Anthropic models",
        ),
        (
            {"tools": [{"type": "web_search", "filters": {"search_recency_filter": "decade"}}]},
            "validation failed: tools[0]: search recency filter must be one of: "
            "hour day week month year",
        ),
        (
            {"tools": [{"type": "web_search", "max_results": 0}]},
            "validation failed: tools[0]: max results must be at least 1",
        ),
        (
            {"response_format": {"type": "json_schema", "schema": SCHEMA}},
            'validation failed: response_format.json_schema is required when type is "json_schema"',
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "a",
                        "schema": {"type": "object", "properties": {"x": {"type": "bogus"}}},
                    },
                }
            },
            "invalid request",
        ),
        (
            {
                "preset": None,
                "model": "perplexity/glm-5.3",
                "input": [
                    {"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]}
                ],
            },
            "invalid request",
        ),
    )
    OTHERS: tuple[Json, ...] = (
        {"preset": None, "model": "auto"},
        {"preset": None},
        {"preset": "turbo"},
        {"preset": "wide-research"},
        {"max_steps": "3"},
        {"store": 1},
        {"models": ["a"] * 6},
        {"tools": [{"type": "web_search", "max_results": 51}]},
        {"tools": [{"type": "telepathy"}]},
        {"tools": [{"type": ["x"]}]},
        {"tools": [{"type": "web_search", "domains": []}]},
        {"tools": [{"type": "function", "name": "web_search"}]},
        {"tools": [{"type": "web_search", "filters": {"search_domain_filter": ["a.b"] * 21}}]},
        {"input": [{"type": "message", "role": "pope", "content": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_data": "x"}]}]},
        {"input": ["x"]},
    )

    def test_refusals_use_the_words_of_the_service(self) -> None:
        for fields, message in self.EXACT:
            with self.subTest(fields=fields):
                reply = self.agent(**fields)
                self.assertEqual((reply.status, reply.error["message"]), (400, message))
                self.assertEqual(reply.error["code"], 400)
                self.assertTrue(reply.raw.endswith(b"}\n"))

    def test_other_mistakes_are_refused_as_well(self) -> None:
        for fields in self.OTHERS:
            with self.subTest(fields=fields):
                self.assertEqual(self.agent(**fields).status, 400)
        self.assertEqual(self.agent(**self.OTHERS[0]).error["type"], "invalid_model")

    def test_an_unknown_field_is_named_beside_the_message(self) -> None:
        self.assertEqual(self.agent(max_step=1).error["param"], "max_step")

    def test_a_schema_with_another_root_has_its_own_error(self) -> None:
        wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "bogus"}}}
        error = self.agent(response_format=wanted).error
        self.assertEqual(error["type"], "invalid_parameter")
        self.assertIn("'object' (got type=\"bogus\"). Wrap your data", error["message"])

    def test_mixed_domains_and_iso_dates_pass_silently(self) -> None:
        filters = {
            "search_domain_filter": ["a.example", "-b.example"],
            "search_after_date_filter": "2026-09-01",
        }
        reply = self.agent(tools=[{"type": "web_search", "filters": filters}])
        self.assertEqual(reply.json["tools"][0]["filters"], filters)

    def test_a_body_that_is_no_object_is_refused(self) -> None:
        for raw in (b"{", b"[]", b"\xff", b'{"preset":"fast","input":NaN}', b"[" * 100_000):
            self.assertEqual(self.ask("POST", "/v1/agent", raw).status, 400)

    def test_a_body_needs_its_content_type(self) -> None:
        reply = self.ask("POST", "/v1/agent", FAST, **{"Content-Type": "text/plain"})
        self.assertEqual(reply.status, 415)

    def test_a_body_over_32_mib_is_too_large(self) -> None:
        body = {**FAST, "input": "x" * fp.MAX_BODY_BYTES}
        reply = self.post("/v1/agent", body)
        self.assertEqual((reply.status, reply.error["type"]), (413, "payload_too_large"))


class Background(FakeCase):
    def poll(self, run_id: str) -> Json:
        return self.ask("GET", f"/v1/agent/{run_id}").json

    def test_a_run_lives_through_its_script_poll_by_poll(self) -> None:
        created = self.post("/v1/agent", MEDIUM).json
        polls = [self.poll(created["id"]) for _ in range(4)]
        statuses = [run["status"] for run in (created, *polls)]
        self.assertEqual(statuses, ["queued", "queued", "in_progress", "completed", "completed"])
        for run in (created, *polls[:2]):
            self.assertEqual((run["model"], run["usage"], run["tools"]), ("medium", None, []))
        self.assertEqual(created["output"], [])
        kinds = [item["type"] for item in polls[1]["output"]]
        self.assertEqual(kinds, ["search_results"] * 3 + ["fetch_url_results"] * 2)
        self.assertEqual(polls[2]["model"], "openai/gpt-6-luna")
        self.assertEqual(polls[2]["output"][-1]["type"], "message")
        self.assertTrue(all(set(run) == KEYS for run in polls))
        self.assertEqual(len({run["created_at"] for run in polls}), 4)

    def test_lives_can_be_chosen_for_all_runs_and_for_one(self) -> None:
        self.fake.run_script("thinking", "failed")
        one, two = (self.post("/v1/agent", MEDIUM).json["id"] for _ in range(2))
        self.fake.runs[two] = ("incomplete",)
        self.assertEqual([self.poll(one)["status"] for _ in range(2)], ["thinking", "failed"])
        self.assertEqual(self.poll(one)["error"]["type"], "internal_error")
        self.assertEqual(self.poll(two)["incomplete_details"], {"reason": "max_output_tokens"})

    def test_unknown_foreign_and_unstored_runs_are_not_found(self) -> None:
        hidden = self.agent(store=False).json["id"]
        for run_id in (hidden, "resp_00000000-0000-4000-8000-000000000000"):
            reply = self.ask("GET", f"/v1/agent/{run_id}")
            self.assertEqual((reply.status, reply.error["message"]), (404, "resource not found"))
            self.assertNotIn("x-request-id", reply.headers)
        reply = self.ask("GET", "/v1/agent/not-an-id")
        self.assertEqual((reply.status, reply.error["message"]), (400, "invalid response id"))

    def test_cancelling_takes_a_few_polls(self) -> None:
        run_id = self.post("/v1/agent", MEDIUM).json["id"]
        reply = self.ask("POST", f"/v1/agent/{run_id}/cancel")
        self.assertEqual(reply.json, {"response_id": run_id, "status": "cancelling"})
        self.assertEqual(self.poll(run_id)["status"], "in_progress")
        run = self.poll(run_id)
        self.assertEqual(run["status"], "cancelled")
        self.assertEqual(run["error"]["code"], "cancelled")
        self.assertEqual(run["incomplete_details"], {"reason": "cancelled"})
        self.assertIsNone(run["usage"])
        self.assertIsNone(run["completed_at"])

    def test_finished_and_unknown_runs_cannot_be_cancelled_in_the_same_words(self) -> None:
        finished = self.agent().json["id"]
        replies = [
            self.ask("POST", f"/v1/responses/{run_id}/cancel") for run_id in (finished, "resp_none")
        ]
        self.assertEqual({reply.status for reply in replies}, {400})
        self.assertEqual(replies[0].raw, replies[1].raw)
        self.assertIn("already terminal", replies[0].error["message"])


class Streams(FakeCase):
    def events(self, raw: bytes) -> list[Json]:
        blocks = [block.split("\n") for block in raw.decode().split("\n\n") if block]
        events = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
        self.assertEqual(
            [name.removeprefix("event: ") for name, _ in blocks],
            [event["type"] for event in events],
        )
        return events

    def test_a_stream_has_gaps_and_ends_with_the_completed_run(self) -> None:
        reply = self.agent(stream=True)
        self.assertEqual(reply.headers["content-type"], "text/event-stream")
        self.assertEqual(reply.headers["cache-control"], "no-cache")
        self.assertNotIn(b"[DONE]", reply.raw)
        events = self.events(reply.raw)
        numbers = [event["sequence_number"] for event in events]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertNotIn(2, numbers)
        self.assertNotIn(17, numbers)
        first, last = events[0]["response"], events[-1]["response"]
        self.assertEqual((first["model"], first["usage"], first["output"]), ("fast", None, []))
        self.assertEqual((events[-1]["type"], set(last)), ("response.completed", KEYS))
        self.assertEqual(reply.headers["x-request-id"], last["id"].removeprefix("resp_"))
        deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
        self.assertEqual("".join(deltas), last["output"][-1]["content"][0]["text"])

    def test_a_search_is_announced_as_a_call_and_delivered_as_results(self) -> None:
        events = self.events(self.agent(stream=True).raw)
        items = [e["item"]["type"] for e in events if e.get("output_index") == 0 and "item" in e]
        self.assertEqual(items, ["function_call", "search_results"])

    def test_a_cut_answer_ends_as_incomplete(self) -> None:
        events = self.events(self.agent(stream=True, max_output_tokens=20).raw)
        self.assertEqual(events[-1]["type"], "response.incomplete")

    def test_scripted_events_are_cut_wherever_a_test_likes(self) -> None:
        halves: list[bytes | str] = [b"data: \xc3", b"\xa9\n\n", "data: [DONE]\n\n"]
        self.fake.script("POST /v1/agent", Answer(events=halves))
        self.assertEqual(self.agent(stream=True).raw, "data: é\n\ndata: [DONE]\n\n".encode())

    def test_a_stream_can_wait_in_the_middle(self) -> None:
        gate = threading.Event()
        self.fake.script("POST /v1/agent", Answer(events=[b"one", gate, b"two"]))
        response = self.send("POST", "/v1/agent", FAST)
        self.assertEqual(response.read1(), b"one")
        gate.set()
        self.assertEqual(response.read(), b"two")

    def test_a_stream_can_end_without_its_last_chunk(self) -> None:
        answer = Answer(events=[b"data: {}\n\n"], fault="truncate_chunked")
        self.fake.script("POST /v1/agent", answer)
        response = self.send("POST", "/v1/agent", FAST)
        self.assertEqual(response.headers["content-type"], "text/event-stream")
        with self.assertRaises(http.client.IncompleteRead):
            response.read()


class Search(FakeCase):
    def test_results_of_several_queries_are_one_flat_list(self) -> None:
        reply = self.post("/search", {"query": ["rust borrow", "zig comptime"], "max_results": 6})
        self.assertEqual(reply.headers["x-request-id"], reply.json["id"])
        results = reply.json["results"]
        self.assertEqual(len(results), 6)
        self.assertEqual(sum("zig" in result["title"] for result in results), 3)
        self.assertTrue(all(len(result) == 5 for result in results))
        self.assertEqual({result["date"] for result in results}, {None, "2026-09-18"})
        self.assertIsNone(reply.json["server_time"])

    def test_ten_results_come_by_default_and_a_budget_drops_whole_ones(self) -> None:
        self.assertEqual(len(self.post("/search", {"query": "a"}).json["results"]), 10)
        few = self.post("/search", {"query": "a", "max_tokens": 40}).json["results"]
        self.assertIn(len(few), range(1, 10))
        self.assertTrue(few[-1]["snippet"].endswith("background."))

    def test_mistakes_are_refused_as_schema_errors(self) -> None:
        cases: tuple[tuple[Json, str], ...] = (
            ({}, "query"),
            ({"query": ""}, "query"),
            ({"query": ["a"] * 6}, "query"),
            ({"query": "a", "max_results": 21}, "max_results"),
            ({"query": "a", "max_results": True}, "max_results"),
            ({"query": "a", "country": "us"}, "country"),
            ({"query": "a", "search_type": "slow"}, "search_type"),
            ({"query": "a", "search_language_filter": ["eng"]}, "search_language_filter"),
            ({"query": "a", "recency": "day"}, "recency"),
        )
        for body, field in cases:
            with self.subTest(body=body):
                reply = self.post("/search", body)
                self.assertEqual(reply.status, 422)
                self.assertEqual(reply.json["detail"][0]["loc"], ["body", field])

    def test_recency_excludes_publication_dates_only(self) -> None:
        recent = {"query": "a", "search_recency_filter": "day"}
        published = {**recent, "search_after_date_filter": "09/01/2026"}
        reply = self.post("/search", published)
        self.assertEqual(reply.status, 400)
        self.assertIn("recency cannot be used together", reply.error["message"])
        updated = {**recent, "last_updated_after_filter": "09/01/2026"}
        self.assertEqual(self.post("/search", updated).status, 200)


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\0" * 9


def picture(data: bytes, kind: str = "png") -> Json:
    url = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


class Decisions(FakeCase):
    def decide(self, **fields: Json) -> Reply:
        return self.post("/v1/decisions", {**DECISION, **fields})

    def test_every_type_of_question_is_answered_in_its_shape(self) -> None:
        questions = {
            "urgent": {"type": "noul", "criteria": {"true": "blocks", "false": None}},
            "area": {"type": "choice", "criteria": {"export": "file export", "auth": None}},
            "severity": {"type": "score", "criteria": ["minor", "major", ["critical"]]},
        }
        reply = self.decide(questions=questions)
        answers = reply.json["answers"]
        self.assertTrue(0 < answers["urgent"]["noul"] < 1)
        self.assertEqual(set(answers["urgent"]), {"type", "noul"})
        self.assertEqual(answers["area"]["choice"], "export")
        self.assertAlmostEqual(sum(answers["area"]["probabilities"].values()), 1)
        self.assertEqual(set(answers["severity"]["probabilities"]), {"0", "1", "2"})
        self.assertEqual(answers["severity"]["legend"]["2"], ["critical"])
        self.assertTrue(0 <= answers["severity"]["score"] <= 2)
        self.assertEqual(reply.json["usage"]["output_tokens"], 3)
        self.assertEqual(reply.headers["x-ratelimit-limit"], "10")

    def test_the_three_error_envelopes(self) -> None:
        key = self.ask("POST", "/v1/decisions", DECISION, Authorization="Bearer x").error
        self.assertEqual(key["code"], 401)
        for fields in (
            {"model": "gpt"},
            {"model": None},
            {"extra": 1},
            {"questions": {"q": {"type": "noul", "instructions": "x", "weight": 1}}},
        ):
            error = self.decide(**fields).error
            self.assertIsNone(error["code"])
            self.assertIsNone(error["param"])
        error = self.decide(questions={}).error
        self.assertEqual((error["code"], error["model"]), ("400", DECISION["model"]))
        self.assertNotIn("param", error)

    def test_the_rules_of_questions(self) -> None:
        bad: tuple[Json, ...] = (
            {"type": "noul"},
            {"type": "choice", "criteria": {}},
            {"type": "choice", "criteria": dict.fromkeys(map(str, range(256)))},
            {"type": "choice", "criteria": {"a": 7}},
            {"type": "score", "criteria": []},
            {"type": "score", "criteria": ["x"] * 11},
            {"type": "score", "criteria": [None]},
            {"type": "guess"},
        )
        for question in bad:
            with self.subTest(question=question):
                self.assertEqual(self.decide(questions={"q": question}).error["code"], "400")
        good = {"type": "choice", "criteria": dict.fromkeys(map(str, range(255)))}
        self.assertEqual(self.decide(questions={"q": good}).status, 200)

    def test_128_questions_are_the_most(self) -> None:
        question = DECISION["questions"]["urgent"]
        for count, status in ((128, 200), (129, 400)):
            questions = {str(n): question for n in range(count)}
            self.assertEqual(self.decide(questions=questions).status, status)
        self.assertEqual(self.decide(questions={"": question}).status, 400)

    def test_an_empty_state_is_fine_and_the_least_bill_is_116_tokens(self) -> None:
        tiny = {"q": {"type": "noul", "instructions": "?"}}
        self.assertEqual(self.decide(state="", questions=tiny).json["usage"]["input_tokens"], 116)

    def test_a_choice_of_one_is_certain_and_free(self) -> None:
        reply = self.decide(questions={"q": {"type": "choice", "criteria": {"only": None}}}).json
        self.assertEqual(reply["usage"], {"input_tokens": 0, "output_tokens": 0})
        self.assertEqual(reply["answers"]["q"]["confidence"], 1.0)

    def test_pictures_are_measured_in_tiles(self) -> None:
        sizes = (
            (1440, 1440, 200),
            (1450, 1450, 200),
            (1470, 1470, 504),
            (1920, 1080, 200),
            (2048, 1024, 200),
            (1600, 1310, 504),
            (4000, 3000, 504),
        )
        for width, height, status in sizes:
            with self.subTest(width=width, height=height):
                reply = self.decide(state=[picture(png(width, height))])
                self.assertEqual(reply.status, status)
        self.assertIn(b"504 Gateway Time-out", reply.raw)
        self.assertEqual(reply.headers["content-type"], "text/html; charset=UTF-8")

    def test_all_three_formats_are_read(self) -> None:
        jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x0b\x08" + struct.pack(">HH", 480, 640) + b"\1"
        small = struct.pack("<I", 639 | 479 << 14)
        lossless = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + small
        extended = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + b"\x7f\x02\0\xdf\x01\0"
        lossy = b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 10 + struct.pack("<HH", 640, 480)
        for data in (jpeg, lossless, extended, lossy, png(640, 480)):
            self.assertEqual(fp.image_size(data), (640, 480))

    def test_what_is_no_acceptable_picture_is_refused(self) -> None:
        web = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
        broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}}
        for part in (picture(b"GIF89a", "gif"), web, broken, picture(png(9, 9)[:18])):
            self.assertEqual(self.decide(state=[part]).error["code"], "400")

    def test_eight_pictures_are_the_most(self) -> None:
        part = picture(png(32, 32))
        self.assertEqual(self.decide(state=["x", *[part] * 8]).status, 200)
        reply = self.decide(state=[part] * 9)
        self.assertEqual(reply.status, 400)
        self.assertIn("per question", reply.error["message"])

    def test_too_large_a_picture_stalls_on_the_gate(self) -> None:
        self.fake.stall = threading.Event()
        answers: list[int] = []
        state = [picture(png(4000, 3000))]
        client = threading.Thread(target=lambda: answers.append(self.decide(state=state).status))
        client.start()
        self.fake.wait_for("POST /v1/decisions", 1)
        self.assertEqual(answers, [])
        self.fake.stall.set()
        client.join(10)
        self.assertEqual(answers, [504])

    def test_both_length_messages(self) -> None:
        message = self.decide(state="word " * 300_000).error["message"]
        self.assertRegex(
            message,
            r"\AInput length \(\d+\) exceeds or equals model's maximum "
            r"context length \(262144\)\Z",
        )
        state = ["word " * 220_000, *[picture(png(1440, 1440))] * 8]
        message = self.decide(state=state).error["message"]
        self.assertRegex(
            message,
            r"\ATotal input tokens \(\d+ text \+ 16200 vision = \d+\) "
            r"exceeds maximum context length \(262144\)\Z",
        )


class Embeddings(FakeCase):
    def vectors(self, reply: Reply) -> list[bytes]:
        entries = sorted(reply.json["data"], key=lambda entry: entry["index"])
        return [base64.b64decode(entry["embedding"], validate=True) for entry in entries]

    def embed(self, **fields: Json) -> Reply:
        return self.post("/v1/embeddings", {**EMBEDDING, **fields})

    def test_both_encodings_have_the_right_byte_counts(self) -> None:
        for model, full in (("pplx-embed-v1-0.6b", 1024), ("pplx-embed-v1-4b", 2560)):
            for size in (128, None):
                for encoding, per_byte in (("base64_int8", 1), ("base64_binary", 8)):
                    reply = self.embed(model=model, dimensions=size, encoding_format=encoding)
                    self.assertEqual(len(self.vectors(reply)[0]), (size or full) // per_byte)

    def test_equal_texts_agree_and_shared_words_bring_texts_closer(self) -> None:
        texts = ["cats chase mice", "cats chase birds", "quarterly tax report", "cats chase mice"]
        for encoding in ("base64_int8", "base64_binary"):
            reply = self.embed(input=texts, encoding_format=encoding)
            cats, birds, tax, again = self.vectors(reply)
            self.assertEqual(cats, again)
            near = cosine if encoding == "base64_int8" else alike
            self.assertGreater(near(cats, birds), near(cats, tax) + 0.2)

    def test_entries_come_out_of_order(self) -> None:
        indexes = [entry["index"] for entry in self.embed(input=list("abcde")).json["data"]]
        self.assertNotEqual(indexes, sorted(indexes))
        self.assertEqual(sorted(indexes), list(range(5)))

    def test_the_cost_is_exact_and_in_exponent_notation(self) -> None:
        reply = self.embed(input="x" * 456)
        self.assertEqual(reply.json["usage"]["prompt_tokens"], 114)
        self.assertEqual(reply.json["usage"]["cost"]["total_cost"], 4.56e-7)
        self.assertIn(b"4.56e-07", reply.raw)

    def test_a_script_can_spoil_the_default_answer(self) -> None:
        def spoiled(seen: fp.Seen) -> Answer:
            answer = self.fake.default(seen)
            answer.body["usage"]["cost"]["currency"] = "EUR"
            return answer

        self.fake.script("POST /v1/embeddings", spoiled)
        self.assertEqual(self.embed().json["usage"]["cost"]["currency"], "EUR")
        self.assertEqual(self.embed().json["usage"]["cost"]["currency"], "USD")

    def test_limits_are_kept(self) -> None:
        cases: tuple[Json, ...] = (
            {"input": []}, {"input": ""}, {"input": [""]}, {"input": ["a"] * 513},
            {"dimensions": 127}, {"dimensions": 1025}, {"model": "pplx-embed"},
            {"encoding_format": "float"}, {"input": ["x" * 140_000]}, {"user": "me"},
            {"dimensions": 130, "encoding_format": "base64_binary"},
        )  # fmt: skip
        for fields in cases:
            self.assertEqual(self.embed(**fields).status, 422, fields)

    def test_chunks_of_a_document_lean_towards_it(self) -> None:
        model = "pplx-embed-context-v1-0.6b"
        body = {"model": model, "dimensions": 128, "input": [["cats", "mice"], ["cats"], ["tax"]]}
        documents = {
            entry["index"]: [
                base64.b64decode(chunk["embedding"])
                for chunk in sorted(entry["data"], key=lambda chunk: chunk["index"])
            ]
            for entry in self.post("/v1/contextualizedembeddings", body).json["data"]
        }
        self.assertEqual({n: len(chunks) for n, chunks in documents.items()}, {0: 2, 1: 1, 2: 1})
        self.assertNotEqual(documents[0][0], documents[1][0])
        self.assertGreater(cosine(documents[0][0], documents[1][0]), 0.95)


def cosine(one: bytes, two: bytes) -> float:
    a, b = ([byte - 256 if byte > 127 else byte for byte in data] for data in (one, two))
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return float(dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5)


def alike(one: bytes, two: bytes) -> float:
    differing = sum((x ^ y).bit_count() for x, y in zip(one, two, strict=True))
    return 1 - 2 * differing / (8 * len(one))


class Routes(FakeCase):
    def test_models_lists_52_priced_ids(self) -> None:
        models = {model["id"]: model for model in self.ask("GET", "/v1/models").json["data"]}
        self.assertEqual(len(models), 52)
        self.assertEqual(sum("cache_write" in m["pricing"] for m in models.values()), 22)
        owners = [model["owned_by"] for model in models.values()]
        counts = {owner: owners.count(owner) for owner in owners}
        self.assertEqual(
            counts, {"anthropic": 14, "google": 8, "openai": 17, "perplexity": 6, "xai": 7}
        )
        self.assertEqual(
            models["anthropic/claude-haiku-4-5"],
            {
                "id": "anthropic/claude-haiku-4-5",
                "object": "model",
                "created": 0,
                "owned_by": "anthropic",
                "pricing": {
                    "input": 1,
                    "output": 5,
                    "cache_read": 0.1,
                    "cache_write": 1.25,
                    "unit": "usd_per_1m_tokens",
                },
            },
        )

    def test_retired_endpoints_point_to_their_successor(self) -> None:
        for method, path in (
            ("POST", "/chat/completions"),
            ("GET", "/async/chat/completions/x"),
            ("POST", "/v1/sonar"),
            ("GET", "/v1/async/sonar"),
        ):
            reply = self.ask(method, path)
            self.assertEqual(reply.status, 403)
            self.assertEqual(reply.error["type"], "chat_completions_not_available")
            self.assertTrue(reply.error["message"].startswith("Sonar is now the Agent API. Use "))

    def test_unknown_paths_and_wrong_methods_answer_with_nothing(self) -> None:
        for method, path, status in (("GET", "/nope", 404), ("GET", "/v1/decisions", 405)):
            reply = self.ask(method, path)
            self.assertEqual((reply.status, reply.raw), (status, b""))
            self.assertNotIn("content-type", reply.headers)


class Faults(FakeCase):
    def fault(self, answer: Answer) -> http.client.HTTPResponse:
        self.fake.script("POST /search", answer)
        return self.send("POST", "/search", {"query": "a"})

    def test_every_form_of_retry_after_can_be_sent(self) -> None:
        values = ("1", "0.5", "Fri, 09 Oct 2026 19:07:20 GMT", "86400", "soon", "")
        for value in values:
            limited = fp.RATE_LIMITED._replace(headers=(("Retry-After", value),))
            response = self.fault(limited)
            self.assertEqual(response.status, 429)
            self.assertEqual(response.headers.get("retry-after", ""), value)
            self.assertEqual(response.headers["x-ratelimit-remaining"], "0")
            self.assertIsNone(json.loads(response.read())["error"]["code"])

    def test_server_errors_come_as_json_or_as_a_page(self) -> None:
        response = self.fault(fp.json_error(502, "bad_gateway", "no"))
        self.assertEqual(json.loads(response.read())["error"]["code"], 502)
        response = self.fault(fp.html_error(504)._replace(status=200))
        self.assertEqual(response.headers["content-type"], "text/html; charset=UTF-8")
        self.assertEqual((response.status, response.read()[:9]), (200, b"<!DOCTYPE"))

    def test_raw_bytes_are_sent_as_they_are(self) -> None:
        self.assertEqual(self.fault(Answer(200, b'{"a":"\xff\xfe"}')).read(), b'{"a":"\xff\xfe"}')
        escaped = self.fault(Answer(200, {"a": "\ud800&"})).read()
        self.assertEqual(escaped, b'{"a":"\\ud800\\u0026"}')

    def test_large_bodies_go_through_with_and_without_a_length(self) -> None:
        for chunked in (False, True):
            response = self.fault(Answer(200, b"x" * 3_000_001, chunked=chunked))
            self.assertEqual("content-length" in response.headers, not chunked)
            self.assertEqual(len(response.read()), 3_000_001)

    def test_bodies_can_be_truncated(self) -> None:
        for fault in ("truncate", "truncate_chunked"):
            response = self.fault(Answer(200, {"a": 1}, fault=fault))
            self.assertEqual(response.headers["content-type"], "application/json")
            with self.assertRaises(http.client.IncompleteRead) as caught:
                response.read()
            self.assertEqual(caught.exception.partial, b'{"a":1}')
            self.connection.close()

    def test_connections_can_be_reset_or_closed(self) -> None:
        for fault in ("reset_before", "reset_after"):
            with self.assertRaises(ConnectionResetError) as caught:
                self.fault(Answer(fault=fault))
            # http.client counts a quiet end as a reset too, by a subclass.
            self.assertIs(type(caught.exception), ConnectionResetError)
            self.connection.close()
        with self.assertRaises(http.client.RemoteDisconnected):
            self.fault(Answer(fault="close"))
        self.connection.close()
        raws = [bool(seen.raw) for seen in self.fake.calls("POST", "/search")]
        self.assertEqual(raws, [False, True, True])

    def test_a_body_can_drip(self) -> None:
        gate = threading.Event()
        response = self.fault(Answer(200, b"slow and then fast", fault="drip", gate=gate))
        self.assertEqual(response.read(2), b"sl")
        gate.set()
        self.assertEqual(response.read(), b"ow and then fast")

    def test_headers_can_be_held_back(self) -> None:
        gate = threading.Event()
        self.fake.script("POST /search", Answer(200, {}, fault="slow_headers", gate=gate))
        with socket.create_connection(("127.0.0.1", int(self.fake.url.rpartition(":")[2]))) as raw:
            head = f"POST /search HTTP/1.1\r\nAuthorization: Bearer {self.fake.key}\r\n\r\n"
            raw.sendall(head.encode())
            raw.settimeout(10)
            self.assertEqual(raw.recv(1000), b"HTTP/1.1 200 OK\r\n")
            gate.set()
            self.assertIn(b"content-length: 2\r\n", raw.recv(10_000))

    def test_a_redirect_names_its_target(self) -> None:
        response = self.fault(Answer(body="http://127.0.0.1:9/x", fault="redirect"))
        response.read()
        self.assertEqual(response.status, 302)
        self.assertEqual(response.headers["location"], "http://127.0.0.1:9/x")

    def test_an_unknown_fault_is_a_mistake_of_the_test(self) -> None:
        with self.assertRaises(ValueError):
            self.fake.script("POST /search", Answer(fault="truncated"))


class Scripting(FakeCase):
    def test_queued_answers_come_first_then_the_standing_one_then_the_default(self) -> None:
        self.fake.script("GET /v1/models", Answer(500), lambda seen: Answer(501, seen.query))
        self.fake.always("GET /v1/models", Answer(502))
        statuses = [self.ask("GET", "/v1/models?a=b").status for _ in range(4)]
        self.assertEqual(statuses, [500, 501, 502, 502])
        self.fake.always("GET /v1/models", None)
        self.assertEqual(self.ask("GET", "/v1/models").status, 200)

    def test_an_id_and_its_pattern_can_both_be_scripted(self) -> None:
        self.fake.script("GET /v1/responses/resp_a", Answer(500))
        self.fake.script("GET /v1/agent/{id}", Answer(501))
        statuses = [self.ask("GET", f"/v1/agent/resp_{name}").status for name in "baa"]
        self.assertEqual(statuses, [501, 500, 404])

    def test_requests_are_recorded_whole(self) -> None:
        self.ask("POST", "/search?x=1", {"query": "é"}, **{"X-Title": "T"})
        (seen,) = self.fake.requests
        self.assertEqual((seen.method, seen.path, seen.query), ("POST", "/search", "x=1"))
        self.assertEqual(seen.headers["x-title"], "T")
        self.assertEqual(seen.body, {"query": "é"})
        self.assertEqual(json.loads(seen.raw), seen.body)
        self.assertLessEqual(seen.at, time.monotonic())

    def test_held_requests_wait_until_they_are_let_go(self) -> None:
        let_go = self.fake.hold("POST /search")
        statuses: list[int] = []

        def client() -> None:
            connection = self.connect()
            headers = {**key_of(self.fake), "Content-Type": "application/json"}
            connection.request("POST", "/search", b'{"query":"a"}', headers)
            statuses.append(connection.getresponse().status)

        clients = [threading.Thread(target=client) for _ in range(64)]
        for thread in clients:
            thread.start()
        self.fake.wait_for("POST /search", 64)
        self.assertEqual(statuses, [])
        let_go.set()
        for thread in clients:
            thread.join(10)
        self.assertEqual(statuses, [200] * 64)

    def test_waiting_for_requests_that_do_not_come_fails(self) -> None:
        with self.assertRaisesRegex(AssertionError, "0 of 1 requests"):
            self.fake.wait_for("POST /search", 1, timeout=0.01)

    def test_a_gated_answer_is_held(self) -> None:
        gate = threading.Event()
        self.fake.script("POST /search", Answer(200, {}, gate=gate))
        self.connection.timeout = 0.1
        with self.assertRaises(TimeoutError):
            self.send("POST", "/search", {"query": "a"})
        gate.set()

    def test_connections_are_kept_alive(self) -> None:
        self.ask("GET", "/v1/models")
        kept = self.connection.sock
        self.ask("GET", "/nope")
        self.agent()
        self.assertIs(self.connection.sock, kept)


class Lifetime(unittest.TestCase):
    def test_a_script_that_raises_is_reported_at_the_end(self) -> None:
        def broken(_seen: fp.Seen) -> Answer:
            raise RuntimeError("broken script")

        fake = FakePerplexity().start()
        fake.script("GET /v1/models", broken)
        self.assertEqual(status_of(fake), 500)
        with self.assertRaisesRegex(AssertionError, "broken script"):
            fake.stop()

    def test_stopping_is_prompt_with_held_requests_and_may_happen_twice(self) -> None:
        fake = FakePerplexity().start()
        fake.hold("GET /v1/models")
        ends: list[BaseException] = []

        def client() -> None:
            try:
                status_of(fake)
            except OSError as error:
                ends.append(error)

        clients = [threading.Thread(target=client) for _ in range(8)]
        for thread in clients:
            thread.start()
        fake.wait_for("GET /v1/models", 8)
        begun = time.monotonic()
        fake.stop()
        fake.stop()
        self.assertLess(time.monotonic() - begun, 2)
        for thread in clients:
            thread.join(10)
        self.assertEqual(len(ends), 8)

    def test_a_client_that_leaves_early_is_no_error(self) -> None:
        with FakePerplexity() as fake:
            fake.always("GET /v1/models", Answer(200, b"x" * 10_000_000))
            for _ in range(5):
                connection = http.client.HTTPConnection(fake.url.removeprefix("http://"))
                connection.request("GET", "/v1/models", headers=key_of(fake))
                connection.close()
            fake.wait_for("GET /v1/models", 5)
        self.assertEqual(fake.errors, [])


def key_of(fake: FakePerplexity) -> dict[str, str]:
    return {"Authorization": f"Bearer {fake.key}"}


def status_of(fake: FakePerplexity) -> int:
    connection = http.client.HTTPConnection(fake.url.removeprefix("http://"), timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", "/v1/models", headers=key_of(fake))
        return connection.getresponse().status


class Alone(unittest.TestCase):
    """The file run as a program."""

    FAKE = str(pathlib.Path(fp.__file__))

    def test_a_command_sees_the_fake_and_gives_its_status(self) -> None:
        code = (
            "import os, sys, urllib.request as u; e = os.environ; print(sys.stdin.read());"
            "r = u.Request(e['PERPLEXITY_BASE_URL'] + '/v1/models',"
            "  headers={'Authorization': 'Bearer ' + e['PERPLEXITY_API_KEY']});"
            "print(u.urlopen(r).status, os.path.isdir(e['PERPLEXITY_DATA_DIR']));"
            "print(sorted(k for k in e if k.startswith('PERPLEXITY_')), file=sys.stderr);"
            "sys.exit(7)"
        )
        done = subprocess.run(
            [sys.executable, self.FAKE, "--", sys.executable, "-c", code],
            input="typed",
            env={**os.environ, "PERPLEXITY_TIMEOUT": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        names = ["PERPLEXITY_API_KEY", "PERPLEXITY_BASE_URL", "PERPLEXITY_DATA_DIR"]
        self.assertEqual(done.stdout, "typed\n200 True\n")
        self.assertEqual(done.stderr, f"{names}\n")
        self.assertEqual(done.returncode, 7)

    @unittest.skipIf(os.name == "nt", "signals of POSIX")
    def test_without_a_command_it_serves_until_interrupted(self) -> None:
        command = [sys.executable, self.FAKE]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as alone:
            assert alone.stdout is not None
            lines = [alone.stdout.readline() for _ in range(4)]
            alone.send_signal(signal.SIGINT)
            self.assertEqual(alone.wait(10), 0)
        self.assertIn("http://127.0.0.1:", lines[0])
        self.assertEqual(
            [line.partition("=")[0] for line in lines[1:]],
            [f"export PERPLEXITY_{name}" for name in ("BASE_URL", "API_KEY", "DATA_DIR")],
        )


if __name__ == "__main__":
    unittest.main()
