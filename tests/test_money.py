"""Chapter 7: exact nano-dollars out of JSON numbers, and unknown costs that never become zero."""

from __future__ import annotations

import json
import random
import unittest
from decimal import Decimal
from typing import Any

from support import pro

LARGEST = 2**63 - 1
NO_NUMBERS: list[Any] = [None, True, False, "0.1", "", [], [1], {}, {"a": 1}]
FETCHED = {
    "input_tokens": 2503,
    "output_tokens": 76,
    "total_tokens": 2579,
    "input_tokens_details": {
        "cache_creation_input_tokens": 1040,
        "cache_read_input_tokens": 1460,
        "cached_tokens": 1461,
    },
    "output_tokens_details": {"reasoning_tokens": 7},
    "tool_calls_details": {
        "fetch_url": {"invocation": 1, "cost_usd": 0.00268, "token_usage": [{"model": "x"}]},
        "search_web": {"invocation": 3},
    },
    "cost": {
        "currency": "USD",
        "input_cost": 0,
        "output_cost": 0.00004,
        "cache_creation_cost": 0.00013,
        "cache_read_cost": 0.00001,
        "tool_calls_cost": 0.00268,
        "total_cost": 0.00286,
    },
}


def luck_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same numbers in every run, nothing secret


class Amounts(unittest.TestCase):
    def test_json_numbers_are_read_through_their_decimal_text(self) -> None:
        for text, nano in {
            "0": 0,
            "-0.0": 0,
            "1": 1_000_000_000,
            "0.00122": 1_220_000,
            "4.56e-7": 456,
            "0.000000456": 456,
            "1e-9": 1,
            "1e-10": 0,
            "0.1": 100_000_000,
            "0.30000000000000004": 300_000_000,
            "1.001": 1_001_000_000,
            "1E+3": 1_000_000_000_000,
            "1e6": 10**15,
        }.items():
            self.assertEqual(pro.nano_of(json.loads(text)), nano, text)

    def test_what_is_not_an_amount_is_unknown(self) -> None:
        for text in (
            *("-1", "-0.00001", "-1e-300", "1e999", "-1e999", "NaN"),
            *("1000001", "2147483648", "9223372036", "1e18", "1" + "0" * 30, "1" + "0" * 400),
        ):
            self.assertIsNone(pro.nano_of(json.loads(text)), text)
        for value in NO_NUMBERS:
            self.assertIsNone(pro.nano_of(value), repr(value))

    def test_every_amount_of_up_to_fifteen_digits_comes_through_exactly(self) -> None:
        luck = luck_of(7)
        for _ in range(3000):
            nano = luck.randrange(10 ** luck.randint(1, 15))
            amount = Decimal(nano) / 10**9
            for text in (format(amount, "f"), format(amount, "e")):
                self.assertEqual(pro.nano_of(json.loads(text)), nano, text)

    def test_amounts_are_shown_exactly_and_without_noughts_at_the_end(self) -> None:
        for nano, text in {
            None: None,
            0: "0",
            1: "0.000000001",
            456: "0.000000456",
            1_430_000: "0.00143",
            1_000_000_000: "1",
            10_000_000_000: "10",
            100_500_000_000: "100.5",
            LARGEST: "9223372036.854775807",
        }.items():
            self.assertEqual(pro.usd_text(nano), text)
        luck = luck_of(8)
        for _ in range(1000):
            nano = luck.randrange(10**15)
            self.assertEqual(pro.read_usd(str(pro.usd_text(nano))), nano)


class Reading(unittest.TestCase):
    def test_counts_are_whole_numbers_that_can_be_stored(self) -> None:
        for value in (0, 1, LARGEST):
            self.assertEqual(pro.count_of(value), value)
        for value in (*NO_NUMBERS, -1, 1.0, float("nan"), LARGEST + 1, 10**30):
            self.assertIsNone(pro.count_of(value), repr(value))

    def test_members_of_the_wrong_type_count_as_absent(self) -> None:
        for body in (*NO_NUMBERS, 7, "text", {"a": None}, {"b": {}}):
            self.assertEqual(pro.object_in(body, "a"), {})
            self.assertEqual(pro.list_in(body, "a"), [])
            self.assertIsNone(pro.text_in(body, "a"))
        body = {"o": {"x": 1}, "l": [1], "t": " x ", "blank": " \n"}
        self.assertEqual(pro.object_in(body, "o"), {"x": 1})
        self.assertEqual(pro.list_in(body, "l"), [1])
        self.assertEqual(pro.text_in(body, "t"), " x ")
        self.assertIsNone(pro.text_in(body, "blank"))
        for name in body:
            self.assertEqual(pro.object_in(body, name), body[name] if name == "o" else {})
            self.assertEqual(pro.list_in(body, name), body[name] if name == "l" else [])


