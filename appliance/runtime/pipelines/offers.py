"""Which variants stages are offered, and which of them fit into memory together (X-04).

Whatever pipelines are planned with, all that is chosen has to be in memory at the same time, and has to come there. So
of all that stages in use are offered the largest leave until whatever is chosen fits, none that is the only one of its
stage; where that does not suffice, there is no room for some pipelines.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from appliance.clock import others_first
from appliance.domain.catalogue import Profile as Measured
from appliance.domain.names import kind_of
from appliance.domain.pipeline import Ask
from appliance.runtime.catalogue import Entry
from appliance.runtime.residency.account import bytes_together
from appliance.runtime.servable import Servable

Place = tuple[str, str]
"""Id of a pipeline, and a stage of it that asks."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A variant that a stage may be served with, and the kinds of processors that run it, measured; until it is
    measured, the kind on which it serves with what it is estimated to take there.

    One that serves in parts has one kind: that on which it spends most of its time. What it takes of the others is in
    its parts.
    """

    servable: Servable
    profiles: tuple[Measured, ...]
    serves_on: str
    """Of these kinds the one on which it does now."""
    is_loaded: bool = False
    """Whether the variant's build for that kind of processor is in memory."""

    @property
    def is_in_parts(self) -> bool:
        return self.servable.parts is not None

    @property
    def name(self) -> str:
        return self.servable.name

    @property
    def quickest_ms(self) -> float:
        """An item alone, on the kind where that is quickest."""
        return min(profile.latencies[0].p50_ms for profile in self.profiles)

    def profile_of(self, ran_on: str) -> Measured | None:
        """That of a kind of which runs were seen; of a network in parts these are of all of its kinds, joined."""
        kind = self.serves_on if ran_on == kind_of(self.servable.build_id) else ran_on
        return next((one for one in self.profiles if one.kind == kind), None)


@dataclass(frozen=True, slots=True)
class Offers:
    """Of one stage: `wanted`, what it asks for; `cheaper`, what may stand in for that, from the nearest on."""

    wanted: tuple[Offer, ...] = ()
    cheaper: tuple[Offer, ...] = ()

    def upto(self, level: int) -> tuple[Offer, ...]:
        """With so many of the cheaper ones."""
        return (*self.wanted, *self.cheaper[:level])

    @property
    def all(self) -> tuple[Offer, ...]:
        return (*self.wanted, *self.cheaper)

    def without(self, build_id: str) -> "Offers":
        """All others. Where nothing that is wanted is left, the nearest cheaper one is."""
        wanted = tuple(one for one in self.wanted if one.servable.build_id != build_id)
        cheaper = tuple(one for one in self.cheaper if one.servable.build_id != build_id)
        return Offers(wanted, cheaper) if wanted else Offers(cheaper[:1], cheaper[1:])


def offers_of(
    stage: Ask, entry: Entry, kinds_of: Callable[[Servable], Sequence[str]], is_resident: Callable[[str], bool]
) -> Offers:
    """The variants that a stage asks for, and the cheaper ones that may stand in for them, from the nearest on.

    A stage that names a floor is served by whatever reaches it, and by nothing below. One that does not is served by
    what its application chooses, or by what is as accurate; and where not all fits, by what its application allows.
    `is_resident`: whether a build is in memory.
    """
    named = entry.servables.get(stage.variant or "")
    known = [_offer(one, kinds_of(one), is_resident) for one in (entry.order if named is None else [named])]
    able = [one for one in known if one.profiles]
    if stage.variant is not None:
        return Offers(() if named is None else tuple(able))
    if stage.accuracy_min is not None:
        floor = max(stage.accuracy_min, entry.application.accuracy_min)
        return Offers(tuple(one for one in able if one.servable.accuracy >= floor))
    if not able:
        return Offers()
    first = able[0]
    wanted = [one for one in able if one.servable.accuracy >= first.servable.accuracy]
    least_ms = min(one.quickest_ms for one in wanted)
    floor = entry.application.accuracy_min
    cheaper = [
        one for one in able if one not in wanted and one.servable.accuracy >= floor and one.quickest_ms < least_ms
    ]
    return Offers(tuple(wanted), tuple(sorted(cheaper, key=lambda one: (-one.servable.accuracy, one.name))))


