"""How fast and how large vector search is, through the whole tool; bench.py calls `vector_lines`.

Each case fills a table with 20,000 vectors and searches it against a fake that answers at once, in
a process of its own, so that peak memory is that of searching. Beside it, in the same way and over
the same table: the plain loop, and numpy where it is installed. By itself: python3 bench_vectors.py
"""

from __future__ import annotations

import base64
import contextlib
import heapq
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fake_perplexity import Answer, FakePerplexity, Seen
from support import ROOT, plain_cosine, pro

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 20_000
SEARCHES = 15
TEXT = "A sentence of a stored text, neither short nor long. " * 8
SLOW_S = 0.3  # a usual time for a query to be embedded
MB = 1 << 20
CASES = (
    pro.Combination("pplx-embed-v1-0.6b", 1024, "int8"),
    pro.Combination("pplx-embed-v1-4b", 2560, "int8"),
    pro.Combination("pplx-embed-v1-0.6b", 1024, "binary"),
)


class Figures(NamedTuple):
    """Milliseconds and megabytes of one way to search, measured in a fresh process."""

    first_ms: float
    later_ms: float  # the quickest: what others do on the machine only adds to it
    peak_mb: float  # above what the process had before its first search
    best: list[int]  # the rows found, to see that all ways agree


def vector_of(combination: pro.Combination, luck: random.Random) -> bytes:
    """A random vector; every value is as likely as any other, which is the slowest to score."""
    binary = combination.encoding == "binary"
    return luck.randbytes(combination.dimensions // 8 if binary else combination.dimensions)


def fill(settings: pro.Settings, combination: pro.Combination, rows: int) -> None:
    """Store the rows of a case."""
    luck = random.Random(1)  # noqa: S311 - the same numbers in every run, nothing secret
    sql = """INSERT INTO embedding_chunks (project_id, source, ref, chunk_index, text, text_hash,
        vector, created_at, model, dimensions, encoding)
        VALUES (?, 'text', ?, 0, ?, ?, ?, ?, ?, ?, ?)"""
    with pro.Store(settings).writing() as db:
        number, now = 1, "2026-05-01 10:00:00.000000"
        db.execute("INSERT INTO projects VALUES (?, ?, ?)", (number, pro.DEFAULT_PROJECT, now))
        for row in range(rows):
            text, vector = f"{row} {TEXT}", vector_of(combination, luck)
            values = (number, f"t:{row}", text, pro.text_hash(text), vector, now)
            db.execute(sql, (*values, *combination))


def query_of(combination: pro.Combination) -> bytes:
    """The vector that the fake returns for any query."""
    return vector_of(combination, random.Random(2))  # noqa: S311 - as above


def memory_mb(name: str) -> float:
    """The memory of this process, now (VmRSS) or at most (VmHWM), where the system tells."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    line = next(line for line in status.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def forget_peak() -> None:
    """Let the most memory count from now on: importing takes more than it leaves behind."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


# ---- In the child: one way to search


def by_tool(settings: pro.Settings, combination: pro.Combination) -> Callable[[], list[int]]:
    """perplexity_embed, arguments in and text out."""
    runtime = pro.Runtime(settings)
    wanted = {"action": "search", "query": "anything", "top_k": 10, **combination._asdict()}

    def search() -> list[int]:
        outcome = pro.run_tool(pro.Call(runtime, pro.TOOLS["perplexity_embed"]), wanted)
        if outcome.kind:
            raise RuntimeError(outcome.text)
        return [int(hit["key"]) for hit in outcome.structured["hits"]]

    return search


def _blobs(settings: pro.Settings) -> list[bytes]:
    db = sqlite3.connect(Path(settings.data_dir) / "perplexity.db")
    rows = db.execute("SELECT vector FROM embedding_chunks ORDER BY id").fetchall()
    db.close()
    return [row[0] for row in rows]


def by_plain_loop(settings: pro.Settings, combination: pro.Combination) -> Callable[[], list[int]]:
    """The definition, written out: the vectors are read and scored one by one."""
    query = query_of(combination)

    def score(vector: bytes) -> float:
        if combination.encoding == "int8":
            return plain_cosine(query, vector)
        differing = sum(bin(a ^ b).count("1") for a, b in zip(query, vector, strict=True))
        return 1 - differing / combination.dimensions

    def search() -> list[int]:
        scores = list(map(score, _blobs(settings)))
        return heapq.nlargest(10, range(len(scores)), key=scores.__getitem__)

    return search


def by_numpy(settings: pro.Settings, combination: pro.Combination) -> Callable[[], list[int]]:
    """numpy, reading the table for each search as a server without a cache does."""
    import numpy as np  # type: ignore[import-not-found,unused-ignore]

    query = query_of(combination)

    def int8(raw: bytes) -> Any:
        rows = np.frombuffer(raw, np.int8).reshape(-1, combination.dimensions).astype(np.float32)
        wanted = np.frombuffer(query, np.int8).astype(np.float32)
        return rows @ wanted / (np.linalg.norm(rows, axis=1) * np.linalg.norm(wanted))

    def binary(raw: bytes) -> Any:
        rows = np.frombuffer(raw, np.uint8).reshape(-1, len(query))
        differing = np.unpackbits(rows ^ np.frombuffer(query, np.uint8), axis=1).sum(axis=1)
        return 1 - differing / combination.dimensions

    def search() -> list[int]:
        raw = b"".join(_blobs(settings))
        scores = int8(raw) if combination.encoding == "int8" else binary(raw)
        return [int(row) for row in np.argsort(-scores, kind="stable")[:10]]

    return search


WAYS = {"tool": by_tool, "plain": by_plain_loop, "numpy": by_numpy}


def child(way: str, case: str, settings_json: str, searches: str) -> None:
    """Measure one way in this process, and print the figures."""
    search = WAYS[way](pro.Settings(**json.loads(settings_json)), CASES[int(case)])
    forget_peak()
    before, times, best = memory_mb("VmRSS"), [], []
    for _ in range(int(searches)):
        began = time.perf_counter()
        best = search()
        times.append((time.perf_counter() - began) * 1000)
    print(json.dumps(Figures(times[0], min(times[1:] or times), memory_mb("VmHWM") - before, best)))


# ---- In the parent


def measured(way: str, case: int, settings: pro.Settings, searches: int = SEARCHES) -> Figures:
    """The figures of one way, from a child process."""
    fields = ("key", "base_url", "data_dir", "vector_cache_mb")
    given = {name: getattr(settings, name) for name in fields}
    script = str(ROOT / "tests" / "bench_vectors.py")
    command = [sys.executable, script, way, str(case), json.dumps(given), str(searches)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Figures(*json.loads(done.stdout))


def _has_numpy() -> bool:
    check = [sys.executable, "-c", "import numpy"]
    return subprocess.run(check, check=False, capture_output=True).returncode == 0


def _slowly(answer: Answer) -> Callable[[Seen], Answer]:
    def reply(_: Seen) -> Answer:
        threading.Event().wait(SLOW_S)
        return answer

    return reply


def _ratio(ours: float, theirs: float) -> str:
    return f"1/{theirs / ours:.1f}" if ours < theirs else f"{ours / theirs:.2f} times"


def case_lines(case: int, rows: int) -> list[str]:
    """The lines about one combination."""
    combination, route = CASES[case], "POST /v1/embeddings"
    vector = base64.b64encode(query_of(combination)).decode()
    data = [{"index": 0, "embedding": vector}]
    answer = Answer(200, {"data": data, "usage": {"prompt_tokens": 3}})
    with tempfile.TemporaryDirectory() as folder, FakePerplexity() as fake:
        settings = pro.Settings(key=fake.key, base_url=fake.url, data_dir=folder)
        fill(settings, combination, rows)
        fake.always(route, answer)
        ours = measured("tool", case, settings)
        plain = measured("plain", case, settings, 1)
        streamed = measured("tool", case, settings._replace(vector_cache_mb=0), 3)
        numpy = measured("numpy", case, settings) if _has_numpy() else None
        fake.always(route, _slowly(answer))
        slow = measured("tool", case, settings, 4)
    limit_mb = settings.vector_cache_mb + 40
    lines = [
        f"{rows} x {combination.dimensions} {combination.encoding}: first search "
        f"{ours.first_ms:.0f} ms, later ones {ours.later_ms:.0f} ms",
        f"  the plain loop: {plain.first_ms:.0f} ms "
        f"({_ratio(ours.later_ms, plain.first_ms)} of that)",
        f"  behind a request of {SLOW_S * 1000:.0f} ms: the first takes {slow.first_ms:.0f} ms, "
        f"later ones {slow.later_ms:.0f} ms",
        f"  memory: {ours.peak_mb:.0f} MB of {limit_mb} MB allowed; without a cache "
        f"{streamed.peak_mb:.0f} MB of 40 MB, {streamed.later_ms:.0f} ms",
    ]
    if numpy:
        lines.append(
            f"  numpy reading the same table: {numpy.later_ms:.0f} ms "
            f"({_ratio(ours.later_ms, numpy.later_ms)} of that), {numpy.peak_mb:.0f} MB"
        )
    agreed = ours.best == plain.best == streamed.best and (not numpy or numpy.best == ours.best)
    return [*lines, *([] if agreed else ["  THE WAYS DO NOT AGREE on the ten best"])]


def vector_lines(rows: int = ROWS) -> list[str]:
    """All lines about vector search over so many rows."""
    return [line for case in range(len(CASES)) for line in case_lines(case, rows)]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(*sys.argv[1:])
    else:
        print("\n".join(vector_lines()))
