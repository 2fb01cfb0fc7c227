"""Warm share of a real box: seven real networks in 40 % of their full-precision size, mixed traffic, the default policy
against `lru`.

Asked: at least 0.97; and that the lab, given the box's own scenario, differs from the box by at most 3 points in warm
share, cold share and utility. Rates are 0.1 to 5 requests a second; every policy starts with an empty memory and may
fill it before the first request.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from appliance.policies.residency import DEFAULT
from benchmarks import _box as boxes
from benchmarks import _zoo as zoo


def main() -> None:
    """Print the warm share of each policy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.4)
    parser.add_argument("--policies", default=f"{DEFAULT},lru")
    parser.add_argument("--keep", type=Path, help="folder that keeps the imported models for the next run")
    options = parser.parse_args()
    with zoo.kept(options.keep) as state:
        path = state.parent / "box.json"
        models = zoo.imported(state, "demo", zoo.MODELS).models
        with boxes.box(state) as box:
            whole, least = zoo.fp32_bytes(box), zoo.smallest_bytes(box)
            document = zoo.mixed(zoo.emptied(zoo.scenario_of(box)), options.seconds, options.seed)
        budget = int(options.share * whole)
        document["box"]["memory_mb"] = budget / 1e6
        path.write_text(json.dumps(document))
        print(
            f"{zoo.machine()}; {len(models)} models, fp32 {whole / 1e6:.0f} MB, smallest variants {least / 1e6:.0f} "
            f"MB, "
            f"budget {budget / 1e6:.0f} MB"
        )
        for policy in options.policies.split(","):
            _measure(state, path, budget, policy)


def _measure(state: Path, path: Path, budget: int, policy: str) -> None:
    zoo.forget_residents(state)
    settings = {"APPLIANCE_MEMORY__BUDGET_BYTES": str(budget), "APPLIANCE_POLICIES__EVICTION": policy}
    with boxes.box(state, **settings) as box:
        real = zoo.replay(box, path)
    lab = zoo.command("simulate", str(path), "--policy", f"eviction={policy}")
    for where, side in (("box", real), ("lab", lab)):
        print(
            f"{policy:8} {where} warm {side['warm'] / side['requests']:.4f} of {side['requests']} "
            f"(cold {side['cold']}, failed {side['failed']}, dropped {side['dropped']})  "
            f"accuracy {side['accuracy_mean']:.2f}, utility {side['utility']:.2f}  "
            f"loads {side['loads']}, replacements {side['replacements']}, evictions {side['evictions']}  "
            f"P99 {side['latency_ms']['p99']:.1f} ms",
            flush=True,
        )
    differences = {name: f"{value - _points(lab)[name]:+.2f}" for name, value in _points(real).items()}
    print(f"         box - lab in points: {differences}")
    cold = {n: f"{r['cold']}/{r['requests']}" for n, r in real["applications"].items() if r["cold"] or r["failed"]}
    print(f"         cold by application on the box: {cold}")


def _points(side: dict[str, Any]) -> dict[str, float]:
    """Warm and cold share in per cent; the utility is in points of per cent already."""
    requests = side["requests"]
    return {
        "warm": 100 * side["warm"] / requests,
        "cold": 100 * (side["cold"] + side["failed"] + side["dropped"]) / requests,
        "utility": side["utility"],
    }


if __name__ == "__main__":
    main()
