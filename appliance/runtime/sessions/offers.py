"""Counter-offers: the promises nearest to one that cannot be kept, found by asking the planner itself.

A little less is offered than what was found to be possible, so that an offer is still possible when it is posted.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace

from appliance.domain.session import AccuracyPromise, LatencyPromise, Offer, Promise

NEAR = 2.0 ** (1 / 8) + 1e-9
"""Times what is not possible: what is possible at no more than this is near enough."""
MARGIN = 1.05
OFFERED_TRIES = 3
"""Of drops, each a margin larger: frames that were packed for a smaller one may fall worse for a larger one."""
SLO_MS_MAX = 60_000.0
RATE_RPS_MIN = 0.5
DROP_MAX = 0.5

Fits = Callable[[Promise], Awaitable[bool]]


async def offers(promise: Promise, fits: Fits) -> list[Offer]:
    """At most three, one for each thing that the caller could give up: latency, rate and accuracy."""
    if isinstance(promise, AccuracyPromise):
        return await _drop(promise, fits)
    found = [*await _slo(promise, fits), *await _rate(promise, fits)]
    if not found and promise.accuracy_min:
        without = replace(promise, accuracy_min=None)
        if await fits(without):
            return [Offer(without)]
        found = [*await _slo(without, fits), *await _rate(without, fits)]
    return found


async def _slo(promise: LatencyPromise, fits: Fits) -> list[Offer]:
    def of(factor: float) -> LatencyPromise:
        return replace(promise, slo_ms=min(SLO_MS_MAX, float(math.ceil(promise.slo_ms * factor))))

    factor = await _least(lambda f: fits(of(f)), SLO_MS_MAX / promise.slo_ms)
    return [] if factor is None else [Offer(of(factor * MARGIN))]


async def _rate(promise: LatencyPromise, fits: Fits) -> list[Offer]:
    def of(factor: float) -> LatencyPromise:
        return replace(promise, rate_rps=math.floor(promise.rate_rps / factor * 100.0 + 1e-6) / 100.0)

    async def is_possible(factor: float) -> bool:
        return of(factor).rate_rps >= RATE_RPS_MIN and await fits(of(factor))

    factor = await _least(is_possible, promise.rate_rps / RATE_RPS_MIN)
    offered = None if factor is None else of(factor * MARGIN)
    return [] if offered is None or offered.rate_rps <= 0.0 else [Offer(offered)]


async def _drop(promise: AccuracyPromise, fits: Fits) -> list[Offer]:
    def of(factor: float) -> AccuracyPromise:
        return replace(promise, drop_max=min(DROP_MAX, math.ceil(promise.drop_max * factor * 1e4) / 1e4))

    factor = await _least(lambda f: fits(of(f)), DROP_MAX / promise.drop_max)
    for times in range(1, OFFERED_TRIES + 1):
        if factor is not None and await fits(offered := of(factor * MARGIN**times)):
            return [Offer(offered)]
    return []


async def _least(is_possible: Callable[[float], Awaitable[bool]], most: float) -> float | None:
    """The least factor above 1 that was found to be possible, near enough; None: none up to `most` is.

    Most offers are near, so these are found first: each step is the square of the one before.
    """
    if most <= 1.0:
        return None
    low, high = 1.0, min(2.0, most)
    while not await is_possible(high):
        if high >= most:
            return None
        low, high = high, min(high * high, most)
    while high > low * NEAR:
        middle = math.sqrt(low * high)
        if await is_possible(middle):
            high = middle
        else:
            low = middle
    return high
