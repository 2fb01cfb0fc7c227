"""Intelligent warm-start-aware best-fit eviction (Edge-MultiAI §III-B5, Policy 4, Algorithm 1).

Candidates are minimalists that were not requested within the history window H and whose window does not overlap the
requester's. They are replaced by their smallest variant in the order of eq. 3, from a max-heap, until the wanted
variant fits; nothing is enacted before the sum suffices. The paper does not say what eq. 3 means for an application
that is not expected (here: as far away as the farthest) or whose prediction has passed (here: distance 0).
"""

import heapq
from collections.abc import Sequence

from appliance.policies.residency.base import ApplicationState, Change, Option, ResidencyPlan, ResidencyProblem
from appliance.policies.residency.floors import bring_floors
from appliance.policies.residency.last_resort import force_out
from appliance.policies.residency.requester import Order, answer
from appliance.policies.residency.victims import Victim, make_room, replaced, victims
from appliance.policies.residency.windows import overlap, requested_window, window


class IntelligentWarmStart:
    """Ties by name. O(n log n) for each of the requester's variants."""

    def __init__(self, order: Order = "shrink-first") -> None:
        self._order = order

    def plan(self, problem: ResidencyProblem) -> ResidencyPlan:
        """See `EvictionPolicy`."""
        if problem.request is None:
            return bring_floors(problem)
        minimalists = victims(problem, replaced)
        ranked = by_score(problem, candidates(problem, minimalists))

        def last_resort(asker: ApplicationState, wanted: Option, level: float) -> list[Change] | None:
            return force_out(problem, _ranking(problem, ranked), asker, wanted, level)

        return answer(problem, ranked, make_room, last_resort, self._order)


def candidates(problem: ResidencyProblem, minimalists: Sequence[Victim]) -> list[Victim]:
    """Not requested within H (Alg. 1 line 2), and its window apart from the requester's (line 3)."""
    assert problem.request is not None
    requested = requested_window(problem.by_name[problem.request], problem)
    since_ns = problem.now_ns - problem.history_window_ns
    return [
        victim
        for victim in minimalists
        if ((last_ns := victim.application.last_request_ns) is None or last_ns < since_ns)
        and not overlap(window(victim.application, problem.delta_ns), requested)
    ]


def scores(problem: ResidencyProblem, applications: Sequence[ApplicationState]) -> list[float]:
    """Eq. 3 for each: (tⱼ - now) / maxₖ(tₖ - now) · [1 - P(rⱼ | Aᵢ ∈ A*)], in 0..1; higher goes first."""
    predicted = [application.next_request_ns for application in applications]
    now_ns = problem.now_ns
    farthest = max((t - now_ns for t in predicted if t is not None), default=0)
    found = []
    for application, t in zip(applications, predicted, strict=True):
        distance = 1.0 if t is None else max(t - now_ns, 0) / farthest if farthest > 0 else 0.0
        found.append(distance * (1.0 - problem.unexpected.get(application.name, 0.0)))
    return found


def by_score(problem: ResidencyProblem, candidates: Sequence[Victim]) -> list[Victim]:
    """Highest score first, as the max-heap gives them; ties by name, broken wishes last."""
    fitness = scores(problem, [victim.application for victim in candidates])
    heap = [
        (victim.level, -fit, victim.application.name, victim) for fit, victim in zip(fitness, candidates, strict=True)
    ]
    heapq.heapify(heap)
    return [heapq.heappop(heap)[-1] for _ in candidates]


def _ranking(problem: ResidencyProblem, ranked: Sequence[Victim]) -> list[str]:
    """For the last resort: the candidates as ranked, then all others by the same score, ties by name."""
    first = [victim.application.name for victim in ranked]
    others = sorted((a for a in problem.applications if a.name not in first), key=lambda a: a.name)
    fitness = dict(zip((a.name for a in others), scores(problem, others), strict=True))
    return [*first, *sorted(fitness, key=lambda name: -fitness[name])]
