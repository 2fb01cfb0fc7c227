"""Frames that are planned to run together wait for one another: until all are in, or the batch's start and a grace
period have passed (AR-18, AR-19) and the batch before it is over. Then they go into the queue at once, and share the
next run of their build. The start is reserved: a worker is free for it.

A frame that belongs to no batch, and one whose batch has begun, joins the next one to begin of its variant, where a run
by itself would put that off; else it waits for nobody.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.runtime.serving.reservations import Reservation, Reservations

_NUMBERS = count(1)
_AFTER_NS = NS_PER_MS
"""A start is reserved for so long after its grace: that the batch begins comes first."""
_MISSED_MAX = 2
"""After so many batches in a row of which nothing came no start is reserved until a frame comes: nobody is charged for
a worker that was kept for nothing."""

Member = tuple[str, int]
"""Session and frame, as the device numbers it."""


def next_number() -> int:
    """Of a batch: by it the queue knows who belongs together."""
    return next(_NUMBERS)


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch that is to start at a time, or as much later as its grace is."""

    start_ns: int
    run_ns: int
    """What it is expected to take."""
    grace_ns: int
    members: frozenset[Member]
    takes_ns: Mapping[int, int] = field(default_factory=dict, compare=False)
    """The same by group of processors, where there are several."""
    variant: str = ""
    larger_ns: int | None = None
    """What it is expected to take with one frame more; None: it has no room for one."""

    @property
    def end_ns(self) -> int:
        """Until when frames that are missing are waited for."""
        return self.start_ns + self.grace_ns


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch that has begun and not ended: when its run began, or is expected to, and who of it has no answer yet."""

    start_ns: int
    end_ns: int
    members: frozenset[Member]


class _Gate:
    """One batch's. It opens once."""

    def __init__(self, batch: PlannedBatch) -> None:
        self.batch = batch
        self.number = next_number()
        self.missing = set(batch.members)
        self.under_way: set[Member] = set()
        """Those that came and have not ended."""
        self.has_begun = False
        self.is_open = asyncio.Event()
        self.timer: asyncio.TimerHandle | None = None
        self.start_ns = 0
        """When its run began, or is expected to, once it is open."""

    @property
    def end_ns(self) -> int:
        """Of the time in which it is waited for."""
        return self.batch.start_ns + self.batch.grace_ns

    def open(self) -> None:
        """Who waits goes on with the next turn of the event loop, and who came last no sooner: so all are put before a
        worker that becomes free takes one of them alone."""
        self.forget()
        self.has_begun = True
        asyncio.get_running_loop().call_soon(self.is_open.set)

    def forget(self) -> None:
        """Nobody waits: it begins at no time by itself."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(slots=True)
class BatchCounts:
    """Batches since the start."""

    full: int = 0
    """All were in by the start and its grace."""
    short: int = 0
    """Somebody was not."""
    late: int = 0
    """Ran, or were complete, only after the start and its grace."""


class Batches:
    """The gates of one pool. Event-loop thread only."""

    def __init__(self, clock: Clock, tenant: str, reservations: Reservations) -> None:
        """`tenant`: whose sessions these are."""
        self._clock = clock
        self._tenant = tenant
        self._reservations = reservations
        self._gates: dict[Member, _Gate] = {}
        self._came: dict[Member, _Gate] = {}
        """Where those wait, or run, that came and have not ended: also at batches that are planned no more."""
        self._begun: list[_Gate] = []
        """Batches that have begun and not ended, in that order."""
        self._overdue: list[_Gate] = []
        """Batches that should have begun, while one before them runs."""
        self.free_ns = 0
        """When those will be over, as far as is known."""
        self._missed = 0
        """Batches in a row of which nothing came that could be run."""
        self.counts = BatchCounts()

    def plan(self, batches: Iterable[PlannedBatch]) -> None:
        """What is expected from now on. Who waits at a batch of the plan before goes when that one said; nobody waits
        for them elsewhere."""
        gates: dict[Member, _Gate] = {}
        for batch in batches:
            known = self._gates.get(next(iter(batch.members))) if batch.members else None
            gate = known if known is not None and known.batch.members == batch.members else _Gate(batch)
            gates.update(dict.fromkeys(batch.members, gate))
            gate.missing = {member for member in gate.missing if self._came.get(member, gate) is gate}
            if gate is known and not gate.has_begun and gate.batch != batch:
                gate.batch = batch
                self._reserve(gate)
                if gate.timer is not None:
                    gate.forget()
                    self._expect(gate)
        before, now = set(self._gates.values()), set(gates.values())
        for gate in sorted(now - before, key=lambda one: one.batch.start_ns):
            self._reserve(gate)
        # Of those that are planned no more, the ones where frames wait begin all the same.
        self._reservations.drop(gate.number for gate in before - now if not gate.under_way)
        self._gates = gates

    def begun(self) -> list[Begun]:
        """Batches that have begun and not ended, the first of them running."""
        found, end_ns = [], 0
        for gate in self._begun:
            start_ns = max(gate.start_ns, end_ns)
            end_ns = start_ns + gate.batch.run_ns
            found.append(Begun(start_ns, end_ns, frozenset(gate.under_way)))
        return found

    def has_come(self, member: Member) -> bool:
        """Whether it waits at a batch, or runs in one."""
        return member in self._came

    def planned_ns(self, member: Member) -> int | None:
        """Return the planned start of the batch where a frame waits or runs; None: it is in none."""
        gate = self._came.get(member)
        return None if gate is None else gate.batch.start_ns

    def is_to_begin(self, member: Member) -> bool:
        """Whether a batch is still to begin that this frame is planned for, or waits at."""
        gate = self._came.get(member) or self._gates.get(member)
        return gate is not None and not gate.has_begun and member in (gate.missing | gate.under_way)

    def joined(self, member: Member) -> frozenset[Member]:
        """Who is in the batch of a member that is still to begin, that one among them."""
        gate = self._came.get(member) or self._gates.get(member)
        return frozenset((member,)) if gate is None else gate.batch.members

    async def wait(self, member: Member, variant: str = "") -> int:
        """Until the member's batch begins, or the one that it joins; returns the number of that, 0 where it belongs to
        none. `variant`: that it is to run on."""
        gate = self._gates.get(member)
        if gate is None or gate.has_begun or member not in gate.missing:
            gate = self._joining(member, variant)
        if gate is None:
            return 0
        self._frames_come()
        gate.missing.discard(member)
        gate.under_way.add(member)
        self._came[member] = gate
        if not gate.missing:
            self._begin(gate)
        elif gate.timer is None and gate not in self._overdue:
            self._expect(gate)
        await gate.is_open.wait()
        return gate.number

    def _joining(self, member: Member, variant: str) -> _Gate | None:
        """The next batch, with the member in it; None where its own run would put nothing off, or there is no room."""
        to_begin = [gate for gate in self._gates.values() if not gate.has_begun]
        gate = min(to_begin, key=lambda one: (one.batch.start_ns, one.number), default=None)
        larger_ns = None if gate is None else gate.batch.larger_ns
        if gate is None or larger_ns is None or gate.batch.variant != variant or member in self._came:
            return None
        batch = gate.batch
        if batch.start_ns >= max(self.free_ns, self._clock.now_ns()) + batch.run_ns:
            return None
        gate.batch = replace(batch, members=batch.members | {member}, run_ns=larger_ns, larger_ns=None)
        self._gates[member] = gate
        return gate

    def beginning(self, until_ns: int) -> int:
        """How many batches have yet to begin, and are to by then."""
        now_ns = self._clock.now_ns()
        gates = {gate.number: gate.batch for gate in self._gates.values() if not gate.has_begun}
        return sum(now_ns <= batch.end_ns and batch.start_ns < until_ns for batch in gates.values())

    def ended(self, member: Member) -> None:
        """It has its answer, or will have none: nobody waits for it."""
        came, planned = self._came.pop(member, None), self._gates.get(member)
        for gate in (came, planned if planned is not came else None):
            if gate is not None:
                self._left(gate, member)

    def _left(self, gate: _Gate, member: Member) -> None:
        gate.missing.discard(member)
        gate.under_way.discard(member)
        if gate.has_begun:
            if not gate.under_way and gate in self._begun:
                self._reservations.drop([gate.number])
                self._over(gate)
        elif not gate.under_way:
            gate.forget()
            self._overdue = [one for one in self._overdue if one is not gate]
            if not gate.missing:
                self._reservations.drop([gate.number])
                self._lapsed(gate)
        elif not gate.missing:
            self._begin(gate)

    def _over(self, gate: _Gate) -> None:
        """Its run has ended: those behind it move up."""
        now_ns = self.free_ns = self._clock.now_ns()
        is_first = gate is self._begun[0]
        self._begun.remove(gate)
        for one in self._begun:
            one.start_ns = self.free_ns if is_first else one.start_ns
            self.free_ns = max(now_ns, one.start_ns + one.batch.run_ns)
        if not self._begun and self._overdue:
            self._begin(self._overdue[0])

    def _expect(self, gate: _Gate) -> None:
        """Begin it without those who have not come when its time is over."""
        if self._clock.now_ns() >= gate.end_ns:
            self._expired(gate)
        else:
            gate.timer = asyncio.get_running_loop().call_at(gate.end_ns / NS_PER_S, self._expired, gate)

    def _expired(self, gate: _Gate) -> None:
        """Whoever is missing may still come while the batch before it runs: that keeps nobody waiting."""
        if gate.timer is not None:
            gate.forget()
        if not self._begun or self.free_ns <= self._clock.now_ns():
            self._begin(gate)
            return
        self._overdue.append(gate)
        latest_ns = self.free_ns + gate.batch.grace_ns
        self._reserve(gate, latest_ns)
        gate.timer = asyncio.get_running_loop().call_at(latest_ns / NS_PER_S, self._begin, gate)

    def _begin(self, gate: _Gate) -> None:
        now_ns = self._clock.now_ns()
        gate.start_ns = max(self.free_ns, now_ns)
        self._reservations.ready(gate.number)
        if now_ns - gate.end_ns > NS_PER_MS:
            self._reservations.drop([gate.number])  # which counts it no more
            self.counts.late += 1
        if gate.missing:
            self.counts.short += 1
        else:
            self.counts.full += 1
        self._overdue = [one for one in self._overdue if one is not gate]
        self._begun.append(gate)
        self.free_ns = gate.start_ns + gate.batch.run_ns
        gate.open()

    def _reserve(self, gate: _Gate, until_ns: int = 0) -> None:
        batch = gate.batch
        if gate.under_way or (gate.missing and self._missed < _MISSED_MAX):
            self._reservations.put(
                gate.number,
                Reservation(
                    self._tenant,
                    batch.start_ns,
                    max(batch.end_ns, until_ns) + _AFTER_NS,
                    batch.run_ns,
                    batch.takes_ns,
                    partial(self._ran, gate),
                    partial(self._lapsed, gate),
                ),
            )

    def _lapsed(self, gate: _Gate) -> None:
        """Its time is over; where nothing of it came often enough, nothing is expected of the others."""
        if not gate.under_way:
            self._missed += 1
            if self._missed == _MISSED_MAX:
                self._reservations.drop(one.number for one in self._gates.values() if not one.under_way)

    def _frames_come(self) -> None:
        """A frame has come that can be run: the starts are worth reserving."""
        is_back = self._missed >= _MISSED_MAX
        self._missed = 0
        for gate in set(self._gates.values()) if is_back else ():
            if not gate.has_begun and self._clock.now_ns() < gate.end_ns:
                self._reserve(gate)

    def _ran(self, gate: _Gate, now_ns: int) -> None:
        """Its run begins, or has not for as long as a worker was kept for it."""
        self.counts.late += now_ns - gate.batch.end_ns > NS_PER_MS
