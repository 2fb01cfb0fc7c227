"""Planning over the whole engine in virtual time, with pipelines that are fed by hand."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pytest

from appliance.domain.catalogue import TaskKind
from appliance.domain.errors import PipelineNotPossible
from appliance.domain.pipeline import Ask, Crop, Pipeline, PipelineClient, PipelinePlan, Stage
from appliance.domain.pipeline_graph import Graph
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.lab.plan import plan_one
from appliance.policies.allocation.frontier import Frontier
from appliance.policies.batching import DEFAULT as DEFAULT_BATCHING
from appliance.runtime.decisions.document import record_of
from appliance.runtime.pipelines.accounts import Tariff, Watts
from appliance.runtime.pipelines.clients import Clients
from appliance.runtime.pipelines.composition import PlanningConfig, PlanningPorts, make_planning
from appliance.runtime.pipelines.environment import PlannedPipeline
from appliance.runtime.pipelines.planning import Planning
from appliance.runtime.pipelines.windows import Totals
from appliance.runtime.ports import Background, RunGroup
from appliance.runtime.serving.spending import Spending, SpendingByTenant
from tests.checkers.pipeline import broken
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost

T = TypeVar("T")
FIND = {"fine": Cost(run_ms=20, resident_bytes=40), "coarse": Cost(run_ms=10, resident_bytes=20)}
READ = {"fine": Cost(run_ms=8, resident_bytes=10), "coarse": Cost(run_ms=4, resident_bytes=5)}


@dataclass(slots=True)
class Fed:
    """A pipeline whose frames a test feeds by hand."""

    pipeline: Pipeline
    graph: Graph
    clients: Clients = field(default_factory=Clients)
    plan: PipelinePlan | None = None
    frames: int = 0
    joined: int = 0
    items: Counter[str] = field(default_factory=Counter)

    def totals(self) -> Totals:
        return Totals(self.frames, self.frames, self.joined, dict(self.items), {}, dict(self.items))

    def look(self) -> None:
        """Do nothing: costs are tested elsewhere."""

    def new_plan(self, plan: PipelinePlan | None) -> None:
        self.plan = plan


def planning_of(
    box: EngineBench,
    groups: Sequence[RunGroup],
    background: Background,
    tariff: Tariff,
    pipelines: Mapping[str, PlannedPipeline],
) -> Planning:
    """Make the planning of pipelines on the bench's engine."""
    core = box.core
    ports = PlanningPorts(
        clock=box.clock,
        catalogue=core.catalogue,
        engine=core.engine,
        queue=core.queue,
        memory=core.memory,
        account=core.account,
        residency=core.residency,
        events=box.telemetry,
        decisions=box.decisions,
        background=background,
        groups=groups,
    )
    return make_planning(ports, PlanningConfig(policy=Frontier(), policy_name="frontier", tariff=tariff), pipelines)


