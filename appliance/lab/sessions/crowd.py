"""All devices of a scenario: made before it starts, alive while it runs, and what came of their sessions."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from appliance.clock import NS_PER_MS
from appliance.domain.names import application_id
from appliance.domain.session import AccuracyPromise, LatencyPromise, Reference
from appliance.lab.composition import TENSORS, LabBox, input_px
from appliance.lab.faults import LINK_DOWN
from appliance.lab.journal import Journal
from appliance.lab.loop import START_NS, VirtualClock
from appliance.lab.outcome import Answer
from appliance.lab.scenario import ModelShape, Scenario, latency_of
from appliance.lab.session_shapes import SessionShape
from appliance.lab.sessions.camera import WITHOUT_SIZE_BYTES, Camera
from appliance.lab.sessions.deciding import InPlace
from appliance.lab.sessions.device import BoxSide, Device, Stay
from appliance.lab.sessions.ladder import Ladder
from appliance.lab.sessions.network import DeviceNetwork, Outage, network_of
from appliance.lab.sessions.tally import AccuracyTally, LatencyTally, Totals
from appliance.lab.workload import nanoseconds
from appliance.policies.adaptation import DEFAULT as DEFAULT_ADAPTATION
from appliance.policies.offload import DEFAULT as DEFAULT_OFFLOAD
from appliance.policies.offload.drop import reference_stride
from appliance.runtime.sessions.composition import SessionPorts, make_sessions
from appliance.runtime.sessions.sessions import JoinOrder, Limits, Sessions

LOOK_NS = 100 * NS_PER_MS
"""How often is looked who is served."""
LIMITS = Limits(per_tenant_max=4096, all_max=4096)


@dataclass(frozen=True, slots=True)
class SessionFigures:
    """Of all devices, or of those of one entry."""

    devices: int
    served_mean: float
    """Clients served, over time."""
    totals: Totals
    removals: int
    reconnects: int
    captured: int
    sent: int

    def document(self) -> dict[str, object]:
        """As the format has it; null where there is nothing to take a mean of."""
        all_ = self.totals
        return {
            "devices": self.devices,
            "served_mean": round(self.served_mean, 6),
            "within_slo": _ratio(all_.kept, all_.windows),
            "offload_interval_mean": _ratio(all_.interval_frames, all_.intervals),
            "drop_mean": _ratio(all_.drop, all_.shown),
            "windows": all_.windows,
            "kept": all_.kept,
            "due": all_.due,
            "in_time": _ratio(all_.in_time, all_.due),
            "accuracy_in_time": _ratio(all_.accuracy_in_time, all_.due),
            "captured": self.captured,
            "sent": self.sent,
            "removals": self.removals,
            "reconnects": self.reconnects,
        }


class Crowd:
    """The devices of a scenario around a box; to be made inside the virtual loop."""

    def __init__(self, scenario: Scenario, box: LabBox) -> None:
        """Raises: Malformed (of a file)."""
        self._scenario = scenario
        self._clock: VirtualClock = box.clock
        self._sessions = _registry(scenario, box)
        side = BoxSide(self._sessions, box.core.engine, TENSORS, LIMITS.credit)
        self._groups = {
            entry.name: [_device(scenario, box, side, entry, number, name) for number, name in _named(entry)]
            for entry in scenario.sessions
        }
        self._served: dict[str, int] = dict.fromkeys(self._groups, 0)
        self._end_ns = START_NS + nanoseconds(scenario.duration_s or 0)

    @property
    def devices(self) -> list[Device]:
        """All of them, in the order of the scenario."""
        return [device for group in self._groups.values() for device in group]

    @property
    def answers(self) -> list[Answer]:
        """One for each frame that was sent, in the order of captures."""
        found = [answer for device in self.devices for answer in device.answers]
        return sorted(found, key=lambda answer: answer.at_ns)

    async def plan(self) -> None:
        """The box's loops; until cancelled."""
        await self._sessions.run()

    async def live(self) -> None:
        """Until the last device has left."""
        looking = asyncio.create_task(self._look(), name="look at sessions")
        async with asyncio.TaskGroup() as tasks:
            for device in self.devices:
                tasks.create_task(device.live(), name="device")
        looking.cancel()

    def figures(self) -> dict[str, object]:
        """As the format has it, and the same by entry."""
        by_entry = {name: self._figures(name) for name in self._groups}
        groups = {name: one.document() for name, one in by_entry.items()} if len(by_entry) > 1 else {}
        return {**_together(list(by_entry.values())).document(), **({"groups": groups} if groups else {})}

    async def _look(self) -> None:
        while True:
            now_ns = self._clock.now_ns()
            is_over = now_ns >= self._end_ns
            for name, group in self._groups.items():
                for device in group:
                    is_served = device.is_served
                    self._served[name] += is_served and not is_over
                    device.tally.served(now_ns - START_NS, is_served=is_served and not device.is_leaving)
            await self._clock.sleep_until_ns(now_ns + LOOK_NS)

    def _figures(self, name: str) -> SessionFigures:
        group, totals = self._groups[name], Totals()
        for device in group:
            totals.add(device.tally.totals)
        return SessionFigures(
            devices=len(group),
            served_mean=self._served[name] * LOOK_NS / max(LOOK_NS, self._end_ns - START_NS),
            totals=totals,
            removals=sum(device.removals for device in group),
            reconnects=sum(device.reconnects for device in group),
            captured=sum(device.sender.counts.captured for device in group),
            sent=sum(device.sender.counts.sent for device in group),
        )


