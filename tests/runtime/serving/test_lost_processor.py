"""A kind of processor beside the first one goes, or stands, under load: each request is answered once, on what is left,
and it serves again when it is back.
"""

import asyncio

import numpy as np
import pytest

from appliance.domain.errors import DeadlineExceeded, ProcessorLost
from appliance.domain.states import ProcessorState
from tests.fakes.clock import settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import also_on, at_work, engine
from tests.runtime.serving.machine import Machine

HOURS_MS = 10 * 3_600_000.0


def bench_on_both(npu: Cost | None = None, workers: int = 2, there_ms: float = 5) -> EngineBench:
    """One variant, four times as quick on the kind `npu`, where the import has measured `there_ms`."""
    bench = engine(Cost(run_ms=4 * there_ms, load_ms=5), workers=workers, other_kind="npu")
    also_on(bench, "npu", there_ms, load_ms=5)
    if npu is not None:
        bench.other.costs[bench.build("v")] = npu
    bench.follow_kinds()
    return bench


def kind_of(bench: EngineBench) -> str:
    return bench.build("v").split("@")[1]


@story
async def test_processor_serves_once_it_has_passed_its_probe() -> None:
    """The first kind answers meanwhile, and a restart on the same machine does not wait again."""
    machine = Machine()
    async with at_work(bench_on_both()) as bench:
        with machine.keeping(bench):
            assert (kind_of(bench), bench.member.state) == ("cpu", ProcessorState.NOT_RUN)
            await bench.infer()
            await settle()
            await bench.infer()
            assert (kind_of(bench), len(bench.other.ran)) == ("npu", 1)
    again = bench_on_both()
    with machine.keeping(again):
        assert kind_of(again) == "npu"
    assert len(machine.probed) == 1


@pytest.mark.parametrize(
    ("found", "reason"),
    [("it fell back to CPU", "it fell back to CPU"), (OSError("no room"), "it could not be probed: no room")],
)
@story
async def test_processor_that_fails_its_probe_is_unfit(found: str | OSError, reason: str) -> None:
    """With the reason; it is seldom probed again, and serves when it passes."""
    bench, machine = bench_on_both(), Machine(finds=(found, ""))
    with machine.keeping(bench, begins=False):
        await settle()
        status = bench.member.status()
        assert (status.state, status.reason, len(machine.probed)) == (ProcessorState.UNFIT, reason, 1)
        await bench.pause(60_000)
        assert len(machine.probed) == 1
        await bench.pause(600_000)
        assert kind_of(bench) == "npu"


@story
async def test_processor_lost_under_load_costs_no_answer_and_returns() -> None:
    """It goes for seven seconds in the middle of 900 requests: each gets its own answer, once. Its build leaves the
    ledger, the first kind serves, and the kind comes back by itself.
    """
    bench, machine = bench_on_both(), Machine(finds=("it is not there", ""))
    bench.member.serve()
    with machine.keeping(bench, begins=False):
        async with at_work(bench):

            async def asked(number: int) -> float:
                await bench.pause(number * 100)
                return float((await bench.infer(number)).outputs["y"][0])

            answers = [asyncio.create_task(asked(number)) for number in range(900)]
            await bench.pause(2002)  # in the middle of a run
            lost_build = bench.build("v")
            assert lost_build.endswith("@npu")
            bench.other.is_gone = True
            await bench.pause(1000)
            assert (bench.member.state, kind_of(bench)) == (ProcessorState.LOST, "cpu")
            assert lost_build not in [row["build"] for row in bench.memory.snapshot()["builds"] if row["bytes"]]
            await bench.pause(6000)
            bench.other.is_gone = False
            assert [await one for one in answers] == [2.0 * number for number in range(900)]
            assert bench.member.is_serving
            assert len(machine.probed) == 2
            assert len(bench.other.ran) > 20
            assert len(bench.processor.ran) > 20
            await bench.infer()
            assert kind_of(bench) == "npu"


