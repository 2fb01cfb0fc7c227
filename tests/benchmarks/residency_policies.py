"""Residency: cold starts and utility of every eviction policy, five applications of Table II, policies alone in a small simulation.

Poisson requests, forecasts of which a share (the deviation) is replaced by random times, window edges that procure and rebalance, load times that count:
a request that comes while its application's variant loads and nothing else of it is there is cold. `--full` sweeps finer.
"""

import argparse
import bisect
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from appliance.policies.eviction import EVICTION_POLICIES
from appliance.policies.eviction.base import ApplicationState, EvictionPolicy, Intent, Option, ResidencyProblem
from tests.instances.residency import LOAD_MS_PER_MB, TABLE_II

NS = 10**9
MB = 10**6
ZOO = {
    name: tuple(
        Option(v, round(mb * MB), round(mb * MB), acc, round(mb * LOAD_MS_PER_MB * 1e6)) for v, mb, acc in variants
    )
    for name, variants in TABLE_II.items()
}


@dataclass
class Traffic:
    """Actual and predicted times of each application, and Δ and H as they come out of them."""

    actual: dict[str, list[int]]
    predicted: dict[str, list[int]]
    delta_ns: int
    history_ns: int


def traffic(seed: int, deviation: float, requests: int, mean_s: float) -> Traffic:
    """Exponential times between requests, equal numbers for each application."""
    chance = random.Random(f"{seed} {deviation}")
    actual, predicted = {}, {}
    for name in ZOO:
        t, times = 0.0, list[float]()
        for _ in range(requests):
            t += chance.expovariate(1 / mean_s)
            times.append(t)
        foreseen = [chance.uniform(0, t) if chance.random() < deviation else a + chance.gauss(0, 0.2) for a in times]
        actual[name] = [round(a * NS) for a in times]
        predicted[name] = sorted(round(p * NS) for p in foreseen)
    residuals = [abs(p - _nearest(actual[name], p)) for name in ZOO for p in predicted[name]]
    return Traffic(actual, predicted, round(statistics.fmean(residuals)), round(mean_s * NS / len(ZOO)))


def _nearest(times: Sequence[int], t: int) -> int:
    i = bisect.bisect(times, t)
    return min(times[max(0, i - 1) : i + 1], key=lambda a: abs(a - t))


@dataclass
class Tally:
    """What became of the requests."""

    warm: int = 0
    cold: int = 0
    failed: int = 0
    accuracy: float = 0.0
    loads: int = 0
    by_outcome: dict[str, int] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        return self.warm + self.cold + self.failed

    @property
    def cold_share(self) -> float:
        return (self.cold + self.failed) / self.requests

    @property
    def utility(self) -> float:
        return self.accuracy / self.requests


class Box:
    """Residents and loads under one policy."""

    def __init__(self, policy: EvictionPolicy, memory_mb: float, load: Traffic) -> None:
        self.policy, self.memory, self.load = policy, round(memory_mb * MB), load
        self.resident: dict[str, str | None] = dict.fromkeys(ZOO)
        self.ready_ns = dict.fromkeys(ZOO, 0)
        self.serving: dict[str, Option | None] = dict.fromkeys(ZOO)
        """What answers while the resident variant still loads."""
        self.last: dict[str, int | None] = dict.fromkeys(ZOO)
        self.seen: dict[str, int] = dict.fromkeys(ZOO, 0)
        self.followed: dict[tuple[str, str], int] = {}
        self.upcoming = dict.fromkeys(ZOO, 0)
        self.tally = Tally()

    def state(self, now: int, asker: str | None) -> tuple[ApplicationState, ...]:
        return tuple(self._application(name, now, asker) for name in ZOO)

    def _application(self, name: str, now: int, asker: str | None) -> ApplicationState:
        predicted = self.load.predicted[name]
        while self.upcoming[name] < len(predicted) and predicted[self.upcoming[name]] + self.load.delta_ns < now:
            self.upcoming[name] += 1
        following = predicted[self.upcoming[name]] if self.upcoming[name] < len(predicted) else None
        probability = 0.0
        if asker is not None:
            probability = (self.followed.get((asker, name), 0) + 1) / (self.seen[asker] + 2)
        return ApplicationState(
            name,
            ZOO[name],
            self.resident[name],
            pinned=now < self.ready_ns[name],
            last_request_ns=self.last[name],
            next_request_ns=following,
            unexpected_probability=probability,
            rate_rps=self.seen[name] / max(now / NS, 1.0),
        )

    def decide(self, now: int, asker: str | None, intent: Intent) -> str:
        """Ask the policy and enact; the outcome."""
        problem = ResidencyProblem(
            now, self.memory, self.load.history_ns, self.load.delta_ns, self.state(now, asker), asker, intent
        )
        plan = self.policy.plan(problem)
        for change in plan.changes:
            name = change.application
            before, after = self._option(name, change.before), self._option(name, change.after)
            self.resident[name] = change.after
            if after is None:
                self.serving[name] = None
                continue
            self.tally.loads += 1
            fits_beside = before is not None and self.held() + before.bytes <= self.memory
            self.serving[name] = before if fits_beside else None
            self.ready_ns[name] = now + after.load_ns
        assert self.held() <= self.memory
        return plan.outcome

    def held(self) -> int:
        return sum(option.bytes for name in ZOO if (option := self._option(name, self.resident[name])) is not None)

    def request(self, name: str, now: int) -> None:
        was = self.resident[name]
        loading = now < self.ready_ns[name]
        outcome = self.decide(now, name, "serve") if was is None else "warm"
        option = self._option(name, self.resident[name])
        if outcome == "failed" or option is None:
            self.tally.failed += 1
        elif was is None or (loading and self.serving[name] is None):
            self.tally.cold += 1
            self.tally.accuracy += option.accuracy
        else:
            beside = self.serving[name] if loading else None
            self.tally.warm += 1
            self.tally.accuracy += (beside or option).accuracy
        self._note(name, now)

    def _note(self, name: str, now: int) -> None:
        for other, last in self.last.items():
            if last is not None and other != name and now - last <= self.load.delta_ns:
                self.followed[other, name] = self.followed.get((other, name), 0) + 1
        self.last[name] = now
        self.seen[name] += 1

    @staticmethod
    def _option(name: str, variant: str | None) -> Option | None:
        return next((option for option in ZOO[name] if option.name == variant), None)


