"""What was paid for is kept, counted once, and never waited for in vain."""

from __future__ import annotations

import contextlib
import re
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

from fake_perplexity import Answer
from support import WAIT_S, Background, Desk, desk, pro

OLD, FUTURE = "2026-01-01 00:00:00.000000", "2999-01-01 00:00:00.000000"
NO = {"error": {"message": "no"}}
TIERS = {
    "PERPLEXITY_ROUTING": "dynamic",
    "PERPLEXITY_TIER_LIGHT": "openai/gpt-6-luna",
    "PERPLEXITY_TIER_STANDARD": "perplexity/sonar",
    "PERPLEXITY_TIER_COMPLEX": "anthropic/claude-opus-5-5",
}


def sql(owner: Desk, statement: str, **values: Any) -> None:
    with owner.runtime.store.writing() as db:
        db.execute(statement, {"old": OLD, "future": FUTURE, **values})


def job(owner: Desk, number: int, action: str = "status", **more: Any) -> dict[str, Any]:
    return owner.ok("jobs", action=action, job_id=number, **more)


def keep_up(owner: Desk) -> None:
    """One round of upkeep, to its end."""
    owner.runtime.beat()
    upkeep = owner.runtime._upkeep
    assert upkeep is not None
    assert upkeep.over.wait(WAIT_S)


def changed(owner: Desk, **members: Any) -> Any:
    """A run whose reply has these members changed."""

    def answer(seen: Any) -> Answer:
        made = owner.fake.default(seen)
        made.body.update(members)
        return made

    return answer


def reserved(owner: Desk) -> set[str]:
    return {cap["reserved_usd"] for cap in owner.ok("usage")["caps"]}


