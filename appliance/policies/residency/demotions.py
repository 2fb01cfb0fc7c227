"""Who gives way for a requester, and how far: each variant that it may have is weighed against what others lose.

Part of our own policy.

A fall is cheap where the application is not expected before it can be back. It may go to any smaller variant, or out of
memory altogether.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from appliance.policies.residency.base import ApplicationState, Change, Option, ResidencyProblem
from appliance.policies.residency.space import Space, bounded
from appliance.policies.residency.victims import NO_WISH, broken_wish
from appliance.policies.residency.windows import is_maximalist
from appliance.policies.residency.worth import Outlook, Prospect


class Demotion(NamedTuple):
    """A minimalist goes down to `after`, or out of memory where that is None.

    A tuple, for two are made of every application at every decision.
    """

    prospect: Prospect
    after: Option | None
    freed_bytes: int
    loss: float
    level: float
    """The highest priority of the wishes that this would break."""


def demotions(problem: ResidencyProblem, outlook: Outlook) -> list[Demotion]:
    """Of every minimalist that is not pinned, the requester apart: to its floor, or what is wished for, and out of
    memory.

    Those that cost least a byte first.
    """
    found = [
        demotion
        for application in problem.applications
        if application.resident is not None and not application.pinned and application.name != problem.request
        if not is_maximalist(application, problem)
        for demotion in _demotions_of(problem, outlook.of(application))
    ]
    keyed = [
        (demotion.loss / demotion.freed_bytes, demotion.prospect.application.name, demotion.freed_bytes, demotion)
        for demotion in found
    ]
    keyed.sort()
    return [demotion for _, _, _, demotion in keyed]


def _demotions_of(problem: ResidencyProblem, prospect: Prospect) -> Iterator[Demotion]:
    loaded = prospect.loaded
    assert loaded is not None
    worth = prospect.worth_there(loaded)
    for after in prospect.application.ladder if prospect.application.wishes else (prospect.floor,):
        if after.bytes < loaded.bytes:
            yield _demotion(problem, prospect, loaded, worth, after)
    if loaded.bytes > 0:
        yield _demotion(problem, prospect, loaded, worth, None)


def _demotion(
    problem: ResidencyProblem, prospect: Prospect, loaded: Option, worth: float, after: Option | None
) -> Demotion:
    """From what is there, which is worth that."""
    application = prospect.application
    return Demotion(
        prospect,
        after,
        loaded.bytes if after is None else loaded.bytes - after.bytes,
        worth - prospect.worth(after, beside=False),
        broken_wish(application, loaded, after, problem.now_ns) if application.wishes else NO_WISH,
    )


def best_demotions(
    problem: ResidencyProblem, outlook: Outlook, wanted: Sequence[Option], found: Sequence[Demotion]
) -> tuple[Option, list[Change]] | None:
    """The option with the most worth less the others' losses, and what the others give; where nobody waits it must
    be worth more than what is there.
    """
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
    problem: ResidencyProblem, asker: ApplicationState, option: Option, found: Sequence[Demotion], *, beside: bool
) -> list[Demotion] | None:
    """Demotions, at most one of an application, that let `option` fit; None where there are none.

    What one demotion can do alone, cheaper, it does.
    """
    space = Space(problem)
    short = space.short_bytes(asker.loaded, option, beside=beside)
    over = space.over_ceiling_bytes(asker, asker.loaded, option)
    if short <= 0 and over <= 0:
        return []
    able = [f for f in found if _able(space, f, asker, short, over)] if problem.tenants else found
    given = _cheapest(able, asker, short, over)
    if given is None:
        return None
    if len(given) > 1 and over <= 0:
        alone = min((f for f in able if f.freed_bytes >= short), key=_loss, default=None)
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


def _cheapest(able: Sequence[Demotion], asker: ApplicationState, short: int, over: int) -> list[Demotion] | None:
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
