"""The server as a process: what only shows from outside. Streams, signals, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any

from fake_perplexity import Answer, FakePerplexity
from support import IMPORT, INITIALIZE, META, ROOT, WAIT_S, ServerProcess, cancel, pro, request
from support import tool_call as call

Json = Any
FILE = ROOT / "perplexity_pro_mcp.py"
POSIX = os.name != "nt"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if POSIX else ()
ENOUGH = {"PATH": os.defpath} if POSIX else dict(os.environ)

# The program as a module, which starts faster than as a script; and the place to change limits,
# or to add a tool that disturbs, since neither is a setting.
DRIVER = f"""
import os
{IMPORT}
{{change}}
sys.exit(pro.main([]))
"""
NOISE = """
HELP = pro.TOOLS["perplexity_help"]
def noisy(call, args: pro.arguments_of(HELP)) -> HELP.handler.__annotations__["return"]:
    print("a stray print")
    sys.__stdout__.flush()
    {more}
    return HELP.handler(call, args)
pro.tool("Noise.", "More.", cost="nothing", effects=pro.Effects(), examples=({{}},))(noisy)
"""


def program(change: str = "") -> tuple[str, str]:
    """The interpreter's arguments for the driver."""
    return "-c", DRIVER.format(change=change)


ASK = call(1, "ask", query="What is new in Python?")


class ProcessTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.fake = FakePerplexity().start()
        self.addCleanup(self.fake.stop)
        self.environment = {
            **ENOUGH,
            "PERPLEXITY_BASE_URL": self.fake.url,
            "PERPLEXITY_API_KEY": self.fake.key,
            "PERPLEXITY_DATA_DIR": str(self.folder / "data"),
        }

    def start(self, *, change: str = "", **environment: str) -> ServerProcess:
        return self.watch(ServerProcess({**self.environment, **environment}, *program(change)))

    def watch(self, server: ServerProcess) -> ServerProcess:
        self.addCleanup(server.kill)
        return server

    def begin(self, *, change: str = "", **environment: str) -> ServerProcess:
        server = self.start(change=change, **environment)
        server.ask(INITIALIZE)
        return server

    def rows(self, sql: str) -> list[Any]:
        """What the database holds, read by another program."""
        with contextlib.closing(sqlite3.connect(self.folder / "data" / "perplexity.db")) as db:
            return db.execute(sql).fetchall()

    def events(self) -> list[Any]:
        return self.rows("SELECT status, cost_nano_usd > 0 FROM usage_events")

    def assert_pure(self, server: ServerProcess) -> None:
        """Every byte on standard output belongs to an object on a line of its own."""
        self.assertNotIn(b"\r", server.written)
        self.assertTrue(server.written.isascii())
        self.assertTrue(server.written.endswith(b"\n"))
        for line in server.written.splitlines():
            self.assertEqual(json.loads(line)["jsonrpc"], "2.0")

    def assert_quiet(self, server: ServerProcess) -> None:
        self.assertEqual(server.errors(), "")


