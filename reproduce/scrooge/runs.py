"""One run: clients, an application, a planner, a turn-off delay; what it cost, and which frames were in time."""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from appliance.clock import NS_PER_S
from reproduce.claims import Numbers
from reproduce.scrooge.agenda import Agenda
from reproduce.scrooge.applications import LOAD_S, SLO_MS, Application
from reproduce.scrooge.planning import Planner
from reproduce.scrooge.service import Service
from reproduce.scrooge.workload import Sent, Workload

CHANGE = 0.1
"""Less than this plans nothing anew."""
HEADROOM = 1.3
"""Rates are planned for with so much more than was seen."""
OFF_DELAY_S = 30.0
WINDOW_S = 0.5
WINDOWS = 2
"""Over so many of them."""


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


class Demand:
    """What the planner is told: frames a second as clients said when they joined, and items a frame as the mean of the
    last windows of half a second (SC-18, SC-19).
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._windows: deque[list[Sent]] = deque([[]], maxlen=WINDOWS)

    def note(self, sent: Sent) -> None:
        self._windows[-1].append(sent)

    def turn(self) -> None:
        """A window is over."""
        self._windows.append([])

    def rates(self, fps: float) -> dict[str, float]:
        """Items a second by stage when so many frames a second come."""
        return rates_of(self._application, fps, [sent for window in self._windows for sent in window])


def rates_of(application: Application, fps: float, frames: Sequence[Sent]) -> dict[str, float]:
    """Items a second by stage, with the mean objects of these frames; one of each kind where there is no frame."""
    objects = {k: sum(f.objects[k] for f in frames) / len(frames) for k in frames[0].objects} if frames else {}
    rates = {application.root: fps}
    ahead = [application.root]
    while ahead:
        source = ahead.pop()
        for edge in application.after[source]:
            rates[edge.target] = rates[source] * (1.0 if edge.objects is None else objects.get(edge.objects, 1.0))
            ahead.append(edge.target)
    return rates


class _Run:
    def __init__(self, application: Application, workload: Workload, planner: Planner, conditions: Conditions) -> None:
        self._application, self._workload, self._planner = application, workload, planner
        self._conditions, self._agenda, self._demand = conditions, Agenda(), Demand(application)
        self.service = Service(
            self._agenda,
            application,
            conditions.slo_ms,
            conditions.off_delay_s,
            0.0 if conditions.foresight else LOAD_S,
            hands_over=conditions.hands_over,
        )
        self._planned: dict[str, float] = {}
        self.plans = 0
        self._times = [sent.at_ns for sent in workload.frames]

    def finish(self) -> None:
        for at_s in (at_s for stream in self._workload.streams for at_s in (stream.joins_s, stream.leaves_s)):
            self._agenda.at(round(at_s * NS_PER_S), self._look)
        self._agenda.at(0, self._tick)
        for sent in self._workload.frames:
            self._agenda.at(sent.at_ns, partial(self._send, sent))
        self._agenda.run()
        self.service.settle()

    def _send(self, sent: Sent) -> None:
        self._demand.note(sent)
        self.service.take(sent)

    def _tick(self) -> None:
        self._look()
        self._demand.turn()
        if self._agenda.now_ns < self._workload.duration_s * NS_PER_S:
            self._agenda.at(self._agenda.now_ns + round(WINDOW_S * NS_PER_S), self._tick)

    def _look(self) -> None:
        """Plan anew where rates have changed."""
        rates = {name: rate * self._conditions.headroom for name, rate in self._rates().items()}
        planned = {name: self._planned.get(name, 0.0) for name in rates}
        if all(abs(rate - planned[name]) <= CHANGE * planned[name] for name, rate in rates.items()):
            return
        deployment = self._planner.deployment(rates, self.service.existing())
        self.plans += 1
        if deployment is not None:
            self._planned = rates
            self.service.enact(deployment)

    def _rates(self) -> dict[str, float]:
        now_s = self._agenda.now_ns / NS_PER_S
        if not self._conditions.foresight:
            return self._demand.rates(self._workload.fps_at(now_s))
        first = bisect_left(self._times, self._agenda.now_ns)
        last = bisect_left(self._times, self._agenda.now_ns + NS_PER_S)
        return rates_of(self._application, float(last - first), self._workload.frames[first:last])


def run(application: Application, workload: Workload, planner: Planner, conditions: Conditions) -> Numbers:
    """Run to the last frame's end. `finish`: the share of `frames` in time; `windows`: its mean over seconds (SC-28).

    `cost`, `rented`: USD, by shares, and of whole workers with those kept warm.
    """
    done = _Run(application, workload, planner, conditions)
    done.finish()
    ends, windows = done.service.ends, defaultdict[int, list[bool]](list)
    for sent, is_in_time in ends:
        windows[sent.at_ns // NS_PER_S].append(is_in_time)
    return {
        "frames": len(ends),
        "finish": sum(is_in_time for _, is_in_time in ends) / max(1, len(ends)),
        "windows": fmean(fmean(found) for found in windows.values()) if windows else 1.0,
        "cost": done.service.cost,
        "rented": done.service.rented,
        "plans": done.plans,
        "loads": done.service.loads,
    }
