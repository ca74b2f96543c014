"""Chapter 14: ask, chat, search and help, from their arguments to both forms of their results."""

from __future__ import annotations

import json
import tempfile
import time
import unittest
from typing import Any

from fake_perplexity import Answer
from support import Desk, desk, pro

Json = Any
ASK, SEARCH = "POST /v1/agent", "POST /search"


def said(*texts: str) -> dict[str, Json]:
    """A message of a run."""
    return {"type": "message", "content": [{"type": "output_text", "text": t} for t in texts]}


def found(*pages: Json) -> dict[str, Json]:
    """The pages of a search by a run, numbered from 1 where they are only addresses."""
    listed = [
        page if isinstance(page, dict) else {"id": n, "url": page, "title": f"T{n}"}
        for n, page in enumerate(pages, 1)
    ]
    return {"type": "search_results", "results": listed}


def run(*output: Json, **more: Json) -> Answer:
    """The reply to a run that ended well, and what differs from it."""
    run.count += 1  # type: ignore[attr-defined]  # so that no two runs have one id
    usage = {
        "input_tokens": 20,
        "output_tokens": 10,
        "total_tokens": 30,
        "cost": {"currency": "USD", "total_cost": 0.00125},
    }
    body = {
        "id": f"resp_{run.count}",  # type: ignore[attr-defined]
        "object": "response",
        "status": "completed",
        "model": "perplexity/sonar",
        "output": list(output),
        "error": None,
        "incomplete_details": None,
        "usage": usage,
    }
    return Answer(200, {**body, **more})


run.count = 0  # type: ignore[attr-defined]


def asked(owner: Desk, *output: Json, **more: Json) -> Any:
    """The outcome of a question that is answered so."""
    owner.fake.script(ASK, run(*output, **more))
    return owner.run("ask", query="q")


