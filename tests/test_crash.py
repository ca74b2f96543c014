"""Every step of a paid call is its last once: by the end of the process, by a failure, by a rival.

The steps are hooked from outside: transactions, the moments around sending, the reply, the result.
PERPLEXITY_TEST_EVERY=9 walks each ninth of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from fake_perplexity import FakePerplexity
from support import IMPORT, INITIALIZE, WAIT_S, Background, Desk, pro, tool_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

QUESTIONS = {f"q{n}": {"type": "noul", "instructions": "Is it?"} for n in range(130)}
TEXTS = [{"key": f"k{n}", "text": f"text {n}"} for n in range(70)]
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "ask": ("ask", {"query": "crash"}),
    "chat": ("chat", {"action": "send", "title": "t", "message": "crash"}),
    "research": ("research", {"query": "crash"}),
    "decide in parts": ("decide", {"state": "x", "questions": QUESTIONS}),
    "embed in batches": ("embed", {"action": "index", "source": "text", "items": TEXTS}),
}
WORKERS = 3
EVERY = int(os.environ.get("PERPLEXITY_TEST_EVERY", "1"))
PAID = ("/v1/agent", "/search", "/v1/decisions", "/v1/embeddings")

# Servers whose steps are counted; at one of them a server ends for good, or the step fails. Each is
# forked off a process that has loaded everything and started nothing.
CHILD = f"""
{IMPORT}
import contextlib, http.client, json, os, sqlite3, threading
pro.ready_to_send()
stop_at, how, taken, lock = -1, "none", [], threading.Lock()

def step(name, failure=None):
    with lock:
        taken.append(name)
        if len(taken) - 1 != stop_at:
            return
        os.write(2, ("at " + name + "\\n").encode())
        if how == "end":
            os._exit(9)
    if failure is not None and how != "none":
        raise failure

def trouble():
    text = {{"full": "database or disk is full", "locked": "database is locked"}}.get(how)
    return sqlite3.OperationalError(text) if text else None

real_transaction = pro._transaction
@contextlib.contextmanager
def transaction(db, begin):
    if begin != "BEGIN IMMEDIATE":
        with real_transaction(db, begin):
            yield
        return
    step("before a transaction", trouble())
    with real_transaction(db, begin):
        yield
        step("before a commit", trouble())
    step("after a transaction")
pro._transaction = transaction

real_pause = pro.PaidRequest.pause
def pause(request, seconds):
    real_pause(request, seconds)
    if not seconds:
        step("before sending", ConnectionResetError() if how == "reset" else None)
pro.PaidRequest.pause = pause

real_begin = http.client.HTTPResponse.begin
def begin(response):
    step("after sending", ConnectionResetError() if how == "reset" else None)
    real_begin(response)
    step("after the reply", ConnectionResetError() if how == "reset" else None)
http.client.HTTPResponse.begin = begin

real_send = pro.Wire.send
def send(wire, text, *more):
    if '"id":1' in text:
        step("before the result")
        real_send(wire, text, *more)
        step("after the result")
    else:
        real_send(wire, text, *more)
pro.Wire.send = send

for line in sys.stdin:
    case = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    stop_at, how = case["stop_at"], case["how"]
    for number, name in enumerate(("input", "output", "errors")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT
        os.dup2(os.open(os.path.join(case["folder"], name), flags, 0o600), number)
    status = pro.serve(pro.Runtime(pro.read_settings(case["variables"])))
    os.write(2, ("steps " + "|".join(taken) + "\\n").encode())
    os._exit(status)
"""


class Nursery:
    """The process that servers are forked off, one after the other."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", CHILD], stdin=pipe, stdout=pipe)

    def status_of(self, case: dict[str, Any]) -> int:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(case).encode() + b"\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(WAIT_S)
        self.process.stdout.close()


class Ended(NamedTuple):
    """What a server left behind."""

    status: int
    answers: list[dict[str, Any]]
    steps: list[str]
    at: str


