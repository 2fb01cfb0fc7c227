"""Makes room for a build by asking the eviction policy about applications, and says it to the memory manager in builds.

Implements the memory manager's port `Arbiter`: the policy sees groups, windows and probabilities, the manager sees
builds. It says which of them leave, and what comes in their place.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
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
from appliance.policies.residency.last_resort import after_patience
from appliance.policies.residency.neighbours import NeighbourPlan, NeighbourProblem
from appliance.policies.residency.steps import PART, Steps, in_steps
from appliance.runtime.memory.room import Replacement, ResidentBuild, RoomPlan, RoomProblem, needed_in_turn
from appliance.runtime.ports import DecisionSink
from appliance.runtime.residency.beside import BesideBuilds
from appliance.runtime.residency.demand import Expectations
from appliance.runtime.residency.fallback import Fallback, least_recently_used
from appliance.runtime.residency.groups import VariantGroup, VariantGroups
from appliance.runtime.residency.records import Records
from appliance.runtime.residency.shares import Shares
from appliance.runtime.residency.states import ApplicationStates
from appliance.runtime.servable import Servable

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
        beside: BesideBuilds | None = None,
    ) -> None:
        """An urgent request that finds only expected applications in its way waits `patience_ns` for their windows to
        close; then these get smaller variants.

        None: it finds no room, as in the paper. `beside`: what planners wish, where something is known of that.
        """
        self._groups = groups
        self._expectations = expectations
        self._shares = shares
        self._policy = policy
        self._records = Records(groups, decisions, policy_name)
        self._patience_ns = patience_ns
        self._fallback = Fallback(groups, expectations, shares)
        self._states = ApplicationStates(groups, expectations, beside or BesideBuilds())
        shares.promised = self.beside.all_promised

    # -- what the loop says of groups, by name -------------------------------------------------------------------------

    def begin_change(self, name: str) -> None:
        """Its variant is about to change: what it has is not to be taken for somebody else until `end_change`."""
        self._states.begin_change(name)

    def end_change(self, name: str) -> None:
        """It has changed, or it came to nothing."""
        self._states.end_change(name)

    def go_without(self, build_id: str) -> None:
        """Plan as if it could not be loaded, until `go_with`; requests have it loaded nonetheless."""
        self._states.go_without(build_id)

    def go_with(self, build_id: str) -> None:
        """It can be loaded again, or has been."""
        self._states.go_with(build_id)

    def wish(
        self,
        group: VariantGroup,
        wishes: tuple[Wish, ...],
        resident: Sequence[ResidentBuild],
        asleep: Mapping[str, int] = _NOBODY,
    ) -> None:
        """Replace what planners wish for a group, of which memory holds some builds now."""
        self._states.look(resident, asleep)
        self._states.wish(group, wishes)

    def own(self, group: VariantGroup, builds: Set[str]) -> Servable | None:
        """The variant that a group counts as its own of what is in memory."""
        return self._states.own(group, builds)

    def adopt(self, build_id: str) -> None:
        """Its group counts it as its own from now on, where it is there as a neighbour."""
        self._states.adopt(build_id)

    def forget(self, name: str) -> None:
        """The group is gone."""
        self._states.forget(name)
        self._records.forget(name)

    # -- the manager's port --------------------------------------------------------------------------------------------

    def is_bounded(self, build_id: str) -> bool:
        return self._shares.has_ceiling(build_id)

    def plan(self, problem: RoomProblem) -> RoomPlan:
        is_coming = problem.build_id == self.beside.coming
        if is_coming and not problem.is_urgent:
            is_free = problem.need_bytes <= problem.free_bytes
            return RoomPlan((), 0, is_free, "a neighbour takes memory that nothing else needs", spares_sleepers=True)
        plan = self._room(problem)
        # A request has joined its load: it comes as what that asked for.
        if is_coming and plan.sufficient and not problem.is_trial:
            self._states.adopt(problem.build_id)
            self.end_coming()
        return replace(plan, lost_bytes=self._lost_bytes(plan, problem)) if plan.victims else plan

    def _lost_bytes(self, plan: RoomPlan, problem: RoomProblem) -> int:
        """Bytes of the victims that applications or planners would miss, less those of what comes in their place."""
        unwanted = {build.build_id for build in self._states.uncounted()} - self.beside.all_in_use()
        missed = set(plan.victims) - unwanted
        freed = sum(self._states.builds[build_id].freed_bytes for build_id in missed)
        return freed - sum(r.grown_bytes(problem.asleep) for r in plan.replacements)

    def _asker(self, problem: RoomProblem) -> tuple[VariantGroup | None, Option | None]:
        """The group of the newcomer, and the option that it is; a process is a group with one option."""
        if problem.tenant is not None:
            process = _process_group(problem.tenant, problem.need_bytes)
            return process, process.options[0]
        group = self._groups.of_build(problem.build_id)
        return group, None if group is None else group.option(problem.build_id)

    def _room(self, problem: RoomProblem) -> RoomPlan:
        """Answer for any build but a neighbour on its way."""
        group, option = self._asker(problem)
        name = None if group is None or problem.tenant is not None else group.name
        self._states.look(problem.resident, problem.asleep)
        strays = self._strays(problem)
        freed = sum(b.freed_bytes for b in strays)
        is_enough = freed + problem.free_bytes >= problem.need_bytes
        if is_enough and not self._is_full(problem, group, option):
            of_nobody = replace(problem, resident=tuple(strays))
            enough = replace(least_recently_used(of_nobody), reason="builds that no application prefers leave")
            self._records.ruled("nobody's", name, of_nobody, enough)
            return enough
        if group is None or option is None:
            return self._by_age(problem, name)
        in_use = self._in_use(problem) if problem.is_urgent else []
        for leaving in (strays, [*strays, *in_use]) if in_use else (strays,):
            plan, is_found = self._asked(problem, group, option, leaving)
            if is_found:
                return plan
        return self._despite_windows(problem, group, option, [*strays, *in_use], plan.reason)

    def _asked(
        self, problem: RoomProblem, group: VariantGroup, option: Option, strays: list[ResidentBuild]
    ) -> tuple[RoomPlan, bool]:
        """The policy's plan for one variant of a group, where `strays` leave in any case; whether it found room."""
        for question, beside in self._questions(problem, group, option, strays):
            plan = self._policy.plan(question)
            if _brings(plan, group, option):
                found = self._in_builds(plan, group, strays, problem, beside=beside)
                self._answered(problem, group, question, plan, found)
                return found, True
        refused = RoomPlan((), 0, False, plan.reason)
        self._answered(problem, group, question, plan, refused)
        return refused, False

    def _answered(
        self,
        problem: RoomProblem,
        group: VariantGroup,
        question: ResidencyProblem,
        plan: ResidencyPlan,
        found: RoomPlan,
    ) -> None:
        """The policy has answered: into the record. A process is no application, so there a policy's problem says less
        than what memory has done.
        """
        if problem.tenant is not None:
            self._records.ruled("process", None, problem, found)
        elif not problem.is_trial:
            self._records.answered(group.name, question, plan, problem.since_ns)

    def _questions(
        self, problem: RoomProblem, group: VariantGroup, option: Option, strays: list[ResidentBuild]
    ) -> Iterator[tuple[ResidencyProblem, bool]]:
        """The policy's problems about one variant of a group, and smaller ones that would do in its place; the next is
        asked where the one before finds no room. Whether what the group has stays until the variant is there.
        """
        memory = problem.free_bytes + self._states.freed_bytes
        if problem.tenant is not None:
            asker = ApplicationState(group.name, group.options, None, tenant=group.tenant)
            others = self._problem(memory, problem.now_ns, None, "serve", strays=strays)
            yield replace(others, request=group.name, applications=(*others.applications, asker)), True
            return
        intent: Intent = "serve" if problem.is_urgent else "procure"
        pairs = [*zip(group.options, group.servables, strict=True)]
        smaller = [(o, s) for o, s in pairs[group.options.index(option) + 1 :] if s.build_id in problem.instead]
        own = [(option, group.servable(option.name)), *smaller]
        only = replace(group, options=tuple(o for o, _ in own), servables=tuple(s for _, s in own))
        present = self._states.resident(group.name)
        has_other = present is not None and (problem.is_urgent or present.build_id not in group.stand_ins)
        if present is not None and present.build_id in self.beside.promised(group.name):
            has_other = False  # what promises need stays beside it
        for beside in (True, False) if has_other else (True,):
            if not beside:
                intent = "procure"  # what is there would serve, but it is not what was asked for
            yield (
                self._problem(memory, problem.now_ns, group.name, intent, only=only, beside=beside, strays=strays),
                beside,
            )

    def _despite_windows(
        self, problem: RoomProblem, group: VariantGroup, option: Option, strays: list[ResidentBuild], reason: str
    ) -> RoomPlan:
        """A request that is there counts for more than one that was predicted, once it has waited for that in vain: who
        is expected gets a smaller variant.
        """
        refused = RoomPlan((), 0, False, reason)
        if self._patience_ns is None or not problem.is_urgent or self._is_full(problem, None, None):
            return refused
        name = None if problem.tenant is not None else group.name
        last_resort = self._after_patience(problem, group, option, strays) or refused
        patient_ns = (problem.now_ns if problem.since_ns is None else problem.since_ns) + self._patience_ns
        if problem.now_ns >= patient_ns:
            self._records.ruled("last resort", name, problem, last_resort)
            return last_resort
        ends_ns = [patient_ns] if last_resort.sufficient else []
        ends_ns += [end_ns for end_ns in self._window_ends_ns(problem) if end_ns < patient_ns]
        if not ends_ns:
            return refused
        waits = replace(refused, again_ns=min(ends_ns))
        self._records.ruled("patience", name, problem, waits)
        return waits

    def _after_patience(
        self, problem: RoomProblem, group: VariantGroup, option: Option, strays: list[ResidentBuild]
    ) -> RoomPlan | None:
        for question, beside in self._questions(problem, group, option, strays):
            plan = after_patience(question)
            if plan is not None and _brings(plan, group, option):
                return self._in_builds(plan, group, strays, problem, beside=beside)
        return None

    def _window_ends_ns(self, problem: RoomProblem) -> Iterator[int]:
        """When the windows close of those that have something in memory which is not in use."""
        for build in problem.resident:
            group = None if build.pinned else self._groups.of_build(build.build_id)
            window_ns = None if group is None else self._expectations.of(group.name).window_ns
            if window_ns is not None and window_ns + self._expectations.delta_ns >= problem.now_ns:
                yield window_ns + self._expectations.delta_ns + 1

    def _strays(self, problem: RoomProblem) -> list[ResidentBuild]:
        """Unpinned builds that are no application's best one in memory, and nobody's guaranteed memory: nobody
        misses them. Not those that planners use.
        """
        neighbours, in_use = self.beside.neighbours, self.beside.all_in_use()
        kept = {problem.build_id, *self._shares.guaranteed(self._tenant_of(problem), problem.resident)}
        return [
            b
            for b in self._states.uncounted()
            if not b.pinned and b.build_id not in in_use and (b.build_id not in kept or b.build_id in neighbours)
        ]

    def _in_use(self, problem: RoomProblem) -> list[ResidentBuild]:
        """Unpinned builds that planners use beside what their applications count as their own: like those, they leave
        for a request that finds no room otherwise.
        """
        in_use = self.beside.all_in_use()
        if not in_use:
            return []
        kept = {problem.build_id, *self._shares.guaranteed(self._tenant_of(problem), problem.resident)}
        in_use -= kept
        return [b for b in self._states.uncounted() if not b.pinned and b.build_id in in_use]

    def _in_builds(
        self,
        plan: ResidencyPlan,
        requester: VariantGroup,
        strays: list[ResidentBuild],
        problem: RoomProblem,
        *,
        beside: bool,
    ) -> RoomPlan:
        victims = list(strays)
        replacements: list[Replacement] = []
        builds = self._states.builds
        gone = {stray.build_id for stray in strays}
        for change in plan.changes:
            group = self._groups.of_application(change.application)
            if group is None or change.before is None or (group is requester and beside):
                continue
            victim = builds.get(group.servable(change.before).build_id)
            if victim is None or victim.pinned or victim.build_id in gone:
                continue
            victims.append(victim)
            if change.after is not None and group is not requester:
                after = group.servable(change.after)
                if after.build_id in gone:
                    victims.remove(builds[after.build_id])
                elif after.build_id not in problem.leaving and after.build_id not in builds:
                    replacements.append(
                        Replacement(victim.build_id, after.build_id, after.resident_bytes, after.peak_bytes)
                    )
        freed = sum(b.freed_bytes for b in victims)
        if problem.free_bytes + freed < needed_in_turn(problem.need_bytes, replacements, problem.asleep):
            return RoomPlan((), 0, False, plan.reason)
        return RoomPlan(tuple(b.build_id for b in victims), freed, True, plan.reason, tuple(replacements))

    def _is_full(self, problem: RoomProblem, group: VariantGroup | None, option: Option | None) -> bool:
        """Whether the newcomer would take its tenant above its ceiling.

        Where nobody waits, what it comes in the place of does not count.
        """
        if problem.tenant is not None:
            return self._shares.full_of(problem.tenant, problem.need_bytes, problem.resident) is not None
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
        plan = self._fallback.plan(problem, self.beside.all_in_use() if not problem.is_urgent else ())
        self._records.ruled("last use", name, problem, plan)
        return plan

    def surplus(self, resident: tuple[ResidentBuild, ...], free_bytes: int, now_ns: int) -> list[str]:
        """Builds that must go, and their record, after a tenant's ceiling was lowered."""
        going = self._shares.surplus(resident)
        freed = sum(b.bytes for b in resident if b.build_id in going)
        plan = RoomPlan(tuple(going), freed, True, "a tenant has more than its ceiling")
        self._records.ruled("ceiling", None, RoomProblem(now_ns, "", 0, free_bytes, resident), plan)
        return going

    def may_leave(self, problem: RoomProblem, builds: Collection[str], process_bytes: int) -> bool:
        if self._is_full(problem, None, None):
            return False
        ending_bytes = {self._groups.tenant_of(build_id): process_bytes for build_id in builds}
        kept = self._shares.guaranteed(self._tenant_of(problem), problem.resident, ending_bytes)
        groups = (self._groups.of_build(build_id) for build_id in builds)
        is_expected = any(one is not None and self._expectations.of(one.name).is_maximalist for one in groups)
        return not is_expected and kept.isdisjoint(builds)

    def _tenant_of(self, problem: RoomProblem) -> str | None:
        """The tenant whose memory the newcomer is."""
        return self._groups.tenant_of(problem.build_id) if problem.tenant is None else problem.tenant

    def order_of_leaving(self, sleepers: Sequence[ResidentBuild]) -> list[str]:
        return self._shares.order_of_leaving(sleepers)

    def asleep_above_ceiling(
        self, sleepers: Sequence[ResidentBuild], residents: Callable[[], Iterable[ResidentBuild]]
    ) -> Collection[str]:
        return self._shares.asleep_above_ceiling(sleepers, residents)

    # -- neighbours ----------------------------------------------------------------------------------------------------

    @property
    def beside(self) -> BesideBuilds:
        """What may be in memory beside what groups count as their own."""
        return self._states.beside

    def come_beside(self, build_id: str, *, is_neighbour: bool) -> None:
        """It comes beside what its group counts as its own, into memory that is free; planners use it where it is no
        neighbour. `end_coming` follows.
        """
        self._states.come_beside(build_id, is_neighbour=is_neighbour)

    def end_coming(self) -> None:
        """Forget the neighbour on its way: its load has ended, or a request has joined the load."""
        self.beside.coming = None

    def left(self, build_id: str) -> None:
        """It is in memory no more."""
        self.beside.discard(build_id)

    def neighbours(self, resident: Sequence[ResidentBuild], asleep: Mapping[str, int] = _NOBODY) -> list[ResidentBuild]:
        """Those that are there and may leave, by id."""
        self._states.look(resident, asleep)
        return self._states.neighbours()

    def absent_floor_bytes(self) -> int:
        """The most that the smallest variant of any application takes to come that has nothing in memory, as at the
        last question.
        """
        absent = (state.floor.peak_bytes for state in self._states.all() if state.resident is None)
        return max(absent, default=0)

    def gave_way(self, problem: RoomProblem, left: Sequence[ResidentBuild]) -> None:
        """Neighbours left for somebody who needed the memory: into the record."""
        freed = sum(build.freed_bytes for build in left)
        plan = RoomPlan(
            tuple(build.build_id for build in left), freed, True, "neighbours leave where other variants need memory"
        )
        self._records.ruled("neighbours", None, problem, plan)

    def brings(self, group: VariantGroup, problem: NeighbourProblem, plan: NeighbourPlan) -> None:
        """A neighbour comes: into the record."""
        self._records.neighbour(group, problem, plan)

    # -- questions -----------------------------------------------------------------------------------------------------

    def _problem(
        self,
        memory_bytes: int,
        now_ns: int,
        request: str | None,
        intent: Intent,
        *,
        only: VariantGroup | None = None,
        beside: bool = False,
        strays: Sequence[ResidentBuild] = (),
    ) -> ResidencyProblem:
        """The policy's problem, to what memory held at the last look.

        `only` stands in for the requester's group. `beside`: its present variant stays until the new one is there.
        `strays` leave in any case. What a build keeps, or will when it leaves, is neither in `memory_bytes` nor in its
        option.
        """
        states = self._states
        gone = {stray.build_id for stray in strays}
        others_bytes = states.freed_bytes - states.counted_bytes - sum(b.freed_bytes for b in strays)
        """Of builds that the policy does not see."""
        changed: dict[str, ApplicationState] = {}
        for group in {b.build_id: self._groups.of_build(b.build_id) for b in strays if b.kept_bytes}.values():
            if group is not None:
                changed[group.name] = states.without(group, gone)
        asker = None if request is None else self._groups.of_application(request)
        hidden: ResidentBuild | None = None
        if asker is not None:
            build = states.resident(asker.name)
            options = states.options(asker, build)
            is_pinned = beside or (build is not None and build.pinned)
            if beside and intent == "serve" and build is not None:  # what is there will not do for this request
                others_bytes += build.freed_bytes
                hidden, build = build, None
            if only is not None:
                present = None if build is None else asker.option(build.build_id)
                options = tuple(o for o in asker.options if o is present or o in only.options)
            changed[asker.name] = states.state(asker, options, build, is_pinned=is_pinned, without=gone)
        applications = states.all()
        if changed:
            found = list(applications)
            for name, state in changed.items():
                found[states.place(name)] = state
            applications = tuple(found)
        unseen = () if only is None or intent != "procure" else only.builds
        return ResidencyProblem(
            now_ns=now_ns,
            memory_bytes=memory_bytes - others_bytes,
            history_window_ns=self._expectations.history_ns,
            delta_ns=self._expectations.delta_ns,
            applications=applications,
            request=request,
            intent=intent,
            tenants=self._shares.less(
                (b for b in states.apart(hidden) if b.build_id not in gone and b.build_id not in unseen),
                "" if only is None else only.servables[0].build_id,
            ),
            spread_ns=self._expectations.spread_ns,
            unexpected={} if request is None else self._expectations.beside(request),
        )

    def problem(
        self,
        memory_bytes: int,
        resident: Sequence[ResidentBuild],
        now_ns: int,
        request: str | None,
        intent: Intent,
        asleep: Mapping[str, int] = _NOBODY,
    ) -> ResidencyProblem:
        """The policy's problem about all of a group's variants; `memory_bytes`: what builds may take.

        `asleep`: builds that sleep, and what they keep.
        """
        self._states.look(resident, asleep)
        memory_bytes -= sum(asleep.values()) + self._states.kept_bytes
        return self._problem(memory_bytes, now_ns, request, intent, strays=self._states.neighbours())

    def decide(
        self,
        memory_bytes: int,
        resident: Sequence[ResidentBuild],
        now_ns: int,
        request: str | None,
        intent: Intent,
        asleep: Mapping[str, int] = _NOBODY,
        since_ns: int | None = None,
    ) -> ResidencyPlan:
        """Ask the policy about all of a group's variants, and record what it said.

        `memory_bytes`: what builds may take. `since_ns`: since when a request waits for it.
        """
        problem = self.problem(memory_bytes, resident, now_ns, request, intent, asleep)
        plan = self._policy.plan(problem)
        self._records.planned(problem, plan, since_ns)
        return plan

    def rebalance(
        self,
        memory_bytes: int,
        resident: Sequence[ResidentBuild],
        now_ns: int,
        asleep: Mapping[str, int] = _NOBODY,
    ) -> Steps:
        """The same where nobody in particular asks, in parts: what memory held when the first one began is decided
        about.
        """
        problem = self.problem(memory_bytes, resident, now_ns, None, "rebalance", asleep)
        if len(problem.applications) > PART:
            yield
        plan = yield from in_steps(self._policy, problem)
        self._records.planned(problem, plan)
        return plan


def _brings(plan: ResidencyPlan, group: VariantGroup, option: Option) -> bool:
    """Whether the group gets this variant."""
    return any(change.application == group.name and change.after == option.name for change in plan.changes)


def _process_group(tenant: str, count_bytes: int) -> VariantGroup:
    """A process that a request of a tenant needs, as policies see what comes for a request.

    Its name is the tenant's, which is no application's.
    """
    option = Option("a process", count_bytes, count_bytes, 100.0, 1)
    return VariantGroup(tenant, (), tenant, 1.0, 0.0, (option,), (), frozenset(), frozenset(), {})
