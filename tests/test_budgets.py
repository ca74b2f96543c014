"""Spend caps, routing by a decision, and identical calls that share one request."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import live_routing
from fake_perplexity import Answer
from support import ROOT, WAIT_S, Background, Desk, desk, pro

TIERS = {
    "PERPLEXITY_ROUTING": "dynamic",
    "PERPLEXITY_TIER_LIGHT": "openai/gpt-6-luna",
    "PERPLEXITY_TIER_STANDARD": "perplexity/sonar",
    "PERPLEXITY_TIER_COMPLEX": "anthropic/claude-opus-5-5",
}


def costing(owner: Desk, cost: Any) -> None:
    """Every run reports this cost; a callable gives a new one each time."""

    def answer(seen: Any) -> Answer:
        made = owner.fake.default(seen)
        usage = made.body["usage"]
        usage["cost"]["total_cost"] = cost() if callable(cost) else cost
        return made

    owner.fake.always("POST /v1/agent", answer)


class Caps(unittest.TestCase):
    def test_a_call_over_the_daily_cap_is_refused_before_anything_is_sent(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="0.05") as owner:
            costing(owner, 0.04)
            owner.ok("ask", query="one")
            text = owner.refused("ask", query="two")
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)
            self.assertEqual(len(owner.events()), 1)
        self.assertIn("[budget_exceeded]", text)
        for part in ("PERPLEXITY_BUDGET_DAILY_USD", "$0.05", "$0.04", "$0.038"):
            self.assertIn(part, text)

    def test_a_call_that_may_cost_more_than_the_call_cap_is_refused(self) -> None:
        with desk(PERPLEXITY_BUDGET_CALL_USD="0.5") as owner:
            owner.ok("ask", query="q")
            text = owner.refused("research", query="q", depth="high")
            self.assertIn("PERPLEXITY_BUDGET_CALL_USD", text)
            self.assertEqual(owner.ok("jobs", action="list")["jobs"], [])

    def test_a_dear_model_counts_at_its_price_and_the_length_that_is_asked_for(self) -> None:
        dear = {"query": "q", "model": "anthropic/claude-opus-5-5", "max_output_tokens": 64_000}
        for variable in ("PERPLEXITY_BUDGET_CALL_USD", "PERPLEXITY_CONFIRM_USD"):
            with self.subTest(variable), desk(**{variable: "0.50"}) as owner:
                self.assertIn("1.4", owner.refused("ask", **dear))
                self.assertEqual(owner.fake.calls("POST", "/v1/agent"), [])
                owner.ok("ask", query="q")

    def test_a_model_of_unknown_price_counts_as_the_dearest(self) -> None:
        with desk(PERPLEXITY_BUDGET_CALL_USD="0.50") as owner:
            text = owner.refused("ask", query="q", model="new/model")
            self.assertIn("[budget_exceeded]", text)

    def test_a_run_that_began_yesterday_still_counts(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="0.10") as owner:
            owner.fake.run_script(*["in_progress"] * 1000)
            owner.ok("research", query="q")
            with owner.runtime.store.writing() as db:
                db.execute("UPDATE research_jobs SET started_at = '2026-01-01 00:00:00.000000'")
            self.assertIn("[budget_exceeded]", owner.refused("research", query="other"))

    def test_a_projects_cap_holds_while_the_database_is_locked(self) -> None:
        with desk(PERPLEXITY_DB_BUSY_TIMEOUT="0.1") as owner:
            owner.ok("search", query="makes the project", project="p")
            owner.ok("projects", action="budget", project="p", daily_usd=0)
            owner.refused("ask", query="q", project="p")
            with owner.locked():
                self.assertIn("[storage_busy]", owner.refused("ask", query="q", project="p"))
            self.assertEqual(owner.fake.calls("POST", "/v1/agent"), [])

    def test_the_monthly_cap_counts_the_whole_month(self) -> None:
        with desk(PERPLEXITY_BUDGET_MONTHLY_USD="0.05") as owner:
            costing(owner, 0.04)
            owner.ok("ask", query="one")
            with owner.runtime.store.writing() as db:
                db.execute(
                    "UPDATE usage_events SET created_at = substr(created_at, 1, 8) || '01 00'"
                )
            self.assertIn("MONTHLY", owner.refused("ask", query="two"))

    def test_yesterdays_spending_does_not_count_today(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="0.05") as owner:
            costing(owner, 0.04)
            owner.ok("ask", query="one")
            with owner.runtime.store.writing() as db:
                db.execute("UPDATE usage_events SET created_at = '2026-01-01 00:00:00.000000'")
            owner.ok("ask", query="two")

    def test_a_project_has_caps_of_its_own(self) -> None:
        with desk() as owner:
            costing(owner, 0.04)
            owner.ok("ask", query="one", project="small")
            made = owner.ok("projects", action="budget", project="small", daily_usd="0.05")
            self.assertEqual(made["projects"][0]["daily_usd"], "0.05")
            self.assertIn("'small'", owner.refused("ask", query="two", project="small"))
            owner.ok("ask", query="two", project="other")
            listed = owner.ok("projects", action="list")["projects"]
            self.assertEqual({p["name"]: p["daily_usd"] for p in listed}["small"], "0.05")
            text = owner.refused("projects", action="budget", project="small", daily_usd="none")
            self.assertIn("[confirmation_required]", text)
            owner.ok("projects", action="budget", project="small", daily_usd="none", confirm=True)
            owner.ok("ask", query="three", project="small")

    def test_amounts_that_cannot_be_read_are_refused_and_never_lift_a_cap(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="a lot") as owner:
            self.assertIn("PERPLEXITY_BUDGET_DAILY_USD", owner.refused("ask", query="q"))
        with desk() as owner:
            owner.ok("search", query="q")
            text = owner.refused("projects", action="budget", project="default", daily_usd="-1")
            self.assertIn("daily_usd", text)

    def test_runs_of_unknown_cost_count_at_their_estimate(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="0.10") as owner:
            owner.fake.run_script(*["in_progress"] * 1000)
            number = owner.ok("research", query="q")["job_id"]
            (cap,) = owner.ok("usage")["caps"]
            self.assertEqual((cap["spent_usd"], cap["reserved_usd"]), ("0", "0.06"))
            self.assertIn("[budget_exceeded]", owner.refused("research", query="q2"))
            owner.ok("jobs", action="cancel", job_id=number, confirm=True)
            while owner.ok("jobs", action="status", job_id=number)["status"] != "cancelled":
                pass
            (cap,) = owner.ok("usage")["caps"]
            self.assertEqual(cap["reserved_usd"], "0.06")
            self.assertEqual(cap["left_usd"], "0.04")

    def test_a_known_cost_takes_the_place_of_its_estimate(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="1") as owner:
            costing(owner, 0.0123)
            owner.ok("ask", query="q")
            (cap,) = owner.ok("usage")["caps"]
        self.assertEqual((cap["spent_usd"], cap["reserved_usd"]), ("0.0123", "0"))
        self.assertEqual(cap["left_usd"], "0.9877")

    def test_usage_warns_when_a_cap_is_nearly_used_up(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="0.05") as owner:
            costing(owner, 0.042)
            owner.ok("ask", query="q")
            report = owner.ok("usage")
        self.assertTrue(any("80%" in warning for warning in report["warnings"]))

    def test_without_storage_a_cap_cannot_be_kept_and_nothing_is_sent(self) -> None:
        with desk() as owner:
            broken = Desk(
                owner.fake,
                owner.folder,
                PERPLEXITY_DATA_DIR="/dev/null/x",
                PERPLEXITY_BUDGET_DAILY_USD="1",
            )
            broken.refused("ask", query="q")
            self.assertEqual(owner.fake.calls("POST", "/v1/agent"), [])

    def test_switching_a_cap_on_and_off_changes_nothing_in_the_ledger(self) -> None:
        with desk() as owner:
            owner.ok("ask", query="q")
            before = owner.events()
            capped = Desk(owner.fake, owner.folder, PERPLEXITY_BUDGET_DAILY_USD="0.001")
            capped.refused("ask", query="q2")
            capped.runtime.close()
            self.assertEqual(owner.events(), before)

    def test_threads_racing_to_a_cap_never_pass_it(self) -> None:
        dice = random.Random(7)  # noqa: S311 - a fixed sequence
        with desk(PERPLEXITY_BUDGET_DAILY_USD="0.10") as owner:
            costing(owner, lambda: round(dice.uniform(0.0001, 0.019), 5))
            with ThreadPoolExecutor(16) as pool:
                outcomes = list(pool.map(lambda n: owner.run("ask", query=f"q{n}"), range(60)))
            spent = sum(event["cost_nano_usd"] for event in owner.events())
            self.assertLessEqual(spent, 100_000_000)
            kinds = {outcome.kind for outcome in outcomes}
            self.assertEqual(kinds, {None, "budget_exceeded"})
            shown = sum(
                pro.read_usd(o.structured["usage"]["cost_usd"]) or 0
                for o in outcomes
                if o.kind is None
            )
            self.assertEqual(shown, spent)

    def test_what_a_dead_process_has_sent_counts_until_the_window_ends(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="0.05") as owner:
            gate = owner.fake.hold("POST /v1/agent")
            child = subprocess.Popen(
                [sys.executable, str(ROOT / "perplexity_pro_mcp.py"), "ask", "held"],
                env={
                    **{k: v for k, v in os.environ.items() if not k.startswith("PERPLEXITY_")},
                    "PERPLEXITY_API_KEY": owner.fake.key,
                    "PERPLEXITY_BASE_URL": owner.fake.url,
                    "PERPLEXITY_DATA_DIR": owner.settings.data_dir,
                    "PERPLEXITY_BUDGET_DAILY_USD": "0.05",
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            owner.fake.wait_for("POST /v1/agent", 1)
            owner.fake.always("POST /v1/agent", None)
            child.send_signal(signal.SIGKILL if os.name != "nt" else signal.SIGTERM)
            child.wait(WAIT_S)
            with owner.runtime.store.writing() as db:
                db.execute("UPDATE research_jobs SET started_at = '2026-01-01 00:00:00.000000'")
            self.assertEqual(owner.ok("jobs", action="status", job_id=1)["status"], "lost")
            self.assertIn("reserved", owner.refused("ask", query="mine"))
            (cap,) = owner.ok("usage")["caps"]
            self.assertTrue(cap["reserved_usd"].startswith("0.037"), cap)
            with owner.runtime.store.writing() as db:
                db.execute("UPDATE holds SET since = '2026-01-01 00:00:00.000000'")
            gate.set()
            owner.ok("ask", query="mine")

    def test_a_request_on_its_way_counts_however_long_it_takes(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="0.05") as owner:
            gate = owner.fake.hold("POST /v1/agent")
            running = Background(owner, "ask", query="held")
            owner.fake.wait_for("POST /v1/agent", 1)
            self.assertIn(
                "reserved",
                Desk(owner.fake, owner.folder, PERPLEXITY_BUDGET_DAILY_USD="0.05").refused(
                    "ask", query="other"
                ),
            )
            gate.set()
            running.join()
            (cap,) = owner.ok("usage")["caps"]
            self.assertEqual(cap["reserved_usd"], "0")

    def test_sums_equal_the_results_to_the_nano_over_a_thousand_calls(self) -> None:
        dice = random.Random(3)  # noqa: S311 - as above
        with desk() as owner:
            costing(owner, lambda: dice.choice([0.00001, 0.12345, 4.56e-7, 0, 0.1 + 0.2]))
            with ThreadPoolExecutor(8) as pool:
                outcomes = list(pool.map(lambda n: owner.ok("ask", query=f"q{n}"), range(1000)))
            total = sum(pro.read_usd(result["usage"]["cost_usd"]) or 0 for result in outcomes)
            report = owner.ok("usage")
        self.assertEqual(report["totals"]["calls"], 1000)
        self.assertEqual(report["totals"]["cost_nano_usd"], total)


class DynamicRouting(unittest.TestCase):
    def decide(self, owner: Desk, answer: Any) -> None:
        owner.fake.always("POST /v1/decisions", answer)

    def test_a_nameless_call_runs_on_the_tier_that_a_decision_picks(self) -> None:
        with desk(**TIERS) as owner:
            probabilities = {"light": 0.05, "standard": 0.05, "complex": 0.9}
            answer = {"type": "choice", "choice": "complex", "probabilities": probabilities}
            usage = {"input_tokens": 100, "output_tokens": 1}
            self.decide(owner, Answer(200, {"answers": {"tier": answer}, "usage": usage}))
            result = owner.ok("ask", query="Prove it. " * 2000)
            (asked,) = owner.fake.calls("POST", "/v1/decisions")
            (sent,) = owner.fake.calls("POST", "/v1/agent")
            self.assertEqual(len(asked.body["state"]), 8000)
            self.assertEqual(sent.body["model"], TIERS["PERPLEXITY_TIER_COMPLEX"])
            self.assertEqual(
                result["routing"],
                {
                    "mode": "dynamic",
                    "tier": "complex",
                    "model": TIERS["PERPLEXITY_TIER_COMPLEX"],
                    "selected_by": "dynamic",
                    "probability": 0.9,
                    "decision_cost_usd": "0.000002",
                },
            )
            groups = {
                g["key"]: g["cost_nano_usd"] for g in owner.ok("usage", group_by="api")["groups"]
            }
            self.assertEqual(groups["decisions"], 2000)

    def test_a_named_model_depth_or_tier_asks_for_no_decision(self) -> None:
        with desk(**TIERS) as owner:
            owner.ok("ask", query="q", depth="fast")
            owner.ok("ask", query="q", tier="light")
            owner.ok("ask", query="q", model="openai/gpt-5")
            self.assertEqual(owner.fake.calls("POST", "/v1/decisions"), [])

    def test_a_chat_is_routed_by_its_message(self) -> None:
        with desk(**TIERS) as owner:
            result = owner.ok("chat", action="send", title="t", message="hello")
            self.assertEqual(result["routing"]["selected_by"], "dynamic")

    def test_down_and_nonsense_fail_open_to_the_standard_tier_with_a_warning(self) -> None:
        bad: list[Answer] = [
            Answer(500, {"error": {"message": "down"}}),
            Answer(200, {"answers": {}}),
            Answer(200, {"answers": {"tier": {"choice": "huge"}}}),
            Answer(200, []),
            Answer(200, b"<html>"),
            Answer(fault="reset_after"),
        ]
        for answer in bad:
            with self.subTest(answer=answer), desk(**TIERS) as owner:
                self.decide(owner, answer)
                result = owner.ok("ask", query="q")
                self.assertEqual(result["routing"]["tier"], "standard")
                self.assertEqual(result["routing"]["selected_by"], "default")
                self.assertTrue(any("standard tier" in warning for warning in result["warnings"]))

    def test_a_slow_decision_is_not_waited_for_beyond_its_limit(self) -> None:
        with desk(**TIERS) as owner:
            gate = owner.fake.hold("POST /v1/decisions")
            limit, pro.ROUTE_LIMIT_S = pro.ROUTE_LIMIT_S, 0.2
            try:
                result = owner.ok("ask", query="q")
            finally:
                pro.ROUTE_LIMIT_S = limit
            gate.set()
            self.assertEqual(result["routing"]["tier"], "standard")
            self.assertTrue(any("in time" in warning for warning in result["warnings"]))

    def test_the_models_page_shows_the_set_up(self) -> None:
        with desk(**TIERS) as owner:
            routing = owner.ok("models")["routing"]
        self.assertEqual(routing["mode"], "dynamic")
        self.assertEqual(
            [model["name"] for model in routing["models"]], ["light", "standard", "complex"]
        )


class RoutingTable(unittest.TestCase):
    def test_sixty_prompts_reach_the_models_of_the_tiers_that_answers_name(self) -> None:
        table = live_routing.prompts()
        self.assertEqual(len(table), 60)
        self.assertEqual({tier for tier, _ in table}, set(pro.TIERS))
        wanted = {prompt: tier for tier, prompt in table}

        def decision(seen: Any) -> Answer:
            tier = wanted[seen.body["state"]]
            odds = {name: 0.8 if name == tier else 0.1 for name in pro.TIERS}
            answer = {"type": "choice", "choice": tier, "confidence": 0.7, "probabilities": odds}
            return Answer(
                200,
                {"answers": {"tier": answer}, "usage": {"input_tokens": 90, "output_tokens": 1}},
            )

        with desk(**TIERS) as owner:
            owner.fake.always("POST /v1/decisions", decision)
            for tier, routing, prompt in live_routing.picked_tiers(owner.runtime):
                self.assertEqual(routing.tier, tier, prompt)
                self.assertEqual(routing.model, TIERS[f"PERPLEXITY_TIER_{tier.upper()}"])
                self.assertEqual((routing.selected_by, routing.probability), ("dynamic", 0.8))


class Sharing(unittest.TestCase):
    def test_identical_calls_in_flight_share_one_request_and_one_event(self) -> None:
        with desk() as owner:
            gate = owner.fake.hold("POST /v1/agent")
            first = Background(owner, "ask", query="same")
            owner.fake.wait_for("POST /v1/agent", 1)
            second = Background(owner, "ask", query="same").joined()
            other = Background(owner, "ask", query="different")
            owner.fake.wait_for("POST /v1/agent", 2)
            gate.set()
            answers = [call.join().structured for call in (first, second, other)]
            self.assertEqual(answers[0]["answer"], answers[1]["answer"])
            self.assertNotEqual(answers[0]["answer"], answers[2]["answer"])
            self.assertTrue(any("shares its answer" in w for w in answers[1]["warnings"]))
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 2)
            self.assertEqual(len(owner.events()), 2)

    def test_again_sends_a_second_request(self) -> None:
        with desk() as owner:
            gate = owner.fake.hold("POST /v1/agent")
            first = Background(owner, "ask", query="same")
            owner.fake.wait_for("POST /v1/agent", 1)
            second = Background(owner, "ask", query="same", again=True)
            owner.fake.wait_for("POST /v1/agent", 2)
            gate.set()
            first.join(), second.join()

    def test_one_of_two_sharers_may_cancel(self) -> None:
        with desk() as owner:
            gate = owner.fake.hold("POST /v1/agent")
            first = Background(owner, "ask", query="same")
            owner.fake.wait_for("POST /v1/agent", 1)
            second = Background(owner, "ask", query="same").joined()
            first.call.cancel()
            first.join()
            gate.set()
            self.assertIn("same", second.join().structured["answer"])

    def test_calls_one_after_the_other_are_both_sent(self) -> None:
        with desk() as owner:
            owner.ok("ask", query="same")
            owner.ok("ask", query="same")
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 2)

    def test_research_that_still_runs_is_not_started_twice(self) -> None:
        with desk() as owner:
            owner.fake.run_script(*["in_progress"] * 1000)
            first = owner.ok("research", query="compare")
            again = owner.ok("research", query="compare")
            self.assertEqual(again["job_id"], first["job_id"])
            self.assertTrue(any("still running" in warning for warning in again["warnings"]))
            self.assertNotEqual(
                owner.ok("research", query="compare", depth="high")["job_id"], first["job_id"]
            )
            fresh = owner.ok("research", query="compare", fresh=True)
            self.assertNotEqual(fresh["job_id"], first["job_id"])
            owner.fake.finish_all()
            owner.ok("jobs", action="list", refresh=True)
            self.assertNotEqual(owner.ok("research", query="compare")["job_id"], first["job_id"])


class ToolChoice(unittest.TestCase):
    def test_names_groups_and_removals(self) -> None:
        def words(text: str) -> list[str]:
            return [t.word for t in pro.offered_tools(pro.Settings(tools=text)).values()]

        self.assertEqual(words("all"), [t.word for t in pro.TOOLS.values()])
        self.assertEqual(words("core"), ["ask", "jobs", "search", "help"])
        self.assertEqual(words("ask, perplexity_usage"), ["ask", "jobs", "usage"])
        self.assertNotIn("embed", words("-embed"))
        self.assertEqual(words("core,usage,-help"), ["ask", "jobs", "search", "usage"])

    def test_the_core_is_small(self) -> None:
        listed = [
            {
                "name": tool.name,
                "title": tool.title,
                "description": tool.description,
                "inputSchema": pro.input_schema(tool),
                "outputSchema": pro.output_schema(tool),
                "annotations": pro.tool_hints(tool),
            }
            for tool in pro.offered_tools(pro.Settings(tools="core")).values()
        ]
        size = len(json.dumps({"tools": listed}, separators=(",", ":")).encode())
        self.assertLessEqual(size, 8000)


class Confirming(unittest.TestCase):
    def test_a_dear_call_is_refused_until_it_is_confirmed(self) -> None:
        with desk(PERPLEXITY_CONFIRM_USD="0.05") as owner:
            owner.ok("ask", query="q")
            text = owner.refused("research", query="q", depth="high")
            self.assertIn("[confirmation_required]", text)
            self.assertIn("confirm=true", text)
            self.assertEqual(len(owner.fake.calls("POST", "/v1/agent")), 1)
            owner.ok("research", query="q", depth="high", confirm=True)

    def test_the_user_is_asked_where_the_client_can(self) -> None:
        with desk(PERPLEXITY_CONFIRM_USD="0") as owner:
            for answer in (False, True):
                call, asked = owner.call("search"), list[str]()

                def ask_user(question: str, said: bool = answer, into: list[str] = asked) -> bool:
                    into.append(question)
                    return said

                call.ask_user = ask_user
                outcome = pro.run_tool(call, {"query": f"q {answer}"})
                self.assertEqual(outcome.kind, None if answer else "confirmation_required")
                self.assertEqual(len(asked), 1)
                self.assertIn("up to $0.001.", asked[0])

    def test_where_the_user_can_be_asked_an_argument_does_not_answer_for_them(self) -> None:
        with desk(PERPLEXITY_CONFIRM_USD="0") as owner:
            for answer, kind in ((False, "confirmation_required"), (None, None)):
                call = owner.call("search")
                call.ask_user = lambda _question, said=answer: said  # None: the form failed
                said = pro.run_tool(call, {"query": f"{answer}", "confirm": True})
                self.assertEqual(said.kind, kind)

    def test_a_call_that_became_dearer_while_the_user_read_is_asked_about_again(self) -> None:
        for later, questions in ((3_000_000, 1), (9_000_000, 2)):
            with desk(PERPLEXITY_CONFIRM_USD="0.001") as owner:
                call, asked = owner.call("search"), list[str]()
                call.ask_user = lambda question, into=asked: not into.append(question)
                prices = itertools.chain([5_000_000], itertools.repeat(later))
                with mock.patch.object(pro, "estimated", lambda *_, of=prices: next(of)):
                    self.assertIsNone(pro.run_tool(call, {"query": "q"}).kind)
                self.assertEqual(len(asked), questions)

    def test_nobody_is_asked_about_a_call_that_cannot_be_sent(self) -> None:
        unset = {"PERPLEXITY_TIER_COMPLEX": ""}
        for flaw, kind in (
            ({"PERPLEXITY_API_KEY": ""}, "authentication"),
            (unset, "invalid_request"),
        ):
            with desk(**{**TIERS, "PERPLEXITY_CONFIRM_USD": "0", **flaw}) as owner:
                asked = list[str]()
                call = owner.call("ask")
                call.ask_user = lambda question, into=asked: not into.append(question)
                self.assertEqual(pro.run_tool(call, {"query": "q"}).kind, kind)
            self.assertEqual(asked, [])

    def test_confirm_is_understood_by_tools_that_do_not_list_it(self) -> None:
        with desk(PERPLEXITY_CONFIRM_USD="0") as owner:
            owner.refused("search", query="q")
            owner.ok("search", query="q", confirm=True)

    def test_deleting_asks_the_user_too(self) -> None:
        with desk() as owner:
            owner.ok("search", query="q")
            call = owner.call("projects")
            call.ask_user = lambda question: "default" in question
            outcome = pro.run_tool(call, {"action": "delete", "project": "default"})
            self.assertIsNone(outcome.kind)


if __name__ == "__main__":
    unittest.main()