@contextlib.contextmanager
def served(nursery: Nursery, kind: str, stop_at: int, how: str) -> Iterator[tuple[Ended, Desk]]:
    """The end of a server that got one call, and a desk that opens its folder afterwards."""
    with tempfile.TemporaryDirectory() as folder, FakePerplexity() as fake:
        desk = Desk(fake, folder, PERPLEXITY_BUDGET_DAILY_USD="100")
        desk.ok("usage")  # the database is there already
        desk.runtime.close()
        variables = {
            "PERPLEXITY_API_KEY": fake.key,
            "PERPLEXITY_BASE_URL": fake.url,
            "PERPLEXITY_DATA_DIR": f"{folder}/data",
            "PERPLEXITY_OBSERVE": "off",
        }
        tool, arguments = CALLS[kind]
        lines = [INITIALIZE, tool_call(1, tool, **arguments)]
        files = {name: Path(folder, name) for name in ("input", "output", "errors")}
        files["input"].write_text("".join(json.dumps(line) + "\n" for line in lines))
        case = {"stop_at": stop_at, "how": how, "folder": folder, "variables": variables}
        status = nursery.status_of(case)
        errors = files["errors"].read_text().splitlines()
        steps = next((e[6:] for e in errors if e.startswith("steps ")), "").split("|")
        at = next((e[3:] for e in errors if e.startswith("at ")), "")
        # A line may have been cut by the end; nobody can read that one.
        whole = files["output"].read_text().rpartition("\n")[0]
        answers = [json.loads(line) for line in whole.splitlines()]
        try:
            yield Ended(status, answers, steps, at), desk
        finally:
            desk.runtime.close()


def answer_of(ended: Ended) -> dict[str, Any] | None:
    """The result that the client has read, if any."""
    found = (a["result"] for a in ended.answers if a.get("id") == 1)
    return next((result for result in found if not result["isError"]), None)


LOOKING = threading.Lock()  # threads that patch the same limit would leave it patched


class Properties(unittest.TestCase):
    """What holds after whatever happened."""

    def assert_sound(self, ended: Ended, desk: Desk) -> None:
        fake = desk.fake
        sent = [seen for seen in fake.requests if seen.method == "POST" and seen.path in PAID]
        with contextlib.closing(sqlite3.connect(f"{desk.folder}/data/perplexity.db")) as db:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))
        fake.finish_all()
        with LOOKING, mock.patch.object(pro, "PENDING_LIFE_S", 0.0):
            jobs = self.jobs(desk)
            for job in jobs:
                seen = desk.ok("jobs", action="result", job_id=job["job_id"])
                self.assertIn(seen["status"], pro.TERMINAL_STATUSES)
        events = desk.events()
        self.assertLessEqual(len(sent), len(events))
        self.assertLessEqual(len(events), len(sent) + 2)  # some were noted, but not sent
        with desk.runtime.store.reading() as reading:
            (held,) = reading.execute("SELECT count(*) FROM holds").fetchone()
        unknown = [event for event in events if event["cost_source"] == "none"]
        self.assertEqual(held, len(unknown))
        spent = sum(event["cost_nano_usd"] for event in events)
        (cap,) = desk.ok("usage")["caps"]
        self.assertEqual(pro.read_usd(cap["spent_usd"]), spent)
        self.assertEqual(cap["reserved_usd"] == "0", not unknown)

    def jobs(self, desk: Desk) -> list[dict[str, Any]]:
        outcome = desk.run("jobs", action="list")
        found: list[dict[str, Any]] = outcome.structured.get("jobs", [])
        return found

    def assert_readable(self, kind: str, desk: Desk) -> None:
        """What the client did not get can be read, since it had been settled."""
        if kind == "embed in batches":
            self.assertGreater(desk.ok("embed", action="status")["groups"][0]["chunks"], 0)
            return
        ends = {job["status"] for job in self.jobs(desk)}
        self.assertIn("completed", ends)