class AgentUsage(unittest.TestCase):
    def test_every_figure_is_taken_as_reported(self) -> None:
        usage: Any = pro.agent_usage({"usage": FETCHED})
        self.assertEqual(
            usage._replace(tool_calls_json=None, usage_json=None),
            pro.Usage(
                input_tokens=2503,
                output_tokens=76,
                total_tokens=2579,
                cached_tokens=1461,
                cache_creation_tokens=1040,
                cache_read_tokens=1460,
                reasoning_tokens=7,
                cost_nano=2_860_000,
                cost_source="reported",
                input_cost_nano=0,
                output_cost_nano=40_000,
                cache_read_cost_nano=10_000,
                cache_creation_cost_nano=130_000,
                tool_calls_cost_nano=2_680_000,
            ),
        )
        self.assertEqual(
            json.loads(usage.tool_calls_json),
            {
                "fetch_url": {"invocations": 1, "cost_nano": 2_680_000},
                "search_web": {"invocations": 3, "cost_nano": None},
            },
        )
        self.assertEqual(json.loads(usage.usage_json), FETCHED)

    def test_no_usage_is_no_knowledge(self) -> None:
        bodies: list[Any] = [{}, {"usage": None}, {"usage": []}, {"usage": "x"}, None, []]
        for body in bodies:
            self.assertEqual(pro.agent_usage(body), pro.Usage())

    def test_a_cost_that_cannot_be_read_is_unknown_and_never_nothing(self) -> None:
        values: list[Any] = ["0.1", -1, None, True, 1e999]
        currencies: list[Any] = ["EUR", "usd", None, 1, ""]
        costs: list[Any] = [None, "x", [], {}, {"currency": "USD"}, {"total_cost": 0.5}]
        costs += [{"total_cost": value, "currency": "USD"} for value in values]
        costs += [{"total_cost": 0.1, "currency": currency} for currency in currencies]
        for cost in costs:
            usage = pro.agent_usage({"usage": {"total_tokens": 5, "cost": cost}})
            self.assertEqual((usage.cost_nano, usage.cost_source), (None, "none"), cost)
            self.assertEqual(usage.total_tokens, 5)
        usage = pro.agent_usage({"usage": {"cost": {"total_cost": 0, "currency": "USD"}}})
        self.assertEqual((usage.cost_nano, usage.cost_source), (0, "reported"))

    def test_figures_that_no_database_holds_are_unknown(self) -> None:
        usage = pro.agent_usage(
            {"usage": {"total_tokens": 10**30, "cost": {"total_cost": 10**30, "input_cost": 1e999}}}
        )
        self.assertEqual(usage._replace(usage_json=None), pro.Usage())

    def test_a_record_that_is_far_too_long_is_not_kept(self) -> None:
        tools = {f"tool {number}": {"invocation": 1} for number in range(2000)}
        usage = pro.agent_usage({"usage": {"tool_calls_details": tools, "total_tokens": 1}})
        self.assertEqual(usage, pro.Usage(total_tokens=1))


def decided(body: Any, model: str) -> pro.Usage:
    return pro.token_usage(body, pro.DECIDER_PRICES.get(model))


def embedded(body: Any, model: str) -> pro.Usage:
    return pro.token_usage(body, pro.EMBED_PRICES.get(model))