class PlanningBench:
    """An engine with the applications `find` and `read` on a number of cores, and planning over it."""

    def __init__(
        self,
        find: Mapping[str, Cost],
        read: Mapping[str, Cost],
        *,
        workers: int = 2,
        budget: int = 1000,
        watts: Mapping[str, Watts] | None = None,
        prices: Mapping[str, float] | None = None,
        has_twin: bool = False,
        batching: str = DEFAULT_BATCHING,
        at_once: RunsAtOnce | None = None,
    ) -> None:
        """`has_twin`: there is a second group of as many workers. `at_once`: runs at once that imports time."""
        self.workers = workers
        self.throttled: set[str] = set()
        """Groups of processors, by name."""
        self.box = EngineBench(budget, workers=workers, batching=batching)
        self.box.add(find, name="find")
        self.box.add(read, name="read")
        self.pipelines: dict[str, PlannedPipeline] = {}
        self.thread: Callable[[], None] = _nothing
        """Called while a policy is asked."""
        self.background: Background = self._background
        self.answer_s = 0.02
        """Seconds of virtual time that a policy takes."""
        groups = [
            RunGroup(
                name,
                workers,
                self.box.processor,
                {"cpu": ""},
                is_throttled=partial(self._is_throttled, name),
                at_once=at_once,
            )
            for name in ("p", "q")[: 1 + has_twin]
        ]
        tariff = Tariff((watts or {}).get, prices or {})
        self.planning: Planning = planning_of(
            self.box, groups, lambda compute: self.background(compute), tariff, self.pipelines
        )

    def _is_throttled(self, group: str) -> bool:
        return group in self.throttled

    async def _background(self, compute: Callable[[], T]) -> T:
        await asyncio.sleep(self.answer_s)  # noqa: TID251 - virtual time
        self.thread()
        return compute()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Run workers and planning."""
        async with self.box.working(residency=True):
            task = asyncio.create_task(self.planning.run())
            try:
                yield
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def add(
        self,
        name: str = "signs",
        *,
        slo_ms: float = 300.0,
        weight: float = 1.0,
        stages: Sequence[Stage] = (),
        **more: object,
    ) -> Fed:
        """Define a pipeline: find, an item of each region, read; or the given stages."""
        given = tuple(stages) or (
            Ask(name="find", application_id="t/find"),
            Crop(name="lines", after=("find",), of="regions"),
            Ask(name="read", after=("lines",), application_id="t/read"),
        )
        pipeline = Pipeline(f"t/{name}", "t", name, slo_ms, given, weight=weight, **more)  # type: ignore[arg-type]
        kinds = {"t/find": TaskKind.TEXT_DETECTION, "t/read": TaskKind.TEXT_RECOGNITION}
        live = Fed(pipeline, Graph.of(given, kinds))
        self.put(live)
        return live

    async def join(self, live: Fed, fps: float, id: str = "c1") -> None:
        """Let a client in. Raises: PipelineNotPossible."""
        await self.planning.admission.admit(live, PipelineClient(id, live.pipeline.id, fps))

    async def refused(self, live: Fed, fps: float, id: str = "c1") -> PipelineNotPossible:
        """Return why a client is not let in."""
        with pytest.raises(PipelineNotPossible) as caught:
            await self.join(live, fps, id)
        return caught.value

    def leave(self, live: Fed, id: str = "c1") -> None:
        live.clients.leave(id)
        self.planning.wake()

    def put(self, live: Fed) -> None:
        """Replace the pipeline of this name."""
        self.pipelines[live.pipeline.id] = live
        self.planning.wake()

    def throttle(self, *groups: str) -> None:
        """Throttle these groups and no others."""
        self.throttled = set(groups)
        self.planning.wake()

    def remove(self, id: str) -> None:
        del self.pipelines[id]
        self.planning.wake()

    async def feed(self, live: Fed, fps: float, seconds: float, items: int, client: str | None = None) -> None:
        """Feed frames at an even rate, with a number of items each."""
        for _ in range(round(fps * seconds)):
            live.joined += live.clients.saw(client, self.now_ns)
            live.frames += 1
            live.items.update(
                {stage: 1 for stage in live.graph.order} | ({"read": items} if "lines" in live.graph.order else {})
            )
            await self.pause(1.0 / fps)

    async def pause(self, seconds: float) -> None:
        await self.box.pause(1000.0 * seconds)

    @property
    def now_ns(self) -> int:
        return self.box.clock.now_ns()

    def decided(self, outcome: str = "") -> list[Mapping[str, object]]:
        """Return the decisions on pipelines, with `outcome` only those with it."""
        found = [facts for kind, facts in self.box.decisions.told if kind == "pipeline"]
        return [facts for facts in found if outcome in ("", facts["outcome"])]


def find_and_read(**more: Any) -> PlanningBench:
    """Return a bench whose networks `find` and `read` have two variants each."""
    return PlanningBench(FIND, READ, **more)


@asynccontextmanager
async def planning_bench(**more: Any) -> AsyncIterator[PlanningBench]:
    """Put the bench of `find_and_read` to work."""
    bench = find_and_read(**more)
    async with bench.working():
        yield bench


def taken(*pipelines: Fed) -> float:
    """Return the workers that plans take."""
    return sum(row.instances for one in pipelines if one.plan for row in one.plan.stages)


def asked_last(bench: PlanningBench) -> Any:
    """Return the problem of the last decision, as recorded."""
    return record_of(bench.box.clock.wall_now(), "pipeline", bench.decided()[-1]).problem


def replayed(bench: PlanningBench) -> int:
    """Check that every decision is answered again by its record, and that every plan keeps SLO and capacity by the
    independent checker. Return the number of decisions.
    """
    at = bench.box.clock.wall_now()
    count = 0
    for facts in bench.decided():
        record = record_of(at, "pipeline", facts)
        answer = plan_one(record.problem)
        for key in ("feasible", "cost", "allocations", "placement", "reason"):
            assert answer[key] == record.answer[key]
        if answer["feasible"] and answer["allocations"]:
            assert not broken(record.problem, record.answer)
        count += 1
    return count


class SingleCalls(SpendingByTenant):
    """Single calls of tenants that keep a number of workers busy from now on."""

    def __init__(self, bench: PlanningBench, **workers: float) -> None:
        super().__init__()
        self._bench, self._since_ns, self._workers = bench, bench.now_ns, workers

    @property
    def by_tenant(self) -> Mapping[str, Spending]:
        found = SpendingByTenant()
        for tenant, workers in self._workers.items():
            found.of(tenant).ran("cpu", int(workers * (self._bench.now_ns - self._since_ns)))
        return found.by_tenant


def _nothing() -> None:
    """Do nothing while a policy is asked."""
