"""Clients: snippets, edits of their files, links."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import random
import re
import stat
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from support import pro

LAUNCH = pro.Launch("/opt/py/bin/python3", ("/home/u/perplexity_pro_mcp.py",))
OTHER = pro.Launch("uvx", ("perplexity-pro-mcp",))
OLD = (
    '{"command": "uvx", "args": ["mcp-perplexity-pro"], "env": {"PERPLEXITY_API_KEY": "pplx-real"}}'
)
WITH_TOMLLIB = importlib.util.find_spec("tomllib") is not None
tomllib: Any = importlib.import_module("tomllib") if WITH_TOMLLIB else None
WITH_TABLES = unittest.skipUnless(WITH_TOMLLIB, "tables are edited from Python 3.11 on")
POSIX = os.name != "nt"


def client(word: str) -> pro.Client:
    return pro.CLIENTS[word]


def planned(word: str, text: str | None, launch: pro.Launch = LAUNCH) -> pro.ClientPlan:
    """What would be written where the client's file holds this text; no file: None."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        place = pro.Place(home, {}, "linux", home / "project")
        path = pro.client_file(client(word), place)
        if path:
            path.parent.mkdir(parents=True)
            if text is not None:
                path.write_bytes(text.encode())
        return pro.plan_write(client(word), place, launch)


def merged(word: str, text: str | None, launch: pro.Launch = LAUNCH) -> str:
    return planned(word, text, launch).new


def started(row: pro.Client, entry: Any) -> list[str]:
    """The words that an entry starts."""
    command = entry[row.command]
    return list(command) if row.listed else [command, *entry["args"]]


class Case(unittest.TestCase):
    def refused(self, word: str, text: str, *words: str, launch: pro.Launch = LAUNCH) -> str:
        """The refusal of a file, which names the client, says why and shows the snippet."""
        with self.assertRaises(pro.ToolError) as caught:
            merged(word, text, launch)
        message = str(caught.exception.message)
        self.assertEqual(caught.exception.kind, "invalid_request")
        for part in (client(word).title, *words, pro.client_snippet(client(word), launch)):
            self.assertIn(part, message)
        return message


class TheTable(Case):
    # The words, titles and files below /h (home) and /w (project) that people are told on Linux.
    LINUX = """
amazon-q; Amazon Q
amp; Amp; /h/.config/amp/settings.json
antigravity; Antigravity; /h/.gemini/antigravity/mcp_config.json
claude-code; Claude Code; /w/.mcp.json; /h/.claude.json
claude-desktop; Claude Desktop; /h/.config/Claude/claude_desktop_config.json
cline; Cline; /h/.cline/data/settings/cline_mcp_settings.json
codex; Codex; /h/.codex/config.toml; /w/.codex/config.toml
copilot-cli; Copilot CLI; /h/.copilot/mcp-config.json
cursor; Cursor; /h/.cursor/mcp.json; /w/.cursor/mcp.json
factory; Factory
gemini; Gemini CLI; /h/.gemini/settings.json; /w/.gemini/settings.json
goose; Goose; /h/.config/goose/config.yaml
grok; Grok CLI; /h/.grok/config.toml
jetbrains; JetBrains AI Assistant
junie; Junie; /h/.junie/mcp/mcp.json; /w/.junie/mcp/mcp.json
kilo; Kilo Code; /w/.kilocode/mcp.json
kiro; Kiro; /h/.kiro/settings/mcp.json; /w/.kiro/settings/mcp.json
lmstudio; LM Studio; /h/.lmstudio/mcp.json
opencode; OpenCode; /h/.config/opencode/opencode.json; /w/opencode.json
roo; Roo Code; /w/.roo/mcp.json
visual-studio; Visual Studio; /w/.mcp.json
vscode; VS Code; /h/.config/Code/User/mcp.json; /w/.vscode/mcp.json
warp; Warp
windsurf; Windsurf; /h/.codeium/windsurf/mcp_config.json
zed; Zed; /h/.config/zed/settings.json
"""

    def test_clients_and_their_files_are_those_of_the_install_page(self) -> None:
        place = pro.Place(Path("/h"), {}, "linux", Path("/w"))
        lines = [
            "; ".join((word, row.title, *(spot.path.as_posix() for spot in pro._spots(row, place))))
            for word, row in pro.CLIENTS.items()
        ]
        self.assertEqual(lines, self.LINUX.split("\n")[1:-1])
        self.assertEqual([row.word for row in pro.CLIENTS.values()], list(pro.CLIENTS))

    def test_each_client_has_a_file_a_command_or_a_place_to_paste(self) -> None:
        for row in pro.CLIENTS.values():
            self.assertTrue(row.files or row.adding or row.menu, row.word)
            self.assertIn(row.format, {"json", "toml", "yaml", "command"})

    def test_files_lie_where_each_platform_has_them(self) -> None:
        home, data, cwd = Path("/h"), Path("/h/Roaming"), Path("/w")
        wanted = {
            ("claude-desktop", "darwin"): "/h/Library/Application Support/Claude/"
            "claude_desktop_config.json",
            ("claude-desktop", "win32"): "/h/Roaming/Claude/claude_desktop_config.json",
            ("vscode", "darwin"): "/h/Library/Application Support/Code/User/mcp.json",
            ("vscode", "win32"): "/h/Roaming/Code/User/mcp.json",
            ("goose", "darwin"): "/h/.config/goose/config.yaml",
            ("goose", "win32"): "/h/Roaming/Block/goose/config/config.yaml",
            ("zed", "darwin"): "/h/.config/zed/settings.json",
            ("zed", "win32"): "/h/Roaming/Zed/settings.json",
            ("cursor", "win32"): "/h/.cursor/mcp.json",
            ("roo", "win32"): "/w/.roo/mcp.json",
        }
        for (word, platform), path in wanted.items():
            place = pro.Place(home, {"APPDATA": data}, platform, cwd)
            self.assertEqual(pro.client_file(client(word), place), Path(path), word)
        place = pro.Place(home, {}, "win32", cwd)
        roaming = Path("/h/AppData/Roaming/Zed/settings.json")
        self.assertEqual(pro.client_file(client("zed"), place), roaming)
        self.assertIsNone(pro.client_file(client("warp"), place))


