"""What pipelines and single calls have spent adds up to what the processors were busy for, whoever shared a run, went
away or failed.
"""

import asyncio
import random
from contextlib import suppress

import pytest

from appliance.domain.errors import ApplianceError
from appliance.runtime.serving.spending import Spending
from tests.fakes.clock import run_virtual
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost


@pytest.mark.parametrize("seed", range(6))
def test_spending_of_pipelines_and_single_calls_adds_up_to_busy_time(seed: int) -> None:
    """Runs of batches, on the event loop, cut off at their deadlines and abandoned: within a per cent."""

    async def story() -> tuple[float, float]:
        dice = random.Random(seed)
        bench = EngineBench(workers=dice.choice((1, 2)), quick_ms_max=dice.choice((0, 6)))
        bench.add({"v": Cost(run_ms=10, run_ms_by_batch={2: 14, 4: 20})})
        bench.add({"w": Cost(run_ms=5)}, name="other")
        pipelines = [Spending(), Spending()]

        async def one(index: int) -> None:
            await bench.pause(dice.random() * 400)
            meter = dice.choice((None, Spending(pipelines[0]), Spending(pipelines[1])))
            name = dice.choice(("t/app", "t/other"))
            with suppress(ApplianceError):
                await bench.infer(float(index), name, within_ms=dice.choice((None, 12.0, 60.0, 400.0)), meter=meter)

        async with bench.working():
            tasks = [asyncio.create_task(one(index)) for index in range(60)]
            await bench.pause(dice.random() * 300)
            for task in dice.sample(tasks, 5):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await bench.pause(100)
            _runs, busy_ms = bench.engine.run_totals()
            bench.assert_quiet()
        spent_ns = bench.engine.single_calls.total_ns + sum(one.total_ns for one in pipelines)
        assert all(one.total_ns for one in pipelines)
        return spent_ns / 1e6, busy_ms

    spent_ms, busy_ms = run_virtual(story)
    assert spent_ms == pytest.approx(busy_ms, rel=0.01)
