"""Who gives way for a requester, and how far: each variant that it may have is weighed against what others lose.

Part of our own policy.

A fall is cheap where the application is not expected before it can be back. It may go to any smaller variant, or out of
memory altogether.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from appliance.policies.residency.base import PROMISED, ApplicationState, Change, Option, ResidencyProblem
from appliance.policies.residency.space import Space, bounded
from appliance.policies.residency.victims import NO_WISH, broken_wish
from appliance.policies.residency.windows import is_maximalist
from appliance.policies.residency.worth import FEW, Outlook, Prospect, Weighed

_OUT = -1
"""In the place of a choice: out of memory."""


class Demotion(NamedTuple):
    """A minimalist goes down to `after`, or out of memory where that is None."""

    prospect: Prospect
    after: Option | None
    freed_bytes: int
    loss: float
    level: float
    """The highest priority of the wishes that this would break."""


class Demotions(Protocol):
    """All that there are to choose among, those that cost least a byte first."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Demotion]: ...

    def levels(self) -> set[float]:
        """Of the wishes that some of them would break."""
        ...

    def up_to(self, level: float) -> "Demotions":
        """Those that break no higher wish."""
        ...

    def where(self, is_able: Callable[[Demotion], bool]) -> "Demotions":
        """Those of which that is true."""
        ...

    def cheapest_alone(self, short_bytes: int) -> Demotion | None:
        """The one that costs least of those that free so much by themselves."""
        ...

    def losses_of_leaving(self) -> dict[str, float]:
        """Application → what it costs that it has nothing."""
        ...


class Listed(list[Demotion]):
    """`Demotions` of few applications."""

    def levels(self) -> set[float]:
        return {one.level for one in self}

    def up_to(self, level: float) -> "Listed":
        return Listed(one for one in self if one.level <= level)

    def where(self, is_able: Callable[[Demotion], bool]) -> "Listed":
        return Listed(filter(is_able, self))

    def cheapest_alone(self, short_bytes: int) -> Demotion | None:
        return min((one for one in self if one.freed_bytes >= short_bytes), key=_loss, default=None)

    def losses_of_leaving(self) -> dict[str, float]:
        return _losses_of_leaving(self)


class Columns:
    """`Demotions` of many: of hundreds a few are needed, and one is made when somebody comes to it."""

    def __init__(self, problem: ResidencyProblem, weighed: Weighed, entries: "Entries") -> None:
        self._problem = problem
        self._weighed = weighed
        self._entries = entries
        self._made: dict[int, Demotion] = {}

    def __len__(self) -> int:
        return len(self._entries.place)

    def __iter__(self) -> Iterator[Demotion]:
        return map(self._at, range(len(self)))

    def levels(self) -> set[float]:
        return set(self._entries.level.tolist())

    def up_to(self, level: float) -> "Columns":
        return self._those(self._entries.level <= level)

    def where(self, is_able: Callable[[Demotion], bool]) -> "Columns":
        return self._those(np.array([is_able(demotion) for demotion in self], bool))

    def cheapest_alone(self, short_bytes: int) -> Demotion | None:
        places = np.flatnonzero(self._entries.freed_bytes >= short_bytes)
        return self._at(int(places[np.argmin(self._entries.loss[places])])) if len(places) else None

    def losses_of_leaving(self) -> dict[str, float]:
        return _losses_of_leaving(self)

    def _those(self, mask: NDArray[np.bool_]) -> "Columns":
        return self if mask.all() else Columns(self._problem, self._weighed, self._entries.those(mask))

    def _at(self, index: int) -> Demotion:
        found = self._made.get(index)
        if found is None:
            entries = self._entries
            place, after = int(entries.place[index]), int(entries.after[index])
            prospect = self._weighed.prospect(place)
            found = self._made[index] = Demotion(
                prospect,
                None if after == _OUT else prospect.application.choices[after],
                int(entries.freed_bytes[index]),
                float(entries.loss[index]),
                float(entries.level[index]),
            )
        return found


class Entries(NamedTuple):
    """The columns of demotions: whose, the place of what it goes to among its choices, and the rest as there."""

    place: NDArray[np.intp]
    after: NDArray[np.intp]
    freed_bytes: NDArray[np.int64]
    loss: NDArray[np.float64]
    level: NDArray[np.float64]

    def those(self, which: NDArray[Any]) -> "Entries":
        """Some of them, or in another order."""
        return Entries(*(column[which] for column in self))