class Answers(unittest.TestCase):
    def test_sources_stand_under_the_markers_that_the_answer_uses_uncited_ones_behind(self) -> None:
        pages = [
            {"id": n, "url": f"https://example.org/{n}", "title": f"T{n}"} for n in (5, 11, 13, 21)
        ]
        with desk() as owner:
            outcome = asked(owner, found(*pages), said("Dear [11]. Cheap [13][21]."))
        result = outcome.structured
        lines = outcome.text.splitlines()
        at = lines.index("Sources:")
        self.assertEqual(
            lines[at + 1 : at + 6],
            [
                "[11] T11 https://example.org/11",
                "[13] T13 https://example.org/13",
                "[21] T21 https://example.org/21",
                "Not cited:",
                "[5] T5 https://example.org/5",
            ],
        )
        self.assertEqual(
            [s.get("marker") for s in result["sources"]], ["[11]", "[13]", "[21]", None]
        )
        self.assertEqual(
            (result["citations"][0]["marker"], result["citations"][0]["source"]), ("[11]", 11)
        )
        self.assertEqual(result["citations"][2]["url"], "https://example.org/21")

    def test_both_forms_name_model_routing_response_and_time(self) -> None:
        with desk() as owner:
            outcome = asked(owner, said("Yes."))
        self.assertIn("by default", outcome.text)
        self.assertIn(outcome.structured["response_id"], outcome.text)
        self.assertRegex(
            outcome.text,
            r"\nUsage: 30 tokens, cost 0.00125 USD \(reported\), model perplexity/sonar, \d+ ms, "
            r"project default\.\Z",
        )

    def test_a_run_without_an_answer_says_so(self) -> None:
        call = {"type": "function_call", "name": "get_stock", "arguments": "{}"}
        with desk() as owner:
            for output in ((), ({"type": "message", "content": []},), (call,)):
                outcome = asked(owner, *output)
                self.assertIsNone(outcome.kind)
                self.assertIn("without an answer", outcome.structured["warnings"][0])
                self.assertIn("(no answer)", outcome.text)
            refusal = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
            outcome = asked(owner, refusal)
        self.assertEqual(
            (outcome.structured["answer"], outcome.structured["warnings"]), ("No.", [])
        )

    def test_research_without_an_answer_says_so_too(self) -> None:
        with desk() as owner:
            owner.fake.script(ASK, run())
            number = owner.ok("research", query="q")["job_id"]
            result = owner.ok("jobs", action="result", job_id=number)
        self.assertIn("without an answer", " ".join(result["warnings"]))

    def test_many_sources_of_a_run_without_an_answer_are_paged_in_both_forms(self) -> None:
        pages = [f"https://e.example/{n}/{'x' * 200}" for n in range(240)]
        ended = {"status": "cancelled", "error": {"code": "cancelled", "message": "cancelled"}}
        with desk() as owner:
            job = owner.ok("research", query="q")
            more = {**ended, "id": job["response_id"]}
            owner.fake.always("GET /v1/agent/{id}", run(found(*pages), **more))
            offset, urls = 0, set[str]()
            while offset is not None:
                outcome = owner.run("jobs", action="result", job_id=job["job_id"], offset=offset)
                self.assertLessEqual(len(pro.json_text(outcome.structured)), 25_000)
                self.assertIn("https://e.example/", outcome.text)
                urls |= {source["url"] for source in outcome.structured["sources"]}
                offset = outcome.structured["next_offset"]
        self.assertEqual(urls, set(pages))

    def test_a_look_that_brings_no_run_costs_nothing_and_says_so(self) -> None:
        with desk() as owner:
            job = owner.ok("research", query="q")
            owner.fake.always("GET /v1/agent/{id}", Answer(200, {}))
            text = owner.run("jobs", action="status", job_id=job["job_id"]).text
            text += owner.refused("jobs", action="status", response_id="resp_elsewhere1")
        self.assertEqual(text.count("is not an agent run"), 2, text)
        self.assertNotIn("billed", text)

    def test_a_run_that_another_program_started_becomes_a_job_of_the_project(self) -> None:
        with desk() as owner:
            with tempfile.TemporaryDirectory() as folder:
                other = Desk(owner.fake, folder)
                number = other.ok("research", query="q")["response_id"]
                other.runtime.close()
            call = {"response_id": number, "project": "work"}
            first = owner.ok("jobs", action="status", **call)
            self.assertIn(first["status"], {"queued", "in_progress"})
            owner.fake.finish_all()
            result = owner.ok("jobs", action="result", **call)
            self.assertEqual((result["status"], result["job_id"]), ("completed", first["job_id"]))
            self.assertTrue(result["answer"])
            self.assertIsNotNone(result["usage"]["cost_usd"])
            self.assertEqual(len(owner.events()), 1)
            for refused in ({"response_id": number}, {"response_id": "resp_unknown"}):
                self.assertIn("[not_found]", owner.refused("jobs", action="result", **refused))
            text = owner.refused("jobs", action="result", response_id="../models")
            self.assertIn("response_id: must be", text)
            self.assertIn("job_id: is required", owner.refused("jobs", action="result"))

    def test_numbers_beyond_what_can_be_held_are_told_the_bound_they_pass(self) -> None:
        with desk() as owner:
            text = owner.refused("chat", action="read", chat_id=2**63)
        self.assertIn(f"at most {2**63 - 1}", text)

    def test_a_run_under_way_names_its_usual_time_and_the_call_that_waits(self) -> None:
        with desk() as owner:
            text = owner.run("research", query="q").text
        self.assertIn("usually 1 to 2 minutes", text)
        self.assertRegex(text, r'perplexity_jobs \{"action":"result".*"wait_seconds":\d\d\}')

    def test_an_error_in_a_good_reply_is_told_in_its_own_words(self) -> None:
        limited = Answer(200, {"error": {"message": "Upstream is rate limited", "code": 429}})
        calls: list[tuple[str, str, dict[str, Json]]] = [
            (ASK, "ask", {"query": "q"}),
            (ASK, "research", {"query": "q"}),
            (SEARCH, "search", {"query": "q"}),
            ("GET /v1/models", "models", {}),
        ]
        with desk() as owner:
            for route, tool, arguments in calls:
                owner.fake.script(route, limited)
                text = owner.refused(tool, **arguments)
                self.assertIn("Upstream is rate limited", text)
                self.assertIn("[unexpected_response]", text)
            for error in list[Json](({}, "")):
                text = asked(owner, said("hello"), error=error).text
                self.assertIn("failed without saying why", text)
            error = {"code": "context_length_exceeded", "message": None}
            text = asked(owner, status="failed", error=error).text
            self.assertIn("context_length_exceeded", text)

    def test_an_incomplete_answer_names_its_reason_and_advises_on_tokens_only(self) -> None:
        with desk() as owner:
            for reason, advised in (("content_filter", False), ("max_output_tokens", True)):
                details = {"reason": reason}
                outcome = asked(owner, said("x"), status="incomplete", incomplete_details=details)
                (warning,) = outcome.structured["warnings"]
                self.assertIn(reason, warning)
                self.assertEqual("Raise max_output_tokens" in warning, advised)

    def test_an_answer_that_reaches_its_cap_may_be_cut_whoever_set_the_cap(self) -> None:
        usage = {"input_tokens": 1, "output_tokens": 4096, "total_tokens": 4097}
        with desk() as owner:
            for arguments in ({"model": "anthropic/claude-sonnet-5"}, {"max_output_tokens": 4096}):
                owner.fake.script(ASK, run(said("x"), usage=usage, model="anthropic/x"))
                result = owner.ok("ask", query="q", **arguments)
                self.assertIn("4096 output tokens and may be cut", result["warnings"][0])

    def test_titles_stay_whole_and_null_stays_null(self) -> None:
        with desk() as owner:
            pages = [
                {"id": 1, "url": "https://a.example/", "title": None},
                {"id": 2, "url": "https://b.example/", "title": "x" * 400},
            ]
            first, second = asked(owner, found(*pages), said("x")).structured["sources"]
        self.assertIsNone(first["title"])
        self.assertEqual(second["title"], "x" * 400)

    def test_structured_answers_are_cleaned_and_told_in_both_forms(self) -> None:
        answer = '{"city":"Paris [1][web:2] ","odd":"a\\u001b\\u202eb\\udb40\\udc41"}'
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        with desk() as owner:
            owner.fake.script(ASK, run(found("https://a.example/"), said(answer)))
            outcome = owner.run("ask", query="q", json_schema=schema)
        parsed = outcome.structured["answer_json"]
        self.assertEqual(parsed["city"], "Paris")
        self.assertNotRegex(parsed["odd"], "[\x1b\u202e\U000e0041]")
        self.assertIn('answer_json: {"city":"Paris"', outcome.text)
        self.assertIn("2 citation markers", " ".join(outcome.structured["warnings"]))

    def test_a_refused_schema_is_the_likely_cause_of_the_refusal_that_names_none(self) -> None:
        refusal = Answer(400, {"error": {"message": "invalid request", "code": 400}})
        named = Answer(400, {"error": {"message": "max_steps is too small", "code": 400}})
        schema = {"type": "object", "properties": {"a": {"minLength": "x"}}}
        with desk() as owner:
            owner.fake.script(ASK, refusal, named, refusal)
            text = owner.refused("ask", query="q", json_schema=schema)
            self.assertIn("most likely the json_schema is invalid", text)
            for more in ({"json_schema": schema}, {}):
                self.assertNotIn("most likely", owner.refused("ask", query="q", **more))

    def test_what_was_streamed_is_the_answer_where_the_end_repeats_nothing(self) -> None:
        item = {"type": "search_results", "results": [{"id": 1, "url": "https://a.example/"}]}
        events: list[dict[str, Json]] = [
            {"type": "response.created", "response": {"id": "resp_x", "status": "in_progress"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.output_text.delta", "output_index": 1, "delta": "Hello "},
            {"type": "response.output_text.delta", "output_index": 1, "delta": "you [1]."},
        ]
        done = {**events[-1], "type": "response.output_item.done", "item": said("Hello you [1].")}
        end = {"type": "response.completed", "response": {**run().body, "output": []}}
        for middle in (events, [*events, done]):
            stream = "".join(f"data: {json.dumps(event)}\n\n" for event in [*middle, end])
            with desk() as owner:
                owner.fake.script(ASK, Answer(200, stream, content_type="text/event-stream"))
                call = owner.call("ask", lambda *_: None)
                result = pro.run_tool(call, {"query": "q"}).structured
            self.assertEqual(result["answer"], "Hello you [1].")
            self.assertEqual(result["sources"][0]["marker"], "[1]")

    def test_what_was_streamed_is_the_answer_where_the_end_has_no_words(self) -> None:
        def deltas(kind: str) -> list[Json]:
            return [
                {"type": f"response.{kind}.delta", "output_index": 0, "delta": piece}
                for piece in ("Hello ", "you.")
            ]

        empty: list[Json] = [{"type": "message", "content": []}]
        item = {"type": "response.output_item.done", "output_index": 0, "item": empty[0]}
        for kind, middle, output in (
            ("output_text", list[Json](), empty),
            ("output_text", [item], list[Json]()),
            ("output_text", [item], empty),
            ("refusal", list[Json](), list[Json]()),
        ):
            end = {"type": "response.completed", "response": {**run().body, "output": output}}
            events = [*deltas(kind), *middle, end]
            stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
            with self.subTest(kind=kind, output=output), desk() as owner:
                owner.fake.script(ASK, Answer(200, stream, content_type="text/event-stream"))
                call = owner.call("ask", lambda *_: None)
                result = pro.run_tool(call, {"query": "q"}).structured
                self.assertEqual(result["answer"], "Hello you.")

    def test_an_answer_made_to_be_slow_is_not(self) -> None:
        hard = {
            "brackets": "[" * 300_000,
            "links": "[a](https://a.example/" * 12_000,
            "addresses": "](https://a.example/" + "x(" * 140_000,
            "markers": "[1" * 150_000,
            "mixed": "[x](https://a.example/(y" * 12_000,
            "code": "`" * 300_000,
            "fences": "```a\n" * 60_000,
            "listed": "".join(f"[a](https://a.example/{n})" for n in range(10_000)),
        }
        for name, answer in hard.items():
            began = time.thread_time()
            pro.cited(answer, [pro.Source("https://a.example/", "T", None, 1, [1])])
            self.assertLess(time.thread_time() - began, 0.5, name)


class Searches(unittest.TestCase):
    def test_only_an_empty_list_is_no_result(self) -> None:
        with desk() as owner:
            for body in ({}, {"results": None}):
                owner.fake.script(SEARCH, Answer(200, body))
                self.assertIn("[unexpected_response]", owner.refused("search", query="x"))
            sources = [event["cost_source"] for event in owner.events()]
            owner.fake.always(SEARCH, Answer(200, {"id": "x", "results": []}))
            plain = owner.run("search", query="x").text
            narrow = owner.run("search", query="x", recency="day").text
        self.assertEqual(sources, ["none", "none"])
        self.assertIn("No results: use other words.", plain)
        self.assertNotIn("fewer filters", plain)
        self.assertIn('"search_recency_filter":"day"', narrow)

    def test_paging_ends_with_an_empty_page_of_results(self) -> None:
        found = [{"url": f"https://example.com/{n}", "snippet": "word " * 300} for n in range(20)]
        with desk(PERPLEXITY_MAX_RESULT_CHARS="6000") as owner:
            owner.fake.always(SEARCH, Answer(200, {"id": "x", "results": found}))
            result = owner.ok("search", query="x", max_results=20)
            ids, seen = {"action": "result", "job_id": result["job_id"]}, result["results"]
            for _ in range(20):
                page = owner.ok("jobs", **ids, offset=len(seen))
                seen += page["results"]
                if not page["results"]:
                    break
            self.assertEqual([hit["url"] for hit in seen], [hit["url"] for hit in found])
            self.assertEqual((page["results_total"], page["answer"]), (20, None))
            self.assertIsNone(page["next_offset"])

    def test_a_reply_that_cannot_be_read_is_named_by_its_request(self) -> None:
        with desk() as owner:
            bodies: tuple[Json, ...] = ([], None, {"results": {}})
            for body in bodies:
                owner.fake.script(SEARCH, Answer(200, body, (("x-request-id", "req-77"),)))
                outcome = owner.run("search", query="x")
                self.assertEqual(
                    (outcome.kind, outcome.request_id), ("unexpected_response", "req-77")
                )

    def test_results_that_cannot_be_used_are_not_called_none(self) -> None:
        with desk() as owner:
            found = [None, {}, {"url": "javascript:x"}]
            owner.fake.script(SEARCH, Answer(200, {"id": "x", "results": found}))
            told = " ".join(owner.ok("search", query="x")["warnings"])
        self.assertIn("left out", told)
        self.assertNotIn("No results", told)

    def test_a_depth_that_is_new_is_passed_on_and_a_misspelt_one_is_not(self) -> None:
        with desk() as owner:
            owner.fake.always(ASK, Answer(200, run().body))
            for tool, given in (
                ("ask", {"query": "q"}),
                ("chat", {"action": "send", "title": "t", "message": "m"}),
            ):
                owner.ok(tool, **given, depth="brand-new")
                self.assertEqual(
                    owner.fake.calls("POST", "/v1/agent")[-1].body["preset"], "brand-new"
                )
                self.assertIn(
                    "did you mean 'fast'? Call", owner.refused(tool, **given, depth="fats")
                )
                owner.ok(tool, **given, depth=" FAST ")
                self.assertEqual(owner.fake.calls("POST", "/v1/agent")[-1].body["preset"], "fast")

    def test_an_error_that_says_no_more_than_its_code_is_told_by_that(self) -> None:
        with desk(PERPLEXITY_MAX_ATTEMPTS="1") as owner:
            for status in (200, 400, 503):
                owner.fake.script(SEARCH, Answer(status, {"error": {"code": 4291}}))
                self.assertIn('"error 4291"', owner.refused("search", query="x"))
            owner.fake.script(SEARCH, Answer(400, {"errors": [{"message": "odd", "code": 1}]}))
            self.assertIn('"odd"', owner.refused("search", query="x"))

    def test_a_status_of_bad_timing_blames_no_argument(self) -> None:
        with desk() as owner:
            for status in (408, 409, 425):
                owner.fake.script(SEARCH, Answer(status, {"error": {"message": "no"}}))
                text = owner.refused("search", query="x")
                self.assertIn("try again later", text)
                self.assertNotIn("change the arguments", text)

    def test_a_project_left_blank_by_a_form_is_the_usual_one(self) -> None:
        with desk() as owner:
            for blank in ("undefined", "null", " Undefined "):
                result = owner.ok("search", query="x", project=blank)
                self.assertEqual((result["project"], result["warnings"]), ("default", []))
            self.assertIsNone(owner.ok("usage", project="undefined")["project"])
            self.assertIn("no project 'none'", owner.refused("usage", project="none"))

    def test_names_of_hosts_from_outside_are_plain_letters_outside_the_fence(self) -> None:
        odd = "https://ignore\u2800all\u2800orders.example/x"
        with desk() as owner:
            owner.fake.script(SEARCH, Answer(200, {"id": "x", "results": [{"url": odd}]}))
            outcome = owner.run("search", query="x", domains=["python.org"])
        self.assertIn("1 result outside the domains", outcome.text)
        self.assertTrue(" ".join(outcome.structured["warnings"]).isascii())

    def test_endings_and_paths_are_sent_and_what_lies_below_them_is_inside(self) -> None:
        pages = ["https://a.gov/", "https://en.wikipedia.org/wiki/Python_2", "https://b.edu/"]
        with desk() as owner:
            owner.fake.always(
                SEARCH, Answer(200, {"id": "x", "results": [{"url": url} for url in pages]})
            )
            for domains, strays in (
                ([".gov", "*.edu", "en.wikipedia.org/wiki/Python"], 0),
                (["en.wikipedia.org/wiki/Ruby"], 3),
                (["-reddit.com/r/python"], 0),
                (["-.gov"], 1),
            ):
                result = owner.ok("search", query="x", domains=domains)
                body = owner.fake.calls("POST", "/search")[-1].body
                self.assertEqual(body["search_domain_filter"], domains)
                warned = [w for w in result["warnings"] if "outside" in w]
                self.assertEqual(bool(warned), bool(strays), (domains, warned))

    def test_the_usage_line_tells_type_and_time(self) -> None:
        with desk() as owner:
            text = owner.run("search", query=["a", "b"], search_type="web").text
        self.assertRegex(
            text,
            r"\nUsage: 1 request of 2 queries, cost 0.005 USD \(computed\), type web, \d+ ms, "
            r"project default\.\Z",
        )


class Chats(unittest.TestCase):
    def talk(self, owner: Desk, *output: Json, title: str = "t", **more: Json) -> int:
        owner.fake.script(ASK, run(*output, **more))
        number: int = owner.ok("chat", action="send", title=title, message="one")["chat_id"]
        return number

    def test_a_chat_without_a_response_to_continue_is_replayed_on_request_only(self) -> None:
        with desk() as owner:
            number = self.talk(owner, said("hello"), id="weird id")
            send = {"action": "send", "chat_id": number, "message": "two"}
            text = owner.refused("chat", **send)
            self.assertIn("send with replay true", text)
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)
            owner.ok("chat", **send, replay=True)
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")[-1].body["input"]), 3)

    def test_advice_on_replaying_is_for_refusals_that_name_nothing(self) -> None:
        capped = "max_output_tokens is required when using Anthropic models"
        refusals = [Answer(400, {"error": {"message": m}}) for m in ("invalid request", capped)]
        with desk() as owner:
            number = self.talk(owner, said("hello"))
            owner.fake.script(ASK, *refusals)
            send = {"action": "send", "chat_id": number, "message": "two"}
            self.assertIn("replay true", owner.refused("chat", **send))
            self.assertNotIn("replay", owner.refused("chat", **send))

    def test_titles_are_trimmed_and_one_that_is_repeated_does_no_harm(self) -> None:
        with desk() as owner:
            first = owner.ok("chat", action="send", title="  My chat  ", message="one")
            number = first["chat_id"]
            self.assertEqual(owner.ok("chat", action="list")["chats"][0]["title"], "My chat")
            send = {"action": "send", "chat_id": number, "message": "two"}
            owner.ok("chat", **send, title="My chat")
            self.assertIn("keeps its own", owner.refused("chat", **send, title="Other"))

    def test_options_of_send_are_refused_elsewhere(self) -> None:
        with desk() as owner:
            number = self.talk(owner, said("hello"))
            for more in ({"before": "2026-01-01"}, {"depth": "fast"}, {"message": "x"}):
                (name,) = more
                text = owner.refused("chat", action="read", chat_id=number, **more)
                self.assertIn(f"{name}: belongs to send, not to read", text)
            self.assertIn("title: is required", owner.refused("chat", action="send", message="x"))
            for action in ("read", "delete"):
                self.assertIn("chat_id: is required", owner.refused("chat", action=action))

    def test_lists_name_the_call_that_goes_on_with_every_argument(self) -> None:
        with desk() as owner:
            for title in "abcde":
                self.talk(owner, said("hello"), title=title)
            seen: list[str] = []
            call: dict[str, Json] = {"action": "list", "limit": 2}
            while call:
                outcome = owner.run("chat", **call)
                seen += [chat["title"] for chat in outcome.structured["chats"]]
                rest = [w for w in outcome.structured["warnings"] if "The rest: " in w]
                call = json.loads(rest[0].split("perplexity_chat ")[1]) if rest else {}
                self.assertEqual(call.get("offset"), outcome.structured["next_offset"])
                self.assertEqual(call.get("limit", 2), 2)
            self.assertEqual(seen, list("edcba"))
            self.assertEqual(outcome.structured["sources"], [])
            text = owner.refused("chat", action="list", limit=150)
        self.assertIn("limit: must be from 1 to 100", text)

    def test_lists_of_models_projects_and_spend_name_the_offset_that_goes_on(self) -> None:
        names = [f"{n:02d}-{'x' * 50}" for n in range(40)]
        dated = "UPDATE usage_events SET created_at = '2026-11-0' || (id % 7 + 1) || 'T01:00:00'"
        days = [f"2026-11-0{n}" for n in range(1, 8)]
        with desk(PERPLEXITY_MAX_RESULT_CHARS="4000") as owner:
            for name in names:
                owner.ok("search", query="q", project=name)
            with owner.runtime.store.writing() as db:
                db.execute(dated)
            ids = [f"xai/{'m' * 150}{n:02d}" for n in range(40)]
            listed = {"object": "list", "data": [{"id": number} for number in ids]}
            owner.fake.always("GET /v1/models", Answer(200, listed))
            cases: list[tuple[str, dict[str, Json], str, str, list[str]]] = [
                ("projects", {"action": "list"}, "projects", "name", names),
                ("models", {}, "models", "id", ids),
                ("usage", {"group_by": "project", "limit": 9}, "groups", "key", names),
                ("usage", {"group_by": "day", "limit": 3}, "groups", "key", days),
            ]
            for tool, call, part, key, everything in cases:
                seen, offset = list[str](), 0
                while offset is not None:
                    result = owner.ok(tool, **call, offset=offset)
                    seen += [entry[key] for entry in result[part]]
                    offset = result["next_offset"]
                    rest = [w for w in result["warnings"] if "The rest: " in w]
                    told = json.loads(rest[0].split(f"perplexity_{tool} ")[1]) if rest else {}
                    self.assertEqual(told.get("offset"), offset, (tool, call))
                self.assertEqual(sorted(seen), everything)

    def test_a_long_message_keeps_its_sources_within_reach(self) -> None:
        pages = [f"https://example.org/{n}/{'x' * 100}" for n in range(60)]
        long = "Word [1]. " * 1000
        with desk(PERPLEXITY_MAX_RESULT_CHARS="4000") as owner:
            number = self.talk(owner, found(*pages), said(long))
            call: dict[str, Json] = {"action": "read", "chat_id": number}
            text, urls, first = "", set[str](), True
            while call:
                outcome = owner.run("chat", **call)
                self.assertLessEqual(len(pro.json_text(outcome.structured)), 4000)
                (message,) = outcome.structured["messages"]
                text += message["content"]
                urls |= {source["url"] for source in message["sources"]}
                if first:
                    self.assertEqual(message["sources"][0]["marker"], "[1]")
                    self.assertIn("[1] T1 https://example.org/0", outcome.text)
                rest = [w for w in outcome.structured["warnings"] if "The rest: " in w]
                call = json.loads(rest[0].split("perplexity_chat ")[1]) if rest else {}
                first = False
            self.assertEqual((text, urls), (long, set(pages)))
            refusal = owner.refused("chat", action="read", chat_id=number, offset=3)
        self.assertIn("offset: goes on inside one message", refusal)

    def test_reading_tells_the_title_and_the_sources_in_both_forms(self) -> None:
        with desk() as owner:
            number = self.talk(owner, found("https://a.example/"), said("Yes [1]."), title="Tea")
            outcome = owner.run("chat", action="read", chat_id=number)
        self.assertIn(f"Chat {number} (tea)".lower(), outcome.text.lower())
        self.assertIn("[1] T1 https://a.example/", outcome.text)
        question, answer = outcome.structured["messages"]
        self.assertNotIn("model", question)
        self.assertEqual(answer["sources"][0]["marker"], "[1]")

    def test_a_refused_model_that_is_not_listed_is_told_with_the_nearest_one(self) -> None:
        refusal = Answer(400, {"error": {"message": "Invalid model", "code": "invalid_model"}})
        for tool, call in (
            ("ask", {"query": "q"}),
            ("chat", {"action": "send", "title": "t", "message": "m"}),
        ):
            with desk() as owner:
                owner.fake.script("POST /v1/agent", refusal, refusal)
                said = owner.refused(tool, model="openai/gpt-6-lun", **call)
                self.assertIn("did you mean openai/gpt-6-luna?", said)
                self.assertNotIn(
                    "did you mean", owner.refused(tool, model="openai/gpt-6-luna", **call)
                )

    def test_an_unknown_project_is_not_found_with_the_nearest_name_and_told_when_made(self) -> None:
        with desk() as owner:
            paid: tuple[tuple[str, dict[str, Json]], ...] = (
                ("ask", {"query": "q"}),
                ("search", {"query": "q"}),
                ("chat", {"action": "send", "title": "t", "message": "m"}),
                ("research", {"query": "q", "again": True}),
                (
                    "decide",
                    {"state": "x", "questions": {"a": {"type": "noul", "instructions": "?"}}},
                ),
                (
                    "embed",
                    {"action": "index", "source": "text", "items": [{"key": "k", "text": "t"}]},
                ),
            )
            for tool, call in paid:
                outcome = owner.run(tool, project=f"work{tool}", **call)
                self.assertIn("(new project)", outcome.text)
                again = owner.run(tool, project=f"work{tool}", **call)
                self.assertNotIn("(new project)", again.text)
            reading: tuple[tuple[str, dict[str, Json]], ...] = (
                ("chat", {"action": "list"}),
                ("chat", {"action": "read", "chat_id": 1}),
                ("jobs", {"action": "list"}),
                ("projects", {"action": "budget"}),
                ("embed", {"action": "status"}),
            )
            for tool, call in reading:
                text = owner.refused(tool, project="workchats", **call)
                self.assertIn("[not_found]", text)
                self.assertIn("workchat", text)
            names = [p["name"] for p in owner.ok("projects", action="list")["projects"]]
            self.assertNotIn("workchats", names)
            self.assertEqual(owner.ok("chat", action="list")["chats"], [])


class Lists(unittest.TestCase):
    def test_a_list_of_running_jobs_says_that_it_is_as_they_were_last_seen(self) -> None:
        with desk() as owner:
            owner.ok("research", query="compare")
            (said,) = owner.ok("jobs", action="list")["warnings"]
            self.assertIn("as they were last seen", said)
            call = json.loads(said.partition("perplexity_jobs ")[2])
            self.assertEqual(owner.ok("jobs", **call)["not_refreshed"], 0)
            number = owner.ok("jobs", action="list")["jobs"][0]["job_id"]
            owner.ok("jobs", action="result", job_id=number, wait_seconds=20)
            self.assertEqual(owner.ok("jobs", action="list")["warnings"], [])


class OtherActions(unittest.TestCase):
    def test_what_goes_with_another_action_is_named_and_not_used(self) -> None:
        with desk() as owner:
            owner.ok("chat", action="send", title="t", message="m")
            for tool, given, name in (
                ("projects", {"action": "list", "daily_usd": "1"}, "daily_usd goes with budget"),
                ("embed", {"action": "status", "query": "x"}, "query goes with search"),
                ("embed", {"action": "search", "query": "x", "limit": 5}, "limit goes with index"),
                ("jobs", {"action": "list", "wait_seconds": 1}, "goes with status and result"),
                ("chat", {"action": "list", "before_id": 5}, "before_id goes with read"),
            ):
                warnings = owner.ok(tool, **given)["warnings"]
                self.assertEqual(len([w for w in warnings if name in w]), 1, warnings)
            for tool, given in (
                ("projects", {"action": "budget", "project": "default", "daily_usd": "1"}),
                ("embed", {"action": "delete", "source": "chat", "confirm": True}),
                ("jobs", {"action": "list", "limit": 5, "offset": 1}),
                ("chat", {"action": "read", "chat_id": 1, "limit": 1, "offset": 1}),
                ("chat", {"action": "list", "limit": 20}),
            ):
                warnings = " ".join(owner.ok(tool, **given)["warnings"])
                self.assertNotIn("goes with", warnings)


class Hindrances(unittest.TestCase):
    """A variable that cannot be used stops the calls that need it, and no others."""

    def test_a_model_that_is_none_stops_what_would_use_it(self) -> None:
        state = {"state": "x", "questions": {"a": {"type": "noul", "instructions": "Is it?"}}}
        for variable, stopped in (
            ("PERPLEXITY_MODEL", {"ask"}),
            ("PERPLEXITY_ROUTING", {"ask"}),
            ("PERPLEXITY_DECIDER_MODEL", {"ask", "decide"}),
            ("PERPLEXITY_COMPUTER_URL", set[str]()),
            ("PERPLEXITY_BASE_URL", {"ask", "decide", "search", "models"}),
            ("PERPLEXITY_BUDGET_DAILY_USD", {"ask", "decide", "search", "models"}),
        ):
            with desk(PERPLEXITY_COMPUTER="off") as owner:
                values = {"PERPLEXITY_BASE_URL": owner.fake.url, variable: "no such thing"}
                made = Desk(owner.fake, owner.folder, **values)
                refused = set()
                for tool, given in (
                    ("ask", {"query": "q"}),
                    ("decide", state),
                    ("search", {"query": "q"}),
                    ("models", {}),
                ):
                    outcome = made.run(tool, **given)
                    refused |= {tool} if outcome.kind else set()
                    self.assertEqual(variable in outcome.text, bool(outcome.kind), outcome.text)
                made.runtime.close()
            self.assertEqual(refused, stopped, variable)

    def test_a_data_folder_that_cannot_be_used_is_replaced_by_no_other(self) -> None:
        with desk() as owner:
            home = dict.fromkeys(("HOME", "USERPROFILE"), owner.folder) | {
                "PERPLEXITY_DATA_DIR": ""
            }
            usual = Desk(owner.fake, owner.folder, **home)
            usual.ok("chat", action="send", title="t", message="hello")
            odd = Desk(owner.fake, owner.folder, **{**home, "PERPLEXITY_DATA_DIR": "${HOME}/pp"})
            for tool, given in (
                ("chat", {"action": "list"}),
                ("chat", {"action": "delete", "chat_id": 1, "confirm": True}),
                ("jobs", {"action": "list"}),
                ("usage", {}),
                ("projects", {"action": "list"}),
                ("embed", {"action": "status"}),
                ("ask", {"query": "q"}),
            ):
                self.assertIn("PERPLEXITY_DATA_DIR holds a placeholder", odd.refused(tool, **given))
            self.assertEqual(len(usual.ok("chat", action="list")["chats"]), 1)
            usual.runtime.close()


class Help(unittest.TestCase):
    def test_every_page_is_whole_and_a_name_says_what_it_is_of(self) -> None:
        with desk() as owner:
            page = owner.ok("help", action="topic", name="settings")["page"]
            for name in ("SSL_CERT_FILE", "NO_COLOR", "CODEX_HOME"):
                self.assertIn(name, page)
            for action, name, kind in (
                ("topic", "perplexity_ask", "tool"),
                ("tool", "costs", "topic"),
                ("topic", "projects", "topic"),
                ("tool", "projects", "tool"),
            ):
                self.assertEqual(owner.ok("help", action=action, name=name)["action"], kind)
            self.assertIn("'odd' names no tool;", owner.refused("help", action="tool", name="odd"))

    def test_a_name_alone_is_enough(self) -> None:
        with desk() as owner:
            for name in ("perplexity_search", "search", "Search"):
                page = owner.ok("help", name=name)
                self.assertEqual((page["action"], page["name"]), ("tool", "perplexity_search"))
            self.assertEqual(owner.ok("help", name="costs")["action"], "topic")
            self.assertEqual(owner.ok("help", name="projects")["action"], "tool")
            text = owner.refused("help", name="serch")
        self.assertIn('did you mean "search"', text)

    def test_the_result_lists_tools_and_topics_and_repeats_the_page_as_text(self) -> None:
        with desk(PERPLEXITY_TOOLS="ask,help") as owner:
            page = owner.ok("help")
        self.assertEqual(page["text"], page["page"])
        self.assertEqual(page["tools"], ["perplexity_ask", "perplexity_jobs", "perplexity_help"])
        self.assertIn("costs", page["topics"])
        self.assertNotIn("perplexity_embed", page["page"])

    def test_pages_tell_limits_of_length_and_keys_by_action(self) -> None:
        with desk() as owner:
            ask, chat = (owner.ok("help", name=name)["page"] for name in ("ask", "chat"))
            search = owner.ok("help", name="search")["page"]
        self.assertRegex(ask, r"query \(string, at most 20000 characters, required\)")
        self.assertRegex(ask, r"instructions \(string, at most 10000 characters\)")
        self.assertIn("8192 characters", search)
        self.assertRegex(chat, r"\nsend:\n(- .*\n)+- answer: ")
        self.assertIn("\nlist:\n- chats", chat)

    def test_advice_on_failures_is_true_for_every_tool(self) -> None:
        with desk() as owner:
            errors = owner.ok("help", name="errors")["page"]
            routing = owner.ok("help", name="routing")["page"]
            for tool in ("ask", "search", "chat"):
                page = owner.ok("help", name=tool)["page"]
                self.assertIn("- storage_busy", page)
                self.assertIn("- confirmation_required", page)
        self.assertIn("Nothing was sent, changed or deleted yet", errors)
        self.assertIn("dynamic", routing)
        self.assertIn("more confidence than its evidence", routing)


if __name__ == "__main__":
    unittest.main()
