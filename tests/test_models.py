"""perplexity_models: the live list, what this server is set to, and pages of it."""

from __future__ import annotations

import json
import re
import unittest

from fake_perplexity import Answer
from support import desk

ROUTE = "GET /v1/models"


class Models(unittest.TestCase):
    def test_prices_providers_and_the_model_of_the_standard_mode_are_shown(self) -> None:
        with desk() as owner:
            found = owner.ok("models", provider="Anthropic")
        self.assertTrue(found["models"])
        self.assertEqual({model["provider"] for model in found["models"]}, {"anthropic"})
        self.assertIn("xai", found["providers"])
        self.assertEqual(set(found["models"][0]), {"id", "provider", "pricing"})
        self.assertEqual(found["models"][0]["pricing"]["unit"], "usd_per_1m_tokens")
        used = {"name": "model", "id": "perplexity/sonar", "known": True}
        self.assertEqual(found["routing"], {"mode": "standard", "models": [used]})
        self.assertEqual(found["presets"]["source"], "documentation")
        self.assertEqual((found["stale"], found["models_total"]), (False, len(found["models"])))

    def test_a_model_that_is_not_listed_is_said_to_be_so(self) -> None:
        with desk(PERPLEXITY_MODEL="nobody/knows-it") as owner:
            outcome = owner.run("models")
        self.assertFalse(outcome.structured["routing"]["models"][0]["known"])
        self.assertIn("model: nobody/knows-it (not in the live list)", outcome.text)

    def test_an_unknown_provider_is_answered_with_those_there_are(self) -> None:
        with desk() as owner:
            found = owner.ok("models", provider="anthropics")
        self.assertEqual(found["models"], [])
        self.assertIn("No models from 'anthropics'; providers: anthropic", found["warnings"][0])

    def test_the_rest_of_a_cut_list_keeps_every_argument(self) -> None:
        entries = [
            {"id": f"xai/{'m' * 150}{n}", "owned_by": "xai" if n % 2 else "openai"}
            for n in range(200)
        ]
        with desk(PERPLEXITY_MAX_RESULT_CHARS="6000") as owner:
            owner.fake.always(ROUTE, Answer(200, {"object": "list", "data": entries}))
            arguments, seen = {"provider": "xai"}, list[str]()
            for _ in range(20):
                page = owner.ok("models", **arguments)
                seen += [model["id"] for model in page["models"]]
                rest = re.search(r"perplexity_models (\{.*\})", " ".join(page["warnings"]))
                if rest is None:
                    break
                arguments = json.loads(rest[1])
                self.assertEqual(arguments["provider"], "xai")
        self.assertEqual(seen, [entry["id"] for entry in entries if entry["owned_by"] == "xai"])

    def test_an_older_list_is_shown_where_the_api_fails_and_says_so(self) -> None:
        with desk(PERPLEXITY_MAX_ATTEMPTS="1") as owner:
            fresh = owner.ok("models")
            owner.fake.always(ROUTE, Answer(503, {"error": {"message": "down"}}))
            stale = owner.ok("models", refresh=True)
            self.assertEqual((fresh["stale"], stale["stale"]), (False, True))
            self.assertEqual(stale["models"], fresh["models"])
            owner.fake.always(ROUTE, Answer(401, {"error": {"message": "no"}}))
            self.assertIn("[authentication]", owner.refused("models", refresh=True))


if __name__ == "__main__":
    unittest.main()
