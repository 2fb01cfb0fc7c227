"""The groups of the box: which builds can stand in for one another, as the residency policies see them (EM-01).

A group belongs to an application; applications of one model, and models of equal content, share one, for their builds
are the same memory.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import Prefer
from appliance.domain.slo import preferred
from appliance.policies.residency.base import Option
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.servable import LOAD_NS_PER_BYTE, Servable

_PREFERRED_POINTS = 0.001
"""What requests get first counts as so much more accurate than an equally accurate variant that they get next: policies
know accuracies only. It comes where there is room, and nobody gives way for so little.
"""
_WHOLE = " whole"
"""Behind the name of a variant: what serves while its parts are not there. No variant is called so."""
_WAKE_NS_PER_BYTE = 0.05
"""Time of a wake assumed until it is measured, with the file in the page cache: twenty gigabytes a second."""


@dataclass(frozen=True, slots=True)
class VariantGroup:
    """The variants worth keeping in memory, those that the SLO prefers first, of these what requests get first.

    A smaller one is less wanted, or it would not be here, and never more accurate.
    """

    name: str
    """The first of its applications, by id."""
    applications: tuple[str, ...]
    tenant: str
    weight: float
    accuracy_min: float
    """Points, as the options' accuracies."""
    options: tuple[Option, ...]
    servables: tuple[Servable, ...]
    """Of each option, in the same order."""
    stand_ins: frozenset[str]
    """Builds that serve whole while the parts of their network are not there: options of their own, each the next
    smaller one to its parts. Those come beside them or not at all: nobody is left with nothing for them."""
    builds: frozenset[str]
    """All builds of its models, those that are no option included."""
    variants: Mapping[str, Servable]
    """By name, those that are no option included."""

    def servable(self, option: str) -> Servable:
        """The servable of an option. Raises: StopIteration for a name that is none."""
        return next(s for s, o in zip(self.servables, self.options, strict=True) if o.name == option)

    def option(self, build_id: str) -> Option | None:
        """The option that a build is; None for one that is no option."""
        pairs = zip(self.servables, self.options, strict=True)
        return next((o for s, o in pairs if s.build_id == build_id), None)

    def resident(self, builds: Container[str], without: Container[str] = ()) -> Servable | None:
        """The most accurate option among `builds`, where looking one up takes no search: many are asked about."""
        for servable in self.servables:
            if servable.build_id in builds and servable.build_id not in without:
                return servable
        return None


