"""Speed and size as ratios within one run: python3 tests/bench.py [--quick].

Nothing here passes or fails. Every figure stands beside the thing it is compared with, measured in
the same run on the same machine.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_vectors import vector_lines
from fake_perplexity import Answer, FakePerplexity
from support import IMPORT, ROOT, desk, pro

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = str(ROOT / "perplexity_pro_mcp.py")
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}


# A server that notes each of its own function calls, and prints them when it ends.
TRACED = (
    IMPORT
    + """
import bisect, json, os, threading, time
calls, leave = [], os._exit
def note(frame, event, _):
    if event == "call" and frame.f_code.co_filename == pro.__file__:
        place = threading.get_ident(), frame.f_code.co_firstlineno
        calls.append((time.monotonic(), *place))
def end(status):
    sys.setprofile(None)
    lines = open(pro.__file__, encoding="utf-8").read().splitlines()
    banners = [number for number, line in enumerate(lines, 1) if line.startswith("# ==== ")]
    found = [(*call, bisect.bisect(banners, call[2])) for call in calls]
    print(json.dumps(found), file=sys.stderr, flush=True)
    leave(status)
os._exit = end
threading.setprofile(note); sys.setprofile(note)
end(pro.main([]))
"""
)


def milliseconds(work: Callable[[], object], times: int) -> list[float]:
    """The times of some repetitions, sorted."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        taken.append((time.perf_counter() - begun) * 1000)
    return sorted(taken)


def median(values: list[float]) -> float:
    return statistics.median(values)