def _together(parts: Sequence[SessionFigures]) -> SessionFigures:
    totals = Totals()
    for part in parts:
        totals.add(part.totals)
    return SessionFigures(
        devices=sum(one.devices for one in parts),
        served_mean=sum(one.served_mean for one in parts),
        totals=totals,
        removals=sum(one.removals for one in parts),
        reconnects=sum(one.reconnects for one in parts),
        captured=sum(one.captured for one in parts),
        sent=sum(one.sent for one in parts),
    )


def _registry(scenario: Scenario, box: LabBox) -> Sessions:
    """The very registry of the running box."""
    adaptation = scenario.policies.get("adaptation", DEFAULT_ADAPTATION)
    offload = scenario.policies.get("offload", DEFAULT_OFFLOAD)
    numbers = count(1)
    core, journal = box.core, box.journal
    assert isinstance(journal, Journal)
    ports = SessionPorts(
        clock=box.clock,
        catalogue=core.catalogue,
        engine=core.engine,
        predictor=None,  # type: ignore[arg-type]  # frames bring tensors, and none are decoded
        memory=core.memory,
        residency=core.residency,
        telemetry=box.telemetry,
        decisions=journal,
        deciding=InPlace(adaptation, offload, box.stopwatch),
        pipelines=None,  # type: ignore[arg-type]  # its devices name applications
        new_id=lambda: f"s{next(numbers):05}",
    )
    return make_sessions(ports, LIMITS)


def _named(entry: SessionShape) -> list[tuple[int, str]]:
    return list(enumerate(entry.names()))


def _device(scenario: Scenario, box: LabBox, side: BoxSide, entry: SessionShape, number: int, name: str) -> Device:
    shape = next(one for one in scenario.applications if one.name == entry.application)
    model = next(one for one in scenario.models if one.name == shape.model)
    assert scenario.duration_s is not None, "checked when it was read"
    outages = _outages(scenario, entry, name)
    network = network_of(entry.network, scenario.seed, name, scenario.duration_s, scenario.base_dir, outages)
    slo_ms = None if entry.accuracy_slo is not None else entry.latency_slo_ms or shape.latency_slo_ms
    application = box.core.catalogue.entry(application_id(shape.tenant, shape.name)).application
    arrives_ns = START_NS + _arrival_ns(scenario, entry, number)
    end_ns = START_NS + nanoseconds(scenario.duration_s)
    stays_ns = end_ns if entry.stay_s is None else arrives_ns + nanoseconds(entry.stay_s)
    order = JoinOrder(
        tenant=shape.tenant,
        key_id=name,
        application_id=application.id,
        fps=entry.captures_fps,
        promise=_promise(entry, slo_ms),
        name=name,
        weight=entry.weight,
        wait=True,
        rtt_ms=entry.network.rtt_ms,
        uplink_bps=network.uplink.rate_bps(arrives_ns - START_NS),
    )
    stay = Stay(
        name,
        order,
        arrives_ns,
        min(end_ns, stays_ns),
        slo_ms,
        entry.fits == "deadline",
        int(entry.result_bytes),
        entry.sends_px,
    )
    if entry.accuracy_slo is None:
        tally: LatencyTally | AccuracyTally = LatencyTally()
    else:
        stride = _reference_stride(scenario, entry, model, network)
        tally = AccuracyTally(entry.accuracy_slo, stride if entry.reference == "dedicated" else 0.0)
    accuracies = {variant.name: variant.accuracy for variant in model.variants}
    sides = {variant.name: px for variant in model.variants if (px := input_px(variant)) is not None}
    ladder, rates = Ladder(accuracies, sides), entry.rates(scenario.base_dir)
    return Device(box.clock, side, stay, network, _camera(model), rates, tally, shape.name, ladder, accuracies)


def _promise(entry: SessionShape, slo_ms: float | None) -> AccuracyPromise | LatencyPromise:
    if entry.accuracy_slo is not None:
        return AccuracyPromise(entry.accuracy_slo, Reference(entry.reference))
    assert slo_ms is not None, "checked when it was read"
    return LatencyPromise(slo_ms, entry.rate_rps or entry.captures_fps, entry.accuracy_min)


def _camera(model: ModelShape) -> Camera:
    points = [(side, variant.input_bytes) for variant in model.variants if (side := input_px(variant)) is not None]
    return Camera(points, max((variant.input_bytes for variant in model.variants), default=0.0) or WITHOUT_SIZE_BYTES)


def _reference_stride(scenario: Scenario, entry: SessionShape, model: ModelShape, network: DeviceNetwork) -> float:
    """Of a box that serves this device alone, with its most accurate variant."""
    best = max(model.variants, key=lambda variant: variant.accuracy)
    table = latency_of(best, scenario.processor)
    assert table is not None, "checked when it was read"
    way_ms = network.way_ms(best.input_bytes or WITHOUT_SIZE_BYTES, entry.result_bytes)
    return reference_stride(way_ms, table[min(table)], entry.captures_fps)


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


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole else None