class OtherUsage(unittest.TestCase):
    def test_a_search_is_one_unit_at_the_documented_price(self) -> None:
        for kind, nano in (("fast", 1_000_000), ("web", 5_000_000)):
            usage = pro.search_usage(kind)
            self.assertEqual((usage.cost_nano, usage.cost_source), (nano, "computed"))
            self.assertEqual(usage.price_table, pro.PRICES_AS_OF)
        self.assertEqual(pro.search_usage("people"), pro.Usage())

    def test_what_never_arrived_is_known_to_cost_nothing(self) -> None:
        usage = pro.unbilled()
        self.assertEqual((usage.cost_nano, usage.cost_source), (0, "computed"))

    def test_a_decision_is_priced_by_its_input_tokens(self) -> None:
        body = {"usage": {"input_tokens": 114, "output_tokens": 3}}
        for model, nano in (("pplx-decider-v1.1-27b", 2280), ("pplx-decider-flash-v1.2", 1140)):
            usage = decided(body, model)
            self.assertEqual((usage.cost_nano, usage.cost_source), (nano, "computed"))
            self.assertEqual((usage.input_tokens, usage.output_tokens), (114, 3))
            self.assertEqual(usage.total_tokens, 117)
            self.assertEqual(usage.price_table, pro.PRICES_AS_OF)

    def test_a_decision_that_cannot_be_priced_has_an_unknown_cost(self) -> None:
        for tokens, model in (
            (114, "pplx-decider-v9"),
            (None, "pplx-decider-v1.1-27b"),
            ("114", "pplx-decider-v1.1-27b"),
            (LARGEST, "pplx-decider-v1.1-27b"),
        ):
            usage = decided({"usage": {"input_tokens": tokens}}, model)
            self.assertEqual((usage.cost_nano, usage.cost_source), (None, "none"))
            self.assertIsNone(usage.price_table)
        usage = decided({"usage": {"input_tokens": LARGEST, "output_tokens": 1}}, "")
        self.assertIsNone(usage.total_tokens)

    def test_an_embedding_costs_what_is_reported_else_what_is_documented(self) -> None:
        cost = {"input_cost": 4.56e-7, "total_cost": 4.56e-7, "currency": "USD"}
        body: Any = {"usage": {"prompt_tokens": 114, "total_tokens": 114, "cost": cost}}
        usage = embedded(body, "pplx-embed-v1-4b")
        self.assertEqual((usage.cost_nano, usage.cost_source), (456, "reported"))
        self.assertEqual((usage.input_cost_nano, usage.price_table), (456, None))
        self.assertEqual((usage.input_tokens, usage.total_tokens), (114, 114))
        for broken in (None, {}, {**cost, "currency": "EUR"}, {**cost, "total_cost": "1"}):
            body["usage"]["cost"] = broken
            for model, nano in (("pplx-embed-v1-0.6b", 456), ("pplx-embed-v1-4b", 3420)):
                usage = embedded(body, model)
                self.assertEqual((usage.cost_nano, usage.cost_source), (nano, "computed"))
                self.assertEqual(usage.price_table, pro.PRICES_AS_OF)

    def test_an_embedding_that_cannot_be_priced_has_an_unknown_cost(self) -> None:
        for body, model in (
            ({"usage": {"prompt_tokens": 114}}, "pplx-embed-v9"),
            ({"usage": {}}, "pplx-embed-v1-4b"),
            ({}, "pplx-embed-v1-4b"),
            (None, "pplx-embed-v1-4b"),
        ):
            usage = embedded(body, model)
            self.assertEqual((usage.cost_nano, usage.cost_source), (None, "none"))
        usage = embedded({"usage": {"prompt_tokens": LARGEST}}, "pplx-embed-v1-4b")
        self.assertEqual((usage.cost_nano, usage.cost_source), (None, "none"))


class Sums(unittest.TestCase):
    def test_known_costs_add_up_exactly_in_any_order(self) -> None:
        luck = luck_of(9)
        costs = [luck.randrange(10**12) for _ in range(500)]
        usages = [pro.Usage(cost_nano=cost, cost_source="reported") for cost in costs]
        luck.shuffle(usages)
        total = pro.usage_sum(usages)
        self.assertEqual((total.cost_nano, total.cost_source), (sum(costs), "reported"))

    def test_the_source_of_a_sum_is_that_of_its_parts_or_mixed(self) -> None:
        reported = pro.Usage(cost_nano=2, cost_source="reported")
        computed = pro.Usage(cost_nano=3, cost_source="computed")
        unknown = pro.Usage()
        for usages, wanted in (
            ([], (None, "none")),
            ([unknown, unknown], (None, "none")),
            ([reported, reported], (4, "reported")),
            ([computed, unknown], (3, "computed")),
            ([computed, reported, computed], (8, "mixed")),
            ([pro.unbilled()], (0, "computed")),
        ):
            total = pro.usage_sum(usages)
            self.assertEqual((total.cost_nano, total.cost_source), wanted)


class Words(unittest.TestCase):
    def test_the_usage_line_tells_unknown_from_nothing(self) -> None:
        usage = pro.agent_usage({"usage": FETCHED})
        for shown, project, text in (
            (usage, "demo", "Usage: 2579 tokens, cost 0.00286 USD (reported), project demo."),
            (pro.Usage(), None, "Usage: unknown tokens, cost unknown."),
            (pro.unbilled(), None, "Usage: unknown tokens, cost 0 USD (computed)."),
        ):
            self.assertEqual(pro.spend_text(pro.spend_of(shown), project), text)


if __name__ == "__main__":
    unittest.main()
