"""The most accurate variant that can keep the SLO."""

from appliance.policies.selection.base import Candidate, SelectionInput, SelectionPlan


class MostAccurate:
    """Candidates that keep the SLO by descending accuracy, then the others by ascending latency; O(n log n).

    A variant keeps the SLO when twice its P99 fits (one execution of waiting, one of its own: Jellyfish §IV-A eq. 5). One without a measured
    latency is taken to fit. Ties: smaller, then by name.
    """

    def order(self, problem: SelectionInput) -> SelectionPlan:
        allowed = [c for c in problem.candidates if c.accuracy >= problem.accuracy_min]
        fitting = [c for c in allowed if _fits(c, problem.latency_slo_ms)]
        others = [c for c in allowed if not _fits(c, problem.latency_slo_ms)]
        fitting.sort(key=lambda c: (-c.accuracy, c.resident_bytes, c.p99_ms or 0.0, c.name))
        others.sort(key=lambda c: (c.p99_ms or 0.0, -c.accuracy, c.name))
        return SelectionPlan(tuple(c.name for c in fitting + others), _reason(len(fitting), len(allowed), problem))


def _fits(candidate: Candidate, slo_ms: float | None) -> bool:
    return slo_ms is None or candidate.p99_ms is None or 2 * candidate.p99_ms <= slo_ms


def _reason(fitting: int, allowed: int, problem: SelectionInput) -> str:
    floor = f"{allowed} of {len(problem.candidates)} reach the accuracy floor {problem.accuracy_min:g}"
    return floor if problem.latency_slo_ms is None else f"{floor}, {fitting} keep {problem.latency_slo_ms:g} ms"
