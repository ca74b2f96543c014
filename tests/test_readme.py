"""The README's generated parts are up to date, and what it says can be run."""

from __future__ import annotations

import os
import re
import unittest

from support import ROOT, pro

README = ROOT / "README.md"
TABLES = {**pro.README_TABLES, "install": pro.install_page}


class Readme(unittest.TestCase):
    def test_generated_parts_are_those_of_the_declarations(self) -> None:
        text = README.read_text(encoding="utf-8")
        fresh = pro.with_tables(text, TABLES)
        if os.environ.get("PERPLEXITY_TEST_REWRITE"):
            README.write_text(fresh, encoding="utf-8")
            return
        self.assertEqual(text, fresh, "PERPLEXITY_TEST_REWRITE=1 brings the README up to date")

    def test_every_table_has_its_place(self) -> None:
        text = README.read_text(encoding="utf-8")
        for name in TABLES:
            self.assertIn(f"<!-- begin {name} -->", text)

    def test_the_registry_marker_is_the_registry_name(self) -> None:
        marker = re.search(r"<!-- mcp-name: (\S+) -->", README.read_text(encoding="utf-8"))
        assert marker
        self.assertEqual(marker[1], pro.server_json()["name"])

    def test_every_variable_read_is_in_the_table(self) -> None:
        source = (ROOT / "perplexity_pro_mcp.py").read_text(encoding="utf-8")
        named = set(re.findall(r'"(PERPLEXITY_[A-Z_]+)"', source))
        named |= {f"PERPLEXITY_TIER_{tier.upper()}" for tier in pro.TIERS}
        table = {variable.name for variable in pro.VARIABLES}
        self.assertEqual(sorted(named - table), [])


if __name__ == "__main__":
    unittest.main()