@unittest.skipUnless(hasattr(os, "fork"), "servers are forked off one that has loaded everything")
class Endings(Properties):
    """The process ends for good at every step, or the step fails."""

    def setUp(self) -> None:
        self.nurseries: queue.SimpleQueue[Nursery] = queue.SimpleQueue()
        for _ in range(WORKERS):
            nursery = Nursery()
            self.nurseries.put(nursery)
            self.addCleanup(nursery.end)

    @contextlib.contextmanager
    def served(self, *case: Any) -> Iterator[tuple[Ended, Desk]]:
        nursery = self.nurseries.get()
        try:
            with served(nursery, *case) as found:
                yield found
        finally:
            self.nurseries.put(nursery)

    def walk(self, how: str, wanted: Callable[[str], bool]) -> int:
        """All cases of one kind of failure; how many steps were walked."""
        count = 0
        with ThreadPoolExecutor(WORKERS) as pool:
            whole = {kind: self.steps(kind) for kind in CALLS}
            cases = [
                (kind, at)
                for kind, steps in whole.items()
                for at, name in enumerate(steps)
                if wanted(name)
            ]
            for kind, at, problem in pool.map(
                lambda case: self.tried(case[0], case[1], how), cases[::EVERY]
            ):
                count += 1
                with self.subTest(kind=kind, step=at, name=whole[kind][at], how=how):
                    if problem:
                        raise problem
        return count

    def steps(self, kind: str) -> list[str]:
        with self.served(kind, -1, "none") as (ended, desk):
            self.assertIsNotNone(answer_of(ended), ended)
            self.assert_sound(ended, desk)
            if kind != "research":
                self.assertEqual(self.jobs(desk), [])
            return ended.steps

    def tried(self, kind: str, at: int, how: str) -> tuple[str, int, Exception | None]:
        try:
            with self.served(kind, at, how) as (ended, desk):
                self.assertTrue(ended.at, "the step was not reached")
                if how == "end":
                    self.assertEqual(ended.status, 9)
                else:
                    self.assertEqual(ended.status, 0)
                    self.assertEqual([a["id"] for a in ended.answers], [0, 1])
                self.assert_sound(ended, desk)
                settled = [e for e in desk.events() if e["status"] == "ok"]
                if settled and answer_of(ended) is None:
                    self.assert_readable(kind, desk)
        except Exception as error:  # noqa: BLE001 - told with its case
            return kind, at, error
        return kind, at, None

    def test_the_process_may_end_at_every_step(self) -> None:
        walked = self.walk("end", lambda _name: True)
        self.assertGreater(walked, 80 // EVERY)
        print(f"\n  {walked} steps at which the process ended", file=sys.stderr)

    def test_every_step_may_fail(self) -> None:
        walked = 0
        for how, names in (
            ("full", ("before a transaction", "before a commit")),
            ("locked", ("before a transaction", "before a commit")),
            ("reset", ("before sending", "after sending", "after the reply")),
        ):
            walked += self.walk(how, names.__contains__)
        print(f"\n  {walked} steps that failed", file=sys.stderr)


class Meeting:
    """Lets two calls meet: each stops at one of its steps until the other has reached its own."""

    def __init__(self, at: tuple[int, int], first: int) -> None:
        self.at, self.first = at, first
        self.calls: list[Any] = []
        self.taken = [0, 0]
        self.reached = [threading.Event(), threading.Event()]
        self.passed = [threading.Event(), threading.Event()]

    def step(self, number: int | None) -> None:
        if number is None:
            return
        self.taken[number] += 1
        if self.taken[number] - 1 != self.at[number]:
            return
        other = 1 - number
        self.reached[number].set()
        self.reached[other].wait(MEET_S)
        if number != self.first:
            self.passed[other].wait(MEET_S)
        self.passed[number].set()


MEET_S = 0.05  # a rival that cannot come is not waited for longer


class Rivals(Properties):
    """Two calls of the same kind meet at each pair of their steps, in both orders."""

    def met(self, kind: str, at: tuple[int, int], first: int) -> tuple[int, int]:
        """Both calls' steps, after everything that must hold was looked at."""
        tool, arguments = CALLS[kind]
        meeting, threads = Meeting(at, first), dict[int, int]()

        def step() -> None:
            meeting.step(threads.get(threading.get_ident()))

        real_writing, real_pause = pro.Store.writing, pro.PaidRequest.pause

        @contextlib.contextmanager
        def writing(store: Any, *more: Any) -> Any:
            step()
            with real_writing(store, *more) as db:
                yield db
            step()

        def pause(request: Any, seconds: float) -> None:
            step()
            real_pause(request, seconds)
            step()

        with tempfile.TemporaryDirectory() as folder, FakePerplexity() as fake:
            desk = Desk(fake, folder, PERPLEXITY_BUDGET_DAILY_USD="100")
            desk.ok("usage")
            with (
                mock.patch.object(pro.Store, "writing", writing),
                mock.patch.object(pro.PaidRequest, "pause", pause),
            ):
                calls = [desk.call(tool), desk.call(tool)]
                real_run = pro.run_tool

                def run(call: Any, raw: Any) -> Any:
                    threads[threading.get_ident()] = calls.index(call) if call in calls else -1
                    return real_run(call, raw)

                with mock.patch.object(pro, "run_tool", run):
                    both = [Background(desk, tool, call=call, **arguments) for call in calls]
                    outcomes = [one.join() for one in both]
            self.assertEqual([outcome.kind for outcome in outcomes], [None, None])
            sent = [seen for seen in fake.requests if seen.method == "POST"]
            if kind == "research":
                self.assertEqual(len(sent), 1)
            ended = Ended(0, [], [], "")
            self.assert_sound(ended, desk)
            desk.runtime.close()
        return meeting.taken[0], meeting.taken[1]

    def test_two_calls_may_meet_at_every_pair_of_steps_in_both_orders(self) -> None:
        pairs = 0
        for kind in ("ask", "research"):
            most = max(self.met(kind, (99, 99), 0))
            cases = [
                ((one, two), first)
                for one in range(most)
                for two in range(most)
                for first in (0, 1)
            ]
            for at, first in cases[::EVERY]:
                pairs += 1
                with self.subTest(kind=kind, at=at, first=first):
                    self.met(kind, at, first)
        print(f"\n  {pairs} meetings of two calls", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
