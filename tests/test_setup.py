"""Setting up clients, and the doctor: what they say, write, send and leave alone."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from support import ROOT, WAIT_S, Console, console, pro

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = Any


class RawTerminal(io.BytesIO):
    """The bytes of a stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
FOREIGN = '{\n  "mcpServers": {\n    "other": {"command": "x", "env": {"A": "b"}}\n  }\n}\n'


@contextlib.contextmanager
def machine() -> Iterator[tuple[Console, Path]]:
    """A console on a machine whose home is a scratch folder without any client."""
    with console() as here:
        home = Path(here.folder, "home")
        project = home / "project"
        project.mkdir(parents=True)
        place = pro.Place(home, {}, "linux", project)
        with mock.patch.object(pro, "own_place", return_value=place):
            yield here, home


def cursor_file(home: Path, text: str) -> Path:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(text, "utf-8")
    return path


class Setup(unittest.TestCase):
    def test_it_lists_every_client_and_marks_those_that_are_there(self) -> None:
        with machine() as (here, home):
            cursor_file(home, FOREIGN)
            before = here.line("setup").out
            self.assertEqual(here.line("setup cursor --write").status, 0)
            after = here.line("setup").out
        lines = before.splitlines()
        for word, client in pro.CLIENTS.items():
            mark = "*" if word == "cursor" else " "
            self.assertIn(f"{mark} {word:16} {client.title}", lines)
        self.assertIn("* cursor           Cursor (set up)\n", after)
        self.assertLessEqual(max(map(len, after.splitlines())), 79)

    def test_every_client_gets_a_snippet_that_starts_this_very_file_and_holds_no_key(self) -> None:
        with machine() as (here, home):
            launch = pro.own_launch(pro.read_settings(here.environ))
            self.assertTrue(Path(launch.command).is_absolute())
            for word in pro.CLIENTS:
                said = here.line(f"setup {word}")
                with self.subTest(client=word):
                    client = pro.CLIENTS[word]
                    file = pro.client_file(client, pro.own_place()) or client.menu
                    command = pro.shell_command(client, launch)
                    where = f"Into {file}:\n" if file else "To run in a shell:\n"
                    if file and command:
                        where = f"Run this: {command}\nOr into {file}:\n"
                    if word in {"amp", "grok"}:  # whose commands have no option for variables
                        less = "That command hands on no variables, the text below does."
                        where = where.replace("\nOr", f"\n{less}\nOr")
                    self.assertEqual(not file, word == "factory")
                    self.assertEqual((said.status, said.err), (0, where))
                    for part in (launch.command, "import perplexity_pro_mcp"):
                        self.assertIn(part, said.out)
                    self.assertNotIn(here.fake.key, said.out)
                    self.assertTrue(said.out.endswith("\n"))
            self.assertEqual([path.name for path in home.rglob("*")], ["project"])

    def test_a_key_file_that_works_is_carried_on_and_so_is_all_else_that_was_told(self) -> None:
        with machine() as (here, _):
            file = Path(here.folder, "kf")
            file.write_text(here.fake.key, "utf-8")
            file.chmod(0o600)
            named = {"PERPLEXITY_API_KEY": "", "PERPLEXITY_API_KEY_FILE": str(file)}
            cursor = json.loads(here.line("setup cursor", **named).out)
            code = here.line("setup vscode", **named)
            block, run = json.loads(code.out), shlex.split(code.err.splitlines()[0])
        env = cursor["mcpServers"]["perplexity"]["env"]
        self.assertEqual(env["PERPLEXITY_API_KEY_FILE"], str(file))
        self.assertNotIn("PERPLEXITY_API_KEY", env)
        self.assertEqual(block["servers"]["perplexity"]["env"], env)
        self.assertEqual(json.loads(run[-1])["env"], env)

    def test_writing_shows_the_difference_keeps_the_rest_and_is_done_once(self) -> None:
        with machine() as (here, home):
            path = cursor_file(home, FOREIGN)
            first = here.line("setup cursor --write")
            written = path.read_bytes()
            second = here.line("setup --write cursor")
            self.assertEqual(path.read_bytes(), written)
            self.assertEqual(path.with_name("mcp.json.bak").read_text("utf-8"), FOREIGN)
            files = sorted(item.name for item in path.parent.iterdir())
        self.assertEqual((first.status, second.status), (0, 0))
        self.assertIn('+    "perplexity": {', first.out)
        self.assertTrue(first.out.endswith("\n"))
        self.assertIn(f"Written: {path}.\nThe former text is kept in {path}.bak.\n", first.err)
        self.assertEqual(json.loads(written)["mcpServers"]["other"]["env"], {"A": "b"})
        self.assertIn('"other": {"command": "x", "env": {"A": "b"}}', written.decode())
        self.assertEqual((second.out, second.err), ("", f"Nothing to change in {path}.\n"))
        self.assertEqual(files, ["mcp.json", "mcp.json.bak"])

    def test_nothing_is_written_before_the_difference_is_shown(self) -> None:
        with machine() as (here, home):
            path = cursor_file(home, FOREIGN)
            settings = pro.read_settings(here.environ)
            screen = pro.Screen(None, io.StringIO(), settings)  # standard output is closed
            self.assertEqual(pro.command_line(["setup", "cursor", "--write"], settings, screen), 1)
            self.assertEqual(path.read_text("utf-8"), FOREIGN)
            self.assertEqual([item.name for item in path.parent.iterdir()], ["mcp.json"])

    def test_only_who_must_fill_in_a_key_is_told_to(self) -> None:
        with machine() as (here, home):
            (home / ".config" / "amp").mkdir(parents=True)
            cursor_file(home, "{}")
            amp, cursor = (here.line(f"setup {word} --write") for word in ("amp", "cursor"))
        self.assertTrue(amp.err.endswith("\nReplace YOUR_KEY by the key, then restart Amp.\n"))
        exported = "\nExport PERPLEXITY_API_KEY where Cursor is started, then restart it.\n"
        self.assertTrue(cursor.err.endswith(exported), cursor.err)

    def test_the_last_line_fits_the_way_in_which_the_key_arrives(self) -> None:
        folders = {"codex": ".codex", "gemini": ".gemini", "goose": ".config/goose",
                   "opencode": ".config/opencode", "vscode": ".config/Code/User"}  # fmt: skip
        with machine() as (here, home):
            for word, folder in folders.items():
                (home / folder).mkdir(parents=True)
                said = here.line(f"setup {word} --write")
                title = pro.CLIENTS[word].title
                last = f"Export PERPLEXITY_API_KEY where {title} is started, then restart it."
                last = "Restart VS Code." if word == "vscode" else last
                self.assertEqual(said.err.splitlines()[-1], last)
            # A key that is there already is kept, and needs nothing.
            env = {"PERPLEXITY_API_KEY": "pplx-real"}
            entry = {"command": "perplexity-pro-mcp", "env": env}
            cursor_file(home, json.dumps({"mcpServers": {"perplexity": entry}}))
            said = here.line("setup cursor --write")
        self.assertEqual(said.err.splitlines()[-1], "Restart Cursor.")

    def test_a_server_gets_the_folder_and_the_address_of_this_program(self) -> None:
        with machine() as (here, home):
            (home / ".codex").mkdir()
            path = cursor_file(home, FOREIGN)
            data, url = {"PERPLEXITY_DATA_DIR": ""}, {"PERPLEXITY_BASE_URL": ""}
            for word in ("cursor", "codex") if sys.version_info >= (3, 11) else ("cursor",):
                self.assertEqual(here.line(f"setup {word} --write", **data, **url).status, 0)
                path = pro.client_file(pro.CLIENTS[word], pro.own_place()) or path
                self.assertNotIn("PERPLEXITY_DATA_DIR", path.read_text("utf-8"))
                # An entry without them is not the one of this program.
                self.assertEqual(here.line(f"setup {word} --write").status, 0)
                written = path.read_text("utf-8")
                for value in (f"{here.folder}/data", here.fake.url):
                    self.assertIn(value, written)
                said = here.line(f"setup {word} --write")
                self.assertIn("Nothing to change", said.err)
            self.assertIn("${env:PERPLEXITY_API_KEY}", (home / ".cursor/mcp.json").read_text())
            self.assertIn(f"PERPLEXITY_BASE_URL={here.fake.url}", here.line("setup codex").err)

    def test_a_file_of_a_folder_is_said_to_hold_there_alone(self) -> None:
        with machine() as (here, home):
            cursor_file(home, FOREIGN)
            self.assertNotIn("this folder alone", here.line("setup cursor --write").err)
            said = here.line("setup claude-code --write")
            self.assertIn("It is for this folder alone", said.err)
            self.assertIn("For all folders: claude mcp add perplexity", said.err)
            self.assertIn("Run this: claude mcp add", here.line("setup claude-code").err)

    def test_what_cannot_be_written_is_a_sentence_with_the_snippet_and_1(self) -> None:
        with machine() as (here, home):
            path = cursor_file(home, "{")
            reasons = {
                "cursor": "mcp.json: it cannot be parsed (line 1)",
                "kiro": "Kiro was not found: there is no folder",
                "goose": "config.yaml yourself:",
                "amazon-q": "Amazon Q has no file that can be edited here",
            }
            for word, reason in reasons.items():
                said = here.line(f"setup {word} --write")
                with self.subTest(client=word):
                    self.assertEqual((said.status, said.out), (1, ""))
                    first, _, snippet = said.err.partition("\n")
                    self.assertTrue(first.startswith("perplexity-pro setup: "), first)
                    self.assertIn(reason, first)
                    self.assertIn(snippet.strip(), here.line(f"setup {word}").out)
            self.assertEqual(path.read_text("utf-8"), "{")
            self.assertFalse((home / ".config").exists())

    def test_a_folder_that_is_gone_is_a_sentence(self) -> None:
        with console() as here, mock.patch.object(Path, "cwd", side_effect=FileNotFoundError):
            for line in ("setup", "setup cursor --write"):
                said = here.line(line)
                self.assertEqual((said.status, said.out), (1, ""))
                self.assertTrue(
                    said.err.startswith("perplexity-pro setup: The current folder is gone;")
                )
                self.assertEqual(said.err.count("\n"), 1)

    def test_wrong_words_are_2_and_name_what_was_meant(self) -> None:
        with machine() as (here, home):
            lines = (
                "--write",
                "cursor zed",
                "links --write",
                "links x",
                "nonsense-client",
                "mcpb x",
            )
            for line in lines:
                said = here.line(f"setup {line}")
                self.assertEqual((said.status, said.out, said.err.count("\n")), (2, "", 1), line)
            self.assertIn("did you mean cursor?", here.line("setup cursro").err)
            self.assertEqual([path.name for path in home.rglob("*")], ["project"])

    def test_links_are_https_and_hold_a_placeholder_at_most(self) -> None:
        with machine() as (here, _):
            said = here.line("setup links")
            lines = said.out.splitlines()
            self.assertNotIn(here.fake.key, said.out)
        self.assertEqual(lines[::2], list(pro.links()))
        self.assertEqual([link.strip() for link in lines[1::2]], list(pro.links().values()))
        self.assertTrue(all(link.startswith("  https://") for link in lines[1::2]))


