"""`appliance serve` that can plan pipelines by the planners of the lab, too, or by its own without sharing runs.

`APPLIANCE_POLICIES__ALLOCATION` takes their names, too.
"""

from dataclasses import replace

from appliance.cli.main import main
from appliance.policies.allocation import ALLOCATION_POLICIES, DEFAULT
from appliance.policies.allocation.base import AllocationInput, AllocationPlan
from reproduce.baselines import ALLOCATION


class Single:
    """The box's planner, with batch 1 and concurrency 1 alone to choose from."""

    def plan(self, problem: AllocationInput) -> AllocationPlan:
        modules = tuple(
            replace(one, profiles=tuple(row for row in one.profiles if row.batch == row.concurrency == 1))
            for one in problem.modules
        )
        return ALLOCATION_POLICIES[DEFAULT]().plan(replace(problem, modules=modules))


if __name__ == "__main__":
    from benchmarks import _box_with_planners as importable  # planners go to another process by their module's name

    ALLOCATION_POLICIES.update({**ALLOCATION, "single": importable.Single})  # type: ignore[attr-defined]
    main()
