"""The variant that the application prefers, by measured speed and accuracy, of those that can keep the SLO."""

from collections.abc import Sequence

from appliance.domain.catalogue import Prefer
from appliance.domain.slo import preferred
from appliance.policies.selection.base import Candidate, SelectionInput, SelectionPlan
from appliance.policies.selection.most_accurate import MostAccurate

NOTICEABLE = 0.1
"""A difference in run time below this is measuring noise: variants are measured one after the other, on a box that may
serve meanwhile."""


class ByProfile:
    """`accuracy`: as `MostAccurate`. `balanced`: first those that may lose no more than `loss_max`, the fastest first.
    `speed`: the fastest first, however much they lose.

    Only what the SLO prefers (`domain.slo`) is reordered. As fast as another is who is within `NOTICEABLE` of it; then
    the more accurate goes first, then the smaller, then by name. Without the run time of the most accurate one nobody
    is known to be faster, and `balanced` is `accuracy`. O(n²) for n candidates.
    """

    def order(self, problem: SelectionInput) -> SelectionPlan:
        plan = MostAccurate().order(problem)
        if problem.prefer is Prefer.ACCURACY or not plan.order:
            return plan
        by_name = {c.name: c for c in problem.candidates}
        allowed = [by_name[name] for name in plan.order]
        first = preferred(allowed, lambda c: c.p99_ms, problem.latency_slo_ms)
        if problem.prefer is Prefer.BALANCED:
            quick = _good_enough(first, problem.loss_max)
        else:
            quick = [c for c in first if c.p50_ms is not None]
        chosen = [c.name for c in _fastest_first(quick)]
        order = (*chosen, *(name for name in plan.order if name not in chosen))
        return SelectionPlan(order, f"{_reason(by_name[order[0]], by_name[plan.order[0]], problem)}. {plan.reason}")


def _good_enough(candidates: Sequence[Candidate], loss_max: float) -> list[Candidate]:
    """Those as good as the first, the most accurate one, and itself; none where it is not known how fast it is."""
    best = candidates[0]
    if best.p50_ms is None:
        return []
    return [c for c in candidates if c is best or (c.p50_ms is not None and c.loss is not None and c.loss <= loss_max)]


def _fastest_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    left = list(candidates)
    order: list[Candidate] = []
    while left:
        least_ms = min(c.p50_ms or 0.0 for c in left)
        as_fast = [c for c in left if (c.p50_ms or 0.0) * (1 - NOTICEABLE) <= least_ms]
        order.append(
            min(as_fast, key=lambda c: (-c.accuracy, c.loss or 0.0, c.resident_bytes, c.p50_ms or 0.0, c.name))
        )
        left.remove(order[-1])
    return order


def _reason(chosen: Candidate, best: Candidate, problem: SelectionInput) -> str:
    if chosen is best:
        return f"{chosen.name} has the highest {problem.meaning}, and no other is faster{_within(problem)}"
    faster = f"{chosen.name} takes {chosen.p50_ms:.3g} ms, {best.name} {_ms(best.p50_ms)}"
    if chosen.loss is None:
        return f"{faster}; what it loses is not known"
    return f"{faster}; it loses at most {chosen.loss:.3g} points at 95 %"


def _within(problem: SelectionInput) -> str:
    return f" at a loss of at most {problem.loss_max:g} points at 95 %" if problem.prefer is Prefer.BALANCED else ""


def _ms(p50_ms: float | None) -> str:
    return "an unknown time" if p50_ms is None else f"{p50_ms:.3g}"
