"""Lanes and planned batches: starts that plans have reserved before their frames have come.

A planned batch begins when all its frames are in, at the latest at its start and grace with those that are (ARISE,
section 4); a batch with missing frames also waits for the run before it in its lane. Until then a worker is kept for
it. A lane of a plan of latency (Jellyfish, section III-B) has no planned batches: it begins a run when the one before
has ended, with what waits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.slots import Lane, Member, PlannedBatch, Slot
from appliance.policies.dispatch.reserved import ReservedStart
from appliance.runtime.engine.work import FOREVER_NS, Call, Reason, Run

AFTER_NS = NS_PER_MS
"""A start stays reserved for so long after its grace."""
AHEAD_NS = NS_PER_S
"""Starts that are farther ahead hold nothing back: their plans will have changed."""
MISSED_MAX = 2
"""After so many batches in a row without a frame a lane reserves no start until a frame comes."""


@dataclass(slots=True)
class BatchCounts:
    """Planned batches that became due since the start."""

    full: int = 0
    """All frames were in."""
    short: int = 0
    """Frames were missing."""
    late: int = 0
    """They became due later than their start and grace."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch that is due or runs: when its run began, or is expected to begin and end, and its frames."""

    start_ns: int
    end_ns: int
    members: frozenset[Member]


@dataclass(slots=True, eq=False)
class BatchState:
    """A planned batch and its frames."""

    lane: Lane
    tenant: str
    plan: PlannedBatch
    missing: set[Member]
    calls: list[Call] = field(default_factory=list)
    """Frames that have come and wait."""
    is_planned: bool = True
    is_reserved: bool = True
    due_since_ns: int | None = None

    @property
    def start_ns(self) -> int:
        """The reserved start; a batch that is due before may begin then."""
        return self.plan.start_ns if self.due_since_ns is None else min(self.plan.start_ns, self.due_since_ns)

    @property
    def members(self) -> frozenset[Member]:
        """Frames that have come and wait."""
        return _members(self.calls)


@dataclass(slots=True, eq=False)
class LaneState:
    """A logical worker of a plan."""

    batches: list[BatchState] = field(default_factory=list)
    """That have not begun, the first to start first."""
    begun: set[frozenset[Member]] = field(default_factory=set)
    """Frames of batches that have begun and are in the plan still."""
    runs: list[Run] = field(default_factory=list)
    ended: list[Begun] = field(default_factory=list)
    """Runs that have ended, with frames whose answers are not written yet."""
    waiting: int = 0
    missed: int = 0

    @property
    def free_ns(self) -> int:
        """When its runs are expected to have ended; 0: it has none."""
        return max((run.began_ns + run.holds_ns for run in self.runs), default=0)


