"""Requests that wait for the same build share runs where all gain by it, and nobody can tell but by the clock."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from appliance.domain.catalogue import Quota, RunBound, Tenant, TensorSpec
from appliance.domain.errors import DeadlineExceeded, RunFailed, RunRefused
from appliance.domain.isolation import Isolation
from appliance.domain.padding import CroppedAxis, Fill, PaddedAxis, Padding
from appliance.domain.request import Result, Tensors
from tests.fakes.clock import ms, settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, change, engine, warm

GAINS = {2: 11.0, 4: 13.0, 8: 27.0}
"""Of a network that takes 10 ms for one item: four are the best batch."""
WIDE = (TensorSpec("x", "FP32", (-1, -1)),)


def gaining(**facts: Any) -> Cost:
    return Cost(run_ms=10, run_ms_by_batch=GAINS, **facts)


def rows_of(bench: EngineBench) -> list[int]:
    """Of each run, in the order of starting."""
    return [len(inputs["x"]) for inputs in bench.processor.ran]


@story
async def test_waiting_requests_share_runs_of_the_best_batch_size() -> None:
    """The first runs at once, without a wait for others; the others go by fours. Every answer is the caller's."""
    async with warm(engine(gaining())) as bench:
        bench.processor.ran.clear()
        results = await asyncio.gather(*(bench.infer(float(x)) for x in range(9)))
    assert [result.outputs["y"].tolist() for result in results] == [[2.0 * x] for x in range(9)]
    assert rows_of(bench) == [1, 4, 4]
    assert [ms(result.compute_ns) for result in results] == [10] + 8 * [13]
    figures = bench.telemetry.statistics["t/app", "v", "t"]
    assert figures.inferences == 10
    assert {items: count for items, (count, _) in figures.runs.items()} == {1: 2, 4: 2}
    assert bench.engine.run_totals()[0] == 4
    assert list(bench.engine.batches().values()) == [(4, 10)]


@story
async def test_network_that_loses_by_batching_runs_requests_one_by_one() -> None:
    async with at_work(engine(Cost(run_ms=10, run_ms_by_batch={2: 21, 4: 45}))) as bench:
        await asyncio.gather(*(bench.infer() for _ in range(6)))
    assert rows_of(bench) == 6 * [1]


@story
async def test_batch_takes_requests_of_equal_shapes_only() -> None:
    """Types and wanted outputs have to be equal, too; a request that is a batch itself stays whole."""
    async with at_work(EngineBench()) as bench:
        bench.add({"v": gaining()}, inputs=WIDE)
        narrow, wide = np.ones((1, 2), np.float32), np.ones((1, 3), np.float32)
        two = np.full((2, 3), 5, np.float32)
        first = asyncio.create_task(bench.infer(inputs={"x": narrow}))
        await settle()
        given = [wide, narrow, wide, two, narrow]
        rest = [asyncio.create_task(bench.infer(inputs={"x": each})) for each in given]
        named = asyncio.create_task(bench.infer(inputs={"x": narrow}, outputs=["y"]))
        results = await asyncio.gather(*rest)
        await asyncio.gather(first, named)
    for each, result in zip(given, results, strict=True):
        assert np.array_equal(result.outputs["y"], 2 * each)
    shapes = [inputs["x"].shape for inputs in bench.processor.ran]
    assert sorted(shapes[1:]) == [(1, 2), (2, 2), (4, 3)]


BEARS = Padding(Fill.EDGE, (PaddedAxis("x", 1, 4),), (CroppedAxis("y", 1, 0),))
"""To steps of four columns; an output column for each of the input."""


def columns(*counts: int) -> list[Tensors]:
    """An input of one row for each count of columns, all values different."""
    return [{"x": np.arange(100 * at, 100 * at + n, dtype=np.float32)[None]} for at, n in enumerate(counts)]


async def answers_of(bench: EngineBench, inputs: list[Tensors], **facts: Any) -> list[Any]:
    """What comes of them where all but the first have to wait."""
    first, *rest = inputs
    async with at_work(bench):
        running = asyncio.create_task(bench.infer(inputs=first, **facts))
        await settle()
        found = await asyncio.gather(*(bench.infer(inputs=each, **facts) for each in rest))
        answers = [(await running).outputs["y"], *(each.outputs["y"] for each in found)]
    for given, answer in zip(inputs, answers, strict=True):
        assert np.array_equal(answer, 2 * given["x"]), "each has its own columns, and no more"
    return [given["x"].shape for given in bench.processor.ran]


