"""The residency loop: which variant of which application is in memory, and when it comes and goes (Edge-MultiAI §III).

Requests are noted on the inference path (one append); the loop takes them over, moves the windows, brings what a window
wants, and asks the policy what to do with memory that is left. `PlanEnactor` does what was decided.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S, Clock, others_first
from appliance.domain.events import EventSink
from appliance.policies.residency.base import Intent, ResidencyPlan, Wish
from appliance.policies.residency.steps import PART
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.ports import WindowSink
from appliance.runtime.residency.arbiter import EvictionArbiter
from appliance.runtime.residency.demand import Expectations, window_load_ns
from appliance.runtime.residency.enacting import PlanEnactor
from appliance.runtime.residency.groups import VariantGroup, VariantGroups
from appliance.runtime.residency.neighbours import Neighbours
from appliance.runtime.residency.reloads import Reloads
from appliance.runtime.residency.wishes import PlannerWishes
from appliance.runtime.servable import Servable

_LOOK_NS = NS_PER_S // 4
"""As long as somebody is without its best variant: with every moment a request is nearer or less likely, so memory
may be better given to others.
"""
_REST_NS = NS_PER_S // 5
"""Between two looks at what to do with memory that is left, however much happens meanwhile: a busy box has better
things to do.
"""
_REST_NS_EACH = 4 * NS_PER_MS
"""Of that for every application, where there are many: a look takes some 40 µs for each, so it is at most one per cent
of a core.
"""
_TURN_SHARE, _TICKS_MAX = 0.01, 5
"""A turn of the loop is followed by more than one tick where it was more than this share of that, by so many at most:
on a busy box its code is cold. Who is asked without its build waits for no turn.
"""
_READ_AHEAD = 2
"""A file is read from disk so many times earlier than that is expected to take, for it is read in the background."""
_CROWD = 8
"""Requests of one application that are taken over in one turn of the loop: a busier one is expected at any moment,
and more would say no more.
"""


class ResidencyLoop:
    """Moves applications between the maximalist and the minimalist set, and has the policy's plans enacted."""

    def __init__(
        self,
        *,
        clock: Clock,
        groups: VariantGroups,
        expectations: Expectations,
        arbiter: EvictionArbiter,
        memory: MemoryManager,
        events: EventSink,
        windows: WindowSink,
        tick_ms: float = 10,
        reloads_per_min_max: int = 30,
        neighbours_share: float = 1.0,
    ) -> None:
        """The loop runs at most once in `tick_ms`.

        A group that was changed `reloads_per_min_max` times in a minute is left alone until it calms down.
        `neighbours_share`: of the budget, what variants may take that sessions do not use yet.
        """
        self._clock = clock
        self._groups = groups
        self._expectations = expectations
        self._arbiter = arbiter
        self._memory = memory
        self._windows = windows
        self._tick_ns = int(tick_ms * NS_PER_MS)
        self.reloads = Reloads(clock, events, reloads_per_min_max)
        self.enactor = PlanEnactor(
            groups=groups,
            arbiter=arbiter,
            memory=memory,
            reloads=self.reloads,
            on_brought=self._moved,
        )
        self.neighbours = Neighbours(
            clock=clock,
            groups=groups,
            arbiter=arbiter,
            memory=memory,
            share=neighbours_share,
            is_busy=lambda: self.enactor.loads_under_way > 0,
            on_end=self._moved,
        )
        self._seen: list[tuple[str, int]] = []
        self._wake = asyncio.Event()
        self._version = -1
        self._procured_ns: dict[str, int] = {}
        """Group whose best variant was not there when a window opened → when that was, the last time."""
        self._edge_ns: int | None = None
        """When a window opens or closes next."""
        self._is_settled = True
        """The policy has been asked what else to change since something moved."""
        self._looked_ns = -_REST_NS
        self._best: frozenset[str] = frozenset()
        self._awake: frozenset[str] = frozenset()
        self._is_wanted = False
        """Of those best builds some is not among those that are awake."""
        self._wishes = PlannerWishes()
        memory.watch(self._loaded, self._left, self._failed)
        self.transitions = 0

    # -- the inference path --------------------------------------------------------------------------------------------

    def seen(self, application_id: str, at_ns: int) -> None:
        """A request of an application has come; cheap."""
        self._seen.append((application_id, at_ns))
        if len(self._seen) == 1:
            self._wake.set()

    def order(self, application_id: str, candidates: list[Servable], since_ns: int) -> list[Servable]:
        """Candidates of a cold request that came then, of which the first are the most wanted: the one under way, else
        the policy's choice, then those behind it and at last those before it; the smallest first where the policy
        sees no room.
        """
        loading = [s for s in candidates if self._memory.is_loading(s.build_id)]
        group = self._groups.of_application(application_id)
        if not loading:
            self._take_over()  # whoever makes room must know who was asked a moment ago
        if loading or group is None or len(candidates) < 2:
            return [*loading, *(s for s in candidates if s not in loading)]
        plan = self._decide(group.name, "serve", since_ns)
        wanted = group.servable(plan.serve).build_id if plan.serve is not None else None
        first = [form for s in candidates for form in s.forms if form.build_id == wanted]
        places = (at for at, s in enumerate(candidates) if any(form.build_id == wanted for form in s.forms))
        place = next(places, len(candidates))
        rest = [s for s in candidates[place:] if s.build_id != wanted]
        return [*first, *rest, *sorted(candidates[:place], key=lambda s: s.resident_bytes)]

    # -- orders of people ----------------------------------------------------------------------------------------------

    def leave_out(self, application_id: str) -> None:
        """It was unloaded explicitly: bring nothing of it."""
        self._groups.leave_out(application_id)

    def take_in(self, application_id: str) -> None:
        """It may be brought again."""
        self._groups.take_in(application_id)
        self._wake.set()

    def look_again(self) -> None:
        """Something that it goes by was changed from outside: a quota."""
        self._wake.set()

    # -- requests of other planners ------------------------------------------------------------------------------------

    def wish(self, application_id: str, wishes: tuple[Wish, ...], source: str = "sessions") -> None:
        """Replace what the planners of `source` wish for an application: variants to bring and to keep, with
        priorities.
        """
        group = self._groups.of_application(application_id)
        if group is None:
            return
        self._wishes.put(application_id, wishes, source)
        wished = self._wishes.of(lambda one: self._groups.of_application(one) is group)
        self._arbiter.wish(group, wished, self._memory.residents(), self._memory.asleep())
        self._version = -1
        self._wake.set()

    def has_room(self, servable: Servable) -> bool:
        """Whether it could come into memory now, and nothing would leave for it but what nobody uses yet."""
        return self.enactor.has_room(servable)

    # -- the loop ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._wake.clear()
                begun_ns = self._clock.now_ns()
                is_time_to_look = self._step()
                took_ns = self._clock.now_ns() - begun_ns
                if is_time_to_look:
                    await self._rebalance()
                if self._is_settled:
                    self.neighbours.fill()
                if self._tick_ns:
                    await self._clock.sleep_until_ns(self._clock.now_ns() + pause_ns(self._tick_ns, took_ns))
                if not self._seen:
                    await self._until_next_edge()
        finally:
            self.enactor.cancel()
            self.neighbours.cancel()

    def _step(self) -> bool:
        """Everything that is due now, but a look at memory that is left; whether it is time for that."""
        now_ns = self._clock.now_ns()
        self._take_over()
        if self.enactor.end_pauses(now_ns):
            self._is_settled = False
        is_new = self._version != self._groups.version
        if is_new:
            self._forget_the_gone()
            self._version = self._groups.version
            for build_id in self._arbiter.surplus(self._memory.residents(), self._memory.free_bytes, now_ns):
                self._memory.release(build_id)
            self._memory.trim()
            self._is_settled = False
        # Before a load: a turn of the loop, and the replacement of whoever gives way, which is at most the slowest of
        # the smallest.
        lead_ns = self._tick_ns + self._groups.slowest_floor_ns()
        loads_before = self.enactor.loads_under_way
        for group in self._due(now_ns, lead_ns, is_new):
            expectation = self._expectations.of(group.name)
            before_ns, was_answered = expectation.window_ns, expectation.is_answered
            load_ns, ahead_ns = self._before_window(group)
            moved = self._expectations.step(expectation, load_ns, now_ns, lead_ns, ahead_ns)
            if ahead_ns is not None and self._expectations.is_coming(expectation, now_ns, lead_ns + ahead_ns):
                self._memory.read_ahead(group.servables[0].build_id)
            if expectation.window_ns != before_ns:  # one may follow the other at once
                if before_ns is not None:
                    self._windows.window_closed(group.name, answered=was_answered)
                if expectation.is_maximalist:
                    self._windows.window_opened(group.name)
                    if moved or self._is_rested(group, now_ns):
                        self._procure(group)
            if moved:
                self._is_settled = False
                self.transitions += 1
        self._edge_ns = self._expectations.next_edge_ns(lead_ns)
        if self.enactor.loads_under_way > loads_before:
            # the loads that were just ordered have no memory yet: what is left is seen in the next turn
            self._wake.set()
        elif not self._is_settled and now_ns - self._looked_ns >= self._rest_ns():
            self._is_settled = True
            self._looked_ns = now_ns
            return self.is_better_wanted()  # or no change could be for the better
        return False

    def _rest_ns(self) -> int:
        return max(_REST_NS, _REST_NS_EACH * len(self._groups.all()))

    def _is_rested(self, group: VariantGroup, now_ns: int) -> bool:
        """Whether the policy was not asked about a group's windows for a while: those of who is asked more often than
        its best variant takes to load follow one another without a pause, and what found no room in the first of them
        may find it in a later one. Where many wait for room each waits for the others' questions, too.
        """
        asked_ns = self._procured_ns.get(group.name)
        return asked_ns is None or now_ns - asked_ns >= self._rest_ns() * max(1, len(self._procured_ns))

    def _before_window(self, group: VariantGroup) -> tuple[int, int | None]:
        """θ of a group, and where its best variant would be woken from disk how long before to have it read.

        θ is its load, or where it sleeps its wake, by what of its file is in the page cache now.
        """
        usual_ns = window_load_ns(group)
        wake_ns = self._memory.expected_wake_ns(group.servables[0].build_id)
        if wake_ns is None:
            return usual_ns, None
        return wake_ns, _READ_AHEAD * max(wake_ns, self._groups.load_ns(group.servables[0]))

    def _due(self, now_ns: int, lead_ns: int, is_new: bool) -> list[VariantGroup]:
        """The groups whose windows there is something to do about, by name: all of them where they are new."""
        due = self._expectations.due(now_ns, lead_ns)
        if is_new:
            return list(self._groups.all())
        return [group for name in sorted(due) if (group := self._groups.of_application(name)) is not None]

    def is_better_wanted(self) -> bool:
        """Some application is without its best variant: with every request that comes it may have become its turn."""
        best, awake = self._groups.best_builds(), self._memory.awake()
        if best is not self._best or awake is not self._awake:
            self._best, self._awake = best, awake
            self._is_wanted = not best <= awake
        return self._is_wanted

    def _take_over(self) -> None:
        seen, self._seen = self._seen, []
        if seen and self.is_better_wanted():
            self._is_settled = False
        for application_id, at_ns in seen if len(seen) <= _CROWD else _latest(seen):
            group = self._groups.of_application(application_id)
            if group is not None:
                self._expectations.arrived(group.name, at_ns)

    def _forget_the_gone(self) -> None:
        names = {group.name for group in self._groups.all()}
        for expectation in self._expectations.all():
            if expectation.name not in names:
                self._expectations.forget(expectation.name)
                self._arbiter.forget(expectation.name)
                self.reloads.forget(expectation.name)
                self._procured_ns.pop(expectation.name, None)
        self._wishes.forget(lambda one: self._groups.of_application(one) is None)

    async def _until_next_edge(self) -> None:
        edges_ns = (self._edge_ns, self.enactor.next_end_ns(), self.neighbours.next_ns)
        edge_ns = min((ns for ns in edges_ns if ns is not None), default=None)
        wait_s = None if edge_ns is None else max(0.0, (edge_ns - self._clock.now_ns()) / NS_PER_S)
        if not self._is_settled or (wait_s is not None and self.is_better_wanted()):
            look_s = max(_LOOK_NS, self._rest_ns()) / NS_PER_S
            wait_s = look_s if wait_s is None else min(wait_s, look_s)
            self._is_settled = False
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _decide(self, request: str, intent: Intent, since_ns: int | None = None) -> ResidencyPlan:
        """What the policy says to memory as it is now; to serve a request, as if idle processes had ended. `since_ns`:
        when the request came that waits for it.
        """
        group = self._groups.of_application(request) if intent == "serve" else None
        idle_bytes = 0 if group is None else self._memory.idle_bytes(group.builds)
        return self._arbiter.decide(
            self._memory.builds_bytes + idle_bytes,
            self._memory.residents(),
            self._clock.now_ns(),
            request,
            intent,
            self._memory.asleep(),
            since_ns,
        )

    def _procure(self, group: VariantGroup) -> None:
        """A window opens: bring the best variant that the policy finds room for, unless it is there."""
        if self._memory.is_resident(group.servables[0].build_id):
            self._procured_ns.pop(group.name, None)
            return
        self._procured_ns[group.name] = self._clock.now_ns()
        plan = self._decide(group.name, "procure")
        own = next((c for c in plan.changes if c.application == group.name), None)
        if own is not None and own.after is not None:
            self.enactor.bring(group, own.after)

    async def _rebalance(self) -> None:
        """Look what to do with memory that is left, in parts, so that requests have their turns meanwhile."""
        memory = self._memory
        if len(self._groups.all()) > PART:
            await others_first()
        steps = self._arbiter.rebalance(memory.builds_bytes, memory.residents(), self._clock.now_ns(), memory.asleep())
        while True:
            try:
                next(steps)
            except StopIteration as end:
                if not await self.enactor.enact(end.value):
                    self._is_settled = False
                return
            await others_first()

    # -- what becomes of builds ----------------------------------------------------------------------------------------

    def _loaded(self, build_id: str) -> None:
        """A build has come into memory, for whomever: perhaps there is more to do."""
        group, build = self._groups.of_build(build_id), self._memory.build(build_id)
        assert build is not None, build_id
        self.enactor.end_pause(build_id)
        if build.is_woken:
            self._groups.woken(build_id, build.wake_ns)
        else:
            self._groups.loaded(build_id, build.load_ns)
        self._groups.comes_by_wake(build_id, wakes=self._memory.will_sleep(build_id))
        if group is not None:
            if not build.is_woken and build_id not in self._arbiter.beside.neighbours:
                self.reloads.note(group.name)
            self._expectations.look_again(group.name)
        self._moved()

    def _left(self, build_id: str) -> None:
        """A build sleeps or is absent now: what it takes to have it again is another thing."""
        group = self._groups.of_build(build_id)
        self._arbiter.left(build_id)
        self._groups.comes_by_wake(build_id, wakes=self._memory.is_asleep(build_id))
        if group is not None:
            self._expectations.look_again(group.name)
            self._wake.set()

    def _failed(self, build_id: str) -> None:
        """A load came to nothing: what is planned goes without the build for a while, and longer every time."""
        build = self._memory.build(build_id)
        assert build is not None, build_id
        self.enactor.pause(build_id, build.again_ns)
        self._moved()

    def _moved(self) -> None:
        self._is_settled = False
        self._wake.set()

    # -- for people ----------------------------------------------------------------------------------------------------

    def changes_per_min(self) -> Mapping[str, int]:
        """Return how often variants of an application came into memory in the last minute, where any did."""
        return self.reloads.all_per_min()

    def snapshot(self) -> dict[str, Any]:
        """For `/v1/memory`: the windows, and how often the sets changed."""
        return {
            "delta_ms": self._expectations.delta_ns / NS_PER_MS,
            "history_window_ms": self._expectations.history_ns / NS_PER_MS,
            "transitions": self.transitions,
        }

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """For `/v1/memory`: yield the applications with their sets, and what these follow from.

        Time may pass between two rows: an application that is gone by then has none.
        """
        there = frozenset(b.build_id for b in self._memory.residents())
        for name in [group.name for group in self._groups.all()]:
            group = self._groups.of_application(name)
            if group is not None and group.name == name:
                yield self._row(group, there, self._clock.now_ns())

    def _row(self, group: VariantGroup, there: frozenset[str], now_ns: int) -> Mapping[str, Any]:
        expectation = self._expectations.of(group.name)
        servable = self._arbiter.own(group, there)
        next_ns = expectation.next_ns
        return {
            "application": group.name,
            "set": "maximalist" if expectation.is_maximalist else "minimalist",
            "resident": servable.variant.name if servable else None,
            "variants": [o.name for o in group.options],
            "forecaster": expectation.forecaster.name,
            "expected_in_ms": None if next_ns is None else (next_ns - now_ns) / NS_PER_MS,
            "reloads_per_min": self.reloads.per_min(group.name),
            "thrashes": self.reloads.thrashes(group.name),
        }


def pause_ns(tick_ns: int, took_ns: int) -> int:
    """How long to rest after a turn that took so long."""
    return min(max(tick_ns, int(took_ns / _TURN_SHARE)), _TICKS_MAX * tick_ns)


def _latest(seen: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The latest few of each application, in their order."""
    counts: Counter[str] = Counter()
    kept: list[tuple[str, int]] = []
    for item in reversed(seen):
        counts[item[0]] += 1
        if counts[item[0]] <= _CROWD:
            kept.append(item)
    return kept[::-1]
