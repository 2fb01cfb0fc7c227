"""The policies that a scenario names, and a watch on what their decisions cost in real time."""

from collections.abc import Iterable, Mapping
from typing import Any

from appliance.clock import NS_PER_MS, SystemClock
from appliance.lab.problems.base import Malformed, known
from appliance.lab.registry import FAMILIES
from appliance.policies.residency.steps import in_steps


def check_policies(chosen: Mapping[str, str]) -> None:
    """Raises: Malformed, naming the family."""
    for family, name in chosen.items():
        key = f"policies.{family[:80]}"
        if family not in FAMILIES:
            raise Malformed(key, f"is not one of: {', '.join(FAMILIES)}")
        known(name, FAMILIES[family], key)


def parse_choices(options: Iterable[str]) -> dict[str, str]:
    """`FAMILY=NAME` options as a table. Raises: Malformed."""
    chosen: dict[str, str] = {}
    for option in options:
        family, equals, name = option.partition("=")
        if not (family and equals and name):
            raise Malformed("--policy", f"{option[:80]!r} is not in the form FAMILY=NAME")
        chosen[family] = name
    return chosen


class Stopwatch:
    """Wall-clock nanoseconds of every decision, by family: the one figure of a simulation that is not repeatable."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._spent_ns: dict[str, list[int]] = {}

    def timed(self, family: str, policy: Any) -> Any:
        """The policy, its `plan` measured."""
        return _Timed(policy, self._spent_ns.setdefault(family, []), self._clock)

    def rows(self) -> dict[str, dict[str, float]]:
        """Family → count, mean_ms, p99_ms; families that were never asked are left out."""
        return {
            family: {
                "count": len(spent),
                "mean_ms": round(sum(spent) / len(spent) / NS_PER_MS, 4),
                "p99_ms": round(sorted(spent)[max(0, -(-99 * len(spent) // 100) - 1)] / NS_PER_MS, 4),
            }
            for family, spent in sorted(self._spent_ns.items())
            if spent
        }


class _Timed:
    """A policy with a `plan`, perhaps in `steps`, and how long each took."""

    def __init__(self, policy: Any, spent_ns: list[int], clock: SystemClock) -> None:
        self._policy = policy
        self._spent_ns = spent_ns
        self._clock = clock

    @property
    def requeues_at_head(self) -> bool:
        """Of a dispatch policy."""
        return bool(self._policy.requeues_at_head)

    def plan(self, problem: Any) -> Any:
        start_ns = self._clock.now_ns()
        plan = self._policy.plan(problem)
        self._spent_ns.append(self._clock.now_ns() - start_ns)
        return plan

    def steps(self, problem: Any) -> Any:
        """The time of each step counts, not that of whoever had a turn in between."""
        steps, spent_ns = in_steps(self._policy, problem), 0
        while True:
            start_ns = self._clock.now_ns()
            try:
                next(steps)
            except StopIteration as end:
                self._spent_ns.append(spent_ns + self._clock.now_ns() - start_ns)
                return end.value
            spent_ns += self._clock.now_ns() - start_ns
            yield