@unittest.skipUnless(hasattr(os, "geteuid") and os.geteuid() == 0, "needs to be root")
class AsRoot(unittest.TestCase):
    def test_a_users_files_stay_the_users(self) -> None:
        with machine() as (here, home):
            path = cursor_file(home, FOREIGN)
            for item in (home, path.parent, path):
                os.chown(item, 4711, 4712)
            (home / ".kiro").mkdir()
            os.chown(home / ".kiro", 4711, 4712)
            for word in ("cursor", "kiro"):
                self.assertEqual(here.line(f"setup {word} --write").status, 0)
            made = [*path.parent.iterdir(), *(home / ".kiro").rglob("*")]
            self.assertEqual(len(made), 4)
            for item in made:
                owner = (item.stat().st_uid, item.stat().st_gid)
                self.assertEqual(owner, (4711, 4712), item.name)


class Doctor(unittest.TestCase):
    def findings(self, here: Console, words: str = "--offline", **more: str) -> dict[str, Json]:
        """What `doctor --json` found, by name; the exit status agrees with it."""
        said = here.line(f"doctor --json {words}", **more)
        found = {finding["name"]: finding for finding in said.json()}
        self.assertEqual(said.status, 0 if all(one["ok"] for one in found.values()) else 1)
        self.assertEqual(said.err, "")
        return found

    def bad(self, here: Console, words: str = "--offline", **more: str) -> dict[str, str]:
        """The names and repairs of what is wrong."""
        found = self.findings(here, words, **more).values()
        return {one["name"]: one["repair"] for one in found if not one["ok"]}

    def test_all_is_well_in_a_line_each_and_one_free_request(self) -> None:
        with machine() as (here, _):
            here.line("usage")
            said = here.line("doctor", tty=True)
            seen = [(request.method, request.path) for request in here.fake.requests]
        lines = said.out.splitlines()
        self.assertEqual((said.status, said.err), (0, ""))
        self.assertEqual(seen, [("GET", "/v1/models")])
        self.assertTrue(all(line.startswith("\u2713 ") for line in lines), said.out)
        self.assertLessEqual(max(map(len, lines)), 79)
        names = [line[2:15].strip() for line in lines]
        for name in ("python", "sqlite", "certificates", "settings", "key", "clock", "data folder",
                     "database", "running jobs", "api"):  # fmt: skip
            self.assertIn(name, names)

    def test_offline_sends_nothing(self) -> None:
        with machine() as (here, _):
            found = self.findings(here)
            self.assertEqual(here.fake.requests, [])
        self.assertNotIn("api", found)
        self.assertTrue(all(one["ok"] for one in found.values()), found)

    def test_it_spends_nothing_and_writes_nothing_into_the_ledger(self) -> None:
        with machine() as (here, _):
            here.line("usage")
            before = here.line("usage --json").json()["totals"]
            here.line("doctor")
            self.assertEqual(here.line("usage --json").json()["totals"], before)

    def test_a_key_is_described_and_never_shown(self) -> None:
        keys = ("pplx-0123456789abcdefghijklmnop", "sk-0123456789abcdefghijklmnop", "short")
        with machine() as (here, _):
            for key in keys:
                for words in ("doctor", "doctor --json"):
                    said = here.line(words, PERPLEXITY_API_KEY=key)
                    self.assertNotIn(key, said.out + said.err)
                    self.assertIn(f"in PERPLEXITY_API_KEY, {len(key)} characters", said.out)
            self.assertIn("begin with pplx-", self.bad(here, PERPLEXITY_API_KEY=keys[1])["key"])
            self.assertIn("No Perplexity API key", self.bad(here, PERPLEXITY_API_KEY="")["key"])

    def test_a_refused_key_and_an_api_out_of_reach_are_told_apart(self) -> None:
        with machine() as (here, _):
            wrong = self.bad(here, "", PERPLEXITY_API_KEY="pplx-wrong0123456789abcdef")
            away = self.bad(here, "", PERPLEXITY_BASE_URL="http://127.0.0.1:9")
        self.assertEqual((list(wrong), list(away)), (["api"], ["api"]))
        self.assertIn("key", wrong["api"])
        self.assertIn("refused", away["api"])

    def test_settings_folder_and_database_are_told_apart(self) -> None:
        with machine() as (here, _):
            odd = self.bad(here, PERPLEXITY_READ_TIMEOUT="x")
            self.assertEqual(list(odd), ["settings"])
            blocked = Path(here.folder, "file")
            blocked.write_text("", "utf-8")
            folder = self.bad(here, PERPLEXITY_DATA_DIR=str(blocked / "data"))
            self.assertIn("PERPLEXITY_DATA_DIR", folder["data folder"])
            here.line("usage")
            data = Path(here.folder, "data")
            for name in ("-wal", "-shm"):
                Path(data, f"perplexity.db{name}").unlink(missing_ok=True)
            Path(data, "perplexity.db").write_bytes(b"no database at all" * 1000)
            self.assertIn("database", self.bad(here))

    def test_running_jobs_are_counted(self) -> None:
        with machine() as (here, _):
            here.fake.run_script("in_progress")
            here.line("research 'what now'")
            self.assertEqual(self.findings(here)["running jobs"]["text"], "1 not collected yet")

    def test_clients_that_are_set_up_broken_or_unreadable_are_named(self) -> None:
        with machine() as (here, home):
            path = cursor_file(home, FOREIGN)
            self.assertNotIn("client cursor", self.findings(here))
            here.line("setup cursor --write")
            self.assertEqual(self.findings(here)["client cursor"]["text"], "set up")
            command = json.dumps(pro.own_launch(pro.Settings()).command)
            path.write_text(path.read_text("utf-8").replace(command, '"/no/such"'), "utf-8")
            self.assertIn("setup cursor --write", self.bad(here)["client cursor"])
            path.write_text("{", "utf-8")
            self.assertEqual(list(self.bad(here)), ["client cursor"])

    def test_each_problem_of_a_client_names_the_file_and_what_mends_it(self) -> None:
        with machine() as (here, home):
            path = home / ".claude.json"
            entry = {"command": "/no/such/uvx", "args": ["perplexity-pro-mcp"]}
            path.write_text(json.dumps({"mcpServers": {"perplexity": entry}}), "utf-8")
            found = self.findings(here)["client claude-code"]
            self.assertIn(str(path), found["text"])
            self.assertNotIn("--write", found["repair"])  # which writes into another file
            path.write_text("{", "utf-8")
            self.assertIn(str(path), self.findings(here)["client claude-code"]["text"])

    def test_what_is_not_looked_at_is_said(self) -> None:
        with machine() as (here, _):
            said = here.line("doctor", PERPLEXITY_API_KEY="").out
            self.assertIn("not asked without a key", said)
            self.assertIn("not signed in", self.findings(here)["computer"]["text"])
            self.assertNotIn("computer", self.findings(here, PERPLEXITY_COMPUTER="off"))
            sign_in = dict.fromkeys(pro.SignIn._fields, "") | {"expires_at": 0.0}
            sign_in["resource"] = pro.Settings().computer_url
            folder = Path(here.folder, "data")
            folder.mkdir(exist_ok=True)
            (folder / "computer.json").write_text(json.dumps(sign_in), "utf-8")
            (folder / "computer.json").chmod(0o600)
            self.assertIn("computer login", self.bad(here)["computer"])
            text = json.dumps({**sign_in, "refresh": "r"})
            (folder / "computer.json").write_text(text, "utf-8")
            self.assertIn("signed in", self.findings(here)["computer"]["text"])

    def test_a_key_that_was_never_filled_in_is_named_with_its_file(self) -> None:
        with machine() as (here, home):
            path = home / ".lmstudio" / "mcp.json"
            path.parent.mkdir()
            here.line("setup lmstudio --write")
            self.assertEqual(self.bad(here), {"client lmstudio": f"put the key into {path}"})
            path.write_text(path.read_text("utf-8").replace("YOUR_KEY", "pplx-1"), "utf-8")
            self.assertEqual(self.bad(here), {})

    def test_a_large_or_odd_file_is_read_or_described_and_never_to_be_removed(self) -> None:
        with machine() as (here, home):
            path = home / ".claude.json"
            filler = json.dumps({"history": ["x" * 1000] * 9000, "mcpServers": {"a": {}}})
            path.write_text(filler, "utf-8")
            self.assertEqual(self.bad(here), {})
            odd = home / ".lmstudio" / "mcp.json"
            odd.parent.mkdir()
            odd.write_text('{"mcpServers": []}', "utf-8")
            found = self.findings(here)["client lmstudio"]
            self.assertEqual(found["text"], f'{odd}: its "mcpServers" is not an object')
            self.assertNotIn("remove", found["repair"])

    def test_certificates_that_cannot_be_used_are_named(self) -> None:
        with machine() as (here, home):
            empty = home / "empty.pem"
            empty.write_text("no certificate\n", "utf-8")
            cases = {
                str(home / "missing.pem"): "SSL_CERT_FILE names a file that cannot be read",
                str(empty): "SSL_CERT_FILE names a file without a certificate",
            }
            for path, text in cases.items():
                found = self.findings(here, SSL_CERT_FILE=path)["certificates"]
                self.assertEqual((found["ok"], found["text"]), (False, text))
            for folder in (home / "none", home):
                found = self.findings(here, SSL_CERT_DIR=str(folder))["certificates"]
                self.assertIn("SSL_CERT_DIR names no folder of certificates", found["text"])
            pem = str(ROOT / "tests" / "data" / "localhost.pem")
            self.assertTrue(self.findings(here, SSL_CERT_FILE=pem)["certificates"]["ok"])

    def test_a_folder_that_takes_no_file_is_told(self) -> None:
        with machine() as (here, _):
            here.line("usage")
            opened = os.open

            def refuse(path: Json, flags: int, *rest: Json) -> int:
                if flags & os.O_CREAT and Path(path).parent == Path(here.folder, "data"):
                    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
                return opened(path, flags, *rest)

            with mock.patch.object(os, "open", refuse):
                found = self.findings(here)["data folder"]
        self.assertFalse(found["ok"])
        self.assertIn("nothing can be stored", found["repair"])
        self.assertIn(os.strerror(errno.EROFS), found["repair"])

    def test_variables_that_nobody_reads_are_named(self) -> None:
        with machine() as (here, _):
            odd = self.bad(here, PERPLEXITY_MODLE="x")["settings"]
            self.assertIn("PERPLEXITY_MODLE is not read by this program; did you mean", odd)
            self.assertIn("PERPLEXITY_MODEL?", odd)
            old = self.bad(here, PERPLEXITY_HOST="0.0.0.0", PERPLEXITY_PORT="1")["settings"]  # noqa: S104
        for name in ("PERPLEXITY_HOST", "PERPLEXITY_PORT"):
            self.assertIn(f"{name} is not read by this program", old)

    def test_a_missing_key_is_told_once_and_nothing_is_sent(self) -> None:
        with machine() as (here, _):
            said = here.line("doctor", PERPLEXITY_API_KEY="")
            self.assertEqual(here.fake.requests, [])
        self.assertEqual(said.status, 1)
        self.assertEqual(said.out.count("none found"), 1)
        self.assertEqual(" ".join(said.out.split()).count("No Perplexity API key"), 1)

    def test_it_closes_what_it_opened_also_when_it_is_not_run_to_its_end(self) -> None:
        with machine() as (here, _), mock.patch.object(pro.Runtime, "close") as close:
            findings: Json = pro._findings(pro.read_settings(here.environ), offline=True)
            self.assertEqual(next(findings)[0], "python")
            close.assert_not_called()
            findings.close()
            close.assert_called_once_with()

    def test_a_folder_that_is_gone_stops_no_other_finding(self) -> None:
        with console() as here, mock.patch.object(Path, "cwd", side_effect=FileNotFoundError):
            self.assertEqual(list(self.bad(here)), ["clients"])

    def test_it_gives_the_api_less_than_five_seconds_and_one_attempt(self) -> None:
        asked: list[Json] = []

        def request(settings: Json, _: str, outgoing: Json, __: Json) -> Json:
            asked.append((settings, outgoing))
            raise pro.ToolError("network_timeout", "No answer.")

        began = time.monotonic()
        with machine() as (here, _), mock.patch.object(pro, "request", request):
            self.assertEqual(list(self.bad(here, "")), ["api"])
        settings, outgoing = asked[0]
        self.assertLess(time.monotonic() - began, 5)
        self.assertEqual((settings.max_attempts, len(asked)), (1, 1))
        self.assertLess(outgoing.deadline - began, 5)

    def test_marks_and_repairs_fit_a_terminal_that_has_only_ascii(self) -> None:
        with machine() as (here, _):
            raw = RawTerminal()
            out = io.TextIOWrapper(raw, encoding="ascii")
            settings = pro.read_settings({**here.environ, "PERPLEXITY_API_KEY": ""})
            screen = pro.Screen(out, None, settings)
            status = pro.command_line(["doctor", "--offline"], settings, screen)
            lines = raw.getvalue().decode("ascii").splitlines()
        self.assertEqual(status, 1)
        self.assertLessEqual(max(map(len, lines)), 79)
        self.assertIn("NO key           none found", lines)
        self.assertTrue({line[:2] for line in lines} <= {"ok", "NO", "  "})

    def test_unknown_words_are_2(self) -> None:
        with machine() as (here, _):
            said = here.line("doctor --everything")
        self.assertEqual((said.status, said.out), (2, ""))