def run(policy: str, memory_mb: float, load: Traffic) -> Tally:
    """All of the traffic through one box."""
    box = Box(EVICTION_POLICIES[policy](), memory_mb, load)
    for now, kind, name in _events(load):
        if kind == "request":
            box.request(name, now)
        else:
            if kind == "opens":
                box.decide(now, name, "procure")
            box.decide(now, None, "rebalance")
    return box.tally


def _events(load: Traffic) -> list[tuple[int, str, str]]:
    return sorted(_all_events(load))


def _all_events(load: Traffic) -> Iterator[tuple[int, str, str]]:
    for name in ZOO:
        theta = max(ZOO[name], key=lambda option: option.accuracy).load_ns
        yield from ((t, "request", name) for t in load.actual[name])
        end = -1
        for t in load.predicted[name]:
            opens, closes = max(0, t - load.delta_ns - theta), t + load.delta_ns
            if opens > end:
                yield (opens, "opens", name)
                if end >= 0:
                    yield (end + 1, "closes", name)
            end = closes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--policies", nargs="*", default=list(EVICTION_POLICIES))
    parser.add_argument("--mean-s", type=float, default=10.0)
    options = parser.parse_args()
    deviations = [i / 10 for i in range(10)] if options.full else [0.0, 0.3, 0.6, 0.9]
    memories = list(range(400, 2101, 100)) if options.full else [400, 500, 600, 900, 1200, 1500, 2100]
    seeds = range(10 if options.full else 2)
    requests = 200 if options.full else 120
    cells = {(d, m): [traffic(s, d, requests, options.mean_s) for s in seeds] for d in deviations for m in memories}
    results: dict[str, dict[tuple[float, int], tuple[float, float]]] = {}
    print("| policy | cold | utility | loads a request | cold, memory < floors | utility there |")
    print("| --- | --- | --- | --- | --- | --- |")
    for policy in options.policies:
        tallies = {cell: [run(policy, cell[1], load) for load in loads] for cell, loads in cells.items()}
        found = {
            cell: (statistics.fmean(t.cold_share for t in ts), statistics.fmean(t.utility for t in ts))
            for cell, ts in tallies.items()
        }
        results[policy] = found
        loads = statistics.fmean(t.loads / t.requests for ts in tallies.values() for t in ts)
        tight = [value for (_, memory), value in found.items() if memory < 561]
        cold, utility = (statistics.fmean(v[i] for v in found.values()) for i in (0, 1))
        tight_cold, tight_utility = (statistics.fmean(v[i] for v in tight) for i in (0, 1))
        print(f"| {policy} | {cold:.4f} | {utility:.2f} | {loads:.2f} | {tight_cold:.4f} | {tight_utility:.2f} |")
    if "iws-bfe" in results and "floors" in results:
        compare(results["floors"], results["iws-bfe"])


def compare(
    ours: dict[tuple[float, int], tuple[float, float]], theirs: dict[tuple[float, int], tuple[float, float]]
) -> None:
    """The worst cells of `floors` against `iws-bfe`, and a row a memory size."""
    worst_cold = max(ours, key=lambda cell: ours[cell][0] - theirs[cell][0])
    worst_utility = min(ours, key=lambda cell: ours[cell][1] - theirs[cell][1])
    print(f"\nworst cell, cold: {worst_cold} {100 * (ours[worst_cold][0] - theirs[worst_cold][0]):+.2f} points")
    print(f"worst cell, utility: {worst_utility} {ours[worst_utility][1] - theirs[worst_utility][1]:+.2f}\n")
    for deviation, memory in ours:
        (c1, u1), (c2, u2) = ours[deviation, memory], theirs[deviation, memory]
        print(f"{deviation:.1f} {memory:5d}  cold {c1:.3f} vs {c2:.3f}  utility {u1:.2f} vs {u2:.2f} ({u1 - u2:+.2f})")


if __name__ == "__main__":
    main()
