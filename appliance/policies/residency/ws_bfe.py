"""Warm-start-aware best-fit eviction (Edge-MultiAI §III-B4, Policy 3): best fit, but the smallest variant takes the
place of what is evicted.

Applications whose own window overlaps the requester's have the lowest priority for eviction: they are touched only when
the others do not suffice.
"""

from collections.abc import Sequence
from functools import partial

from appliance.policies.residency.base import ApplicationState, Change, Option, ResidencyPlan, ResidencyProblem
from appliance.policies.residency.bfe import best_fit
from appliance.policies.residency.floors import bring_floors
from appliance.policies.residency.last_resort import force_out
from appliance.policies.residency.requester import Order, answer
from appliance.policies.residency.space import Space
from appliance.policies.residency.victims import Victim, make_room, replaced, victims
from appliance.policies.residency.windows import overlap, requested_window, window


class WarmStartBestFit:
    """The fit is measured by what a replacement frees.

    Ties by name. O(n²) at most for each of the requester's variants.
    """

    def __init__(self, order: Order = "shrink-first") -> None:
        self._order = order

    def plan(self, problem: ResidencyProblem) -> ResidencyPlan:
        """See `EvictionPolicy`."""
        if problem.request is None:
            return bring_floors(problem)
        apart, overlapping = _parted(problem, problem.by_name[problem.request])

        def choose(found: Sequence[Victim], short_bytes: int) -> Victim:
            first = [victim for victim in found if victim.application.name in apart]
            return best_fit(first or found, short_bytes)

        def room(space: Space, asker: ApplicationState, wanted: Option, found: Sequence[Victim]) -> list[Change] | None:
            return make_room(space, asker, wanted, found, choose)

        ranking = (*apart, *overlapping)
        return answer(problem, victims(problem, replaced), room, partial(force_out, problem, ranking), self._order)


def _parted(problem: ResidencyProblem, asker: ApplicationState) -> tuple[list[str], list[str]]:
    """Those whose windows do not overlap the requester's, and those whose do; each the largest resident first, then
    by name.
    """
    apart: list[str] = []
    overlapping: list[str] = []
    requested = requested_window(asker, problem)
    for application in sorted(problem.applications, key=_size):
        held = overlapping if overlap(window(application, problem.delta_ns), requested) else apart
        held.append(application.name)
    return apart, overlapping


def _size(application: ApplicationState) -> tuple[int, str]:
    loaded = application.loaded
    return (0 if loaded is None else -loaded.bytes, application.name)