@pytest.mark.parametrize(
    ("facts", "is_exact", "is_read", "given", "ran"),
    [
        ({}, False, True, (4, 2, 3, 6, 2, 3), [(1, 4), (4, 3), (1, 6)]),
        ({}, False, False, (4, 2, 3, 2, 3), [(1, 4), (2, 2), (2, 3)]),
        ({}, True, False, (4, 2, 3, 2, 3), [(1, 4), (4, 3)]),
        ({"stepped": ["cpu"]}, False, True, (2, 5, 3, 2, 2, 2), [(1, 4), (1, 8), (4, 4)]),
    ],
    ids=["as wide as the widest of a step", "inexact: none for the caller", "exact", "new sizes are slow: whole steps"],
)
@story
async def test_batch_takes_sizes_of_one_step_where_padding_is_allowed(
    facts: dict[str, Any], is_exact: bool, is_read: bool, given: tuple[int, ...], ran: list[tuple[int, int]]
) -> None:
    """Each is answered with its own columns. A caller that is given the outputs themselves has them as they are without
    padding, unless that makes no difference. Where new sizes are slow a request that runs alone is padded, too.
    """
    bench = EngineBench(**facts)
    bench.add({"v": gaining()}, inputs=WIDE, padding=replace(BEARS, is_exact=is_exact))
    assert await answers_of(bench, columns(*given), is_read=is_read) == ran


@story
async def test_padded_run_of_a_lone_request_counts_its_padded_memory() -> None:
    """Three columns run as four, so what four take is counted."""
    bench = EngineBench(budget=200_000_000, stepped=["cpu"])
    bench.add({"v": gaining()}, inputs=WIDE, padding=BEARS)
    change(bench, runs=tuple(RunBound({"x": (1, width)}, 10.0, width * 10_000_000) for width in (3, 4)))
    async with at_work(bench):
        await bench.infer(inputs=columns(3)[0], is_read=True)
        asked = asyncio.create_task(bench.infer(inputs=columns(3)[0], is_read=True))
        await bench.pause(1)
        assert bench.memory.runs.running_bytes == 40_000_000
        await asked
        assert bench.memory.runs.running_bytes == 0


@story
async def test_outputs_of_an_unforeseen_size_are_recomputed_without_padding() -> None:
    """It is unknown which part of them belongs to which request."""

    def model(inputs: Tensors) -> dict[str, Any]:
        rows = len(inputs["x"])
        return {"y": 2 * inputs["x"] if rows == 1 else np.zeros((rows, 9), np.float32)}

    bench = EngineBench(model=model)
    bench.add({"v": gaining()}, inputs=WIDE, padding=BEARS)
    assert await answers_of(bench, columns(2, 1, 2, 1, 2), is_read=True) == [
        (1, 2),
        (4, 2),
        (1, 1),
        (1, 2),
        (1, 1),
        (1, 2),
    ]


NOT_GROWN: dict[str, Callable[[Any], Any]] = {
    "another size": lambda x: np.zeros((len(x), 9), np.float32),
    "fewer axes": lambda x: np.zeros(len(x), np.float32),
    "no array": lambda x: x.tolist(),
}


@pytest.mark.parametrize("kind", list(NOT_GROWN))
@story
async def test_padding_that_yields_unfit_outputs_is_tried_once(kind: str) -> None:
    """In its step, for as long as the variant stays the same; other steps are padded as before."""

    def model(inputs: Tensors) -> dict[str, Any]:
        x = inputs["x"]
        return {"y": NOT_GROWN[kind](x) if x.shape[1] == 4 else 2 * x}

    bench = EngineBench(model=model, stepped=["cpu"])
    bench.add({"v": gaining()}, inputs=WIDE, padding=BEARS)

    async def asked() -> list[int]:
        """Widths of the runs of one with three columns and one with seven."""
        bench.processor.ran.clear()
        for given in columns(3, 7):
            answer = await bench.infer(inputs=given, is_read=True)
            assert np.array_equal(answer.outputs["y"], 2 * given["x"])
        return [inputs["x"].shape[1] for inputs in bench.processor.ran]

    async with at_work(bench):
        assert await asked() == [4, 3, 8]
        assert await asked() == [3, 8]
        entry = bench.catalogue.entry("t/app")
        bench.catalogue.put_application(replace(entry.application, weight=2.0))
        assert await asked() == [3, 8]
        change(bench, padding=replace(BEARS, evidence="another one"))
        assert await asked() == [4, 3, 8]


