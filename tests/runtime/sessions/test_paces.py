"""Devices with promises of accuracy send as often as their plans say, and their frames run together as planned."""

from collections import Counter
from itertools import pairwise

import pytest

from appliance.domain.session import AccuracyPromise
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.present import present
from tests.runtime.sessions.fleet import box_with

BATCHES = {2: 26.0, 3: 32.0, 4: 38.0}


@pytest.mark.parametrize("policy", ["arise", "earliest-due"])
@pytest.mark.parametrize(("devices", "drop_max"), [(1, 0.05), (3, 0.05), (16, 0.05), (6, 0.03)])
@story
async def test_frames_of_plan_are_an_interval_apart(policy: str, devices: int, drop_max: float) -> None:
    """On a box with no other load no device sends more than its promise needs."""
    async with box_with({640: Cost(run_ms=20.0, run_ms_by_batch=BATCHES)}, offload=policy) as (fleet, gate):
        promise = AccuracyPromise(drop_max)
        lives = await fleet.cameras(devices, gate, promise, mbps=40.0, drop_rate=0.004, every_s=1)
        await fleet.pass_s(10)
        ran = fleet.bench.processor.ran_for
        before, planned = len(ran), Counter[int]()
        for _ in range(25):
            await fleet.pass_s(0.2)
            for pool in fleet.sessions.planning.pools:
                planned.update(len(batch.requests) for batch in pool.batches)
            for plan in (present(live.plan) for live in lives):
                spaces = [after - frame for frame, after in pairwise(plan.frames)]
                assert all(0.5 * plan.interval <= space <= 2.0 * plan.interval for space in spaces), spaces
        assert set(map(len, ran[before:])) == set(planned)
        assert max(planned) == min(4, devices)
        assert all(live.kept == live.windows for live in lives)