class Lanes:
    """All lanes, the planned batches by frame, and the reserved starts."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, LaneState] = {}
        self._of: dict[Member, BatchState] = {}
        """Planned batches that have not begun, by frame."""
        self._came: set[Member] = set()
        """Frames that wait or run, until `absent`: no other batch waits for them."""
        self._counts: dict[Lane, BatchCounts] = {}
        self._order: list[BatchState] | None = []
        """Reserved batches by start; None: to be sorted anew."""

    @property
    def has_reserved(self) -> bool:
        """Whether a start is reserved."""
        return bool(self._sorted())

    # -- plans ---------------------------------------------------------------------------------------------------------

    def plan(self, lane: Lane, tenant: str, batches: Iterable[PlannedBatch]) -> None:
        """Replace the batches of a lane. A batch whose frames are the same keeps what has come."""
        state = self._state(lane)
        known = {one.plan.members: one for one in state.batches}
        before, state.batches = state.batches, []
        planned = list(batches)
        state.begun &= {one.members for one in planned}
        for batch in sorted(planned, key=lambda one: one.start_ns):
            if batch.members in state.begun:
                continue
            found = known.pop(batch.members, None)
            if found is None:
                missing = {member for member in batch.members if member not in self._came}
                found = BatchState(lane, tenant, batch, missing)
            found.plan = batch
            found.is_reserved = bool(found.calls) or (bool(found.missing) and state.missed < MISSED_MAX)
            state.batches.append(found)
            self._of.update(dict.fromkeys(batch.members, found))
        kept = set(map(id, state.batches))
        for one in before:
            if id(one) not in kept:
                self._unplan(state, one)
        self._order = None
        self._forget_if_idle(lane)

    def _unplan(self, state: LaneState, batch: BatchState) -> None:
        """A batch that is planned no more begins with the frames that have come, when its plan said."""
        batch.is_planned = False
        for member in batch.missing:
            if self._of.get(member) is batch:
                del self._of[member]
        if batch.calls:
            state.batches.append(batch)
        else:
            batch.is_reserved = False

    def put(self, call: Call, now_ns: int) -> None:
        """Add a call of a lane: a frame goes to its batch, or to the next one of its lane that a run of its own would
        put off.
        """
        member, lane = call.slot.member, call.slot.lane
        state = self._state(lane)
        state.waiting += 1
        if member is None:
            return
        batch = self._of.get(member)
        self._came.add(member)
        if batch is None or member not in batch.missing:
            batch = self._joined(state, call, member, now_ns)
        if state.missed >= MISSED_MAX:
            for one in state.batches:
                one.is_reserved = bool(one.calls or one.missing) and now_ns < one.plan.end_ns
        state.missed = 0
        if batch is not None:
            batch.missing.discard(member)
            batch.calls.append(call)
            batch.is_reserved = True
            call.batch = batch
        self._order = None

    def _joined(self, state: LaneState, call: Call, member: Member, now_ns: int) -> BatchState | None:
        batch = next((one for one in state.batches if one.due_since_ns is None), None)
        if batch is None or batch.plan.larger_ns is None or batch.plan.variant != call.variant:
            return None
        if batch.plan.start_ns >= max(state.free_ns, now_ns) + batch.plan.run_ns:
            return None
        members = batch.plan.members | {member}
        batch.plan = replace(batch.plan, members=members, run_ns=batch.plan.larger_ns, larger_ns=None)
        self._of[member] = batch
        return batch

    def absent(self, member: Member) -> None:
        """A frame will not come: its batch waits for it no longer."""
        batch = self._of.get(member)
        self._came.discard(member)
        if batch is not None:
            batch.missing.discard(member)
            if not batch.missing and not batch.calls:
                self._lapsed(self._state(batch.lane))
                self._over(batch)

    def leave(self, call: Call) -> None:
        """A call that waits leaves: its batch does not wait for it."""
        lane, batch = call.slot.lane, call.batch
        self._state(lane).waiting -= 1
        call.batch = None
        if batch is not None:
            batch.calls.remove(call)
            if not batch.calls and not (batch.is_planned and batch.missing and batch.due_since_ns is None):
                self._over(batch)
        self._forget_if_idle(lane)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def begin(self, run: Run, call: Call) -> None:
        """A call of a lane begins."""
        state, batch = self._state(call.slot.lane), call.batch
        state.waiting -= 1
        if run.lane is None:
            run.lane = call.slot.lane
            state.runs.append(run)
        if batch is not None:
            batch.calls.remove(call)
            if not batch.calls:
                state.begun.add(batch.plan.members)
                self._over(batch)

    def end(self, run: Run, now_ns: int) -> None:
        """A run has ended."""
        if run.lane is not None:
            state = self._state(run.lane)
            state.runs.remove(run)
            state.ended = self._unanswered([*state.ended, Begun(run.began_ns, now_ns, _members(run.calls))])
            self._forget_if_idle(run.lane)

    def _unanswered(self, some: Sequence[Begun]) -> list[Begun]:
        left = (replace(one, members=one.members & self._came) for one in some)
        return [one for one in left if one.members]

    def _over(self, batch: BatchState) -> None:
        """A batch has begun, or nothing of it is left: its start is reserved no longer."""
        batch.is_reserved = False
        self._order = None
        state = self._state(batch.lane)
        state.batches = [one for one in state.batches if one is not batch]
        for member in batch.plan.members:
            if self._of.get(member) is batch:
                del self._of[member]

    def _state(self, lane: Lane) -> LaneState:
        found = self._lanes.get(lane)
        if found is None:
            found = self._lanes[lane] = LaneState()
        return found

    def _forget_if_idle(self, lane: Lane) -> None:
        state = self._lanes.get(lane)
        if state is not None and not (state.batches or state.begun or state.runs or state.waiting or state.missed):
            del self._lanes[lane]

    # -- when batches are due, and which starts are reserved -----------------------------------------------------------

    def held(self, call: Call, now_ns: int) -> tuple[Reason, int] | None:
        """Return why a call waits for its batch or its lane, and until when; None: it is due."""
        state, batch = self._state(call.slot.lane), call.batch
        if batch is None:
            is_held = state.runs and call.slot.member is None and not call.runs_alone
            return (Reason.LANE, 0) if is_held else None
        if self._is_due(batch, now_ns):
            return None
        due_ns = self._due_ns(batch)
        return (Reason.COMPANY if due_ns == batch.plan.end_ns else Reason.LANE), due_ns

    def _is_due(self, batch: BatchState, now_ns: int) -> bool:
        """Note, and return, whether a batch is to begin with the frames that have come."""
        if batch.due_since_ns is not None:
            return True
        if not batch.calls or now_ns < self._due_ns(batch):
            return False
        counts = self._counts.setdefault(batch.lane, BatchCounts())
        counts.full += not batch.missing
        counts.short += bool(batch.missing)
        counts.late += now_ns - batch.plan.end_ns > NS_PER_MS
        batch.due_since_ns = self._due_ns(batch) or now_ns
        self._order = None
        return True

    def _due_ns(self, batch: BatchState) -> int:
        """Return when a batch is to begin at the latest: at once where no frame is missing, else after its grace, and
        not before the run before it in its lane should have ended.
        """
        if not batch.missing:
            return 0
        free_ns = self._state(batch.lane).free_ns
        return max(batch.plan.end_ns, free_ns + batch.plan.grace_ns if free_ns else 0)

    def pass_time(self, now_ns: int) -> bool:
        """Note batches that are due now, and free the workers that are kept for batches whose time is over. Return
        whether there were any.
        """
        has_changed = False
        for batch in list(self._sorted()):
            if now_ns < self._next_ns(batch):
                continue
            has_changed = True
            if not self._is_due(batch, now_ns) or now_ns >= self._until_ns(batch):
                batch.is_reserved = False
                self._order = None
                if not batch.calls:
                    self._lapsed(self._state(batch.lane))
        return has_changed

    def _lapsed(self, state: LaneState) -> None:
        """No frame of a batch has come."""
        state.missed += 1
        if state.missed >= MISSED_MAX:
            for one in state.batches:
                one.is_reserved = bool(one.calls)
            self._order = None

    def next_ns(self) -> int:
        """Return when the next planned batch is due, or lapses."""
        return min((self._next_ns(one) for one in self._sorted()), default=FOREVER_NS)

    def _next_ns(self, batch: BatchState) -> int:
        is_waited_for = batch.calls and batch.due_since_ns is None
        return self._due_ns(batch) if is_waited_for else self._until_ns(batch)

    def starts(self, now_ns: int, is_kept: Callable[[str, int], bool], groups: int) -> Iterator[ReservedStart]:
        """Yield the reserved starts, the soonest first. `is_kept` gets the tenant of a start and the time until then,
        and tells whether the caller has to leave a worker to it.
        """
        for one in takewhile(lambda batch: batch.start_ns - now_ns < AHEAD_NS, self._sorted()):
            in_ns = max(0, one.start_ns - now_ns)
            if is_kept(one.tenant, in_ns):
                takes_ns: Mapping[int, int] = one.plan.takes_ns or dict.fromkeys(range(groups), one.plan.run_ns)
                yield ReservedStart(in_ns, takes_ns)

    def is_due(self, by_ns: int) -> bool:
        """Return whether a reserved start comes before a time."""
        order = self._sorted()
        return bool(order) and order[0].start_ns < by_ns

    def _until_ns(self, batch: BatchState) -> int:
        if batch.due_since_ns is not None:
            return batch.due_since_ns + batch.plan.run_ns
        return (self._due_ns(batch) if batch.calls else batch.plan.end_ns) + AFTER_NS

    def _sorted(self) -> Sequence[BatchState]:
        if self._order is None:
            reserved = (one for state in self._lanes.values() for one in state.batches if one.is_reserved)
            self._order = sorted(reserved, key=lambda one: one.start_ns)
        return self._order

    # -- what planners ask ---------------------------------------------------------------------------------------------

    def is_awaited(self, slot: Slot) -> bool:
        """Return whether a call may have to wait for its batch, or for the calls before it in its lane."""
        if slot.lane is None:
            return False
        state = self._lanes.get(slot.lane)
        return slot.member is not None or (state is not None and bool(state.runs or state.waiting))

    def batch_of(self, member: Member) -> PlannedBatch | None:
        """Return the batch that a frame is expected in, or waits in; None: its batch has begun, or it has none."""
        found = self._of.get(member)
        return None if found is None or found.due_since_ns is not None else found.plan

    def has_come(self, member: Member) -> bool:
        """Return whether a frame waits in its batch."""
        found = self._of.get(member)
        return found is not None and member not in found.missing

    def begun(self, lane: Lane) -> list[Begun]:
        """Return the batches of a lane that run or have not been answered, and those that are due, in their order."""
        state = self._lanes.get(lane)
        if state is None:
            return []
        state.ended = self._unanswered(state.ended)
        runs = [Begun(run.began_ns, run.began_ns + run.holds_ns, _members(run.calls)) for run in state.runs]
        found, end_ns = [*state.ended, *runs], state.free_ns
        for batch in state.batches:
            if batch.due_since_ns is not None:
                start_ns = max(batch.due_since_ns, end_ns)
                end_ns = start_ns + batch.plan.run_ns
                found.append(Begun(start_ns, end_ns, batch.members))
        return found

    def free_ns(self, lane: Lane) -> int:
        """Return when the batches of a lane that run or are due are expected to have ended; 0: there are none."""
        return max((one.end_ns for one in self.begun(lane)), default=0)

    def beginning(self, lane: Lane, now_ns: int, until_ns: int) -> int:
        """Return how many batches of a lane have yet to become due and are to begin before a time."""
        state = self._lanes.get(lane)
        batches = () if state is None else state.batches
        return sum(
            one.due_since_ns is None and one.plan.start_ns < until_ns and now_ns <= one.plan.end_ns for one in batches
        )

    def counts(self, lane: Lane) -> BatchCounts:
        """Return what became of the batches of a lane."""
        return self._counts.get(lane, BatchCounts())

    def forget(self, lane: Lane) -> BatchCounts:
        """Drop what is known of a lane that is planned no more, and return its counts."""
        return self._counts.pop(lane, BatchCounts())


def _members(calls: Iterable[Call]) -> frozenset[Member]:
    return frozenset(call.slot.member for call in calls if call.slot.member is not None)
