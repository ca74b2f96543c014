"""How often dynamic routing picks the tier that a careful person would: spends a little money.

    PERPLEXITY_API_KEY=... python3 tests/live_routing.py

asks one decision for each prompt of data/routing_prompts.jsonl (about 0.001 USD in all), prints
every prompt where the two disagree, and a table of how they agree.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from support import pro

PROMPTS = Path(__file__).with_name("data") / "routing_prompts.jsonl"


def prompts() -> list[tuple[str, str]]:
    """Each prompt with the tier a careful person picks."""
    lines = PROMPTS.read_text(encoding="utf-8").splitlines()
    return [(entry["tier"], entry["prompt"]) for entry in map(json.loads, lines)]


def picked_tiers(runtime: pro.Runtime) -> list[tuple[str, pro.Routing, str]]:
    """For each prompt the wanted tier, how it was routed, and the prompt."""
    found = []
    for wanted, prompt in prompts():
        call = pro.Call(runtime, pro.TOOLS[f"{pro.PREFIX}ask"])
        usual = pro.routing_of(
            runtime.settings, pro.read_arguments(call.declared, {"query": prompt})
        )
        found.append((wanted, pro.routed(call, usual, prompt, "live-routing"), prompt))
    return found


def main() -> int:
    models = {f"PERPLEXITY_TIER_{tier.upper()}": f"example/{tier}" for tier in pro.TIERS}
    with tempfile.TemporaryDirectory() as folder:
        settings = pro.settings_now()._replace(
            routing="dynamic",
            tiers=tuple((tier, models[f"PERPLEXITY_TIER_{tier.upper()}"]) for tier in pro.TIERS),
            data_dir=folder,
        )
        runtime = pro.Runtime(settings)
        found = picked_tiers(runtime)
        runtime.close()
    table: Counter[tuple[str, str]] = Counter()
    for wanted, routing, prompt in found:
        got = routing.tier if routing.selected_by == "dynamic" else "none"
        table[wanted, str(got)] += 1
        if got != wanted:
            print(f"{wanted:9} {got!s:9} {routing.probability}  {prompt[:60]}")
    for wanted in pro.TIERS:
        row = ", ".join(f"{got} {table[wanted, got]}" for got in (*pro.TIERS, "none"))
        print(f"wanted {wanted}: {row}")
    agreed = sum(count for (wanted, got), count in table.items() if wanted == got)
    print(f"{agreed} of {len(found)} agree")
    return 0 if any(got != "none" for _, got in table) else 1


if __name__ == "__main__":
    sys.exit(main())
