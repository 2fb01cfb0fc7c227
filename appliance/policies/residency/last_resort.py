"""The framework's last resort (Edge-MultiAI §III-A and III-B1, EM-24), of `ws-bfe` and `iws-bfe`: minimalists are
"forced to cold-start".

Every minimalist is replaced, the policy's candidates first, then unloaded in the same order, until the variant fits.
What turns out needless is given back: to an application that was unloaded its smallest variant, where that fits beside
the rest (EM-11), before an application that was replaced gets its larger variant back. Whether the requester gets a
smaller variant before anybody is unloaded, or only after, says `requester.Order`.
"""

from collections.abc import Iterator, Sequence
from math import inf

from appliance.policies.residency.base import ApplicationState, Change, Option, ResidencyPlan, ResidencyProblem
from appliance.policies.residency.requester import loads
from appliance.policies.residency.space import Space, bounded
from appliance.policies.residency.victims import Victim, change, replaced, unloaded, victims
from appliance.policies.residency.windows import is_maximalist


def force_out(
    problem: ResidencyProblem,
    ranking: Sequence[str],
    asker: ApplicationState,
    wanted: Option,
    level: float = inf,
    *,
    shrinks_expected: bool = False,
) -> list[Change] | None:
    """The changes of others that let `wanted` fit; `ranking` names those that give way, those to go first before.

    Wishes of a higher priority than `level` are kept. `shrinks_expected`: where minimalists do not suffice, maximalists
    are replaced, too; none is ever unloaded (EM-10).
    """
    rank = {name: place for place, name in enumerate(ranking)}
    moves = [*_ranked(rank, victims(problem, replaced)), *_ranked(rank, victims(problem, unloaded))]
    if shrinks_expected:
        moves += _ranked(rank, victims(problem, replaced, are_expected=True))
    moves = [victim for victim in moves if victim.level <= level]
    own = Change(asker.name, asker.resident, wanted.name)
    taken: dict[str, Change] = {}
    space, loaded = Space(problem), asker.loaded
    for victim in moves:
        name = victim.application.name
        held = victim.loaded if name not in taken else victim.application.floor
        freed = held.bytes - (0 if victim.after is None else victim.after.bytes)
        if not space.spares(victim.application, freed, asker):
            continue
        if victim.after is not None and space.short_bytes(held, victim.after) > 0:
            continue
        space.take(victim.application, held, victim.after)
        taken[name] = change(victim)
        if space.short_bytes(loaded, wanted, beside=asker.pinned) > 0:
            continue
        if bounded(problem, (*_in_order(problem, taken), own)):
            return _in_order(problem, _needed(problem, taken, own))
    return None


def after_patience(problem: ResidencyProblem) -> ResidencyPlan | None:
    """For a request that has waited in vain for windows of others to close: the first of its variants that fits when
    minimalists leave and maximalists are replaced, those first whose last request was longest ago. None: none does.
    """
    asker = problem.asker
    ranking = [a.name for a in sorted(problem.applications, key=_last_request)]
    for wanted in asker.options:
        if wanted == asker.loaded:
            continue
        if bounded(problem, (Change(asker.name, asker.resident, wanted.name),)):
            return loads(asker, wanted, ())
        others = force_out(problem, ranking, asker, wanted, shrinks_expected=True)
        if others is not None:
            return loads(asker, wanted, others)
    return None


def _last_request(application: ApplicationState) -> tuple[int, str]:
    last_ns = application.last_request_ns
    return -1 if last_ns is None else last_ns, application.name


def _ranked(rank: dict[str, int], found: list[Victim]) -> list[Victim]:
    last = len(rank)
    return sorted(found, key=lambda victim: (victim.level, rank.get(victim.application.name, last)))


def _in_order(problem: ResidencyProblem, taken: dict[str, Change]) -> list[Change]:
    """Unloads, then the replacements, which each free memory for the next: first those that need least to load."""

    def needed_bytes(change: Change) -> float:
        application = problem.by_name[change.application]
        if change.after is None:
            return -inf
        return application.variant(change.after).peak_bytes - application.held_bytes

    return sorted(taken.values(), key=needed_bytes)


def _needed(problem: ResidencyProblem, taken: dict[str, Change], own: Change) -> dict[str, Change]:
    """Without what the fit does not need. What expected applications gave is given back first; then applications that
    would have nothing get as little as they may have; then what else is needless goes back.
    """
    expected = [name for name in taken if is_maximalist(problem.by_name[name], problem)]
    unloads = [name for name, change in taken.items() if change.after is None]
    for name in (*expected, *unloads, *taken):
        for less in _less(problem, taken, name):
            if bounded(problem, (*_in_order(problem, less), own)):
                taken = less
                break
    return taken


def _less(problem: ResidencyProblem, taken: dict[str, Change], name: str) -> Iterator[dict[str, Change]]:
    """The changes with a lesser one of that application, or with none: in the place of its unload a replacement."""
    change = taken.get(name)
    if change is None:
        return
    floor = problem.by_name[name].floor
    if change.after is None and floor.bytes < problem.by_name[name].held_bytes:
        yield {**taken, name: Change(name, change.before, floor.name)}
    yield {other: kept for other, kept in taken.items() if other != name}
