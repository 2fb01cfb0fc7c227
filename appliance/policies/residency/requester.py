"""How the paper's policies answer a requester: its variants from the most accurate down, and for each the policy's way
to make room (§III-B1, EM-23).

Attempts start from the unmodified state. Wishes are broken last, the lower priority first, and never for an upgrade.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Literal

from appliance.policies.residency.base import (
    PROMISED,
    ApplicationState,
    Change,
    Option,
    Outcome,
    ResidencyPlan,
    ResidencyProblem,
)
from appliance.policies.residency.space import Space, bounded
from appliance.policies.residency.victims import NO_WISH, Victim, broken_wish, levels
from appliance.policies.residency.windows import is_maximalist

MakeRoom = Callable[[Space, ApplicationState, Option, Sequence[Victim]], list[Change] | None]
"""The changes of others that let the option fit, or None."""
LastResort = Callable[[ApplicationState, Option, float], list[Change] | None]
"""The same by unloading others (EM-24), breaking wishes up to that priority."""
Order = Literal["shrink-first", "unload-first"]
"""What comes before the other where replacement alone does not make room: a smaller variant for the requester, as in
Algorithm 1, where nobody is unloaded before the requester's smallest has failed; or the last resort for each
variant, as in the text of §III-A and III-B1."""


def answer(
    problem: ResidencyProblem,
    found: Sequence[Victim],
    make_room: MakeRoom,
    last_resort: LastResort | None = None,
    order: Order = "shrink-first",
) -> ResidencyPlan:
    """The plan for `serve` and `procure`. Nobody is unloaded by `last_resort` but for somebody who waits."""
    if problem.request is None or problem.intent == "rebalance":
        return ResidencyPlan("warm", None, (), "there is no request, and this policy moves nothing by itself")
    asker = problem.by_name[problem.request]
    loaded = asker.loaded
    wanted = wanted_options(problem, asker, loaded)
    if not wanted:
        return stays(asker)
    space = Space(problem)
    waits = loaded is None or problem.intent == "serve"
    # A wish gives way to a request, not to a better variant of something that is resident.
    for level in levels(found) if waits else (NO_WISH,):
        allowed = [victim for victim in found if victim.level <= level]
        for option in wanted:
            changes = make_room(space, asker, option, allowed)
            if changes is None and waits and last_resort is not None and order == "unload-first":
                changes = last_resort(asker, option, level)
            if changes is not None:
                return loads(asker, option, changes)
    for option in _easiest_first(wanted) if last_resort is not None and waits else ():
        assert last_resort is not None
        changes = last_resort(asker, option, inf)
        if changes is not None:
            return loads(asker, largest_fit(problem, asker, wanted, changes), changes)
    return no_room(problem, asker, loaded)


def _easiest_first(wanted: Sequence[Option]) -> list[Option]:
    """By what each needs while it loads, which may be least for another one than the smallest."""
    return sorted(reversed(wanted), key=lambda option: option.peak_bytes)


def wanted_options(problem: ResidencyProblem, asker: ApplicationState, loaded: Option | None) -> Sequence[Option]:
    """What may be loaded for the requester, most accurate first; empty where what it has will do.

    To serve, any resident variant that may answer will do; to procure, only a more accurate one is worth a load.
    """
    options = asker.ladder
    if loaded is None:
        return options
    if problem.intent == "serve":
        return [] if loaded in options else options
    return [option for option in options if option.accuracy > loaded.accuracy]


def fits_now(problem: ResidencyProblem, asker: ApplicationState, wanted: Sequence[Option]) -> bool:
    """Whether any of `wanted` may be loaded though nobody else gives way."""
    space, loaded = Space(problem), asker.loaded
    return any(
        space.short_bytes(loaded, option, beside=asker.pinned) <= 0
        and space.over_ceiling_bytes(asker, loaded, option) <= 0
        for option in wanted
    )


def largest_fit(
    problem: ResidencyProblem, asker: ApplicationState, wanted: Sequence[Option], changes: Sequence[Change]
) -> Option:
    """The most accurate of `wanted` (in that order) that fits once the others have changed: whole variants free more
    than was short (EM-22).

    Raises: StopIteration where none does.
    """
    return next(o for o in wanted if bounded(problem, (*changes, Change(asker.name, asker.resident, o.name))))


def stays(asker: ApplicationState) -> ResidencyPlan:
    """Nothing is missing."""
    return ResidencyPlan("warm", asker.resident, (), f"{asker.resident} of {asker.name} is in memory")


def loads(asker: ApplicationState, option: Option, others: Sequence[Change]) -> ResidencyPlan:
    """The others give way, then the requester's variant is loaded."""
    own = Change(asker.name, asker.resident, option.name)
    what = f"{option.name} of {asker.name} is loaded"
    if not others:
        reason = f"{what} into free memory"
    else:
        reason = f"{what}; for it {', '.join(change.told for change in others)}"
    return ResidencyPlan("cold", option.name, (*others, own), reason)


def no_room(
    problem: ResidencyProblem, asker: ApplicationState, loaded: Option | None, *, nobody_yields: bool = False
) -> ResidencyPlan:
    """Not even the smallest fits; a better variant that does not is no failure.

    `nobody_yields`: others were not asked, so why they do not give way is no reason.
    """
    if loaded is not None and problem.intent == "procure":
        return ResidencyPlan("warm", loaded.name, (), f"{asker.name} keeps {loaded.name}: nothing better fits")
    outcome: Outcome = "skipped" if problem.intent == "procure" else "failed"
    smallest = asker.floor
    reason = (
        f"not even the smallest variant of {asker.name} fits: {_obstacles(problem, asker, smallest, nobody_yields)}"
    )
    return ResidencyPlan(outcome, None, (), reason)


def _obstacles(problem: ResidencyProblem, asker: ApplicationState, smallest: Option, nobody_yields: bool) -> str:
    """Why there is no room, each cause in its own words."""
    need = f"{smallest.name} needs {_megabytes(smallest.peak_bytes)}"
    if smallest.peak_bytes > problem.memory_bytes:
        return f"{need}, it is too large for {_megabytes(problem.memory_bytes)}"
    space = Space(problem)
    over = space.over_ceiling_bytes(asker, None, smallest)
    causes = [f"{need}, {_megabytes(max(0, space.free_bytes))} are free"]
    if over > 0:
        causes = [f"{need}, {_megabytes(over)} above the ceiling of its tenant"]
    others = () if nobody_yields else sorted(problem.applications, key=lambda a: a.name)
    for application in others:
        loaded = application.loaded
        if loaded is None or application is asker:
            continue
        if application.pinned:
            causes.append(f"{application.name} is pinned")
        elif broken_wish(application, loaded, None, problem.now_ns) >= PROMISED:
            causes.append(f"{application.name} is promised to sessions")
        elif is_maximalist(application, problem):
            causes.append(f"{application.name} is in its window")
        elif not space.spares(application, loaded.bytes, asker):
            causes.append(f"{application.name} is guaranteed")
    return ", ".join(causes)


def _megabytes(count: int) -> str:
    return f"{count / 10**6:.4g} MB"
