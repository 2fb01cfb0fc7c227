"""Runs on the event loop itself: of those that are over before a worker's thread would have begun, and, up to a bound,
of who asks alone. They take neither queue nor worker.

A build that keeps taking much longer than was expected loses the privilege for a while.
"""

from collections import Counter
from dataclasses import dataclass

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.catalogue import Application
from appliance.domain.names import kind_of
from appliance.domain.profiles import INLINE
from appliance.domain.request import Request
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.ports import Processor
from appliance.runtime.profiles.times import RunTimes
from appliance.runtime.serving.outcomes import EndedRun
from appliance.runtime.serving.placement import Placed
from appliance.runtime.serving.queue import Queue
from appliance.runtime.serving.sole_caller import SoleCaller
from appliance.runtime.serving.spending import SpendingByTenant
from appliance.runtime.serving.unplanned import UnplannedRuns

_OVERRUN = 20
"""A run that takes this many times what it may be expected to take (5 ms by default) is an overrun ..."""
_ALONE_OVERRUN = 4
"""... of who asks alone, this many times (20 ms) ..."""
_OVERRUNS_MAX = 3
"""... and so many in a row are no scheduling hiccup: the build runs on a worker then ..."""
_OVERRUN_REST_NS = 30 * NS_PER_S
"""... for so long; on a machine that others keep busy every build has some."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a run on the event loop may be expected to take, and from when on it has taken far too long."""

    expected_ns: int
    overrun_ns: int


class InlineRuns:
    """Event-loop thread only."""

    def __init__(
        self,
        clock: Clock,
        catalogue: Catalogue,
        queue: Queue,
        memory: MemoryManager,
        processor: Processor,
        single_calls: SpendingByTenant,
        short_ns_max: int,
        alone_ns_max: int,
    ) -> None:
        """`short_ns_max`: runs that are expected to take longer have a worker; `alone_ns_max`: the same of who asks
        alone. `single_calls`: who pays for requests that have no meter of their own.
        """
        self._clock = clock
        self._catalogue = catalogue
        self._queue = queue
        self._memory = memory
        self._processor = processor
        self._single_calls = single_calls
        self.short = Limit(short_ns_max, _OVERRUN * short_ns_max)
        self.alone = Limit(alone_ns_max, _ALONE_OVERRUN * alone_ns_max)
        self.sole_caller = SoleCaller()
        self.runs = 0
        """That have ended well, since the start ..."""
        self.busy_ns = 0
        """... and what they took ..."""
        self.whole: Counter[str] = Counter()
        """... by kind of processor ..."""
        self.rows: Counter[str] = Counter()
        """... and their rows."""
        self.unplanned = UnplannedRuns()

    def is_alone(self, request: Request, now_ns: int, takes_ns: int | None) -> bool:
        """Whether nothing waits or runs, no body is on its way, nobody else has asked of late, and no start that is
        reserved comes before such a run would be over: it would keep the event loop from that.
        """
        scheduler = self._queue.scheduler
        if not self.sole_caller.is_alone(request.source, now_ns) or scheduler.is_expecting:
            return False
        return not scheduler.lanes.is_due(now_ns + (takes_ns or 0))

    def may_run(self, request: Request, placed: Placed, expected_ns: int | None, now_ns: int, limit: Limit) -> bool:
        """Whether to compute a request on this thread, now: where it is expected to take as little as that.

        A build that keeps taking much longer loses the privilege, and so does a tenant that is over its share while
        others wait.
        """
        servable = placed[0]
        if not servable.is_inline:  # it might stop or end everybody
            return False
        scheduler = self._queue.scheduler
        if scheduler.planned_rows(placed[1].build_id) is not None or scheduler.lanes.is_awaited(request.slot):
            return False  # its run is planned together with others, or waits for the run before it
        if expected_ns is None or expected_ns > limit.expected_ns or now_ns < placed[1].rests_until_ns:
            return False
        if servable.is_of_free_size:
            bound = servable.bound_of(request.shapes)
            if bound is None or bound.run_ms * NS_PER_MS > limit.expected_ns:
                return False
        if len(self._queue) and self._queue.scheduler.line.is_behind(request.tenant):
            return False
        return request.runs_late or request.deadline_ns is None or now_ns + expected_ns <= request.deadline_ns

    def run(
        self, request: Request, entry: Entry, build: LoadedBuild, start_ns: int, items: int, run_bytes: int = 0
    ) -> EndedRun:
        """Run on this thread, and release the build. A run that fails is charged here, one that ends well in `ran`."""
        request.started_ns, request.run_rows = start_ns, items
        self._memory.runs.begin(run_bytes)
        try:
            outputs = self._processor.run_inline(build.handle, request.inputs, request.outputs)
        except BaseException:
            end_ns = self._clock.now_ns()
            self.charge(entry.application, request.tenant, end_ns - start_ns, end_ns)
            raise
        finally:
            self._memory.runs.end(run_bytes)
            self._memory.unpin(build)
        return outputs, start_ns, self._clock.now_ns(), items

    def ran(
        self, request: Request, entry: Entry, build: LoadedBuild, times: RunTimes | None, run: EndedRun, limit: Limit
    ) -> None:
        """Charge a run on this thread that has ended well, and learn from it."""
        _, start_ns, end_ns, items = run
        took_ns = end_ns - start_ns
        self.charge(entry.application, request.tenant, took_ns, end_ns)
        kind = kind_of(build.build_id)
        self.runs += 1
        self.whole[kind] += 1
        self.rows[kind] += items
        self.busy_ns += took_ns
        (request.meter or self._single_calls.of(request.tenant)).ran(kind, took_ns)
        if not request.slot.is_planned:
            self.unplanned.ran(took_ns, end_ns)
        build.overruns = build.overruns + 1 if took_ns > limit.overrun_ns else 0
        if build.overruns >= _OVERRUNS_MAX:
            build.overruns, build.rests_until_ns = 0, end_ns + _OVERRUN_REST_NS
        if times is not None and times.skips:
            times.skips -= 1
        elif times is not None:
            times.ran(items, INLINE, took_ns, end_ns)

    def charge(self, application: Application, tenant: str, took_ns: int, now_ns: int) -> None:
        """Count what took no worker."""
        weights = self._catalogue.weights(application, tenant)
        self._queue.scheduler.charge(tenant, application.id, took_ns, weights, now_ns)
