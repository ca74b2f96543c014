"""The documents that are generated are up to date, and the README's marker is right."""

from __future__ import annotations

import os
import re
import shlex
import unittest

from support import ROOT, fed, pro, script

docs, publish = script("docs"), script("publish")
README = (ROOT / "README.md").read_text("utf-8")


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

    def test_the_readme_is_short_and_a_client_works_by_line_50(self) -> None:
        lines = README.splitlines()
        self.assertLessEqual(len(lines), 180)
        begin = next(n for n, line in enumerate(lines, 1) if '"mcpServers"' in line)
        self.assertLess(begin + 8, 50)

    def test_links_into_the_repository_lead_somewhere(self) -> None:
        for name, anchor in re.findall(r"/blob/main/([\w./]+)(?:#([\w-]+))?", README):
            page = (ROOT / name).read_text("utf-8")
            heads = {h.lower().replace(" ", "-") for h in re.findall(r"(?m)^#+ (.+)$", page)}
            self.assertTrue(not anchor or anchor in heads, (name, anchor))

    def test_command_lines_in_the_readme_can_be_read(self) -> None:
        blocks = "\n".join(re.findall(r"```sh\n(.*?)```", README, re.S))
        lines = re.findall(r"perplexity-pro ([a-z]+)([^|<>\n]*?)(?= *(?:[|<>&\n]|  #))", blocks)
        self.assertGreater(len(lines), 9)
        for word, rest in lines:
            self.assertIn(word, pro.COMMANDS)
            if pro.PREFIX + word in pro.TOOLS and "@" not in rest and "*" not in rest:
                words = shlex.split(rest)
                with self.subTest(line=rest), fed(b"piped") as stdin:
                    pro.read_words(pro.TOOLS[pro.PREFIX + word], words, pro.Stdin(stdin))

    def test_variables_and_flags_in_the_readme_are_there(self) -> None:
        known = " ".join(variable.name for variable in pro.VARIABLES)
        for name in set(re.findall(r"PERPLEXITY_[A-Z_]+[A-Z]", README)):
            gone = name in {"PERPLEXITY_HOST", "PERPLEXITY_PORT"}
            self.assertEqual(name in known, not gone, name)

    def test_every_variable_read_is_in_the_table(self) -> None:
        source = (ROOT / "perplexity_pro_mcp.py").read_text(encoding="utf-8")
        named = set(re.findall(r'"(PERPLEXITY_[A-Z_]+)"', source))
        named |= {f"PERPLEXITY_TIER_{tier.upper()}" for tier in pro.TIERS}
        table = {variable.name for variable in pro.VARIABLES}
        self.assertEqual(sorted(named - table), [])


if __name__ == "__main__":
    unittest.main()
