"""The lab against the box: a scenario that the box wrote, simulated and replayed; latencies, warm share, throughput.

Asked: P50, P99, warm share and answers a second within 15 % over 5 minutes. The box holds seven real networks;
`--share` bounds its memory to a share of the models' full-precision size. Latencies are those inside the box; the
caller's stand beside them.

Method. A machine with neighbours is not the same from one minute to the next, so the run times that the lab gets and
the requests that it predicts have to be of the same minutes. The measured traffic is cut into `SLICES`; between them,
before the first and after the last (those two half as long), the box serves other arrivals at the same rates, and only
what those took goes into the scenario (`served_ms`): both kinds of slices have the same mean time, so a trend cancels
out, and no request that is compared has told the lab anything. The lab is told which requests came when, and simulates
them once for each of `DRAWS` seeds of the run times; its figures are the means. How much of a ratio is chance, the box
says of itself: beside a percentile's ratio stands what it would be at both ends of the 95 % interval of the box's
percentile (order statistics), and the last column is the measured slices over the slices between, other arrivals at
the same rates.
"""

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.cli.connection import Connection
from appliance.cli.replay import replayed_on
from appliance.cli.scenario import exported
from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.lab.outcome import Answer
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from appliance.lab.workload import Arrival, draw
from appliance.wire.scenario import served_ms
from benchmarks import _box as boxes
from benchmarks import _results as results
from benchmarks import _zoo as zoo

SLICES, DRAWS = 10, 9
PERCENTS = (50, 95, 99)

Figures = dict[str, float]
Runs = dict[tuple[str, str], list[float]]
"""(application, variant) → ms of warm runs."""


@dataclass
class Served:
    """What a box answered, and for how long it was asked."""

    answers: list[Answer] = field(default_factory=list)
    client_ns: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def figures(self) -> Figures:
        return _figures(self.answers, self.seconds)

    @property
    def latencies_ms(self) -> list[float]:
        """Of the answered, inside the box."""
        return _latencies_ms(self.answers)