def _offer(servable: Servable, kinds: Sequence[str], is_resident: Callable[[str], bool]) -> Offer:
    parts, is_loaded = servable.parts, is_resident(servable.build_id)
    if parts is not None:
        return Offer(servable, (replace(parts.profile, kind=parts.home),), parts.home, is_loaded)
    known = servable.variant.profiles or ((servable.profile,) if servable.profile else ())
    profiles = tuple(one for one in known if one.kind in kinds and one.latencies)
    return Offer(servable, profiles, kind_of(servable.build_id), is_loaded)


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes for all that is chosen at some places."""

    places: Collection[Place]
    bytes: int


async def without_room(
    offers: Mapping[Place, Offers], applications: Mapping[Place, str], rooms: Iterable[Room], pipelines: Sequence[str]
) -> set[str]:
    """The pipelines whose least offers do not fit beside those of the ones before them, in the order of `pipelines`.
    Others have their turn between two of them.
    """
    found: set[str] = set()
    order = {id: at for at, id in enumerate(pipelines)}
    for room in rooms:
        if _Fitting({place: offers[place] for place in room.places}, applications, room.bytes).is_enough():
            continue
        asked: dict[str, dict[str, list[Offers]]] = {}
        for place in room.places:
            asked.setdefault(place[0], {}).setdefault(applications[place], []).append(offers[place])
        beside: dict[str, _Choice] = {}
        for id in sorted(asked.keys() - found, key=order.__getitem__):
            more = {of: beside.get(of, _Choice()).with_more(own) for of, own in asked[id].items()}
            takes_no_more = all(of in beside and beside[of].largest == one.largest for of, one in more.items())
            if takes_no_more or _bytes_of({**beside, **more}) <= room.bytes:
                beside.update(more)
            else:
                found.add(id)
            await others_first()
    return found


async def fitting(
    offers: Mapping[Place, Offers], applications: Mapping[Place, str], rooms: Iterable[Room]
) -> dict[Place, Offers]:
    """Of what places are offered what fits into each room together, whichever is chosen. `applications`: whose variants
    they choose from, which are in memory once, whoever has chosen them. Others have their turn between two steps.
    """
    kept = dict(offers)
    for room in rooms:
        kept.update(await _Fitting({place: kept[place] for place in room.places}, applications, room.bytes).found())
        await others_first()
    return kept


@dataclass(frozen=True, slots=True)
class _Choice:
    """So many places choose from an application's variants, each one of them."""

    places: int = 0
    builds: Mapping[str, Servable] = field(default_factory=dict)
    largest: Sequence[Servable] = ()
    """What they take at most."""

    def with_more(self, offers: Sequence[Offers]) -> "_Choice":
        """With so many further places, each of which is offered one of these."""
        places, builds = self.places + len(offers), dict(self.builds)
        builds.update((offer.servable.build_id, offer.servable) for one in offers for offer in one.all)
        by_size = sorted(builds.values(), key=lambda one: (-one.resident_bytes, one.build_id))
        return _Choice(places, builds, by_size[:places])


def _bytes_of(choices: Mapping[str, _Choice]) -> int:
    """For whatever is chosen. `choices`: by application."""
    return bytes_together(one for choice in choices.values() for one in choice.largest)


@dataclass(slots=True)
class _Fitting:
    """Of one room."""

    offers: dict[Place, Offers]
    applications: Mapping[Place, str]
    room_bytes: int
    _users: dict[str, list[Place]] = field(default_factory=dict)
    _choices: dict[str, _Choice] = field(default_factory=dict)
    """Of each application, as `offers` have it."""

    def __post_init__(self) -> None:
        for place in self.offers:
            self._users.setdefault(self.applications[place], []).append(place)
        for application, users in self._users.items():
            self._choices[application] = _choice(users, self.offers)

    def is_enough(self) -> bool:
        """Whether whatever is chosen fits."""
        return _bytes_of(self._choices) <= self.room_bytes

    async def found(self) -> dict[Place, Offers]:
        if self.is_enough():
            return self.offers
        return await self._with_one_choice() or await self._without_the_largest()

    async def _with_one_choice(self) -> dict[Place, Offers] | None:
        """Where several places share an application, each may choose another variant of it: without the cheaper ones
        they do not. None: that is not enough.
        """
        kept, choices = dict(self.offers), dict(self._choices)
        for application, users in self._users.items():
            if len(users) < 2:
                continue
            less = {place: Offers(kept[place].wanted) for place in users}
            choice = _choice(users, less)
            if choice.largest != choices[application].largest:
                kept.update(less)
                choices[application] = choice
                if _bytes_of(choices) <= self.room_bytes:
                    return kept
            await others_first()
        return None

    async def _without_the_largest(self) -> dict[Place, Offers]:
        kept, choices = dict(self.offers), dict(self._choices)
        sizes = {
            (offer.servable.resident_bytes, application, offer.servable.build_id)
            for application, users in self._users.items()
            for place in users
            for offer in kept[place].all
        }
        for _bytes, application, build_id in sorted(sizes, reverse=True):
            if _bytes_of(choices) <= self.room_bytes:
                break
            users = self._users[application]
            kept.update((place, less) for place in users if (less := kept[place].without(build_id)).wanted)
            choices[application] = _choice(users, kept)
            await others_first()
        return kept


def _choice(users: Iterable[Place], offers: Mapping[Place, Offers]) -> _Choice:
    """Of all places that use an application."""
    return _Choice().with_more([offers[place] for place in users])
