"""Planning in a process of its own: the same answers, and none is lost where it ends."""

import asyncio
import os
import signal
from functools import partial
from typing import Any

import pytest

from appliance.policies.allocation.frontier import Frontier
from appliance.policies.allocation.several import plan_several
from appliance.runtime.pipelines.elsewhere import Elsewhere
from appliance.runtime.sessions.planner import PlannerEnded, PlannerProcess
from tests.benchmarks.pipeline_planning import demands


async def _in_thread(compute: Any) -> Any:
    return await asyncio.to_thread(compute)


def test_plans_are_the_same_there() -> None:
    """Before the process is there a thread plans, then the process does, and after its end a thread again: always the
    same plans.
    """

    async def story() -> None:
        process = PlannerProcess()
        elsewhere = Elsewhere(process, PlannerEnded, _in_thread)
        compute = partial(plan_several, demands(3, 2, 0.6), Frontier())
        here = compute().served
        assert (await elsewhere(compute)).served == here
        warming: Any = process._warming
        await warming
        assert process.is_ready
        assert (await elsewhere(compute)).served == here
        child: Any = process._process
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()
        assert (await elsewhere(compute)).served == here
        await process.close()

    asyncio.run(story())


def test_what_goes_wrong_there_is_told() -> None:
    """An error of the policy is its own, wherever it computes."""

    async def story() -> None:
        elsewhere = Elsewhere(PlannerProcess(), PlannerEnded, _in_thread)
        with pytest.raises(ZeroDivisionError):
            await elsewhere(partial(divmod, 1, 0))
        process: Any = elsewhere._process
        await process.close()

    asyncio.run(story())