@story
async def test_padding_whose_runs_fail_twice_is_not_tried_again() -> None:
    """One failure may be due to the values; a padded run that goes well in between shows that."""
    refused: list[float] = [1.0, 3.0, 4.0]

    def model(inputs: Tensors) -> dict[str, Any]:
        x = inputs["x"]
        if x.shape[1] == 4 and float(x[0, 0]) in refused:
            raise RunRefused(variant_id="v", reason="the network's own words")
        return {"y": 2 * x}

    async with at_work(EngineBench(model=model, stepped=["cpu"])) as bench:
        bench.add({"v": gaining()}, inputs=WIDE, padding=BEARS)
        widths = []
        for value in range(1, 6):
            bench.processor.ran.clear()
            given = {"x": np.full((1, 3), value, np.float32)}
            answer = await bench.infer(inputs=given, is_read=True)
            assert np.array_equal(answer.outputs["y"], 2 * given["x"])
            widths.append([inputs["x"].shape[1] for inputs in bench.processor.ran])
    assert widths == [[4, 3], [4], [4, 3], [4, 3], [3]]


@story
async def test_request_whose_inputs_differ_in_rows_joins_no_batch() -> None:
    """Two such requests with as many rows together would put the rows between them beside other requests' rows."""

    def model(inputs: Tensors) -> dict[str, Any]:
        if inputs["x"].shape != inputs["mask"].shape:
            raise RunFailed(variant_id="v", reason="the network's own words")
        return {"y": inputs["x"] * inputs["mask"]}

    bench = EngineBench(model=model)
    mask = TensorSpec("mask", "FP32", (-1,))
    bench.add({"v": gaining()}, inputs=(TensorSpec("x", "FP32", (-1,)), mask))

    def asked(x: int, masked: int) -> asyncio.Task[Result]:
        inputs = {"x": np.full(x, 7, np.float32), "mask": np.full(masked, 10 * x + masked, np.float32)}
        return asyncio.create_task(bench.infer(inputs=inputs))

    async with at_work(bench):
        await bench.infer(inputs={"x": np.ones(1, np.float32), "mask": np.ones(1, np.float32)})
        tasks = [asked(1, 1), asked(1, 2), asked(1, 1), asked(2, 1), asked(1, 1)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in results] == [Result, RunFailed, Result, RunFailed, Result]
    assert [each.outputs["y"].tolist() for each in results if isinstance(each, Result)] == 3 * [[77.0]]


@story
async def test_failing_row_of_a_shared_run_fails_alone() -> None:
    """The others run once more, each by itself, although other requests have taken their places in the queue."""

    def model(inputs: Tensors) -> dict[str, Any]:
        if (inputs["x"] < 0).any():
            raise RunFailed(variant_id="v", reason="a negative row")
        return {"y": inputs["x"] * 2}

    bench = EngineBench(model=model, queue_len=4, queue_total=8)
    bench.add({"v": gaining()}, inputs=WIDE)

    def asked(x: float, width: int) -> asyncio.Task[Result]:
        return asyncio.create_task(bench.infer(inputs={"x": np.full((1, width), x, np.float32)}))

    async with at_work(bench):
        await bench.infer(inputs={"x": np.ones((1, 1), np.float32)})
        first = [asked(x, 1) for x in (1.0, 2.0, -3.0, 4.0, 5.0)]
        await bench.pause(11)
        later = [asked(6.0, width) for width in (2, 3, 4, 5)]
        results = await asyncio.gather(*first, *later, return_exceptions=True)
    assert [type(each) for each in results] == [Result, Result, RunFailed, *(6 * [Result])]
    answers = [float(each.outputs["y"][0, 0]) for each in results if isinstance(each, Result)]
    assert answers == [2.0, 4.0, 8.0, 10.0, *(4 * [12.0])]
    assert rows_of(bench)[:3] == [1, 1, 4]
    assert sorted(rows_of(bench)[3:]) == 8 * [1]


