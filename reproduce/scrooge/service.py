"""An emulated cluster that serves one application: items wait by stage, instances take batches of them, and what cannot
be in time any more is dropped before it runs (SC-25).

What every planner finds alike:

- One queue a stage, in the order of arrival. A full instance takes what is there as soon as one of its streams is free.
  A partial one waits for company as planned, and never takes more of its worker than its share in the long run, as if
  the rest were sold.
- A batch takes what its profile says for its size and for how many of its instance run when it starts.
- A stage that is new on a worker is loaded first (`LOAD_S`). Until that is done, instances of it that the plan gives up
  go on (`hands_over`). What a worker has loaded stays for the turn-off delay (SC-23).
- A frame is in time when all its items are done by its deadline.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.policies.allocation.base import Existing
from reproduce.scrooge.agenda import Agenda
from reproduce.scrooge.applications import CORES, CPU, LOAD_S, Application
from reproduce.scrooge.planning import Deployment, Spot
from reproduce.scrooge.workload import Sent

_FULL = 1.0 - 1e-9
SLICE_NS = NS_PER_S // 4
"""Over so long a partial instance may save up its share."""


@dataclass(eq=False, slots=True)
class Frame:
    """`items`: that are not done yet."""

    sent: Sent
    deadline_ns: int
    items: int = 1
    dropped: int = 0


@dataclass(eq=False, slots=True)
class Instance:
    """A stage on a worker. `free_ns`: the earliest next start by its share of the worker, into debt by one batch."""

    spot: Spot
    ready_ns: int
    streams: int
    running: int = 0
    free_ns: int = 0
    is_leaving: bool = False


@dataclass(eq=False, slots=True)
class Line:
    """What waits at a stage: frames with the time of coming, and how often they stand there is one entry each."""

    waiting: deque[tuple[Frame, int]] = field(default_factory=deque)
    instances: list[Instance] = field(default_factory=list)
    behind_ns: int = 0
    timer_ns: int | None = None
    batches: int = 0
    ran: int = 0


@dataclass(slots=True)
class Warm:
    """A stage that is loaded on a worker: from when, and until when if nobody uses it."""

    ready_ns: int
    until_ns: int | None = None


class Service:
    """`frames` collects those that are done, with the time; `cost` in USD grows as time passes."""

    def __init__(
        self,
        agenda: Agenda,
        application: Application,
        slo_ms: float,
        off_delay_s: float,
        load_s: float = LOAD_S,
        *,
        hands_over: bool = True,
    ) -> None:
        self._hands_over = hands_over
        self._agenda, self._application = agenda, application
        self._slo_ns = round(slo_ms * NS_PER_MS)
        self._off_delay_ns, self._load_ns = round(off_delay_s * NS_PER_S), round(load_s * NS_PER_S)
        self.lines = {name: Line() for name in application.stages}
        self._loaded: dict[tuple[str, int], dict[str, Warm]] = {}
        self._runs: dict[tuple[str, str, int, int], int] = {}
        self._deployment = Deployment((), 0.0, {})
        self._since_ns = 0
        self.cost = self.rented = 0.0
        self.loads = 0
        self.ends: list[tuple[Sent, bool]] = []
        """Of every frame: whether it was in time."""

    # -- frames --------------------------------------------------------------------------------------------------------

    def take(self, sent: Sent) -> None:
        """A frame has come."""
        self._join(Frame(sent, sent.at_ns + self._slo_ns), self._application.root, 1)

    def _join(self, frame: Frame, stage: str, count: int) -> None:
        line = self.lines[stage]
        line.waiting.extend([(frame, self._agenda.now_ns)] * count)
        self._serve(stage)

    def _done(self, frame: Frame, stage: str) -> None:
        """One item of it; those that follow from it wait at their stages."""
        ahead = [
            (edge.target, 1 if edge.objects is None else frame.sent.objects[edge.objects])
            for edge in self._application.after[stage]
        ]
        frame.items += sum(count for _, count in ahead) - 1
        if not frame.items:
            self._end(frame)
        for target, count in ahead:
            if count:
                self._join(frame, target, count)

    def _drop(self, frame: Frame) -> None:
        frame.dropped += 1
        frame.items -= 1
        if not frame.items:
            self._end(frame)

    def _end(self, frame: Frame) -> None:
        self.ends.append((frame.sent, not frame.dropped and self._agenda.now_ns <= frame.deadline_ns))

    # -- batches -------------------------------------------------------------------------------------------------------

    def _serve(self, stage: str) -> None:
        """Begin whatever can begin; ask to come back when more can."""
        line, now_ns = self.lines[stage], self._agenda.now_ns
        while line.waiting:
            if not line.instances and not self._expired(line):
                self._come_back(stage, line, line.waiting[0][0].deadline_ns + 1)
                return
            next_ns = None
            for instance in line.instances:
                if instance.running >= instance.streams:
                    continue
                due_ns = self._due_ns(stage, line, instance)
                if due_ns <= now_ns:
                    self._begin(stage, line, instance)
                    break
                next_ns = due_ns if next_ns is None else min(next_ns, due_ns)
            else:
                if line.instances:
                    self._come_back(stage, line, next_ns)
                    return

    def _expired(self, line: Line) -> bool:
        """Whether the first that waits where nothing serves was too late, and was dropped."""
        frame, _ = line.waiting[0]
        if frame.deadline_ns >= self._agenda.now_ns:
            return False
        line.waiting.popleft()
        self._drop(frame)
        return True

    def _due_ns(self, stage: str, line: Line, instance: Instance) -> int:
        """When it may begin with what waits now."""
        spot = instance.spot
        able_ns = max(instance.ready_ns, instance.free_ns)
        if spot.share >= _FULL or len(line.waiting) >= spot.batch:
            return able_ns
        frame, came_ns = line.waiting[0]
        late_ns = frame.deadline_ns - line.behind_ns - self._run_ns(stage, spot.worker, spot.batch, spot.concurrency)
        return max(able_ns, min(came_ns + round(spot.wait_ms * NS_PER_MS), late_ns))

    def _begin(self, stage: str, line: Line, instance: Instance) -> None:
        """With those at the head that can still be in time; drop the others."""
        now_ns, spot = self._agenda.now_ns, instance.spot
        size = min(spot.batch, len(line.waiting))
        takes_ns = self._run_ns(stage, spot.worker, size, instance.running + 1)
        batch: list[Frame] = []
        while line.waiting and len(batch) < size:
            frame, _ = line.waiting.popleft()
            if now_ns + takes_ns + line.behind_ns > frame.deadline_ns:
                self._drop(frame)
            else:
                batch.append(frame)
        if not batch:
            return
        takes_ns = self._run_ns(stage, spot.worker, len(batch), instance.running + 1)
        instance.running += 1
        if spot.share < _FULL:
            since_ns = max(instance.free_ns, now_ns - SLICE_NS)
            instance.free_ns = since_ns + round(takes_ns / instance.streams / spot.share)
        line.batches += 1
        line.ran += len(batch)
        self._agenda.at(now_ns + takes_ns, partial(self._ended, stage, instance, batch))

    def _ended(self, stage: str, instance: Instance, batch: list[Frame]) -> None:
        instance.running -= 1
        for frame in batch:
            self._done(frame, stage)
        self._serve(stage)

    def _come_back(self, stage: str, line: Line, at_ns: int | None) -> None:
        if at_ns is not None and (line.timer_ns is None or at_ns < line.timer_ns):
            line.timer_ns = at_ns
            self._agenda.at(at_ns, partial(self._again, stage, at_ns))

    def _again(self, stage: str, at_ns: int) -> None:
        line = self.lines[stage]
        if line.timer_ns == at_ns:
            line.timer_ns = None
            self._serve(stage)

    def _run_ns(self, stage: str, worker: str, batch: int, running: int) -> int:
        key = stage, worker, batch, running
        if key not in self._runs:
            self._runs[key] = round(self._application.run_ms(*key) * NS_PER_MS)
        return self._runs[key]

    # -- plans ---------------------------------------------------------------------------------------------------------

    def existing(self) -> list[Existing]:
        """Workers that have something loaded: as far as placement is concerned they are empty."""
        self.settle()
        self._turn_off()
        return [
            Existing(worker, index, (), tuple(sorted(loaded)))
            for (worker, index), loaded in sorted(self._loaded.items())
        ]

    def enact(self, deployment: Deployment) -> None:
        """Serve as planned from now on."""
        self.settle()
        self._deployment = deployment
        self._turn_off()
        wanted: dict[str, list[Spot]] = {name: [] for name in self.lines}
        for spot in deployment.spots:
            wanted[spot.stage].append(spot)
        for stage, line in self.lines.items():
            line.behind_ns = round(deployment.behind_ms.get(stage, 0.0) * NS_PER_MS)
            self._change(stage, line, wanted[stage])
        self._keep_warm()
        for stage in self.lines:
            self._serve(stage)

    def _keep_warm(self) -> None:
        """What has an instance stays loaded; what has none any more does so for the turn-off delay."""
        spots = [one.spot for line in self.lines.values() for one in line.instances]
        used = {(spot.worker, spot.index, spot.stage) for spot in spots}
        for (worker, index), loaded in self._loaded.items():
            for stage, warm in loaded.items():
                if (worker, index, stage) in used:
                    warm.until_ns = None
                elif warm.until_ns is None:
                    warm.until_ns = self._agenda.now_ns + self._off_delay_ns

    def _change(self, stage: str, line: Line, spots: list[Spot]) -> None:
        now_ns = self._agenda.now_ns
        there = {(one.spot.worker, one.spot.index): one for one in line.instances}
        kept: list[Instance] = []
        ready_ns = now_ns
        for spot in sorted(spots, key=lambda spot: (spot.share < _FULL, spot.worker, spot.index)):
            warm = self._loaded.setdefault((spot.worker, spot.index), {}).get(stage)
            if warm is None:
                takes_ns = 0 if spot.worker == CPU else self._load_ns
                self.loads += spot.worker != CPU
                warm = self._loaded[spot.worker, spot.index][stage] = Warm(now_ns + takes_ns)
            ready_ns = max(ready_ns, warm.ready_ns)
            streams = CORES if spot.worker == CPU else spot.concurrency
            instance = there.pop((spot.worker, spot.index), None) or Instance(spot, warm.ready_ns, streams)
            instance.spot, instance.streams, instance.is_leaving = spot, streams, False
            kept.append(instance)
        if ready_ns > now_ns and self._hands_over:
            for instance in there.values():
                instance.is_leaving = True
            kept += there.values()
            self._agenda.at(ready_ns, partial(self._release, stage))
        line.instances = kept

    def _release(self, stage: str) -> None:
        """Those that the plan gave up, once all that it wants are ready."""
        line = self.lines[stage]
        if all(one.ready_ns <= self._agenda.now_ns for one in line.instances):
            self.settle()
            line.instances = [one for one in line.instances if not one.is_leaving]
            self._keep_warm()
        self._serve(stage)

    def _turn_off(self) -> None:
        now_ns = self._agenda.now_ns
        for key in list(self._loaded):
            kept = {s: w for s, w in self._loaded[key].items() if w.until_ns is None or w.until_ns > now_ns}
            if kept:
                self._loaded[key] = kept
            else:
                del self._loaded[key]

    def settle(self) -> None:
        """Charge what was taken since the last time: shares, and whole workers with those that are kept warm."""
        now_ns = self._agenda.now_ns
        hours = (now_ns - self._since_ns) / NS_PER_S / 3600.0
        leaving = [one.spot for line in self.lines.values() for one in line.instances if one.is_leaving]
        prices = self._application.prices
        self.cost += hours * (self._deployment.cost_h + sum(prices[spot.worker] * spot.share for spot in leaving))
        self.rented += hours * sum(prices[worker] for worker, _ in self._loaded)
        self._since_ns = now_ns
