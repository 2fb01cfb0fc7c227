"""Deadlines are timers: the answer that one has passed comes when it passes, wherever the request is."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from appliance.domain.catalogue import Late, StateSpec, TaskSpec
from appliance.domain.errors import DeadlineExceeded, RunStopped
from tests.fakes.clock import ms, settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine

STATE = TaskSpec(state=(StateSpec("x", "y", (-1,)),))


async def refused_after(bench: EngineBench, *, ran_ms: float | None = None, **facts: Any) -> float:
    """Milliseconds until a request is told that its deadline has passed, and how long its run had taken by then."""
    start_ns = bench.clock.now_ns()
    with pytest.raises(DeadlineExceeded) as raised:
        await bench.infer(**facts)
    assert raised.value.ran_ms == (None if ran_ms is None else pytest.approx(ran_ms, abs=0.01))
    assert ("not there at the deadline" in str(raised.value)) == (ran_ms is not None)
    return ms(bench.clock.now_ns() - start_ns)


@story
async def test_request_in_the_queue_is_refused_at_its_deadline() -> None:
    """Behind a run of 10 s of unknown length: the answer comes after 1 s, and its place is free at once."""
    async with at_work(EngineBench(queue_len=1)) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=10_000)}, measured=False)
        first = asyncio.create_task(bench.infer())
        await settle()
        assert await refused_after(bench, within_ms=1000) == pytest.approx(1000, abs=0.01)
        assert bench.engine.status()["queued"] == 0
        await first
    assert bench.telemetry.of_application("t/app")[""].outcomes == {"expired": 1}


@story
async def test_request_whose_run_is_under_way_is_refused_at_its_deadline() -> None:
    """A run of 10 s and a limit of 1 s: the caller is answered after 1 s, the build stays pinned until the run is over,
    and the worker takes the next request then.
    """
    async with at_work(EngineBench()) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=10_000)}, measured=False)
        start_ns = bench.clock.now_ns()
        assert await refused_after(bench, within_ms=1000, ran_ms=1000) == pytest.approx(1000, abs=0.01)
        assert [build["pins"] for build in bench.memory.snapshot()["builds"]] == [1]
        assert (await bench.infer(within_ms=60_000)).queue_ns == pytest.approx(9e9, abs=1e6)
        assert ms(bench.clock.now_ns() - start_ns) == pytest.approx(20_000, abs=1)


@story
async def test_request_waiting_for_a_load_is_refused_at_its_deadline() -> None:
    """A load of 10 s: the answer comes after 1 s; the load goes on, for the next request."""
    async with at_work(engine(Cost(load_ms=10_000, run_ms=1))) as bench:
        assert await refused_after(bench, within_ms=1000) == pytest.approx(1000, abs=0.01)
        await bench.pause(9_500)
        assert (await bench.infer()).warm


@story
async def test_request_waiting_for_its_sequence_is_refused_at_its_deadline() -> None:
    """The request before it in the sequence takes long: its own deadline holds all the same."""
    async with at_work(EngineBench(workers=2)) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=10_000)}, task=STATE, measured=False)
        first = asyncio.create_task(bench.infer(sequence_id="s", sequence_start=True))
        await settle()
        assert await refused_after(bench, sequence_id="s", within_ms=1000) == pytest.approx(1000, abs=0.01)
        await first
        assert (await bench.infer(sequence_id="s", within_ms=20_000)).queue_ns == 0


@story
async def test_run_that_ends_at_the_deadline_is_in_time() -> None:
    """To the nanosecond: a request that is expected to be in time, and is, is not refused."""
    async with at_work(engine(Cost(load_ms=0, run_ms=10))) as bench:
        for _ in range(20):
            await bench.infer(within_ms=10)


@story
async def test_late_request_is_answered_where_its_application_allows_late_runs() -> None:
    """`late: run`: loading, waiting and running beyond the deadline the request is answered, and counted as late; the
    SLO is broken all the same.
    """
    async with at_work(EngineBench()) as bench:
        application = bench.add({"v": Cost(load_ms=100, run_ms=50)}, slo_ms=60)
        bench.catalogue.put_application(replace(application, late=Late.RUN))
        cold = await bench.infer()
        assert ms(cold.load_ns) == 100
        waited = await asyncio.gather(bench.infer(), bench.infer(), bench.infer(within_ms=1))
        assert sorted(ms(result.queue_ns) for result in waited) == [0, 50, 100]
        assert ms(waited[2].queue_ns) == 50  # the first ran at once; of the others the deadline says who goes first
    figures = bench.telemetry.of_application("t/app")["v"]
    assert (figures.outcomes, figures.late, figures.promised.totals) == ({"done": 4}, 3, (1, 3, 0, 0))


@story
async def test_stopped_runs_teach_that_their_build_is_slow() -> None:
    """The profile says 10 ms, the runs take 200, and each is stopped after 50: before long none is begun in vain."""
    async with at_work(EngineBench()) as bench:
        bench.processor.stops_runs = True
        bench.add({"v": Cost(load_ms=0, run_ms=10)})
        bench.processor.costs[bench.build("v")].run_ms = 200
        await bench.availability.load(bench.catalogue.entry("t/app").application)
        for _ in range(60):
            with pytest.raises((DeadlineExceeded, RunStopped)):
                await bench.infer(within_ms=50)
        begun = len(bench.processor.ran)
        assert begun < 60
        assert await refused_after(bench, within_ms=50) == 0
        assert len(bench.processor.ran) == begun