@story
async def test_cancelled_or_late_request_leaves_its_shared_run_to_the_others() -> None:
    """Also the request whose turn it was: the run counts with the first that is answered, and as one run of four."""
    async with warm(engine(gaining())) as bench:
        tasks = [asyncio.create_task(bench.infer(float(x))) for x in range(4)]
        await settle()
        slow = bench.processor.costs[bench.build("v")]
        slow.run_ms_by_batch = {**GAINS, 4: 40.0}  # slower than the profile says
        hasty = asyncio.create_task(bench.infer(4.0, within_ms=30))
        await bench.pause(15)
        assert rows_of(bench) == [1, 1, 4]
        tasks[1].cancel()
        with pytest.raises(DeadlineExceeded):
            await hasty
        assert bench.processor.running == 1, "the run goes on for the others"
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[1], asyncio.CancelledError)
    assert [each.outputs["y"].tolist() for each in results if isinstance(each, Result)] == [[0.0], [4.0], [6.0]]
    figures = bench.telemetry.statistics["t/app", "v", "t"]
    assert figures.inferences == 4
    assert {items: count for items, (count, _) in figures.runs.items()} == {1: 2, 4: 1}


@story
async def test_tenants_in_a_shared_run_are_charged_for_their_rows() -> None:
    """The tenant with three rows of four is charged with three quarters of the run."""
    bench = EngineBench()
    bench.add({"v": gaining()}, shared=True)
    for name in ("a", "b"):
        bench.catalogue.put_tenant(Tenant(name, Quota()))
    async with warm(bench):
        first = asyncio.create_task(bench.infer())
        await settle()
        askers = ["a", "b", "b", "b"]
        await asyncio.gather(first, *(bench.infer(tenant=tenant) for tenant in askers))
    assert rows_of(bench) == [1, 1, 4]
    tags = {name: bench.queue.scheduler.line.tenants[name].tag for name in "ab"}
    assert ms(int(tags["b"] - tags["a"])) == pytest.approx((3 - 1) / 4 * 13)


@story
async def test_shared_run_stays_short_while_another_tenant_is_active() -> None:
    """Fifty milliseconds: a tenant that has had more than another one that asked of late keeps the last free worker no
    longer than that, by a batch as little as by one run. Where no other tenant is active, the best batch is run.
    """
    for others, largest in (("ab", 4), ("a", 8)):
        bench = EngineBench()
        bench.add({"v": Cost(run_ms=40, run_ms_by_batch={2: 44, 4: 48, 8: 60})}, shared=True)
        for name in "ab":
            bench.catalogue.put_tenant(Tenant(name, Quota()))
        async with at_work(bench):
            for name in others:
                await bench.infer(tenant=name)
            await asyncio.gather(*(bench.infer(tenant="a") for _ in range(17)))
        assert max(rows_of(bench)) == largest


@story
async def test_batch_mixes_tenants_only_where_the_networks_owner_is_trusted() -> None:
    """A network can be made to tell one caller what another sent beside it, by values that no import tries."""

    def spy(inputs: Tensors) -> dict[str, Any]:
        x = inputs["x"]
        return {"y": np.where(x == 666, x.sum() - x, x)}

    bench = EngineBench(model=spy)
    bench.add({"v": gaining()}, shared=True, quota=Quota(isolation=Isolation.AUTO))
    for name in ("a", "b"):
        bench.catalogue.put_tenant(Tenant(name, Quota()))
    async with warm(bench):
        asked = [(1.0, "t"), (1.0, "a"), (2.0, "a"), (666.0, "b"), (3.0, "a")]
        results = await asyncio.gather(*(bench.infer(x, tenant=tenant) for x, tenant in asked))
    assert results[3].outputs["y"].tolist() == [0.0], "the sum of nobody's rows"
    assert sorted(rows_of(bench)[2:]) == [1, 3], "one tenant's own rows do meet"


