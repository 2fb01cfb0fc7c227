"""Builds that may be in memory beside the one that a group counts as its own: those that planners use, and
*neighbours*, which are there only while nobody else wants the memory.

What planners wish is told here by builds, for a variant that sessions use need be no option of its group. Event-loop
thread only.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from appliance.policies.residency.base import IN_USE, PROMISED, Wish
from appliance.runtime.residency.groups import VariantGroup


@dataclass(frozen=True, slots=True)
class _Wished:
    """Of one group."""

    in_use: Mapping[str, int] = field(default_factory=dict)
    """Build → the highest priority that it is wished with."""
    near: Mapping[str, int] = field(default_factory=dict)
    """Build → how far it is from one in use, for those that are not."""
    substitutes: frozenset[str] = frozenset()
    """Builds that would do in the place of what is in use."""
    promised: frozenset[str] = frozenset()
    """Builds that promises need, or more accurate ones in their place."""


_NOTHING = _Wished()


class BesideBuilds:
    """What planners wish for groups, and which builds are there as neighbours."""

    def __init__(self) -> None:
        self._wished: dict[str, _Wished] = {}
        self._wishes: dict[str, tuple[Wish, ...]] = {}
        self._neighbours: set[str] = set()
        self.coming: str | None = None
        """The build that is being brought beside others: it takes the place of none."""

    # -- what planners wish --------------------------------------------------------------------------------------------

    def wish(self, group: VariantGroup, wishes: Iterable[Wish]) -> set[str]:
        """Replace what is wished for a group; the builds that are in use no more."""
        wishes = tuple(wishes)
        before, now = self._wished.pop(group.name, _NOTHING), _wished(group, wishes)
        self._wishes[group.name] = tuple(wish for wish in wishes if wish.distance == 0 and not wish.is_substitute)
        if now.in_use:
            self._wished[group.name] = now
        self._neighbours -= now.in_use.keys()
        return before.in_use.keys() - now.in_use.keys()

    def forget(self, name: str) -> None:
        """The group is gone."""
        self._wished.pop(name, None)
        self._wishes.pop(name, None)

    def wishes(self, name: str) -> tuple[Wish, ...]:
        """The wishes for what planners use of a group, and for what they have promised."""
        return self._wishes.get(name, ())

    def groups(self) -> Collection[str]:
        """For which something is wished, by name."""
        return self._wished.keys()

    def in_use(self, name: str) -> Collection[str]:
        """Builds of a group that planners use."""
        return self._wished.get(name, _NOTHING).in_use.keys()

    def near(self, name: str) -> Mapping[str, int]:
        """Builds of a group that planners may use next → how far they are from one in use."""
        return self._wished.get(name, _NOTHING).near

    def substitutes(self, name: str) -> Collection[str]:
        """Builds of a group that would do for planners in the place of what they use, where memory is short."""
        return self._wished.get(name, _NOTHING).substitutes

    def all_in_use(self) -> set[str]:
        """Of all groups."""
        return {build_id for wished in self._wished.values() for build_id in wished.in_use}

    def promised(self, name: str) -> Collection[str]:
        """Builds of a group that promises need."""
        return self._wished.get(name, _NOTHING).promised

    def all_promised(self, there: Collection[str]) -> set[str]:
        """Builds of those in memory (`there`) that promises need: while one that they need is not in memory, or a
        neighbour, the ones of its group that planners use.
        """
        if not any(wished.promised for wished in self._wished.values()):
            return set()
        able = set(there) - self._neighbours
        found: set[str] = set()
        for wished in self._wished.values():
            found |= wished.promised & able
            if not wished.promised <= able:
                found |= wished.in_use.keys() & able
        return found

    def must_stay(self, name: str, build_id: str) -> bool:
        """Whether planners go on with a build of a group: it is not only there until another one has come."""
        return self._wished.get(name, _NOTHING).in_use.get(build_id, 0) >= IN_USE

    # -- what is there as a neighbour ----------------------------------------------------------------------------------

    @property
    def neighbours(self) -> Collection[str]:
        """Builds that are in memory, or on their way there, as neighbours."""
        return self._neighbours

    def add(self, build_id: str) -> None:
        """It comes, or stays, as a neighbour."""
        self._neighbours.add(build_id)

    def discard(self, build_id: str) -> None:
        """It has left, or its group counts it as its own; one that was none is no error."""
        self._neighbours.discard(build_id)


def _wished(group: VariantGroup, wishes: Iterable[Wish]) -> _Wished:
    in_use: dict[str, int] = {}
    near: dict[str, int] = {}
    substitutes: set[str] = set()
    promised: set[str] = set()
    for wish in wishes:
        servable = group.variants.get(wish.variant)
        if servable is None:  # planners may name what has just gone
            continue
        build_id = servable.build_id
        if wish.is_substitute:
            substitutes.add(build_id)
        elif wish.priority >= PROMISED:
            promised.add(build_id)
        elif wish.distance == 0:
            in_use[build_id] = max(wish.priority, in_use.get(build_id, wish.priority))
        else:
            near[build_id] = min(wish.distance, near.get(build_id, wish.distance))
    near = {build_id: distance for build_id, distance in near.items() if build_id not in in_use}
    return _Wished(in_use, near, frozenset(substitutes), frozenset(promised))
