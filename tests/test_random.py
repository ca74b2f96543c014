"""Two servers on one folder, mixed calls, faults, cancels, locks and kills; then what must hold.

PERPLEXITY_TEST_SEED and PERPLEXITY_TEST_SECONDS choose another seed and another length.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import unittest
from typing import Any
from unittest import mock

from fake_perplexity import Answer, FakePerplexity
from support import IMPORT, INITIALIZE, Desk, ServerProcess, cancel, pro, tool_call

SEEDS = [int(seed) for seed in os.environ.get("PERPLEXITY_TEST_SEED", "1 2 3").split()]
SECONDS = float(os.environ.get("PERPLEXITY_TEST_SECONDS", "5"))
ROUTES = {
    "ask": "POST /v1/agent",
    "chat": "POST /v1/agent",
    "research": "POST /v1/agent",
    "search": "POST /search",
    "decide": "POST /v1/decisions",
    "embed": "POST /v1/embeddings",
}
PAID = tuple(route.split()[1] for route in ROUTES.values())
NO = {"error": {"message": "no"}}
FAULTS = [
    Answer(500, NO),
    Answer(400, NO),
    Answer(429, NO, (("retry-after", "0"),)),
    Answer(200, b"<html>"),
    Answer(fault="reset_after"),
]
PROGRAM = f"{IMPORT}\nsys.exit(pro.serve(pro.Runtime(pro.read_settings(dict(pro.os.environ)))))"


class Storm:
    """One seed's two servers, and what was asked of them."""

    def __init__(self, seed: int, fake: FakePerplexity, folder: str) -> None:
        self.luck = random.Random(seed)  # noqa: S311 - a fixed sequence
        self.fake, self.folder = fake, folder
        self.results: list[dict[str, Any]] = []
        self.kills = self.asked = self.cancels = self.limited = 0
        self.number = 0
        self.servers = [self.begin(), self.begin()]

    def begin(self) -> ServerProcess:
        variables = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PERPLEXITY_")},
            "PERPLEXITY_API_KEY": self.fake.key,
            "PERPLEXITY_BASE_URL": self.fake.url,
            "PERPLEXITY_DATA_DIR": f"{self.folder}/data",
            "PERPLEXITY_OBSERVE": "off",
            "PERPLEXITY_WAIT_SECONDS": "2",
            "PERPLEXITY_BUDGET_MONTHLY_USD": "5",
        }
        server = ServerProcess(variables, "-c", PROGRAM)
        server.send(INITIALIZE)
        return server

    def call(self) -> None:
        """One more call, of any kind, to any server."""
        tool, n = self.luck.choice([*ROUTES, "ask", "ask", "jobs", "usage"]), self.luck.randrange(6)
        question = {"type": "noul", "instructions": f"Is it {n}?"}
        each: dict[str, dict[str, Any]] = {
            "ask": {"query": f"q{n}"},
            "chat": {"action": "send", "title": f"t{n}", "message": f"m{n}"},
            "research": {"query": f"r{n}"},
            "search": {"query": f"s{n}"},
            "decide": {"state": f"x{n}", "questions": {f"q{m}": question for m in range(130)}},
            "embed": {
                "action": "index",
                "source": "text",
                "items": [{"key": f"k{m}", "text": f"t{n} {m}"} for m in range(70)],
            },
            "jobs": {"action": "list", "refresh": self.luck.random() < 0.5},
            "usage": {},
        }
        if tool in ROUTES and self.luck.random() < 0.25:
            fault: Any = self.luck.choice(FAULTS)
            if fault.status == 200 and self.luck.random() < 0.5:
                fault = Answer(500, NO)
            self.limited += fault.status == 429
            self.fake.script(ROUTES[tool], fault)
        self.number += 1
        self.asked += 1
        server = self.luck.choice(self.servers)
        with contextlib.suppress(OSError):
            server.send(tool_call(self.number, tool, **each[tool]))
            if self.luck.random() < 0.15:
                self.cancels += 1
                server.send(cancel(self.number))

    def lock(self) -> None:
        """Another program holds the database for a moment."""
        path, busy = f"{self.folder}/data/perplexity.db", sqlite3.OperationalError
        with contextlib.closing(sqlite3.connect(path)) as other, contextlib.suppress(busy):
            other.execute("BEGIN IMMEDIATE")
            threading.Event().wait(0.05)
            other.rollback()

    def kill(self) -> None:
        """One server is gone for good, and another takes its place."""
        which = self.luck.randrange(2)
        self.kills += 1
        self.end(self.servers[which], kill=True)
        self.servers[which] = self.begin()

    def end(self, server: ServerProcess, *, kill: bool = False) -> None:
        """A server's end; what it has answered is kept."""
        if kill:
            server.process.send_signal(signal.SIGKILL if os.name != "nt" else signal.SIGTERM)
        server.close()
        server.wait()
        for line in server.written.splitlines():
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if "isError" in message.get("result", {}):
                    self.results.append(message["result"])
        server.kill()

    def rage(self) -> None:
        """Everything at once, for as long as it was asked for."""
        ends_at = time.monotonic() + SECONDS
        while time.monotonic() < ends_at:
            chance = self.luck.random()
            if chance < 0.02:
                self.kill()
            elif chance < 0.05:
                self.lock()
            elif chance < 0.2:
                threading.Event().wait(0.02)
            else:
                self.call()
        for server in self.servers:
            self.end(server)


