"""All devices of a scenario: made before it starts, alive while it runs, and what came of their sessions."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from appliance.clock import NS_PER_MS
from appliance.lab.composition import LabBox
from appliance.lab.journal import Journal
from appliance.lab.loop import START_NS, VirtualClock
from appliance.lab.outcome import Answer
from appliance.lab.scenario import Scenario
from appliance.lab.sessions.deciding import InPlace
from appliance.lab.sessions.device import BoxSide, Device
from appliance.lab.sessions.devices import device_of
from appliance.lab.sessions.tally import Totals
from appliance.lab.workload import nanoseconds
from appliance.policies.adaptation import DEFAULT as DEFAULT_ADAPTATION
from appliance.policies.offload import DEFAULT as DEFAULT_OFFLOAD
from appliance.runtime.ports import StreamedPipelines
from appliance.runtime.sessions.composition import SessionPorts, make_sessions
from appliance.runtime.sessions.limits import Limits
from appliance.runtime.sessions.sessions import Sessions

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
            "within_slo_like_admission": _ratio(all_.like_kept, all_.like_windows),
            "offload_interval_mean": _ratio(all_.interval_frames, all_.intervals),
            "drop_mean": _ratio(all_.drop, all_.shown),
            "windows": all_.windows,
            "kept": all_.kept,
            "due": all_.due,
            "in_time": _ratio(all_.in_time, all_.due),
            "accuracy_in_time": _ratio(all_.accuracy_in_time, all_.rated),
            "captured": self.captured,
            "sent": self.sent,
            "removals": self.removals,
            "reconnects": self.reconnects,
        }


class Crowd:
    """The devices of a scenario around a box; to be made inside the virtual loop."""

    def __init__(self, scenario: Scenario, box: LabBox, pipelines: StreamedPipelines | None = None) -> None:
        """`pipelines`: of the box, where devices name some. Raises: Malformed (of a file)."""
        self._scenario = scenario
        self._clock: VirtualClock = box.clock
        self._sessions = _registry(scenario, box, pipelines)
        side = BoxSide(self._sessions, LIMITS.credit)
        self._groups = {
            entry.name: [device_of(scenario, box, side, entry, *named) for named in enumerate(entry.names())]
            for entry in scenario.sessions
        }
        self._asks_pipeline = {entry.name for entry in scenario.sessions if entry.pipeline is not None}
        self._served: dict[str, int] = dict.fromkeys(self._groups, 0)
        self._end_ns = START_NS + nanoseconds(scenario.duration_s or 0)

    @property
    def devices(self) -> list[Device]:
        """All of them, in the order of the scenario."""
        return [device for group in self._groups.values() for device in group]

    @property
    def answers(self) -> list[Answer]:
        """One for each frame that was sent to an application, in the order of captures: those of a pipeline are no
        requests.
        """
        asking = (group for name, group in self._groups.items() if name not in self._asks_pipeline)
        found = [answer for group in asking for device in group for answer in device.answers]
        return sorted(found, key=lambda answer: answer.at_ns)

    @property
    def frames(self) -> tuple[int, int]:
        """Sent, ended."""
        devices = self.devices
        return sum(one.sender.counts.sent for one in devices), sum(len(one.answers) for one in devices)

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


def _registry(scenario: Scenario, box: LabBox, pipelines: StreamedPipelines | None) -> Sessions:
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
        account=core.account,
        residency=core.residency,
        telemetry=box.telemetry,
        decisions=journal,
        deciding=InPlace(adaptation, offload, box.stopwatch),
        pipelines=pipelines,  # type: ignore[arg-type]  # where there are none, no device names one
        new_id=lambda: f"s{next(numbers):05}",
    )
    return make_sessions(ports, LIMITS)


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole else None
