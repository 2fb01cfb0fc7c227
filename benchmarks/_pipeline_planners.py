"""Planners that the box's own is compared with live: those of the lab, and one that shares no runs."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from appliance.policies.allocation import ALLOCATION_POLICIES, DEFAULT
from appliance.policies.allocation.base import AllocationInput, AllocationPlan, AllocationPolicy
from reproduce.baselines import ALLOCATION


class Single:
    """The box's planner, with batch 1 and concurrency 1 alone to choose from."""

    def plan(self, problem: AllocationInput) -> AllocationPlan:
        modules = tuple(
            replace(one, profiles=tuple(row for row in one.profiles if row.batch == row.concurrency == 1))
            for one in problem.modules
        )
        return ALLOCATION_POLICIES[DEFAULT]().plan(replace(problem, modules=modules))


PLANNERS: Mapping[str, Callable[[], AllocationPolicy]] = {**ALLOCATION, "single": Single}
