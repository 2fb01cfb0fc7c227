"""The pipelines of a scenario around a box: planned, joined and asked as in the running box, and what came of it."""

import asyncio
from collections.abc import Mapping
from itertools import count

from appliance.domain.errors import ApplianceError, PipelineNotPossible, TooManySessions, UnknownClient
from appliance.domain.pipeline import CostBy, Pipeline
from appliance.lab.composition import LabBox, device_kinds, inline
from appliance.lab.outcome import percentile, ratio
from appliance.lab.pipeline_shapes import PipelineShape, pipeline_of
from appliance.lab.pipelines.scenes import Scenes
from appliance.lab.pipelines.senders import Sender, senders_of
from appliance.lab.pipelines.stages import HostThreads, LabStages
from appliance.lab.pipelines.streams import CountedStreams
from appliance.lab.pipelines.tally import Tally
from appliance.lab.registry import FAMILIES
from appliance.lab.scenario import Scenario
from appliance.policies.allocation import DEFAULT
from appliance.runtime.pipelines.accounts import HOST, Cost, Tariff, Watts
from appliance.runtime.pipelines.composition import PlanningConfig, PlanningPorts, make_planning
from appliance.runtime.pipelines.frame import FrameCall
from appliance.runtime.pipelines.pipelines import Pipelines
from appliance.tasks.base import Media


