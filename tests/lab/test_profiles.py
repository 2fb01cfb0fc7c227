"""The profile store in virtual time: what the box learns of a processor that has become slow."""

import asyncio

import numpy as np
import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.request import Request
from appliance.lab.composition import compose
from appliance.lab.networks import INPUT
from appliance.lab.scenario import parse_scenario
from tests.fakes.clock import run_virtual
from tests.lab.scenarios import document
from tests.present import present


@pytest.mark.parametrize("factor", [0.5, 2, 5])
def test_profile_after_fifty_runs_at_another_speed_is_within_a_tenth(factor: float) -> None:
    """Of a core slowed by half, and of others."""
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
        times = present(box.core.catalogue.entry("default/door").servables["fp32"].times)
        return times.usual.expected_ns(1, 1, box.clock.now_ns()) / NS_PER_MS

    assert run_virtual(story) == pytest.approx(40 * factor, rel=0.1)


@pytest.mark.parametrize(
    ("p99_ms", "expected"),
    [
        ({}, {(1, 1): 40, (4, 1): 90, (1, 2): 50, (4, 2): 100}),
        ({"cpu": 60}, {(1, 1): 60, (4, 1): 90, (1, 2): 75, (4, 2): 100}),
        ({"cpu": {"1": 60, "1x2": 100, "4": 99}}, {(1, 1): 60, (4, 1): 99, (1, 2): 100, (4, 2): 110}),
    ],
)
def test_profile_p99_is_as_written_by_batch_and_concurrency(
    p99_ms: object, expected: dict[tuple[int, int], float]
) -> None:
    """As written by batch and runs at once; of what is not written as of as many rows alone."""
    written = document()
    written["models"][0]["variants"] = written["models"][0]["variants"][:1]
    variant = written["models"][0]["variants"][0]
    variant |= {"latency_ms": {"cpu": {"1": 40, "4": 90, "1x2": 50, "4x2": 100}}, "p99_ms": p99_ms}
    read = parse_scenario(written)

    async def story() -> dict[tuple[int, int], float]:
        profile = present(compose(read).core.catalogue.entry("default/door").servables["fp32"].profile)
        return {(row.batch, row.concurrency): row.p99_ms for row in profile.latencies}

    assert run_virtual(story) == pytest.approx(expected)
