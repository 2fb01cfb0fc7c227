"""Devices as a scenario writes them, made: what they ask for, their links, cameras and what counts of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from appliance.domain.names import application_id
from appliance.domain.pipeline import Ask, Pipeline
from appliance.domain.pipeline_graph import ROOT, Graph
from appliance.domain.session import AccuracyPromise, LatencyPromise, Reference
from appliance.lab.composition import TENSORS, LabBox, input_px
from appliance.lab.faults import LINK_DOWN
from appliance.lab.loop import START_NS
from appliance.lab.pipeline_shapes import PipelineShape, pipeline_of
from appliance.lab.scenario import ModelShape, Scenario, latency_of
from appliance.lab.session_shapes import SessionShape
from appliance.lab.sessions.camera import WITHOUT_SIZE_BYTES, Camera
from appliance.lab.sessions.device import BoxSide, Device, Stay
from appliance.lab.sessions.ladder import Ladder
from appliance.lab.sessions.losses import Losses
from appliance.lab.sessions.network import DeviceNetwork, Outage, network_of
from appliance.lab.sessions.tally import AccuracyTally, LatencyTally, Tally
from appliance.lab.sessions.target import ApplicationTarget, PipelineTarget, Target
from appliance.lab.workload import nanoseconds
from appliance.policies.offload.drop import reference_stride
from appliance.runtime.sessions.orders import JoinOrder
from appliance.runtime.sessions.pipeline_service import CUT_SIDE
from appliance.runtime.sessions.sent import BYTES_PER_PIXEL


def device_of(scenario: Scenario, box: LabBox, side: BoxSide, entry: SessionShape, number: int, name: str) -> Device:
    """One of an entry, `number` from 0 on. Raises: Malformed (of a file)."""
    assert scenario.duration_s is not None, "checked when it was read"
    outages = _outages(scenario, entry, name)
    network = network_of(entry.network, scenario.seed, name, scenario.duration_s, scenario.base_dir, outages)
    one = _One(scenario, box, side, entry, number, name, network)
    return one.of_application() if entry.pipeline is None else one.of_pipeline()


@dataclass(frozen=True, slots=True)
class _One:
    scenario: Scenario
    box: LabBox
    side: BoxSide
    entry: SessionShape
    number: int
    name: str
    network: DeviceNetwork

    def of_application(self) -> Device:
        scenario, entry = self.scenario, self.entry
        shape = next(one for one in scenario.applications if one.name == entry.application)
        model = next(one for one in scenario.models if one.name == shape.model)
        id = application_id(shape.tenant, shape.name)
        slo_ms = None if entry.accuracy_slo is not None else entry.latency_slo_ms or shape.latency_slo_ms
        accuracies = {variant.name: variant.accuracy for variant in model.variants}
        losses = Losses(accuracies, {variant.name: variant.drop_times for variant in model.variants})
        if entry.accuracy_slo is None:
            tally: LatencyTally | AccuracyTally = LatencyTally()
        else:
            stride = _reference_stride(scenario, entry, model, self.network)
            stride *= losses.of_best.times
            of_reference = stride if entry.reference == "dedicated" else 0.0
            tally = AccuracyTally(entry.accuracy_slo, of_reference, self.network.uplink.rate_bps)
        sides = {variant.name: px for variant in model.variants if (px := input_px(variant)) is not None}
        target = ApplicationTarget(shape.name, id, shape.tenant, self.box.core.engine, TENSORS)
        stay = self._stay(slo_ms, shape.tenant, application_id=id)
        return self._device(stay, _camera([model]), tally, target, Ladder(accuracies, sides), losses)

    def of_pipeline(self) -> Device:
        scenario, entry = self.scenario, self.entry
        shape = next(one for one in scenario.pipelines if one.name == entry.pipeline)
        pipeline = pipeline_of(shape, {one.name: one.tenant for one in scenario.applications})
        slo_ms = entry.latency_slo_ms or pipeline.latency_slo_ms
        stay = self._stay(slo_ms, pipeline.tenant, pipeline_id=pipeline.id)
        target = PipelineTarget(shape.name, pipeline.id, self.name)
        camera, tally = _camera_before(scenario, shape, pipeline), LatencyTally(is_rated=False)
        return self._device(stay, camera, tally, target, None, Losses({}, {}))

    def _device(
        self, stay: Stay, camera: Camera, tally: Tally, target: Target, ladder: Ladder | None, losses: Losses
    ) -> Device:
        rates = self.entry.rates(self.scenario.base_dir)
        return Device(self.box.clock, self.side, stay, self.network, camera, rates, tally, target, ladder, losses)

    def _stay(self, slo_ms: float | None, tenant: str, *, application_id: str = "", pipeline_id: str = "") -> Stay:
        scenario, entry = self.scenario, self.entry
        assert scenario.duration_s is not None, "checked when it was read"
        arrives_ns = START_NS + _arrival_ns(scenario, entry, self.number)
        end_ns = START_NS + nanoseconds(scenario.duration_s)
        stays_ns = end_ns if entry.stay_s is None else arrives_ns + nanoseconds(entry.stay_s)
        order = JoinOrder(
            tenant=tenant,
            key_id=self.name,
            application_id=application_id,
            fps=entry.captures_fps,
            promise=_promise(entry, slo_ms),
            name=self.name,
            weight=entry.weight,
            wait=True,
            rtt_ms=entry.network.rtt_ms,
            uplink_bps=self.network.uplink.rate_bps(arrives_ns - START_NS),
            pipeline_id=pipeline_id,
        )
        return Stay(
            self.name,
            order,
            arrives_ns,
            min(end_ns, stays_ns),
            slo_ms,
            entry.fits == "deadline",
            int(entry.result_bytes),
            entry.sends_px,
        )


def _promise(entry: SessionShape, slo_ms: float | None) -> AccuracyPromise | LatencyPromise:
    if entry.accuracy_slo is not None:
        return AccuracyPromise(entry.accuracy_slo, Reference(entry.reference))
    assert slo_ms is not None, "checked when it was read"
    return LatencyPromise(slo_ms, entry.rate_rps or entry.captures_fps, entry.accuracy_min)


def _camera(models: Sequence[ModelShape], least_px: int = 0) -> Camera:
    """For the networks that look at its pictures."""
    variants = [variant for model in models for variant in model.variants]
    points = [
        (side, variant.input_bytes or BYTES_PER_PIXEL * side**2)
        for variant in variants
        if (side := input_px(variant)) is not None
    ]
    usual_bytes = max((variant.input_bytes for variant in variants), default=0.0)
    return Camera(points, usual_bytes or WITHOUT_SIZE_BYTES, least_px)


def _camera_before(scenario: Scenario, shape: PipelineShape, pipeline: Pipeline) -> Camera:
    """For the stages that look at whole pictures. Where others look at what is cut out, its pictures are as large as a
    box takes them for that.
    """
    graph = Graph.of(pipeline.stages, {})
    first = {one.name for one in pipeline.stages if isinstance(one, Ask) and graph.level_of(one.name) == ROOT}
    asked = {one.application for one in shape.stages if one.called in first}
    names = {one.model for one in scenario.applications if one.name in asked}
    is_cut = any(level != ROOT for level in graph.levels.values())
    return _camera([one for one in scenario.models if one.name in names], CUT_SIDE if is_cut else 0)


def _reference_stride(scenario: Scenario, entry: SessionShape, model: ModelShape, network: DeviceNetwork) -> float:
    """Of a box that serves this device alone, with its most accurate variant on its quickest processor."""
    best = max(model.variants, key=lambda variant: variant.accuracy)
    tables = [latency_of(best, processor) for processor in scenario.box.processors]
    run_ms = min(table[min(table)] for table in tables if table is not None)
    way_ms = network.way_ms(best.input_bytes or WITHOUT_SIZE_BYTES, entry.result_bytes)
    return reference_stride(way_ms, run_ms, entry.captures_fps)


def _arrival_ns(scenario: Scenario, entry: SessionShape, number: int) -> int:
    """Each entry draws by itself: adding one leaves the others as they were."""
    at_s = entry.arrive_s
    if entry.arrival_rps is not None:
        random = Random(f"{scenario.seed}/sessions/{entry.name}")
        at_s += sum(random.expovariate(entry.arrival_rps) for _ in range(number + 1))
    return nanoseconds(at_s)


def _outages(scenario: Scenario, entry: SessionShape, name: str) -> tuple[Outage, ...]:
    found = []
    for fault in scenario.faults:
        if fault.kind == LINK_DOWN and fault.session in (name, entry.name):
            begin_ns = nanoseconds(fault.at_s)
            until_s = scenario.duration_s if fault.for_s is None else fault.at_s + fault.for_s
            assert until_s is not None
            found.append((begin_ns, max(begin_ns, nanoseconds(until_s + (1 if fault.for_s is None else 0)))))
    return tuple(found)
