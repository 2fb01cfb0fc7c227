"""The serve loop: what was seen of pipelines becomes problems, the policy's answers plans (Scrooge §3.4-3.6).

Twice a second, and at once when a client joins or leaves, or a pipeline, a tenant, a processor or the memory changes.
It plans where a figure has moved by more than chance and a tenth. The answers are applied to the pipelines that still
are what was asked about, as long as the box is. Event-loop thread only.
"""

import asyncio
from collections.abc import Mapping

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.log import get as get_log
from appliance.runtime.pipelines.admission import Admission
from appliance.runtime.pipelines.picture import Picture
from appliance.runtime.pipelines.planning_parts import PlanningParts
from appliance.runtime.pipelines.solver import SolverSlow

PERIOD_NS = 500 * NS_PER_MS
"""Between two looks at the figures."""
AT_ONCE = 8
"""Pipelines that are planned before somebody who would join has a turn."""
STALE_MAX = 3
"""Answers in a row that are thrown away because the box has changed meanwhile: the next one is better than none."""
SLOW_NS = NS_PER_S
"""A plan that took longer is told of: meanwhile pipelines were served by the old one."""
log = get_log("pipelines")


class Planning:
    """Rounds that plan all pipelines; `run` is its background task."""

    def __init__(self, parts: PlanningParts, admission: Admission) -> None:
        self.parts = parts
        self._environment = parts.environment
        self._pipelines = parts.pipelines
        self._thrown_away = 0
        """Answers in a row."""
        self.admission = admission
        """Lets clients in between two rounds."""
        self.figures = parts.figures

    def wake(self) -> None:
        """Something has changed: a pipeline, a client, a processor."""
        self.parts.woken.set()

    def ballooning(self, pipeline_id: str) -> Mapping[str, float]:
        """Stage that asks a network → what its runs take over what was measured, as the last plan saw it."""
        last = self.parts.last.get(pipeline_id)
        return {} if last is None else last.seen.ballooning

    async def run(self, *, goes_on: bool = False) -> None:
        """Until cancelled. `goes_on`: a round that fails is logged, and the next one is another; else it raises."""
        while True:
            self.parts.woken.clear()
            try:
                await self.step()
            except Exception:
                if not goes_on:
                    raise
                log.exception("pipelines were not planned")
            await self._pause()

    async def _pause(self) -> None:
        clock = self._environment.clock
        if not self._pipelines:  # nothing to look at
            await self.parts.woken.wait()
            return
        sleep = asyncio.ensure_future(clock.sleep_until_ns(clock.now_ns() + PERIOD_NS))
        wake = asyncio.ensure_future(self.parts.woken.wait())
        try:
            await asyncio.wait((sleep, wake), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sleep, wake):
                task.cancel()
            await asyncio.gather(sleep, wake, return_exceptions=True)

    # -- one round -----------------------------------------------------------------------------------------------------

    async def step(self) -> bool:
        """One round: look, and plan what has changed. Returns whether anything was planned."""
        now_ns, parts = self._environment.clock.now_ns(), self.parts
        for live in list(self._pipelines.values()):
            for client in live.clients.silent(now_ns):
                self.admission.left(live, client, "nothing was heard of it")
            live.look()
        async with parts.turn:
            picture = await parts.pictures.take()
            parts.plans.forget_gone()
            parts.pictures.forget_gone()
            again = sorted(parts.plans.again & picture.seen.keys())
            changes = dict.fromkeys(again, "there is room again") | parts.last.changes(picture)
            self._environment.enacting.refresh(now_ns)
            if not changes:
                return False
        is_planned = False
        while changes:
            async with parts.turn:  # who would join has a turn between two portions
                is_planned |= await self._plan_some(picture, changes)
        return is_planned

    async def _plan_some(self, picture: Picture, changes: dict[str, str]) -> bool:
        """Plan `AT_ONCE` of those that have changed, or all where that is about all: they are none of them any more."""
        for id in [id for id in changes if not self._is_still(id, picture)]:
            del changes[id]
        of_all = self.parts.last.change_of_all(picture)
        some = dict(changes if of_all else list(changes.items())[:AT_ONCE])
        for id in some:
            del changes[id]
        if not some:
            return False
        try:
            if not self.parts.allocations.are_paused:
                return await self._plan(picture, some)
        except SolverSlow:
            self.figures.given_up += 1
            self._environment.events.emit("pipelines not planned in time", pipelines=len(picture.seen))
        self.parts.plans.keep_what_holds(picture, some)
        return False

    def _is_still(self, id: str, picture: Picture) -> bool:
        """Whether a pipeline is what it was in the picture, and has not been planned by that yet."""
        live, last = self._pipelines.get(id), self.parts.last.get(id)
        if live is None or (last is not None and last.seen is picture.seen[id]):
            return False
        return self.parts.freshness.of_pipeline(live, picture)

    async def _plan(self, picture: Picture, changes: Mapping[str, str]) -> bool:
        parts = self.parts
        start_ns = self._environment.clock.now_ns()
        several = await parts.allocations.of_changed(picture, changes, may_degrade=True)
        took_ns = self._environment.clock.now_ns() - start_ns
        plans = await parts.plans.of(picture, several)
        if any(plan.is_short or not plan.feasible for plan in plans.values()) and self._environment.need_spared():
            self.wake()
            return False
        self.figures.last_ms = took_ns / NS_PER_MS
        if took_ns > SLOW_NS:
            self._environment.events.emit("pipelines planned slowly", took_ms=round(took_ns / NS_PER_MS, 1))
        is_box_other = not parts.freshness.of_box(picture)
        if is_box_other or not all(
            parts.freshness.of_pipeline(self._pipelines[id], picture) for id in several.served if id in self._pipelines
        ):
            self.figures.stale += 1
            self.wake()
        self._thrown_away = self._thrown_away + 1 if is_box_other else 0
        if 0 < self._thrown_away <= STALE_MAX:
            return False
        self._thrown_away = 0
        parts.plans.apply(picture, several, plans, changes)
        await parts.plans.record_all(several.served, plans, picture, changes)
        return True
