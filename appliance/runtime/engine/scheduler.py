"""The scheduler: the only part of the box that holds calls back and lets them begin.

A deterministic state machine: no clock, no event loop, no callbacks. Events come in by `put`, `leave`, `end`, `facts`,
`plan`, `plan_rows` and `charge`; `decide` says what begins and what ends now. The same events give the same decisions.

Order of waiting calls: work beyond a plan after planned work of other tenants; tenants by used time; inside a tenant
the band of applications, items of lost frames last, then priority, urgency, arrival (`line`). A call that has its turn
may be held for one of the reasons in `work.Reason`; each ends by an event or at a known time.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Protocol

from appliance.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from appliance.domain.slots import NO_SLOT, Lane, Member, PlannedBatch, PlannedRows
from appliance.policies.batching.base import BatchingInput, BatchingPolicy, WaitingRequest
from appliance.policies.batching.by_profile import ByProfile, late_of
from appliance.policies.dispatch.reserved import gap_ns
from appliance.policies.dispatch.sparing import Waiting, spared
from appliance.runtime.engine.backlog import LEAST_NS, Backlog
from appliance.runtime.engine.lanes import Lanes
from appliance.runtime.engine.line import Line, place
from appliance.runtime.engine.placement import Candidate, FirstInLine, Placed, Placement, occupy
from appliance.runtime.engine.portions import Portions
from appliance.runtime.engine.work import (
    FOREVER_NS,
    LONG_NS,
    Call,
    CallState,
    Decision,
    GroupFacts,
    Kind,
    Option,
    Out,
    Reason,
    Refusal,
    RefusedBy,
    Run,
    Why,
)

LOOKED_AT = 32
"""Calls of a tenant that are weighed for a start, and calls that are weighed for company."""
HASTE = 0.9
"""Share of the time until its deadline that a call may be expected to take when it is let in."""
PATIENCE_NS = 5 * NS_PER_S
"""Reserved starts hold a call back for no longer."""
LOOK_AGAIN_MIN_NS, LOOK_AGAIN_MAX_NS = NS_PER_MS, NS_PER_S
"""A run that should have ended is looked at again after at least and at most so long."""
MARGIN_NS = NS_PER_MS
"""A call stops waiting for company so long before it would be too late."""
_DROPS_MIN = 256
"""Deadlines of ended calls are cleared out only where more deadlines than this are kept."""


class Environment(Protocol):
    """What the scheduler asks of others: run times, memory, and which calls may share a run."""

    def run_ns(self, option: Option, rows: int, running: int, now_ns: int) -> int | None:
        """Return the expected time of a run of so many rows, one of `running` under way; None: nothing is known."""
        ...

    def likely_ns(self, call: Call) -> int:
        """Return for how long a call may hold a worker, by the latest runs of its build."""
        ...

    def has_room(self, option: Option, calls: Sequence[Call]) -> bool:
        """Return whether there is memory for a run of some calls."""
        ...

    def may_share(self, mate: Call, call: Call, option: Option) -> bool:
        """Return whether a waiting call can share the run of another: same build, outputs, names, types and shapes."""
        ...

    def is_there(self, option: Option) -> bool:
        """Return whether a build is still loaded."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what waits."""

    calls_max: int = 1 << 30
    """Calls of one tenant for one application that may wait."""
    total_max: int = 1 << 30
    wait_ns_max: int = FOREVER_NS


