"""What follows from the policy's answers: pipelines go by their new plans, wishes go to whoever serves, and events and
decisions tell of them. Event-loop thread only.
"""

from collections.abc import Callable, Collection, Mapping

from appliance.clock import others_first
from appliance.domain.pipeline import PipelinePlan
from appliance.policies.allocation.several import Served, Several
from appliance.runtime.decisions.pipelines import pipeline as decision_of
from appliance.runtime.pipelines.environment import PipelineEnvironment, PlannedPipeline
from appliance.runtime.pipelines.freshness import Freshness
from appliance.runtime.pipelines.holding import holds
from appliance.runtime.pipelines.last_plans import LastPlan, LastPlans
from appliance.runtime.pipelines.picture import Picture
from appliance.runtime.pipelines.plans import is_alike, no_plan, outcome_of, plan_of

FREED_MIN = 0.01
"""Workers. Less is no room for anybody."""
SLOW = "no plan was found in time"
BESIDE = "its earlier plan left no room for another pipeline"
"""Why one is planned of which nothing has changed."""


class NewPlans:
    """Of all pipelines; numbered by pipeline."""

    def __init__(
        self,
        environment: PipelineEnvironment,
        pipelines: Mapping[str, PlannedPipeline],
        last: LastPlans,
        freshness: Freshness,
        wake: Callable[[], None],
    ) -> None:
        """`pipelines` by id, kept by the registry; `wake` has the next round begin."""
        self._environment = environment
        self._pipelines = pipelines
        self._last = last
        self._freshness = freshness
        self._wake = wake
        self._numbers: dict[str, int] = {}
        self.again: set[str] = set()
        """Pipelines that had less than they asked for when others left room, and have not been planned since."""

    async def of(self, picture: Picture, several: Several) -> dict[str, PipelinePlan]:
        """The answers as plans, by pipeline; others have their turn between two of them."""
        found: dict[str, PipelinePlan] = {}
        for id, served in several.served.items():
            live = self._pipelines.get(id)
            if live is not None:
                found[id] = plan_of(live, picture.asked[id], served, picture, self._number(live))
                await others_first()
        return found

    def apply(
        self, picture: Picture, several: Several, plans: Mapping[str, PipelinePlan], because: Mapping[str, str]
    ) -> None:
        """The plans hold from now on, by pipeline `because` of what. Of one that was changed meanwhile its place is
        kept, for the others were planned beside it, and it is planned next.
        """
        self._last.made_for(picture)
        taken = self._last.taken
        for id, missing in picture.missing.items():
            live = self._pipelines.get(id)
            served = several.served.get(id)
            if live is None:
                continue
            if not self._freshness.of_stages(live, picture):
                if served is not None:
                    self._last.put(id, LastPlan(picture.seen[id], served.plan.placement))
                continue
            plan = plans.get(id)
            if served is not None and plan is not None:
                is_short = served.is_possible and (plan.is_short or not plan.feasible)
                self._last.put(id, LastPlan(picture.seen[id], served.plan.placement, is_short))
                self._put(live, plan, because.get(id, BESIDE))
            elif missing and id in because:
                self._last.put(id, LastPlan(picture.seen[id], ()))
                without = no_plan(self._number(live), missing, picture.seen[id].fps)
                self._put(live, without, because.get(id, BESIDE))
            if served is not None or (missing and id in because):
                self.again.discard(id)
                self._environment.enacting.put(live.pipeline, live.plan, picture.machine)
        if self._last.taken < taken - FREED_MIN:
            self._plan_short_ones_again(but=several.served.keys())
        self._environment.enacting.enact(self._environment.clock.now_ns())

    def keep_what_holds(self, picture: Picture, changed: Mapping[str, str]) -> None:
        """No new plans are made: old ones stay where they can, all others are served without one."""
        environment = self._environment
        is_changed = False
        for id in changed:
            live = self._pipelines.get(id)
            if live is None or not self._freshness.of_stages(live, picture):
                continue
            last = self._last.get(id)
            room_bytes = picture.memory[live.pipeline.tenant]
            if last and holds(live, last.placement, picture.machine, environment.catalogue, room_bytes):
                continue
            self._last.forget(id)
            if live.plan is None or live.plan.feasible:
                self._put(live, no_plan(self._number(live), SLOW, picture.seen[id].fps), changed[id])
                environment.enacting.put(live.pipeline, live.plan, picture.machine)
                is_changed = True
        if is_changed:
            environment.enacting.enact(environment.clock.now_ns())

    def forget_gone(self) -> None:
        """Pipelines that are no more want nothing."""
        gone = {id: self._last.get(id) for id in self._last if id not in self._pipelines}
        if any(one is not None and one.placement for one in gone.values()):
            self._plan_short_ones_again(but=gone)
        self.again.difference_update(gone)
        for id in gone:
            self._last.forget(id)
            self._environment.enacting.forget(id)
        for id in self._numbers.keys() - self._pipelines.keys():
            del self._numbers[id]
        if gone:
            self._environment.enacting.enact(self._environment.clock.now_ns())

    async def record_all(
        self,
        served: Mapping[str, Served],
        plans: Mapping[str, PipelinePlan],
        picture: Picture,
        because: Mapping[str, str],
    ) -> None:
        """A decision on each that still is what it was planned as; others have their turn between two of them."""
        for id, one in served.items():
            live = self._pipelines.get(id)
            if live is not None and id in plans and self._freshness.of_stages(live, picture):
                self.record(live, one, picture, outcome_of(plans[id]), because.get(id, BESIDE))
                await others_first()

    def record(self, live: PlannedPipeline, served: Served, picture: Picture, outcome: str, because: str) -> None:
        """One decision."""
        pipeline = live.pipeline
        facts = decision_of(
            pipeline.id,
            pipeline.tenant,
            pipeline.application_ids,
            served.problem(picture.asked[pipeline.id].levels),
            served.plan,
            self._environment.policy_name,
            outcome,
            because,
        )
        self._environment.decisions.record("pipeline", facts)

    def _plan_short_ones_again(self, but: Collection[str]) -> None:
        """There is room now for those that have less than they asked for."""
        found = self._last.short(but)
        if found:
            self.again |= found
            self._wake()

    def _number(self, live: PlannedPipeline) -> int:
        number = self._numbers[live.pipeline.id] = self._numbers.get(live.pipeline.id, 0) + 1
        return number

    def _put(self, live: PlannedPipeline, plan: PipelinePlan, because: str) -> None:
        before = live.plan
        live.new_plan(plan)
        if not plan.fps and not plan.stages and (before is None or not before.stages):  # there is nobody to serve
            return
        about = {"pipeline": live.pipeline.name, "tenant": live.pipeline.tenant}
        facts = {**about, "reason": plan.reason, "because": because}
        if before is not None and is_alike(before, plan):
            return
        if plan.feasible:
            self._environment.events.emit("pipeline planned", fps=round(plan.fps, 3), degraded=plan.degraded, **facts)
        else:
            self._environment.events.emit("pipeline without a plan", **facts)
