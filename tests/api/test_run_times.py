"""What runs were seen to take outlives the box that saw them."""

from math import prod
from typing import Any

import httpx
import pytest

from appliance.clock import NS_PER_S
from tests.api.stand import Stand, StandWith, good

pytestmark = pytest.mark.anyio
RUNS = 20


async def ask(client: httpx.AsyncClient, times: int) -> None:
    """Requests that are answered, of ones for inputs."""
    inputs = (await client.get("/v2/models/adding")).json()["inputs"]
    for one in inputs:
        one["shape"] = [abs(side) for side in one["shape"]]
        one["data"] = [1] * prod(one["shape"])
    for _ in range(times):
        await good(client.post("/v2/models/adding/infer", json={"inputs": inputs}))
    shown = (await client.get("/v1/models/adding/variants")).json()["items"][0]["seen"]
    assert {(row["batch"], row["elements_max"]) for row in shown} == {(1, None)}
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in shown)
    assert all(row["runs"] > 0 and row["at"] for row in shown)


def seen(stand: Stand) -> list[Any]:
    """Estimates of the model's only variant."""
    times: Any = stand.appliance.running().catalogue.entry("default/adding").order[0].times
    return [estimate for _, _, estimate in times.usual.estimates()]


def runs_seen(stand: Stand) -> int:
    return sum(estimate.count for estimate in seen(stand))


async def test_observed_run_times_outlive_a_restart(stand_with: StandWith) -> None:
    """Saved at the stop and read before the first request; with other settings of the processor they begin anew."""
    async with stand_with() as stand:
        before, start_ns = runs_seen(stand), stand.appliance.clock.now_ns()
        await ask(stand.client("harbour"), RUNS)
        count = runs_seen(stand)  # of quick runs that are as expected not all are looked at
        assert before < count <= before + RUNS
    async with stand_with() as stand:
        assert runs_seen(stand) == count
        metrics = (await stand.client().get("/metrics")).text
        assert "appliance_build_ballooning{" in metrics
        assert "appliance_profile_drifts_total " in metrics
        last_ns = max(one.last_ns for one in seen(stand))
        assert start_ns - NS_PER_S < last_ns <= stand.appliance.clock.now_ns(), "on the clock of this start"
    async with stand_with(processors=[{"threads_per_run": 2}]) as stand:
        assert runs_seen(stand) == 0
