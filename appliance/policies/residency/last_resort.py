"""The framework's last resort (Edge-MultiAI §III-A and III-B1, EM-24), of `ws-bfe` and `iws-bfe`: minimalists are
"forced to cold-start".

Every minimalist is replaced, the policy's candidates first, then unloaded in the same order, until the variant fits;
what turns out needless is given back. Whether the requester gets a smaller variant before anybody is unloaded, or only
after, says `requester.Order`.
"""

from collections.abc import Sequence
from math import inf

from appliance.policies.residency.base import ApplicationState, Change, Option, ResidencyProblem
from appliance.policies.residency.space import Space, bounded
from appliance.policies.residency.victims import Victim, change, replaced, unloaded, victims


def force_out(
    problem: ResidencyProblem, ranking: Sequence[str], asker: ApplicationState, wanted: Option, level: float = inf
) -> list[Change] | None:
    """The changes of others that let `wanted` fit; `ranking` names the minimalists, those to go first before.

    Wishes of a higher priority than `level` are kept.
    """
    rank = {name: place for place, name in enumerate(ranking)}
    moves = [*_ranked(problem, rank, replaces=True), *_ranked(problem, rank, replaces=False)]
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
        if bounded(problem, (*_unloads_first(taken), own)):
            return _needed(problem, _unloads_first(taken), own)
    return None


def _ranked(problem: ResidencyProblem, rank: dict[str, int], replaces: bool) -> list[Victim]:
    found = victims(problem, replaced if replaces else unloaded)
    last = len(rank)
    return sorted(found, key=lambda victim: (victim.level, rank.get(victim.application.name, last)))


def _unloads_first(taken: dict[str, Change]) -> list[Change]:
    return sorted(taken.values(), key=lambda change: change.after is not None)


def _needed(problem: ResidencyProblem, changes: list[Change], own: Change) -> list[Change]:
    """Without the changes that the fit does not need: replacements that unloading has overtaken."""
    for candidate in [c for c in changes if c.after is not None] + [c for c in changes if c.after is None]:
        rest = [c for c in changes if c is not candidate]
        if bounded(problem, (*rest, own)):
            changes = rest
    return changes
