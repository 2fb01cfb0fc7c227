"""Counter-offers."""

import pytest

from appliance.domain.session import AccuracyPromise, LatencyPromise, Promise
from appliance.runtime.sessions.offers import offers

pytestmark = pytest.mark.anyio


async def test_counter_offers_double_and_then_bisect() -> None:
    """100 ms where 230 are needed: 200 no, 400 yes, 283 yes, 238 yes, 219 no; 1.05 · 237.84 = 250. Ten a second where 3
    may be had: 5 no, 2.5 yes, 3.53 no, 2.97 yes, 3.24 no; 10 / (1.05 · 3.3636) = 2.83. A drop of 0.02 where 0.05 can be
    kept: 0.04 no, 0.08 yes, 0.0566 yes, 0.0476 no, 0.0519 yes; 1.05 · 0.051874 = 0.0545.
    """
    asked: list[Promise] = []

    async def fits(promise: Promise) -> bool:
        asked.append(promise)
        if isinstance(promise, AccuracyPromise):
            return promise.drop_max >= 0.05
        return promise.slo_ms >= 230.0 or promise.rate_rps <= 3.0

    found = [one.promise for one in await offers(LatencyPromise(100.0, 10.0), fits)]
    assert found == [LatencyPromise(250.0, 10.0), LatencyPromise(100.0, 2.83)]
    assert [one.slo_ms for one in asked[:5] if isinstance(one, LatencyPromise)] == [200, 400, 283, 238, 219]
    rates = [one.rate_rps for one in asked[5:] if isinstance(one, LatencyPromise)]
    assert rates == [5.0, 2.5, 3.53, 2.97, 3.24]
    assert [one.promise for one in await offers(AccuracyPromise(0.02), fits)] == [AccuracyPromise(0.0545)]


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