class Snippets(Case):
    def test_a_json_snippet_parses_and_names_the_launch_and_a_placeholder(self) -> None:
        for row in pro.CLIENTS.values():
            if row.format != "json":
                continue
            entry = json.loads(pro.client_snippet(row, LAUNCH))[row.container]["perplexity"]
            command = entry["command"]
            started = command if row.listed else [command, *entry["args"]]
            self.assertEqual(started, ["/opt/py/bin/python3", "/home/u/perplexity_pro_mcp.py"])
            key = entry[row.env]["PERPLEXITY_API_KEY"]
            self.assertIsNone(pro.given({"K": key}, "K"), f"{row.word}: {key} is no placeholder")

    def test_the_forms_of_the_install_page_come_out_as_written_there(self) -> None:
        entries = {
            "cline": '{"type":"stdio","command":"uvx","args":["perplexity-pro-mcp"],"env":'
            '{"PERPLEXITY_API_KEY":"YOUR_KEY"},"timeout":600,"disabled":false,"autoApprove":[]}',
            "claude-code": '{"type":"stdio","command":"uvx","args":["perplexity-pro-mcp"],"env":'
            '{"PERPLEXITY_API_KEY":"${PERPLEXITY_API_KEY}"},"timeout":600000}',
            "copilot-cli": '{"type":"local","command":"uvx","args":["perplexity-pro-mcp"],"env":'
            '{"PERPLEXITY_API_KEY":"${PERPLEXITY_API_KEY}"},"tools":["*"]}',
            "cursor": '{"command":"uvx","args":["perplexity-pro-mcp"],"env":'
            '{"PERPLEXITY_API_KEY":"${env:PERPLEXITY_API_KEY}"}}',
            "gemini": '{"command":"uvx","args":["perplexity-pro-mcp"],"env":'
            '{"PERPLEXITY_API_KEY":"$PERPLEXITY_API_KEY"},"timeout":600000}',
            "opencode": '{"type":"local","command":["uvx","perplexity-pro-mcp"],"environment":'
            '{"PERPLEXITY_API_KEY":"{env:PERPLEXITY_API_KEY}"},"enabled":true}',
            "roo": '{"command":"uvx","args":["perplexity-pro-mcp"],"env":'
            '{"PERPLEXITY_API_KEY":"YOUR_KEY"},"alwaysAllow":[]}',
            "vscode": '{"type":"stdio","command":"uvx","args":["perplexity-pro-mcp"],"env":'
            '{"PERPLEXITY_API_KEY":"${input:perplexity_api_key}"}}',
        }
        for word, entry in entries.items():
            document = json.loads(pro.client_snippet(client(word), OTHER))
            found = document[client(word).container]["perplexity"]
            self.assertEqual(json.dumps(found, separators=(",", ":")), entry)
        inputs = json.loads(pro.client_snippet(client("vscode"), OTHER))["inputs"]
        self.assertEqual([(i["type"], i["password"]) for i in inputs], [("promptString", True)])
        self.assertIn("amp.mcpServers", json.loads(pro.client_snippet(client("amp"), OTHER)))
        self.assertIn("context_servers", json.loads(pro.client_snippet(client("zed"), OTHER)))

    def test_the_toml_snippet_is_a_table_that_hands_on_key_and_proxies(self) -> None:
        text = (
            "[mcp_servers.perplexity]\n"
            'command = "uvx"\n'
            'args = ["perplexity-pro-mcp"]\n'
            'env_vars = ["PERPLEXITY_API_KEY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE"]\n'
            "startup_timeout_sec = 30\n"
            "tool_timeout_sec = 600\n"
            "supports_parallel_tool_calls = true"
        )
        self.assertEqual(pro.client_snippet(client("codex"), OTHER), text)
        self.assertEqual(pro.client_snippet(client("grok"), OTHER), text)

    def test_a_windows_path_survives_in_every_format(self) -> None:
        launch = pro.Launch(r"C:\Program Files\py\python.exe", (r"C:\Users\Zoë\'a'.py",))
        for row in pro.CLIENTS.values():
            text = pro.client_snippet(row, launch)
            if row.format == "json":
                entry = json.loads(text)[row.container]["perplexity"]
                self.assertEqual(started(row, entry), [launch.command, *launch.args], row.word)
            elif row.format == "toml" and WITH_TOMLLIB:
                entry = tomllib.loads(text)[row.container]["perplexity"]
                self.assertEqual(started(row, entry), [launch.command, *launch.args], row.word)
            if row.format != "command":
                self.assertIn("Zoë", text)
        self.assertIn("Zoë", merged("cursor", '{"mcpServers": {"a": {}}}', launch))

    def test_the_yaml_snippet_is_this_text(self) -> None:
        text = (
            "extensions:\n"
            "  perplexity:\n"
            '    type: "stdio"\n'
            '    cmd: "uvx"\n'
            '    args: ["perplexity-pro-mcp"]\n'
            '    env_keys: ["PERPLEXITY_API_KEY"]\n'
            "    enabled: true\n"
            '    name: "perplexity"\n'
            '    description: "Web search"\n'
            "    timeout: 600"
        )
        self.assertEqual(pro.client_snippet(client("goose"), OTHER), text)

    def test_commands_are_those_of_the_install_page(self) -> None:
        commands = {
            "amp": "amp mcp add perplexity -- uvx perplexity-pro-mcp",
            "claude-code": "claude mcp add perplexity --env PERPLEXITY_API_KEY=YOUR_KEY "
            "--scope user -- uvx perplexity-pro-mcp",
            "codex": "codex mcp add perplexity --env PERPLEXITY_API_KEY=YOUR_KEY "
            "-- uvx perplexity-pro-mcp",
            "factory": "droid mcp add perplexity 'uvx perplexity-pro-mcp' "
            "--env PERPLEXITY_API_KEY=YOUR_KEY",
            "gemini": "gemini mcp add -s user -e PERPLEXITY_API_KEY='$PERPLEXITY_API_KEY' "
            "perplexity uvx perplexity-pro-mcp",
            "grok": "grok mcp add perplexity -- uvx perplexity-pro-mcp",
            "vscode": 'code --add-mcp \'{"name":"perplexity","command":"uvx",'
            '"args":["perplexity-pro-mcp"],"env":{"PERPLEXITY_API_KEY":"${input:perplexity_api_key}"},'
            '"inputs":[{"type":"promptString","id":"perplexity_api_key",'
            '"description":"Perplexity API key","password":true}]}\'',
            "cursor": "",
        }
        for word, command in commands.items():
            self.assertEqual(pro.shell_command(client(word), OTHER), command)
        self.assertEqual(pro.client_snippet(client("factory"), OTHER), commands["factory"])

    def test_a_command_says_less_only_where_there_are_variables_and_no_option_for_them(
        self,
    ) -> None:
        stored = OTHER._replace(stored=True)
        less = {row.word for row in pro.CLIENTS.values() if pro.says_less(row, OTHER)}
        self.assertEqual(less, {"amp", "grok"})
        self.assertFalse(pro.says_less(client("amp"), stored))
        self.assertTrue(pro.says_less(client("amp"), stored._replace(env=(("A", "b"),))))

    def test_a_path_with_spaces_is_quoted_in_commands(self) -> None:
        command = pro.shell_command(client("amp"), pro.Launch("/a b/py", ("/c d.py",)))
        self.assertEqual(command, "amp mcp add perplexity -- '/a b/py' '/c d.py'")


