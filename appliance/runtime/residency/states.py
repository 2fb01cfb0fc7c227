"""What a plan needs of each application, kept by change: its state is made anew when something of it has changed, and
nothing is done about the others.

Groups and expectations say of whom they know something else; what is in memory is compared with what it was at the last
question.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from appliance.policies.residency.base import PROMISED, ApplicationState, Option, Wish
from appliance.runtime.memory.room import ResidentBuild
from appliance.runtime.residency.beside import BesideBuilds
from appliance.runtime.residency.demand import Expectations
from appliance.runtime.residency.groups import VariantGroup, VariantGroups
from appliance.runtime.servable import Servable

_NOBODY: Mapping[str, int] = {}


class ApplicationStates:
    """The states of all groups, to what memory held at the last `look`. Event-loop thread only."""

    def __init__(self, groups: VariantGroups, expectations: Expectations, beside: BesideBuilds) -> None:
        self._groups = groups
        self._expectations = expectations
        self.beside = beside
        self._changing: set[str] = set()
        self._without: set[str] = set()
        """Builds that cannot be loaded now."""
        self._version = -1
        self._stale: set[str] = set()
        """Groups whose states are to be made anew."""
        self._place: dict[str, int] = {}
        self._states: list[ApplicationState] = []
        self._all: tuple[ApplicationState, ...] | None = ()
        self._counted: dict[str, ResidentBuild] = {}
        """Group → its resident variant, as the policy sees it."""
        self._seen: tuple[ResidentBuild, ...] = ()
        self._asleep: Mapping[str, int] = _NOBODY
        self.builds: dict[str, ResidentBuild] = {}
        """What was in memory, by id."""
        self.freed_bytes = 0
        """What would be free without any of that."""
        self.kept_bytes = 0
        """What of it stays when it sleeps."""
        self.counted_bytes = 0
        """Of `freed_bytes`, those of builds that the policy sees as some group's resident variant."""

    # -- what else the loop says of groups, by name --------------------------------------------------------------------

    def begin_change(self, name: str) -> None:
        """Its variant is about to change: what it has is not to be taken for somebody else until `end_change`."""
        self._changing.add(name)
        self._stale.add(name)

    def end_change(self, name: str) -> None:
        """It has changed, or it came to nothing."""
        self._changing.discard(name)
        self._stale.add(name)

    def go_without(self, build_id: str) -> None:
        """It cannot be loaded, until `go_with`: it is no option, where there is another one."""
        self._without.add(build_id)
        self._touch((build_id,))

    def go_with(self, build_id: str) -> None:
        """It can again."""
        self._without.discard(build_id)
        self._touch((build_id,))

    def wish(self, group: VariantGroup, wishes: tuple[Wish, ...]) -> None:
        """Replace what planners wish for a group. What they do not use any more stays as a neighbour; where nobody
        else is expected to ask, so does all else that the group has.
        """
        name = group.name
        going = self.beside.wish(group, wishes)
        in_use = self.beside.in_use(name)
        if in_use:
            others = group.builds if self._is_planned_only(group) else going
            for build_id in (others & self.builds.keys()) - set(in_use):
                self.beside.add(build_id)
        self._stale.add(name)

    def adopt(self, build_id: str) -> None:
        """Its group counts it as its own from now on, where it is there as a neighbour."""
        if build_id in self.beside.neighbours:
            self.beside.discard(build_id)
            self._touch((build_id,))

    def come_beside(self, build_id: str, *, is_neighbour: bool) -> None:
        """It comes beside what its group counts as its own; planners use it where it is no neighbour."""
        self.beside.coming = build_id
        if is_neighbour:
            self.beside.add(build_id)
        self._touch((build_id,))

    def forget(self, name: str) -> None:
        """The group is gone."""
        self.beside.forget(name)

    # -- questions -----------------------------------------------------------------------------------------------------

    def look(self, resident: Sequence[ResidentBuild], asleep: Mapping[str, int]) -> None:
        """Take over what is in memory and what has changed since the last time."""
        if self._version != self._groups.version:
            self._begin_anew()
        if asleep is not self._asleep:
            self._touch(build_id for build_id, _ in asleep.items() ^ self._asleep.items())
            self._asleep = asleep
        if resident is not self._seen:
            self._compare(tuple(resident))
        stale = self._stale
        stale |= self._groups.remade
        stale |= self._expectations.moved
        self._groups.remade.clear()
        self._expectations.moved.clear()
        if stale:
            self._all = None
        for name in stale:
            place = self._place.get(name)
            if place is not None:
                self._make(place, name)
        stale.clear()

    def all(self) -> tuple[ApplicationState, ...]:
        """By name, as at the last `look`."""
        if self._all is None:
            self._all = tuple(self._states)
        return self._all

    def place(self, name: str) -> int:
        """Where a group stands in `all`."""
        return self._place[name]

    def resident(self, name: str) -> ResidentBuild | None:
        """What a group has in memory, as the policy sees it."""
        return self._counted.get(name)

    def own(self, group: VariantGroup, builds: Set[str]) -> Servable | None:
        """The variant that a group counts as its own of what is in memory: the most accurate that is no neighbour.
        Where there are only neighbours, and planners use none of what is there, one of them will do.
        """
        servable = group.resident(builds, self.beside.neighbours)
        if servable is None and builds.isdisjoint(self.beside.in_use(group.name)):
            servable = group.resident(builds)
        return servable

    def uncounted(self) -> list[ResidentBuild]:
        """Builds that are no group's resident variant, by id."""
        others = self.builds.keys() - {build.build_id for build in self._counted.values()}
        return [self.builds[build_id] for build_id in sorted(others)]

    def neighbours(self) -> list[ResidentBuild]:
        """Those of them that are neighbours and not in use, by id: they leave before anybody has to do with less."""
        found = self.beside.neighbours
        return [build for build in self.uncounted() if build.build_id in found and not build.pinned] if found else []

    def apart(self, hidden: ResidentBuild | None = None) -> Iterator[ResidentBuild]:
        """What the policy does not see of the builds in memory, by tenants' shares: those that are no group's, and
        `hidden`, whole, and of the others what they keep.
        """
        counted = {build.build_id for build in self._counted.values()}
        for build in self.builds.values():
            if build is hidden or build.build_id not in counted:
                yield build
            elif build.kept_bytes:
                yield build._replace(bytes=build.kept_bytes)

    def options(self, group: VariantGroup, build: ResidentBuild | None) -> tuple[Option, ...]:
        """Those of a group that can be loaded, and the one that it has; all of them where none can."""
        if self._without.isdisjoint(group.builds):
            return group.options
        there = None if build is None else build.build_id
        pairs = zip(group.options, group.servables, strict=True)
        return tuple(o for o, s in pairs if s.build_id == there or s.build_id not in self._without) or group.options

    def state(
        self,
        group: VariantGroup,
        options: tuple[Option, ...],
        build: ResidentBuild | None,
        *,
        is_pinned: bool,
        without: Collection[str] = (),
    ) -> ApplicationState:
        """Of a group that would have this of its options in memory, and not the builds in `without`."""
        expectation, name = self._expectations.of(group.name), group.name
        return ApplicationState(
            name=name,
            options=self._less_kept(group, options, without),
            resident=None if build is None else self._groups.variant_of(build.build_id),
            pinned=is_pinned,
            last_request_ns=expectation.arrivals_ns[-1] if expectation.arrivals_ns else None,
            next_request_ns=expectation.next_ns,
            later_requests_ns=expectation.later_ns,
            spread_ns=self._expectations.own_spread_ns(name),
            prediction_hit_rate=self._expectations.hit_rate(name),
            rate=expectation.rate,
            tenant=group.tenant,
            weight=group.weight,
            accuracy_min=group.accuracy_min,
            wishes=self._wishes_for(group, options, build),
        )

    def without(self, group: VariantGroup, gone: Collection[str]) -> ApplicationState:
        """Of a group if those builds, which it does not count, were not in memory."""
        build = self._counted.get(group.name)
        options, is_pinned = self._shown(group, build)
        return self.state(group, options, build, is_pinned=is_pinned, without=gone)

    # -- keeping -------------------------------------------------------------------------------------------------------

    def _begin_anew(self) -> None:
        """The groups are others."""
        self._version = self._groups.version
        names = [group.name for group in self._groups.all()]
        self._place = {name: place for place, name in enumerate(names)}
        blank = ApplicationState("", (), None)
        self._states = [blank] * len(names)
        self._counted = {}
        self.counted_bytes = 0
        self._stale.update(names)

    def _compare(self, resident: tuple[ResidentBuild, ...]) -> None:
        before, now = self.builds, {build.build_id: build for build in resident}
        changed = [build for build_id, build in now.items() if before.get(build_id) is not build]
        gone = [before[build_id] for build_id in before.keys() - now.keys()]
        for build in changed:
            self._count(build, 1)
            former = before.get(build.build_id)
            if former is not None:
                self._count(former, -1)
        for build in gone:
            self._count(build, -1)
        self._seen, self.builds = resident, now
        self._touch(build.build_id for build in (*changed, *gone))

    def _count(self, build: ResidentBuild, sign: int) -> None:
        self.freed_bytes += sign * build.freed_bytes
        self.kept_bytes += sign * build.kept_bytes

    def _touch(self, build_ids: Iterable[str]) -> None:
        for build_id in build_ids:
            group = self._groups.of_build(build_id)
            if group is not None:
                self._stale.add(group.name)

    def _make(self, place: int, name: str) -> None:
        group = self._groups.of_application(name)
        assert group is not None, name
        servable = self.own(group, self.builds.keys())
        build = None if servable is None else self.builds[servable.build_id]
        former = self._counted.pop(name, None)
        if former is not None:
            self.counted_bytes -= former.freed_bytes
        if build is not None:
            self._counted[name] = build
            self.counted_bytes += build.freed_bytes
        options, is_pinned = self._shown(group, build)
        self._states[place] = self.state(group, options, build, is_pinned=is_pinned)

    def _is_planned_only(self, group: VariantGroup) -> bool:
        """Whether planners use variants of a group, and nobody else is expected to ask for it."""
        return bool(self.beside.in_use(group.name)) and self._expectations.of(group.name).next_ns is None

    def _shown(self, group: VariantGroup, build: ResidentBuild | None) -> tuple[tuple[Option, ...], bool]:
        """Return (options, is_pinned) of a group for a plan that makes room for another application.

        A pinned group must stay as the plan found it. A group used by planners alone offers its build, the variants
        in use, the variants promised to sessions, and smaller substitutes; larger variants would stay unused.
        """
        options, is_pinned = self.options(group, build), self._is_pinned(group, build)
        if not self._is_planned_only(group):
            return options, is_pinned
        shown = {build.build_id} if build is not None else set[str]()
        shown |= {*self.beside.in_use(group.name), *self.beside.promised(group.name)}
        if build is not None:
            shown |= self._substitutes(group, build)
        names = {o.name for o, s in zip(group.options, group.servables, strict=True) if s.build_id in shown}
        kept = tuple(option for option in options if option.name in names)
        return (kept, is_pinned) if kept else (options, True)

    def _substitutes(self, group: VariantGroup, build: ResidentBuild) -> set[str]:
        """Builds that are smaller than the one that a group has, and would do for planners in its place."""
        found = self.beside.substitutes(group.name)
        if not found:
            return set()
        smaller = itertools.dropwhile(lambda servable: servable.build_id != build.build_id, group.servables)
        return {servable.build_id for servable in smaller if servable.build_id in found}

    def _wishes_for(
        self, group: VariantGroup, options: tuple[Option, ...], build: ResidentBuild | None
    ) -> tuple[Wish, ...]:
        """Those for what is an option: planners may name what is not worth keeping, or cannot be loaded now. What is
        promised and stays in memory beside `build`, which the group counts as its own, is no reason to keep that; where
        it is no option, and not in memory, it is what planners use that is kept.
        """
        wishes = self.beside.wishes(group.name)
        if not wishes:
            return ()
        names = {option.name for option in options}
        found = [wish for wish in wishes if wish.variant in names and wish.priority < PROMISED]
        for wish in wishes:
            if wish.priority < PROMISED or wish.variant not in group.variants:
                continue
            promised, own = group.variants[wish.variant].build_id, None if build is None else build.build_id
            if promised != own and promised in self.builds and promised not in self.beside.neighbours:
                continue
            if wish.variant in names:
                found.append(wish)
            elif own in self.beside.in_use(group.name):
                found.append(replace(wish, variant=self._groups.variant_of(own or "") or ""))
        return tuple(found)

    def _is_pinned(self, group: VariantGroup, build: ResidentBuild | None) -> bool:
        """Whether its variant cannot change; that of a group of which nothing can be loaded cannot, either."""
        if (build is not None and build.pinned) or group.name in self._changing:
            return True
        return build is None and bool(self._without) and self._without.issuperset(s.build_id for s in group.servables)

    def _less_kept(
        self, group: VariantGroup, options: tuple[Option, ...], without: Collection[str]
    ) -> tuple[Option, ...]:
        """The options without what their builds keep asleep, or will when they leave: to the policy a build takes what
        its leaving frees, and what its waking needs. Those that keep nothing as they are.
        """
        kept = [self._kept(group.servable(option.name).build_id, without) for option in options]
        if not any(kept):
            return options
        return tuple(o if count == 0 else _awake(o, count) for o, count in zip(options, kept, strict=True))

    def _kept(self, build_id: str, without: Collection[str]) -> int:
        build = self.builds.get(build_id)
        if build is not None and build.kept_bytes and build_id not in without:
            return build.kept_bytes
        return self._asleep.get(build_id, 0)


def _awake(option: Option, kept_bytes: int) -> Option:
    size = max(0, option.bytes - kept_bytes)
    return replace(option, bytes=size, peak_bytes=size, sleeps=True)