class Server:
    """A server process spoken to over pipes."""

    def __init__(self, command: list[str], **environ: str) -> None:
        base = {k: v for k, v in os.environ.items() if not k.startswith("PERPLEXITY_")}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if TRACED in command else subprocess.DEVNULL,
            env={**base, **environ},
        )

    def send(self, *messages: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"".join(json.dumps(m).encode() + b"\n" for m in messages))
        self.process.stdin.flush()

    def line(self) -> dict[str, Any]:
        assert self.process.stdout
        return dict(json.loads(self.process.stdout.readline()))

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self.send(message)
        return self.line()

    def calls(self, tool: str, count: int, first: int) -> float:
        """Seconds for so many calls sent at once, until the last reply."""
        begun = time.perf_counter()
        self.send(*(call_of(tool, first + number) for number in range(count)))
        for _ in range(count):
            reply = self.line()
            assert not reply["result"].get("isError"), reply
        return time.perf_counter() - begun

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status")
        if not status.exists():
            return float("nan")
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def processor_s(self) -> float:
        """Processor time used so far, user and system."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        if not stat.exists():
            return float("nan")
        user, system = stat.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


def call_of(tool: str, number: int) -> dict[str, Any]:
    """A paid call; its words differ from all others, or it would join one on its way."""
    params = {"name": f"perplexity_{tool}", "arguments": {"query": f"question {number}"}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def commands(folder: str) -> dict[str, list[str]]:
    """How the server is started: as a script, and from compiled code as when it is installed.

    Isolated, so that no package of the site is loaded, here or in the bare interpreter.
    """
    code = f"import sys; sys.pycache_prefix = {folder!r}\n{IMPORT}"
    without = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-I", "-c", code], env=without, check=True)
    installed = [sys.executable, "-I", "-c", f"{code}sys.exit(pro.main([]))"]
    return {"installed": installed, "script": [sys.executable, "-I", FILE]}


def start_up(times: int) -> None:
    """Spawn to initialize reply against a bare interpreter; memory, and the first tools/list."""
    bare = milliseconds(
        lambda: subprocess.run([sys.executable, "-I", "-c", "pass"], check=True), times
    )
    print(f"start: bare interpreter {median(bare):.0f} ms")
    with tempfile.TemporaryDirectory() as folder:
        for name, command in commands(folder).items():
            taken, listing = [], []
            for _ in range(times):
                begun = time.perf_counter()
                server = Server(command, PERPLEXITY_DATA_DIR=f"{folder}/data")
                server.ask(INITIALIZE)
                taken.append((time.perf_counter() - begun) * 1000)
                resident = server.resident_mb()
                begun = time.perf_counter()
                server.ask({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
                listing.append((time.perf_counter() - begun) * 1000)
                server.stop()
            print(
                f"start: {name} {median(taken):.0f} ms, {median(taken) / median(bare):.1f} x bare, "
                f"{resident:.1f} MiB; first tools/list {median(listing):.1f} ms"
            )


def served(folder: str, url: str, key: str) -> Server:
    """A server in front of the fake, ready for calls."""
    server = Server(
        commands(folder)["installed"],
        PERPLEXITY_API_KEY=key,
        PERPLEXITY_BASE_URL=url,
        PERPLEXITY_DATA_DIR=f"{folder}/server",
        PERPLEXITY_OBSERVE="off",
    )
    server.ask(INITIALIZE)
    return server


def per_call(times: int) -> None:
    """Processor time of the server for each ask and search, and the memory that calls leave."""
    with tempfile.TemporaryDirectory() as folder, FakePerplexity() as fake:
        server = served(folder, fake.url, fake.key)
        for tool in ("ask", "search"):
            for number in range(10):
                server.calls(tool, 1, 10_000 + number)
            begun, used = time.perf_counter(), server.processor_s()
            for number in range(times):
                server.calls(tool, 1, number)
            used = (server.processor_s() - used) / times * 1000
            took = (time.perf_counter() - begun) / times * 1000
            print(f"{tool}: {used:.2f} ms of processor time a call, {took:.2f} ms in all")
        many, hundredth = max(200, 10 * times), 0.0
        for number in range(many):
            server.calls("search", 1, 20_000 + number)
            if number == 99:
                hundredth = server.resident_mb()
        grown = server.resident_mb() - hundredth
        print(f"memory: {grown:.1f} MiB more after call {many} than after call 100")
        server.stop()


def parallel() -> None:
    """32 calls in flight against an API of 200 ms; 160 a second are possible."""
    delay = threading.Event()

    def slow(_: Any) -> Answer:
        delay.wait(0.2)
        return Answer(200, {"id": "x", "results": []})

    with tempfile.TemporaryDirectory() as folder, FakePerplexity() as fake:
        fake.always("POST /search", slow)
        server = served(folder, fake.url, fake.key)
        server.calls("search", 32, 100)
        one = median([server.calls("search", 1, 200 + n) for n in range(5)])
        waves = 8
        took = in_flight(server, 32, waves)
        print(
            f"parallel: one {one * 1000:.0f} ms; 32 in flight {32 * waves / took:.0f} calls a "
            f"second of {32 / 0.2:.0f} possible"
        )
        server.stop()


def in_flight(server: Server, width: int, waves: int) -> float:
    """Seconds for so many calls, a new one sent as each reply comes."""
    total, begun = width * waves, time.perf_counter()
    server.send(*(call_of("search", 1000 + n) for n in range(width)))
    for number in range(total):
        server.line()
        if number + width < total:
            server.send(call_of("search", 1000 + width + number))
    return time.perf_counter() - begun


def traced() -> None:
    """One ask from its line to its reply: functions, changes of thread and of chapter."""
    with FakePerplexity() as fake, tempfile.TemporaryDirectory() as folder:
        server = Server(
            [sys.executable, "-c", TRACED],
            PERPLEXITY_API_KEY=fake.key,
            PERPLEXITY_BASE_URL=fake.url,
            PERPLEXITY_DATA_DIR=folder,
            PERPLEXITY_OBSERVE="off",
        )
        server.ask(INITIALIZE)
        server.calls("ask", 1, 2)  # the first one opens the database
        begun = time.monotonic()
        server.calls("ask", 1, 3)
        over = time.monotonic()
        assert server.process.stdin and server.process.stderr
        server.process.stdin.close()
        found = json.loads(server.process.stderr.read().splitlines()[-1])
        server.process.wait(20)
    calls = [call for call in found if begun <= call[0] <= over]
    threads = sum(a[1] != b[1] for a, b in itertools.pairwise(calls))
    chapters = sum(a[3] != b[3] for a, b in itertools.pairwise(calls))
    functions = len({call[2] for call in calls})
    print(f"one ask: {functions} functions, {threads} changes of thread, {chapters} of chapter")


def sizes() -> None:
    """Bytes of tools/list and of the file."""
    listed = [
        {
            "name": tool.name,
            "title": tool.title,
            "description": tool.description,
            "inputSchema": pro.input_schema(tool),
            "outputSchema": pro.output_schema(tool),
            "annotations": pro.tool_hints(tool),
        }
        for tool in pro.TOOLS.values()
    ]
    print(
        f"tools/list: {len(pro.json_text({'tools': listed}).encode())} bytes, {len(listed)} tools"
    )
    print(f"file: {Path(FILE).stat().st_size} bytes")


def ledger(rows: int) -> None:
    """perplexity_usage over many events."""
    with desk() as owner:
        owner.ok("search", query="q")
        with owner.runtime.store.writing() as db:
            db.execute(
                """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
                INSERT INTO usage_events (created_at, tool, api, status, project_name,
                    input_tokens, total_tokens, cost_nano_usd, cost_source)
                SELECT datetime('2026-01-01', '+' || i || ' minutes') || '.000000',
                    'tool' || i % 7, 'api', 'ok', 'p' || i % 50, i, i, i, 'reported' FROM n""",
                (rows,),
            )
        for group in ("tool", "day", "project"):
            taken = milliseconds(functools.partial(owner.ok, "usage", group_by=group), 7)
            print(f"usage: {rows} events by {group} {median(taken):.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="few repetitions, few rows")
    quick = parser.parse_args().quick
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    sizes()
    start_up(5 if quick else 25)
    per_call(20 if quick else 200)
    parallel()
    traced()
    ledger(5_000 if quick else 100_000)
    print("\n".join(vector_lines(5_000 if quick else 20_000)))


if __name__ == "__main__":
    main()
