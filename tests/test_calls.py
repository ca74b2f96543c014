"""Paying once, waiting, cancelling, handing off, and never losing an answer."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from fake_perplexity import Answer
from support import WAIT_S, Background, Desk, desk, inserted, pro


def statuses(owner: Desk) -> list[str]:
    return [event["status"] for event in owner.events()]


def wait_until(condition: Any, what: str) -> None:
    """Poll a condition that another thread brings about, with a bound."""
    gate, end = threading.Event(), time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, what
        gate.wait(0.005)


def assert_stored_later(case: unittest.TestCase, owner: Desk, number: int, words: str) -> None:
    """Now that storage works again it takes an answer over from memory, and its cost once."""
    owner.ok("usage")
    case.assertFalse(owner.runtime.store.late)
    case.assertIn(words, owner.ok("jobs", action="result", job_id=number)["answer"])
    case.assertEqual(statuses(owner), ["ok"])


class PaidOnce(unittest.TestCase):
    def test_a_paid_call_is_one_request_and_one_settled_event(self) -> None:
        with desk() as owner:
            result = owner.ok("ask", query="What is new?")
            (event,) = owner.events()
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)
        self.assertEqual(event["status"], "ok")
        self.assertEqual(event["request_id"], result["response_id"])
        self.assertEqual(pro.usd_text(event["cost_nano_usd"]), result["usage"]["cost_usd"])

    def test_the_event_stands_as_interrupted_while_the_request_is_on_its_way(self) -> None:
        with desk() as owner:
            gate = owner.fake.hold("POST /v1/agent")
            running = Background(owner, "ask", query="slow")
            owner.fake.wait_for("POST /v1/agent", 1)
            self.assertEqual(statuses(owner), ["interrupted"])
            self.assertEqual(owner.events()[0]["cost_source"], "none")
            gate.set()
            self.assertIsNone(running.join().kind)
            self.assertEqual(statuses(owner), ["ok"])

    def test_no_lock_is_held_while_the_request_is_on_its_way(self) -> None:
        with desk() as owner:
            gate = owner.fake.hold("POST /v1/agent")
            running = Background(owner, "ask", query="slow")
            owner.fake.wait_for("POST /v1/agent", 1)
            with owner.locked(timeout_s=0):
                pass
            gate.set()
            running.join()

    def test_without_a_key_nothing_is_sent_and_the_client_is_told_where_to_put_one(self) -> None:
        with desk(PERPLEXITY_API_KEY="") as owner:
            text = owner.refused("ask", query="q")
            self.assertRegex(text, "(?s)authentication.*env block.*restart the client")
            self.assertEqual(owner.fake.requests, [])

    def test_a_refused_request_is_recorded_as_free(self) -> None:
        with desk() as owner:
            owner.fake.key = "pplx-" + "another" * 6
            text = owner.refused("ask", query="q")
            (event,) = owner.events()
        self.assertIn("[authentication]", text)
        self.assertIn("check the key in PERPLEXITY_API_KEY against those in", text)
        self.assertEqual((event["status"], event["cost_nano_usd"]), ("authentication", 0))
        self.assertEqual(event["cost_source"], "computed")

    def test_a_server_failure_is_recorded_with_unknown_cost_and_sent_once(self) -> None:
        with desk() as owner:
            owner.fake.always("POST /v1/agent", Answer(500, {"error": {"message": "boom"}}))
            text = owner.refused("ask", query="q")
            (event,) = owner.events()
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)
        self.assertIn("[upstream_failure]", text)
        self.assertIn("perplexity_usage", text)
        self.assertEqual(event["cost_source"], "none")

    def test_a_failed_run_is_an_error_with_its_own_reason_and_its_cost(self) -> None:
        with desk() as owner:

            def failed(seen: Any) -> Answer:
                answer = owner.fake.default(seen)
                answer.body.update(
                    status="failed", error={"code": "x", "message": "The tool broke.", "type": "x"}
                )
                return answer

            owner.fake.always("POST /v1/agent", failed)
            text = owner.refused("ask", query="q")
            (event,) = owner.events()
        self.assertIn("The tool broke", text)
        self.assertEqual(event["status"], "unexpected_response")
        self.assertGreater(event["cost_nano_usd"], 0)

    def test_bad_arguments_leave_no_trace(self) -> None:
        with desk() as owner:
            owner.refused("ask", query="q", domains=["a.com", "-b.com"], project="new")
            owner.refused("search", query="q", recency="day", after="2026-01-01", project="new")
            self.assertEqual(owner.fake.requests, [])
            self.assertEqual(owner.ok("projects", action="list")["projects"], [])

    def test_the_read_timeout_ends_every_request_that_has_no_time_of_its_own(self) -> None:
        question = {"a": {"type": "noul", "instructions": "Is it?"}}
        calls: dict[str, tuple[str, dict[str, Any]]] = {
            "POST /search": ("search", {"query": "q"}),
            "POST /v1/embeddings": (
                "embed",
                {"action": "index", "source": "text", "items": [{"key": "a", "text": "b"}]},
            ),
            "POST /v1/decisions": ("decide", {"state": "s", "questions": question}),
            "GET /v1/models": ("models", {}),
        }
        with desk(PERPLEXITY_READ_TIMEOUT="0.3", PERPLEXITY_MAX_ATTEMPTS="1") as owner:
            for route, (tool, arguments) in calls.items():
                gate = owner.fake.hold(route)
                begun = time.monotonic()
                self.assertIn("within 0.", owner.refused(tool, **arguments), route)
                self.assertLess(time.monotonic() - begun, 5)
                gate.set()

    def test_a_reply_may_be_as_large_as_its_request_explains(self) -> None:
        items = [{"key": "a", "text": "b"}]
        with desk() as owner:
            body = {"data": [{"x": "y" * 500_000}]}
            owner.fake.script("POST /v1/embeddings", Answer(200, body))
            text = owner.refused("embed", action="index", source="text", items=items)
            self.assertIn("larger than", text)
            owner.fake.script("POST /search", Answer(200, {"results": [], "x": "y" * 500_000}))
            owner.ok("search", query="q")

    def test_a_key_that_comes_in_pieces_reaches_neither_result_nor_database(self) -> None:
        with desk() as owner:
            for mark in ("", "\u200b", "\U000e0041"):
                key = owner.fake.key
                texts = [f"It is {key[:20]}{mark}", f"{key[20:]} it is."]
                parts = [{"type": "output_text", "text": text} for text in texts]
                said = [{"type": "message", "role": "assistant", "content": parts}]

                def split(seen: Any, said: Any = said) -> Answer:
                    answer = owner.fake.default(seen)
                    return answer._replace(body={**answer.body, "output": said})

                owner.fake.always("POST /v1/agent", split)
                shown = owner.run("chat", action="send", title="t", message="m")
                self.assertIn("[redacted]", shown.structured["answer"])
                self.assertNotIn(key, json.dumps(shown.structured) + shown.text)
            path = Path(owner.folder, "data", "perplexity.db")
            stored = b"".join(p.read_bytes() for p in path.parent.iterdir() if p.is_file())
            self.assertNotIn(key.encode(), stored)

    def test_an_unusable_setting_stops_the_request_and_says_which(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="soon") as owner:
            text = owner.refused("ask", query="q")
            self.assertEqual(owner.fake.requests, [])
            owner.ok("help")
        self.assertIn("PERPLEXITY_BUDGET_DAILY_USD", text)

    def test_an_unusable_setting_of_little_weight_stops_nothing(self) -> None:
        variables = ("READ_TIMEOUT", "LOG_LEVEL", "VECTOR_CACHE_MB", "OBSERVE", "WAIT_SECONDS")
        odd = {f"PERPLEXITY_{name}": "odd" for name in variables}
        with desk(**odd, PERPLEXITY_MAX_ATTEMPTS="11") as owner:
            owner.ok("search", query="q")
            self.assertEqual(owner.settings.max_attempts, 10)
            self.assertEqual(len(owner.settings.warnings), 6)


class Cancelling(unittest.TestCase):
    def test_a_cancelled_call_ends_at_once_and_its_answer_becomes_a_job(self) -> None:
        with desk() as owner:
            gate = owner.fake.hold("POST /v1/agent")
            running = Background(owner, "ask", query="slow one")
            owner.fake.wait_for("POST /v1/agent", 1)
            running.call.cancel()
            running.join()
            self.assertTrue(running.cancelled)
            self.assertEqual(owner.runtime.busy(), 1)
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            (job,) = owner.ok("jobs", action="list")["jobs"]
            self.assertEqual((job["status"], job["tool"]), ("completed", "perplexity_ask"))
            answer = owner.ok("jobs", action="result", job_id=job["job_id"])["answer"]
            self.assertIn("slow one", answer)
            self.assertEqual(statuses(owner), ["ok"])
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)

    def test_a_call_cancelled_between_attempts_sends_nothing_more_and_costs_nothing(self) -> None:
        with desk() as owner:
            limited = Answer(429, {"error": {"message": "slow down"}}, (("retry-after", "20"),))
            owner.fake.always("POST /v1/agent", limited)
            running = Background(owner, "ask", query="q")
            owner.fake.wait_for("POST /v1/agent", 1)
            running.call.cancel()
            running.join()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            self.assertEqual(owner.events(), [])
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)

    def test_cancel_racing_completion_never_loses_or_doubles_anything(self) -> None:
        with desk() as owner:
            kept = 0
            for number in range(60):
                running = Background(owner, "ask", query=f"race {number}", depth="fast")
                owner.fake.wait_for("POST /v1/agent", number + 1)
                running.call.cancel()
                outcome = running.join()
                kept += outcome is None
            self.assertTrue(owner.runtime.settle(WAIT_S))
            self.assertEqual(statuses(owner), ["ok"] * 60)
            self.assertEqual(owner.ok("jobs", action="list", limit=100)["jobs_total"], kept)


class HandingOff(unittest.TestCase):
    def test_a_slow_ask_becomes_a_job_when_the_time_is_up(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            gate = owner.fake.hold("POST /v1/agent")
            started = time.monotonic()
            result = owner.ok("ask", query="very slow")
            self.assertLess(time.monotonic() - started, 5)
            self.assertEqual(set(result), {"status", "job_id", "warnings"})
            self.assertEqual(result["status"], "in_progress")
            number = result["job_id"]
            self.assertIn(f'"job_id":{number}', result["warnings"][0])
            waiting = owner.ok("jobs", action="result", job_id=number)
            self.assertEqual(waiting["status"], "in_progress")
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            done = owner.ok("jobs", action="result", job_id=number)
            self.assertIn("very slow", done["answer"])
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)
            self.assertEqual(statuses(owner), ["ok"])

    def test_a_slow_chat_send_is_stored_as_a_turn_when_it_arrives(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            gate = owner.fake.hold("POST /v1/agent")
            result = owner.ok("chat", action="send", title="t", message="remember teal")
            self.assertEqual(result["status"], "in_progress")
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            (chat,) = owner.ok("chat", action="list")["chats"]
            self.assertEqual(chat["message_count"], 2)
            self.assertIsNotNone(
                owner.ok("jobs", action="result", job_id=result["job_id"])["answer"]
            )

    def test_a_slow_search_is_kept_too(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            gate = owner.fake.hold("POST /search")
            result = owner.ok("search", query="tea")
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            job = owner.ok("jobs", action="result", job_id=result["job_id"])
        self.assertIn("https://", job["results"][0]["url"])

    def test_a_late_failure_ends_its_job(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            gate = threading.Event()
            owner.fake.always(
                "POST /v1/agent", Answer(502, {"error": {"message": "no"}}, gate=gate)
            )
            number = owner.ok("ask", query="q")["job_id"]
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            job = owner.ok("jobs", action="result", job_id=number)
        self.assertEqual(job["status"], "failed")
        self.assertIsNone(job["answer"])


class StorageTrouble(unittest.TestCase):
    def test_an_answer_that_finds_the_database_locked_is_returned_and_recorded_later(self) -> None:
        with desk(PERPLEXITY_DB_BUSY_TIMEOUT="0.1") as owner:
            owner.ok("ask", query="first")
            gate = owner.fake.hold("POST /v1/agent")
            running = Background(owner, "ask", query="second")
            owner.fake.wait_for("POST /v1/agent", 2)
            with owner.locked():
                gate.set()
                outcome = running.join()
                self.assertIn("second", outcome.structured["answer"])
                self.assertTrue(any("Not saved yet" in w for w in outcome.structured["warnings"]))
            owner.ok("usage")
            self.assertEqual(statuses(owner), ["ok", "ok"])

    def test_a_handed_off_answer_that_finds_the_database_locked_is_read_from_memory(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.5", PERPLEXITY_DB_BUSY_TIMEOUT="0.1") as owner:
            gate = owner.fake.hold("POST /v1/agent")
            number = owner.ok("ask", query="late")["job_id"]
            with owner.locked():
                gate.set()
                self.assertTrue(owner.runtime.settle(WAIT_S))
                self.assertIn("late", owner.ok("jobs", action="result", job_id=number)["answer"])
            assert_stored_later(self, owner, number, "late")

    def test_without_storage_nothing_paid_is_sent_and_the_folder_is_named(self) -> None:
        paid: list[tuple[str, dict[str, Any]]] = [
            ("ask", {"query": "q"}),
            ("chat", {"action": "send", "title": "t", "message": "m"}),
            ("search", {"query": "q"}),
            ("research", {"query": "q"}),
            ("decide", {"state": "s", "questions": {"a": {"type": "noul", "instructions": "?"}}}),
        ]
        with desk() as owner:
            broken = Desk(owner.fake, owner.folder, PERPLEXITY_DATA_DIR="/dev/null/x")
            for tool, arguments in paid:
                with self.subTest(tool=tool):
                    self.assertIn("/dev/null/x", broken.refused(tool, **arguments))
            broken.ok("help")
            self.assertEqual(owner.fake.requests, [])

    def test_nothing_is_sent_that_cannot_be_noted_before(self) -> None:
        with desk(PERPLEXITY_DB_BUSY_TIMEOUT="0.1") as owner:
            owner.ok("ask", query="first")
            with owner.locked():
                self.assertIn("[storage_busy]", owner.refused("ask", query="second"))
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)
            self.assertEqual(owner.ok("jobs", action="list")["jobs"], [])
            self.assertEqual(statuses(owner), ["ok"])

    def test_a_locked_database_is_waited_for_no_longer_than_the_call_may_take(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.6") as owner:
            owner.ok("usage")
            with owner.locked():
                began = time.monotonic()
                self.assertIn("[storage_busy]", owner.refused("ask", query="q"))
                self.assertLess(time.monotonic() - began, 3)
            self.assertEqual(owner.fake.requests, [])


class Rough(unittest.TestCase):
    """What goes wrong behind a call's back."""

    def test_a_project_deleted_meanwhile_loses_neither_cost_nor_answer_nor_later_calls(
        self,
    ) -> None:
        with desk() as owner:
            gate = owner.fake.hold("POST /v1/agent")
            running = Background(owner, "ask", query="kept", project="gone")
            owner.fake.wait_for("POST /v1/agent", 1)
            owner.ok("projects", action="delete", project="gone", confirm=True)
            running.call.cancel()
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            (job,) = owner.ok("jobs", action="list", project="gone")["jobs"]
            self.assertEqual(job["status"], "completed")
            later = owner.ok("ask", query="later")
            self.assertEqual(later["warnings"], [])
            self.assertEqual(statuses(owner), ["ok", "ok"])

    def test_a_write_that_always_fails_does_not_hold_up_the_others(self) -> None:
        with desk() as owner:
            owner.ok("search", query="q")

            def broken(db: Any) -> None:
                db.execute("INSERT INTO usage_events (id) VALUES (NULL)")

            self.assertIsNotNone(owner.runtime.store.record(broken)[1])
            self.assertEqual(owner.ok("search", query="q2")["warnings"], [])
            self.assertEqual(statuses(owner), ["ok", "ok"])

    def test_a_reply_takes_back_that_another_process_took_its_job_for_lost(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            gate = owner.fake.hold("POST /v1/agent")
            number = owner.ok("ask", query="late")["job_id"]
            other = Desk(owner.fake, owner.folder)
            alive = other.ok("jobs", action="status", job_id=number)
            self.assertEqual(alive["status"], "in_progress")
            with owner.runtime.store.writing() as db:
                db.execute("UPDATE research_jobs SET last_checked_at = '2026-01-01 00:00:00.000'")
            self.assertEqual(other.ok("jobs", action="status", job_id=number)["status"], "lost")
            other.runtime.close()
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            self.assertIn("late", owner.ok("jobs", action="result", job_id=number)["answer"])

    def test_an_answer_whose_database_was_removed_is_kept_in_the_new_one(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            gate = owner.fake.hold("POST /v1/agent")
            number = owner.ok("ask", query="moved")["job_id"]
            for path in Path(f"{owner.folder}/data").glob("perplexity.db*"):
                path.unlink()
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            self.assertIn("moved", owner.ok("jobs", action="result", job_id=number)["answer"])

    def test_a_commit_that_fails_leaves_the_answer_readable(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            gate = owner.fake.hold("POST /v1/agent")
            number = owner.ok("ask", query="late")["job_id"]
            store = owner.runtime.store
            full = pro.ToolError("internal_error", "The disk is full.")

            @contextlib.contextmanager
            def failing(*timeout_s: float) -> Any:
                with real(*timeout_s) as db:
                    yield db
                    raise full  # as SQLite does when it cannot write at the commit

            real = store.writing
            with mock.patch.object(store, "writing", failing):
                gate.set()
                self.assertTrue(owner.runtime.settle(WAIT_S))
                for _ in range(2):
                    seen = owner.ok("jobs", action="result", job_id=number)
                    self.assertIn("late", seen["answer"])
                (listed,) = owner.ok("jobs", action="list")["jobs"]
                self.assertEqual(listed["status"], "completed")
            assert_stored_later(self, owner, number, "late")

    def test_asking_again_after_a_cancel_does_not_pay_twice(self) -> None:
        with desk() as owner:
            gate = owner.fake.hold("POST /v1/agent")
            first = Background(owner, "ask", query="same")
            owner.fake.wait_for("POST /v1/agent", 1)
            first.call.cancel()
            first.join()
            (job,) = owner.ok("jobs", action="list")["jobs"]
            self.assertEqual(job["status"], "in_progress")
            second = Background(owner, "ask", query="same")
            wait_until(lambda: second.call.requests, "the second call did not start")
            gate.set()
            self.assertIn("same", second.join().structured["answer"])
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)
            self.assertEqual(statuses(owner), ["ok"])

    def test_a_given_up_request_is_not_joined(self) -> None:
        with desk() as owner:
            limited = Answer(429, {"error": {"message": "slow"}}, (("retry-after", "20"),))
            owner.fake.script("POST /v1/agent", limited)
            first = Background(owner, "ask", query="same")
            owner.fake.wait_for("POST /v1/agent", 1)
            wait_until(lambda: not first.call.requests[0].sent, "the refusal did not come")
            first.call.cancel()
            self.assertIn("same", owner.ok("ask", query="same")["answer"])
            first.join()


class LateEnds(unittest.TestCase):
    """A request that ends when its caller has left already, or its job is only in memory."""

    def test_a_cancelled_request_that_is_refused_leaves_a_job_only_if_it_may_have_cost(
        self,
    ) -> None:
        limited = (("retry-after", "20"),)
        for status, left in ((429, []), (502, ["failed"]), (400, ["failed"])):
            with self.subTest(status=status), desk() as owner:
                gate = threading.Event()
                body = {"error": {"message": "no"}}
                owner.fake.script("POST /v1/agent", Answer(status, body, limited, gate=gate))
                asked = Background(owner, "ask", query="q")
                owner.fake.wait_for("POST /v1/agent", 1)
                asked.call.cancel()
                asked.join()
                (job,) = owner.ok("jobs", action="list")["jobs"]
                self.assertEqual(job["status"], "in_progress")
                gate.set()
                self.assertTrue(owner.runtime.settle(WAIT_S))
                jobs = owner.ok("jobs", action="list")["jobs"]
                self.assertEqual([job["status"] for job in jobs], left)

    def test_a_job_is_found_in_its_project_only(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            gate = owner.fake.hold("POST /v1/agent")
            number = owner.ok("ask", query="q", project="alpha")["job_id"]
            self.assertIn("[not_found]", owner.refused("jobs", action="list", project="beta"))
            where = {"action": "result", "job_id": number}
            self.assertIn("[not_found]", owner.refused("jobs", project="beta", **where))
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            self.assertIn("q", owner.ok("jobs", project="alpha", **where)["answer"])

    def test_what_is_not_sent_when_the_time_is_over_is_never_sent_and_leaves_no_trace(self) -> None:
        for tool in ("ask", "research", "search"):
            with self.subTest(tool=tool), desk(PERPLEXITY_WAIT_SECONDS="1") as owner:
                limited = Answer(429, {"error": {"message": "no"}}, (("retry-after", "20"),))
                owner.fake.always("POST /v1/agent", limited)
                owner.fake.always("POST /search", limited)
                self.assertIn("will not be", owner.refused(tool, query="q"))
                self.assertTrue(owner.runtime.settle(WAIT_S))
                self.assertEqual(owner.ok("jobs", action="list")["jobs"], [])
                self.assertEqual((statuses(owner), len(owner.fake.requests)), ([], 1))

    def test_a_refusal_after_the_hand_off_is_read_from_the_job(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            gate = threading.Event()
            refusal = Answer(400, {"error": {"message": "no such model"}}, gate=gate)
            owner.fake.script("POST /v1/agent", refusal)
            number = owner.ok("ask", query="q")["job_id"]
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            seen = owner.run("jobs", action="result", job_id=number)
            self.assertIn("no such model", seen.text)
            self.assertEqual(seen.structured["status"], "failed")

    def test_what_is_cancelled_right_before_it_is_sent_is_not_sent(self) -> None:
        with desk() as owner:
            reached, go = threading.Event(), threading.Event()
            real = pro.PaidRequest.pause

            def slow(request: Any, seconds: float) -> None:
                if not reached.is_set():
                    reached.set()
                    go.wait(WAIT_S)
                real(request, seconds)

            with mock.patch.object(pro.PaidRequest, "pause", slow):
                first = Background(owner, "ask", query="same")
                self.assertTrue(reached.wait(WAIT_S))
                first.call.cancel()
                first.join()
                self.assertIn("same", owner.ok("ask", query="same")["answer"])
                go.set()
                self.assertTrue(owner.runtime.settle(WAIT_S))
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)
            self.assertEqual(statuses(owner), ["ok"])


class BackgroundRuns(unittest.TestCase):
    """Runs in the background."""

    def test_a_run_is_recorded_once_when_its_end_is_seen(self) -> None:
        with desk() as owner:
            owner.fake.run_script("in_progress", "completed")
            started = owner.ok("research", query="compare")
            self.assertEqual((started["status"], owner.events()), ("queued", []))
            looked = owner.ok("jobs", action="status", job_id=started["job_id"])
            self.assertEqual(looked["status"], "in_progress")
            self.assertIsNotNone(looked["progress"])
            done = owner.ok("jobs", action="result", job_id=started["job_id"])
            self.assertEqual(done["status"], "completed")
            owner.ok("jobs", action="result", job_id=started["job_id"])
            (event,) = owner.events()
            self.assertEqual(event["tool"], "perplexity_research")
            self.assertEqual(event["request_id"], started["response_id"])
            self.assertEqual(len(owner.fake.calls("GET", f"/v1/agent/{started['response_id']}")), 2)

    def test_a_run_of_another_process_is_found_by_a_new_one(self) -> None:
        with desk() as owner:
            number = owner.ok("research", query="compare")["job_id"]
            owner.runtime.close()
            owner.fake.finish_all()
            second = Desk(owner.fake, owner.folder)
            self.assertEqual(
                second.ok("jobs", action="result", job_id=number)["status"], "completed"
            )

    def test_waiting_hands_back_the_report_or_the_job_in_time(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="1.2") as owner:
            owner.fake.run_script(*["in_progress"] * 1000)
            begun = time.monotonic()
            result = owner.ok("research", query="long", wait_seconds=600)
            self.assertLess(time.monotonic() - begun, 2.2)
            self.assertEqual(result["status"], "in_progress")
            self.assertIn(f'"job_id":{result["job_id"]}', result["message"])

    def test_a_finished_submit_is_recorded_at_once(self) -> None:
        with desk() as owner:
            owner.fake.script(
                "POST /v1/agent",
                lambda seen: owner.fake.default(
                    seen._replace(body={**seen.body, "background": False})
                ),
            )
            result = owner.ok("research", query="quick")
            self.assertEqual(result["status"], "completed")
            self.assertIsNotNone(result["answer"])
            self.assertEqual(statuses(owner), ["ok"])

    def test_a_refused_submit_leaves_no_job(self) -> None:
        with desk() as owner:
            owner.fake.always("POST /v1/agent", Answer(400, {"error": {"message": "no"}}))
            owner.refused("research", query="q")
            self.assertEqual(owner.ok("jobs", action="list")["jobs"], [])
            self.assertEqual(statuses(owner), ["invalid_request"])

    def test_an_accepted_submit_whose_reply_is_lost_stays_findable(self) -> None:
        with desk() as owner:
            owner.fake.always("POST /v1/agent", Answer(fault="reset_after"))
            text = owner.refused("research", query="q")
            self.assertIn("may have been accepted", text)
            (job,) = owner.ok("jobs", action="list")["jobs"]
            self.assertEqual(job["status"], "failed")

    def test_garbled_polls_keep_the_job_and_name_it(self) -> None:
        with desk() as owner:
            number = owner.ok("research", query="q")["job_id"]
            odd: list[Any] = [[], {"status": "completed"}, {"status": "completed", "output": None}]
            for body in odd:
                owner.fake.script("GET /v1/agent/{id}", Answer(200, body))
                text = owner.refused("jobs", action="result", job_id=number)
                self.assertIn(f"Job {number}", text)
            owner.fake.finish_all()
            self.assertEqual(
                owner.ok("jobs", action="result", job_id=number)["status"], "completed"
            )

    def test_a_run_is_lost_only_after_a_second_not_found_ten_minutes_on(self) -> None:
        with desk() as owner:
            number = owner.ok("research", query="q")["job_id"]
            missing = Answer(404, {"error": {"message": "resource not found"}})
            owner.fake.always("GET /v1/agent/{id}", missing)
            first = owner.ok("jobs", action="status", job_id=number)
            second = owner.ok("jobs", action="status", job_id=number)
            self.assertEqual((first["status"], second["status"]), ("queued", "queued"))
            with owner.runtime.store.writing() as db:
                db.execute("UPDATE research_jobs SET missing_since = '2026-01-01 00:00:00.000'")
            third = owner.ok("jobs", action="status", job_id=number)
            self.assertEqual(third["status"], "lost")
            self.assertFalse(third["job"]["usage_recorded"])
            self.assertEqual(owner.events(), [])

    def test_a_cancel_is_sent_once_and_the_end_recorded_with_unknown_cost(self) -> None:
        with desk() as owner:
            owner.fake.run_script(*["in_progress"] * 1000)
            number = owner.ok("research", query="q")["job_id"]
            text = owner.refused("jobs", action="cancel", job_id=number)
            self.assertIn("[confirmation_required]", text)
            first = owner.ok("jobs", action="cancel", job_id=number, confirm=True)
            self.assertEqual(first["status"], "cancelling")
            self.assertIsNotNone(first["job"]["cancel_requested_at"])
            owner.ok("jobs", action="cancel", job_id=number)
            ends = [owner.ok("jobs", action="status", job_id=number)["status"] for _ in range(4)]
            self.assertEqual(ends[-1], "cancelled")
            sent = [seen for seen in owner.fake.requests if seen.path.endswith("/cancel")]
            self.assertEqual(len(sent), 1)
            (event,) = owner.events()
            self.assertEqual((event["cost_source"], event["cost_nano_usd"]), ("none", 0))

    def test_refresh_looks_at_ten_running_jobs_and_counts_the_others(self) -> None:
        with desk() as owner:
            for number in range(12):
                owner.ok("research", query=f"q{number}")
            owner.fake.finish_all()
            listed = owner.ok("jobs", action="list", refresh=True)
            self.assertEqual(listed["not_refreshed"], 2)
            self.assertEqual(sum(job["status"] == "completed" for job in listed["jobs"]), 10)
            self.assertEqual(len(owner.events()), 10)

    def test_the_observer_settles_what_nobody_asks_about(self) -> None:
        with desk(PERPLEXITY_OBSERVE="on") as owner:
            owner.ok("research", query="q")
            owner.fake.finish_all()
            self.assertEqual(pro.observe(owner.runtime), 1)
            self.assertEqual(statuses(owner), ["ok"])
            self.assertEqual(pro.observe(owner.runtime), 0)

    def test_one_process_observes_at_a_time(self) -> None:
        with desk() as owner:
            owner.ok("research", query="q")
            owner.fake.finish_all()
            with owner.runtime.store.writing() as db:
                other = {"name": "observer", "owner": "another", "until": time.time() + 60}
                inserted(db, "observer_lease", **other)
            self.assertEqual(pro.observe(owner.runtime), 0)
            self.assertEqual(owner.events(), [])

    def test_an_observer_without_a_database_makes_none(self) -> None:
        with desk() as owner:
            self.assertEqual(pro.observe(owner.runtime), 0)
            self.assertFalse(Path(owner.folder, "data").exists())

    def test_filters_reach_the_run_and_warn(self) -> None:
        with desk() as owner:
            result = owner.ok("research", query="q", domains=["python.org"], recency="week")
            (seen,) = owner.fake.calls("POST", "/v1/agent")
            self.assertEqual(
                seen.body["tools"][0]["filters"],
                {"search_domain_filter": ["python.org"], "search_recency_filter": "week"},
            )
            self.assertTrue(any("filter" in warning for warning in result["warnings"]))

    def test_unknown_presets_are_sent_and_sync_ones_refused(self) -> None:
        with desk() as owner:
            owner.fake.always(
                "POST /v1/agent", Answer(400, {"error": {"message": "no such preset"}})
            )
            text = owner.refused("research", query="q", depth="brand-new")
            self.assertIn("no such preset", text)
            self.assertIn("perplexity_ask", owner.refused("research", query="q", depth="fast"))


class LongAnswers(unittest.TestCase):
    REPORT = "".join(
        f"Line {n} \U0001f469\u200d\U0001f680 g\u0308r\u00fc\u00dfe.\n" for n in range(30_000)
    )

    def long(self, owner: Desk) -> None:
        def answer(seen: Any) -> Answer:
            made = owner.fake.default(seen)
            made.body["output"][-1]["content"][0]["text"] = self.REPORT
            return made

        owner.fake.always("POST /v1/agent", answer)

    def test_a_long_answer_is_cut_marked_and_reassembled_exactly(self) -> None:
        with desk() as owner:
            self.long(owner)
            first = owner.ok("ask", query="q")
            self.assertLess(len(first["answer"]), 25_000)
            self.assertEqual(first["answer_chars"], len(self.REPORT))
            self.assertTrue(any("Cut after" in w and "offset" in w for w in first["warnings"]))
            self.assertTrue(first["sources"])
            parts, offset = [first["answer"]], first["next_offset"]
            while offset is not None:
                page = owner.run("jobs", action="result", job_id=first["job_id"], offset=offset)
                self.assertIsNone(page.kind, page.text)
                self.assertLessEqual(len(page.text), 25_000)
                self.assertLessEqual(len(pro.json_text(page.structured)), 25_000)
                self.assertTrue(page.structured["sources"])
                self.assertIsNotNone(page.structured["usage"]["cost_usd"])
                parts.append(page.structured["answer"])
                offset = page.structured["next_offset"]
            self.assertEqual("".join(parts), self.REPORT)
            for part in parts[1:]:
                self.assertNotIn(part[0], "\u0308\u200d")

    def test_more_sources_than_fit_are_paged_too(self) -> None:
        with desk(PERPLEXITY_MAX_RESULT_CHARS="6000") as owner:

            def answer(seen: Any) -> Answer:
                made = owner.fake.default(seen)
                page = made.body["output"][0]["results"][0]
                made.body["output"][0]["results"] = [
                    {**page, "id": n, "url": f"https://example.org/{n}/{'x' * 60}"}
                    for n in range(1, 201)
                ]
                return made

            owner.fake.always("POST /v1/agent", answer)
            first = owner.ok("ask", query="q")
            seen, offset = {s["url"] for s in first["sources"]}, first["next_offset"]
            self.assertLess(len(seen), 200)
            while offset is not None:
                page = owner.ok("jobs", action="result", job_id=first["job_id"], offset=offset)
                seen.update(source["url"] for source in page["sources"])
                offset = page["next_offset"]
            self.assertEqual(len(seen), 200)

    def test_long_search_results_keep_whole_entries_and_name_the_rest(self) -> None:
        with desk(PERPLEXITY_MAX_RESULT_CHARS="8000") as owner:
            results = [
                {"title": f"T{n}", "url": f"https://example.org/{n}", "snippet": f"s{n} " * 400}
                for n in range(10)
            ]
            owner.fake.always("POST /search", Answer(200, {"id": "x", "results": results}))
            outcome = owner.run("search", query="q")
            self.assertLessEqual(len(outcome.text), 8000)
            shown = outcome.structured["results"]
            self.assertTrue(0 < len(shown) < 10)
            counts = (outcome.structured["count"], outcome.structured["results_total"])
            self.assertEqual(counts, (len(shown), 10))
            offset = pro.read_json(outcome.structured["warnings"][-1].split("perplexity_jobs ")[1])
            del offset["action"]
            more = offset.pop("offset")
            self.assertEqual(more, len(shown))
            while more is not None:
                page = owner.run("jobs", action="result", offset=more, **offset)
                self.assertLessEqual(len(page.text), 8000)
                first = page.structured["results"][0]
                self.assertIn(f"\n{more + 1}. {first['title']}\n", page.text)
                shown += page.structured["results"]
                more = page.structured["next_offset"]
            self.assertEqual([hit["url"] for hit in shown], [hit["url"] for hit in results])
            self.assertEqual(page.structured["results_total"], 10)

    def test_a_result_longer_than_any_page_is_shortened_and_kept_whole_as_text(self) -> None:
        with desk(PERPLEXITY_MAX_RESULT_CHARS="4000") as owner:
            long = " ".join(f"w{n}" for n in range(3000))
            hits = [
                {"title": f"T{n}", "url": f"https://example.org/{n}", "snippet": long}
                for n in range(2)
            ]
            owner.fake.always("POST /search", Answer(200, {"id": "x", "results": hits}))
            outcome = owner.run("search", query="q")
            self.assertLessEqual(len(pro.json_text(outcome.structured)), 4000)
            calls = outcome.structured["warnings"][-1].split("perplexity_jobs ")[1:]
            rest, whole = (pro.read_json(re.findall(r"\{.*\}", call)[0]) for call in calls)
            text, offset = "", whole.pop("offset")
            while offset is not None:
                page = owner.ok("jobs", **whole, offset=offset)
                text, offset = text + page["answer"], page["next_offset"]
            self.assertEqual(text.count(long), 2)
            self.assertEqual(owner.ok("jobs", **rest)["results"][0]["title"], "T1")


class Chats(unittest.TestCase):
    def test_a_chat_chains_by_response_id_and_sends_only_the_new_message(self) -> None:
        with desk() as owner:
            first = owner.ok("chat", action="send", title="t", message="one")
            second = owner.ok("chat", action="send", chat_id=first["chat_id"], message="two")
            body = owner.fake.calls("POST", "/v1/agent")[1].body
        self.assertEqual((first["continuation"], second["continuation"]), ("new", "chained"))
        self.assertEqual(body["previous_response_id"], first["response_id"])
        self.assertEqual(body["input"], "two")
        self.assertIs(body["store"], False)

    def test_replay_sends_the_whole_history(self) -> None:
        with desk() as owner:
            number = owner.ok("chat", action="send", title="t", message="one")["chat_id"]
            result = owner.ok("chat", action="send", chat_id=number, message="two", replay=True)
            body = owner.fake.calls("POST", "/v1/agent")[1].body
        self.assertEqual(result["continuation"], "replay")
        self.assertEqual([turn["role"] for turn in body["input"]], ["user", "assistant", "user"])
        self.assertNotIn("previous_response_id", body)

    def test_a_refused_continuation_says_how_to_go_on_and_does_not_resend(self) -> None:
        with desk() as owner:
            number = owner.ok("chat", action="send", title="t", message="one")["chat_id"]
            with owner.runtime.store.writing() as db:
                db.execute("UPDATE chat_messages SET response_id = 'resp_gone'")
            text = owner.refused("chat", action="send", chat_id=number, message="two")
            self.assertIn("replay true", text)
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 2)
            self.assertEqual(owner.ok("chat", action="read", chat_id=number)["messages_total"], 2)

    def test_an_incomplete_first_send_creates_no_chat(self) -> None:
        with desk() as owner:

            def cut_short(seen: Any) -> Answer:
                made = owner.fake.default(seen)
                made.body.update(
                    status="incomplete", incomplete_details={"reason": "max_output_tokens"}
                )
                return made

            owner.fake.always("POST /v1/agent", cut_short)
            result = owner.ok("chat", action="send", title="t", message="one")
            self.assertIsNone(result["chat_id"])
            self.assertEqual(result["incomplete_reason"], "max_output_tokens")
            self.assertEqual(owner.ok("chat", action="list")["chats"], [])

    def test_an_answer_that_was_promised_is_found_though_its_project_was_deleted(self) -> None:
        for joined in (False, True):
            with self.subTest(joined=joined), desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
                gate = owner.fake.hold("POST /v1/agent")
                number = owner.ok("ask", query="late", project="gone")["job_id"]
                patient = owner.call("ask", patient=True)
                again = Background(owner, "ask", call=patient, query="late", project="gone")
                while joined and not patient.requests:
                    again.call.pause(0.001)
                if not joined:
                    patient.cancel()
                owner.ok("projects", action="delete", project="gone", confirm=True)
                gate.set()
                self.assertTrue(owner.runtime.settle(WAIT_S))
                again.end()
                found = owner.ok("jobs", action="result", job_id=number, project="gone")
                self.assertIn("late", found["answer"])
                with owner.runtime.store.reading() as db:
                    sql = """SELECT name FROM research_jobs JOIN projects
                        ON projects.id = project_id"""
                    self.assertEqual(db.execute(sql).fetchall(), [("gone",)])

    def test_no_answer_stays_where_nobody_finds_it_after_its_project_was_deleted(self) -> None:
        with desk() as owner:
            gate = owner.fake.hold("POST /v1/agent")
            asked = Background(owner, "ask", query="q", project="gone")
            owner.fake.wait_for("POST /v1/agent", 1)
            owner.ok("projects", action="delete", project="gone", confirm=True)
            gate.set()
            asked.end()
            asked.call.cancel()  # whoever asked is gone before the answer could be handed over
            owner.ok("usage")
            with owner.runtime.store.reading() as db:
                self.assertEqual(db.execute("SELECT * FROM research_jobs").fetchall(), [])
            self.assertEqual(statuses(owner), ["ok"])

    def test_a_chat_deleted_meanwhile_does_not_lose_the_answer(self) -> None:
        with desk() as owner:
            number = owner.ok("chat", action="send", title="t", message="one")["chat_id"]
            gate = owner.fake.hold("POST /v1/agent")
            running = Background(owner, "chat", action="send", chat_id=number, message="two")
            owner.fake.wait_for("POST /v1/agent", 2)
            owner.ok("chat", action="delete", chat_id=number, confirm=True)
            gate.set()
            result = running.join().structured
            self.assertIn("two", result["answer"])
            self.assertTrue(any("not_saved" in warning for warning in result["warnings"]))

    def test_reading_pages_backwards(self) -> None:
        with desk() as owner:
            number = owner.ok("chat", action="send", title="t", message="one")["chat_id"]
            for text in ("two", "three"):
                owner.ok("chat", action="send", chat_id=number, message=text)
            last = owner.ok("chat", action="read", chat_id=number, limit=2)
            self.assertTrue(last["truncated"])
            earlier = owner.ok(
                "chat", action="read", chat_id=number, before_id=last["messages"][0]["id"]
            )
            self.assertEqual(len(earlier["messages"]), 4)
            self.assertFalse(earlier["truncated"])

    def test_ids_are_never_reused(self) -> None:
        with desk() as owner:
            first = owner.ok("chat", action="send", title="t", message="one")["chat_id"]
            owner.ok("chat", action="delete", chat_id=first, confirm=True)
            second = owner.ok("chat", action="send", title="t", message="one")["chat_id"]
        self.assertGreater(second, first)

    def test_delete_wants_confirmation(self) -> None:
        with desk() as owner:
            number = owner.ok("chat", action="send", title="t", message="one")["chat_id"]
            text = owner.refused("chat", action="delete", chat_id=number)
            self.assertIn("[confirmation_required]", text)
            done = owner.ok("chat", action="delete", chat_id=number, confirm=True)
            self.assertEqual(done["messages_removed"], 2)
            self.assertIn("[not_found]", owner.refused("chat", action="read", chat_id=number))


if __name__ == "__main__":
    unittest.main()