class JsonFiles(Case):
    def test_a_missing_or_blank_file_becomes_the_snippet(self) -> None:
        for text in (None, "", " \n"):
            self.assertEqual(
                merged("cursor", text), pro.client_snippet(client("cursor"), LAUNCH) + "\n"
            )
        self.assertEqual(json.loads(merged("cursor", "{}")), json.loads(merged("cursor", None)))

    def test_other_servers_keep_every_byte(self) -> None:
        text = (
            '{\n    "theme":  "dark",\n    "mcpServers": {\n'
            '        "git": { "command":"g" }\n    }\n}\n'
        )
        new = merged("claude-desktop", text)
        self.assertEqual(
            new,
            '{\n    "theme":  "dark",\n    "mcpServers": {\n'
            '        "perplexity": {\n'
            '            "command": "/opt/py/bin/python3",\n'
            '            "args": ["/home/u/perplexity_pro_mcp.py"],\n'
            '            "env": {\n'
            '                "PERPLEXITY_API_KEY": "YOUR_KEY"\n'
            "            }\n        },\n"
            '        "git": { "command":"g" }\n    }\n}\n',
        )

    def test_comments_and_trailing_commas_stay(self) -> None:
        text = (
            '// settings\n{\n\t"context_servers": { /* mine */\n'
            '\t\t"git": {"command": "g"}, // "}" is no end\n\t},\n\t"vim": true, // yes\n}\n'
        )
        new = merged("zed", text)
        start, end = new.index('\n\t\t"perplexity"'), new.index(" /* mine */")
        self.assertEqual(new[:start] + new[end:], text)
        self.assertEqual(merged("zed", new), new)

    def test_a_file_on_one_line_stays_on_one_line(self) -> None:
        text = '{"mcpServers":{"a":{"command":"g","env":{"T":"{,}//"}}},"x":[1,2]}'
        new = merged("cursor", text)
        self.assertNotIn("\n", new)
        self.assertTrue(new.startswith('{"mcpServers":{"perplexity": {"command": '))
        self.assertTrue(new.endswith(', "a":{"command":"g","env":{"T":"{,}//"}}},"x":[1,2]}'))

    def test_an_empty_object_opens_up(self) -> None:
        body = '    "perplexity": {\n      "command": "x",\n      "args": []\n    }\n'.replace(
            "[]\n", '[],\n      "env": {\n        "PERPLEXITY_API_KEY": "YOUR_KEY"\n      }\n'
        )
        for text, head, tail in (
            ('{\n  "mcpServers": {\n  }\n}', '{\n  "mcpServers": {\n', "  }\n}"),
            ('{\n  "mcpServers": { }\n}', '{\n  "mcpServers": {\n', "  }\n}"),
            (
                '{\n  "mcpServers": { // none\n\n  }\n}',
                '{\n  "mcpServers": {\n',
                " // none\n\n  }\n}",
            ),
        ):
            new = merged("kiro", text, pro.Launch("x", ()))
            self.assertEqual(new, (head + body + tail).replace("\n // none", " // none"), text)

    def test_arguments_that_stay_the_same_keep_their_form(self) -> None:
        args = '[ // mine\n"/home/u/perplexity_pro_mcp.py"\n]'
        text = f'{{"mcpServers": {{"perplexity": {{"command": "py", "args": {args}}}}}}}'
        new = merged("cursor", text)
        self.assertEqual(new, text.replace('"py"', '"/opt/py/bin/python3"'))

    def test_arguments_that_are_missing_or_of_a_wrong_type_become_a_list(self) -> None:
        text = '{"mcpServers": {"perplexity": {"command": "perplexity-pro-mcp", "args": "y"}}}'
        new = merged("cursor", text, pro.Launch("perplexity-pro-mcp", ("y",)))
        self.assertEqual(new, text.replace('"y"', '["y"]'))
        bare = '{"mcpServers": {"perplexity": {"command": "perplexity-pro-mcp"}}}'
        entry = json.loads(merged("cursor", bare))["mcpServers"]["perplexity"]
        self.assertEqual(started(client("cursor"), entry), [LAUNCH.command, *LAUNCH.args])
        self.assertNotIn("env", entry)  # a key or its absence is the user's decision

    def test_a_client_without_a_file_has_nothing_to_merge(self) -> None:
        self.refused("factory", "{}", "no file")

    def test_line_ends_and_byte_order_mark_are_kept(self) -> None:
        text = '\ufeff{\r\n  "mcpServers": {\r\n    "a": {}\r\n  }\r\n}\r\n'
        new = merged("cursor", text)
        self.assertTrue(new.startswith("\ufeff{\r\n"))
        self.assertEqual(new.count("\n"), new.count("\r\n"))
        self.assertEqual(new.count("\ufeff"), 1)
        self.assertEqual(merged("cursor", new), new)

    def test_a_second_run_changes_no_byte_for_any_client(self) -> None:
        for row in pro.CLIENTS.values():
            if row.files and (WITH_TOMLLIB or row.format != "toml"):
                once = merged(row.word, None)
                self.assertEqual(merged(row.word, once), once, row.word)

    def test_of_an_entry_that_is_there_only_the_start_changes(self) -> None:
        text = f'{{\n  "mcpServers": {{\n    "perplexity": {OLD[:-1]}, "x": 1 /* c */ }}\n  }}\n}}'
        new = merged("claude-desktop", text)
        wanted = text.replace('"uvx"', '"/opt/py/bin/python3"').replace(
            '["mcp-perplexity-pro"]', '["/home/u/perplexity_pro_mcp.py"]'
        )
        self.assertEqual(new, wanted)
        self.assertIn("pplx-real", new)

    def test_an_entry_with_the_same_launch_is_left_alone_whatever_else_it_says(self) -> None:
        entry = {"args": list(LAUNCH.args), "command": LAUNCH.command, "disabled": True}
        text = json.dumps({"mcpServers": {"perplexity": entry}}, indent=7)
        self.assertEqual(merged("cursor", text), text)

    def test_another_server_under_our_name_is_refused(self) -> None:
        others = (
            '{"command": "npx", "args": ["other-server", "--token=hunter2"]}',
            '{"type": "http", "url": "https://x/mcp?key=hunter2", "headers": {"A": "hunter2"}}',
            '{"command": "perplexity-pro-proxy"}',
            "{}",
        )
        for word in ("cursor", "claude-code", "vscode", "lmstudio"):
            for entry in others:
                text = f'{{"{client(word).container}": {{"perplexity": {entry}}}}}'
                said = self.refused(word, text, "another server: rename or remove that first")
                self.assertNotIn("hunter2", said)

    def test_an_own_entry_ends_up_of_one_kind(self) -> None:
        own = '"command": "uvx", "args": ["perplexity-pro-mcp"], "env": {"A": "1"}'
        for extra in ('"type": "http", "url": "http://x"', '"url": "http://x", "headers": {}',
                      '"serverUrl": "http://x"', '"type": "sse"'):  # fmt: skip
            for word in ("cursor", "vscode", "claude-code", "gemini"):
                container = client(word).container
                text = f'{{"{container}": {{"a": {{}}, "perplexity": {{{own}, {extra}}}}}}}'
                document = json.loads(merged(word, text))
                entry = document[container].pop("perplexity")
                self.assertEqual(document[container], {"a": {}})
                self.assertEqual(started(client(word), entry), [LAUNCH.command, *LAUNCH.args])
                self.assertEqual(entry["env"], {"A": "1"})
                self.assertIn(entry.get("type"), {None, "stdio"}, (word, extra))
                self.assertEqual({"url", "headers", "serverUrl"} & set(entry), set())

    def test_opencode_has_command_and_arguments_in_one_list(self) -> None:
        old = '["uvx", "mcp-perplexity-pro"]'
        text = f'{{"mcp": {{"perplexity": {{"command": {old}, "enabled": false}}}}}}'
        new = merged("opencode", text)
        words = json.dumps([LAUNCH.command, *LAUNCH.args])
        self.assertEqual(new, text.replace(old, words))

    def test_what_cannot_be_read_is_refused(self) -> None:
        cases = {
            "[]": "not an object",
            '"text"': "not an object",
            '{"mcpServers": []}': '"mcpServers" is not an object',
            '{"mcpServers": null}': '"mcpServers" is not an object',
            '{"mcpServers": "x"}': '"mcpServers" is not an object',
            '{"mcpServers": {"perplexity": "x"}}': '"perplexity" is not an object',
            '{"mcpServers": {"perplexity": {"command": "x", "args": {}}': "line 1",
            '{\n"a": 1\n"b": 2}': "line 3",
            '{"a": 1,, "b": 2}': "line 1",
            "{,}": "line 1",
            '{"a": 1} x': "line 1",
            "{'a': 1}": "line 1",
            "{a: 1}": "line 1",
            '{"a" 1}': "line 1",
            '{"a"; 1}': "line 1",
            "{1: 2}": "line 1",
            '{"a": NaN}': "cannot be parsed",
            '{"a": 1.2.3}': "line 1",
            '{"a": "\\q"}': "line 1",
            '{"a": "\n"}': "line 1",
            '{"a": 1 /* open }': "line 1",
            '{"a": {"b": [1, 2}}': "line 1",
            "// only a comment\n": "line 2",
            '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}": "nested too deeply",
            '{"a":\x00 1}': "line 1",
            '{"mcpServers": {}}\ufeff': "line 1",
        }
        for text, why in cases.items():
            with self.subTest(text=text[:60]):
                self.refused("cursor", text, why)

    def test_the_question_of_vs_code_is_asked_once(self) -> None:
        question = {"type": "promptString", "id": "other", "description": "x"}
        text = json.dumps({"inputs": [question], "servers": {"a": {}}}, indent=4)
        new = json.loads(merged("vscode", text))
        self.assertEqual(new["inputs"][1], question)
        self.assertEqual([i["id"] for i in new["inputs"]], ["perplexity_api_key", "other"])
        again = merged("vscode", json.dumps({"inputs": new["inputs"]}))
        self.assertEqual(len(json.loads(again)["inputs"]), 2)
        absent = json.loads(merged("vscode", '{"servers": {}}'))
        self.assertEqual([i["id"] for i in absent["inputs"]], ["perplexity_api_key"])
        empty = json.loads(merged("vscode", '{"inputs": []}'))
        self.assertEqual([i["id"] for i in empty["inputs"]], ["perplexity_api_key"])
        self.refused("vscode", '{"inputs": {}}', '"inputs" is not a list')

    def test_an_own_entry_in_vs_code_is_not_asked_for_a_key(self) -> None:
        text = f'{{"servers": {{"perplexity": {OLD}}}}}'
        self.assertNotIn("inputs", json.loads(merged("vscode", text)))

    def test_two_clients_share_a_file_without_touching_each_other(self) -> None:
        one = merged("claude-code", None)
        both = json.loads(merged("visual-studio", one))
        self.assertEqual(both["mcpServers"], json.loads(one)["mcpServers"])
        self.assertIn("perplexity", both["servers"])

    def test_a_path_that_is_not_text_is_refused(self) -> None:
        with self.assertRaises(pro.ToolError) as caught:
            merged("cursor", None, pro.Launch("/x\udcff/python", ()))
        self.assertIn("path", caught.exception.message)

    def test_any_readable_file_keeps_all_values_and_all_other_text(self) -> None:
        for seed in range(400):
            text = RandomJson(seed).document()
            before = strict(text)
            try:
                new = merged("cursor", text)
            except pro.ToolError:
                self.assertNotIsInstance(before.get("mcpServers", {}), dict, text)
                continue
            rest = iter(new)
            self.assertTrue(all(c in rest for c in text if c not in " \t"), (text, new))
            after = strict(new)
            self.assertIn("perplexity", after["mcpServers"])
            after["mcpServers"].pop("perplexity")
            self.assertEqual(after, {**before, "mcpServers": before.get("mcpServers", {})}, text)