class StoredKey(unittest.TestCase):
    FOLDERS = (".cursor", ".codex", ".config/Code/User", ".lmstudio", ".config/opencode", ".gemini")

    def test_a_key_that_was_stored_stays_out_of_clients_files(self) -> None:
        with machine() as (here, home):
            here.environ["PERPLEXITY_API_KEY"] = ""
            self.assertEqual(here.line("key set", stdin=here.fake.key.encode()).status, 0)
            for folder in self.FOLDERS:
                (home / folder).mkdir(parents=True)
            for word in ("cursor", "codex", "vscode", "lmstudio", "opencode", "gemini"):
                with self.subTest(client=word):
                    shown, said = here.line(f"setup {word}"), here.line(f"setup {word} --write")
                    self.assertEqual(said.status, 0, said.err)
                    path = pro.client_file(pro.CLIENTS[word], pro.own_place())
                    assert path
                    text = path.read_text("utf-8")
                    for secret in (here.fake.key, "YOUR_KEY", "PERPLEXITY_API_KEY", "inputs"):
                        self.assertNotIn(secret, shown.out + said.out + text)
                    # The key lies in the data folder, which the server must look into.
                    self.assertIn(f"{here.folder}/data", text)
                    last = f"Restart {pro.CLIENTS[word].title}."
                    self.assertEqual(said.err.splitlines()[-1], last)
            for word in pro.CLIENTS:
                self.assertNotIn("YOUR_KEY", here.line(f"setup {word}").out)

    def test_one_that_is_named_and_cannot_be_used_is_to_be_mended_not_stored_anew(self) -> None:
        with machine() as (here, home):
            nothing, opened = home / "none", home / "open"
            opened.write_text(here.fake.key, "utf-8")
            opened.chmod(0o644)
            cases: list[tuple[dict[str, str], str]] = [
                ({"PERPLEXITY_API_KEY": "two words"}, "PERPLEXITY_API_KEY holds characters"),
                (
                    {"PERPLEXITY_API_KEY": "", "PERPLEXITY_API_KEY_FILE": str(nothing)},
                    f"PERPLEXITY_API_KEY_FILE names {nothing}, which is no file; mend it or unset "
                    "the variable.",
                ),
            ]
            if os.name != "nt":
                named = {"PERPLEXITY_API_KEY": "", "PERPLEXITY_API_KEY_FILE": str(opened)}
                cases.append((named, f"which can be read by others: chmod 600 {opened}"))
            for named, words in cases:
                for line in ("ask q", "key status", "doctor --offline --json", "key set"):
                    with self.subTest(words=words, line=line):
                        said = here.line(line, stdin=here.fake.key.encode(), **named)
                        told = said.out + said.err
                        self.assertIn("The key cannot be used: PERPLEXITY_API_KEY", told)
                        self.assertIn(words, told)
                        for other in ("No Perplexity API key", "Make one at", "none found"):
                            self.assertNotIn(other, told)
                        if line == "key set":
                            self.assertRegex(
                                said.err, r"Warning: PERPLEXITY_API_KEY\w* is set too,"
                            )
            stored = Path(here.folder, "data", pro.STORED_KEY)
            if os.name != "nt":
                stored.chmod(0o644)
                said = here.line("ask q", PERPLEXITY_API_KEY="")
                words = (
                    f"The key cannot be used: {stored} can be read by others: chmod 600 {stored}"
                )
                self.assertIn(f"{words}.", said.err)

    def test_a_variable_before_the_stored_key_is_warned_of(self) -> None:
        with machine() as (here, _):
            said = here.line("key set", stdin=here.fake.key.encode())
            self.assertIn("Warning: PERPLEXITY_API_KEY is set too, and comes first.\n", said.err)

    def test_a_placeholder_beside_a_stored_key_is_no_fault(self) -> None:
        with machine() as (here, home):
            (home / ".lmstudio").mkdir()
            here.line("setup lmstudio --write")
            here.line("key set", stdin=here.fake.key.encode())
            said = here.line("doctor --offline --json").json()
        self.assertEqual([one["name"] for one in said if not one["ok"]], [])


