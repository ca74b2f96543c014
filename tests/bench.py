"""Speed and size as ratios within one run: python3 tests/bench.py [--quick].

Nothing here passes or fails. Every figure stands beside the thing it is compared with, measured in
the same run on the same machine.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_vectors import vector_lines
from fake_perplexity import Answer
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


def high(values: list[float]) -> float:
    return values[min(len(values) - 1, int(len(values) * 0.99))]


class Server:
    """A server process spoken to over pipes."""

    def __init__(self, command: list[str], **environ: str) -> None:
        base = {k: v for k, v in os.environ.items() if not k.startswith("PERPLEXITY_")}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**base, **environ},
        )

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status")
        if not status.exists():
            return float("nan")
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def stop(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


def start_up(times: int) -> None:
    """Spawn to initialize reply, as a script and from compiled code, against a bare interpreter."""
    with tempfile.TemporaryDirectory() as folder:

        def spoken(command: list[str]) -> Callable[[], None]:
            def work() -> None:
                server = Server(command, PERPLEXITY_DATA_DIR=f"{folder}/data")
                server.ask(INITIALIZE)
                server.process.kill()
                server.process.wait()
                for pipe in (server.process.stdin, server.process.stdout):
                    if pipe:
                        pipe.close()

            return work

        code = f"import sys; sys.pycache_prefix = {folder!r}\n{IMPORT}"
        main = f"{code}sys.exit(pro.main([]))"
        compiled = [sys.executable, "-c", main]
        without = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        subprocess.run([sys.executable, "-c", code], env=without, check=True)
        bare = milliseconds(
            lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), times
        )
        script = milliseconds(spoken([sys.executable, FILE]), times)
        installed = milliseconds(spoken(compiled), times)
    print(f"start: bare interpreter {median(bare):.0f} ms")
    for name, taken in (("script", script), ("compiled, as installed", installed)):
        print(f"start: {name} {median(taken):.0f} ms, {median(taken) / median(bare):.1f} x bare")


def overhead(times: int) -> None:
    """A call of ask and search against a bare urllib request to the same fake."""
    with desk() as owner:
        routes = {
            "ask": ("/v1/agent", {"query": "q", "depth": "fast"}, {"preset": "fast", "input": "q"}),
            "search": ("/search", {"query": "q"}, {"query": "q", "search_type": "fast"}),
        }
        for tool, (path, arguments, body) in routes.items():
            made = urllib.request.Request(
                owner.fake.url + path,
                json.dumps(body).encode(),
                {"Authorization": f"Bearer {owner.fake.key}", "Content-Type": "application/json"},
            )

            def bare(made: urllib.request.Request = made) -> None:
                with urllib.request.urlopen(made) as reply:
                    json.load(reply)

            def ours(tool: str = tool, arguments: dict[str, Any] = arguments) -> None:
                owner.ok(tool, **arguments)

            bare()
            ours()
            plain, whole = milliseconds(bare, times), milliseconds(ours, times)
            print(
                f"{tool}: bare {median(plain):.2f} ms (99 %: {high(plain):.2f}), "
                f"whole call {median(whole):.2f} ms (99 %: {high(whole):.2f}), "
                f"overhead {median(whole) - median(plain):.2f} ms"
            )


def parallel() -> None:
    """32 calls of 200 ms at once against one, through a server process."""
    with desk() as owner:
        body = {"id": "x", "results": []}
        delay = threading.Event()

        def slow(_: Any) -> Answer:
            delay.wait(0.2)
            return Answer(200, body)

        owner.fake.always("POST /search", slow)
        server = Server(
            [sys.executable, FILE],
            PERPLEXITY_API_KEY=owner.fake.key,
            PERPLEXITY_BASE_URL=owner.fake.url,
            PERPLEXITY_DATA_DIR=f"{owner.folder}/server",
        )
        server.ask(INITIALIZE)

        def calls(count: int, first: int) -> float:
            assert server.process.stdin and server.process.stdout
            begun = time.perf_counter()
            for number in range(first, first + count):
                params = {"name": "perplexity_search", "arguments": {"query": "q"}}
                message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
                server.process.stdin.write(json.dumps(message).encode() + b"\n")
            server.process.stdin.flush()
            for _ in range(count):
                server.process.stdout.readline()
            return time.perf_counter() - begun

        calls(1, 10)
        one = median([calls(1, 20 + n) for n in range(5)])
        many = median([calls(32, 100 + 32 * n) for n in range(5)])
        print(f"parallel: one {one * 1000:.0f} ms, 32 at {many * 1000:.0f} ms, {many / one:.2f} x")
        before = server.resident_mb()
        for batch in range(7):
            calls(32, 1000 + 32 * batch)
        print(f"memory: {before:.1f} MB, after 224 further calls {server.resident_mb():.1f} MB")
        server.stop()
    with tempfile.TemporaryDirectory() as folder:
        fresh = Server([sys.executable, FILE], PERPLEXITY_DATA_DIR=f"{folder}/data")
        fresh.ask(INITIALIZE)
        print(f"memory: after initialize {fresh.resident_mb():.1f} MB")
        fresh.stop()


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
    overhead(20 if quick else 200)
    parallel()
    ledger(5_000 if quick else 100_000)
    print("\n".join(vector_lines(5_000 if quick else 20_000)))


if __name__ == "__main__":
    main()