def demotions(problem: ResidencyProblem, outlook: Outlook) -> Demotions:
    """Of every minimalist that is not pinned, the requester apart: to its floor, or what is wished for, and out of
    memory, where that breaks no promise.
    """
    able = [
        application
        for application in problem.applications
        if application.resident is not None
        and not application.pinned
        and application.name != problem.request
        and not is_maximalist(application, problem)
    ]
    found = listed(problem, outlook, able) if len(able) <= FEW else in_columns(problem, outlook.weigh(able))
    return found.up_to(PROMISED - 1)


def listed(problem: ResidencyProblem, outlook: Outlook, able: Sequence[ApplicationState]) -> Listed:
    """Those of a few applications that have something in memory."""
    found = Listed()
    for application in able:
        prospect, loaded, floor = outlook.of(application), application.loaded, application.floor
        assert loaded is not None
        worth = prospect.worth_there(loaded)
        for option in application.choices:
            if option.bytes < loaded.bytes and (option == floor or application.wishes):
                found.append(_demotion(problem, prospect, loaded, worth, option))
        if loaded.bytes:
            loss, level = worth - prospect.worth(None), _level(problem, application, None)
            found.append(Demotion(prospect, None, loaded.bytes, loss, level))
    found.sort(key=lambda one: (one.loss / one.freed_bytes, one.prospect.application.name, one.freed_bytes))
    return found


def in_columns(problem: ResidencyProblem, weighed: Weighed) -> Columns:
    """Those of many."""
    falls = _falls(problem, weighed)
    leaves = _leaves(problem, weighed)
    entries = Entries(*(np.concatenate(columns) for columns in zip(falls, leaves, strict=True)))
    names = [application.name for application in weighed.applications]
    rank = np.empty(len(names), int)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    order = np.lexsort((entries.freed_bytes, rank[entries.place], entries.loss / entries.freed_bytes))
    return Columns(problem, weighed, entries.those(order))


def _falls(problem: ResidencyProblem, weighed: Weighed) -> Entries:
    """To a smaller variant: the floor, or any where planners wish for something."""
    options, owner = weighed.table.options, weighed.table.of_option
    loaded_bytes, has_wishes = (weighed.table.rows[field][owner] for field in ("loaded_bytes", "has_wishes"))
    may_fall = (options["is_floor"] == 1) | (has_wishes == 1)
    which = np.flatnonzero(may_fall & (options["bytes"] < loaded_bytes))
    places = owner[which]
    first = np.cumsum(weighed.table.rows["options"]) - weighed.table.rows["options"]
    after = which - first[places]
    loss = weighed.there[places] - weighed.options(beside=False)[which]
    freed = loaded_bytes[which] - options["bytes"][which]
    level = np.full(len(which), NO_WISH)
    for index in np.flatnonzero(has_wishes[which]):
        application = weighed.applications[places[index]]
        level[index] = _level(problem, application, application.choices[after[index]])
    return Entries(places, after, freed, loss, level)


def _leaves(problem: ResidencyProblem, weighed: Weighed) -> Entries:
    """Out of memory."""
    loaded_bytes = weighed.table.rows["loaded_bytes"]
    places = np.flatnonzero(loaded_bytes > 0)
    loss = (weighed.there - weighed.nothing)[places]
    level = np.full(len(places), NO_WISH)
    for index in np.flatnonzero(weighed.table.rows["has_wishes"][places]):
        level[index] = _level(problem, weighed.applications[places[index]], None)
    return Entries(places, np.full(len(places), _OUT), loaded_bytes[places], loss, level)


def _level(problem: ResidencyProblem, application: ApplicationState, after: Option | None) -> float:
    """The highest priority of the wishes that this would break."""
    loaded = application.loaded
    if loaded is None or not application.wishes:
        return NO_WISH
    return broken_wish(application, loaded, after, problem.now_ns)


def _demotion(problem: ResidencyProblem, prospect: Prospect, loaded: Option, worth: float, after: Option) -> Demotion:
    """From what is there, which is worth that."""
    application = prospect.application
    loss = worth - prospect.worth(after, beside=False)
    return Demotion(prospect, after, loaded.bytes - after.bytes, loss, _level(problem, application, after))