class NoFolder(unittest.TestCase):
    def test_without_a_usable_data_folder_nothing_is_touched_elsewhere(self) -> None:
        flaw = "PERPLEXITY_DATA_DIR holds a placeholder that was never filled in."
        with console() as here:
            home = Path(here.folder, "home")
            (home / ".perplexity-pro").mkdir(parents=True)
            places = {"HOME": str(home), "USERPROFILE": str(home)}
            odd = {**places, "PERPLEXITY_DATA_DIR": "${HOME}/x"}
            here.run("key", "set", stdin=b"pplx-" + b"k2" * 20, **places, PERPLEXITY_DATA_DIR="")
            before = sorted(home.rglob("*"))
            for line in (
                "key set", "key clear", "setup cursor", "setup cursor --write", "usage",
                "chat delete 1 --yes", "projects delete default --yes", "computer status",
                "computer login --no-browser", "ask q", "ask q --dry-run",
            ):  # fmt: skip
                said = here.run(*line.split(), stdin=b"pplx-" + b"a1" * 20, **odd)
                self.assertIn(flaw, said.err, line)
                self.assertEqual(said.out, "", line)
                self.assertNotEqual(said.status, 0, line)
            seen = here.line("doctor --offline", **odd)
            self.assertEqual((seen.status, seen.err), (1, ""))
            self.assertIn("data folder", seen.out)
            self.assertEqual(sorted(home.rglob("*")), before)
            self.assertEqual(here.fake.requests, [])


