"""Who gives way for a requester, and how far: each variant that it may have is weighed against what others lose. Part of our own policy.

A fall is cheap where the application is not expected before it can be back. It may go to any smaller variant, or out of memory altogether.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from appliance.policies.eviction import ladder
from appliance.policies.eviction.base import ApplicationState, Change, Option, ResidencyProblem
from appliance.policies.eviction.space import Space, bounded
from appliance.policies.eviction.victims import broken_wish
from appliance.policies.eviction.windows import is_maximalist
from appliance.policies.eviction.worth import Outlook, Prospect


@dataclass(frozen=True, slots=True)
class Fall:
    """A minimalist goes down to `after`, or out of memory where that is None."""

    prospect: Prospect
    after: Option | None
    freed_bytes: int
    loss: float
    level: float
    """The highest priority of the wishes that this would break."""


def falls(problem: ResidencyProblem, outlook: Outlook) -> list[Fall]:
    """Every fall of every minimalist that is not pinned, the requester apart."""
    return [
        fall
        for application in problem.applications
        if application.resident is not None and not application.pinned and application.name != problem.request
        if not is_maximalist(application, problem)
        for fall in _falls_of(problem, outlook.of(application))
    ]


def _falls_of(problem: ResidencyProblem, prospect: Prospect) -> Iterator[Fall]:
    loaded, application = prospect.loaded, prospect.application
    assert loaded is not None
    kept = prospect.worth(loaded)
    for after in (None, *ladder.ladder(application)):
        freed = loaded.bytes - (0 if after is None else after.bytes)
        if freed > 0:
            level = broken_wish(application, loaded, after, problem.now_ns)
            yield Fall(prospect, after, freed, kept - prospect.worth(after, beside=False), level)


def best_exchange(
    problem: ResidencyProblem, outlook: Outlook, wanted: Sequence[Option], found: Sequence[Fall]
) -> tuple[Option, list[Change]] | None:
    """The option with the most worth less the others' losses, and what the others give; where nobody waits it must be worth more than what is there."""
    assert problem.request is not None
    asker = problem.by_name[problem.request]
    own = outlook.of(asker)
    waits = problem.intent == "serve"
    best: tuple[Option, list[Change]] | None = None
    best_net = float("-inf") if waits or own.loaded is None else own.worth(own.loaded)
    for option in wanted:
        for beside in (False,) if own.loaded is None else (True,) if asker.pinned else (True, False):
            given = _room(problem, asker, option, found, beside=beside)
            if given is None:
                continue
            # Who waits gets this variant for certain, however long it loads.
            net = asker.weight * option.accuracy + own.worth_there(option) if waits else own.worth(option, beside)
            net -= sum(fall.loss for fall in given)
            if net > best_net:
                best, best_net = (option, [change(fall) for fall in given]), net
            if not given:
                break
    return best


def change(fall: Fall) -> Change:
    """Its being enacted."""
    application = fall.prospect.application
    return Change(application.name, application.resident, None if fall.after is None else fall.after.name)


def _room(
    problem: ResidencyProblem, asker: ApplicationState, option: Option, found: Sequence[Fall], *, beside: bool
) -> list[Fall] | None:
    """Falls, at most one of an application, that let `option` fit, those that cost least a byte first; None where there are none."""
    space = Space(problem)
    short = space.short_bytes(ladder.resident(asker), option, beside=beside)
    over = space.over_ceiling_bytes(asker, ladder.resident(asker), option)
    able = [f for f in found if _able(space, f, asker, short, over)]
    taken: dict[str, Fall] = {}
    while short > 0 or over > 0:
        fall = _cheapest(able, taken, max(short, over))
        if fall is None:
            return None
        name = fall.prospect.application.name
        freed = fall.freed_bytes - (taken[name].freed_bytes if name in taken else 0)
        short -= freed
        over -= freed if fall.prospect.application.tenant == asker.tenant else 0
        taken[name] = fall
    given = _lifted(able, taken, -max(short, over))
    given.sort(key=lambda fall: (fall.after is not None, fall.prospect.application.name))
    changes = tuple(change(fall) for fall in given)
    own = Change(asker.name, asker.resident, option.name)
    return given if bounded(problem, (*changes, own), asker if beside else None) else None


def _able(space: Space, fall: Fall, asker: ApplicationState, short: int, over: int) -> bool:
    """Whether it may fall for the asker: where the tenant's ceiling alone is in the way, only its own applications help."""
    application = fall.prospect.application
    if over > 0 and short <= 0 and application.tenant != asker.tenant:
        return False
    return space.spares(application, fall.freed_bytes, asker)


def _cheapest(able: Sequence[Fall], taken: dict[str, Fall], short: int) -> Fall | None:
    """The fall, or further fall, that costs least for each byte that is of use."""
    best: Fall | None = None
    best_price = float("inf")
    for fall in able:
        loss, freed = fall.loss, fall.freed_bytes
        before = taken.get(fall.prospect.application.name)
        if before is not None:
            loss, freed = loss - before.loss, freed - before.freed_bytes
        if freed <= 0:
            continue
        price = loss / min(freed, short)
        if price < best_price or (price == best_price and best is not None and _name(fall) < _name(best)):
            best, best_price = fall, price
    return best


def _lifted(able: Sequence[Fall], taken: dict[str, Fall], slack: int) -> list[Fall]:
    """With what is freed beyond the need each one that falls, the dearest first, falls no further than it must, or not at all."""
    given = []
    for fall in sorted(taken.values(), key=lambda fall: (-fall.loss, _name(fall))):
        lifted = fall
        for other in able:
            less = fall.freed_bytes - other.freed_bytes
            if other.prospect is fall.prospect and less <= slack and other.loss < lifted.loss:
                lifted = other
        if fall.freed_bytes <= slack and lifted.loss > 0:
            slack -= fall.freed_bytes
            continue
        slack -= fall.freed_bytes - lifted.freed_bytes
        given.append(lifted)
    return given


def _name(fall: Fall) -> tuple[str, int]:
    return fall.prospect.application.name, fall.freed_bytes
