"""What a request is told that found no room, or no time."""

import asyncio
from dataclasses import replace

import pytest

from appliance.domain.catalogue import Accuracy, Evidence, Quota
from appliance.domain.errors import CeilingReached, DeadlineExceeded, OutOfMemory
from tests.fakes.clock import settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine

MB = 10**6


async def refused(bench: EngineBench, **facts: object) -> OutOfMemory:
    """The refusal of a request of `t/app`."""
    with pytest.raises(OutOfMemory) as caught:
        await bench.infer(**facts)  # type: ignore[arg-type]
    return caught.value


@story
async def test_refusal_names_smallest_need_that_can_never_be_met() -> None:
    """The smallest variant, though the largest is the one that is wanted; to wait is of no use."""
    bench = engine({"fp32": Cost(40 * MB), "int8": Cost(12 * MB, 15 * MB)}, 10 * MB)
    error = await refused(bench)
    assert (error.variant, error.need_bytes, error.can_fit, error.retry_after_s) == ("int8", 15 * MB, False, None)
    assert str(error) == (
        "no room in memory, ever: at the least int8 needs 15.0 MB, models may take 10.0 MB, or the part of it that "
        "the model's owner may take; "
        "raise the memory budget, or upload a smaller variant"
    )


@story
async def test_refusal_that_is_final_names_unverified_variant_that_would_fit() -> None:
    """Requests get it by its name, or where the application allows it; one that would not fit either is not named."""
    bench = EngineBench(20 * MB)
    application = bench.add({"fp32": Cost(40 * MB), "int8": Cost(12 * MB), "fp16": Cost(21 * MB)})
    model = bench.catalogue.entry(application.id).model
    noise = Accuracy(99.9, "1-error", "fp32", 4, evidence=Evidence.NOISE)
    variants = tuple(one if one.name == "fp32" else replace(one, accuracy=noise) for one in model.variants)
    bench.catalogue.put_model(replace(model, variants=variants))
    error = await refused(bench)
    assert (error.variant, error.can_fit, error.would_fit) == ("fp32", False, ["int8"])
    assert str(error).endswith(
        "; int8 would fit and is unverified: name it, or set unverified of the application to allow; else raise the "
        "memory budget, or upload a smaller variant"
    )


@story
async def test_refusal_names_own_blockers_and_not_those_of_other_tenants() -> None:
    """The tenant's own application by its id, another tenant's without a name; both are in use, which may be over at
    any moment.
    """
    async with at_work(EngineBench(20 * MB, workers=2, wait_ms_max=50)) as bench:
        bench.add({"v": Cost(10 * MB, load_ms=0, run_ms=5000)}, name="own")
        bench.add({"v": Cost(8 * MB, load_ms=0, run_ms=5000)}, name="foreign", tenant="u")
        bench.add({"fp32": Cost(15 * MB), "int8": Cost(5 * MB)})
        others = [
            asyncio.create_task(bench.infer(application="t/own")),
            asyncio.create_task(bench.infer(application="u/foreign", tenant="u")),
        ]
        await bench.pause(10)
        error = await refused(bench)
        assert error.blockers == [
            {"application": "t/own", "mb": 10.0, "why": "pinned", "until_s": None},
            {"application": None, "mb": 8.0, "why": "pinned", "until_s": None},
        ]
        assert str(error) == (
            "no room in memory now: at the least int8 needs 5.0 MB, and 2.0 MB of 20.0 MB are free; t/own 10 MB "
            "(pinned); "
            "another's application 8 MB (pinned); try again in 1 s"
        )
        assert "u/foreign" not in repr(error)
        await asyncio.gather(*others)


@story
async def test_refusal_for_window_says_when_window_ends() -> None:
    """An expected application holds its memory to the end of its window: that is when to try again."""
    async with at_work(
        EngineBench(20 * MB, patience_ms=None, delta_ms=100, delta_share_max=1), residency=True
    ) as bench:
        bench.add({"v": Cost(20 * MB, load_ms=300)}, name="other")
        bench.add({"int8": Cost(5 * MB)})
        for pause_ms in (3_000, 5_000, 3_000, 5_000, 2_000):
            await bench.infer(application="t/other")
            await bench.pause(pause_ms)
        rows = bench.core.residency.rows
        while list(rows())[1]["set"] != "maximalist":
            await bench.pause(50)
        await bench.pause(350)  # the loop opens it so much earlier, for what must be made room
        error = await refused(bench)
    (window,) = error.blockers
    assert (window["application"], window["why"]) == ("t/other", "in its window")
    until_s = window["until_s"]
    assert until_s is not None
    assert 0 < until_s < 4
    assert error.retry_after_s == max(1.0, until_s)


