"""Which builds leave where no residency policy is asked: the least recently used ones, those of expected applications
last.

It stands behind the arbiter: for a build that is no variant of an application, and for a budget that has shrunk.
"""

from collections.abc import Collection
from dataclasses import replace

from appliance.runtime.memory.room import ResidentBuild, RoomPlan, RoomProblem
from appliance.runtime.residency.demand import Expectations
from appliance.runtime.residency.groups import VariantGroups
from appliance.runtime.residency.shares import Shares

_AFTER_ALL_NS = 2**62
"""Later than any use."""


class Fallback:
    """Knows windows and guarantees, but weighs nothing. Event-loop thread only."""

    def __init__(self, groups: VariantGroups, expectations: Expectations, shares: Shares) -> None:
        self._groups = groups
        self._expectations = expectations
        self._shares = shares

    def plan(self, problem: RoomProblem, in_use: Collection[str] = ()) -> RoomPlan:
        """Guaranteed builds, and those of expected applications, leave for a smaller budget only, and then after all
        others; for a build that is not urgent those that planners use (`in_use`) stay. O(n log n).
        """
        guaranteed = self._shares.guaranteed(self._groups.tenant_of(problem.build_id), problem.resident)
        ranked = (self._ranked(problem, build, guaranteed, in_use) for build in problem.resident)
        return least_recently_used(replace(problem, resident=tuple(ranked)))

    def _ranked(
        self, problem: RoomProblem, build: ResidentBuild, guaranteed: set[str], in_use: Collection[str]
    ) -> ResidentBuild:
        """The build with a time of last use that says when it is its turn."""
        group = self._groups.of_build(build.build_id)
        is_expected = group is not None and self._expectations.of(group.name).is_maximalist
        is_guaranteed = build.build_id in guaranteed
        later_ns = (is_expected + 2 * is_guaranteed) * _AFTER_ALL_NS
        is_kept = build.pinned or ((is_expected or is_guaranteed) and bool(problem.build_id))
        is_kept = is_kept or (build.build_id in in_use and not problem.is_urgent)
        return build._replace(last_used_ns=later_ns + build.last_used_ns, pinned=is_kept)


def least_recently_used(problem: RoomProblem) -> RoomPlan:
    """Unpinned builds leave, the longest unused first, until the wanted one fits; ties by build id.

    No more leave than that needs.
    """
    missing = problem.need_bytes - problem.free_bytes
    victims: list[str] = []
    freed = 0
    for build in sorted(problem.resident, key=lambda b: (b.last_used_ns, b.build_id)):
        if freed >= missing:
            break
        if not build.pinned:
            victims.append(build.build_id)
            freed += build.freed_bytes
    if freed < missing:
        return RoomPlan((), 0, False, f"{missing - freed} bytes are missing even without every unpinned build")
    return RoomPlan(tuple(victims), freed, True, f"{len(victims)} least recently used builds free {freed} bytes")