class Audit(unittest.TestCase):
    def test_of_a_proxy_host_and_port_are_shown_and_no_password(self) -> None:
        cases = {
            "user:pass@proxy.example:3128": "https_proxy: proxy.example:3128",
            "http://user:pass@proxy.example:3128": "https_proxy: proxy.example:3128",
            "user:pass@proxy.example": "https_proxy: proxy.example:80",
            "http://[pass": "https_proxy: cannot be used as an address",
            "user:pa/ss@proxy.example": "https_proxy: cannot be used as an address",
            "http://proxy.example:pass": "https_proxy: cannot be used as an address",
        }
        with console() as here:
            for value, shown in cases.items():
                said = here.line("audit", HTTPS_PROXY=value)
                with self.subTest(proxy=value):
                    self.assertEqual((said.status, said.err), (0, ""))
                    self.assertIn(f"  {shown}\n", said.out)
                    self.assertNotIn("pass", said.out)

    def test_nor_one_of_what_no_proxy_is_for(self) -> None:
        with console() as here:
            out = here.line("audit", NO_PROXY="http://user:pass@host.example,b.example").out
            self.assertIn("  no_proxy: host.example, b.example\n", out)
            self.assertNotIn("pass", out)

    def test_every_folder_and_variable_that_is_used_is_named(self) -> None:
        places = {"PERPLEXITY_FILES_DIR": "/some/images", "PERPLEXITY_API_KEY_FILE": "/some/key"}
        with console() as here:
            out = here.line("audit", **places).out
            stored = f"{here.folder}/data/{pro.STORED_KEY}"
            for name in (*places.values(), f"{here.folder}/data", stored):
                self.assertIn(name, out)
        for variable in pro.VARIABLES:
            self.assertIn(f"  {variable.name}\n", out)