class Waiting(unittest.TestCase):
    """A job whose request lives is awaited, here and in other processes."""

    def late(self, owner: Desk) -> tuple[int, threading.Event]:
        gate = owner.fake.hold("POST /v1/agent")
        return owner.ok("ask", query="late")["job_id"], gate

    def test_the_answer_comes_as_soon_as_it_is_stored_however_old_the_request(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            number, gate = self.late(owner)
            sql(owner, "UPDATE research_jobs SET last_checked_at = :old")
            call = owner.call("jobs", patient=True)
            given = {"action": "result", "job_id": number, "wait_seconds": 20}
            waiting = Background(owner, "jobs", call=call, **given)
            self.assertFalse(waiting.call.cancelled.wait(0.3))
            gate.set()
            began = time.monotonic()
            self.assertIn("late", waiting.join().structured["answer"])
            self.assertLess(time.monotonic() - began, 3)

    def test_another_process_waits_while_the_sender_shows_signs_of_life(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            number, gate = self.late(owner)
            other = Desk(owner.fake, owner.folder)
            sql(owner, "UPDATE research_jobs SET last_checked_at = :old")
            with mock.patch.object(pro, "HEARTBEAT_EVERY_S", 0.0):
                keep_up(owner)
            self.assertEqual(job(other, number)["status"], "in_progress")
            waiting = other.call("jobs", patient=True)
            given = {"action": "result", "job_id": number, "wait_seconds": 20}
            told = Background(other, "jobs", call=waiting, **given)
            gate.set()
            self.assertIn("late", told.join().structured["answer"])
            other.runtime.close()

    def test_a_job_from_a_clock_that_was_put_back_is_lost_after_its_minute(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            number, gate = self.late(owner)
            other = Desk(owner.fake, owner.folder)
            sql(owner, "UPDATE research_jobs SET started_at = :future, last_checked_at = NULL")
            seen = job(other, number)
            self.assertEqual(seen["status"], "in_progress")
            self.assertNotIn("-", seen["message"])
            with mock.patch.object(pro, "PENDING_LIFE_S", 0.0):
                self.assertEqual(job(other, number)["status"], "lost")
            other.runtime.close()
            gate.set()

    def test_a_write_that_fails_in_upkeep_ends_neither_it_nor_signs_of_life(self) -> None:
        said: list[str] = []
        with desk(PERPLEXITY_OBSERVE="on") as owner:
            owner.runtime.log = said.append
            for _ in range(2):
                with (
                    mock.patch.object(pro, "OBSERVE_EVERY_S", 0.0),
                    mock.patch.object(pro, "observe", side_effect=ValueError("x")),
                ):
                    keep_up(owner)
        self.assertEqual(len(said), 2)
        self.assertIn("ValueError in line", said[0])

    def test_a_refusal_that_passes_does_not_end_a_request_whose_caller_was_sent_to_its_job(
        self,
    ) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            gate = threading.Event()
            limited = Answer(429, NO, (("retry-after", "0"),), gate=gate)
            owner.fake.script("POST /v1/agent", limited)
            number = owner.ok("ask", query="late")["job_id"]
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            self.assertIn("late", job(owner, number, "result")["answer"])
            owner.fake.script("POST /v1/agent", limited._replace(gate=(gate := threading.Event())))
            number = owner.ok("ask", query="later")["job_id"]
            owner.runtime.stop_sending()
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            seen = job(owner, number)
            self.assertEqual(seen["status"], "failed")
            self.assertIn("not sent", seen["message"])

    def test_what_cannot_be_brought_home_is_said_in_its_job_at_once(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3", PERPLEXITY_BUDGET_DAILY_USD="1") as owner:
            number, gate = self.late(owner)
            owner.runtime.close()
            other = Desk(owner.fake, owner.folder, PERPLEXITY_BUDGET_DAILY_USD="1")
            seen = job(other, number)
            self.assertEqual(seen["status"], "lost")
            self.assertIn("may have been billed", seen["message"])
            self.assertNotEqual(reserved(other), {"0"})
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            self.assertIn("late", job(other, number, "result")["answer"])
            self.assertEqual(reserved(other), {"0"})
            other.runtime.close()


class Runs(unittest.TestCase):
    def test_a_refused_cancel_says_so_and_leaves_the_run(self) -> None:
        for answer, words in (
            (Answer(404, NO), "does not know"),
            (Answer(503, NO), "failed to answer"),
            (Answer(400, NO), "refused"),
            *(
                (Answer(200, text), "reply is not an answer")
                for text in ("true", '"x"', "[[]]", "{}")
            ),
        ):
            with self.subTest(status=answer.status, body=answer.body), desk() as owner:
                owner.fake.run_script(*["in_progress"] * 100)
                number = owner.ok("research", query="q")["job_id"]
                owner.fake.always("POST /v1/agent/{id}/cancel", answer)
                seen = job(owner, number, "cancel", confirm=True)
                self.assertEqual(seen["status"], "in_progress")
                self.assertIsNone(seen["job"]["cancel_requested_at"])
                for part in ("Not cancelled", words, "last seen as in_progress", '"cancel"'):
                    self.assertIn(part, seen["message"])
                self.assertNotIn("billed", seen["message"])
                owner.fake.always("POST /v1/agent/{id}/cancel", None)
                again = job(owner, number, "cancel", confirm=True)
                self.assertEqual(again["status"], "cancelling")

    def test_a_running_job_names_the_call_that_waits_for_its_end(self) -> None:
        with desk() as owner:
            number = owner.ok("research", query="q")["job_id"]
            for action in ("status", "result"):
                text = job(owner, number, action)["message"]
                self.assertIn(f'"job_id":{number},"project":"default","wait_seconds":', text)
                self.assertEqual(text.count("perplexity_jobs"), 1)

    def test_a_cancel_that_is_not_answered_is_given_back_in_time(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="2") as owner:
            owner.fake.run_script(*["in_progress"] * 100)
            number = owner.ok("research", query="q")["job_id"]
            gate = owner.fake.hold("POST /v1/agent/{id}/cancel")
            seen = job(owner, number, "cancel", confirm=True)
            self.assertIn("Not cancelled", seen["message"])
            self.assertIsNone(job(owner, number)["job"]["cancel_requested_at"])
            gate.set()

    def test_a_cancel_that_is_on_its_way_is_not_called_accepted(self) -> None:
        with desk() as owner:
            owner.fake.run_script(*["in_progress"] * 100)
            number = owner.ok("research", query="q")["job_id"]
            gate = threading.Event()
            owner.fake.script("POST /v1/agent/{id}/cancel", Answer(404, NO, gate=gate))
            first = Background(owner, "jobs", action="cancel", job_id=number, confirm=True)
            owner.fake.wait_for("POST /v1/agent/{id}/cancel", 1)
            second = job(owner, number, "cancel", confirm=True)
            self.assertEqual(second["status"], "in_progress")
            self.assertIn("Another call is cancelling it", second["message"])
            gate.set()
            self.assertIn("Not cancelled", first.join().structured["message"])

    def test_a_cancel_whose_process_died_can_be_sent_again(self) -> None:
        with desk() as owner, contextlib.closing(pro.Runtime(owner.settings)) as other:
            owner.fake.run_script(*["in_progress"] * 100)
            number = owner.ok("research", query="q")["job_id"]
            clock = mock.Mock(return_value=time.time())
            with mock.patch("time.time", clock):
                with other.store.writing() as db:  # as that one had claimed it
                    self.assertTrue(pro.take_lease(db, f"cancel {number}", "x", pro.CLAIM_LIFE_S))
                self.assertIn("Another", job(owner, number, "cancel", confirm=True)["message"])
                clock.return_value += pro.CLAIM_LIFE_S + 1
                seen = job(owner, number, "cancel", confirm=True)
            self.assertEqual(seen["status"], "cancelling")

    def test_a_finished_run_with_an_error_has_failed_and_keeps_what_it_found(self) -> None:
        with desk() as owner:
            number = owner.ok("research", query="q")["job_id"]
            owner.fake.finish_all()
            odd = changed(owner, error={"message": "partial"})
            owner.fake.always("GET /v1/agent/{id}", odd)
            seen = job(owner, number, "result")
            self.assertEqual((seen["status"], seen["job"]["status"]), ("failed", "failed"))
            self.assertIn("partial", seen["message"])
            self.assertTrue(seen["answer"])
            self.assertTrue(seen["sources"])
            self.assertEqual(owner.events()[0]["status"], "unexpected_response")

    def test_a_run_that_was_accepted_under_no_usable_id_names_its_job(self) -> None:
        with desk() as owner:
            owner.fake.script("POST /v1/agent", changed(owner, id="weird id", status="in_progress"))
            text = owner.refused("research", query="q")
            self.assertRegex(text, r"It stands as job 1\.")
            self.assertEqual(job(owner, 1)["status"], "failed")

    def test_a_run_that_fails_at_once_has_its_job_its_reason_and_its_cost(self) -> None:
        with desk() as owner:

            def failed(seen: Any) -> Answer:
                made = owner.fake.default(seen._replace(body={**seen.body, "background": False}))
                made.body.update(status="failed", error={"message": "it broke"})
                return made

            owner.fake.always("POST /v1/agent", failed)
            result = owner.ok("research", query="q")
            self.assertEqual(result["status"], "failed")
            self.assertIn("it broke", result["message"])
            self.assertTrue(result["response_id"])
            kept = job(owner, result["job_id"], "result")
            self.assertTrue(kept["sources"])
            (event,) = owner.events()
            self.assertGreater(event["cost_nano_usd"], 0)
            self.assertEqual(kept["usage"]["cost_usd"], pro.usd_text(event["cost_nano_usd"]))

    def test_a_preset_is_never_told_as_a_model(self) -> None:
        for status in ("cancelled", "failed"):
            with self.subTest(status=status), desk() as owner:
                number = owner.ok("research", query="q", depth="high")["job_id"]
                owner.fake.always("GET /v1/agent/{id}", changed(owner, status=status, model="high"))
                self.assertIsNone(job(owner, number)["job"]["model"])
                keys = [g["key"] for g in owner.ok("usage", group_by="model")["groups"]]
                self.assertEqual(keys, ["(none)"])

    def test_a_dead_submit_is_ended_before_the_same_research_is_sent(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            gate = owner.fake.hold("POST /v1/agent")
            first = owner.ok("research", query="q")["job_id"]
            sql(owner, "UPDATE research_jobs SET started_at = :old, last_checked_at = NULL")
            gate.set()
            other = Desk(owner.fake, owner.folder)
            again = other.ok("research", query="q")
            self.assertNotEqual(again["job_id"], first)
            self.assertEqual(again["status"], "queued")
            other.runtime.close()

    def test_two_processes_start_the_same_research_once(self) -> None:
        with desk() as owner:
            other = Desk(owner.fake, owner.folder)
            gate = owner.fake.hold("POST /v1/agent")
            begun = [Background(one, "research", query="q") for one in (owner, other)]
            owner.fake.wait_for("POST /v1/agent", 1)
            late = next(
                one for one in begun if not one.call.requests or not one.call.requests[0].sent
            )
            result = late.join().structured
            self.assertTrue(any("still running" in warning for warning in result["warnings"]))
            gate.set()
            self.assertEqual({one.join().structured["job_id"] for one in begun}, {1})
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)
            other.runtime.close()

    def test_a_job_that_another_process_was_told_of_stays_though_its_submit_is_refused(
        self,
    ) -> None:
        for status, ends in ((400, "failed"), (429, "failed")):
            with self.subTest(status=status), desk() as owner:
                other, gate = Desk(owner.fake, owner.folder), threading.Event()
                limited = (("retry-after", "20"),)
                owner.fake.script("POST /v1/agent", Answer(status, NO, limited, gate=gate))
                first = Background(owner, "research", query="q")
                owner.fake.wait_for("POST /v1/agent", 1)
                number = other.ok("research", query="q")["job_id"]
                first.call.cancel()
                gate.set()
                self.assertTrue(owner.runtime.settle(WAIT_S))
                self.assertEqual(job(other, number)["status"], ends)
                other.runtime.close()

    def test_a_call_whose_error_was_told_at_once_leaves_no_job(self) -> None:
        failures = [Answer(status, NO) for status in (400, 401, 500)]
        failures += [Answer(200, {"output": 1}), Answer(fault="reset_after")]
        for failure in failures:
            with self.subTest(failure), desk(PERPLEXITY_MAX_ATTEMPTS="1") as owner:
                for tool in ("ask", "research") if failure.status in {400, 401} else ("ask",):
                    owner.fake.script("POST /v1/agent", failure)
                    owner.refused(tool, query="q")
                owner.fake.script("POST /search", failure)
                # Its end is not told to have come, as on the command line.
                self.assertIsNotNone(pro.run_tool(owner.call("search"), {"query": "q"}).kind)
                self.assertEqual(owner.ok("jobs", action="list")["jobs"], [])
                self.assertEqual({event["status"] == "ok" for event in owner.events()}, {False})

    def test_errors_that_cost_nothing_make_no_lower_bound(self) -> None:
        with desk(PERPLEXITY_MAX_ATTEMPTS="1") as owner:
            owner.fake.script("POST /search", Answer(401, NO))
            owner.refused("search", query="q")
            report = owner.ok("usage")
            self.assertEqual((report["totals"]["errors"], report["warnings"]), (1, []))
            owner.fake.script("POST /search", Answer(500, NO))
            owner.refused("search", query="q")
            self.assertIn("lower bound", owner.ok("usage")["warnings"][0])

    def test_a_job_names_its_chat_and_tells_models_from_depths(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            gate = owner.fake.hold("POST /v1/agent")
            number = owner.ok("chat", action="send", title="t", message="m")["job_id"]
            (listed,) = owner.ok("jobs", action="list")["jobs"]
            self.assertEqual((listed.get("depth"), listed["model"]), (None, "perplexity/sonar"))
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            (chat,) = owner.ok("chat", action="list")["chats"]
            self.assertEqual(job(owner, number, "result")["job"]["chat_id"], chat["id"])

    def test_a_page_of_a_gateway_or_a_wrong_key_loses_no_run(self) -> None:
        page = Answer(404, b"<html>not here</html>")
        for answer in (page, Answer(404, NO)):
            with desk() as owner:
                number = owner.ok("research", query="q")["job_id"]
                sql(owner, "UPDATE research_jobs SET started_at = :old")
                owner.fake.script("GET /v1/agent/{id}", answer, answer)
                for _ in range(2):
                    seen = owner.run("jobs", action="status", job_id=number)
                    self.assertIn("queued", seen.text)
                owner.fake.finish_all()
                self.assertEqual(job(owner, number)["status"], "completed")

    def test_a_lost_run_that_answers_later_comes_back_with_its_cost(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="1") as owner:
            number = owner.ok("research", query="q")["job_id"]
            owner.fake.script("GET /v1/agent/{id}", *[Answer(404, NO)] * 2)
            job(owner, number)
            sql(owner, "UPDATE research_jobs SET missing_since = :old")
            self.assertEqual(job(owner, number)["status"], "lost")
            self.assertEqual((owner.events(), reserved(owner)), ([], {"0.06"}))
            owner.fake.finish_all()
            self.assertEqual(job(owner, number, "result")["status"], "completed")
            self.assertEqual(len(owner.events()), 1)
            self.assertEqual(reserved(owner), {"0"})

    def test_a_run_of_a_deleted_project_counts_until_it_ends_and_is_recorded(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="0.10") as owner:
            owner.ok("research", query="q", project="p")
            owner.ok("projects", action="delete", project="p", confirm=True)
            self.assertEqual(reserved(owner), {"0.06"})
            self.assertIn("[budget_exceeded]", owner.refused("research", query="r", project="q"))
            self.assertEqual(owner.ok("projects", action="list")["projects"], [])
            owner.fake.finish_all()
            self.assertEqual(pro.observe(owner.runtime), 1)
            (event,) = owner.events()
            self.assertEqual((event["project_name"], event["status"]), ("p", "ok"))
            self.assertEqual(reserved(owner), {"0"})
            with owner.runtime.store.reading() as db:
                self.assertEqual(db.execute("SELECT * FROM research_jobs").fetchall(), [])


class Ids(unittest.TestCase):
    """Ids from outside are never keys."""

    def test_a_project_that_never_was_is_named_in_place_of_the_job(self) -> None:
        with desk() as owner:
            owner.ok("search", query="x", project="workshop")
            for action in ("result", "status", "cancel"):
                text = owner.refused("jobs", action=action, job_id=1, project="worksop")
                self.assertIn("There is no project 'worksop'; did you mean 'workshop'?", text)

    def test_answers_with_the_same_id_are_two_events_and_two_jobs(self) -> None:
        with desk(PERPLEXITY_MAX_RESULT_CHARS="4000") as owner:
            numbers = []
            for text in ("one", "two"):
                body = [
                    {"type": "message", "content": [{"type": "output_text", "text": text * 3000}]}
                ]
                odd = changed(owner, id="resp_same", output=body)
                owner.fake.always("POST /v1/agent", odd)
                numbers.append(owner.ok("ask", query=text)["job_id"])
            self.assertEqual(len(set(numbers)), 2)
            ids = {"job_id": numbers[0], "response_id": "resp_same"}
            self.assertTrue(owner.ok("jobs", action="result", **ids)["answer"].startswith("one"))
            for action in ("status", "result", "cancel"):
                odd = {**ids, "response_id": "resp_other"}
                refusal = owner.refused("jobs", action=action, **odd)
                self.assertIn("response_id: is not that of job", refusal)
            for number, text in zip(numbers, ("one", "two"), strict=True):
                self.assertTrue(job(owner, number, "result")["answer"].startswith(text))
            costs = [event["cost_nano_usd"] for event in owner.events()]
            self.assertEqual(len(costs), 2)
            self.assertTrue(all(costs))

    def test_searches_with_the_same_request_id_are_two_events(self) -> None:
        with desk() as owner:
            same = Answer(200, {"results": []}, (("x-request-id", "req-1"),))
            owner.fake.always("POST /search", same)
            owner.ok("search", query="a"), owner.ok("search", query="b")
            self.assertEqual(owner.ok("usage")["totals"]["cost_usd"], "0.002")

    def test_a_replaced_database_keeps_its_rows_and_gets_the_answer(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="0.3") as owner:
            owner.ok("search", query="first")
            gate = owner.fake.hold("POST /v1/agent")
            owner.ok("ask", query="late")
            sql(owner, "DELETE FROM usage_events WHERE status = 'interrupted'")
            sql(owner, "DELETE FROM research_jobs")
            other = Desk(owner.fake, owner.folder)
            held = owner.fake.hold("POST /search")
            mine = Background(other, "search", query="mine")
            owner.fake.wait_for("POST /search", 2)
            gate.set()
            self.assertTrue(owner.runtime.settle(WAIT_S))
            held.set()
            mine.join()
            other.runtime.close()
            self.assertEqual([e["api"] for e in owner.events()], ["search", "search", "agent"])
            self.assertEqual({e["status"] for e in owner.events()}, {"ok"})
            (kept,) = owner.ok("jobs", action="list")["jobs"]
            self.assertIn("late", job(owner, kept["job_id"], "result")["answer"])

    def test_a_cost_too_large_for_the_ledger_is_unknown_to_the_result_as_well(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="1") as owner:
            usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
            cost = {"currency": "USD", "total_cost": 2147483648}
            odd = changed(owner, usage={**usage, "cost": cost})
            owner.fake.always("POST /v1/agent", odd)
            result = owner.ok("ask", query="q")
            (event,) = owner.events()
            self.assertIsNone(result["usage"]["cost_usd"])
            self.assertEqual((event["cost_nano_usd"], event["cost_source"]), (0, "none"))
            self.assertNotEqual(reserved(owner), {"0"})

    def test_a_chat_that_cannot_be_continued_is_not_sent_again_unasked(self) -> None:
        with desk() as owner:
            owner.fake.script("POST /v1/agent", changed(owner, id="weird id"))
            number = owner.ok("chat", action="send", title="t", message="one")["chat_id"]
            text = owner.refused("chat", action="send", chat_id=number, message="two")
            self.assertIn("replay true", text)
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)
            owner.ok("chat", action="send", chat_id=number, message="two", replay=True)


class Money(unittest.TestCase):
    """Caps and questions look at the whole call, and estimates count until a cost is known."""

    def asked(self, owner: Desk, tool: str, /, *, yes: bool = True, **arguments: Any) -> list[str]:
        """The questions that a call asks."""
        questions: list[str] = []

        def ask_user(question: str) -> bool:
            questions.append(question)
            return yes

        call = owner.call(tool)
        call.ask_user = ask_user
        pro.run_tool(call, arguments)
        return questions

    def test_a_routed_call_is_asked_once_for_the_dearest_model_and_its_decision(self) -> None:
        with desk(**TIERS, PERPLEXITY_CONFIRM_USD="0") as owner:
            (question,) = self.asked(owner, "ask", query="q")
            dear = self.asked(owner, "ask", query="q", model=TIERS["PERPLEXITY_TIER_COMPLEX"])[0]

            def usd(text: str) -> int:
                return pro.read_usd(re.findall(r"up to \$([\d.]+\d)", text)[0]) or 0

            self.assertGreaterEqual(usd(question), usd(dear))
            self.assertEqual(len(owner.fake.calls("POST", "/v1/decisions")), 1)
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 2)
            self.assertEqual(len(self.asked(owner, "ask", yes=False, query="other")), 1)
            self.assertEqual(len(owner.fake.calls("POST", "/v1/decisions")), 1)

    def test_the_cap_of_a_call_covers_what_routing_may_pick(self) -> None:
        with desk(**TIERS, PERPLEXITY_BUDGET_CALL_USD="0.05") as owner:
            self.assertIn("[budget_exceeded]", owner.refused("ask", query="q"))
            self.assertEqual(owner.fake.calls("POST", "/v1/agent"), [])

    def test_all_batches_and_all_parts_are_one_call(self) -> None:
        items = [{"key": f"k{n}", "text": f"{n} " * 3000} for n in range(40)]
        index = {"action": "index", "source": "text", "items": items}
        questions = {f"q{n}": {"type": "noul", "instructions": "Is it?"} for n in range(1024)}
        calls: list[tuple[str, dict[str, Any], str]] = [
            ("embed", index, "POST /v1/embeddings"),
            ("decide", {"state": "x", "questions": questions}, "POST /v1/decisions"),
        ]
        for tool, arguments, route in calls:
            method, path = route.split()
            with self.subTest(tool=tool), desk(PERPLEXITY_CONFIRM_USD="0") as owner:
                (question,) = self.asked(owner, tool, **arguments)
                sent = len(owner.fake.calls(method, path))
                self.assertGreater(sent, 1)
                most = re.findall(r"up to \$([\d.]+\d)", question)[0]
                spent = pro.read_usd(owner.ok("usage")["totals"]["cost_usd"]) or 0
                self.assertGreaterEqual(pro.read_usd(most) or 0, spent)
            cap = str(float(most) * 0.9)  # it is rounded up to two figures
            for settings in ({"PERPLEXITY_BUDGET_CALL_USD": cap}, {"PERPLEXITY_CONFIRM_USD": cap}):
                with self.subTest(tool=tool, **settings), desk(**settings) as owner:
                    owner.refused(tool, **arguments)
                    self.assertEqual(owner.fake.calls(method, path), [])

    def test_a_price_that_is_not_known_is_said_to_be_so_for_all_parts(self) -> None:
        questions = {f"q{n}": {"type": "noul", "instructions": "Is it?"} for n in range(300)}
        with desk(PERPLEXITY_CONFIRM_USD="0") as owner:
            (question,) = self.asked(
                owner, "decide", state="x", questions=questions, model="new-decider"
            )
            self.assertIn("up to $0.06, by a guess", question)
            self.assertIn("the price of new-decider is not known", question)

    def test_a_cap_holds_where_the_database_is_locked_from_the_start(self) -> None:
        with desk() as owner:
            owner.ok("projects", action="budget", project="default", daily_usd="0")
            other = Desk(owner.fake, owner.folder, PERPLEXITY_DB_BUSY_TIMEOUT="0.1")
            with owner.locked():
                other.refused("search", query="x")
            self.assertEqual(owner.fake.calls("POST", "/search"), [])

    def test_a_model_list_that_stalls_holds_no_call_up_and_leaves_no_job(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="4", PERPLEXITY_BUDGET_DAILY_USD="0.0001") as owner:
            gate = owner.fake.hold("GET /v1/models")
            with mock.patch.object(pro, "CATALOG_LIMIT_S", 0.3):
                self.assertIn("[budget_exceeded]", owner.refused("ask", query="q"))
                began = time.monotonic()
                self.assertIn("[budget_exceeded]", owner.refused("ask", query="q"))
                self.assertLess(time.monotonic() - began, 0.3)
            gate.set()
            self.assertEqual(len(owner.fake.calls("GET", "/v1/models")), 1)
            self.assertEqual(owner.events(), [])

    def test_the_model_list_is_fetched_once_for_many_calls(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="10") as owner:
            gate = owner.fake.hold("GET /v1/models")
            with ThreadPoolExecutor(10) as pool:
                calls = [pool.submit(owner.ok, "models") for _ in range(5)]
                calls += [pool.submit(owner.ok, "ask", query=f"q{n}") for n in range(5)]
                owner.fake.wait_for("GET /v1/models", 1)
                gate.set()
                for call in calls:
                    call.result(WAIT_S)
            self.assertEqual(len(owner.fake.calls("GET", "/v1/models")), 1)

    def test_history_never_hides_what_this_input_costs(self) -> None:
        settings = {"PERPLEXITY_BUDGET_CALL_USD": "0.01", "PERPLEXITY_CONFIRM_USD": "0.01"}
        with desk() as owner:
            for n in range(10):
                owner.ok("ask", query=f"hi {n}", model="openai/gpt-6-sol")
            for name, value in settings.items():
                capped = Desk(owner.fake, owner.folder, **{name: value})
                text = capped.refused("ask", query="word " * 4000, model="openai/gpt-6-sol")
                self.assertIn(name, text)
                capped.runtime.close()

    def test_server_failures_count_at_the_price_of_their_own_request(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="0.05") as owner:
            for path in ("/search", "/v1/embeddings"):
                owner.fake.always(f"POST {path}", Answer(500, NO))
            owner.refused("search", query="a"), owner.refused("search", query="b")
            self.assertEqual(reserved(owner), {"0.002"})
            owner.refused("embed", action="index", source="text", items=[{"key": "k", "text": "t"}])
            self.assertLess(pro.read_usd(reserved(owner).pop()) or 0, 2_100_000)

    def test_a_call_sends_nothing_once_the_installation_has_changed(self) -> None:
        with desk() as owner:
            import builtins

            real = builtins.__import__

            def gone(name: str, *rest: Any, **more: Any) -> Any:
                if name == "decimal":
                    raise ImportError(name)
                return real(name, *rest, **more)

            with mock.patch.object(builtins, "__import__", gone):
                text = owner.refused("ask", query="q")
            self.assertIn("installation changed", text)
            self.assertEqual((owner.fake.requests, owner.events()), ([], []))


if __name__ == "__main__":
    unittest.main()
