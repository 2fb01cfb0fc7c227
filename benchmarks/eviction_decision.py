"""Eviction: the mean time of one decision, 20 applications x 3 variants, every policy and intent.

Asked: mean <= 0.1 ms.

CPU time of the policy alone over drawn states in which a requester has nothing resident (`serve`, `procure`) and
residents fill most of memory.
"""

import argparse
import random
import statistics
import time

from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.residency.base import ApplicationState, Intent, Option, Rate, ResidencyProblem

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=300)
    options = parser.parse_args()
    print("| policy | serve, mean ms | p99 | procure, mean ms | p99 | rebalance, mean ms | p99 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    intents: tuple[Intent, ...] = ("serve", "procure", "rebalance")
    for name, make in EVICTION_POLICIES.items():
        row = [name]
        for intent in intents:
            policy, chance, spent = make(), random.Random(1), list[float]()
            for problem in [draw(chance, intent) for _ in range(options.problems)]:
                start = time.process_time()
                policy.plan(problem)
                spent.append((time.process_time() - start) * 1e3)
            row += [f"{statistics.fmean(spent):.3f}", f"{statistics.quantiles(spent, n=100)[98]:.3f}"]
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