@story
async def test_refusal_for_load_says_how_long_load_takes() -> None:
    """A build that is being loaded for another request cannot leave before it is there."""
    async with at_work(EngineBench(20 * MB, wait_ms_max=50)) as bench:
        bench.add({"v": Cost(20 * MB, load_ms=3_000)}, name="other")
        bench.add({"int8": Cost(5 * MB)})
        loading = asyncio.create_task(bench.infer(application="t/other"))
        await settle()
        error = await refused(bench)
        assert error.blockers == [{"application": "t/other", "mb": 20.0, "why": "loading", "until_s": 3.0}]
        assert error.retry_after_s == 3.0
        await loading


@story
async def test_refusal_for_guaranteed_memory_has_no_retry_time() -> None:
    """Another tenant's guarantee has no known end, so the refusal does not say to try again."""
    async with at_work(EngineBench(20 * MB)) as bench:
        bench.add({"v": Cost(20 * MB)}, name="other", tenant="u", quota=Quota(memory_guarantee_bytes=20 * MB))
        bench.add({"int8": Cost(5 * MB)})
        await bench.infer(application="u/other", tenant="u")
        error = await refused(bench)
    assert error.blockers == [{"application": None, "mb": 20.0, "why": "guaranteed", "until_s": None}]
    assert (error.can_fit, error.retry_after_s) == (True, None)
    assert str(error).endswith("how long is not known: unload a model, or upload a smaller variant")


@story
async def test_refusal_names_memory_of_other_programs() -> None:
    """The budget has shrunk below what the model needs; the model could fit when other programs give memory back."""
    bench = engine({"int8": Cost(5 * MB)}, 20 * MB)
    bench.memory.resize(2 * MB)
    error = await refused(bench)
    assert (error.budget_bytes, error.can_fit) == (20 * MB, True)
    assert error.blockers == [{"application": None, "mb": 18.0, "why": "other programs", "until_s": None}]


@story
async def test_refusal_for_ceiling_shows_figures_to_tenant_alone() -> None:
    """What the tenant holds, may hold and needs; a guest of the shared model learns none of it. A build larger than the
    ceiling is refused for ever.
    """
    bench = EngineBench(100 * MB, workers=2, wait_ms_max=50)
    quota = Quota(memory_ceiling_bytes=15 * MB)
    bench.add({"v": Cost(10 * MB, load_ms=0, run_ms=5000)}, name="own", quota=quota)
    bench.add({"int8": Cost(8 * MB)}, quota=quota, shared=True)
    bench.add({"big": Cost(16 * MB)}, name="big", quota=quota)
    bench.add({"v": Cost(1)}, name="guest", tenant="u")
    async with at_work(bench):
        running = asyncio.create_task(bench.infer(application="t/own"))
        await bench.pause(10)
        error = await refused(bench)
        assert isinstance(error, CeilingReached)
        assert (error.tenant, error.held_bytes, error.ceiling_bytes, error.retry_after_s) == ("t", 10 * MB, 15 * MB, 1)
        assert str(error) == (
            "no room in memory now: at the least int8 needs 8.0 MB, tenant 't' holds 10.0 MB and may hold 15.0 MB; "
            "t/own 10 MB (pinned); "
            "try again in 1 s, or unload another of its models, upload a smaller variant, or have the ceiling raised"
        )
        guest = await refused(bench, tenant="u")
        assert type(guest) is OutOfMemory
        assert "t/own" not in str(guest)
        never = await refused(bench, application="t/big")
        assert (type(never), never.can_fit, never.retry_after_s) == (CeilingReached, False, None)
        await running


@story
async def test_deadline_refusal_says_times_waited_decoded_and_expected() -> None:
    """In the queue and while a load is waited for."""
    bench = engine(Cost(load_ms=50, run_ms=30))
    hopeless, request = bench.request(within_ms=40), bench.request(within_ms=60)
    await bench.pause(20)
    async with at_work(bench):
        with pytest.raises(DeadlineExceeded) as at_once:
            await bench.engine.infer(hopeless)
        assert (at_once.value.waited_ms, at_once.value.expected_ms) == pytest.approx((20, 30))
        assert bench.memory.loads == 0, "nothing is loaded for what cannot be in time"
        with pytest.raises(DeadlineExceeded) as caught:
            await bench.engine.infer(request)
        error = caught.value
        assert (error.waited_ms, error.expected_ms, error.decoded_ms) == pytest.approx((60, 30, 20))
        assert str(error) == (
            "the deadline cannot be kept: 60.0 ms have passed (20.0 ms of them to read and decode the input), and a "
            "run is expected to take 30.0 ms; "
            "allow more time, or take a faster variant"
        )
        await bench.infer()
        with pytest.raises(DeadlineExceeded) as late:
            await bench.infer(within_ms=20)
        assert (late.value.waited_ms, late.value.expected_ms) == pytest.approx((0, 30))