class Streams(ProcessTest):
    def test_the_self_test_by_piping_gives_exactly_two_lines(self) -> None:
        lines = [INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
        lines.append(request(2, "tools/list"))
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        done = subprocess.run(
            [sys.executable, str(FILE)],
            input=data,
            capture_output=True,
            env=self.environment,
            timeout=WAIT_S,
            check=True,
        )
        self.assertEqual([json.loads(x)["id"] for x in done.stdout.splitlines()], [0, 2])
        self.assertEqual(done.stderr, b"")

    def test_a_start_loads_nothing_that_only_calls_need(self) -> None:
        told = "os.write(2, ' '.join({*sys.modules} - before).encode())"
        server = self.begin(
            change="before = {*sys.modules}\n"
            f"pro.leave = lambda status: ({told}, os._exit(status))"
        )
        self.assertIn("result", server.ask(request(1, "tools/list")))
        self.assertEqual(server.end(), 0)
        late = {"decimal", "email", "http", "logging", "pathlib", "socket", "sqlite3", "ssl"}
        self.assertEqual(late & set(server.errors().split()), set())

    def test_output_is_pure_whatever_the_tools_meet(self) -> None:
        server = self.start(
            PYTHONDEVMODE="1", PYTHONWARNINGS="always", PERPLEXITY_WAIT_SECONDS="0.5"
        )
        server.ask(INITIALIZE)
        self.fake.script("POST /v1/agent", Answer(200, "<html>"), Answer(500, "x"), Answer(401))
        self.fake.script("POST /search", Answer(400, {"error": {"message": "no"}}), Answer(204))
        examples = [(tool, example) for tool in pro.TOOLS.values() for example in tool.examples * 2]
        for number, (tool, example) in enumerate(examples):
            params = {"name": tool.name, "arguments": example}
            server.send(request(number, "tools/call", params))
        self.assertEqual({server.receive()["id"] for _ in examples}, set(range(len(examples))))
        self.assertEqual(server.end(), 0)
        self.assert_pure(server)
        self.assertNotIn("Traceback", server.errors())

    def test_stray_prints_and_writes_reach_standard_error_only(self) -> None:
        server = self.begin(change=NOISE.format(more='os.write(1, b"a stray write")'))
        self.assertIn("result", server.ask(call(1, "noisy")))
        self.assertEqual(server.end(), 0)
        self.assert_pure(server)
        self.assertIn("a stray print", server.errors())
        self.assertIn("a stray write", server.errors())

    def test_stray_prints_do_no_harm_without_a_standard_error(self) -> None:
        server = self.begin(change=f"{NOISE.format(more='')}os.close(2); sys.stderr = None")
        self.assertIn("result", server.ask(call(1, "noisy")))
        self.assertEqual(server.end(), 0)
        self.assert_pure(server)

    def test_text_passes_unchanged_whatever_the_locale(self) -> None:
        text = "Größe 日本 🙂 ✓ \u2028 é"
        for environment in (
            {"PYTHONIOENCODING": "cp1252"},
            {"PYTHONIOENCODING": "ascii"},
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        ):
            with self.subTest(environment=environment):
                server = self.begin(**environment)
                message = json.dumps(call(1, "search", query=text), ensure_ascii=False)
                server.send(message.encode() + b"\n")
                result = server.receive()["result"]
                self.assertIs(result["isError"], False, result)
                self.assertIn(text, json.dumps(result["structuredContent"], ensure_ascii=False))
                self.assertEqual(self.fake.calls("POST", "/search")[-1].body["query"], text)
                self.assertEqual(server.end(), 0)
                self.assert_pure(server)

    def test_a_good_session_leaves_standard_error_empty(self) -> None:
        server = self.begin()
        self.assertIs(server.ask(ASK)["result"]["isError"], False)
        self.assertEqual(server.end(), 0)
        self.assert_quiet(server)

    @unittest.skipUnless(POSIX, "shells differ")
    def test_descriptors_closed_from_the_start_end_it_or_do_no_harm(self) -> None:
        for closed, lines in (("<&-", 0), (">&-", 0), ("2>&-", 2), ("<&- >&- 2>&-", 0)):
            with self.subTest(closed=closed):
                messages = (INITIALIZE, request(1, "ping"))
                data = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
                done = subprocess.run(
                    ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, *program()],
                    input=data,
                    capture_output=True,
                    env=self.environment,
                    timeout=WAIT_S,
                    check=False,
                )
                self.assertEqual(len(done.stdout.splitlines()), lines)
                self.assertNotIn(b"Traceback", done.stderr)

    def test_importing_the_module_does_nothing(self) -> None:
        home = self.folder / "home"
        home.mkdir()
        code = (
            f"import sys; out = sys.stdout\n{IMPORT}import threading\n"
            "print('x', sys.stdout is out, threading.active_count())"
        )
        done = subprocess.run(
            [sys.executable, "-B", "-c", code],
            capture_output=True,
            env={**ENOUGH, "HOME": str(home)},
            cwd=home,
            timeout=WAIT_S,
            check=True,
        )
        self.assertEqual(done.stdout.split(), [b"x", b"True", b"1"])
        self.assertEqual(list(home.iterdir()), [])