def best_demotions(
    problem: ResidencyProblem, outlook: Outlook, wanted: Sequence[Option], found: Demotions | None
) -> tuple[Option, list[Change]] | None:
    """The option with the most worth less the others' losses, and what the others give; where nobody waits it must
    be worth more than what is there.
    """
    asker = problem.asker
    own: Prospect | None = None
    loaded, waits = asker.loaded, problem.intent == "serve"
    best: tuple[Option, list[Change]] | None = None
    best_net = float("-inf")
    for option in wanted:
        for beside in (False,) if loaded is None else (True,) if asker.pinned else (True, False):
            given = _room(problem, asker, option, found, beside=beside)
            if given is None:
                continue
            if own is None:  # found when there is something to weigh: often nothing fits
                own = outlook.of(asker)
                best_net = best_net if waits or loaded is None else own.worth(loaded)
            # Who waits gets this variant for certain, however long it loads.
            net = asker.weight * option.accuracy + own.worth_there(option) if waits else own.worth(option, beside)
            net -= sum(demotion.loss for demotion in given)
            if net > best_net:
                best, best_net = (option, [change(demotion) for demotion in given]), net
            if not given:
                break
    return best


def change(demotion: Demotion) -> Change:
    """Its being enacted."""
    application = demotion.prospect.application
    return Change(application.name, application.resident, None if demotion.after is None else demotion.after.name)


def _room(
    problem: ResidencyProblem, asker: ApplicationState, option: Option, found: Demotions | None, *, beside: bool
) -> list[Demotion] | None:
    """Demotions, at most one of an application, that let `option` fit; None where there are none.

    What one demotion can do alone, cheaper, it does.
    """
    space = Space(problem)
    short = space.short_bytes(asker.loaded, option, beside=beside)
    over = space.over_ceiling_bytes(asker, asker.loaded, option)
    if short <= 0 and over <= 0:
        return []
    if found is None:
        return None
    able = found.where(lambda one: _able(space, one, asker, short, over)) if problem.tenants else found
    given = _cheapest(able, asker, short, over)
    if given is None:
        return None
    if len(given) > 1 and over <= 0:
        alone = able.cheapest_alone(short)
        if alone is not None and alone.loss < sum(map(_loss, given)):
            given = [alone]
    slack = sum(demotion.freed_bytes for demotion in given) - max(short, over)
    for place, demotion in enumerate(given):
        given[place] = _lifted(problem, demotion, slack)
        slack -= demotion.freed_bytes - given[place].freed_bytes
    given.sort(key=lambda demotion: (demotion.after is not None, demotion.prospect.application.name))
    changes = tuple(change(demotion) for demotion in given)
    own = Change(asker.name, asker.resident, option.name)
    return given if bounded(problem, (*changes, own), asker if beside else None) else None


def _able(space: Space, demotion: Demotion, asker: ApplicationState, short: int, over: int) -> bool:
    """Whether it may fall for the asker: where the tenant's ceiling alone is in the way, only its own applications
    help.
    """
    application = demotion.prospect.application
    if over > 0 and short <= 0 and application.tenant != asker.tenant:
        return False
    return space.spares(application, demotion.freed_bytes, asker)


def _cheapest(able: Iterable[Demotion], asker: ApplicationState, short: int, over: int) -> list[Demotion] | None:
    """Those in their order until it is enough, less those that the later ones made needless; the dearest are asked
    first whether they are.
    """
    taken: dict[str, Demotion] = {}
    for demotion in able:
        if short <= 0 and over <= 0:
            break
        application = demotion.prospect.application
        before = taken.get(application.name)
        freed = demotion.freed_bytes - (0 if before is None else before.freed_bytes)
        if freed > 0:
            short -= freed
            over -= freed if application.tenant == asker.tenant else 0
            taken[application.name] = demotion
    if short > 0 or over > 0:
        return None
    slack = -max(short, over)
    given = sorted(taken.values(), key=lambda demotion: (-demotion.loss, demotion.prospect.application.name))
    for demotion in tuple(given):
        if demotion.freed_bytes <= slack and demotion.loss > 0:
            given.remove(demotion)
            slack -= demotion.freed_bytes
    return given


def _lifted(problem: ResidencyProblem, demotion: Demotion, slack: int) -> Demotion:
    """The same, falling no further than it must."""
    loaded = demotion.prospect.loaded
    assert loaded is not None
    for option in demotion.prospect.application.ladder:
        if option.bytes < loaded.bytes and loaded.bytes - option.bytes >= demotion.freed_bytes - slack:
            worth = demotion.prospect.worth_there(loaded)
            higher = _demotion(problem, demotion.prospect, loaded, worth, option)
            return higher if higher.loss < demotion.loss else demotion
    return demotion


def _loss(demotion: Demotion) -> float:
    return demotion.loss


def _losses_of_leaving(found: Demotions) -> dict[str, float]:
    return {one.prospect.application.name: one.loss for one in found if one.after is None}
