"""The most accurate variant that can keep the SLO."""

from appliance.domain.slo import keeps_slo, preferred
from appliance.policies.selection.base import SelectionInput, SelectionPlan


class MostAccurate:
    """Candidates that the SLO prefers (`domain.slo`) by descending accuracy, then the others by ascending latency.

    Ties: the one that may lose less, as far as is known; then smaller, faster, by name. O(n log n).
    """

    def order(self, problem: SelectionInput) -> SelectionPlan:
        allowed = [c for c in problem.candidates if c.accuracy >= problem.accuracy_min]
        first = preferred(allowed, lambda c: c.p99_ms, problem.latency_slo_ms)
        others = [c for c in allowed if c not in first]
        first.sort(key=lambda c: (-c.accuracy, c.loss or 0.0, c.resident_bytes, c.p99_ms or 0.0, c.name))
        others.sort(key=lambda c: (c.p99_ms or 0.0, -c.accuracy, c.name))
        keeping = sum(keeps_slo(c.p99_ms, problem.latency_slo_ms) for c in allowed)
        return SelectionPlan(tuple(c.name for c in first + others), _reason(keeping, len(allowed), problem))


def _reason(keeping: int, allowed: int, problem: SelectionInput) -> str:
    floor = f"{allowed} of {len(problem.candidates)} have an {problem.meaning} of at least {problem.accuracy_min:g}"
    return floor if problem.latency_slo_ms is None else f"{floor}, {keeping} keep {problem.latency_slo_ms:g} ms"