class Scheduler:
    """See the module."""

    def __init__(
        self,
        groups: Sequence[GroupFacts],
        environment: Environment,
        *,
        limits: Limits = Limits(),
        placement: Placement | None = None,
        batching: BatchingPolicy | None = None,
        workers: int = 0,
    ) -> None:
        """`workers`: that plans and estimates count on; 0: those of the groups."""
        self._groups = list(groups)
        self._workers = workers or sum(group.workers for group in groups)
        self._environment = environment
        self.limits = limits
        self._placement = placement or FirstInLine()
        self._batching = batching or ByProfile()
        self.line = Line()
        self.lanes = Lanes()
        self._backlog = Backlog(self._workers)
        self._places = Portions(limits.total_max)
        self._runs: dict[Run, None] = {}
        self._busy = [0] * len(groups)
        """Runs by group."""
        self._idle = sum(group.workers for group in groups)
        """Workers without a run."""
        self._drops: list[tuple[int, int, Call]] = []
        """Deadlines of calls that wait or run. Calls that have ended stay until they are first, or too many ..."""
        self._drops_max = _DROPS_MIN
        """... which so many are."""
        self._rows: Mapping[str, PlannedRows] = {}
        """Build → what its runs wait for, by plans of pipelines."""
        self._count = 0
        self._is_new = True
        """Whether something has happened since all that waits was looked at in vain, but calls that came."""
        self._newcomers: list[Call] = []
        """Calls that came since."""
        self._look_ns = FOREVER_NS
        """When the first hold of a call that waits ends by itself."""

    def __len__(self) -> int:
        return self.line.waiting

    @property
    def runs(self) -> Collection[Run]:
        """Runs under way, in the order in which they began."""
        return self._runs.keys()

    @property
    def groups(self) -> Sequence[GroupFacts]:
        """What is known of the groups."""
        return self._groups

    @property
    def is_expecting(self) -> bool:
        """Whether a call waits or runs, or its body is still read."""
        return self.line.fair.is_busy or self._backlog.work_ns > 0

    @property
    def has_idle(self) -> bool:
        """Whether a worker has no run."""
        return self._idle > 0

    def rests_ns(self, now_ns: int) -> list[int]:
        """Return for how long each run under way is expected to go on; runs of which nothing is known are left out."""
        rests_ns = []
        for run in self._runs:  # a loop: this is asked for each request
            rest_ns = run.began_ns + run.holds_ns - now_ns
            if rest_ns > 0 and run.option.is_known:
                rests_ns.append(rest_ns)
        return rests_ns

    def planned_rows(self, build: str) -> PlannedRows | None:
        """Return what runs of a build wait for; None: nothing."""
        return self._rows.get(build)

    @property
    def deadlines_kept(self) -> int:
        """How many deadlines are kept, of calls that have ended, too."""
        return len(self._drops)

    def check_empty(self) -> None:
        """Assert that nothing is left of calls that have ended."""
        assert not (self.line.waiting or self.line.fair.is_busy or self._runs or any(self._busy))
        assert not (self._places.taken or self._backlog.work_ns)

    # -- events --------------------------------------------------------------------------------------------------------

    def put(self, call: Call, now_ns: int) -> Run | Refusal | None:
        """Add a call. Return its run where it begins at once, its refusal, or None: it waits, and `decide` follows."""
        line = self.line
        line.saw(call.tenant, now_ns)
        if self._idle and not line.waiting and call.slot is NO_SLOT and self._is_unhindered(call, now_ns):
            self._watch(call)
            option = call.options[0]
            return self._begun(Run([call], option, now_ns, call.likely_ns), [call.likely_ns])
        call.work_ns = work_ns = max(LEAST_NS, call.likely_ns)
        if not call.was_let_in:
            # A refused item is not asked again: items wait until they can no longer be in time.
            refusal = self.no_place(call.tenant, call.application)
            if refusal is None and call.kind is not Kind.ITEM:
                refusal = self._no_time(call, work_ns, now_ns)
            if refusal is not None:
                return refusal
        if call.slot.lane is not None:
            self.lanes.put(call, now_ns)
            self._is_new = True
        if call.beyond:
            self._is_behind(call, now_ns)
        self._places.add(call.tenant)
        self._backlog.add(call.tenant, call.application, work_ns, call.weights)
        line.put(call)
        self._watch(call)
        if self._rows:
            self._is_new = True
        elif not self._is_new:
            self._newcomers.append(call)
        return None

    def announce(self, call: Call, now_ns: int) -> Refusal | None:
        """Count a call whose body is still read among those that wait, until `unannounce`; or refuse it."""
        call.work_ns = max(LEAST_NS, call.likely_ns)
        refusal = self._no_time(call, call.work_ns, now_ns, is_last=True)
        if refusal is None:
            self._backlog.add(call.tenant, call.application, call.work_ns, call.weights, is_ready=False)
        return refusal

    def unannounce(self, call: Call) -> None:
        """The body of a call has been read, or never will be."""
        self._backlog.remove(call.tenant, call.application, call.work_ns, is_ready=False)

    def leave(self, call: Call) -> None:
        """The caller of a call is gone. A run that is under way goes on, and is charged."""
        if call.state is CallState.WAITING:
            self._remove(call)

    def absent(self, member: Member) -> None:
        """A frame will not come, or is over: planned batches wait for it no longer."""
        self.lanes.absent(member)
        self._is_new = True

    def plan(self, lane: Lane, tenant: str, batches: Iterable[PlannedBatch]) -> None:
        """Replace the planned batches of a lane, which are of one tenant."""
        self.lanes.plan(lane, tenant, batches)
        self._is_new = True

    def plan_rows(self, rows: Mapping[str, PlannedRows]) -> None:
        """Replace what runs of builds wait for."""
        self._rows = dict(rows)
        self._is_new = True

    def facts(self, groups: Sequence[GroupFacts]) -> None:
        """Replace what is known of the groups."""
        if groups != self._groups:
            self._idle += sum(one.workers for one in groups) - sum(one.workers for one in self._groups)
            self._groups = list(groups)
            self._is_new = True

    def charge(self, tenant: str, application: str, took_ns: int, weights: tuple[float, float], now_ns: int) -> None:
        """Charge processor time that a call used outside the workers."""
        self.line.saw(tenant, now_ns)
        if self.line.fair.is_busy:  # else it was nobody's turn
            self.line.charge(tenant, application, took_ns, weights)

    def end(self, run: Run, now_ns: int) -> None:
        """A run has ended: its worker is free, and each of its calls is charged with its part of what the run took."""
        del self._runs[run]
        self._busy[run.group] -= 1
        self._idle += 1
        self._is_new = True
        took_ns = now_ns - run.began_ns
        rows = run.rows if len(run.calls) > 1 else run.calls[0].rows
        for call, charged_ns in zip(run.calls, run.charges, strict=True):
            part_ns = took_ns * call.rows // rows
            self.line.end(call, int(part_ns * run.worth) - charged_ns, now_ns)
            if part_ns:
                self._backlog.done(max(LEAST_NS, charged_ns), part_ns, now_ns)
            call.state = CallState.ENDED
        if run.lane is not None:
            self.lanes.end(run, now_ns)

    # -- decisions -----------------------------------------------------------------------------------------------------

    def decide(self, now_ns: int) -> Decision:
        """Return all that begins and ends now. Calls that begin are `RUNNING`, and their runs under way."""
        outs: list[Out] = []
        if self._drops and self._drops[0][0] < now_ns:
            self._expire(now_ns, outs)
        if self.lanes.has_reserved and self.lanes.pass_time(now_ns):
            self._is_new = True
        starts: list[Run] = []
        while self.line.waiting and self._idle > 0:
            run = self._next(now_ns, outs)
            if run is None:
                break
            starts.append(run)
        return Decision(tuple(starts), tuple(outs), self._next_look_ns(now_ns))

    def _expire(self, now_ns: int, outs: list[Out]) -> None:
        drops = self._drops
        while drops and drops[0][0] < now_ns:
            call = heapq.heappop(drops)[2]
            if call.state is CallState.WAITING:
                self._drop(call, Why.EXPIRED, outs)
            elif call.state is CallState.RUNNING:
                outs.append(Out(call, Why.EXPIRED))

    def _drop(self, call: Call, why: Why, outs: list[Out]) -> None:
        self._remove(call)
        outs.append(Out(call, why))

    def _next(self, now_ns: int, outs: list[Out]) -> Run | None:
        """Return the run that begins next. Where all that waits was looked at in vain, only calls that came since are
        looked at, until an event or a time ends a hold.
        """
        idle = {at for at, one in enumerate(self._groups) if one.takes_runs and self._busy[at] < one.workers}
        if not idle:
            return None
        has_groups = len(self._groups) > 1
        if not has_groups and not self.lanes.has_reserved:
            head = self._head_that_begins(now_ns, outs)
            if head is not None:
                placed = Placed(head, head.options[0], 0, head.likely_ns)
                return self._begin(placed, None, now_ns, outs) or self._next(now_ns, outs)
        free_ns = self._free_ns(now_ns)
        behind: list[Call] = []
        for calls in self._turns(now_ns, is_new=has_groups):
            turn: list[Call] = []
            lost: list[Call] = []
            for call in calls:
                if self._is_over(call, now_ns, outs):
                    continue
                if call.beyond and self._is_behind(call, now_ns):
                    behind.append(call)
                else:
                    (lost if self._falls_behind(call, now_ns) else turn).append(call)
            run = self._of(turn + lost, idle, free_ns, now_ns, outs)
            if run is not None:
                return run
        for call in behind:
            run = self._of([call], idle, free_ns, now_ns, outs)
            if run is not None:
                return run
        return None

    def _turns(self, now_ns: int, *, is_new: bool) -> Iterator[Sequence[Call]]:
        """Yield calls in the order of their turns, those of one tenant and of equal priority together."""
        newcomers, self._newcomers = self._newcomers, []
        if not is_new and not self._is_new and now_ns < self._look_ns:
            yield from ([call] for call in newcomers if call.state is CallState.WAITING)
            return
        self._is_new, self._look_ns = False, FOREVER_NS
        for tenant in self.line.in_turn():
            for band in tenant.turn(LOOKED_AT):
                together: dict[tuple[int, int], list[Call]] = {}
                for call in band:
                    together.setdefault(_class(call), []).append(call)
                for _, calls in sorted(together.items()):
                    yield calls

    def _hold(self, call: Call, reason: Reason, until_ns: int = 0) -> None:
        """Note why a call does not begin. `until_ns`: when that ends by itself; 0: an event ends it."""
        call.held, call.held_until_ns = reason, until_ns
        if until_ns:
            self._look_ns = min(self._look_ns, until_ns)

    def next_alone(self, now_ns: int) -> Call | None:
        """Return the call that would begin by itself if a worker became free now, where all are busy; None: another
        call may have to be preferred then. With one group only.
        """
        if self._idle > 0 or len(self._groups) > 1 or self.lanes.has_reserved:
            return None
        tenant = self.line.fair.first()
        call = None if tenant is None else tenant.head()
        if call is None or call.slot is not NO_SLOT or (self._rows and call.kind is Kind.ITEM):
            return None
        if call.beyond and self.line.has_planned_beside(call):
            return None
        is_late = call.drop_ns is not None and now_ns + call.known_ns > call.drop_ns
        return None if is_late or self._is_full(call.options[0], call, now_ns) else call

    def begin_alone(self, call: Call, began_ns: int) -> Run:
        """Note that the call of `next_alone` has begun, on a worker whose run has ended and is told of next."""
        run = self._begun(Run([call], call.options[0], began_ns, call.likely_ns), [call.likely_ns])
        self._take(call, CallState.RUNNING)
        return run

    def waiting_beside(self, call: Call) -> int:
        """Return how many calls of the same tenant and application wait, the call included."""
        return self.line.tenants[call.tenant].applications[call.application].waiting

    def _is_unhindered(self, call: Call, now_ns: int) -> bool:
        """Return whether nothing keeps a call from the idle worker, where nothing waits: the common case."""
        if len(self._groups) > 1 or not self._groups[0].takes_runs or self._rows or self.lanes.has_reserved:
            return False
        if call.drop_ns is not None and now_ns + call.known_ns > call.drop_ns:
            return False
        if call.likely_ns > LONG_NS and self._leaves_last_worker(call, now_ns):
            return False
        option = call.options[0]
        if option.at_once_max is not None and self._is_full(option, call, now_ns):
            return False
        return self._environment.is_there(option) and self._environment.has_room(option, [call])

    def _watch(self, call: Call) -> None:
        """Remember the deadline of a call that waits or runs."""
        if call.drop_ns is not None:
            self._count += 1
            heapq.heappush(self._drops, (call.drop_ns, self._count, call))
            if len(self._drops) > self._drops_max:
                self._drops = [one for one in self._drops if one[2].state is not CallState.ENDED]
                heapq.heapify(self._drops)
                self._drops_max = max(_DROPS_MIN, 2 * len(self._drops))

    def _head_that_begins(self, now_ns: int, outs: list[Out]) -> Call | None:
        """Return the first call in line if nothing holds it back: with one group the common case, found quickly."""
        while (tenant := self.line.fair.first()) is not None:
            call = tenant.head()
            if call is None:
                return None
            if self._is_over(call, now_ns, outs) or self._falls_behind(call, now_ns):
                continue
            if call.beyond and self._is_behind(call, now_ns):
                return None
            if self._is_held(call, now_ns) or self._is_full(call.options[0], call, now_ns):
                return None
            return call
        return None

    def _is_over(self, call: Call, now_ns: int, outs: list[Out]) -> bool:
        """End a waiting call that would be late, or whose build is lost, and return whether it was."""
        likely_ns = self._environment.likely_ns(call)
        if likely_ns != call.likely_ns:
            call.likely_ns = likely_ns
            if len(self._groups) == 1:
                call.options = (replace(call.options[0], run_ns=likely_ns),)
        if call.drop_ns is not None and now_ns + call.known_ns > call.drop_ns:
            self._drop(call, Why.LATE, outs)
        elif not any(map(self._environment.is_there, call.options)):
            self._drop(call, Why.REPLACE, outs)
        else:
            return False
        return True

    def _is_behind(self, call: Call, now_ns: int) -> bool:
        """Return whether a call beyond a plan goes after planned work of another tenant."""
        if not self.line.has_planned_beside(call):
            return False
        if call.behind_since_ns is None:
            call.behind_since_ns = now_ns
        return True

    def _falls_behind(self, call: Call, now_ns: int) -> bool:
        """Put an item behind others of its tenant where its frame is found to be lost; return whether that is new."""
        frame, drop_ns = call.frame, call.drop_ns
        if frame is None or (call.key is not None and call.key[0]):
            return False
        if not frame.is_lost and call.behind_ns and drop_ns is not None:
            frame.is_lost = now_ns + call.likely_ns + call.behind_ns > drop_ns
        if frame.is_lost:
            self.line.put_behind(call)
        return frame.is_lost

    def _of(
        self, turn: Sequence[Call], idle: Collection[int], free_ns: dict[int, list[int]], now_ns: int, outs: list[Out]
    ) -> Run | None:
        """Return the run of the first of some calls of a tenant that may begin. Calls that are better off on a busy
        group take their places there in `free_ns`.
        """
        able: list[Candidate] = []
        gaps: dict[int, int | None] = {}
        waiting: Counter[tuple[str, int]] = Counter()
        for call in turn:
            if not self._is_held(call, now_ns):
                options = self._open(call, free_ns, gaps, waiting, now_ns)
                if options:
                    groups = tuple(free_ns) if call.is_in_parts else tuple([one.group for one in options])
                    able.append(Candidate(call, options, groups))
        if len(self._groups) > 1 and able:
            able = self._cool(able, free_ns, now_ns)
        while able:
            if not any(option.group in idle and not free_ns[option.group][0] for one in able for option in one.options):
                self._take_places(able, free_ns, now_ns)
                return None
            placed = self._placement.place(able, free_ns, now_ns)
            if placed is None:
                return None
            call, group = placed.call, placed.option.group
            if placed.start_in_ns or group not in idle:
                self._hold(call, Reason.BETTER_ELSEWHERE, now_ns + placed.start_in_ns)
                occupy(free_ns, placed)
            elif not self._is_reserved(call, group, placed.holds_ns, free_ns, gaps, now_ns):
                self._placement.begins(placed, now_ns)
                run = self._begin(placed, gaps.get(group), now_ns, outs)
                if run is not None:
                    return run
            else:
                self._hold(call, Reason.RESERVED, (call.reserved_since_ns or now_ns) + PATIENCE_NS)
            able = [one for one in able if one.call is not call]
        return None

    def _take_places(self, able: Sequence[Candidate], free_ns: dict[int, list[int]], now_ns: int) -> None:
        """Give places on busy groups to calls of which none can begin now: each where it ends first."""
        for call, options, _ in able:
            ends = [(free_ns[one.group][0] + one.run_ns, at) for at, one in enumerate(options)]
            option = options[min(ends)[1]]
            placed = Placed(call, option, free_ns[option.group][0], option.run_ns)
            self._hold(call, Reason.BETTER_ELSEWHERE, now_ns + placed.start_in_ns)
            occupy(free_ns, placed)

    # -- what holds a call back ----------------------------------------------------------------------------------------

    def _is_held(self, call: Call, now_ns: int) -> bool:
        """Return whether a call has to wait wherever it would run, and note why."""
        slot = call.slot
        held: tuple[Reason, int] | None = None
        if slot.not_before_ns > now_ns:
            held = Reason.NOT_BEFORE, slot.not_before_ns
        elif slot.lane is not None:
            held = self.lanes.held(call, now_ns)
        elif self._rows and call.kind is Kind.ITEM:
            held = self._company(call, now_ns)
        if held is None and call.likely_ns > LONG_NS and self._leaves_last_worker(call, now_ns):
            held = Reason.LAST_WORKER, 0
        if held is None:
            return False
        self._hold(call, *held)
        return True

    def _company(self, call: Call, now_ns: int) -> tuple[Reason, int] | None:
        """Return why an item waits for others to share its run. It never keeps plain calls of its tenant waiting."""
        option = call.options[0]
        planned = self._rows.get(option.build)
        if planned is None or planned.rows < 2 or call.runs_alone or call.is_in_parts:
            return None
        line = self.line.tenants[call.tenant].applications[call.application]
        if line.items < line.waiting:
            return None
        if call.company_by_ns is None:
            call.company_by_ns = self._company_by_ns(call, option, planned, now_ns)
        if now_ns >= call.company_by_ns:
            return None
        rows = call.rows + sum(mate.rows for mate in self._mates(call, option, now_ns, planned.rows))
        return None if rows >= planned.rows else (Reason.COMPANY, call.company_by_ns)

    def _company_by_ns(self, call: Call, option: Option, planned: PlannedRows, now_ns: int) -> int:
        """Return until when an item may wait: as planned, and no longer than a run of so many rows can end in time
        behind runs of others.
        """
        until_ns = now_ns + planned.wait_ns
        if call.drop_ns is None:
            return until_ns
        takes_ns = self._environment.run_ns(option, planned.rows, self._workers, now_ns)
        run_ns = call.known_ns if takes_ns is None else takes_ns
        return min(until_ns, call.drop_ns - run_ns - planned.others_ns - MARGIN_NS)

    def _leaves_last_worker(self, call: Call, now_ns: int) -> bool:
        """Return whether a long run leaves the last of several workers to a tenant that has used less and was active
        within the last minute.
        """
        if self._idle != 1 or not self._runs:
            return False
        start = self.line.start_of(call.tenant)
        return start > self.line.fair.now and self.line.may_others_go_before(call.tenant, start, now_ns)

    def _open(
        self,
        call: Call,
        free_ns: Mapping[int, Sequence[int]],
        gaps: dict[int, int | None],
        waiting: Counter[tuple[str, int]],
        now_ns: int,
    ) -> list[Option]:
        """Return the options that a call may use now. For the calls of a tenant before it, `gaps` has what is reserved
        by group, and `waiting` how many wait for another run of a build.
        """
        found: list[Option] = []
        full: list[Option] = []
        reason, until_ns = Reason.NO_GROUP, 0
        for option in call.options:
            own = free_ns.get(option.group)
            if not own or not self._environment.is_there(option):
                continue
            if call.drop_ns is not None and now_ns + own[0] + _known_ns(option) > call.drop_ns:
                continue
            if not own[0] and not call.is_in_parts:
                if self._is_full(option, call, now_ns):
                    full.append(option)
                    reason = Reason.AT_ONCE
                    continue
                if self._is_reserved(call, option.group, option.run_ns, free_ns, gaps, now_ns):
                    reason, until_ns = Reason.RESERVED, (call.reserved_since_ns or now_ns) + PATIENCE_NS
                    continue
            found.append(option)
        if full and found and self._waits_for_its_own(call, found, full, free_ns, waiting, now_ns):
            found, reason = [], Reason.AT_ONCE
        if not found:
            self._hold(call, reason, until_ns)
        return found

    def _waits_for_its_own(
        self,
        call: Call,
        found: Sequence[Option],
        full: Sequence[Option],
        free_ns: Mapping[int, Sequence[int]],
        waiting: Counter[tuple[str, int]],
        now_ns: int,
    ) -> bool:
        """Return whether a call ends sooner behind the runs of a build that takes no more at once than elsewhere."""
        ends = {one: free_ns[one.group][0] + one.run_ns for one in found}
        for one in full:
            rests = [run.frees_in_ns(now_ns) for run in self._of_build(one)]
            ends[one] = min(rests) + (1 + waiting[one.build, one.group]) * one.run_ns
        soonest = min(ends, key=lambda one: (one.group != call.home, ends[one], one.group))
        if soonest not in full:
            return False
        waiting[soonest.build, soonest.group] += 1
        return True

    def _of_build(self, option: Option) -> list[Run]:
        """Return the runs of a build in a group."""
        build, group = option.build, option.group
        return [run for run in self._runs if run.option.build == build and run.option.group == group]

    def _is_full(self, option: Option, call: Call, now_ns: int) -> bool:
        """Return whether as many runs of a build are under way in a group as pay at once. Runs that go on for much
        longer do not count: a short one gains nothing by waiting for them.
        """
        most = option.at_once_max
        if most is None or call.slot.is_planned or call.is_in_parts:
            return False
        patience_ns = max(LONG_NS, 2 * option.run_ns)
        return sum(run.frees_in_ns(now_ns) <= patience_ns for run in self._of_build(option)) >= most

    def _is_reserved(
        self,
        call: Call,
        group: int,
        run_ns: int,
        free_ns: Mapping[int, Sequence[int]],
        gaps: dict[int, int | None],
        now_ns: int,
    ) -> bool:
        """Return whether the idle worker of a group is kept for a planned batch."""
        if call.slot.is_planned or not self.lanes.has_reserved:
            return False
        since_ns = call.reserved_since_ns
        if since_ns is not None and now_ns - since_ns >= PATIENCE_NS:
            return False
        if group not in gaps:
            start = self.line.start_of(call.tenant)

            def is_kept(owner: str, in_ns: int) -> bool:
                return owner == call.tenant or self.line.start_of(owner) - start - in_ns <= LONG_NS

            gaps[group] = gap_ns(self.lanes.starts(now_ns, is_kept, len(self._groups)), free_ns, group)
        gap = gaps[group]
        if gap is None or run_ns <= gap:
            return False
        if since_ns is None:
            call.reserved_since_ns = now_ns
        return True

    def _cool(self, able: list[Candidate], free_ns: Mapping[int, Sequence[int]], now_ns: int) -> list[Candidate]:
        """Leave throttled groups out for calls that another group ends in time."""
        throttled = [at for at in free_ns if self._groups[at].is_throttled]
        if not 0 < len(throttled) < len(free_ns):
            return able
        waiting = [
            Waiting(
                {one.group: one.run_ns for one in candidate.options if candidate.call.home is None},
                None if candidate.call.drop_ns is None else candidate.call.drop_ns - now_ns,
            )
            for candidate in able
        ]
        found = []
        for one, is_spared in zip(able, spared(waiting, free_ns, throttled), strict=True):
            if is_spared:
                options = [option for option in one.options if option.group not in throttled]
                groups = tuple([at for at in one.groups if at not in throttled])
                found.append(Candidate(one.call, options, groups))
            else:
                found.append(one)
        return found

    def _free_ns(self, now_ns: int) -> dict[int, list[int]]:
        """Return when each worker of the groups that take runs is free, from now, as heaps."""
        free = {at: [0] * (one.workers - self._busy[at]) for at, one in enumerate(self._groups) if one.takes_runs}
        for run in self._runs:
            if run.group in free:
                free[run.group].append(run.frees_in_ns(now_ns))
        for own in free.values():
            heapq.heapify(own)
        return {at: own for at, own in free.items() if own}

    # -- a run begins --------------------------------------------------------------------------------------------------

    def _begin(self, placed: Placed, gap: int | None, now_ns: int, outs: list[Out]) -> Run | None:
        """Begin the run of a call, with others that share it; None: there is no memory for it."""
        call, option = placed.call, placed.option
        calls, holds_ns = self._together(placed, gap, now_ns)
        if len(calls) > 1 and not self._environment.has_room(option, calls):
            calls, holds_ns = [call], placed.holds_ns
        if len(calls) == 1 and not self._environment.has_room(option, calls):
            self._drop(call, Why.NO_MEMORY, outs)
            return None
        run = Run(calls, option, now_ns, holds_ns, placed.worth, placed.ops)
        rows = run.rows
        self._begun(run, [int(holds_ns * run.worth * one.rows / rows) for one in calls])
        for one in calls:
            if one.slot.lane is not None:
                self.lanes.begin(run, one)
            self._take(one, CallState.RUNNING)
        return run

    def _begun(self, run: Run, charges: list[int]) -> Run:
        """Charge the calls of a run that begins."""
        overtakes = self.lanes.has_reserved or len(self._groups) > 1
        run.charges = charges
        for call, charged_ns in zip(run.calls, charges, strict=True):
            if call is run.calls[0]:
                self.line.begin(call, charged_ns, overtakes=overtakes)
            else:
                self.line.join(call, charged_ns)
        if run.calls[0].state is not CallState.WAITING:
            run.calls[0].state = CallState.RUNNING
        self._runs[run] = None
        self._busy[run.option.group] += 1
        self._idle -= 1
        self._is_new = True
        run.running = len(self._runs)
        return run

    def _together(self, placed: Placed, gap: int | None, now_ns: int) -> tuple[list[Call], int]:
        """Return the calls of a run and for how long it is expected to hold its worker."""
        call, option = placed.call, placed.option
        alone = [call], placed.holds_ns
        if option.together_max <= call.rows or call.runs_alone or self.line.waiting == 1:
            return alone
        mates = self._mates(call, option, now_ns, LOOKED_AT - 1)
        if not mates:
            return alone
        line = [call, *mates]
        sizes = [one.size for one in line]
        largest = _option_in(line[sizes.index(max(sizes))], option)
        running = len(self._runs) + 1
        if option.at_once_max is not None and not call.slot.is_planned:
            running = min(running, option.at_once_max)
        if self._environment.run_ns(largest, call.rows, running, now_ns) is None:
            return alone

        def takes_ns(rows: int) -> int:
            found = self._environment.run_ns(largest, rows, running, now_ns)
            assert found is not None, "times of one number of rows are known"
            return found

        counts = list(accumulate(one.rows for one in line))
        rows_max = option.together_max
        bounds = [] if call.slot.is_planned else [gap]
        if self._idle == 1 and self.line.may_others_go_before(call.tenant, self.line.start_of(call.tenant), now_ns):
            bounds.append(LONG_NS)
        for bound in bounds:
            if bound is not None:
                rows_max = max((rows for rows in counts if rows <= rows_max and takes_ns(rows) <= bound), default=1)
        planned = self._rows.get(option.build)
        if call.batch is not None:
            size = max((at for at, rows in enumerate(counts, 1) if rows <= rows_max), default=1)
        elif planned is not None:
            size = _planned_size(line, min(rows_max, planned.rows), takes_ns, now_ns)
        else:
            size = self._profitable(line, option, rows_max, takes_ns, now_ns)
        return alone if size == 1 else (line[:size], takes_ns(counts[size - 1]))

    def _profitable(
        self, line: Sequence[Call], option: Option, rows_max: int, takes_ns: Callable[[int], int], now_ns: int
    ) -> int:
        """Return how many calls all gain by sharing a run (`policies.batching`). A lane has one worker; its plan counts
        on `slot.rows` at most, unless fewer calls are late in a larger run.
        """
        most = max(one.size for one in line)
        requests = [
            WaitingRequest(
                one.rows,
                None if one.drop_ns is None else one.drop_ns - now_ns,
                None if one.size == most else _option_in(one, option).run_ns,
            )
            for one in line
        ]
        slot = line[0].slot
        if slot.lane is not None:
            planned = BatchingInput(requests, min(rows_max, slot.rows or rows_max), takes_ns)
            size = self._batching.together(planned)
            if planned.items_max < rows_max and late_of(planned, size):
                any_size = BatchingInput(requests, rows_max, takes_ns)
                larger = self._batching.together(any_size)
                if late_of(any_size, larger) < late_of(planned, size):
                    return larger
            return size
        busy = self.rests_ns(now_ns)
        others = sorted(busy + [0] * (self._workers - 1 - len(busy)))
        if option.at_once_max is not None and not slot.is_planned:
            others = others[: option.at_once_max - 1]
        return self._batching.together(BatchingInput(requests, rows_max, takes_ns, others))

    def _mates(self, call: Call, option: Option, now_ns: int, most: int) -> list[Call]:
        """Return waiting calls that can share a run: of the call's own tenant in their order, then of others."""
        if call.batch is not None:
            return [one for one in call.batch.calls if one is not call and self._may_join(one, call, option, now_ns)]
        own = self.line.tenants[call.tenant]
        others: list[Any] = []
        if call.mixes_tenants:
            others = [one for one in self.line.tenants.values() if one is not own and one.entry is not None]
            others.sort(key=place)
        found: list[Call] = []
        left = 2 * most
        for tenant in (own, *others):
            line = tenant.applications.get(call.application)
            for mate in () if line is None or line.entry is None else line.in_order():
                if mate is not call and mate.batch is None and self._may_join(mate, call, option, now_ns):
                    found.append(mate)
                left -= 1
                if len(found) == most or not left:
                    return found
        return found

    def _may_join(self, mate: Call, call: Call, option: Option, now_ns: int) -> bool:
        slot = mate.slot
        if mate.runs_alone or slot.lane != call.slot.lane or slot.not_before_ns > now_ns:
            return False
        if mate.drop_ns is not None and now_ns + mate.known_ns > mate.drop_ns:
            return False
        if mate.frame is not None and mate.frame.is_lost and not (call.frame is not None and call.frame.is_lost):
            return False
        return self._environment.may_share(mate, call, option)

    # -- bounds --------------------------------------------------------------------------------------------------------

    def no_place(self, tenant: str, application: str) -> Refusal | None:
        """Return the refusal of a call where too many wait."""
        found = self.line.tenants.get(tenant)
        line = None if found is None else found.applications.get(application)
        waiting = 0 if line is None else line.waiting
        if waiting < self.limits.calls_max and self._places.has_room(tenant):
            return None
        return Refusal(RefusedBy.LENGTH, waiting=waiting)

    def _no_time(self, call: Call, work_ns: int, now_ns: int, *, is_last: bool = False) -> Refusal | None:
        """Return the refusal of a call that would be answered too late, or wait too long. `is_last`: all of its
        application goes before it.
        """
        rests_ns = [] if self._idle > 0 else self.rests_ns(now_ns)
        if not self._backlog.work_ns and not rests_ns:
            return None
        allowed_ns = self.limits.wait_ns_max + work_ns
        if call.drop_ns is not None:
            allowed_ns = min(allowed_ns, int((call.drop_ns - now_ns) * HASTE))
        if self._backlog.most_ns(work_ns, rests_ns) <= allowed_ns:
            return None
        lead_ns = self.line.start_of(call.tenant) - self.line.fair.now
        ask = call.tenant, call.application, work_ns, call.weights
        end_ns = self._backlog.end_ns(*ask, lead_ns=lead_ns, rests_ns=rests_ns)
        if end_ns > allowed_ns and not is_last:
            ahead_ns = self.line.ahead_ns(call)
            end_ns = self._backlog.end_ns(*ask, ahead_ns=ahead_ns, lead_ns=lead_ns, rests_ns=rests_ns)
        return Refusal(RefusedBy.WAIT, end_ns, allowed_ns) if end_ns > allowed_ns else None

    # -- bookkeeping ---------------------------------------------------------------------------------------------------

    def _take(self, call: Call, state: CallState) -> None:
        """Take a call out of what waits."""
        self.line.remove(call, state)
        self._places.give(call.tenant)
        self._backlog.remove(call.tenant, call.application, call.work_ns)
        call.held, call.held_until_ns = None, 0

    def _remove(self, call: Call) -> None:
        """Take a call out that will not run."""
        self._take(call, CallState.ENDED)
        if call.slot.lane is not None:
            self.lanes.leave(call)
        self._is_new = True

    def _next_look_ns(self, now_ns: int) -> int | None:
        """Return when something may begin or end without a further event."""
        look_ns = FOREVER_NS
        drops = self._drops
        while drops and drops[0][2].state is CallState.ENDED:
            heapq.heappop(drops)
        if drops:
            look_ns = drops[0][0] + NS_PER_US
        if self.lanes.has_reserved:
            look_ns = min(look_ns, self.lanes.next_ns())
        if self.line.waiting and self._idle > 0:
            look_ns = min(look_ns, self._look_ns)
            if self._runs:
                rest_ns = min(run.frees_in_ns(now_ns) for run in self._runs)
                look_ns = min(look_ns, now_ns + min(max(rest_ns, LOOK_AGAIN_MIN_NS), LOOK_AGAIN_MAX_NS))
        return None if look_ns == FOREVER_NS else max(look_ns, now_ns + 1)


def _class(call: Call) -> tuple[int, int]:
    """Return what a policy of dispatch must not weigh against one another: lost frames, and priority."""
    assert call.key is not None
    return call.key[0], -call.priority


def _planned_size(line: Sequence[Call], rows_max: int, takes_ns: Callable[[int], int], now_ns: int) -> int:
    """Return how many calls a plan wants in a run, as long as none of them is late by it."""
    size = rows = 0
    left_ns: int | None = None
    for call in line:
        rows += call.rows
        if call.drop_ns is not None:
            left_ns = call.drop_ns - now_ns if left_ns is None else min(left_ns, call.drop_ns - now_ns)
        if rows > rows_max or (left_ns is not None and takes_ns(rows) > left_ns):
            break
        size += 1
    return max(1, size)


def _option_in(call: Call, option: Option) -> Option:
    """Return what a call would run as in the group of an option."""
    return next((own for own in call.options if own.group == option.group), option)


def _known_ns(option: Option) -> int:
    return option.run_ns if option.is_known else 0
