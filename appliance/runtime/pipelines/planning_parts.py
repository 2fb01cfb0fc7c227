"""What rounds of planning and joins of clients share: the parts that see, ask and apply, and one turn for both."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from appliance.runtime.pipelines.allocations import Allocations
from appliance.runtime.pipelines.environment import PipelineEnvironment, PlannedPipeline
from appliance.runtime.pipelines.freshness import Freshness
from appliance.runtime.pipelines.last_plans import LastPlans
from appliance.runtime.pipelines.new_plans import NewPlans
from appliance.runtime.pipelines.picture import Pictures
from appliance.runtime.pipelines.planning_figures import PlanningFigures
from appliance.runtime.pipelines.solver import Solver


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningParts:
    """The parts, made for one box."""

    environment: PipelineEnvironment
    pipelines: Mapping[str, PlannedPipeline]
    """By id, kept by the registry."""
    figures: PlanningFigures
    pictures: Pictures
    solver: Solver
    last: LastPlans
    freshness: Freshness
    allocations: Allocations
    plans: NewPlans
    woken: asyncio.Event
    """Set: the next round begins at once."""
    turn: asyncio.Lock
    """One round, or join, after the other: what is free is given once."""

    @classmethod
    def made(cls, environment: PipelineEnvironment, pipelines: Mapping[str, PlannedPipeline]) -> "PlanningParts":
        """Of nothing that was planned yet."""
        figures, last, woken = PlanningFigures(), LastPlans(pipelines), asyncio.Event()
        freshness = Freshness(environment, pipelines)
        solver = Solver(environment.clock, environment.background)
        return cls(
            environment=environment,
            pipelines=pipelines,
            figures=figures,
            pictures=Pictures(environment, pipelines),
            solver=solver,
            last=last,
            freshness=freshness,
            allocations=Allocations(environment, solver, last, figures),
            plans=NewPlans(environment, pipelines, last, freshness, woken.set),
            woken=woken,
            turn=asyncio.Lock(),
        )
