"""Which requests are noted, and with what."""

import numpy as np
import pytest

from appliance.domain.catalogue import Quota
from appliance.domain.errors import DeadlineExceeded, QuotaExceeded
from appliance.domain.notable import Cause, NotableRequest
from appliance.runtime.telemetry import SAMPLE_EVERY
from tests.fakes.clock import ms, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine


def noted(bench: EngineBench, application: str = "t/app") -> list[NotableRequest]:
    assert bench.telemetry.notable is not None
    return bench.telemetry.notable.of(application)


@story
async def test_cold_request_is_noted_and_a_warm_request_in_time_is_not() -> None:
    """With its times, and its id cut to 64 characters."""
    async with at_work(EngineBench()) as bench:
        bench.add({"v": Cost(load_ms=100, run_ms=10)}, slo_ms=500)
        await bench.infer(id="x" * 100)
        await bench.infer()
    [one] = noted(bench)
    assert one.kind.causes == (Cause.COLD,)
    assert (one.kind.variant, one.kind.best, one.slo_ms, one.id) == ("v", "v", 500, "x" * 64)
    assert (ms(one.spent.load_ns), ms(one.spent.compute_ns), ms(one.ended_ns - one.arrival_ns)) == (100, 10, 110)


@story
async def test_request_without_an_answer_in_time_is_noted_as_late_and_failed() -> None:
    """With the words of the error."""
    async with at_work(EngineBench()) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=40)}, slo_ms=50)
        await bench.infer()
        await bench.pause(200)
        with pytest.raises(DeadlineExceeded):
            await bench.infer(within_ms=20)
    [late, _] = noted(bench)
    assert late.kind.causes == (Cause.FAILED, Cause.LATE)
    assert late.kind.problem is DeadlineExceeded
    assert late.detail


@story
async def test_answer_by_a_smaller_variant_is_noted_where_none_was_named() -> None:
    """A request that named the smaller variant wanted it."""
    async with at_work(
        engine(
            {
                "best": Cost(resident_bytes=90, peak_bytes=90, load_ms=100),
                "small": Cost(resident_bytes=10, peak_bytes=10),
            },
            budget=100,
        )
    ) as bench:
        bench.add({"v": Cost(resident_bytes=60, peak_bytes=60, run_ms=10_000)}, name="other")
        await bench.infer(variant="small")
        await bench.pause(200)
        result = await bench.infer()
        await bench.pause(200)
        await bench.infer(variant="small")
    assert result.variant == "small"
    seen = [(one.kind.causes, one.kind.variant, one.kind.best) for one in noted(bench)]
    assert seen == [((Cause.SMALLER,), "small", "best"), ((Cause.COLD,), "small", "best")]


@story
async def test_ordinary_requests_are_noted_as_samples() -> None:
    """Of many requests with which nothing is amiss one is noted."""
    async with at_work(engine(Cost(load_ms=0, run_ms=1))) as bench:
        for _ in range(2 * SAMPLE_EVERY):
            await bench.infer()
    assert [one.kind.causes for one in noted(bench)] == [(Cause.SAMPLE,), (Cause.SAMPLE,), (Cause.COLD,)]


@story
async def test_refused_requests_are_noted_as_one_entry_with_a_count() -> None:
    """A flood beyond a quota: nothing of what it carried is noted."""
    async with at_work(EngineBench()) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=1)}, quota=Quota(requests_per_s=1))
        await bench.infer()
        for _ in range(50):
            with pytest.raises(QuotaExceeded):
                await bench.infer(inputs={"x": np.array([12345.0], np.float32)})
    [refused, _] = noted(bench)
    assert (refused.kind.causes, refused.kind.problem, refused.times) == ((Cause.FAILED,), QuotaExceeded, 50)
    assert "12345" not in repr(refused)