def main() -> None:
    """Print both sides and their ratios."""
    parser = results.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="measured, in all")
    parser.add_argument("--between", type=float, default=0.6, help="seconds between for each measured one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.5)
    parser.add_argument("--keep", type=Path, help="folder that keeps the imported models for the next run")
    options = results.options(parser)
    with zoo.kept(options.keep) as state:
        zoo.imported(state, "demo", zoo.MODELS)
        with boxes.box(state) as box:
            budget = int(options.share * zoo.fp32_bytes(box))
        zoo.forget_residents(state)
        with boxes.box(state, APPLIANCE_MEMORY__BUDGET_BYTES=str(budget)) as box:
            document, measured, between = _in_turns(box, options)
    answers = [simulate(parse_scenario(document | {"seed": seed})).outcome.answers for seed in range(DRAWS)]
    results.row("measured", budget_MB=budget / 1e6, requests=len(measured.answers), seconds=options.seconds)
    results.head("application", "P50 lab, ms", "P50 box, ms", "ratio", "P99 lab, ms", "P99 box, ms", "ratio of P99s")
    for name in sorted(a["name"] for a in document["applications"]):
        lab = _mean(_figures(_of(name, drawn), options.seconds) for drawn in answers)
        real = _figures(_of(name, measured.answers), options.seconds)
        sides = [(lab[key], real[key], real[key] / lab[key]) for key in ("P50 ms", "P99 ms")]
        results.cells(name, *sides[0], *sides[1])
    _show(_mean(_figures(drawn, options.seconds) for drawn in answers), measured, between)
    seen = [ns / NS_PER_MS for ns in measured.client_ns]
    results.row("as the caller sees it", P50_ms=results.percentile(seen, 50), P99_ms=results.percentile(seen, 99))


def _in_turns(box: boxes.LiveBox, options: argparse.Namespace) -> tuple[dict[str, Any], Served, Served]:
    """The scenario for the lab, what the box served of it, and what it served between."""
    connection = Connection(box.url, box.key, None, None, box.state)
    slice_s, pause_s = options.seconds / SLICES, options.between * options.seconds / SLICES
    measured, between, runs = Served(), Served(), defaultdict[tuple[str, str], list[float]](list)
    for number in range(SLICES + 1):
        other = zoo.mixed(exported(connection), pause_s / (1 + (number in (0, SLICES))), options.seed + 1000 + number)
        for key, times in _serve(connection, other, between).items():
            runs[key] += times
        if number == 0:
            document = zoo.mixed(exported(connection), options.seconds, options.seed)
            arrivals = _drawn(document)
        if number < SLICES:
            part = _between(arrivals, round(number * slice_s * NS_PER_S), round((number + 1) * slice_s * NS_PER_S))
            _serve(connection, document | {"arrivals": part, "duration_s": slice_s}, measured)
    whole = _between(arrivals, 0, round(options.seconds * NS_PER_S))
    return _with_runs(document, runs) | {"arrivals": whole}, measured, between


def _serve(connection: Connection, document: dict[str, Any], into: Served) -> Runs:
    """Replay a scenario on the box; what its warm runs took."""
    replayed = replayed_on(connection, parse_scenario(document))
    answers = replayed.outcome.answers
    into.answers += answers
    into.client_ns += replayed.client_ns
    into.seconds += document["duration_s"]
    counts = Counter((a.application, a.variant) for a in answers if a.kind == "warm" and a.variant is not None)
    with connection.client() as client:
        latest = {name: client.run_times(name) for name in {application for application, _ in counts}}
    return {key: latest[key[0]][key[1]][-count:] for key, count in counts.items()}


def _drawn(document: dict[str, Any]) -> list[Arrival]:
    scenario = parse_scenario(document)
    return draw(scenario.arrivals, scenario.seed, scenario.duration_s, scenario.base_dir)


def _between(arrivals: Sequence[Arrival], start_ns: int, end_ns: int) -> list[dict[str, Any]]:
    """Those of a part of the time, counted from its start, as a scenario's `arrivals`."""
    times = defaultdict[str, list[float]](list)
    for arrival in arrivals:
        if start_ns <= arrival.at_ns < end_ns:
            times[arrival.application].append((arrival.at_ns - start_ns) / NS_PER_S)
    return [{"application": name, "times_s": moments} for name, moments in sorted(times.items())]


def _with_runs(document: dict[str, Any], runs: Runs) -> dict[str, Any]:
    """The scenario with these run times in place of the box's latest; each of these applications is the only use of a
    model of its name.
    """
    processor = document["box"]["processors"][0]["name"]
    models = [
        {
            **m,
            "variants": [
                {**v, "served_ms": served_ms(processor, runs.get((m["name"], v["name"]), []))} for v in m["variants"]
            ],
        }
        for m in document["models"]
    ]
    return {**document, "models": models}


def _of(name: str, answers: Iterable[Answer]) -> list[Answer]:
    return [a for a in answers if a.application == name]


def _figures(answers: Sequence[Answer], seconds: float) -> Figures:
    served = _latencies_ms(answers)
    return {
        **{f"P{percent} ms": results.percentile(served, percent) for percent in PERCENTS},
        "warm share": sum(a.kind == "warm" for a in answers) / max(1, len(answers)),
        "answers/s": len(served) / seconds,
    }


def _latencies_ms(answers: Iterable[Answer]) -> list[float]:
    return [a.latency_ns / NS_PER_MS for a in answers if a.kind in ("warm", "cold")]


def _mean(draws: Iterable[Figures]) -> Figures:
    rows = list(draws)
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def _show(lab: Figures, measured: Served, between: Served) -> None:
    real, other = measured.figures(), between.figures()
    chance = {f"P{percent} ms": _interval(measured.latencies_ms, percent) for percent in PERCENTS}
    results.head("figure", "lab", "box", "box / lab (asked 0.85-1.15)", "least", "most", "box / box between")
    for name, value in real.items():
        low, high = (end / lab[name] for end in chance.get(name, (value, value)))
        results.cells(name, lab[name], value, value / lab[name], low, high, value / other[name])


def _interval(values: Sequence[float], percent: int) -> tuple[float, float]:
    """Between which of the values their distribution's percentile lies, in 95 of 100 cases: ranks ± 1.96 binomial
    standard deviations.
    """
    ordered, count, share = sorted(values), len(values), percent / 100
    half = 1.96 * math.sqrt(count * share * (1 - share))
    first, last = math.floor(count * share - half), math.ceil(count * share + half)
    return ordered[max(0, first - 1)], ordered[min(count, last) - 1]


if __name__ == "__main__":
    main()
