"""Scrooge's second step (§3.3, SC-12, SC-13): the partial instances' configurations under W*, with the full instances
as they are.

W* is convex in the rate and each stage's rate is given here, so nothing needs a solver: each stage has a few ways to
serve its rest, and the cheapest choice that fits the SLO is found exactly while the combinations are few, greedily
otherwise.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from appliance.policies.allocation.base import TOLERANCE
from appliance.policies.allocation.configurations import Configuration, Pipeline, Plans, Stage, StagePlan, critical_ms

EXACT_MAX = 50_000
"""Combinations up to which the choice is exact."""

Room = Callable[[Plans], bool]
"""Whether the workers that are available have room for the plans of the first stages of a pipeline."""
Assignment = Mapping[Configuration, float]
"""Of one stage: the rate by configuration, as the first step left it; sums to the stage's rate."""


def refined(
    pipeline: Pipeline, assigned: Sequence[Assignment], room: Room | None = None, exact_max: int = EXACT_MAX
) -> Plans | None:
    """Whole instances of what was assigned, and the best partial instance for the rest of each stage; None when none
    fits, or none has room.
    """
    options = [rest_options(stage, rates) for stage, rates in zip(pipeline.stages, assigned, strict=True)]
    return cheapest(pipeline, options, room, exact_max)


def rest_options(stage: Stage, assigned: Assignment) -> list[StagePlan]:
    """Every configuration for the rest that whole instances leave; also with one whole instance fewer, so that the rest
    fills batches faster, and
    with one more, where the rests of several configurations are too much for one instance."""
    counts = {c: int(rate / c.throughput_rps * (1.0 + TOLERANCE)) for c, rate in assigned.items()}
    options = _with_rest(stage, counts)
    for changed, count in counts.items():
        for other in (count - 1, count + 1):
            if other >= 0:
                options += _with_rest(stage, {**counts, changed: other})
    return options


def _with_rest(stage: Stage, counts: Mapping[Configuration, int]) -> list[StagePlan]:
    fulls = tuple((c, count) for c, count in counts.items() if count)
    rest = stage.rate_rps - sum(count * c.throughput_rps for c, count in fulls)
    if abs(rest) <= TOLERANCE * stage.rate_rps:
        return [StagePlan(fulls, None)]
    if rest < 0.0:
        return []
    fitting = (c for c in stage.configurations if rest <= c.throughput_rps * (1.0 + TOLERANCE))
    return [StagePlan(fulls, (c, rest)) for c in fitting]


def cheapest(
    pipeline: Pipeline, options: Sequence[Sequence[StagePlan]], room: Room | None = None, exact_max: int = EXACT_MAX
) -> Plans | None:
    """One option for each stage, within the SLO and the room, at the least cost; exact up to `exact_max`
    combinations.
    """
    plans = _choice(pipeline, [_front(found) for found in options], None, exact_max)
    if room is None or plans is None or room(plans):
        return plans
    return _choice(pipeline, [_fronts_by_worker(found) for found in options], room, exact_max)


def _choice(
    pipeline: Pipeline, fronts: Sequence[Sequence[StagePlan]], room: Room | None, exact_max: int
) -> Plans | None:
    if not all(fronts):
        return None
    if math.prod(len(front) for front in fronts) <= exact_max:
        return _exact(pipeline, fronts, room)
    return _greedy(pipeline, fronts, room)


def _front(options: Sequence[StagePlan]) -> list[StagePlan]:
    """By falling latency and rising cost; of equals the first."""
    kept: list[StagePlan] = []
    for plan in sorted(options, key=lambda plan: (plan.cost, plan.latency_ms)):
        if not kept or plan.latency_ms < kept[-1].latency_ms:
            kept.append(plan)
    return kept


def _fronts_by_worker(options: Sequence[StagePlan]) -> list[StagePlan]:
    """By rising cost, the front of each way of taking whole workers and a part of one: a dearer and slower plan may
    leave the type that is short.
    """
    groups: dict[tuple[object, ...], list[StagePlan]] = {}
    for plan in options:
        whole: dict[object, int] = {}
        for c, count in plan.fulls:
            takes = c.worker, tuple((one.worker, one.share) for one in c.draws)
            whole[takes] = whole.get(takes, 0) + count
        partial = (plan.partial[0].worker, plan.partial[0].draws) if plan.partial else None
        groups.setdefault((partial, *sorted(whole.items(), key=repr)), []).append(plan)
    kept = [plan for group in groups.values() for plan in _front(group)]
    return sorted(kept, key=lambda plan: (plan.cost, plan.latency_ms))


def _exact(pipeline: Pipeline, fronts: Sequence[Sequence[StagePlan]], room: Room | None) -> Plans | None:
    """Depth first, cheap options first; what is not chosen yet counts with its fastest option and its cheapest cost."""
    fastest = [min(front, key=lambda plan: plan.latency_ms) for front in fronts]
    least = [sum(front[0].cost for front in fronts[i:]) for i in range(len(fronts) + 1)]
    best: tuple[float, Plans] | None = None

    def below(chosen: Plans, cost: float) -> None:
        nonlocal best
        depth = len(chosen)
        if depth == len(fronts):
            best = cost, chosen
            return
        for plan in fronts[depth]:
            total = cost + plan.cost
            if best is not None and total + least[depth + 1] >= best[0] * (1.0 - TOLERANCE):
                return
            plans = (*chosen, plan)
            if pipeline.fits(critical_ms(pipeline, (*plans, *fastest[depth + 1 :]))) and _has(room, plans):
                below(plans, total)

    below((), 0.0)
    return None if best is None else best[1]


def _has(room: Room | None, plans: Plans) -> bool:
    return room is None or room(plans)


def _greedy(pipeline: Pipeline, fronts: Sequence[Sequence[StagePlan]], room: Room | None) -> Plans | None:
    """From the fastest options that have room, step by step the change that saves most for the latency that it adds."""
    plans: Plans = ()
    for front in fronts:
        quick_first = sorted(front, key=lambda plan: (plan.latency_ms, plan.cost))
        fastest = next((plan for plan in quick_first if _has(room, (*plans, plan))), None)
        if fastest is None:
            return None
        plans = (*plans, fastest)
    if not pipeline.fits(critical_ms(pipeline, plans)):
        return None
    while True:
        best: tuple[float, Plans] | None = None
        for stage, front in enumerate(fronts):
            now = plans[stage]
            for plan in (one for one in front if one.cost < now.cost):
                changed = (*plans[:stage], plan, *plans[stage + 1 :])
                worth = (now.cost - plan.cost) / max(plan.latency_ms - now.latency_ms, TOLERANCE)
                is_better = best is None or worth > best[0]
                if is_better and pipeline.fits(critical_ms(pipeline, changed)) and _has(room, changed):
                    best = worth, changed
        if best is None:
            return plans
        plans = best[1]
