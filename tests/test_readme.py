"""The documents that are generated are up to date, and the README's marker is right."""

from __future__ import annotations

import os
import re
import unittest

from support import ROOT, pro, script

docs, publish = script("docs"), script("publish")


class Documents(unittest.TestCase):
    def test_generated_parts_are_those_of_the_declarations(self) -> None:
        for path, text in docs.fresh().items():
            if os.environ.get("PERPLEXITY_TEST_REWRITE"):
                path.write_text(text, encoding="utf-8", newline="\n")
            with self.subTest(document=path.name):
                held = path.read_text("utf-8")
                self.assertEqual(held, text, "python3 .ci/docs.py brings it up to date")

    def test_each_block_stands_once_below_all_its_clients_and_their_files(self) -> None:
        blocks = re.findall(
            r"^## ([^\n]+)\n\n(.+?)\n\n```\n(.*?)\n```", docs.clients(), re.M | re.S
        )
        self.assertEqual(len({block for *_, block in blocks}), len(blocks))
        for client in pro.CLIENTS.values():
            block = pro.client_snippet(client, pro.Launch("uvx", (pro.NAME,)))
            found = [(title, where) for title, where, text in blocks if text == block]
            self.assertEqual(len(found), 1, client.word)
            self.assertIn(client.title, found[0][0].split(", "))
            self.assertIn(f"- {client.title}: ", found[0][1])
        every = "\n".join(where for _, where, _ in blocks)
        for path in ("~/.cursor/mcp.json", "%APPDATA%/Zed/settings.json", ".vscode/mcp.json"):
            expected = path != ".vscode/mcp.json"  # the second choice of its client
            self.assertEqual(f"`{path}`" in every, expected, path)

    def test_the_registry_marker_is_the_registry_name(self) -> None:
        markers = re.findall(r"mcp-name: (\S+)", (ROOT / "README.md").read_text("utf-8"))
        self.assertEqual(markers, [publish.server_json()["name"]])

    def test_every_variable_read_is_in_the_table(self) -> None:
        source = (ROOT / "perplexity_pro_mcp.py").read_text(encoding="utf-8")
        named = set(re.findall(r'"(PERPLEXITY_[A-Z_]+)"', source))
        named |= {f"PERPLEXITY_TIER_{tier.upper()}" for tier in pro.TIERS}
        table = {variable.name for variable in pro.VARIABLES}
        self.assertEqual(sorted(named - table), [])


if __name__ == "__main__":
    unittest.main()