@story
async def test_processor_with_a_hanging_run_is_lost_until_the_run_ends() -> None:
    """The run's caller is answered at the deadline. When the run should have ended long ago, its worker is free again,
    and the first kind answers the waiting requests. The kind is not asked for anything before the run has ended.
    """
    bench, machine = bench_on_both(workers=1), Machine()
    bench.member.serve()
    bench.other.costs[bench.build("v")].run_ms = HOURS_MS
    with machine.keeping(bench, begins=False):
        async with at_work(bench):
            stands = asyncio.create_task(bench.infer(1, within_ms=1000))
            waits = asyncio.create_task(bench.infer(3))
            with pytest.raises(DeadlineExceeded):
                await stands
            assert bench.member.is_serving
            assert (await waits).outputs["y"].tolist() == [6.0]
            assert "a run has not ended within 1" in bench.member.reason
            assert (await bench.infer(4)).outputs["y"].tolist() == [8.0]
            await bench.pause(HOURS_MS / 2)
            assert (bench.member.state, len(machine.probed)) == (ProcessorState.LOST, 0)
            await bench.pause(HOURS_MS / 2)
            assert bench.member.is_serving
            bench.other.costs[bench.build("v")].run_ms = 5
            assert (await bench.infer(5)).outputs["y"].tolist() == [10.0]
            assert kind_of(bench) == "npu"


@story
async def test_run_expected_to_take_long_does_not_make_its_processor_lost() -> None:
    """A minute, as the import measured; nothing stops the run at its deadline, and half a minute later it ends: the
    kind serves all the while. It is lost when a run has had four times of what was expected.
    """
    async with at_work(bench_on_both(Cost(run_ms=100_000, load_ms=5), workers=1, there_ms=60_000)) as bench:
        bench.member.serve()
        with pytest.raises(DeadlineExceeded):
            await bench.infer(1, within_ms=70_000)
        await bench.pause(29_000)
        assert bench.member.is_serving
        await bench.pause(2_000)
        bench.assert_quiet()
        bench.other.costs[bench.build("v")].run_ms = HOURS_MS
        with pytest.raises(DeadlineExceeded):
            await bench.infer(1, within_ms=100_000)
        await bench.pause(60_000)
        assert bench.member.is_serving
        await bench.pause(10 * 60_000)
        assert bench.member.state is ProcessorState.LOST


@story
async def test_hanging_run_is_noticed_while_other_runs_of_its_build_go_on() -> None:
    """Runs that another worker began later say nothing about it: the kind is lost ten seconds beyond its deadline."""
    async with at_work(bench_on_both(there_ms=1000)) as bench:
        bench.member.serve()
        bench.other.costs[bench.build("v")].run_ms = HOURS_MS
        stands = asyncio.create_task(bench.infer(1, within_ms=5000))
        await bench.pause(100)
        bench.other.costs[bench.build("v")].run_ms = 1000
        for x in range(20):
            assert (await bench.infer(x)).outputs["y"].tolist() == [2.0 * x]
        with pytest.raises(DeadlineExceeded):
            await stands
        assert bench.member.state is ProcessorState.LOST
        assert "a run has not ended within 15 s" in bench.member.reason


@story
async def test_hanging_load_makes_its_processor_lost() -> None:
    """Requests that wait for it are answered by the first kind; what comes of it later is dropped."""
    bench = bench_on_both(Cost(load_ms=400_000, run_ms=5))
    bench.member.serve()
    build = bench.build("v")
    async with at_work(bench):
        answers = await asyncio.gather(*(bench.infer(x, within_ms=HOURS_MS) for x in range(3)))
        assert [answer.outputs["y"].tolist() for answer in answers] == [[0.0], [2.0], [4.0]]
        assert bench.member.reason == "a load has not ended within 300 s"
        await bench.pause(200_000)
        assert (bench.other.unloads[build], bench.other.memory, bench.member.is_clear) == (1, {}, True)


@story
async def test_hanging_unload_makes_its_processor_lost() -> None:
    """Callers that wait for it wait no longer."""
    async with at_work(bench_on_both(Cost(load_ms=5, run_ms=5, unload_ms=HOURS_MS))) as bench:
        bench.member.serve()
        await bench.infer()
        await bench.memory.unload(bench.build("v"))
        assert bench.member.reason == "an unload has not ended within 60 s"
        assert (await bench.infer(7)).outputs["y"].tolist() == [14.0]


@story
async def test_request_that_no_processor_can_serve_is_told_to_retry() -> None:
    async with at_work(engine(Cost(failures=[ProcessorLost(processor="fake", retry_after_s=30)]))) as bench:
        with pytest.raises(ProcessorLost) as caught:
            await bench.infer()
        assert caught.value.retry_after_s == 30
        assert np.array_equal((await bench.infer(2)).outputs["y"], [4.0])
