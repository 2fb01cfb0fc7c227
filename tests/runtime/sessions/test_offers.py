"""Counter-offers."""

import pytest

from appliance.domain.session import AccuracyPromise, LatencyPromise, Promise
from appliance.runtime.sessions.offers import offers

pytestmark = pytest.mark.anyio


async def test_counter_offers_are_possible_and_close_to_bound() -> None:
    """For each thing that can be given up, a little beyond the bound, and never beyond it."""

    async def fits(promise: Promise) -> bool:
        assert isinstance(promise, LatencyPromise)
        return promise.slo_ms >= 170 or promise.rate_rps <= 4

    found = [one.promise for one in await offers(LatencyPromise(100, 15), fits)]
    assert [await fits(promise) for promise in found] == [True, True]
    slower, rarer = found
    assert isinstance(slower, LatencyPromise)
    assert isinstance(rarer, LatencyPromise)
    assert 170 <= slower.slo_ms <= 200
    assert slower.rate_rps == 15
    assert 3 <= rarer.rate_rps <= 4
    assert rarer.slo_ms == 100


async def test_counter_offers_reach_far_promises_with_few_questions() -> None:
    """A promise that is off by a hundred times or more."""
    asked = 0

    async def fits(promise: Promise) -> bool:
        nonlocal asked
        asked += 1
        if isinstance(promise, AccuracyPromise):
            return promise.drop_max >= 0.04
        return promise.slo_ms >= 900 or promise.rate_rps <= 2

    slower, rarer = [one.promise for one in await offers(LatencyPromise(2, 900), fits)]
    assert isinstance(slower, LatencyPromise)
    assert isinstance(rarer, LatencyPromise)
    assert 900 <= slower.slo_ms <= 1100
    assert 1.7 <= rarer.rate_rps <= 2
    [small] = [one.promise for one in await offers(AccuracyPromise(0.0001), fits)]
    assert isinstance(small, AccuracyPromise)
    assert 0.04 <= small.drop_max <= 0.05
    assert asked <= 36


async def test_counter_offers_are_none_where_no_promise_is_possible() -> None:
    """An accuracy that cannot be had is given up before."""

    async def never(_: Promise) -> bool:
        return False

    assert await offers(LatencyPromise(100, 15, 99.0), never) == []

    async def without_floor(promise: Promise) -> bool:
        return isinstance(promise, LatencyPromise) and promise.accuracy_min is None

    [one] = await offers(LatencyPromise(100, 15, 99.0), without_floor)
    assert one.promise == LatencyPromise(100, 15)


async def test_counter_offer_of_drop_is_slightly_above_smallest_possible() -> None:
    async def fits(promise: Promise) -> bool:
        return isinstance(promise, AccuracyPromise) and promise.drop_max >= 0.07

    [one] = await offers(AccuracyPromise(0.02), fits)
    assert isinstance(one.promise, AccuracyPromise)
    assert 0.07 <= one.promise.drop_max <= 0.085


async def test_counter_offer_of_drop_was_itself_found_possible() -> None:
    """Packing is not monotone: what fits at 0.0708 need not at 0.0743."""

    async def fits(promise: Promise) -> bool:
        assert isinstance(promise, AccuracyPromise)
        return promise.drop_max >= 0.07 and not 0.072 <= promise.drop_max < 0.075

    [one] = await offers(AccuracyPromise(0.05), fits)
    assert await fits(one.promise)

    async def fits_there_only(promise: Promise) -> bool:
        return isinstance(promise, AccuracyPromise) and promise.drop_max == 0.1

    assert await offers(AccuracyPromise(0.05), fits_there_only) == []
