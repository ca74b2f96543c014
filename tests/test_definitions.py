"""What a model reads: the size of the list, and calls that its words made likely."""

from __future__ import annotations

import json
import re
import unittest
from typing import Any

from fake_perplexity import Answer
from support import desk, pro

Json = Any
ASK = "POST /v1/agent"


def tools_list(version: str) -> list[dict[str, Json]]:
    """The tools as a server lists them to a client of a version."""
    return [pro._listed(tool, version, pro.Settings()) for tool in pro.TOOLS.values()]


class Lists(unittest.TestCase):
    def test_the_default_model_stands_where_a_model_may_be_named(self) -> None:
        tiers = {f"PERPLEXITY_TIER_{t.upper()}": f"a/{t}" for t in ("light", "standard", "complex")}
        for routing, words in (
            ({}, "Default model: perplexity/sonar (standard routing)."),
            ({"PERPLEXITY_ROUTING": "custom", **tiers}, "Routing mode custom: light = a/light"),
        ):
            settings = pro.read_settings(routing)
            tool = pro.TOOLS["perplexity_ask"]
            text = pro._listed(tool, pro.LEGACY_VERSIONS[0], settings)["description"]
            self.assertIn(words, text)
            self.assertRegex(text, r" Cost: [^.]+(\.[0-9][^.]*)*\.\Z")

    def test_main_results_are_listed_and_their_form_is_told_beforehand(self) -> None:
        for word, key, form in (
            ("ask", "answer", "[1] markers, model and cost"),
            ("search", "results", "title, URL, snippet, dates"),
            ("decide", "answers", "the probability of yes"),
        ):
            declared = pro.TOOLS[f"perplexity_{word}"]
            self.assertIn(key, pro.output_schema(declared)["properties"])
            self.assertIn(form, declared.description)

    def test_an_argument_is_listed_where_the_settings_give_it_a_meaning(self) -> None:
        tiers = {f"PERPLEXITY_TIER_{t.upper()}": f"a/{t}" for t in ("light", "standard", "complex")}
        for variables, listed in (
            ({}, set[str]()),
            ({"PERPLEXITY_ROUTING": "custom", **tiers}, {"tier"}),
            ({"PERPLEXITY_CONFIRM_USD": "0"}, {"confirm"}),
        ):
            settings = pro.read_settings(variables)
            names = pro.input_schema(pro.TOOLS["perplexity_ask"], settings)["properties"]
            self.assertEqual(listed, names.keys() & {"tier", "confirm"})
        names = pro.input_schema(pro.TOOLS["perplexity_chat"], pro.Settings())["properties"]
        self.assertIn("confirm", names)  # for what deletes

    def test_no_text_looks_like_an_order_to_carry_data_away(self) -> None:
        # A linter for hidden instructions takes these words for one.
        order = re.compile(r"(?i)\b(send|forward|leak|upload|post)\b[^.]{0,30}?(\bto\b |@)")
        for entry in tools_list(pro.LEGACY_VERSIONS[0]):
            texts = [entry["description"]]
            texts += [p["description"] for p in entry["inputSchema"]["properties"].values()]
            for text in texts:
                self.assertNotRegex(text, order)

    def test_each_tool_says_what_stops_it_when_and_which_others_to_take(self) -> None:
        for entry in tools_list(pro.LEGACY_VERSIONS[0]):
            text, name = entry["description"], entry["name"]
            self.assertIn(" Use it ", f" {text}")
            self.assertRegex(text.replace(name, ""), r"perplexity_\w+", name)
            if "free" not in text.rpartition("Cost: ")[2]:
                self.assertIn("refused past a cap", text, name)
            self.assertLessEqual(len(json.dumps(entry)), 3400, name)