class Launching(unittest.TestCase):
    HELLO = (
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
        '"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n'
    )

    def launch(self, **changed: Any) -> pro.Launch:
        """How this program is started where sys or the module differ."""
        with contextlib.ExitStack() as stack:
            for name, value in changed.items():
                owner = pro if name == "__file__" else sys
                stack.enter_context(mock.patch.object(owner, name, value))
            return pro.own_launch(pro.Settings())

    def test_what_is_written_starts_the_server_and_runs_nothing_of_the_working_folder(self) -> None:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as beside:
            own = Path(beside, "perplexity_pro_mcp.py")
            shutil.copy(ROOT / own.name, own)
            for name in ("json", "datetime", "secrets", "random", "sqlite3", "hashlib"):
                for trap in (Path(folder, f"{name}.py"), Path(beside, f"{name}.py")):
                    trap.write_text("raise SystemExit('trapped')", "utf-8")
            launch = self.launch(__file__=str(own))
            self.assertTrue(os.access(launch.command, os.X_OK))
            done = subprocess.run(
                [launch.command, *launch.args],
                cwd=folder,
                env={**ENVIRON, "HOME": folder, "PYTHONPATH": folder},
                input=self.HELLO,
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(list(Path(beside, "__pycache__").glob("perplexity_pro_mcp.*.pyc")))
        self.assertEqual(json.loads(done.stdout)["result"]["serverInfo"]["name"], pro.NAME)

    def test_a_copy_in_the_cache_of_uvx_or_pipx_is_started_through_it(self) -> None:
        below = ("lib", "site-packages", "perplexity_pro_mcp.py")
        cases = {
            ("uv", "archive-v0", "x1"): ("uvx", (pro.NAME,)),
            (".cache", "pipx", "4f2a"): ("pipx", ("run", pro.NAME)),
            ("pipx", "venvs", "perplexity-pro-mcp"): (pro.NAME, ()),
        }
        for parts, (program, words) in cases.items():
            copy = str(Path(*parts, *below).absolute())
            with mock.patch("shutil.which", side_effect=lambda name: f"bin/{name}"):
                launch = self.launch(__file__=copy)
            self.assertEqual(launch, pro.Launch(str(Path("bin", program).absolute()), words))
        copy = str(Path("archive-v0", "x1", *below).absolute())
        with (
            mock.patch("shutil.which", return_value=None),
            mock.patch.object(pro, "__file__", copy),
            machine() as (here, _),
        ):
            said = here.line("setup claude-desktop")
        self.assertIn('"command": "uvx"', said.out)
        self.assertTrue(said.err.startswith("uvx is not on the PATH; put its absolute"), said.err)

    def test_an_interpreter_in_a_cache_gives_way_to_the_one_below_it(self) -> None:
        cached = str(Path("/c/uv/environments-v2/pro-1f/bin/python"))
        launch = self.launch(executable=cached, _base_executable="/opt/py/bin/python3.13")
        self.assertEqual(launch.command, "/opt/py/bin/python3.13")
        self.assertEqual(self.launch(executable="/home/u/venv/bin/python").command[:7], "/home/u")

    def test_an_installed_copy_without_its_script_is_started_as_a_module(self) -> None:
        own = str(Path("/v/lib/site-packages/perplexity_pro_mcp.py"))
        with mock.patch("shutil.which", return_value=None):
            launch = self.launch(__file__=own, executable="/v/bin/python")
        self.assertEqual(launch, pro.Launch("/v/bin/python", ("-I", "-m", "perplexity_pro_mcp")))

    def test_a_clone_below_a_folder_named_like_a_tool_is_started_as_it_is(self) -> None:
        clone = str(Path("/src/uv/perplexity_pro_mcp.py"))
        self.assertIn(repr(str(Path(clone).resolve().parent)), self.launch(__file__=clone).args[-1])


class Elsewhere(unittest.TestCase):
    """Clients whose folder is not the usual one."""

    def written(self, word: str, home: Path, folders: dict[str, Path], platform: str) -> Path:
        place = pro.Place(home, folders, platform, home / "project")
        plan = pro.plan_write(pro.CLIENTS[word], place, pro.Launch("x", ("y",)))
        pro.write_client(pro.CLIENTS[word], plan, pro.Launch("x", ("y",)))
        found = [one.path for one in pro.found_clients(place) if one.client.word == word]
        self.assertIn(plan.path, found)
        return Path(plan.path)

    def test_a_clients_own_variable_for_its_folder_is_followed(self) -> None:
        moved = {
            "codex": ("CODEX_HOME", "config.toml"),
            "grok": ("GROK_HOME", "config.toml"),
            "copilot-cli": ("COPILOT_HOME", "mcp-config.json"),
            "cline": ("CLINE_DIR", "data/settings/cline_mcp_settings.json"),
            "gemini": ("GEMINI_CLI_HOME", ".gemini/settings.json"),
            "zed": ("XDG_CONFIG_HOME", "zed/settings.json"),
            "amp": ("XDG_CONFIG_HOME", "amp/settings.json"),
            "opencode": ("XDG_CONFIG_HOME", "opencode/opencode.json"),
            "claude-desktop": ("XDG_CONFIG_HOME", "Claude/claude_desktop_config.json"),
            "vscode": ("XDG_CONFIG_HOME", "Code/User/mcp.json"),
        }
        for word, (variable, way) in moved.items():
            for inside in (True, False):
                with self.subTest(client=word), tempfile.TemporaryDirectory() as folder:
                    base = Path(folder).resolve()
                    home = base / "home"
                    there = (home if inside else base) / "moved"
                    (there / way).parent.mkdir(parents=True)
                    home.mkdir(exist_ok=True)
                    path = self.written(word, home, {variable: there}, "linux")
                    self.assertEqual(path, there / way)

    def test_a_variable_of_this_process_is_the_one_that_counts(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder).resolve() / "codex").mkdir()
            environ = {"HOME": folder, "USERPROFILE": folder, "CODEX_HOME": f"{folder}/codex"}
            with mock.patch.dict(os.environ, environ), console() as here:
                said = here.line("setup codex --write")
            self.assertEqual(said.status, 0, said.err)
            self.assertTrue(Path(folder, "codex", "config.toml").exists())

    def test_a_file_with_comments_beside_the_usual_one_is_the_one_that_is_edited(self) -> None:
        for word, name in (("opencode", "opencode"), ("amp", "settings")):
            with tempfile.TemporaryDirectory() as folder:
                home = Path(folder).resolve()
                path = home / ".config" / word / f"{name}.jsonc"
                path.parent.mkdir(parents=True)
                path.write_text("{\n  // mine\n}\n", "utf-8")
                self.assertEqual(self.written(word, home, {}, "linux"), path)
                names = {item.name for item in path.parent.iterdir()}
                self.assertEqual(names, {path.name, f"{path.name}.bak"})

    def test_the_packaged_desktop_client_of_windows_has_a_folder_of_its_own(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder).resolve()
            roaming = home / "AppData/Roaming/Claude"
            package = home / "AppData/Local/Packages/Claude_x1/LocalCache/Roaming/Claude"
            roaming.mkdir(parents=True)
            path = self.written("claude-desktop", home, {}, "win32")
            self.assertEqual(path.parent, roaming)
            package.mkdir(parents=True)
            path = self.written("claude-desktop", home, {}, "win32")
            self.assertEqual(path.parent, package)


if __name__ == "__main__":
    unittest.main()