def strict(text: str) -> Any:
    """What JSON with comments and trailing commas says, read in another way than the program."""
    pattern = r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[{}\[\],:]|[^\s{}\[\],:"/]+'
    words = [word for word in re.findall(pattern, text, re.DOTALL) if word[0] != "/"]
    pairs = zip(words, [*words[1:], ""], strict=True)
    return json.loads("".join(word for word, after in pairs if (word, after[:1]) not in LAST))


LAST = {(",", "}"), (",", "]")}


class RandomJson:
    """JSON with comments, odd spacing and trailing commas, different for each seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - it makes test data
        self.end = self.dice.choice(["\n", "\r\n"])

    def gap(self) -> str:
        end = self.end
        parts = ["", " ", "  ", end, f"{end}  ", "\t", f'// c "x{{{end}', "/* } */", f"/* {end} */"]
        return "".join(self.dice.choice(parts) for _ in range(self.dice.randint(0, 2)))

    def value(self, depth: int) -> str:
        kind = self.dice.randint(0, 8 if depth < 3 else 5)
        if kind < 6:
            return self.dice.choice(["1", "-2.5e3", "true", "null", '"a\\"b"', '"//"', '"é{["'])
        if kind == 6:
            return self.group("[]", [self.value(depth + 1) for _ in range(self.dice.randint(0, 3))])
        return self.members(["a", "b", "env", "c d", "command"], depth)

    def members(self, names: list[str], depth: int) -> str:
        chosen = self.dice.sample(names, self.dice.randint(0, len(names)))
        return self.group(
            "{}", [f'"{n}"{self.gap()}:{self.gap()}{self.value(depth + 1)}' for n in chosen]
        )

    def group(self, ends: str, items: list[str]) -> str:
        text = ends[0] + self.gap()
        for number, item in enumerate(items, 1):
            comma = number < len(items) or self.dice.random() < 0.3
            text += item + self.gap() + ("," + self.gap() if comma else "")
        return text + self.gap() + ends[1]

    def document(self) -> str:
        return self.gap() + self.members(["x", "mcpServers", "y", "z"], 0) + self.gap()


class TomlFiles(Case):
    OTHER_TABLE = (
        '[mcp_servers.git]\ncommand = "git-mcp"\nargs = []\n\n[mcp_servers.git.env]\nT = "s"\n'
    )

    @WITH_TABLES
    def test_the_table_goes_to_the_end(self) -> None:
        text = f'model = "o3" # best\n\n{self.OTHER_TABLE}'
        new = merged("codex", text)
        self.assertEqual(new, f"{text}\n{pro.client_snippet(client('codex'), LAUNCH)}\n")
        self.assertEqual(merged("codex", new), new)

    @WITH_TABLES
    def test_a_last_line_without_an_end_gets_one(self) -> None:
        new = merged("codex", "a = 1")
        self.assertTrue(new.startswith("a = 1\n\n[mcp_servers.perplexity]\n"))

    @WITH_TABLES
    def test_line_ends_are_kept(self) -> None:
        new = merged("codex", "a = 1\r\n")
        self.assertEqual(new.count("\n"), new.count("\r\n"))
        changed = merged("codex", new, OTHER)
        self.assertEqual(changed.count("\n"), changed.count("\r\n"))
        self.assertIn('command = "uvx"\r\n', changed)

    @WITH_TABLES
    def test_of_a_table_that_is_there_only_two_values_change(self) -> None:
        text = (
            f'{self.OTHER_TABLE}\n[mcp_servers."perplexity"] # mine\n'
            "  command = 'uvx' # run\nenabled = true\n"
            'args = [\n  "--from",\n  "a]b", # why\n  "mcp-perplexity-pro",\n]\n'
            '[mcp_servers.perplexity.env]\nPERPLEXITY_API_KEY = "pplx-real"\n\n[tui]\nx = 1\n'
        )
        old = '[\n  "--from",\n  "a]b", # why\n  "mcp-perplexity-pro",\n]'
        new = merged("codex", text)
        wanted = text.replace("'uvx'", '"/opt/py/bin/python3"').replace(
            old, '["/home/u/perplexity_pro_mcp.py"]'
        )
        self.assertEqual(new, wanted)
        self.assertEqual(merged("codex", new), new)

    @WITH_TABLES
    def test_missing_arguments_are_added(self) -> None:
        own = "mcp-perplexity-pro"
        text = f'[mcp_servers.perplexity]\ncommand = "{own}"\nenabled = true\n'
        new = merged("codex", text)
        self.assertEqual(
            new,
            '[mcp_servers.perplexity]\nargs = ["/home/u/perplexity_pro_mcp.py"]\n'
            'command = "/opt/py/bin/python3"\nenabled = true\n',
        )

    def test_other_ways_to_write_the_entry_are_refused(self) -> None:
        for text in (
            '[mcp_servers]\nperplexity = { command = "x" }\n',
            'mcp_servers = { perplexity = { command = "x" } }\n',
            'mcp_servers.perplexity.command = "x"\n',
            '[mcp_servers.perplexity]\nurl = "http://x"\n',
            "mcp_servers = 3\n",
            "[[mcp_servers]]\nx = 1\n",
        ):
            self.refused("codex", text)

    def test_what_is_not_toml_is_refused(self) -> None:
        for text in ("{}\n", "hello there\n", "= 3\n"):
            self.refused("codex", text)

    @unittest.skipUnless(WITH_TOMLLIB, "before Python 3.11 the check is a light one")
    def test_any_fault_is_found(self) -> None:
        where = {
            "a = 1\na = 2\n": "cannot be parsed",
            "a = 1\nx = [1\n": "cannot be parsed",
            "a = 1\n[mcp_servers.theirs\n": "cannot be parsed (line 2)",
        }
        for text, why in where.items():
            self.refused("codex", text, why if WITH_TOMLLIB else "3.11 can")
        self.refused("codex", "a = " + "[" * 50_000 + "\n")

    def test_a_python_without_a_reader_names_the_clients_own_command(self) -> None:
        with mock.patch.dict(sys.modules, {"tomllib": None}):
            for word, command in (("codex", "codex mcp add"), ("grok", "grok mcp add")):
                for text in (self.OTHER_TABLE, "[mcp_servers.theirs\n"):
                    said = self.refused(word, text, "this Python cannot read TOML")
                    self.assertIn(f"Run `{command} perplexity ", said)
                    less = "` (which hands on no variables), or add" in said
                    self.assertEqual(less, word == "grok")
                self.assertEqual(
                    merged(word, None), pro.client_snippet(client(word), LAUNCH) + "\n"
                )

    @WITH_TABLES
    def test_lists_over_lines_with_comments_are_read_whole(self) -> None:
        table = '[mcp_servers.perplexity]\ncommand = "uvx"\nargs = [\n"-q", # see [1]\n{0},\n]\n'
        new = merged("codex", table.format('"mcp-perplexity-pro"'))
        entry = tomllib.loads(new)["mcp_servers"]["perplexity"]
        self.assertEqual(started(client("codex"), entry), [LAUNCH.command, *LAUNCH.args])
        said = self.refused("codex", table.format('"x"'), "another server")
        self.assertNotIn("cannot be parsed", said)

    @WITH_TABLES
    def test_a_form_that_is_not_edited_is_not_called_broken(self) -> None:
        launch = LAUNCH._replace(env=(("PERPLEXITY_DATA_DIR", "/srv/pp"),))
        own = '[mcp_servers.perplexity]\ncommand = "uvx"\nargs = ["mcp-perplexity-pro"]\n'
        for text in (
            f'{own}[mcp_servers.perplexity.env]\nA = "b"\n',
            "mcp_servers = {}\n",
            own.replace("command", '"command"'),
        ):
            self.refused("codex", text, "it is written in an unusual way", launch=launch)

    @WITH_TABLES
    def test_dates_and_numbers_of_any_kind_are_no_hindrance(self) -> None:
        text = 'x = nan\ny = -inf\n[mcp_servers.perplexity]\ncommand = "uvx"\n'
        text += 'args = ["mcp-perplexity-pro"]\nsince = 2026-11-30T10:00:00Z\n'
        text += "[mcp_servers.other]\nsince = 2026-11-30\nratio = 0.1\n"
        new = merged("codex", text)
        self.assertEqual(new.count("2026-11-30"), 2)
        self.assertIn('command = "/opt/py/bin/python3"', new)

    @WITH_TABLES
    def test_an_own_table_ends_up_of_one_kind(self) -> None:
        own = '[mcp_servers.perplexity]\ncommand = "uvx"\nargs = ["mcp-perplexity-pro"]\n'
        far = 'type = "http"\nurl = "https://x/mcp"\nbearer_token_env_var = "T"\n'
        entry = tomllib.loads(merged("codex", own + far))["mcp_servers"]["perplexity"]
        self.assertEqual(set(entry), {"command", "args"})

    @WITH_TABLES
    def test_what_looks_like_our_table_inside_a_text_is_no_table(self) -> None:
        inside = 'x = """\n[mcp_servers.perplexity]\ncommand = "a"\n"""\n'
        self.assertTrue(merged("codex", inside).startswith(inside))


class YamlFiles(Case):
    TEXT = (
        "# goose\nGOOSE_MODEL: x\nextensions:\n  developer:\n    enabled: true\n"
        "    type: builtin\n\n  git:\n    cmd: npx\n    args: [-y, mem-server]\n"
        "    notes: |\n      a: [b\nkeep: |\n  text\n"
    )

    def test_the_block_becomes_the_first_extension_and_others_have_no_veto(self) -> None:
        new = merged("goose", self.TEXT)
        block = pro.client_snippet(client("goose"), LAUNCH).partition("\n")[2]
        self.assertEqual(new, self.TEXT.replace("extensions:\n", f"extensions:\n{block}\n"))
        self.assertEqual(merged("goose", new), new)

    def test_a_file_without_extensions_gets_them_at_its_end(self) -> None:
        new = merged("goose", "GOOSE_MODEL: x")
        self.assertEqual(new, f"GOOSE_MODEL: x\n{pro.client_snippet(client('goose'), LAUNCH)}\n")
        new = merged("goose", "GOOSE_MODEL: x\r\n")
        self.assertEqual(new.count("\n"), new.count("\r\n"))

    def test_indentation_and_line_ends_are_kept(self) -> None:
        text = "extensions:\r\n    a:\r\n        cmd: x\r\n"
        new = merged("goose", text)
        self.assertIn('extensions:\r\n    perplexity:\r\n        type: "stdio"\r\n', new)
        self.assertEqual(new.count("\n"), new.count("\r\n"))

    def test_what_is_written_in_another_way_is_refused(self) -> None:
        for text in (
            "extensions: {}\n",
            "extensions: {a: {cmd: x}}\n",
            '"extensions":\n  a:\n    cmd: x\n',
            "{extensions: {}}\n",
            "[]\n",
            "extensions:\n- name: a\n",
            "extensions:\n  - name: a\n",
            "extensions:\n  {a: {enabled: true}}\n",
            "  extensions:\n    a:\n      cmd: x\n",
            "extensions:\n  a:\n    cmd: x\nextensions:\n  b:\n    cmd: x\n",
            "? extensions\n: a:\n    cmd: x\n",
            "- a\n- b\n",
            "one: &anchor 1\n",
        ):
            self.refused("goose", text, "plain way")

    def test_a_file_that_is_no_yaml_or_more_than_one_is_left_alone(self) -> None:
        for flaw in ("x: [", "x: {a: b", "a: b: c", 'x: "open', "x: 'open", "...", "---", "\ta: 1"):
            for text in (f"GOOSE_MODEL: x\n{flaw}\n", f"extensions:\n  a:\n    cmd: x\n{flaw}\n"):
                self.refused("goose", text, "plain way")

    def test_a_name_of_ours_elsewhere_is_not_our_entry(self) -> None:
        for other in ("providers:\n  perplexity:\n    host: x\n", "t: |\n  perplexity: y\n"):
            for text in (other, f"extensions:\n  a:\n    perplexity: z\n{other}"):
                block = pro.client_snippet(client("goose"), LAUNCH).partition("\n")[2]
                new = merged("goose", text)
                self.assertIn(f"extensions:\n{block}\n", new)
                self.assertEqual(
                    new.replace(f"{block}\n", "").replace(text, ""),
                    "" if text != other else "extensions:\n",
                )

    def test_what_others_write_in_plain_yaml_is_read_over(self) -> None:
        text = textwrap.dedent("""\
            ---
            # c
            list:
            - a
            - b: 1
              c: 2
            long: >-
              folded

              text: [
            url: https://a.b/c?d=e #x
            extensions:   # mine

              # first
              a-b.c:
                args:
                - -y
                - "q: ["
                envs: {A: b}
                list: [a,
                  b]
                words: it's one, or "two"
                none:
            last: 'x: y'""")
        block = pro.client_snippet(client("goose"), LAUNCH).partition("\n")[2]
        self.assertEqual(merged("goose", text), text.replace("  a-b.c:", f"{block}\n  a-b.c:"))
        empty = "extensions:\nother: 1\n"
        self.assertEqual(merged("goose", empty), f"extensions:\n{block}\nother: 1\n")
        for name in ("perplexity", "'perplexity'", '"perplexity"'):
            text = f"extensions:\n  {name}:\n    cmd: uvx\n"
            self.refused("goose", text, "whose cmd and args are for you to change")


class NoText(unittest.TestCase):
    def test_a_file_of_another_encoding_is_named_as_such_and_left_alone(self) -> None:
        for word, raw in (("cursor", b"\xff\xfe{\0}\0"), ("goose", b"a: \xe9\n")):
            with tempfile.TemporaryDirectory() as folder:
                home = Path(folder).resolve()
                place = pro.Place(home, {}, "linux", home / "project")
                path = Path(pro.client_file(client(word), place) or "")
                path.parent.mkdir(parents=True)
                path.write_bytes(raw)
                with self.assertRaises(pro.ToolError) as caught:
                    pro.plan_write(client(word), place, LAUNCH)
                self.assertIn("it is not UTF-8 text. Nothing was changed", caught.exception.message)
                self.assertEqual(path.read_bytes(), raw)


class Differences(Case):
    WORDS = ("hunter2", "s3cr3t", "Bearer", "4711", "tok-in-comment", "plainword", "/private")

    def hides(self, word: str, text: str) -> str:
        """The difference of an edit, which has our lines and none of these words."""
        shown = str(planned(word, text).diff)
        self.assertIn("+", shown)
        for secret in self.WORDS:
            self.assertNotIn(secret, shown)
        return shown

    def test_no_line_is_another_servers(self) -> None:
        servers = {
            "a": {"command": "npx", "args": ["--api-key", "hunter2"], "env": {"command": "s3cr3t"}},
            "b": {"url": "https://u:plainword@x/", "headers": {"type": "Bearer"}, "pin": 4711},
            "c": {"cwd": "/private", "environment": {"type": "s3cr3t"}},
            "d": {"command": "srv --token=hunter2", "description": "password hunter2"},
        }
        for word in ("cursor", "vscode", "opencode", "zed"):
            text = json.dumps({client(word).container: servers}, indent=2)
            text = text.replace('"cwd"', '/* tok-in-comment */ "cwd"')
            text = text.replace('"environment"', '// tok-in-comment\n"environment"')
            many = json.dumps({client(word).container: {str(n): servers for n in range(200)}})
            plain = json.dumps({client(word).container: servers})
            for shape in (text, "\ufeff" + text, plain, many, many.replace(", ", ",\n")):
                self.assertIn('+    "perplexity": {', self.hides(word, shape))

    @WITH_TABLES
    def test_neither_in_toml(self) -> None:
        text = (
            'a = "hunter2"\n[mcp_servers.x.env]\nTOKEN = "s3cr3t"\nnotes = """\n'
            'the door code is hunter2\n"""\n# hunter2'
        )
        shown = self.hides("codex", text)
        self.assertIn('+command = "/opt/py/bin/python3"', shown)
        self.assertIn("+supports_parallel_tool_calls = true", shown)

    def test_nor_in_yaml(self) -> None:
        text = (
            "extensions:\n  a:\n    envs:\n      K: hunter2\n    args:\n    - s3cr3t\n"
            "    notes: |\n      the door code is hunter2\nlist:\n- hunter2\n"
        )
        self.assertIn('+    cmd: "/opt/py/bin/python3"', self.hides("goose", text))

    def test_of_an_older_entry_names_and_what_was_started_are_shown(self) -> None:
        own = json.loads(OLD)
        own["args"] += ["--token=hunter2"]
        own.update(env={"K": "s3cr3t"}, pin=4711, notes="plainword")
        text = json.dumps({"mcpServers": {"perplexity": own}})
        shown = self.hides("claude-desktop", text)
        self.assertIn('-      "command": "uvx",', shown)
        self.assertIn('-      "args": ["mcp-perplexity-pro", "\u2026"],', shown)
        self.assertNotIn("pplx-real", shown)

    def test_what_is_added_can_be_read(self) -> None:
        shown = planned("cursor", '{\n  "mcpServers": {\n    "a": {}\n  }\n}\n').diff
        for line in (
            "--- mcp.json",
            "+++ mcp.json (new)",
            '+    "perplexity": {',
            '+      "command": "/opt/py/bin/python3",',
            '+      "args": ["/home/u/perplexity_pro_mcp.py"],',
            '+        "PERPLEXITY_API_KEY": "${env:PERPLEXITY_API_KEY}"',
        ):
            self.assertIn(line, shown.splitlines())

    def test_what_would_steer_a_terminal_is_left_out(self) -> None:
        own = {**json.loads(OLD), "a\x1b[2J\u202e": "x"}
        shown = planned("cursor", json.dumps({"mcpServers": {"perplexity": own}})).diff
        self.assertNotIn("\x1b", shown)
        self.assertNotIn("\u202e", shown)

    def test_the_question_of_vs_code_is_shown_and_those_of_others_are_not(self) -> None:
        text = '{"inputs": [{"id": "hunter2", "description": "s3cr3t"}], "servers": {}}'
        self.assertIn('+  "inputs": [{"type":"promptString",', self.hides("vscode", text))
        again = planned("vscode", merged("vscode", text)).diff
        self.assertEqual(again, "")

    def test_no_change_has_no_difference(self) -> None:
        self.assertEqual(planned("cursor", merged("cursor", None)).diff, "")


class Written(NamedTuple):
    plan: pro.ClientPlan
    path: Path
    new: str
    changed: bool
    backup: Path | None


class Writing(Case):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.base = Path(folder.name).resolve()
        self.home = self.base / "home"
        self.cwd = self.home / "project"
        self.cwd.mkdir(parents=True)
        self.place = pro.Place(self.home, {}, "linux", self.cwd)

    def put(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def write(self, word: str, launch: pro.Launch = LAUNCH) -> Written:
        plan = pro.plan_write(client(word), self.place, launch)
        changed = plan.new != plan.old
        backup = pro.write_client(client(word), plan, launch) if changed else None
        return Written(plan, plan.path, plan.new, changed, backup)

    def refuses(self, word: str, *parts: str) -> None:
        with self.assertRaises(pro.ToolError) as caught:
            self.write(word)
        for part in (*parts, pro.client_snippet(client(word), LAUNCH)):
            self.assertIn(part, caught.exception.message)

    def test_a_file_is_made_where_the_client_is_found(self) -> None:
        (self.home / ".kiro").mkdir()
        report = self.write("kiro")
        self.assertEqual(report.path, self.home / ".kiro/settings/mcp.json")
        self.assertTrue(report.changed)
        self.assertIsNone(report.backup)
        self.assertEqual(report.path.read_text(), merged("kiro", None))
        if POSIX:
            self.assertEqual(stat.S_IMODE(report.path.stat().st_mode), 0o600)

    def test_nothing_is_made_where_the_client_is_not_found(self) -> None:
        self.refuses("kiro", "not found", str(self.home / ".kiro"))
        self.assertEqual([path.name for path in self.home.iterdir()], ["project"])

    def test_each_platforms_own_folder_counts_as_found(self) -> None:
        (self.home / ".config/Claude").mkdir(parents=True)
        self.assertTrue(self.write("claude-desktop").changed)
        (self.home / "Library/Application Support/Claude").mkdir(parents=True)
        self.place = self.place._replace(platform="darwin")
        report = self.write("claude-desktop")
        self.assertEqual(report.path.parent.parent.name, "Application Support")

    def test_the_second_run_writes_nothing(self) -> None:
        path = self.put(".cursor/mcp.json", '{"mcpServers": {"a": {}}}')
        first = self.write("cursor")
        written, when = path.read_bytes(), path.stat().st_mtime_ns
        second = self.write("cursor")
        self.assertTrue(first.changed)
        self.assertFalse(second.changed)
        self.assertEqual((second.plan.diff, second.backup), ("", None))
        self.assertEqual((path.read_bytes(), path.stat().st_mtime_ns), (written, when))
        self.assertEqual(len(list(path.parent.iterdir())), 2)

    def test_backups_keep_the_former_bytes_and_never_replace_each_other(self) -> None:
        text = '\ufeff{\r\n  "mcpServers": {}\r\n}'
        path = self.put(".cursor/mcp.json", text)
        first, second = self.write("cursor"), self.write("cursor", OTHER)
        self.assertEqual(first.backup, path.with_name("mcp.json.bak"))
        self.assertEqual(second.backup, path.with_name("mcp.json.bak2"))
        assert first.backup
        assert second.backup
        self.assertEqual(first.backup.read_bytes(), text.encode())
        self.assertEqual(second.backup.read_bytes(), first.new.encode())

    @unittest.skipUnless(POSIX, "modes are those of POSIX")
    def test_the_mode_is_kept(self) -> None:
        path = self.put(".cursor/mcp.json", "{}")
        path.chmod(0o640)
        report = self.write("cursor")
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o640)
        assert report.backup
        self.assertEqual(stat.S_IMODE(report.backup.stat().st_mode), 0o600)

    def test_planning_writes_nothing(self) -> None:
        path = self.put(".cursor/mcp.json", "{}")
        plan = pro.plan_write(client("cursor"), self.place, LAUNCH)
        self.assertNotEqual(plan.new, plan.old)
        self.assertIn("+", plan.diff)
        self.assertEqual(path.read_text(), "{}")
        self.assertEqual(len(list(path.parent.iterdir())), 1)

    def test_a_refused_file_keeps_its_bytes(self) -> None:
        path = self.put(".cursor/mcp.json", '{"mcpServers": [}')
        self.refuses("cursor", "line 1")
        self.assertEqual(path.read_text(), '{"mcpServers": [}')
        self.assertEqual(len(list(path.parent.iterdir())), 1)

    def test_what_is_no_text_file_is_refused(self) -> None:
        path = self.put(".cursor/mcp.json", "")
        path.write_bytes(b"\xff\xfe{\x00}\x00")
        self.refuses("cursor", str(path))
        path.unlink()
        path.mkdir()
        self.refuses("cursor", "regular file")

    def test_a_file_beyond_the_limit_is_refused(self) -> None:
        self.put(".cursor/mcp.json", "{}" + " " * pro.MAX_CLIENT_FILE_BYTES)
        self.refuses("cursor", "larger than")

    @unittest.skipUnless(POSIX, "links need a right on Windows")
    def test_a_link_out_of_the_home_folder_is_not_followed(self) -> None:
        outside = self.base / "outside"
        outside.mkdir()
        target = outside / "mcp.json"
        target.write_text("{}")
        (self.home / ".cursor").mkdir()
        (self.home / ".cursor/mcp.json").symlink_to(target)
        self.refuses("cursor", "link")
        (self.home / ".kiro").symlink_to(outside)
        self.refuses("kiro", "link")
        (self.home / ".lmstudio").mkdir()
        (self.home / ".lmstudio/mcp.json").symlink_to(outside / "absent.json")
        self.refuses("lmstudio", "link")
        (self.home / ".config").symlink_to(outside)
        self.refuses("claude-desktop", "link")
        (self.cwd / ".roo").symlink_to(outside)
        self.refuses("roo", "link")
        self.assertEqual([path.name for path in outside.iterdir()], ["mcp.json"])
        self.assertEqual(target.read_text(), "{}")

    @unittest.skipUnless(POSIX, "links need a right on Windows")
    def test_a_link_within_the_home_folder_is_followed_and_stays_a_link(self) -> None:
        real = self.put("dotfiles/cursor.json", "{}")
        (self.home / ".cursor").mkdir()
        link = self.home / ".cursor/mcp.json"
        link.symlink_to(real)
        report = self.write("cursor")
        self.assertTrue(link.is_symlink())
        self.assertEqual(real.read_text(), report.new)
        self.assertEqual(report.backup, real.with_name("cursor.json.bak"))

    @unittest.skipUnless(POSIX, "links need a right on Windows")
    def test_a_link_to_itself_is_refused(self) -> None:
        (self.home / ".cursor").mkdir()
        (self.home / ".cursor/mcp.json").symlink_to(self.home / ".cursor/mcp.json")
        with self.assertRaises(pro.ToolError):
            self.write("cursor")
        self.assertTrue((self.home / ".cursor/mcp.json").is_symlink())

    def test_a_project_file_is_written_where_the_user_stands(self) -> None:
        self.assertEqual(self.write("claude-code").path, self.cwd / ".mcp.json")
        self.refuses("roo", "not found")
        (self.cwd / ".roo").mkdir()
        self.assertEqual(self.write("roo").path, self.cwd / ".roo/mcp.json")

    def test_a_client_without_a_file_is_refused_with_the_place_to_paste(self) -> None:
        self.refuses("warp", "Manage MCP Servers")
        self.refuses("factory")

    def test_the_older_server_under_another_name_is_only_mentioned(self) -> None:
        path = self.put(".cursor/mcp.json", f'\ufeff{{"mcpServers": {{"pplx": {OLD}}}}}')
        self.assertEqual(self.write("cursor").plan.older, ["pplx"])
        servers = json.loads(path.read_text("utf-8-sig"))["mcpServers"]
        self.assertEqual(servers["pplx"], json.loads(OLD))

    def test_the_older_server_in_four_clients_is_switched_once(self) -> None:
        table = '[mcp_servers.perplexity]\ncommand = "uvx"\nargs = ["mcp-perplexity-pro"]\n'
        files = {
            "claude-desktop": (".config/Claude/claude_desktop_config.json", "mcpServers"),
            "cursor": (".cursor/mcp.json", "mcpServers"),
            "vscode": (".config/Code/User/mcp.json", "servers"),
            "codex": (".codex/config.toml", ""),
        }
        for word, (name, container) in files.items():
            if word == "codex" and not WITH_TOMLLIB:
                continue
            text = f'{{"{container}": {{"x": {{"y": 1}}, "perplexity": {OLD}}}}}'
            path = self.put(name, text if container else table)
            report = self.write(word)
            self.assertTrue(report.changed, word)
            self.assertEqual(report.plan.older, [])
            self.assertNotIn("mcp-perplexity-pro", path.read_text())
            self.assertEqual("pplx-real" in path.read_text(), bool(container))
            self.assertFalse(self.write(word).changed, word)

    def test_found_clients_tell_what_their_files_start(self) -> None:
        self.put(".cursor/mcp.json", f'\ufeff{{"mcpServers": {{"p": {OLD}}}}}')
        self.put(".codex/config.toml", merged("codex", None))
        self.put(".claude.json", '{"mcpServers": {"perplexity": {"url": "http://x"}}}')
        self.put(".lmstudio/mcp.json", "{")
        self.put("project/.vscode/mcp.json", '{"servers": {}}')
        self.put("project/.roo/mcp.json", merged("roo", None, OTHER))
        self.put(".config/goose/config.yaml", pro.client_snippet(client("goose"), LAUNCH))
        found = {f.client.word: f for f in pro.found_clients(self.place)}
        self.assertEqual(
            sorted(found), ["claude-code", "codex", "cursor", "goose", "lmstudio", "roo"]
        )
        codex = (True, LAUNCH.command) if WITH_TOMLLIB else (False, "")
        self.assertEqual((found["codex"].entered, found["codex"].command), codex)
        self.assertTrue(found["goose"].entered)
        self.assertEqual((found["roo"].entered, found["roo"].command), (True, OTHER.command))
        self.assertEqual((found["cursor"].entered, found["cursor"].older), (False, ["p"]))
        self.assertEqual((found["claude-code"].entered, found["claude-code"].command), (True, ""))
        self.assertIn("line 1", found["lmstudio"].problem)

    def test_in_the_home_folder_itself_the_users_files_are_found_too(self) -> None:
        self.put(".cursor/mcp.json", "{}")
        found = pro.found_clients(self.place._replace(cwd=self.home))
        self.assertEqual([(f.client.word, f.entered) for f in found], [("cursor", False)])


class Links(Case):
    PLAIN = (
        "eyJjb21tYW5kIjoidXZ4IiwiYXJncyI6WyJQS0ciXSwiZW52Ijp7IlBFUlBMRVhJVFlfQVBJX0tFWSI6"
        "IllPVVJfS0VZIn19"
    )
    CODE = (
        "/redirect/mcp/install?name=perplexity&config=%7B%22type%22%3A%22stdio%22%2C%22command%22"
        "%3A%22uvx%22%2C%22args%22%3A%5B%22PKG%22%5D%2C%22env%22%3A%7B%22PERPLEXITY_API_KEY%22%3A"
        "%22%24%7Binput%3Aperplexity_api_key%7D%22%7D%7D&inputs=%5B%7B%22type%22%3A%22promptString"
        "%22%2C%22id%22%3A%22perplexity_api_key%22%2C%22description%22%3A%22Perplexity%20API%20key"
        "%22%2C%22password%22%3Atrue%7D%5D"
    )

    def test_links_are_the_published_vectors(self) -> None:
        links = pro.links("PKG")
        config = (
            "%7B%22command%22%3A%22uvx%22%2C%22args%22%3A%5B%22PKG%22%5D%2C%22env%22%3A%7B%22"
            "PERPLEXITY_API_KEY%22%3A%22YOUR_KEY%22%7D%7D"
        )
        wanted = {
            "Cursor": f"https://cursor.com/en/install-mcp?name=perplexity&config={self.PLAIN}",
            "LM Studio": f"https://lmstudio.ai/install-mcp?name=perplexity&config={self.PLAIN}",
            "Kiro": f"https://kiro.dev/launch/mcp/add?name=perplexity&config={config}",
            "VS Code": f"https://vscode.dev{self.CODE}",
            "VS Code Insiders": f"https://insiders.vscode.dev{self.CODE}&quality=insiders",
        }
        self.assertEqual({title: links[title] for title in wanted}, wanted)
        self.assertEqual(set(links) - set(wanted), {"Goose"})

    def test_links_lead_back_to_the_public_command_and_a_placeholder(self) -> None:
        wanted = {"command": "uvx", "args": ["perplexity-pro-mcp"]}
        for title, link in pro.links().items():
            parts = urlsplit(link)
            self.assertEqual(parts.scheme, "https")
            fields = parse_qs(parts.query, strict_parsing=True)
            if title == "Goose":
                self.assertEqual(fields["cmd"] + fields["arg"], ["uvx", "perplexity-pro-mcp"])
                self.assertEqual(fields["id"] + fields["name"], ["perplexity", pro.TITLE])
                self.assertEqual(fields["description"], [pro.SUMMARY])
                self.assertEqual(fields["env"], ["PERPLEXITY_API_KEY=Perplexity API key"])
                continue
            text = fields["config"][0]
            entry = json.loads(text if text[0] == "{" else base64.b64decode(text, validate=True))
            self.assertEqual({name: entry[name] for name in wanted}, wanted)
            self.assertIsNone(pro.given(entry["env"], "PERPLEXITY_API_KEY"), title)

    def test_no_link_holds_a_real_key(self) -> None:
        self.assertNotRegex(" ".join(pro.links().values()), r"pplx-\w")


if __name__ == "__main__":
    unittest.main()
