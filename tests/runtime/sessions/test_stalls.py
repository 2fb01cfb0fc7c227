"""After a stall what devices show is old, which breaks all promises: it passes, and hardly anybody goes for it."""

from dataclasses import replace

import pytest

from appliance.domain.session import AccuracyPromise
from appliance.domain.states import SessionState
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import box_with

BATCHES = {2: 26.0, 3: 32.0, 4: 38.0}


MORE = pytest.mark.nightly("the same with more fleets")


@pytest.mark.parametrize(
    ("drop_max", "devices", "stall_s"),
    [(0.03, 14, 1.0), pytest.param(0.03, 14, 4.0, marks=MORE), pytest.param(0.02, 11, 2.0, marks=MORE)],
)
@story
async def test_accuracy_sessions_are_removed_singly_after_stall(drop_max: float, devices: int, stall_s: float) -> None:
    """A full worker stands for a second or four: of each plan at most one session goes, and soon all are served."""
    async with box_with({640: Cost(run_ms=20.0, run_ms_by_batch=BATCHES)}) as (fleet, gate):
        build, costs = fleet.bench.build("v640", gate.id), fleet.bench.processor.costs
        await fleet.cameras(devices, gate, AccuracyPromise(drop_max), mbps=40.0, drop_rate=0.004, every_s=1)
        await fleet.pass_s(10)
        assert set(fleet.states) == {SessionState.SERVED}
        figures = fleet.sessions.planning.figures
        usual, costs[build] = costs[build], replace(costs[build], run_ms=1000 * stall_s, run_ms_by_batch={})
        at_once, before = 0, figures.removals
        for turn in range(500):
            if turn == 50 * stall_s:
                costs[build] = usual
            await fleet.pass_s(0.02)
            at_once, before = max(at_once, figures.removals - before), figures.removals
        assert at_once <= 1
        await fleet.pass_s(10)
        assert set(fleet.states) == {SessionState.SERVED}