class VariantGroups:
    """The groups of a catalogue, made anew when it has changed.

    `load_ns` of a build is what was seen last, else what was measured at import; of one that sleeps, or will when it
    leaves, that of a wake.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._version = -1
        self._out = 0
        self._unloaded: set[str] = set()
        """Applications that somebody unloaded explicitly: nothing of theirs is brought until they are loaded again."""
        self._by_name: dict[str, VariantGroup] = {}
        self._by_application: dict[str, VariantGroup] = {}
        self._by_build: dict[str, VariantGroup] = {}
        self._best: frozenset[str] = frozenset()
        self._variants: dict[str, str] = {}
        self._sharing: Mapping[str, tuple[str, ...]] = {}
        self._slowest_floor_ns: int | None = None
        self.remade: set[str] = set()
        """Groups that were made anew one by one since somebody looked here, who empties it; not those of a new
        `version`.
        """
        self._load_ns: dict[str, int] = {}
        self._wake_ns: dict[str, int] = {}
        self._waking: set[str] = set()
        """Builds that come by a wake when they are wanted next, or are there and would."""

    @property
    def version(self) -> int:
        """Grows with every change of what there is."""
        return self._catalogue.version + self._out

    def leave_out(self, application_id: str) -> None:
        """Bring nothing for this application any more."""
        self._unloaded.add(application_id)
        self._out += 1

    def take_in(self, application_id: str) -> None:
        """Undo `leave_out`."""
        self._unloaded.discard(application_id)
        self._out += 1

    def all(self) -> Collection[VariantGroup]:
        """By name."""
        self._refresh()
        return self._by_name.values()

    def best_builds(self) -> frozenset[str]:
        """The most wanted build of every group; the same object until there are others."""
        self._refresh()
        return self._best

    def variant_of(self, build_id: str) -> str | None:
        """The name of the option that a build is; None for one that is none."""
        self._refresh()
        return self._variants.get(build_id)

    def sharing(self) -> Mapping[str, tuple[str, ...]]:
        """Groups of several applications, and which."""
        self._refresh()
        return self._sharing

    def slowest_floor_ns(self) -> int:
        """The longest that the smallest variant of any group takes to come."""
        self._refresh()
        if self._slowest_floor_ns is None:
            self._slowest_floor_ns = max((group.options[-1].load_ns for group in self._by_name.values()), default=0)
        return self._slowest_floor_ns

    def users_of(self, build_id: str) -> tuple[str, ...]:
        """The applications that refer to a build, by id."""
        return self._catalogue.users_of(build_id)

    def of_application(self, application_id: str) -> VariantGroup | None:
        self._refresh()
        return self._by_application.get(application_id)

    def of_build(self, build_id: str) -> VariantGroup | None:
        self._refresh()
        return self._by_build.get(build_id)

    def tenant_of(self, build_id: str) -> str | None:
        """The tenant whose memory a build is: that of its group, else of the first application that refers to it."""
        group = self.of_build(build_id)
        if group is not None:
            return group.tenant
        users = self.users_of(build_id)
        return self._catalogue.entry(users[0]).model.tenant if users else None

    def loaded(self, build_id: str, load_ns: int) -> None:
        """Take over how long a load took (EM-08); what is far from the last one moves the figure halfway."""
        self._take_over(self._load_ns, build_id, load_ns)

    def woken(self, build_id: str, wake_ns: int) -> None:
        """The same of a wake."""
        self._take_over(self._wake_ns, build_id, wake_ns)

    def comes_by_wake(self, build_id: str, *, wakes: bool) -> None:
        """Whether a build comes by a wake when it is wanted next."""
        if wakes is (build_id in self._waking):
            return
        if wakes:
            self._waking.add(build_id)
        else:
            self._waking.discard(build_id)
        self._measure_anew(build_id)

    def _take_over(self, figures: dict[str, int], build_id: str, took_ns: int) -> None:
        known = figures.get(build_id)
        figure = took_ns if known is None else (known + took_ns) // 2
        figures[build_id] = figure
        if known is None or abs(figure - known) * 10 > known:
            self._measure_anew(build_id)

    def _measure_anew(self, build_id: str) -> None:
        """Only the group of the build: to make all of them anew at every load would take longer than the load."""
        old = self.of_build(build_id)
        if old is None:
            return
        new = replace(old, options=self._options(old.servables, old.stand_ins))
        slowest_ns = self._slowest_floor_ns
        if slowest_ns is not None and new.options[-1].load_ns >= slowest_ns:
            self._slowest_floor_ns = new.options[-1].load_ns
        elif slowest_ns == old.options[-1].load_ns:
            self._slowest_floor_ns = None
        self.remade.add(new.name)
        self._by_name[new.name] = new
        self._by_application.update(dict.fromkeys(new.applications, new))
        self._by_build.update(dict.fromkeys(new.builds, new))

    def _refresh(self) -> None:
        if self._version == self.version:
            return
        self._version = self.version
        groups = _groups([e for e in self._catalogue.entries() if e.application.id not in self._unloaded])
        made = sorted((self._group(group) for group in groups), key=lambda group: group.name)
        self._by_name = {group.name: group for group in made}
        self._sharing = {group.name: group.applications for group in made if len(group.applications) > 1}
        self._slowest_floor_ns = None
        self._best = frozenset(group.servables[0].build_id for group in made)
        self._variants = {s.build_id: o.name for g in made for s, o in zip(g.servables, g.options, strict=True)}
        self._by_application = {a: group for group in made for a in group.applications}
        self._by_build = {b: group for group in made for b in group.builds}
        self._load_ns = {b: ns for b, ns in self._load_ns.items() if b in self._by_build}
        self._wake_ns = {b: ns for b, ns in self._wake_ns.items() if b in self._by_build}

    def _group(self, entries: list[Entry]) -> VariantGroup:
        first = entries[0]
        applications = [e.application for e in entries]
        accuracy_min = max(a.accuracy_min for a in applications)
        slos_ms = {a.latency_slo_ms for a in applications if a.latency_slo_ms is not None}
        # Each kind of application and each variant once: a fleet of devices may have an application each.
        choosing = {e.application.unverified: e.application for e in entries if e.order}.values()
        wanted: dict[tuple[str, str], Servable] = {}
        for servable in (s for e in entries for s in e.order):
            wanted.setdefault((servable.variant.id, servable.build_id), servable)
        servables = [s for s in wanted.values() if all(a.may_choose(s.variant) for a in choosing)]
        stand_ins = {s.whole.build_id: s.build_id for s in servables if s.whole is not None}
        forms = [form for s in servables for form in s.forms]
        servables = _worth_keeping(forms, accuracy_min, slos_ms, _places(entries), stand_ins)
        return VariantGroup(
            name=first.application.id,
            applications=tuple(a.id for a in applications),
            tenant=first.model.tenant,
            weight=sum(a.weight for a in applications),
            accuracy_min=accuracy_min,
            options=self._options(servables, stand_ins),
            servables=tuple(servables),
            stand_ins=frozenset(stand_ins),
            builds=frozenset(build for e in entries for s in e.servables.values() for build in s.builds),
            variants={name: s for e in reversed(entries) for name, s in e.servables.items()},
        )

    def _options(self, servables: Sequence[Servable], stand_ins: Container[str]) -> tuple[Option, ...]:
        """In their order, each more accurate than the next."""
        options: list[Option] = []
        for servable in reversed(servables):
            points = servable.accuracy
            if options and points <= options[-1].accuracy:
                points = options[-1].accuracy + _PREFERRED_POINTS
            name = f"{servable.name}{_WHOLE}" if servable.build_id in stand_ins else servable.name
            options.append(self._option(name, servable, points))
        return tuple(reversed(options))

    def _option(self, name: str, servable: Servable, points: float) -> Option:
        comes_ns = self._wake_ns_of(servable) if servable.build_id in self._waking else self.load_ns(servable)
        return Option(name, servable.resident_bytes, servable.peak_bytes, points, max(1, comes_ns))

    def load_ns(self, servable: Servable) -> int:
        """What a load takes, asleep or not."""
        seen_ns, profile = self._load_ns.get(servable.build_id), servable.profile
        if seen_ns is not None:
            return seen_ns
        return int(profile.load_ms * NS_PER_MS) if profile else int(LOAD_NS_PER_BYTE * servable.resident_bytes)

    def _wake_ns_of(self, servable: Servable) -> int:
        seen_ns, profile = self._wake_ns.get(servable.build_id), servable.profile
        if seen_ns is not None:
            return seen_ns
        measured_ns = None if profile is None else profile.wake_ns
        return int(_WAKE_NS_PER_BYTE * servable.resident_bytes) if measured_ns is None else measured_ns


def _groups(entries: list[Entry]) -> list[list[Entry]]:
    """Entries that share a build stand together; each group and the groups in the order of `entries`."""
    group_of: dict[str, list[Entry]] = {}
    groups: list[list[Entry]] = []
    for entry in entries:
        builds = [build for s in entry.servables.values() for build in s.builds]
        group = next((group_of[b] for b in builds if b in group_of), None)
        if group is None:
            group = []
            groups.append(group)
        group.append(entry)
        for build in builds:
            group_of.setdefault(build, group)
    return [group for group in groups if any(e.order for e in group)]


def _places(entries: list[Entry]) -> dict[str, int]:
    """Build → its place among what requests get first; none where an application wants the most accurate: then
    accuracy decides. Where some prefer balance and others speed, balance does.
    """
    wanted = {e.application.prefer for e in entries}
    if Prefer.ACCURACY in wanted:
        return {}
    prefer = Prefer.BALANCED if Prefer.BALANCED in wanted else Prefer.SPEED
    strictest = max((e for e in entries if e.application.prefer is prefer), key=lambda e: e.application.accuracy_min)
    places: dict[str, int] = {}
    for place, servable in enumerate(strictest.order):
        places.setdefault(servable.build_id, place)
    return places


def _worth_keeping(
    servables: list[Servable],
    accuracy_min: float,
    slos_ms: Collection[float],
    places: dict[str, int],
    stand_ins: Mapping[str, str],
) -> list[Servable]:
    """One servable a build (its most wanted rung), without those that another beats in both size and what is wanted.

    Wanted are, of the accurate enough, those that the SLOs prefer, by their `places`; then the most accurate. Policies
    know accuracies only, so one that is less wanted is left out where it is more accurate than one that stays. What
    serves in the place of parts (`stand_ins`: its build → that of the parts) comes next after these.
    """
    enough = [s for s in servables if s.variant.accuracy_points >= accuracy_min] or servables
    for slo_ms in sorted(slos_ms, reverse=True):  # the strictest last: where nobody keeps it, the others still count
        enough = preferred(enough, lambda s: s.p99_ms, slo_ms)
    first = {(s.variant.id, s.build_id) for s in enough}
    sizes = {s.build_id: s.resident_bytes for s in servables}

    def rank(servable: Servable) -> tuple[bool, int, float, int, str, bool]:
        variant = servable.variant
        is_other = (variant.id, servable.build_id) not in first
        build = stand_ins.get(servable.build_id, servable.build_id)
        place = 0 if is_other else places.get(build, len(places))
        is_stand_in = servable.build_id in stand_ins
        return is_other, place, -variant.accuracy_points, sizes[build], variant.name, is_stand_in

    kept: list[Servable] = []
    for servable in sorted(servables, key=rank):
        is_smaller = not kept or servable.resident_bytes < kept[-1].resident_bytes
        if is_smaller and not (kept and servable.variant.accuracy_points > kept[-1].variant.accuracy_points):
            kept.append(servable)
    return kept