class Starting(ProcessTest):
    def test_it_starts_and_lists_without_a_key_and_calls_name_the_variable(self) -> None:
        del self.environment["PERPLEXITY_API_KEY"]
        server = self.begin()
        self.assertTrue(server.ask(request(1, "tools/list"))["result"]["tools"])
        result = server.ask(call(2, "ask", query="x"))["result"]
        self.assertIs(result["isError"], True)
        self.assertIn("PERPLEXITY_API_KEY", result["content"][0]["text"])
        self.assertIs(server.ask(call(3, "usage"))["result"]["isError"], False)
        self.assertEqual(self.fake.requests, [])

    def test_it_lists_at_once_and_pays_for_nothing_while_the_database_is_locked(self) -> None:
        server = self.begin()
        server.ask(call(1, "projects", action="list"))
        server.ask(ASK)
        server.end()
        database = self.folder / "data" / "perplexity.db"
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as db:
            db.execute("BEGIN EXCLUSIVE")
            other = self.begin(PERPLEXITY_DB_BUSY_TIMEOUT="0.1")
            self.assertTrue(other.ask(request(1, "tools/list"))["result"]["tools"])
            paid = len(self.fake.requests)
            refusal = other.ask(ASK)["result"]
            self.assertEqual(refusal["_meta"]["category"], "storage_busy")
            self.assertEqual(len(self.fake.requests), paid)

    def test_it_starts_in_a_bare_environment_with_an_unusable_home(self) -> None:
        blocker = self.folder / "file"
        blocker.write_text("")
        for home in ({}, {"HOME": str(blocker)}, {"HOME": "/proc/1"}):
            with self.subTest(home=home):
                environment = {
                    "PERPLEXITY_BASE_URL": self.fake.url,
                    "PERPLEXITY_API_KEY": self.fake.key,
                    **(home if POSIX else {**ENOUGH, **home}),
                }
                server = self.watch(ServerProcess(environment, *program(), cwd=FILE.anchor))
                server.ask(INITIALIZE)
                if home:  # a request whose cost could not be noted is not sent
                    text = server.ask(ASK)["result"]["content"][0]["text"]
                    self.assertIn("The data folder", text)
                    self.assertEqual(self.fake.requests, [])
                self.assertEqual(server.end(), 0)

    def test_the_list_is_short_on_the_wire_in_both_eras(self) -> None:
        server = self.begin()
        for params in ({}, {"_meta": META}):
            server.send(request(1, "tools/list", params))
            self.assertLessEqual(len(server.line()), 20_000)


class Load(ProcessTest):
    def test_ping_and_local_tools_answer_while_32_paid_calls_wait(self) -> None:
        gate = self.fake.hold("POST /v1/agent")
        server = self.begin()
        for tool in ("help", "usage", "projects"):
            server.ask(call(0, tool, **({"action": "list"} if tool == "projects" else {})))
        server.send(
            *[call(f"p{number}", "ask", query=f"Question {number}?") for number in range(32)]
        )
        self.fake.wait_for("POST /v1/agent", 32)
        for message in (
            request(1, "ping"),
            request(2, "tools/list"),
            call(3, "help"),
            call(4, "usage"),
            call(5, "projects", action="list"),
        ):
            times_s = []
            for _ in range(5):
                started_at = time.monotonic()
                self.assertEqual(server.ask(message)["id"], message["id"])
                times_s.append(time.monotonic() - started_at)
            self.assertLess(min(times_s), 0.1, message)
        gate.set()
        self.assertEqual(len({server.receive()["id"] for _ in range(32)}), 32)

    def test_a_cancelled_paid_call_is_not_answered_but_kept_and_recorded(self) -> None:
        gate = self.fake.hold("POST /v1/agent")
        server = self.begin()
        server.send(ASK)
        self.fake.wait_for("POST /v1/agent", 1)
        server.send(cancel(1))
        self.assertEqual(server.ask(request(2, "ping"))["id"], 2)
        gate.set()
        jobs: list[Json] = []
        ends_at = time.monotonic() + WAIT_S
        while not jobs and time.monotonic() < ends_at:
            answer = server.ask(call(3, "jobs", action="list"))
            jobs = answer["result"]["structuredContent"]["jobs"]
        self.assertNotIn(b'"id":1,', server.written)
        self.assertEqual(server.end(), 0)
        self.assertEqual(self.events(), [("ok", 1)])
        self.assertEqual(self.rows("SELECT status FROM research_jobs"), [("completed",)])


