"""The lab against the box: a scenario that the box wrote, mixed traffic, simulated and replayed; P50, P99, warm share and throughput.

Asked: each within 15 % over 5 minutes. The box holds seven real networks. It serves other arrivals at the same rates first, and then writes the
scenario: with its run times of that time, and what is in its memory. `--share` bounds its memory to a share of the models' full-precision
size. Latencies are those inside the box; the caller's stand beside them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from tests.benchmarks import _subjects as subjects
from tests.benchmarks import _zoo as zoo


def main() -> None:
    """Print both sides and their ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--before", type=float, default=120, help="seconds that the box serves before it writes the scenario"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.5)
    parser.add_argument("--keep", type=Path, help="folder that keeps the imported models for the next run")
    options = parser.parse_args()
    with zoo.kept(options.keep) as state:
        path = state.parent / "box.json"
        zoo.imported(state, "demo", zoo.MODELS)
        with subjects.box(state) as box:
            budget = int(options.share * zoo.fp32_bytes(box))
        zoo.forget_residents(state)
        with subjects.box(state, APPLIANCE_MEMORY__BUDGET_BYTES=str(budget)) as box:
            path.write_text(json.dumps(zoo.mixed(zoo.scenario_of(box), options.before, options.seed + 1000)))
            zoo.replay(box, path)
            path.write_text(json.dumps(zoo.mixed(zoo.scenario_of(box), options.seconds, options.seed)))
            lab = zoo.command("simulate", str(path))
            real = zoo.replay(box, path)
    print(f"{zoo.machine()}; budget {budget / 1e6:.0f} MB, {real['requests']} requests in {options.seconds:g} s")
    for name, figures in (("lab", lab), ("box", real)):
        print(name, {key: figures[key] for key in ("warm", "cold", "failed", "dropped", "loads", "evictions")})
    for name in sorted(lab["applications"]):
        rows = [side["applications"][name]["latency_ms"] for side in (lab, real)]
        print(
            f"  {name:12} P50 {rows[0]['p50'] or 0:8.2f} {rows[1]['p50'] or 0:8.2f}   P99 {rows[0]['p99']} {rows[1]['p99']}"
        )
    print(f"{'':12} {'lab':>9} {'box':>9}  box/lab (asked 0.85-1.15)")
    for name, (one, other) in _compared(lab, real, options.seconds).items():
        print(f"{name:12} {one:9.3f} {other:9.3f}  {other / one:.2f}")
    print(
        f"as the caller sees it: P50 {real['client_latency_ms']['p50']:.2f}, P99 {real['client_latency_ms']['p99']:.2f} ms"
    )


def _compared(lab: dict[str, Any], real: dict[str, Any], seconds: float) -> dict[str, tuple[float, float]]:
    def figures(side: dict[str, Any]) -> dict[str, float]:
        return {
            "P50 ms": side["latency_ms"]["p50"],
            "P99 ms": side["latency_ms"]["p99"],
            "warm share": side["warm"] / side["requests"],
            "answers/s": (side["warm"] + side["cold"]) / seconds,
        }

    one, other = figures(lab), figures(real)
    return {name: (one[name], other[name]) for name in one}


if __name__ == "__main__":
    main()
