"""Upgrades change hands: what an application gains by a better variant against what minimalists lose that give way for it. Part of our own policy."""

from collections.abc import Sequence

from appliance.policies.eviction import ladder
from appliance.policies.eviction.base import ApplicationState, Change, Option, ResidencyProblem
from appliance.policies.eviction.space import Space, bounded
from appliance.policies.eviction.victims import Victim, make_room, replaced, victims
from appliance.policies.eviction.worth import (
    COLD_POINTS,
    away_s,
    foreseen_within,
    gain,
    horizon_s,
    intensity_rps,
    requests_while,
    swap_cost,
    unforeseen_rps,
)


def cheapest_first(problem: ResidencyProblem) -> list[Victim]:
    """The minimalists' upgrades by what a freed byte costs; broken wishes last, ties by name."""
    found = victims(problem, replaced)
    price = {victim.application.name: _price(problem, victim) for victim in found}
    found.sort(key=lambda victim: (victim.level, price[victim.application.name], victim.application.name))
    return found


def _price(problem: ResidencyProblem, victim: Victim) -> float:
    """What a freed byte costs."""
    assert victim.after is not None
    return _loss(problem, victim, victim.after) / victim.freed_bytes


def _loss(problem: ResidencyProblem, victim: Victim, after: Option) -> float:
    """Accuracy × requests that a minimalist loses by falling to `after` until its own window opens, and while that loads."""
    application, lost = victim.application, victim.loaded.accuracy - after.accuracy
    back_ns = after.load_ns + 2 * victim.loaded.load_ns
    soon = foreseen_within(problem, application, back_ns)
    unforeseen = unforeseen_rps(problem, application)
    accuracy = lost * (unforeseen * away_s(problem, application) + soon)
    return accuracy + COLD_POINTS * (soon + requests_while(problem, application, after, unforeseen))


def best_exchange(
    problem: ResidencyProblem,
    asker: ApplicationState,
    wanted: Sequence[Option],
    found: Sequence[Victim],
) -> tuple[Option, list[Change]] | None:
    """The option with the most gain less the others' losses, and what the others give; an upgrade must gain something.

    An upgrade that fits beside the present variant costs nothing while it loads; in its place, those who ask meanwhile wait.
    """
    space, loaded = Space(problem), ladder.resident(asker)
    intensity = intensity_rps(problem, asker)
    best: tuple[Option, list[Change]] | None = None
    best_net = 0.0 if loaded is not None and problem.intent != "serve" else float("-inf")
    ways = (True, False) if loaded is not None and not asker.pinned else (asker.pinned,)
    for option in wanted:
        for beside in ways:
            changes = make_room(space, asker, option, found, beside=beside)
            if changes is None:
                continue
            changes, lost = _lifted(problem, found, changes, asker, option, beside)
            if problem.intent == "serve":  # one request for certain, and it waits for the load in any case
                net = option.accuracy * (asker.weight + intensity * horizon_s(problem)) - lost
            else:
                net = gain(problem, asker, intensity, loaded, option) - lost
                net -= 0.0 if beside or loaded is None else swap_cost(problem, asker, option)
            if net > best_net:
                best, best_net = (option, changes), net
            if not changes:
                break
    return best


def _lifted(
    problem: ResidencyProblem,
    found: Sequence[Victim],
    changes: list[Change],
    asker: ApplicationState,
    option: Option,
    beside: bool,
) -> tuple[list[Change], float]:
    """The changes with each victim falling no further than it must, the dearest lifted first; and what they lose."""
    if not changes:
        return changes, 0.0
    by_name = {victim.application.name: victim for victim in found}
    own = Change(asker.name, asker.resident, option.name)
    lost = 0.0
    for place in reversed(range(len(changes))):
        victim = by_name[changes[place].application]
        for higher in ladder.ladder(victim.application):
            if higher.bytes > victim.loaded.bytes:
                continue
            lifted = (
                None if higher is victim.loaded else Change(victim.application.name, victim.loaded.name, higher.name)
            )
            trial = [*changes[:place], *([] if lifted is None else [lifted]), *changes[place + 1 :]]
            if lifted == changes[place]:
                lost += _loss(problem, victim, higher)
                break
            if bounded(problem, (*trial, own), asker if beside else None):
                changes = trial
                lost += 0.0 if lifted is None else _loss(problem, victim, higher)
                break
    return changes, lost
