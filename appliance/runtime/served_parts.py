"""A network in parts as it serves: which part runs on which kind of processor of each group, what that takes, and what
all of them are together in memory.

The parts that serve together are one build to whoever owns memory: none of them answers anything without the others.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from appliance.domain.catalogue import Latency, Profile, Variant
from appliance.domain.names import JOINED, part_build_id, parts_build_id
from appliance.domain.parts import Cut, PartProfile
from appliance.policies.dispatch.partition import Operator, Partition, partition
from appliance.policies.dispatch.search import search
from appliance.policies.selection.kinds import quickest_kinds
from appliance.runtime.ports import RunGroup
from appliance.runtime.profiles.store import MEASURED, BuildTimes, Where

PASS_MS = 0.15
"""What each further run of a part takes beside the run: the way to another thread, and back."""
TRANSFER_MS = 0.15
"""To go on with another group of processors: a place in its queue. Bringing tensors to a device and back is in what
its runs take.
"""

Place = Mapping[str, Where]
"""Kinds of processors that run on the same cores, or device → the name under which it is learnt what they take there.
"""
TimesOf = Callable[[str, Profile, Where, bool], BuildTimes | None]
"""Gives what runs of a build take, by a profile that was measured or estimated."""


@dataclass(frozen=True, slots=True)
class ServedParts:
    """The parts of one variant. `build_id`: of all of them together, on the kinds `kind`, joined; `profile`: what that
    costs, were all processors idle.
    """

    cut: Cut
    build_id: str
    kind: str
    kinds: Mapping[int, tuple[str | None, ...]]
    """Group of processors → the kind there that each part runs on; None: none does."""
    builds: Mapping[tuple[int, str], str]
    """Number of a part and kind → the build of that part."""
    profile: Profile
    times: Mapping[tuple[int, int], BuildTimes | None]
    """Group and number of a part → what its runs take there."""
    first_copies: int = 1
    """How often a build of the first kind, which runs every part, is in memory."""
    spent_ms: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """By batch, what a run takes of each kind in the quickest sequence, were all processors idle; ways between groups
    are not in it.
    """

    @property
    def home(self) -> str:
        """The kind that most of a run is spent on: it is planned on one of that, beside what it takes of others."""
        if not self.spent_ms:
            return ""
        own = next(iter(self.spent_ms.values()))
        return max(own, key=lambda kind: own[kind])


def places_of(groups: Sequence[RunGroup], kinds: Sequence[str]) -> list[Place]:
    """Of each group of processors the kinds, of those that take runs now; with one group it has all."""
    if len(groups) < 2:
        return [dict.fromkeys(kinds, MEASURED)]
    return [{kind: where_of(group, kind) for kind in kinds if kind in group.kinds} for group in groups]


def where_of(group: RunGroup, kind: str) -> Where:
    """Where what runs of a kind take in a group is learnt."""
    name = group.kinds[kind]
    return Where(name, group.speed) if name else MEASURED


def served_parts(
    variant: Variant,
    scale: float,
    places: Sequence[Place],
    copies: Callable[[str], int],
    times_of: TimesOf,
    *,
    leaves_out: bool = False,
) -> ServedParts | None:
    """A variant that is cut, in parts; None where that serves nothing: one kind would run them all, or some part runs
    nowhere. `scale`: how much longer its runs take than those of the variant that its cut was timed with; `copies`: how
    often a build of a kind is in memory. `leaves_out`: a part is loaded only in the groups where the quickest sequence
    of some batch runs it (Band, section 4.2, loads all).
    """
    cut = variant.cut
    assert cut is not None and variant.profile is not None
    kinds = {
        at: quickest_kinds(
            [
                {one.kind: one.p50_ms() / place[one.kind].speed for one in part.profiles if one.kind in place}
                for part in cut.parts
            ],
            list(place),
        )
        for at, place in enumerate(places)
    }
    able = [{chosen[number] for chosen in kinds.values()} - {None} for number in range(len(cut.parts))]
    if not all(able) or len(frozenset().union(*able)) < 2:
        return None
    sequences = {row.batch: _sequence(cut, kinds, places, row.batch) for row in cut.parts[0].profiles[0].times}
    if leaves_out:
        run = {(at, number) for one in sequences.values() for number, at in one.ran_at.items()}
        kinds = {
            at: tuple(kind if (at, number) in run else None for number, kind in enumerate(chosen))
            for at, chosen in kinds.items()
        }
    builds = {
        (number, kind): part_build_id(variant.content_sha256, number, kind)
        for chosen in kinds.values()
        for number, kind in enumerate(chosen)
        if kind is not None
    }
    used = [kind for kind in cut.kinds if any(kind == own for _number, own in builds)]
    if len(used) < 2:
        return None
    costs = {key: _cost(cut, *key) for key in builds}
    rows = tuple(
        Latency(batch, scale * one.took_ms, scale * one.took_ms * _spread(variant.profile))
        for batch, one in sequences.items()
        if one.took_ms > 0
    )
    if not rows:
        return None
    made = repr(([(part.inputs, part.outputs) for part in cut.parts], sorted(builds)))
    digest = hashlib.sha256(made.encode()).hexdigest()[:8]
    times = {
        (at, number): times_of(builds[number, kind], _profile_of(cost, scale), places[at][kind], cost.is_measured)
        for at, chosen in kinds.items()
        for number, kind in enumerate(chosen)
        if kind is not None and (cost := costs[number, kind])
    }
    return ServedParts(
        cut,
        build_id=parts_build_id(variant.content_sha256, f"p{digest}", used),
        kind=JOINED.join(used),
        kinds=kinds,
        builds=builds,
        profile=_together(list(costs.values()), rows, variant.profile, used, copies),
        times=times,
        first_copies=copies(cut.kinds[0]),
        spent_ms={batch: {kind: scale * ms for kind, ms in one.spent_ms.items()} for batch, one in sequences.items()},
    )


def _together(
    costs: Sequence[PartProfile],
    rows: tuple[Latency, ...],
    whole: Profile,
    kinds: Sequence[str],
    copies: Callable[[str], int],
) -> Profile:
    """What parts cost that are loaded one after the other. What nobody has timed is taken from the whole: to load it on
    each kind, and to wake it.
    """
    resident = sum(one.resident_bytes * copies(one.kind) for one in costs)
    asleep = [None if one.asleep_bytes is None else one.asleep_bytes * copies(one.kind) for one in costs]
    can_sleep = None not in asleep
    return Profile(
        processor=JOINED.join(kinds),
        resident_bytes=resident,
        peak_bytes=resident + max(max(0, one.peak_bytes - one.resident_bytes) for one in costs),
        load_ms=whole.load_ms * len(kinds),
        load_cold_ms=whole.load_cold_ms * len(kinds),
        latencies=rows,
        hazards=whole.hazards,
        runs=whole.runs,
        asleep_bytes=sum(one or 0 for one in asleep) if can_sleep else None,
        wake_ns=whole.wake_ns if can_sleep else None,
        shared_rows_max=whole.shared_rows_max,
        kind=JOINED.join(kinds),
    )


def partition_of(cut: Cut, takes_ms: Mapping[str, Mapping[int, float]], left: Sequence[int]) -> Partition:
    """What is left of a network as the dispatch policies know it. `takes_ms`: by processor, the parts that run there
    and what that takes.
    """
    operators = [
        Operator(
            str(number),
            frozenset(processor for processor, own in takes_ms.items() if number in own),
            tuple(str(other) for other in cut.needs(number) if other in left),
        )
        for number in left
    ]
    latencies = {processor: {str(number): ms for number, ms in own.items()} for processor, own in takes_ms.items()}
    return partition("network", operators, latencies)


class _Sequence(NamedTuple):
    """The quickest sequence of runs that does all of a network on idle processors: how long it takes, the group that
    runs each part, and what it takes of each kind.
    """

    took_ms: float
    ran_at: Mapping[int, int]
    spent_ms: Mapping[str, float]


def _sequence(cut: Cut, kinds: Mapping[int, tuple[str | None, ...]], places: Sequence[Place], batch: int) -> _Sequence:
    takes_ms = {
        f"{at:02}": {
            number: _cost(cut, number, kind).p50_ms(batch) / places[at][kind].speed + PASS_MS
            for number, kind in enumerate(chosen)
            if kind is not None
        }
        for at, chosen in kinds.items()
    }
    parts = range(len(cut.parts))
    if len(takes_ms) == 1:
        ran_at = dict.fromkeys(parts, 0)
        took_ms = sum(takes_ms["00"].values())
    else:
        made = partition_of(cut, takes_ms, parts)
        processors = tuple(sorted(takes_ms))
        found = search(made, processors, TRANSFER_MS)
        left = found.left(0, None)
        best = min(left.ways, key=lambda way: way.took_ms)
        took_ms, ran_at = best.took_ms, {}
        while best.first is not None:
            ran_at.update((int(name), best.first.processor) for name in best.first.subgraph.ops)
            best = found.left(best.first.after, processors[best.first.processor]).best
    spent_ms: dict[str, float] = {}
    for number, at in ran_at.items():
        kind = kinds[at][number]
        assert kind is not None, "it runs there"
        pass_ms = 0.0 if number == 0 else PASS_MS
        spent_ms[kind] = spent_ms.get(kind, 0.0) + takes_ms[f"{at:02}"][number] - PASS_MS + pass_ms
    return _Sequence(took_ms - PASS_MS, ran_at, spent_ms)


def _cost(cut: Cut, number: int, kind: str) -> PartProfile:
    found = cut.profile(number, kind)
    assert found is not None, "it runs there"
    return found


def _profile_of(cost: PartProfile, scale: float) -> Profile:
    rows = tuple(Latency(row.batch, scale * row.p50_ms + PASS_MS, scale * row.p50_ms + PASS_MS) for row in cost.times)
    return Profile(cost.kind, cost.resident_bytes, cost.peak_bytes, 0.0, 0.0, rows, kind=cost.kind)


def _spread(profile: Profile) -> float:
    """P99 over median of the whole: of parts only medians are known."""
    one = profile.latencies[0]
    return one.p99_ms / one.p50_ms if one.p50_ms else 1.0