class Asked(dict[str, Any]):
    """Inputs of a request, which count how often all of them are compared with others."""

    times = 0

    def keys(self) -> Any:
        Asked.times += 1
        return super().keys()


@story
async def test_batch_search_is_bounded_in_a_long_queue_of_unequal_shapes() -> None:
    """Else short runs would cost more in the search for requests that may share them than in the run."""
    async with at_work(EngineBench(queue_len=300, queue_total=400, wait_ms_max=10_000)) as bench:
        bench.add({"v": gaining()}, inputs=WIDE)
        Asked.times = 0
        given = [Asked(x=np.ones((1, 1 + i), np.float32)) for i in range(300)]
        await asyncio.gather(*(bench.infer(inputs=inputs) for inputs in given))
    assert rows_of(bench) == 300 * [1]
    assert Asked.times <= 300 * 2 * 64


async def saturated_at_another_size(bench: EngineBench, run_ms_by_batch: Mapping[int, float]) -> None:
    """Ask from nine connections, with inputs of another size than the import has measured: there this network loses by
    batches, here a run takes 10 ms, or what is given.
    """
    bench.add({"v": Cost(run_ms=100, run_ms_by_batch={2: 210, 4: 450, 8: 900})}, inputs=WIDE)
    cost = bench.processor.costs[bench.build("v")]
    cost.run_ms, cost.run_ms_by_batch = 10, run_ms_by_batch
    short = {"x": np.ones((1, 3), np.float32)}

    async def ask() -> None:
        for _ in range(20):
            await bench.infer(inputs=short)

    async with at_work(bench):
        await asyncio.gather(*(ask() for _ in range(9)))


@story
async def test_batch_gain_at_unmeasured_sizes_is_learnt() -> None:
    bench = EngineBench()
    await saturated_at_another_size(bench, GAINS)
    assert set(rows_of(bench)[-5:-1]) == {4}, "the best of them, once each was tried"


@story
async def test_batch_that_loses_at_unmeasured_sizes_is_tried_a_few_times() -> None:
    bench = EngineBench()
    await saturated_at_another_size(bench, {n: 11.0 * n for n in range(2, 9)})
    batches = [rows for rows in rows_of(bench) if rows > 1]
    assert len(batches) <= 4 * len(set(batches))
    assert rows_of(bench)[-30:] == 30 * [1]


SENTENCES = {1: 11.0, 2: 17.5, 3: 23.3, 4: 29.0, 5: 35.8, 6: 42.5, 7: 49.3, 8: 56.0}
"""As `meaning` takes with sixteen tokens, where two workers are busy: a third less an item in batches."""
PER_S = 2 * 1000 / SENTENCES[1]
"""What two workers serve one by one."""


def times_ms(batching: str, load: float) -> list[float]:
    """How long each of 800 requests took, that came at random at a share of what is served one by one; sorted."""
    found: list[float] = []

    @story
    async def told() -> None:
        bench = engine(
            Cost(run_ms=SENTENCES[1], run_ms_by_batch=SENTENCES),
            workers=2,
            queue_len=1000,
            queue_total=2000,
            wait_ms_max=30_000,
            batching=batching,
        )

        async def ask() -> None:
            start_ns = bench.clock.now_ns()
            await bench.infer()
            found.append(ms(bench.clock.now_ns() - start_ns))

        async with warm(bench):
            gaps_s = np.random.default_rng(3).exponential(1 / (load * PER_S), 800)
            asked = []
            for gap_s in gaps_s:
                await bench.pause(1000 * gap_s)
                asked.append(asyncio.create_task(ask()))
            await asyncio.gather(*asked)

    told()
    return sorted(found)


@pytest.mark.parametrize(("load", "at_most"), [(0.1, 1.0), (0.5, 1.0), (0.9, 0.8)])
def test_shared_runs_do_not_raise_p99_latency(load: float, at_most: float) -> None:
    """P99 of the same arrivals with batches and without: alike where hardly any request waits, less where many do."""
    on, off = (times_ms(batching, load)[-8] for batching in ("by-profile", "none"))
    assert on <= at_most * off


def test_shared_runs_answer_more_requests_in_time_under_overload() -> None:
    on, off = (sum(took <= 500 for took in times_ms(batching, 1.5)) for batching in ("by-profile", "none"))
    assert on > 2 * off
