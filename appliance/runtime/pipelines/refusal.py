"""Why a client is refused, and what it would be let in with. Pure, but for the policy and the decisions it asks for."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace

from appliance.domain.session import RATE_MIN
from appliance.policies.allocation.base import AllocationInput, AllocationPolicy
from appliance.policies.allocation.several import Served
from appliance.runtime.pipelines.accounts import HOST

NEAR = 0.02
"""Share of a rate that is refused by which the rate that is said to be possible may lie below it."""
TRIALS_MAX = 16
"""Rates that are tried to find it. Each takes as long as a client that joins."""
TIME = "time"
"""What is missing where no processor would help."""


async def most_accepted(is_accepted: Callable[[float], Awaitable[bool]], refused_fps: float) -> float:
    """The largest rate that is accepted, to `NEAR`, in whole hundredths; 0 where of `TRIALS_MAX` none is. Whatever is
    accepted, less is, too. `refused_fps`: a rate that was refused, or that would be.
    """
    accepted, refused = 0, math.ceil(refused_fps / RATE_MIN)
    for _ in range(TRIALS_MAX):
        if refused - accepted <= max(1.0, NEAR * refused):
            break
        middle = (accepted + refused) // 2  # between the two: each trial takes away half of what is left
        if await is_accepted(middle * RATE_MIN):
            accepted = middle
        else:
            refused = middle
    return round(accepted * RATE_MIN, 2)


def lacks(problem: AllocationInput, policy: AllocationPolicy) -> tuple[str, ...]:
    """What there is not enough of for a problem: processors of a kind; or nothing would serve it, for its SLO is too
    small.
    """
    endless = tuple(replace(one, available=0 if one.available == 0 else None) for one in problem.workers)
    plan = policy.plan(replace(problem, workers=endless, existing=()))
    if not plan.feasible:
        return (TIME,)
    wanted = {place.worker for place in plan.placement if place.worker != HOST} or {HOST}
    scarce = {one.pool for one in problem.workers if one.name in wanted and one.available is not None}
    return tuple(f"processor {one.name}" for one in problem.workers if one.name in wanted and one.pool in scarce)


def own_words(served: Served, is_other: bool) -> str:
    """The policy's reason; of another pipeline nothing, which may be another tenant's."""
    return "the processors are taken" if is_other else served.plan.reason
