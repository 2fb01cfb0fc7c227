"""Whom a policy may take memory from: minimalists that are not pinned, each with what its variant would give way to.

Wishes (`keep`) put a victim on a higher level: it is touched only when those below cannot make room.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from appliance.policies.residency.base import PROMISED, ApplicationState, Change, Option, ResidencyProblem
from appliance.policies.residency.space import Space
from appliance.policies.residency.windows import is_maximalist

NO_WISH = float("-inf")
GiveWay = Callable[[ApplicationState], Option | None]


@dataclass(frozen=True, slots=True)
class Victim:
    """A minimalist whose `loaded` variant would be replaced by `after`, or unloaded where that is None."""

    application: ApplicationState
    loaded: Option
    after: Option | None
    freed_bytes: int
    level: float = NO_WISH
    """The highest priority of the wishes that this would break."""


def unloaded(application: ApplicationState) -> Option | None:
    """The rule of `lru`, `lfe` and `bfe`: nothing stays."""
    return None


def replaced(application: ApplicationState) -> Option | None:
    """The rule of `ws-bfe` and `iws-bfe`: the smallest variant stays."""
    return application.floor


def victims(problem: ResidencyProblem, give_way: GiveWay, *, are_expected: bool = False) -> list[Victim]:
    """Every victim whose giving way frees memory and breaks no promise, by name of its application. The requester is
    none.

    `are_expected`: of the maximalists, in the place of the minimalists.
    """
    found = []
    for application in problem.applications:
        if application.resident is None or application.pinned or application.name == problem.request:
            continue
        if is_maximalist(application, problem) is not are_expected:
            continue
        loaded, after = application.variant(application.resident), give_way(application)
        freed = loaded.bytes - (0 if after is None else after.bytes)
        level = broken_wish(application, loaded, after, problem.now_ns)
        if freed > 0 and level < PROMISED:
            found.append(Victim(application, loaded, after, freed, level))
    found.sort(key=lambda victim: victim.application.name)
    return found


def broken_wish(application: ApplicationState, loaded: Option, after: Option | None, now_ns: int) -> float:
    """The highest priority of the wishes that `after` in place of `loaded` would break; `NO_WISH` where there are
    none.
    """
    level = NO_WISH
    for wish in application.wishes:
        if wish.until_ns < now_ns or wish.priority <= level:
            continue
        kept = next((option for option in application.options if option.name == wish.variant), None)
        # A wish is met by the variant it names or a more accurate one.
        if kept is not None and loaded.accuracy >= kept.accuracy and (after is None or after.accuracy < kept.accuracy):
            level = wish.priority
    return level


def levels(found: Iterable[Victim]) -> list[float]:
    """The levels there are, lowest first; never empty."""
    return sorted({NO_WISH, *(victim.level for victim in found)})


Choose = Callable[[Sequence[Victim], int], Victim]
"""The next victim of those that may be taken, and the bytes still missing."""


def make_room(
    space: Space,
    asker: ApplicationState,
    wanted: Option,
    found: Sequence[Victim],
    choose: Choose | None = None,
) -> list[Change] | None:
    """Take victims until `wanted` fits, or say None; `space` is left as it was (Alg.

    1: nothing is enacted before the sum suffices).

    `choose` None: in the order of `found`. Where the tenant's ceiling is in the way, only its own applications can
    help; they go first.
    """
    space = space.copy()
    before = asker.loaded
    pool, changes = list(found), list[Change]()
    left = sum(victim.freed_bytes for victim in pool)
    while True:
        short = space.short_bytes(before, wanted, beside=asker.pinned)
        over = space.over_ceiling_bytes(asker, before, wanted)
        if short <= 0 and over <= 0:
            return changes
        if left < short or left < over:
            return None
        able = (victim for victim in pool if _able(space, victim, asker, over))
        victim = next(able, None)
        if victim is None:
            return None
        if choose is not None:
            victim = choose([victim, *able], over if over > 0 else short)
        pool.remove(victim)
        left -= victim.freed_bytes
        space.take(victim.application, victim.loaded, victim.after)
        changes.append(change(victim))


def change(victim: Victim) -> Change:
    """Its giving way."""
    after = None if victim.after is None else victim.after.name
    return Change(victim.application.name, victim.loaded.name, after)


def _able(space: Space, victim: Victim, asker: ApplicationState, over_bytes: int) -> bool:
    if over_bytes > 0 and victim.application.tenant != asker.tenant:
        return False
    if victim.after is not None and space.short_bytes(victim.loaded, victim.after) > 0:
        return False  # its replacement could not be loaded at this moment
    return space.spares(victim.application, victim.freed_bytes, asker)
