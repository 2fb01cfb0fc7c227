"""What every request of simulated boxes gets, before and after a change of the engine.

`--record FILE` simulates all of scenarios/ and random boxes, and keeps what each request got. `--compare FILE`
simulates the same boxes again, and shows where answers differ. Virtual time is exact: a change that moves no decision
moves no answer.
"""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

from appliance.lab.scenario import read_scenario
from appliance.lab.simulation import Run, simulate
from benchmarks import _results as results
from tests.lab.random_scenarios import random_scenario

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ("requests", "late", "dropped", "failed", "cold", "loads", "evictions", "accuracy_mean", "slo_attainment")


def main() -> None:
    parser = results.parser(__doc__)
    parser.add_argument("--record", type=Path, metavar="FILE")
    parser.add_argument("--compare", type=Path, metavar="FILE")
    parser.add_argument("--seeds", type=int, default=60, help="how many random boxes")
    parser.add_argument("--only", default="", help="part of the name of the scenarios to simulate")
    chosen = results.options(parser)
    before = {} if chosen.compare is None else json.loads(gzip.decompress(chosen.compare.read_bytes()))
    found: dict[str, Any] = {}
    if before:
        results.head("scenario", "answers", "equal", *(f"{name} before, after" for name in FIGURES), title="Answers")
    boxes = {path.stem: read_scenario(path) for path in sorted((ROOT / "scenarios").glob("*.toml"))}
    boxes |= {f"random {seed}": random_scenario(seed) for seed in range(chosen.seeds)}
    for name, scenario in boxes.items():
        if chosen.only in name:
            found[name] = kept(simulate(scenario))
            if name in before:
                compare(name, before[name], json.loads(json.dumps(found[name])))
    if chosen.record is not None:
        chosen.record.write_bytes(gzip.compress(json.dumps(found).encode()))


def kept(run: Run) -> dict[str, Any]:
    """Return the answers in order, and all figures that do not depend on the machine."""
    answers = sorted(
        (one.at_ns, one.application, one.kind, one.latency_ns, one.variant or "", one.reason)
        for one in run.outcome.answers
    )
    document = {name: value for name, value in run.outcome.document().items() if name != "decisions"}
    return {"answers": answers, "figures": document}


def compare(name: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Print how many answers are equal, and the figures that differ."""
    counts = Counter(map(tuple, before["answers"]))
    equal = sum((counts & Counter(map(tuple, after["answers"]))).values())
    figures = [(before["figures"].get(one), after["figures"].get(one)) for one in FIGURES]
    shown = ["=" if one == other else f"{results.text(one)}, {results.text(other)}" for one, other in figures]
    results.cells(name, len(before["answers"]), equal, *shown)


if __name__ == "__main__":
    main()
