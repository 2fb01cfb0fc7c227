"""One run: clients, an application, a planner, a turn-off delay; what it cost, and which frames were in time."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from appliance.clock import NS_PER_S
from reproduce.scrooge.agenda import Agenda
from reproduce.scrooge.applications import LOAD_S, SLO_MS, Application
from reproduce.scrooge.demand import WINDOW_S, Demand, rates_of
from reproduce.scrooge.planning import Planner
from reproduce.scrooge.service import Service
from reproduce.scrooge.workload import Workload

CHANGE = 0.1
"""Less than this plans nothing anew."""
HEADROOM = 1.3
"""Rates are planned for with so much more than was seen."""
OFF_DELAY_S = 30.0


@dataclass(frozen=True, slots=True)
class Figures:
    """`cost`, `rented`: USD, by shares, and of whole workers with those kept warm. `finish`: of all frames."""

    frames: int
    in_time: int
    cost: float
    rented: float
    plans: int
    loads: int
    windows: Mapping[int, tuple[int, int]]
    """Second → frames sent, frames in time (SC-28)."""

    @property
    def finish(self) -> float:
        return self.in_time / max(1, self.frames)


@dataclass(frozen=True, slots=True)
class Conditions:
    """The same for all planners."""

    slo_ms: float = SLO_MS
    off_delay_s: float = OFF_DELAY_S
    headroom: float = HEADROOM
    foresight: bool = False
    """The planner is told what the next second will have, every second, and workers are loaded beforehand."""
    hands_over: bool = True
    """Instances that a plan gives up go on until those that it wants are loaded."""


class _Run:
    def __init__(self, application: Application, workload: Workload, planner: Planner, conditions: Conditions) -> None:
        self._application, self._workload, self._planner = application, workload, planner
        self._conditions = conditions
        self._agenda = Agenda()
        load_s = 0.0 if conditions.foresight else LOAD_S
        self._service = Service(
            self._agenda,
            application,
            conditions.slo_ms,
            conditions.off_delay_s,
            load_s,
            hands_over=conditions.hands_over,
        )
        self._demand = Demand(application)
        self._planned: dict[str, float] = {}
        self._plans = 0
        self._times = [sent.at_ns for sent in workload.frames]
        self._next = 0

    def figures(self) -> Figures:
        agenda, workload = self._agenda, self._workload
        for stream in workload.streams:
            for at_s in (stream.joins_s, stream.leaves_s):
                agenda.at(round(at_s * NS_PER_S), self._look)
        agenda.at(0, self._tick)
        if workload.frames:
            agenda.at(self._times[0], self._send)
        agenda.run()
        self._service.settle()
        return self._counted()

    def _send(self) -> None:
        sent = self._workload.frames[self._next]
        self._next += 1
        if self._next < len(self._times):
            self._agenda.at(self._times[self._next], self._send)
        self._demand.note(sent)
        self._service.take(sent)

    def _tick(self) -> None:
        self._look()
        self._demand.turn()
        if self._agenda.now_ns < self._workload.duration_s * NS_PER_S:
            self._agenda.at(self._agenda.now_ns + round(WINDOW_S * NS_PER_S), self._tick)

    def _look(self) -> None:
        """Plan anew where rates have changed."""
        rates = {name: rate * self._conditions.headroom for name, rate in self._rates().items()}
        if all(
            abs(rate - self._planned.get(name, 0.0)) <= CHANGE * self._planned.get(name, 0.0)
            for name, rate in rates.items()
        ):
            return
        deployment = self._planner.deployment(rates, self._service.existing())
        self._plans += 1
        if deployment is not None:
            self._planned = rates
            self._service.enact(deployment)

    def _rates(self) -> dict[str, float]:
        now_s = self._agenda.now_ns / NS_PER_S
        if not self._conditions.foresight:
            return self._demand.rates(self._workload.fps_at(now_s))
        first = bisect_left(self._times, self._agenda.now_ns)
        last = bisect_left(self._times, self._agenda.now_ns + NS_PER_S)
        frames = self._workload.frames[first:last]
        objects = {k: sum(f.objects[k] for f in frames) / len(frames) for k in frames[0].objects} if frames else {}
        return rates_of(self._application, float(last - first), objects)

    def _counted(self) -> Figures:
        windows: dict[int, list[int]] = {}
        for sent, is_in_time in self._service.ends:
            counts = windows.setdefault(sent.at_ns // NS_PER_S, [0, 0])
            counts[0] += 1
            counts[1] += is_in_time
        return Figures(
            frames=len(self._service.ends),
            in_time=sum(is_in_time for _, is_in_time in self._service.ends),
            cost=self._service.cost,
            rented=self._service.rented,
            plans=self._plans,
            loads=self._service.loads,
            windows={second: (sent, done) for second, (sent, done) in sorted(windows.items())},
        )


def run(application: Application, workload: Workload, planner: Planner, conditions: Conditions) -> Figures:
    """To the last frame's end."""
    return _Run(application, workload, planner, conditions).figures()
