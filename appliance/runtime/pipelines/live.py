"""A pipeline as it runs: its stages as they hang together, its plan, its clients and its figures."""

from collections.abc import Mapping
from functools import cached_property

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.catalogue import TaskKind
from appliance.domain.pipeline import ITEMS_MAX, Ask, Crop, Join, Pipeline, PipelinePlan, Stage
from appliance.domain.pipeline_graph import ROOT, Graph
from appliance.runtime.pipelines.accounts import UNPRICED, Account, Tariff
from appliance.runtime.pipelines.clients import Clients
from appliance.runtime.pipelines.figures import FrameFigures, StageFigures
from appliance.runtime.pipelines.order import FrameOrder
from appliance.runtime.pipelines.pacing import Pacing
from appliance.runtime.pipelines.ports import StageRunner
from appliance.runtime.pipelines.windows import DECODE, Totals
from appliance.runtime.serving.spending import Spending

_TAILS_NS = 100 * NS_PER_MS
"""So long what stages are expected to take is taken to stand."""
_TRIAL_NS = NS_PER_S
"""So long nothing is answered behind a stage until a frame is tried."""


class LivePipeline:
    """One pipeline. Event-loop thread only."""

    def __init__(
        self,
        pipeline: Pipeline,
        kinds: Mapping[str, TaskKind],
        runner: StageRunner,
        clock: Clock,
        tariff: Tariff = UNPRICED,
        all_spending: Spending | None = None,
    ) -> None:
        """`kinds`: task of each application, by id. `all_spending`: of all pipelines of the tenant.

        Raises: BadPipeline.
        """
        self.pipeline = pipeline
        self.graph = Graph.of(pipeline.stages, kinds)
        self._runner = runner
        self._clock = clock
        self.stages: dict[str, Stage] = {stage.name: stage for stage in pipeline.stages}
        self.plan: PipelinePlan | None = None
        self.clients = Clients()
        self.account = Account(tariff)
        """What it has cost."""
        self.order = FrameOrder()
        self.spending = Spending(all_spending)
        """Processor time of its frames."""
        self.frames = FrameFigures()
        self.figures = {name: StageFigures() for name in self.stages}
        self.reading = StageFigures()
        """Of frames that are decoded before the first stage."""
        self._pacing = Pacing(clock.now_ns())
        self._variants: dict[str, str] = {}
        """Stage → the variant that the plan has for it."""
        self._tails: dict[str, int] = {}
        self._tails_until_ns = 0
        self._trials: dict[str, tuple[int, int]] = {}
        """Stage → items that had been answered behind it when it was last looked at whether to try a frame, and when
        these were seen to be as many, or the last one was tried."""

    def succeed(self, before: "LivePipeline") -> None:
        """It takes the place of what it was before a change: clients and figures stay, the plan does not, and of
        stages that are others now their names alone."""
        self.clients, self.frames, self.spending = before.clients, before.frames, before.spending
        self.order, self.account, self.reading = before.order, before.account, before.reading
        for figures in self.figures.values():
            figures.frames_before = self.frames.sent
        for name, figures in before.figures.items():
            if self.stages.get(name) == before.stages[name]:
                self.figures[name] = figures
            elif name in self.figures:
                self.figures[name].before = figures.counts

    # -- how its stages hang together ----------------------------------------------------------------------------------

    def level_of(self, stage: str) -> str:
        """Of the items that a stage works on; a crop answers about the level below, and works on this one."""
        return self.graph.level_parents[stage] if isinstance(self.stages[stage], Crop) else self.graph.levels[stage]

    @cached_property
    def paths(self) -> dict[str, tuple[str, ...]]:
        """Level → all levels from the root down to it."""
        found: dict[str, tuple[str, ...]] = {ROOT: (ROOT,)}
        for name in self.graph.order:
            if isinstance(self.stages[name], Crop):
                found[name] = (*found[self.graph.level_parents[name]], name)
        return found

    @cached_property
    def first_ask(self) -> Ask:
        """The first network on the way."""
        return next(stage for name in self.graph.order if isinstance(stage := self.stages[name], Ask))

    @cached_property
    def first(self) -> tuple[str, ...]:
        """Stages that wait for nothing."""
        return tuple(name for name in self.graph.order if not self.stages[name].before)

    @cached_property
    def listeners(self) -> dict[str, tuple[str, ...]]:
        """Stage → those to look at when it has ended about an item. A crop's end may be what a join waits for, or who
        takes the best of all items."""
        found: dict[str, tuple[str, ...]] = {}
        for name, stage in self.stages.items():
            after = set(self.graph.behind(name))
            if isinstance(stage, Crop):
                for other, one in self.stages.items():
                    is_joined = isinstance(one, Join) and any(self.graph.levels[before] == name for before in one.after)
                    is_gathered = self.gathers(other) and name in self.paths[self.level_of(other)]
                    if is_joined or is_gathered:
                        after.add(other)
            found[name] = tuple(one for one in self.graph.order if one in after)
        return found

    def gathers(self, stage: str) -> bool:
        """Whether a stage takes the best of all items of a frame, which have to be there first."""
        one = self.stages[stage]
        return isinstance(one, Ask) and one.at_most < ITEMS_MAX and self.graph.levels[stage] != ROOT

    @cached_property
    def takers(self) -> dict[str, frozenset[str]]:
        """Level → stages that look at its items themselves, and not at another stage's text."""
        return {
            level: frozenset(
                name
                for name, stage in self.stages.items()
                if self.level_of(name) == level
                and (isinstance(stage, Crop) or (isinstance(stage, Ask) and name not in self.graph.sources))
            )
            for level in self.paths
        }

    @cached_property
    def asks_of_root(self) -> tuple[Ask, ...]:
        """Stages that ask about the whole input."""
        stages = (self.stages[name] for name in self.graph.order if name in self.takers[ROOT])
        return tuple(stage for stage in stages if isinstance(stage, Ask))

    @cached_property
    def is_cut(self) -> bool:
        """Whether items are cut from the whole input."""
        return len(self.paths) > 1

    @cached_property
    def stateful(self) -> frozenset[str]:
        """Stages that keep the order of a client's frames."""
        return frozenset(name for name, stage in self.stages.items() if isinstance(stage, Ask) and stage.is_stateful)

    # -- what is expected ----------------------------------------------------------------------------------------------

    def takes_ns(self, stage: str) -> int:
        """What an item is expected to take there: by a plan that serves, else by what runs take now; of a CPU stage by
        what items took there. What nothing can be planned with is old as soon as nothing comes there any more.
        """
        plan = self.plan
        planned_ms = plan.takes_ms.get(stage) if plan is not None and plan.feasible and plan.fps else None
        one = self.stages[stage]
        if planned_ms is not None:
            return int(planned_ms * NS_PER_MS)
        if isinstance(one, Ask):
            return self._runner.expected_ns(one, self.pipeline.tenant)
        return int((self.figures[stage].p50_ms or 0.0) * NS_PER_MS)

    def tail_ns(self, stage: str) -> int:
        """What the longest path behind a stage is expected to take."""
        now_ns = self._clock.now_ns()
        if now_ns >= self._tails_until_ns:
            longest = self.graph.longest_behind({name: self.takes_ns(name) / NS_PER_MS for name in self.stages})
            self._tails = {name: int(ms * NS_PER_MS) for name, ms in longest.items()}
            self._tails_until_ns = now_ns + _TAILS_NS
        return self._tails[stage]

    def share_ns(self, stage: Ask) -> int:
        """How long an item keeps all workers busy there, were they its own: of a run as it is planned its part."""
        plan = self.plan
        rows = [row for row in plan.stages if row.stage == stage.name] if plan is not None and plan.feasible else []
        planned_ms = min(((row.latency_ms - row.wait_ms) / row.batch for row in rows), default=None)
        takes_ns = self.takes_ns(stage.name) if planned_ms is None else int(planned_ms * NS_PER_MS)
        return takes_ns // self._runner.workers()

    def may_try(self, stage: str) -> bool:
        """Whether an item that is expected to be late is tried all the same, and its frame with it. Where none comes to
        the stages behind any more, or to the last one, none could show that they take less: so one frame is tried for
        each `_TRIAL_NS` in which they answered nothing. Asked of each such item.
        """
        now_ns = self._clock.now_ns()
        answered = sum(self.figures[name].answered for name in self._all_behind[stage] or (stage,))
        before = self._trials.get(stage)
        if before is None or before[0] != answered:
            self._trials[stage] = answered, now_ns
        elif now_ns - before[1] >= _TRIAL_NS:
            self._trials[stage] = answered, now_ns
            return True
        return False

    @cached_property
    def _all_behind(self) -> dict[str, frozenset[str]]:
        """Stage → all stages that come after it."""
        found: dict[str, frozenset[str]] = {}
        for name in reversed(self.graph.order):
            behind = self.graph.behind(name)
            found[name] = frozenset(behind).union(*(found[one] for one in behind))
        return found

    def totals(self) -> Totals:
        """What came of it since the start. A CPU stage takes the mean of what is metered there (SC-05); where nobody
        meters it, the median of what items of late took, waits included.
        """
        asks = {name for name, stage in self.stages.items() if isinstance(stage, Ask)}
        metered = {DECODE: self.reading, **self.figures}
        return Totals(
            self.frames.sent,
            self.frames.begun,
            self.frames.joined,
            {name: one.items for name, one in self.figures.items()},
            {name: (one.ran, one.spent_ns) for name, one in metered.items() if one.ran},
            {name: one.answered for name, one in self.figures.items()},
            {
                name: one.p50_ms
                for name, one in self.figures.items()
                if name not in asks and not one.ran and one.p50_ms is not None
            },
            {(name, ran_as): ran for name, one in self.figures.items() for ran_as, ran in one.ran_as.items()},
            self.frames.under_way > 0,
            {name: one.items_squared for name, one in self.figures.items()},
        )

    def planned(self, stage: str) -> float | None:
        """Items of a frame that the plan counts on at a stage; None: there is no plan."""
        if self.plan is None or not self.plan.feasible or not self.plan.fps:
            return None
        rows = [row.rate_rps for row in self.plan.stages if row.stage == stage]
        return sum(rows) / self.plan.fps if rows else None

    def variant_of(self, stage: Ask) -> str | None:
        """The only one that may answer: as the stage says, or as it is planned; None: the box chooses."""
        return stage.variant or self._variants.get(stage.name)

    def is_served(self, client: str) -> bool:
        """Whether the plan counts on a frame of a client that comes now; empty: of nobody who joined. Asked once for
        each. Where not all fit, the oldest clients are served, and of all others as many frames as there is room for.
        """
        plan = self.plan
        if plan is None or not plan.feasible or plan.has_all:
            return True
        served = self.clients.served(plan.fps)
        if client in served:
            return True
        left_fps = plan.fps - sum(one.fps for one in self.clients if one.id in served)
        return self._pacing.take(left_fps, self._clock.now_ns())

    def look(self) -> None:
        """Note what it has cost until now."""
        self.account.look(self._clock.now_ns(), self.spending.by_kind, self.frames.answered + self.frames.failed)

    def new_plan(self, plan: PipelinePlan | None) -> None:
        """It goes by this one from now on."""
        self.plan = plan
        self._variants = {}
        if plan is not None and plan.feasible:
            for row in sorted(plan.stages, key=lambda one: one.rate_rps):  # most of the items decide
                if row.variant:
                    self._variants[row.stage] = row.variant
        self._tails_until_ns = 0