class PipelineCrowd:
    """To be made inside the virtual loop."""

    def __init__(self, scenario: Scenario, box: LabBox) -> None:
        """Raises: Malformed (of a file)."""
        tenants = {one.name: one.tenant for one in scenario.applications}
        self._clock = box.clock
        made = [(entry, pipeline_of(entry, tenants)) for entry in scenario.pipelines]
        scenes = {p.id: Scenes(entry, p, scenario.seed, scenario.base_dir) for entry, p in made}
        self._threads = scenario.media_threads
        host = HostThreads(box.clock, self._threads)
        numbers = count(1)
        self._tariff = _tariff(scenario)
        self._pipelines = Pipelines(
            clock=box.clock,
            catalogue=box.core.catalogue,
            engine=box.core.engine,
            stages=LabStages(box, host, scenes),
            new_id=lambda: f"c{next(numbers):05}",
            tariff=self._tariff,
        )
        self._pipelines.fill(pipeline for _, pipeline in made)
        self._planning = make_planning(
            self._planning_ports(box, scenario), self._config(scenario, box), self._pipelines.live
        )
        self._pipelines.plan_with(self._planning)
        self._of: Mapping[str, tuple[PipelineShape, Pipeline]] = {entry.name: (entry, p) for entry, p in made}
        self._senders = {
            entry.name: senders_of(entry, scenario.seed, scenario.duration_s, scenario.base_dir) for entry, _ in made
        }
        self._tallies = {entry.name: Tally() for entry, _ in made}
        tallies = {pipeline.id: self._tallies[entry.name] for entry, pipeline in made}
        self.streams = CountedStreams(self._pipelines, box.core.catalogue, box.clock, tallies)
        """As devices' sessions join them."""

    async def plan(self) -> None:
        """The serve loop; until cancelled."""
        await self._planning.run()

    async def live(self) -> None:
        """Until the last frame has ended."""
        async with asyncio.TaskGroup() as tasks:
            for name, senders in self._senders.items():
                for sender in senders:
                    tasks.create_task(self._send_all(name, sender), name=f"{name}, {sender.name}")

    @property
    def frames(self) -> tuple[int, int]:
        """Sent, ended."""
        return sum(one.sent for one in self._tallies.values()), sum(one.ended for one in self._tallies.values())

    def figures(self) -> dict[str, object]:
        """By pipeline, as the format has it."""
        return {name: self._figures(name, tally) for name, tally in self._tallies.items()}

    # -- frames --------------------------------------------------------------------------------------------------------

    async def _send_all(self, name: str, sender: Sender) -> None:
        _, pipeline = self._of[name]
        tally, client = self._tallies[name], ""
        if sender.fps is not None:
            await self._clock.sleep_until_ns(sender.frames_ns[0] if sender.frames_ns else sender.leaves_ns)
            try:
                client = (await self._pipelines.join(pipeline.id, sender.fps, pipeline.tenant)).id
            except (PipelineNotPossible, TooManySessions):
                tally.refused += 1
                return
            tally.joined += 1
        async with asyncio.TaskGroup() as tasks:
            for number, at_ns in enumerate(sender.frames_ns):
                await self._clock.sleep_until_ns(at_ns)
                tasks.create_task(self._send(name, sender, number, client), name="frame")
            if client:
                await self._clock.sleep_until_ns(sender.leaves_ns)
                self._leave(pipeline, client)

    async def _send(self, name: str, sender: Sender, number: int, client: str) -> None:
        _, pipeline = self._of[name]
        tally, now_ns = self._tallies[name], self._clock.now_ns()
        tally.sent += 1
        media = Media(f"{sender.name}/{number}".encode(), pipeline.id)
        call = FrameCall(pipeline.tenant, f"{sender.name}/{number}", now_ns, client=client, number=number)
        try:
            if client and client not in self._pipelines.get(pipeline.id).clients:
                raise UnknownClient(name=client)  # it was silent for too long; a box says so, too
            await self._pipelines.predict(pipeline, media, call)
        except ApplianceError:
            pass  # counted by the pipeline, but for what was not let in
        else:
            tally.latencies_ns.append(self._clock.now_ns() - now_ns)
        finally:
            tally.ended += 1

    def _leave(self, pipeline: Pipeline, client: str) -> None:
        try:
            self._pipelines.leave(pipeline.id, client)
        except UnknownClient:
            pass  # it was silent for too long

    # -- figures -------------------------------------------------------------------------------------------------------

    def _figures(self, name: str, tally: Tally) -> dict[str, object]:
        _, pipeline = self._of[name]
        live, frames = self._pipelines.get(pipeline.id), self._pipelines.get(pipeline.id).frames
        ordered = sorted(tally.latencies_ns)
        cost = _in_unit(self._tariff.of({k: ns / 1e9 for k, ns in live.spending.by_kind.items()}), pipeline.cost_by)
        return {
            "frames": tally.sent,
            "finished_in_time": frames.in_time,
            "late": frames.late,
            "dropped": frames.dropped,
            "errors": frames.errors,
            "failed": tally.sent - frames.answered,
            "finish_rate": ratio(frames.in_time, tally.sent),
            "latency_ms": {"p50": percentile(ordered, 50), "p99": percentile(ordered, 99)},
            "cost": None if cost is None else round(cost, 9),
            "cost_per_frame": None if cost is None else ratio(cost, tally.sent),
            "items_per_frame": {stage: ratio(one.items, frames.sent) for stage, one in live.figures.items()},
            "clients": {"joined": tally.joined, "refused": tally.refused},
            "plans": 0 if live.plan is None else live.plan.number,
        }

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _planning_ports(self, box: LabBox, scenario: Scenario) -> PlanningPorts:
        core = box.core
        return PlanningPorts(
            clock=box.clock,
            catalogue=core.catalogue,
            engine=core.engine,
            queue=core.queue,
            memory=core.memory,
            account=core.account,
            residency=core.residency,
            events=box.journal,
            decisions=box.journal,
            background=inline,
            groups=box.groups,
            devices=device_kinds(scenario),
            media_threads=self._threads,
        )

    def _config(self, scenario: Scenario, box: LabBox) -> PlanningConfig:
        name = scenario.policies.get("pipeline") or scenario.policies.get("allocation", DEFAULT)
        policy = box.stopwatch.timed("pipeline", FAMILIES["pipeline"][name]())
        return PlanningConfig(
            policy=policy,
            policy_name=name,
            tariff=self._tariff,
            turn_off_s=scenario.box.turn_off_s,
            window_ms=scenario.box.window_ms,
        )


def _tariff(scenario: Scenario) -> Tariff:
    watts = {p.kind or p.name: Watts(p.power_w, "declared") for p in scenario.box.processors if p.power_w is not None}
    prices = {p.kind or p.name: p.price_per_hour for p in scenario.box.processors if p.price_per_hour is not None}
    first = scenario.processor.kind or scenario.processor.name
    # As in the box, CPU stages are taken for workers of the first kind.
    host_watts = {HOST: watts[first]} if first in watts else {}
    host_prices = {HOST: prices[first]} if first in prices else {}
    return Tariff({**watts, **host_watts}.get, {**prices, **host_prices})


def _in_unit(cost: Cost, by: CostBy) -> float | None:
    return {CostBy.PRICE: cost.price, CostBy.ENERGY: cost.joules, CostBy.SECONDS: cost.seconds}[by]
