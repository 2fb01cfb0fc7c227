"""Eviction: processor time of one decision over drawn states. In `serve` and `procure` the requester has nothing in
memory; residents fill most of it.
"""

import argparse
import random
import statistics
from collections.abc import Sequence
from functools import partial

from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.residency.base import ApplicationState, Intent, Option, Rate, ResidencyProblem
from benchmarks import _results as results

SEEDS, QUICK, FIRST = 1, 1, 1
PROBLEMS = 300
NS = 10**9
MB = 10**6
APPLICATIONS = 20


def draw(chance: random.Random, intent: Intent) -> ResidencyProblem:
    """Three in ten applications absent, one in ten pinned, forecasts up to a minute ahead, 5 % of memory free."""
    applications = tuple(_application(chance, f"application-{i:02}") for i in range(APPLICATIONS))
    asker = chance.randrange(APPLICATIONS)
    if intent != "rebalance":
        absent = ApplicationState(
            applications[asker].name, applications[asker].options, None, next_request_ns=1000 * NS
        )
        applications = (*applications[:asker], absent, *applications[asker + 1 :])
    held = sum(o.bytes for a in applications for o in a.options if o.name == a.resident)
    request = None if intent == "rebalance" else applications[asker].name
    return ResidencyProblem(
        1000 * NS,
        round(1.05 * held) + MB,
        2 * NS,
        NS,
        applications,
        request,
        intent,
        unexpected={a.name: chance.random() / 4 for a in applications},
    )


def _application(chance: random.Random, name: str) -> ApplicationState:
    large = chance.uniform(200, 600)
    sizes = [("fp32", large, 90.0), ("fp16", large * 0.7, 82.0), ("int8", large * 0.26, 72.0)]
    options = tuple(Option(v, round(mb * MB), round(mb * MB), acc, round(mb * 1.7e6)) for v, mb, acc in sizes)
    return ApplicationState(
        name,
        options,
        None if chance.random() < 0.3 else chance.choice(options).name,
        pinned=chance.random() < 0.1,
        last_request_ns=round((1000 - chance.expovariate(0.1)) * NS),
        next_request_ns=round((1000 + chance.uniform(-5, 60)) * NS),
        rate=Rate(chance.uniform(0.01, 0.3), 999 * NS),
        prediction_hit_rate=chance.random(),
    )


def _decision(options: argparse.Namespace, seeds: Sequence[int]) -> None:
    intents: tuple[Intent, ...] = ("serve", "procure", "rebalance")
    names = [f"{intent}, {what} ms" for intent in intents for what in ("mean", "P99")]
    results.head("policy", *names, title="One decision, 20 applications x 3 variants")
    for name, make in EVICTION_POLICIES.items():
        row: list[float] = []
        for intent in intents:
            policy = make()
            chances = [random.Random(seed) for seed in seeds]
            drawn = [draw(chance, intent) for chance in chances for _ in range(PROBLEMS)]
            spent = [results.spent(partial(policy.plan, problem))[1] for problem in drawn]
            row += [statistics.fmean(spent), results.percentile(spent, 99)]
        results.cells(name, *row)


TABLES = {"decision": _decision}