class Asking(ProcessTest):
    def test_a_project_is_deleted_once_the_user_agrees_in_either_era(self) -> None:
        server = self.start()
        params: Json = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}}
        server.ask(request(0, "initialize", params))
        yes: Json = {"action": "accept", "content": {"agree": True}}
        delete = call(2, "projects", action="delete", project="old")

        server.ask(call(1, "ask", query="What is new?", project="old"))
        question = server.ask(delete)
        self.assertIn("old", question["params"]["message"])
        answer = server.ask({"jsonrpc": "2.0", "id": question["id"], "result": yes})
        self.assertIs(answer["result"]["isError"], False, answer)

        server.ask(call(1, "ask", query="What else is new?", project="old"))
        forms: Json = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        delete["params"]["_meta"] = {**META, **forms}
        asking = server.ask(delete)["result"]
        self.assertEqual(asking["resultType"], "input_required")
        state = asking["requestState"]
        delete["params"].update(requestState=state, inputResponses={"confirm": yes})
        self.assertIs(server.ask(delete)["result"]["isError"], False)
        self.assertEqual(server.end(), 0)
        self.assert_pure(server)
        self.assert_quiet(server)

    def test_a_routed_call_is_asked_about_once_and_decided_once_in_the_modern_era(self) -> None:
        tiers = {f"PERPLEXITY_TIER_{tier.upper()}": "perplexity/sonar" for tier in pro.TIERS}
        server = self.start(PERPLEXITY_ROUTING="dynamic", PERPLEXITY_CONFIRM_USD="0", **tiers)
        message = call(1, "ask", query="What is new?")
        abilities: Json = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        message["params"]["_meta"] = {**META, **abilities}
        asking = server.ask(message)["result"]
        self.assertEqual(asking["resultType"], "input_required")
        answers: Json = {"confirm": {"action": "accept", "content": {"agree": True}}}
        message["params"].update(requestState=asking["requestState"], inputResponses=answers)
        self.assertIs(server.ask(message)["result"]["isError"], False)
        self.assertEqual(len(self.fake.calls("POST", "/v1/decisions")), 1)
        self.assertEqual(len(self.fake.calls("POST", "/v1/agent")), 1)


