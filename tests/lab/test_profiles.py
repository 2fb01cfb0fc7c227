"""The profile store in virtual time: what the box learns of a processor that has become slow."""

import asyncio

import numpy as np
import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.request import Request
from appliance.lab.composition import compose
from appliance.lab.loop import run_virtual
from appliance.lab.networks import INPUT
from appliance.lab.scenario import parse_scenario
from tests.lab.scenarios import document


@pytest.mark.parametrize("factor", [0.5, 2, 5])
def test_profile_after_fifty_runs_at_another_speed(factor: float) -> None:
    """Within a tenth of the truth: of a core slowed by half, and of others."""
    written = document()
    written["models"][0]["variants"] = written["models"][0]["variants"][:1]
    read = parse_scenario(written)

    async def story() -> float:
        box = compose(read)
        (worker,) = box.core.engine.workers
        working = asyncio.create_task(worker.work())
        box.processors[0].ailments.slow_factors.append(factor)
        for _ in range(50):
            now_ns = box.clock.now_ns()
            await box.core.engine.infer(Request("default/door", "default", {INPUT: np.zeros(1, np.float32)}, now_ns))
        working.cancel()
        times = box.core.catalogue.entry("default/door").servables["fp32"].times
        assert times is not None
        return times.usual.expected_ns(1, 1, box.clock.now_ns()) / NS_PER_MS

    assert run_virtual(story) == pytest.approx(40 * factor, rel=0.1)
