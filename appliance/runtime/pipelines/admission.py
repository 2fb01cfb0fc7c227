"""Clients that come and go: each is let in with a plan that serves it beside all that is served, or refused with what
is missing (X-07). Event-loop thread only.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace

from appliance.domain.errors import PipelineNotPossible, UnknownPipeline
from appliance.domain.pipeline import PipelineClient
from appliance.domain.session import RATE_MIN
from appliance.policies.allocation.several import Several
from appliance.runtime.pipelines.allocations import Allocations
from appliance.runtime.pipelines.environment import PlannedPipeline
from appliance.runtime.pipelines.new_plans import SLOW
from appliance.runtime.pipelines.picture import Picture
from appliance.runtime.pipelines.planning_parts import PlanningParts
from appliance.runtime.pipelines.refusal import TIME, most_accepted, own_words
from appliance.runtime.pipelines.solver import SolverSlow
from appliance.runtime.serving.joins import Joins

JOINS_MAX = 32
"""Clients of a tenant that wait to be let in."""
TRIES_MAX = 3
"""Times that a client's problem is asked anew, because something changed meanwhile."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """A client that asks for too much: less may be possible."""

    error: PipelineNotPossible
    pipeline_id: str
    picture: Picture
    """With the client."""
    allocations: Allocations
    """Beside the plans that it was refused beside."""


class Admission:
    """Of clients to all pipelines."""

    def __init__(self, parts: PlanningParts) -> None:
        self._parts = parts
        self._environment = parts.environment
        self._joins = Joins(JOINS_MAX)
        self._search = asyncio.Lock()
        """Held while it is found out what is possible for a client that was refused."""

    async def admit(self, live: PlannedPipeline, client: PipelineClient) -> None:
        """Let a client in, with a plan that serves it beside all that is served; into what its pipeline has become,
        where that is changed meanwhile.

        Raises: PipelineNotPossible, with what is missing; UnknownPipeline: it was deleted meanwhile; TooManySessions:
        it has as many as it may have, or too many of its tenant wait to be let in.
        """
        async with self._joins.turn(live.pipeline.tenant), self._parts.turn:
            refused = await self._let_in(live, client)
        if refused is not None:  # rounds and other clients do not wait for what follows
            refused.error.fps_possible = await self._most(refused)
            raise refused.error

    def left(self, live: PlannedPipeline, client: PipelineClient, reason: str) -> None:
        """A client has gone; its part is planned for others."""
        self._tell(live, "pipeline client left", client, reason=reason)
        self._parts.woken.set()

    async def _let_in(self, live: PlannedPipeline, client: PipelineClient) -> _Refused | None:
        """None: it is in. Raises: as `admit`, where no less would be possible either."""
        id, parts = live.pipeline.id, self._parts
        for _ in range(TRIES_MAX):
            picture = await parts.pictures.take(joining=client)
            live = self._still_there(id)
            if id not in picture.seen:  # it was put anew meanwhile
                continue
            more = replace(picture.seen[id], fps=picture.seen[id].fps + client.fps)
            asked_of = replace(picture, seen={**picture.seen, id: more})
            changes = parts.last.changes(asked_of)
            try:
                several = await parts.allocations.of_joined(asked_of, id)
            except SolverSlow:
                reason = f"{SLOW}; ask again"
                raise PipelineNotPossible(name=live.pipeline.name, fps=client.fps, reason=reason) from None
            plans = await parts.plans.of(asked_of, several)
            live = self._still_there(id)
            fits = id in several.served and all(one.plan.feasible for one in several.served.values())
            if not fits and self._environment.need_spared():
                continue
            if parts.freshness.of_box(picture) and parts.freshness.of_pipeline(live, picture):
                break
        else:
            reason = "the other pipelines and sessions keep changing; ask again"
            raise PipelineNotPossible(name=live.pipeline.name, fps=client.fps, reason=reason)
        if not fits:
            return await self._refused(live, client, asked_of, several)
        live.clients.require_room(live.pipeline)  # others may have joined meanwhile
        live.clients.join(client, self._environment.clock.now_ns())
        joined = replace(more, clients=tuple(live.clients))
        because = {**changes, id: "a client has joined"}
        parts.plans.apply(replace(asked_of, seen={**asked_of.seen, id: joined}), several, plans, because)
        parts.plans.record(live, several.served[id], asked_of, "admitted", _asks(client))
        self._tell(live, "pipeline client joined", client)
        others = {other: one for other, one in several.served.items() if other != id}
        await parts.plans.record_all(others, plans, asked_of, changes)
        return None

    def _still_there(self, id: str) -> PlannedPipeline:
        """Raises: UnknownPipeline."""
        found = self._parts.pipelines.get(id)
        if found is None:
            raise UnknownPipeline(name=id.partition("/")[2])
        return found

    async def _refused(
        self, live: PlannedPipeline, client: PipelineClient, picture: Picture, several: Several
    ) -> _Refused:
        """With what is missing. Raises: PipelineNotPossible, where no less would be possible either."""
        id, allocations = live.pipeline.id, self._parts.allocations
        served = several.served.get(id)
        if served is None:
            lacks = "memory" if id in picture.without_room else "profile"
            raise PipelineNotPossible(
                name=live.pipeline.name, fps=client.fps, missing=(lacks,), reason=picture.missing[id]
            )
        lacking = served
        if served.plan.feasible:
            lacking = next(one for _, one in sorted(several.served.items()) if not one.plan.feasible)
        before = allocations.beside_plans_of_now()
        missing: tuple[str, ...] | None = None
        with suppress(SolverSlow):
            missing = await allocations.lacking(lacking, picture)
        self._parts.plans.record(live, served, picture, "refused", _asks(client))
        is_other = lacking is not served
        reason = ("another pipeline would have no room: " if is_other else "") + own_words(lacking, is_other)
        if not is_other and (untimed := picture.asked[id].untimed()):
            reason = f"{reason}; {untimed}"
        error = PipelineNotPossible(name=live.pipeline.name, fps=client.fps, missing=missing or (), reason=reason)
        if missing is None or TIME in missing:
            raise error
        return _Refused(error, id, picture, before)

    async def _most(self, refused: _Refused) -> float:
        """The most frames a second that would have been accepted; 0 where that is not found in time, and while it is
        looked for on behalf of another client.
        """
        id, picture, allocations = refused.pipeline_id, refused.picture, refused.allocations
        asked_fps, joined = refused.error.fps, picture.seen[id]

        async def is_accepted(fps: float) -> bool:
            seen = {**picture.seen, id: replace(joined, fps=joined.fps - asked_fps + fps)}
            several = await allocations.of_joined(replace(picture, seen=seen), id)
            return id in several.served and all(one.plan.feasible for one in several.served.values())

        if self._search.locked():
            return 0.0
        too_many_fps = allocations.most_fps(picture, id) + RATE_MIN
        async with self._search:
            with suppress(SolverSlow):
                return await most_accepted(is_accepted, min(asked_fps, too_many_fps))
        return 0.0

    def _tell(self, live: PlannedPipeline, event: str, client: PipelineClient, **facts: str) -> None:
        pipeline = live.pipeline
        self._environment.events.emit(
            event, pipeline=pipeline.name, tenant=pipeline.tenant, client=client.id, fps=client.fps, **facts
        )


def _asks(client: PipelineClient) -> str:
    return f"a client of {client.fps:.4g} frames a second asks to join"
