"""Requests share the runs of parts: who leaves, fails or loses a processor takes nobody along."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from appliance.domain.catalogue import Latency
from appliance.domain.errors import DeadlineExceeded, Overloaded, RunFailed
from appliance.domain.parts import BatchTime
from appliance.domain.request import Result, Tensors
from appliance.runtime.serving.dispatcher import PartsDispatcher
from tests.fakes.clock import ms, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, change, warm
from tests.runtime.serving.parts_bench import (
    CUT,
    OTHER,
    bench_of,
    is_cut,
    network,
    ran,
)

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")


def sharing_bench(**facts: Any) -> EngineBench:
    """Four rows in one run take 1.4 times as long as one, of each part and of the whole."""
    bench = bench_of(cut=False, **facts)
    processors = {"cpu": bench.processor, OTHER: bench.other}
    for processor in processors.values():
        for cost in processor.costs.values():
            cost.run_ms_by_batch = {2: 1.2 * cost.run_ms, 4: 1.4 * cost.run_ms}
    rows = tuple(Latency(batch, ms, ms) for batch, ms in ((1, 20), (2, 24), (4, 28)))
    change(bench, latencies=rows, shared_rows_max=4)
    parts = tuple(
        replace(part, profiles=tuple(replace(one, times=_by_batch(one.p50_ms())) for one in part.profiles))
        for part in CUT.parts
    )
    is_cut(bench, replace(CUT, parts=parts))
    return bench


def _by_batch(one_ms: float) -> tuple[BatchTime, ...]:
    return tuple(BatchTime(batch, factor * one_ms) for batch, factor in ((1, 1.0), (2, 1.2), (4, 1.4)))


async def busied(bench: EngineBench) -> asyncio.Task[Result]:
    """A request whose first part runs; those that come now share the runs of theirs."""
    await bench.infer()
    first = asyncio.create_task(bench.infer(5))
    await bench.pause(1)
    return first


def outputs_of(answers: Iterable[object]) -> list[float]:
    """Of those that are answers."""
    return [float(one.outputs["y"][0]) for one in answers if isinstance(one, Result)]


@story
async def test_requests_share_the_runs_of_all_parts() -> None:
    """Each is answered with its own rows, whatever it brings; runs count once."""
    async with warm(sharing_bench()) as bench:
        before = ran(bench)
        first = asyncio.create_task(bench.infer(5))
        await bench.pause(1)
        inputs = [np.array([value, -value][:rows], np.float32) for value, rows in ((6, 1), (7, 2), (8, 1))]
        answers = await asyncio.gather(*(bench.infer(inputs={"x": each}) for each in inputs))
        assert (await first).outputs["y"].tolist() == [16.0]
    for given, answer in zip(inputs, answers, strict=True):
        np.testing.assert_array_equal(answer.outputs["y"], 3 * given + 1)
        assert answer.outputs["y"].base is None
        assert [one.number for one in answer.parts] == [0, 1, 2]
    assert sum(ran(bench)) - sum(before) == 6, "three parts of the first, and three of all others"
    figures = bench.telemetry.statistics["t/app", "v", "t"]
    assert {items: count for items, (count, _) in figures.runs.items()} == {1: 2, 4: 1}
    assert figures.inferences == 6


@pytest.mark.parametrize(
    ("within_ms", "gone"), [(16.0, 0), (None, 1), (None, 2)], ids=["its deadline comes", "it goes", "another goes, too"]
)
@story
async def test_shared_run_of_parts_goes_on_without_its_first_request(within_ms: float | None, gone: int) -> None:
    """The others that have rows in it are answered by it, with deadlines of their own, and it counts once."""
    async with at_work(sharing_bench(queue_len=4)) as bench:
        busy = await busied(bench)
        tasks = [asyncio.create_task(bench.infer(6, within_ms=within_ms))]
        tasks += [asyncio.create_task(bench.infer(value)) for value in (7, 8, 9)]
        await busy
        bench.other.slowness = 4.0
        await bench.pause(1)
        runs = sum(ran(bench))
        for task in tasks[:gone]:
            task.cancel()
        left = max(1, gone)
        ends = await asyncio.gather(*tasks[:left], return_exceptions=True)
        assert {type(end) for end in ends} == {asyncio.CancelledError if gone else DeadlineExceeded}
        assert not any(one.done() for one in tasks[left:])
        answers = await asyncio.gather(*tasks[left:])
    assert outputs_of(answers) == [22.0, 25.0, 28.0][left - 1 :]
    assert sum(ran(bench)) - runs <= 3, "none of its parts has run again"
    figures = bench.telemetry.statistics["t/app", "v", "t"]
    assert {items: count for items, (count, _) in figures.runs.items()} == {1: 2, 4: 1}


@story
async def test_shared_run_of_parts_cancelled_at_its_begin_answers_the_others() -> None:
    """The first request never learns of the rows that have joined its run: they run by themselves."""
    bench = sharing_bench()
    hosts: list[asyncio.Task[Result]] = []
    begin = PartsDispatcher._begin

    def leaving(self: PartsDispatcher, *about: Any) -> Any:
        if about[-1]:  # others have rows in it
            hosts.pop().cancel()
        return begin(self, *about)

    async with at_work(bench):
        busy = await busied(bench)
        first, *others = tasks = [asyncio.create_task(bench.infer(value)) for value in (6, 7, 8)]
        hosts.append(first)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PartsDispatcher, "_begin", leaving)
            await busy
            await bench.pause(1)
            assert not hosts, "rows have joined"
        await bench.pause(200)
        assert all(one.done() for one in tasks)
        assert first.cancelled()
        assert outputs_of(one.result() for one in others) == [22.0, 25.0]


@story
async def test_processor_lost_in_a_shared_run_of_parts_teaches_no_wrong_time() -> None:
    """The run after it has the rows of all: a single row is not expected to take as long."""
    async with at_work(sharing_bench()) as bench:
        parts = bench.catalogue.entry("t/app").servables["v"].parts
        assert parts is not None
        times = parts.times[0, 1]
        assert times is not None
        busy = await busied(bench)
        tasks = [asyncio.create_task(bench.infer(value)) for value in (6, 7, 8, 9)]
        await busy
        await bench.pause(1)
        before_ns = times.usual.expected_ns(1, 1, bench.clock.now_ns())
        bench.other.is_gone = True
        answers = await asyncio.gather(*tasks)
        assert outputs_of(answers) == [19.0, 22.0, 25.0, 28.0]
        took = {part.number: (part.kind, ms(part.took_ns)) for part in answers[0].parts}
        assert took[1] == ("cpu", 1.4)
        assert times.usual.expected_ns(1, 1, bench.clock.now_ns()) == before_ns


@story
async def test_failing_row_of_a_shared_run_of_parts_fails_alone() -> None:
    """In the middle of the network."""

    def model(inputs: Tensors) -> dict[str, Any]:
        if "a" in inputs and "x" not in inputs and 8.0 in inputs["a"]:
            raise RunFailed(variant_id="v", reason="the network's own words")
        return network(inputs)

    async with at_work(sharing_bench()) as bench:
        bench.processor.model = bench.other.model = model
        busy = await busied(bench)
        answers = await asyncio.gather(*(bench.infer(value) for value in (6, 7, 8, 9)), return_exceptions=True)
        await busy
    assert [type(one) for one in answers] == [Result, RunFailed, Result, Result]
    assert outputs_of(answers) == [19.0, 25.0, 28.0]


@pytest.mark.parametrize("seed", range(12))
@story
async def test_requests_of_random_traffic_are_answered_once_each(seed: int) -> None:
    """Requests of two applications in a random mix: given up, in haste, while the other kind goes and comes back, over
    shared cores, two clusters of them, or a device of its own. Nothing is left over.
    """
    drawn = random.Random(seed)
    layout: dict[str, Any] = ({"workers": 2}, {"twins": [(1, 2.0, 0.5)]}, {"apart": True, "workers": 2})[seed % 3]
    bench = bench_of(queue_len=400, queue_total=400, **layout)
    bench.other.workers = 2
    bench.add({"w": Cost(run_ms=3, load_ms=5)}, name="other", tenant="u")
    outcomes: Counter[str] = Counter()

    async def asked(number: int) -> None:
        await bench.pause(number * 4 + drawn.random())
        is_other = drawn.random() < 0.3
        within_ms = drawn.choice([None, None, 12.0, 60.0])
        application, tenant = ("u/other", "u") if is_other else ("t/app", "t")
        try:
            answer = await bench.infer(number, application, tenant=tenant, within_ms=within_ms)
        except (DeadlineExceeded, Overloaded):
            outcomes["late"] += 1
        else:
            assert answer.outputs["y"].tolist() == [3.0 * number + 1]
            assert [one.number for one in answer.parts] in ([], [0, 1, 2])
            outcomes["in parts" if answer.parts else "whole"] += 1

    async def comes_and_goes() -> None:
        while True:
            await bench.pause(drawn.uniform(50, 200))
            bench.other.is_gone = True
            await bench.pause(drawn.uniform(50, 100))
            bench.other.is_gone = False
            if not bench.member.is_serving:
                bench.member.serve()

    async with at_work(bench, residency=True):
        going = asyncio.create_task(comes_and_goes())
        tasks = [asyncio.create_task(asked(number)) for number in range(250)]
        for task in drawn.sample(tasks, 25):
            asyncio.get_running_loop().call_later(drawn.uniform(0, 1), task.cancel)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        going.cancel()
        assert not [end for end in ends if end is not None and not isinstance(end, asyncio.CancelledError)], ends
        await bench.pause(500)
    assert outcomes["in parts"]
    assert outcomes.total() + sum(end is not None for end in ends) == len(ends)
