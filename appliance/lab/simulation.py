"""Runs a scenario: composes its box, sends every request at its time, inflicts the faults, and collects one answer
each.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from appliance.domain.errors import ApplianceError, DeadlineExceeded, LimitReached
from appliance.domain.names import application_id, content_of
from appliance.domain.request import Request
from appliance.domain.states import ResidencyState
from appliance.lab.composition import TENSORS, LabBox, compose, content_names, resident_builds, sleeping_builds
from appliance.lab.faults import MEMORY_TAKEN, Weather
from appliance.lab.journal import Journal
from appliance.lab.loop import START_NS, run_virtual
from appliance.lab.outcome import Answer, Kind, Outcome, ProcessorUse
from appliance.lab.pipelines.crowd import PipelineCrowd
from appliance.lab.processors import Broken, EmulatedProcessor, MemoryParts
from appliance.lab.scenario import Scenario, megabytes
from appliance.lab.sessions.crowd import Crowd
from appliance.lab.workload import Arrival, draw, nanoseconds
from appliance.runtime.memory.planner_processes import REST_NS


@dataclass(frozen=True, slots=True)
class Sample:
    """Use of memory at one moment."""

    at_ns: int
    """Nanoseconds after the start."""
    models: Mapping[str, int]
    """Model → bytes of its variants."""
    parts: MemoryParts


@dataclass(frozen=True)
class Run:
    """Figures of a simulation, with its journal and samples of memory where they were asked for."""

    outcome: Outcome
    journal: Journal
    samples: tuple[Sample, ...] = ()


def simulate(
    scenario: Scenario,
    *,
    keep_journal: bool = False,
    on_progress: Callable[[float], None] | None = None,
    samples: int = 0,
    decisions: int = 0,
) -> Run:
    """Run a scenario to the last answer; `on_progress` hears which share of its requests was sent.

    `samples`: how often memory is looked at over `duration_s`, evenly. `decisions`: how many of the first decisions
    about memory are kept, where the journal is not.

    Raises: Malformed (of a trace file); Broken, Deadlock ... when the engine is at fault.
    """
    arrivals = draw(scenario.arrivals, scenario.seed, scenario.duration_s, scenario.base_dir)

    async def story() -> Run:
        simulation = _Simulation(scenario, arrivals, keep_journal, on_progress)
        return await simulation.run(samples, decisions)

    return run_virtual(story)


class _Simulation:
    """One run; to be made inside the virtual loop."""

    def __init__(
        self,
        scenario: Scenario,
        arrivals: Sequence[Arrival],
        keep_journal: bool,
        on_progress: Callable[[float], None] | None,
    ) -> None:
        self._scenario = scenario
        self._on_progress = on_progress
        self._arrivals = arrivals
        self._box: LabBox = compose(scenario)
        self._box.journal.keeps = keep_journal
        self._box.journal.on_event = self._check_now
        self._accuracies = scenario.accuracies()
        self._shapes = {shape.name: shape for shape in scenario.applications}
        self._answers: list[Answer] = []
        self._pipelines = PipelineCrowd(scenario, self._box) if scenario.pipelines else None
        streams = None if self._pipelines is None else self._pipelines.streams
        self._crowd = Crowd(scenario, self._box, streams) if scenario.sessions else None
        self._loads_before = 0
        self._samples: list[Sample] = []

    async def run(self, samples: int, decisions: int) -> Run:
        box = self._box
        box.journal.residency_max = decisions
        await self._put_to_sleep()
        workers = [asyncio.create_task(worker.work(), name="worker") for worker in box.core.engine.workers]
        weather = Weather(box.clock, box.processors, box.machine, box.on_change)
        loops = [
            box.core.residency.run(),
            box.core.forecasting.run(),
            *(weather.inflict(fault) for fault in self._scenario.faults),
        ]
        if self._crowd is not None:
            loops.append(self._crowd.plan())
        if self._pipelines is not None:
            loops.append(self._pipelines.plan())
        if any(fault.kind == MEMORY_TAKEN for fault in self._scenario.faults):  # else the budget has no reason to move
            loops += [box.core.pressure.run(), box.core.memory_forecasting.run()]
        background = [*workers, *(asyncio.create_task(loop, name="loop") for loop in loops)]
        await self._fill_memory()
        if self._scenario.box.planners_mb:
            planners = run_planners(box, megabytes(self._scenario.box.planners_mb))
            background.append(asyncio.create_task(planners, name="planners"))
        if samples:
            background.append(asyncio.create_task(self._sample(samples), name="samples"))
        async with asyncio.TaskGroup() as tasks:
            if self._crowd is not None:
                tasks.create_task(self._crowd.live(), name="devices")
            if self._pipelines is not None:
                tasks.create_task(self._pipelines.live(), name="pipelines")
            tasks.create_task(self._send_all(), name="requests")
        end_ns = box.clock.now_ns() - START_NS
        for task in background:
            task.cancel()
        for end in await asyncio.gather(*background, return_exceptions=True):
            if isinstance(end, Exception):
                raise end
        self._check()
        outcome = self._outcome(end_ns)
        box.journal.keeps = False  # clearing up is no part of the story
        await box.core.memory.close()
        return Run(outcome, box.journal, tuple(self._samples))

    async def _sample(self, count: int) -> None:
        """Look at the memory `count` times over the duration of the scenario."""
        names, clock = content_names(self._scenario), self._box.clock
        step_ns = nanoseconds(self._scenario.duration_s or 0.0) // count
        for number in range(count):
            await clock.sleep_until_ns(START_NS + number * step_ns + step_ns // 2)
            models: dict[str, int] = {}
            for build, held in self._box.memory.held().items():
                model, _variant = names[content_of(build)]
                models[model] = models.get(model, 0) + held
            self._samples.append(Sample(clock.now_ns() - START_NS, models, self._box.memory.parts()))

    async def _put_to_sleep(self) -> None:
        """Have asleep what is at the start, one by one and in no time; before the loop, which would wake it."""
        core = self._box.core
        with self._in_no_time():
            for sleeper in sleeping_builds(self._scenario, core.catalogue):
                await core.availability.prefetch([sleeper])
                build = core.memory.build(sleeper)
                if build is not None and core.memory.is_resident(sleeper):
                    core.memory.release(sleeper)
                    await build.gone.wait()

    async def _fill_memory(self) -> None:
        """Bring what is in memory at the start, in no time; it does not count as loaded."""
        core = self._box.core
        with self._in_no_time():
            await core.availability.prefetch(resident_builds(self._scenario, core.catalogue))
        self._loads_before = core.memory.loads

    @contextmanager
    def _in_no_time(self) -> Iterator[None]:
        """While the box is made as it is at the start."""
        factors = [one.ailments.slow_factors for one in self._box.processors]
        for each in factors:
            each.append(0)
        yield
        for each in factors:
            each.remove(0)

    async def _send_all(self) -> None:
        """Every request at its time, and wait for all answers and for the end of the scenario's duration."""
        clock = self._box.clock
        open_requests: set[asyncio.Task[None]] = set()
        for number, arrival in enumerate(self._arrivals):
            due_ns = START_NS + arrival.at_ns
            if clock.now_ns() < due_ns:
                await clock.sleep_until_ns(due_ns)
            if self._on_progress is not None:
                self._on_progress(number / len(self._arrivals))
            task = asyncio.create_task(self._ask(arrival), name=f"request {number}")
            open_requests.add(task)
            task.add_done_callback(open_requests.discard)
        if self._scenario.duration_s is not None:
            await clock.sleep_until_ns(START_NS + nanoseconds(self._scenario.duration_s))
        if open_requests:
            await asyncio.wait(open_requests)

    async def _ask(self, arrival: Arrival) -> None:
        shape = self._shapes[arrival.application]
        clock = self._box.clock
        now_ns = clock.now_ns()
        request = Request(application_id(shape.tenant, shape.name), shape.tenant, TENSORS, now_ns)
        has_slo = shape.latency_slo_ms is not None
        try:
            result = await self._box.core.engine.infer(request)
        except ApplianceError as error:
            kind: Kind = "dropped" if isinstance(error, (DeadlineExceeded, LimitReached)) else "failed"
            latency_ns = clock.now_ns() - now_ns
            reason = type(error).__name__
            answer = Answer(
                shape.name, kind, arrival.at_ns, latency_ns, has_slo=has_slo, reason=reason, wait_ns=latency_ns
            )
        else:
            end_ns = clock.now_ns()
            is_late = request.deadline_ns is not None and end_ns > request.deadline_ns
            answer = Answer(
                shape.name,
                "warm" if result.warm else "cold",
                arrival.at_ns,
                end_ns - now_ns,
                result.variant,
                self._accuracies[shape.name, result.variant],
                is_late,
                has_slo,
                wait_ns=end_ns - now_ns - result.compute_ns,
            )
        self._answers.append(answer)

    def _check_now(self) -> None:
        """What must hold at every event. Raises: Broken."""
        memory, queue = self._box.core.memory, self._box.core.queue
        if memory.used_bytes > self._scenario.budget_bytes:
            raise Broken(f"{memory.used_bytes} bytes counted where there are {self._scenario.budget_bytes}")
        if len(queue) > self._scenario.box.queue_total_max:
            raise Broken(f"{len(queue)} requests wait where {self._scenario.box.queue_total_max} may")

    def _check(self) -> None:
        """What must hold after the last answer, whatever happened. Raises: Broken."""
        status = self._box.core.engine.status()
        if len(self._answers) != len(self._arrivals):
            raise Broken(f"{len(self._arrivals)} requests and {len(self._answers)} answers")
        if self._crowd is not None and len(set(self._crowd.frames)) > 1:
            raise Broken("{} frames and {} ends".format(*self._crowd.frames))
        if self._pipelines is not None and len(set(self._pipelines.frames)) > 1:
            raise Broken("{} frames of pipelines and {} ends".format(*self._pipelines.frames))
        if status["queued"] or status["running"]:
            raise Broken(f"{status['queued']} requests wait and {status['running']} run after the last answer")
        builds = self._box.core.memory.snapshot()["builds"]
        pinned = [b["build"] for b in builds if b["pins"] and b["state"] != ResidencyState.LOADING]
        if pinned:
            raise Broken(f"{', '.join(pinned)} pinned after the last answer")

    def _outcome(self, end_ns: int) -> Outcome:
        box = self._box
        return Outcome(
            end_ns=end_ns,
            applications=tuple(shape.name for shape in self._scenario.applications),
            answers=(*self._answers, *(() if self._crowd is None else self._crowd.answers)),
            processors={one.describe().name: _use(one, end_ns) for one in box.processors},
            memory_bytes=self._scenario.memory_bytes,
            memory_peak_bytes=box.memory.peak_bytes,
            fullest=box.memory.fullest,
            loads=box.core.memory.loads - self._loads_before,
            replacements=box.core.memory.replacements,
            evictions=box.core.memory.evictions,
            wakes=box.core.memory.wakes,
            decisions=box.stopwatch.rows(),
            sessions=None if self._crowd is None else self._crowd.figures(),
            pipelines=None if self._pipelines is None else self._pipelines.figures(),
        )


async def run_planners(box: LabBox, size_bytes: int) -> None:
    """Have planner processes take memory that is free, as on a box: they end where a build needs it, and begin again
    after a rest. Until cancelled.
    """
    process = box.core.planner_processes.process("planners", size_bytes)
    process.end_now = lambda: box.memory.set_planners(0)
    while True:
        if not box.core.planner_processes.idle_bytes(()):
            with suppress(OSError):  # there is no room
                async with process.beginning():
                    pass
                box.memory.set_planners(size_bytes)
        await box.clock.sleep_until_ns(box.clock.now_ns() + REST_NS)


def _use(processor: EmulatedProcessor, end_ns: int) -> ProcessorUse:
    share = processor.busy_ns / (end_ns * processor.describe().workers) if end_ns else 0.0
    return ProcessorUse(share, processor.batches, processor.items)