class LikelyCalls(unittest.TestCase):
    """Calls that careful models made from the list alone: right now, or refused with the way."""

    def test_what_was_called_fresh_reads_as_no_recency_and_is_still_taken(self) -> None:
        names = pro.input_schema(pro.TOOLS["perplexity_search"])["properties"]
        self.assertIn("again", names)
        self.assertNotIn("fresh", names)
        with desk() as owner:
            for name in ("again", "fresh"):
                self.assertEqual(owner.ok("search", query="law", **{name: True})["warnings"], [])

    def test_a_date_filter_is_no_way_to_page_back(self) -> None:
        with desk() as owner:
            number = owner.ok("chat", action="send", title="t", message="m")["chat_id"]
            text = owner.refused("chat", action="read", chat_id=number, before="2026-01-01")
        self.assertIn("before: belongs to send, not to read; before_id pages back", text)

    def test_the_cheapest_answer_is_named_by_the_order_of_depths(self) -> None:
        words = pro.input_schema(pro.TOOLS["perplexity_ask"])["properties"]
        self.assertIn("Cheapest first", words["depth"]["description"])
        self.assertEqual(words["depth"]["enum"][0], "fast")
        with desk() as owner:
            self.assertIn("standard", owner.refused("ask", query="q", tier="light"))

    def test_domains_to_skip_are_shown_as_they_are_written(self) -> None:
        words = pro.input_schema(pro.TOOLS["perplexity_search"])["properties"]["domains"]
        self.assertIn("-a.org", words["description"])
        with desk() as owner:
            text = owner.refused("search", query="q", domains=["all", "-a.org"])
            self.assertIn("cannot be mixed", text)
            owner.ok("search", query="q", domains=["-a.org", "-b.org"])

    def test_shapes_of_questions_whose_meaning_is_clear_are_taken(self) -> None:
        boolean = {"instructions": "Is it?", "criteria": {"true": True, "false": False}}
        with desk() as owner:
            shapes: tuple[tuple[Json, str], ...] = (
                ("Is it about food?", "noul"),
                ({"type": "noul", **boolean}, "noul"),
                ({"type": "choice", "criteria": ["food", "cars"]}, "choice"),
                ({"type": "score", "criteria": [1, 2, 3]}, "score"),
                ({"type": "score", "criteria": {"1": "low", "2": "high"}}, "score"),
            )
            for question, kind in shapes:
                result = owner.ok("decide", state="Bread.", questions={"q": question})
                self.assertEqual(result["answers"]["q"]["type"], kind)
            text = owner.refused("decide", state="x", questions={"q": {"type": "score"}})
        self.assertIn("criteria must be a list of 1 to 10 levels, lowest first", text)

    def test_several_phrases_are_a_list_or_one_question(self) -> None:
        with desk() as owner:
            for query, sent in (
                ('["a", "b", "c"]', ["a", "b", "c"]),
                (["a", "b"], ["a", "b"]),
                ("a, b, c", "a, b, c"),
            ):
                owner.ok("search", query=query)
                self.assertEqual(owner.fake.calls("POST", "/search")[-1].body["query"], sent)
        words = pro.input_schema(pro.TOOLS["perplexity_search"])["properties"]["query"]
        self.assertIn("JSON array", words["description"])

    def test_a_record_is_judged_as_an_object_or_as_its_text(self) -> None:
        questions = {"q": {"type": "noul", "instructions": "Is it?"}}
        with desk() as owner:
            for state in ({"a": 1}, '{"a": 1}'):
                owner.ok("decide", state=state, questions=questions)
                self.assertEqual(
                    owner.fake.calls("POST", "/v1/decisions")[-1].body["state"], {"a": 1}
                )

    def test_a_repeated_title_continues_the_chat(self) -> None:
        with desk() as owner:
            number = owner.ok("chat", action="send", title="t", message="m")["chat_id"]
            send = {"action": "send", "chat_id": number, "message": "two"}
            self.assertEqual(owner.ok("chat", **send, title=" t ")["continuation"], "chained")

    def test_notes_without_a_key_are_kept_under_one_of_their_own(self) -> None:
        items = [{"text": "The tea is in the kitchen."}, {"text": "The car is red."}]
        with desk() as owner:
            first = owner.ok("embed", action="index", source="text", items=items)
            second = owner.ok("embed", action="index", source="text", items=items)
        self.assertEqual((first["embedded_items"], second["embedded_items"]), (2, 0))

    def test_lifting_a_cap_by_nothing_says_that_nothing_changed(self) -> None:
        with desk() as owner:
            owner.ok("search", query="q")
            owner.ok("projects", action="budget", project="default", daily_usd="1.50")
            outcome = owner.run("projects", action="budget", project="default", daily_usd=None)
        self.assertEqual(outcome.structured["projects"][0]["daily_usd"], "1.5")
        self.assertRegex(" ".join(outcome.structured["warnings"]), "Nothing changed.*none")

    def test_pictures_are_said_to_need_a_setting(self) -> None:
        words = pro.input_schema(pro.TOOLS["perplexity_decide"])["properties"]["images"]
        self.assertIn("PERPLEXITY_FILES_DIR", words["description"])

    def test_a_long_wait_is_brought_within_the_limit_and_told(self) -> None:
        with desk(PERPLEXITY_WAIT_SECONDS="5") as owner:
            owner.fake.script(ASK, Answer(400, {"error": {"message": "no"}}))
            owner.run("research", query="q", wait_seconds=300)
            result = owner.run("jobs", action="list", wait_seconds=300)
        self.assertIn("5 was used", " ".join(result.structured["warnings"]))

    def test_help_takes_the_action_from_the_name(self) -> None:
        with desk() as owner:
            self.assertEqual(owner.ok("help", name="perplexity_search")["action"], "tool")


if __name__ == "__main__":
    unittest.main()