class Ending(ProcessTest):
    def held(
        self, route: str, message: Json, **options: Any
    ) -> tuple[ServerProcess, threading.Event]:
        """A server with a call in flight that the API does not answer."""
        gate = self.fake.hold(route)
        self.addCleanup(gate.set)
        server = self.begin(**options)
        count = len(self.fake.calls(*route.split()))
        server.send(message)
        self.fake.wait_for(route, count + 1)
        return server, gate

    def assert_ends_within(self, server: ServerProcess, limit_s: float, status: int = 0) -> None:
        started_at = time.monotonic()
        self.assertEqual(server.wait(), status)
        self.assertLess(time.monotonic() - started_at, limit_s)
        self.assertNotIn("Traceback", server.errors())

    def test_end_of_input_ends_it_at_once(self) -> None:
        server = self.begin()
        server.close()
        self.assert_ends_within(server, 1.0)
        self.assert_quiet(server)

    def test_input_that_is_empty_from_the_start_ends_it(self) -> None:
        server = self.watch(ServerProcess(self.environment, str(FILE), stdin=subprocess.DEVNULL))
        self.assert_ends_within(server, 2.0)
        self.assertEqual(server.written, b"")

    def test_threads_that_never_end_do_not_hold_it_up(self) -> None:
        endless = "import threading; threading.Thread(target=threading.Event().wait).start()"
        server = self.begin(change=endless)
        server.close()
        self.assert_ends_within(server, 2.0)

    def test_what_was_piped_in_is_answered_before_the_end(self) -> None:
        lines = (INITIALIZE, call(1, "usage"), ASK | {"id": 2})
        done = subprocess.run(
            [sys.executable, *program()],
            input=b"".join(json.dumps(line).encode() + b"\n" for line in lines),
            capture_output=True,
            env=self.environment,
            timeout=WAIT_S,
            check=True,
        )
        answers = {
            answer["id"]: answer["result"] for answer in map(json.loads, done.stdout.splitlines())
        }
        self.assertEqual(set(answers), {0, 1, 2})
        self.assertIs(answers[2]["isError"], False)
        self.assertEqual(done.stderr, b"")
        self.assertEqual(self.events(), [("ok", 1)])

    def test_a_call_in_flight_at_the_end_of_input_is_answered(self) -> None:
        for route, message in (("POST /v1/agent", ASK), ("GET /v1/models", call(1, "models"))):
            with self.subTest(route=route):
                server, gate = self.held(route, message)
                server.close()
                gate.set()
                self.assertIs(server.receive()["result"]["isError"], False)
                self.assert_ends_within(server, 2.0)
                self.assert_quiet(server)
        self.assertEqual(self.events(), [("ok", 1)])
        self.assertEqual(self.rows("SELECT status FROM research_jobs"), [])

    def test_what_is_late_at_the_end_of_input_is_handed_off_and_brought_home(self) -> None:
        server, gate = self.held("POST /v1/agent", ASK, PERPLEXITY_WAIT_SECONDS="0.5")
        server.close()
        self.assertIn("perplexity_jobs", json.dumps(server.receive()["result"]))
        gate.set()
        self.assert_ends_within(server, 2.0)
        self.assertEqual(self.events(), [("ok", 1)])
        self.assertEqual(self.rows("SELECT status FROM research_jobs"), [("completed",)])

    @unittest.skipUnless(POSIX, "Windows has no such signals")
    def test_free_calls_in_flight_do_not_delay_the_end_after_a_signal(self) -> None:
        server, _ = self.held("GET /v1/models", call(1, "models"))
        server.process.send_signal(signal.SIGTERM)
        self.assert_ends_within(server, 1.0)
        self.assertEqual(server.written.count(b"\n"), 1)

    @unittest.skipUnless(POSIX, "Windows has no such signals")
    def test_a_paid_answer_that_does_not_come_in_the_grace_stays_interrupted(self) -> None:
        server, _ = self.held("POST /v1/agent", ASK, change="pro.EXIT_GRACE_S = 0.8")
        server.process.send_signal(signal.SIGTERM)
        self.assert_ends_within(server, 1.5)
        self.assert_quiet(server)
        self.assertEqual(self.events(), [("interrupted", 0)])
        jobs = self.rows("SELECT status, error_text LIKE '%billed%' FROM research_jobs")
        self.assertEqual(jobs, [("lost", 1)])
        self.assertEqual(self.rows("PRAGMA integrity_check"), [("ok",)])

    def test_what_another_program_locks_out_is_written_until_the_end_of_the_grace(self) -> None:
        server, gate = self.held(
            "POST /v1/agent", ASK, PERPLEXITY_DB_BUSY_TIMEOUT="0.1", PERPLEXITY_LOG_LEVEL="INFO"
        )
        path = self.folder / "data" / "perplexity.db"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            gate.set()
            self.assertIs(server.receive()["result"]["isError"], False)
            server.close()
            server.wait_for_note("ending")
            with self.assertRaises(subprocess.TimeoutExpired):
                server.process.wait(0.5)
            db.execute("ROLLBACK")
        self.assert_ends_within(server, 2.0)
        self.assertEqual(self.events(), [("ok", 1)])

    @unittest.skipUnless(POSIX, "Windows has no such signals")
    def test_one_signal_ends_an_idle_server_quietly(self) -> None:
        for number in SIGNALS:
            with self.subTest(signal=number):
                server = self.begin()
                server.process.send_signal(number)
                self.assert_ends_within(server, 1.0)
                self.assert_quiet(server)

    @unittest.skipUnless(POSIX, "Windows has no such signals")
    def test_a_paid_answer_under_way_is_delivered_after_a_signal(self) -> None:
        for numbers in (*((number,) for number in SIGNALS), (signal.SIGINT, signal.SIGTERM)):
            with self.subTest(signals=numbers):
                server, gate = self.held("POST /v1/agent", ASK, PERPLEXITY_LOG_LEVEL="INFO")
                for number in numbers:
                    server.process.send_signal(number)
                server.wait_for_note("ending")
                gate.set()
                self.assertIs(server.receive()["result"]["isError"], False)
                self.assert_ends_within(server, 2.0)
        self.assertEqual(self.events(), [("ok", 1)] * (len(SIGNALS) + 1))

    @unittest.skipUnless(POSIX, "Windows has no such signals")
    def test_an_index_ends_between_batches_after_a_signal_and_says_what_is_stored(self) -> None:
        items = [{"key": f"k{n}", "text": f"text {n}"} for n in range(65)]
        index = call(1, "embed", action="index", source="text", items=items)
        server, gate = self.held("POST /v1/embeddings", index, PERPLEXITY_LOG_LEVEL="INFO")
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_note("ending")
        gate.set()
        result = server.receive()["result"]["structuredContent"]
        self.assertEqual((result["embedded_chunks"], result["remaining"]), (64, 1), result)
        self.assertIn("The server ends; call again", " ".join(result["warnings"]))
        self.assert_ends_within(server, 2.0)
        self.assertEqual(len(self.fake.calls("POST", "/v1/embeddings")), 1)

    @unittest.skipUnless(POSIX, "Windows has no such signals")
    def test_nothing_new_is_sent_after_a_signal(self) -> None:
        server, gate = self.held("POST /v1/agent", ASK, PERPLEXITY_LOG_LEVEL="INFO")
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_note("ending")
        server.send(call(2, "search", query="more"))
        gate.set()
        self.assertEqual(server.receive()["id"], 1)
        self.assert_ends_within(server, 2.0)
        self.assertEqual(self.fake.calls("POST", "/search"), [])

    @unittest.skipUnless(POSIX, "Windows has no such signals")
    def test_an_attempt_that_waits_to_be_repeated_is_given_up_after_a_signal(self) -> None:
        self.fake.script("POST /search", Answer(429, {}, (("Retry-After", "5"),)))
        server = self.begin()
        server.send(call(1, "search", query="x"))
        self.fake.wait_for("POST /search", 1)
        server.process.send_signal(signal.SIGTERM)
        self.assert_ends_within(server, 2.0)
        self.assertEqual(len(self.fake.calls("POST", "/search")), 1)
        self.assertEqual(self.rows("SELECT count(*) FROM usage_events WHERE status = 'ok'"), [(0,)])

    @unittest.skipUnless(POSIX, "Windows has no such signals")
    def test_the_same_signal_twice_ends_it_at_once(self) -> None:
        server, _ = self.held("POST /v1/agent", ASK, PERPLEXITY_LOG_LEVEL="INFO")
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_note("ending")
        server.process.send_signal(signal.SIGTERM)
        self.assert_ends_within(server, 1.0, 128 + signal.SIGTERM)

    @unittest.skipUnless(POSIX, "Windows has no such signals")
    def test_a_signal_after_the_end_of_input_shortens_it(self) -> None:
        change = "pro.EXIT_GRACE_S = 0.8"
        server, _ = self.held("POST /v1/agent", ASK, change=change)
        server.close()
        server.process.send_signal(signal.SIGTERM)
        self.assert_ends_within(server, 2.0)

    @unittest.skipUnless(POSIX, "Windows has no such signals")
    def test_a_hang_up_that_is_ignored_on_purpose_does_not_end_it(self) -> None:
        change = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
        server = self.begin(change=change)
        server.process.send_signal(signal.SIGHUP)
        self.assertTrue(server.quiet())
        self.assertEqual(server.end(), 0)

    @unittest.skipUnless(POSIX, "Windows numbers its files otherwise")
    def test_it_serves_although_its_parent_left_many_files_open(self) -> None:
        import resource

        if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1300:
            self.skipTest("too few files allowed")
        numbers = [os.dup(0) for _ in range(1100)]
        for number in numbers:
            self.addCleanup(os.close, number)
        server = self.watch(ServerProcess(self.environment, *program(), pass_fds=numbers))
        self.assertEqual(server.ask(INITIALIZE)["id"], 0)
        self.assertIn("result", server.ask(call(1, "usage")))
        self.assertEqual(server.end(), 0)

    @unittest.skipUnless(POSIX, "needs a terminal of its own")
    def test_a_terminal_as_input_ends_it_as_a_pipe_does(self) -> None:
        import pty

        for number in SIGNALS:
            with self.subTest(signal=number):
                controller, terminal = pty.openpty()
                server = self.watch(
                    ServerProcess(self.environment, str(FILE), "serve", stdin=terminal)
                )
                os.close(terminal)
                os.write(controller, json.dumps(INITIALIZE).encode() + b"\n")
                self.assertEqual(server.receive()["id"], 0)
                server.process.send_signal(number)
                self.assert_ends_within(server, 1.0)
                os.close(controller)

    def test_a_client_that_stopped_reading_ends_it_and_answers_are_kept(self) -> None:
        gate = self.fake.hold("POST /v1/agent")
        reader, writer = os.pipe()
        server = self.watch(ServerProcess(self.environment, str(FILE), stdout=writer))
        os.close(writer)
        server.send(INITIALIZE)
        self.assertTrue(os.read(reader, 10_000).endswith(b"}\n"))
        server.send(ASK)
        self.fake.wait_for("POST /v1/agent", 1)
        os.close(reader)
        gate.set()
        if not POSIX:
            server.close()
        self.assert_ends_within(server, 3.0)
        self.assert_quiet(server)
        self.assertEqual(self.events(), [("ok", 1)])
        self.assertEqual(self.rows("SELECT status FROM research_jobs"), [("completed",)])

    @unittest.skipUnless(POSIX, "processes end differently")
    def test_it_does_not_outlive_a_client_that_was_killed(self) -> None:
        self.fake.hold("POST /v1/agent")
        parent = (
            "import subprocess, sys; child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE);"
            f"child.stdin.write({json.dumps(INITIALIZE).encode() + bytes([10])!r});"
            "child.stdin.flush(); child.wait()"
        )
        server = self.watch(
            ServerProcess(self.environment, "-c", parent, sys.executable, str(FILE))
        )
        self.assertEqual(server.receive()["id"], 0)
        started_at = time.monotonic()
        server.process.kill()
        server.wait()  # until both of its streams end, which the orphan holds open
        self.assertLess(time.monotonic() - started_at, 2.0)
        self.assert_quiet(server)


if __name__ == "__main__":
    unittest.main()
