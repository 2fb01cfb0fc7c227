"""The policy's answers to rounds and joins: some pipelines beside the others as they are, or all anew.

Scrooge §3.4-3.6. A policy is asked where it delays nobody, and waited for as long as `Solver` says. Nothing is applied
here. Event-loop thread only.
"""

import math
from collections.abc import Collection
from functools import partial

from appliance.clock import others_first
from appliance.policies.allocation.several import (
    Served,
    Several,
    least_workers,
    plan_beside,
    plan_several,
)
from appliance.runtime.pipelines.demands import Demands
from appliance.runtime.pipelines.environment import PipelineEnvironment
from appliance.runtime.pipelines.last_plans import LastPlans, taken_by
from appliance.runtime.pipelines.picture import Picture, load_of
from appliance.runtime.pipelines.planning_figures import PlanningFigures
from appliance.runtime.pipelines.refusal import lacks
from appliance.runtime.pipelines.solver import Solver


class Allocations:
    """Asks the policy about pipelines as a picture has them."""

    def __init__(
        self, environment: PipelineEnvironment, solver: Solver, last: LastPlans, figures: PlanningFigures
    ) -> None:
        self._environment = environment
        self._solver = solver
        self._last = last
        self._figures = figures
        self._demands = Demands(environment)

    @property
    def are_paused(self) -> bool:
        """Whether the policy is not asked now, for its last answer did not come."""
        return self._solver.is_paused

    def beside_plans_of_now(self) -> "Allocations":
        """Asks the policy what would be, beside the plans as they are now, whatever becomes of them. Its answers are
        not applied, and count in no figures.
        """
        return Allocations(self._environment, self._solver, self._last.copied(), PlanningFigures())

    async def of_changed(self, picture: Picture, ids: Collection[str], *, may_degrade: bool) -> Several:
        """The plans of those that have changed, beside the others'; of all where they do not fit.

        Raises: SolverSlow.
        """
        found = await self._beside(picture, ids)
        if found is not None:
            return found
        demands = await self._demands.of(picture, picture.seen.keys())
        compute = partial(plan_several, demands, self._environment.policy, {}, picture.busy, may_degrade=may_degrade)
        several = await self._solver.ask(compute, len(demands))
        self._figures.plans += several.solved
        return several

    async def of_joined(self, picture: Picture, id: str) -> Several:
        """The plan of a pipeline that a client would join, beside those of the others as they are, where what these
        have come to want since has room, too; else with those of all that have changed. Raises: SolverSlow.
        """
        changed = {*self._last.changes(picture)} - {id}
        if changed and not self._last.change_of_all(picture) and self._have_same_offers(picture, changed):
            found = await self._beside(picture, {id})
            if found is not None and await self._has_room(picture, found, changed):
                return found
        return await self.of_changed(picture, {*changed, id}, may_degrade=False)

    async def lacking(self, lacking: Served, picture: Picture) -> tuple[str, ...]:
        """What there is not enough of for a pipeline. Raises: SolverSlow."""
        problem = lacking.problem(picture.asked[lacking.name].levels)
        return await self._solver.ask(partial(lacks, problem, self._environment.policy))

    def most_fps(self, picture: Picture, id: str) -> float:
        """Frames a second that all workers together have time for, were there no other pipeline and no waits."""
        each = min(least_workers(level) for level in picture.asked[id].levels)
        return _workers(picture) / each if each else math.inf

    async def _beside(self, picture: Picture, ids: Collection[str]) -> Several | None:
        """The plans of some beside those of all others; None: they do not fit, or there are no others."""
        self._figures.rounds += 1
        others = self._last.placements(but=ids)
        kept = {id: placement for id, placement in others.items() if id in picture.seen}
        if not kept:
            return None
        demands = await self._demands.of(picture, ids)
        several = await self._solver.ask(
            partial(plan_beside, demands, self._environment.policy, kept, picture.busy), len(demands)
        )
        self._figures.plans += 0 if several is None else several.solved
        return several

    def _have_same_offers(self, picture: Picture, ids: Collection[str]) -> bool:
        """Whether some pipelines may be served with the same variants as before, unless they were changed: for all that
        is offered has to fit into memory with what the joining one needs.
        """
        last = {id: self._last.get(id) for id in ids}
        return not any(one is not None and picture.seen[id].has_other_offers(one.seen) for id, one in last.items())

    async def _has_room(self, picture: Picture, several: Several, changed: Collection[str]) -> bool:
        """Whether all that is planned leaves room for what the changed ones want, as little as that may be."""
        taken = sum(load_of(picture.busy).values())
        taken += sum(taken_by(one.plan.placement) for one in several.served.values())
        for id in picture.seen.keys() - several.served.keys():
            last = self._last.get(id)
            own = 0.0 if last is None else last.taken
            if id in changed and not picture.missing[id]:
                own = max(own, least_workers(picture.asked[id].levels[0]) * picture.seen[id].fps)
                await others_first()
            taken += own
        return taken <= _workers(picture)


def _workers(picture: Picture) -> int:
    return sum(1 if group.is_device else group.workers for group in picture.machine.groups)