class Invariants(unittest.TestCase):
    def test_they_hold_whatever_happens(self) -> None:
        for seed in SEEDS:
            with (
                self.subTest(seed=seed),
                tempfile.TemporaryDirectory() as folder,
                FakePerplexity() as fake,
            ):
                Desk(fake, folder).ok("usage")
                storm = Storm(seed, fake, folder)
                storm.rage()
                self.look(storm)

    def look(self, storm: Storm) -> None:
        fake, path = storm.fake, f"{storm.folder}/data/perplexity.db"
        sent = [seen for seen in fake.requests if seen.method == "POST" and seen.path in PAID]
        fake.finish_all()
        settings = {"BUDGET_MONTHLY_USD": "5", "MAX_RESULT_CHARS": "1000000"}
        desk = Desk(fake, storm.folder, **{f"PERPLEXITY_{n}": v for n, v in settings.items()})
        with contextlib.closing(sqlite3.connect(path)) as db:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))
        # No job is promised that does not exist, and none that never ends.
        with mock.patch.object(pro, "PENDING_LIFE_S", 0.0):
            most = desk.ok("jobs", action="list")["jobs_total"]
            offsets = range(0, most + 1, 100)
            pages = [desk.ok("jobs", action="list", limit=100, offset=n) for n in offsets]
            jobs = {job["job_id"]: job for page in pages for job in page["jobs"]}
            for number in jobs:
                seen = desk.run("jobs", action="status", job_id=number)
                self.assertIn(seen.structured["status"], pro.TERMINAL_STATUSES, seen.text)
        told = [result["structuredContent"] for result in storm.results if not result["isError"]]
        promised = {one["job_id"] for one in told if one.get("job_id") and not one.get("action")}
        lost = [one for one in told if one.get("job_id") in promised - set(jobs)]
        self.assertEqual(lost, [])
        # One event a request; an estimate for each whose cost is not known.
        events = desk.events()
        running = sum(job["tool"] == "perplexity_research" for job in jobs.values())
        # What was refused for its rate is sent once more.
        self.assertLessEqual(len(sent) - storm.limited, len(events) + running)
        with desk.runtime.store.reading() as db:
            (held,) = db.execute("SELECT count(*) FROM holds").fetchone()
            spent = dict(db.execute("SELECT 1, sum(cost_nano) FROM spent").fetchall())[1] or 0
        self.assertEqual(held, sum(event["cost_source"] == "none" for event in events))
        # What results tell is what the ledger has.
        self.assertEqual(spent, sum(event["cost_nano_usd"] for event in events))
        known = {event["request_id"]: event["cost_nano_usd"] for event in events}
        for one in told:
            usage = one.get("usage") or {}
            if one.get("response_id") and usage.get("cost_usd") and not one.get("action"):
                self.assertEqual(pro.read_usd(usage["cost_usd"]), known[one["response_id"]])
        desk.runtime.close()
        print(
            f"\n  {storm.asked} calls, {len(sent)} requests, {storm.cancels} cancels, "
            f"{storm.kills} kills, {len(events)} events, {len(jobs)} jobs",
            file=sys.stderr,
        )


if __name__ == "__main__":
    unittest.main()
