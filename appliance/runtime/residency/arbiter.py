"""Makes room for a build by asking the eviction policy about applications, and says it to the memory manager in builds.

Implements the memory manager's port `Arbiter`: the policy sees groups, windows and probabilities, the manager sees
builds. It says which of them leave, and what comes in their place.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from appliance.policies.residency.base import (
    ApplicationState,
    EvictionPolicy,
    Intent,
    Option,
    ResidencyPlan,
    ResidencyProblem,
    Wish,
)
from appliance.runtime.memory.room import Replacement, ResidentBuild, RoomPlan, RoomProblem
from appliance.runtime.ports import DecisionSink
from appliance.runtime.residency.demand import Expectations
from appliance.runtime.residency.fallback import Fallback, least_recently_used
from appliance.runtime.residency.groups import VariantGroup, VariantGroups
from appliance.runtime.residency.records import Records
from appliance.runtime.residency.shares import Shares

_NOBODY: Mapping[str, int] = {}


class EvictionArbiter:
    """Implements `Arbiter`; event-loop thread only."""

    def __init__(
        self,
        groups: VariantGroups,
        expectations: Expectations,
        shares: Shares,
        policy: EvictionPolicy,
        decisions: DecisionSink,
        policy_name: str,
        patience_ns: int | None = None,
    ) -> None:
        """An urgent request that finds only expected applications in its way waits `patience_ns` for their windows to
        close; then they give way.

        None: it finds no room, as in the paper.
        """
        self._groups = groups
        self._expectations = expectations
        self._shares = shares
        self._policy = policy
        self._records = Records(groups, decisions, policy_name)
        self._patience_ns = patience_ns
        self._fallback = Fallback(groups, expectations, shares)
        self._wishes: dict[str, tuple[Wish, ...]] = {}
        self._changing: set[str] = set()

    # -- what the loop says of groups, by name -------------------------------------------------------------------------

    def begin_change(self, name: str) -> None:
        """Its variant is about to change: what it has is not to be taken for somebody else until `end_change`."""
        self._changing.add(name)

    def end_change(self, name: str) -> None:
        """It has changed, or it came to nothing."""
        self._changing.discard(name)

    def wish(self, name: str, wishes: tuple[Wish, ...]) -> None:
        """Replace what planners wish for a group."""
        self._wishes[name] = wishes

    def forget(self, name: str) -> None:
        """The group is gone."""
        self._wishes.pop(name, None)
        self._records.forget(name)

    # -- the manager's port --------------------------------------------------------------------------------------------

    def is_bounded(self, build_id: str) -> bool:
        return self._shares.has_ceiling(build_id)

    def plan(self, problem: RoomProblem) -> RoomPlan:
        group = self._groups.of_build(problem.build_id)
        option = None if group is None else group.option(problem.build_id)
        name = None if group is None else group.name
        strays = self._strays(problem)
        freed = sum(b.freed_bytes for b in strays)
        is_enough = freed + problem.free_bytes >= problem.need_bytes
        if is_enough and not self._is_full(problem, group, option):
            enough = least_recently_used(replace(problem, resident=tuple(strays)))
            enough = replace(enough, reason="builds that no application prefers leave")
            self._records.ruled("nobody's", name, problem, enough)
            return enough
        if group is None or option is None:
            return self._by_age(problem, name)
        memory = problem.free_bytes + sum(b.freed_bytes for b in problem.resident)
        gone = {b.build_id for b in strays}
        resident = [b for b in problem.resident if b.build_id not in gone]
        intent: Intent = "serve" if problem.is_urgent else "procure"
        only = replace(group, options=(option,), servables=(group.servable(option.name),))
        has_other = group.resident({b.build_id for b in resident}) is not None
        for beside in (True, False) if has_other else (True,):
            if not beside:
                intent = "procure"  # what is there would serve, but it is not what was asked for
            question = self.problem(
                memory, resident, problem.now_ns, group.name, intent, only=only, beside=beside, asleep=problem.asleep
            )
            plan = self._policy.plan(question)
            change = next((c for c in plan.changes if c.application == group.name), None)
            if change is not None and change.after == option.name:
                self._records.answered(group.name, question, plan, problem.since_ns)
                return self._in_builds(plan, group, strays, resident, problem, beside=beside)
        self._records.answered(group.name, question, plan, problem.since_ns)
        return self._despite_windows(problem, group.name, plan.reason)

    def _despite_windows(self, problem: RoomProblem, name: str, reason: str) -> RoomPlan:
        """A request that is there counts for more than one that was predicted, once it has waited for that in vain."""
        refused = RoomPlan((), 0, False, reason)
        if self._patience_ns is None or not problem.is_urgent:
            return refused
        if self._is_full(problem, None, None):
            return refused
        last_resort = self._fallback.plan(problem)
        since_ns = problem.now_ns if problem.since_ns is None else problem.since_ns
        patient_ns = since_ns + self._patience_ns
        if not last_resort.sufficient:
            return refused
        if problem.now_ns < patient_ns:
            waits = replace(refused, again_ns=patient_ns)
            self._records.ruled("patience", name, problem, waits)
            return waits
        self._records.ruled("last resort", name, problem, last_resort)
        return last_resort

    def _strays(self, problem: RoomProblem) -> list[ResidentBuild]:
        """Unpinned builds that are no application's best one in memory, and nobody's guaranteed memory: nobody
        misses them.
        """
        there = {b.build_id for b in problem.resident}
        best = {s.build_id for group in self._groups.all() if (s := group.resident(there)) is not None}
        kept = {*best, problem.build_id, *self._shares.guaranteed(problem.build_id, problem.resident)}
        return [b for b in problem.resident if not b.pinned and b.build_id not in kept]

    def _in_builds(
        self,
        plan: ResidencyPlan,
        requester: VariantGroup,
        strays: list[ResidentBuild],
        resident: list[ResidentBuild],
        problem: RoomProblem,
        *,
        beside: bool,
    ) -> RoomPlan:
        victims = list(strays)
        replacements: list[Replacement] = []
        there = {b.build_id: b for b in resident}
        for change in plan.changes:
            group = self._groups.of_application(change.application)
            if group is None or change.before is None or (group is requester and beside):
                continue
            victim = there.get(group.servable(change.before).build_id)
            if victim is None or victim.pinned:
                continue
            victims.append(victim)
            if change.after is not None and group is not requester:
                after = group.servable(change.after)
                stray = next((b for b in strays if b.build_id == after.build_id), None)
                if stray is not None:
                    victims.remove(stray)
                elif after.build_id not in problem.leaving and after.build_id not in there:
                    replacements.append(
                        Replacement(victim.build_id, after.build_id, after.resident_bytes, after.peak_bytes)
                    )
        back = sum(r.need_bytes(problem.asleep) for r in replacements)
        freed = sum(b.freed_bytes for b in victims)
        while replacements and problem.free_bytes + freed - back < problem.need_bytes:
            last = replacements.pop()  # peaks do not fit together: the last one comes back when it is asked for
            back -= last.need_bytes(problem.asleep)
        if problem.free_bytes + freed - back < problem.need_bytes:
            return RoomPlan((), 0, False, plan.reason)
        return RoomPlan(tuple(b.build_id for b in victims), freed, True, plan.reason, tuple(replacements))

    def _is_full(self, problem: RoomProblem, group: VariantGroup | None, option: Option | None) -> bool:
        """Whether the newcomer would take its tenant above its ceiling.

        Where nobody waits, what it comes in the place of does not count.
        """
        size = problem.need_bytes if option is None else option.bytes
        apart = frozenset[str]() if group is None or problem.is_urgent else group.builds
        return self._shares.full(problem.build_id, size, problem.resident, apart) is not None

    def _by_age(self, problem: RoomProblem, name: str | None) -> RoomPlan:
        """Where the policy has no say: by last use.

        Where its tenant's ceiling is in the way, the newcomer finds no room.
        """
        if problem.build_id and self._is_full(problem, None, None):
            plan = RoomPlan((), 0, False, "the tenant's ceiling is reached")
            self._records.ruled("ceiling", name, problem, plan)
            return plan
        plan = self._fallback.plan(problem)
        self._records.ruled("last use", name, problem, plan)
        return plan

    def surplus(self, resident: tuple[ResidentBuild, ...], free_bytes: int, now_ns: int) -> list[str]:
        """Builds that must go, and their record, after a tenant's ceiling was lowered."""
        going = self._shares.surplus(resident)
        freed = sum(b.bytes for b in resident if b.build_id in going)
        plan = RoomPlan(tuple(going), freed, True, "a tenant has more than its ceiling")
        self._records.ruled("ceiling", None, RoomProblem(now_ns, "", 0, free_bytes, resident), plan)
        return going

    def order_of_leaving(self, sleepers: Sequence[ResidentBuild]) -> list[str]:
        return self._shares.order_of_leaving(sleepers)

    def asleep_above_ceiling(
        self, sleepers: Sequence[ResidentBuild], residents: Callable[[], Iterable[ResidentBuild]]
    ) -> Collection[str]:
        return self._shares.asleep_above_ceiling(sleepers, residents)

    # -- questions -----------------------------------------------------------------------------------------------------

    def problem(
        self,
        memory_bytes: int,
        resident: Iterable[ResidentBuild],
        now_ns: int,
        request: str | None,
        intent: Intent,
        *,
        only: VariantGroup | None = None,
        beside: bool = False,
        asleep: Mapping[str, int] = _NOBODY,
    ) -> ResidencyProblem:
        """The policy's problem.

        `only` stands in for the requester's group. `beside`: its present variant stays until the new one is there.
        `asleep`: builds that sleep, and what they keep. What a build keeps, or will when it leaves, is neither in
        `memory_bytes` nor in its option: to the policy it takes what its leaving frees, and what its waking needs.
        """
        builds = {b.build_id: b for b in resident}
        kept = {**asleep, **{b.build_id: b.kept_bytes for b in builds.values() if b.kept_bytes}}
        used = sum(b.freed_bytes for b in builds.values())
        known = 0
        counted: set[str] = set()
        """Builds that the policy sees as some group's resident variant."""
        states: list[ApplicationState] = []
        for group in self._groups.all():
            servable = group.resident(builds)
            build = builds[servable.build_id] if servable else None
            if build is not None:
                known += build.freed_bytes
            asks = group if only is None or only.name != group.name else only
            stays = asks is only and beside
            if stays and intent == "serve":  # what is there will not do for this request
                if build is not None:
                    known -= build.freed_bytes
                servable = None
            options = asks.options
            if asks is only and servable is not None and all(o.name != servable.variant.name for o in options):
                options = tuple(o for o in group.options if o is asks.options[0] or o.name == servable.variant.name)
            expectation = self._expectations.of(group.name)
            if servable is not None:
                counted.add(servable.build_id)
            states.append(
                ApplicationState(
                    name=group.name,
                    options=options if group.builds.isdisjoint(kept) else _less_kept(group, options, kept),
                    resident=servable.variant.name if servable else None,
                    pinned=stays
                    or bool(build and build.pinned)
                    or (group.name != request and group.name in self._changing),
                    last_request_ns=expectation.arrivals_ns[-1] if expectation.arrivals_ns else None,
                    next_request_ns=expectation.next_ns,
                    later_requests_ns=expectation.later_ns,
                    spread_ns=self._expectations.spread_ns(group.name),
                    prediction_hit_rate=self._expectations.hit_rate(group.name),
                    unexpected_probability=self._expectations.probability(group.name, request) if request else 0.0,
                    rate_rps=expectation.rate_rps(now_ns),
                    tenant=group.tenant,
                    weight=group.weight,
                    accuracy_min=group.accuracy_min,
                    wishes=self._wishes.get(group.name, ()),
                )
            )
        return ResidencyProblem(
            now_ns=now_ns,
            memory_bytes=memory_bytes - (used - known),
            history_window_ns=self._expectations.history_ns,
            delta_ns=self._expectations.delta_ns,
            applications=tuple(states),
            request=request,
            intent=intent,
            tenants=self._shares.less(
                b if b.build_id not in counted else b._replace(bytes=b.kept_bytes)
                for b in builds.values()
                if (b.build_id not in counted or b.kept_bytes)
                and not (intent == "procure" and only is not None and b.build_id in only.builds)
            ),
        )

    def decide(
        self,
        memory_bytes: int,
        resident: Sequence[ResidentBuild],
        now_ns: int,
        request: str | None,
        intent: Intent,
        asleep: Mapping[str, int] = _NOBODY,
    ) -> ResidencyPlan:
        """Ask the policy about all of a group's variants, and record what it said; `memory_bytes`: the budget."""
        memory_bytes -= sum(asleep.values()) + sum(b.kept_bytes for b in resident)
        problem = self.problem(memory_bytes, resident, now_ns, request, intent, asleep=asleep)
        plan = self._policy.plan(problem)
        self._records.planned(problem, plan)
        return plan


def _less_kept(group: VariantGroup, options: tuple[Option, ...], kept: Mapping[str, int]) -> tuple[Option, ...]:
    """The options without what their builds keep; those that keep nothing as they are."""
    found = []
    for option in options:
        count = kept.get(group.servable(option.name).build_id, 0)
        found.append(option if count == 0 else _awake(option, count))
    return tuple(found)


def _awake(option: Option, kept_bytes: int) -> Option:
    size = max(0, option.bytes - kept_bytes)
    return replace(option, bytes=size, peak_bytes=size, sleeps=True)
