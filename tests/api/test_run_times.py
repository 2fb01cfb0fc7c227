"""What runs were seen to take outlives the box that saw them."""

from math import prod
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.app import Appliance
from appliance.clock import NS_PER_S
from tests.api.stand import copied, running

pytestmark = pytest.mark.anyio
RUNS = 20


async def ask(appliance: Appliance, key: str, times: int) -> None:
    """Requests that are answered, of ones for inputs."""
    headers = {"Authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(appliance.asgi)
    async with httpx.AsyncClient(transport=transport, base_url="http://box", headers=headers, timeout=60) as client:
        inputs = (await client.get("/v2/models/adding")).json()["inputs"]
        for one in inputs:
            one["shape"] = [abs(side) for side in one["shape"]]
            one["data"] = [1] * prod(one["shape"])
        for _ in range(times):
            response = await client.post("/v2/models/adding/infer", json={"inputs": inputs})
            assert response.status_code == 200, response.text
        shown = (await client.get("/v1/models/adding/variants")).json()["items"][0]["seen"]
        assert {(row["batch"], row["elements_max"]) for row in shown} == {(1, None)}
        assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in shown)
        assert all(row["runs"] > 0 and row["at"] for row in shown)


def runs_seen(appliance: Appliance) -> int:
    """Of the model's only variant."""
    entry = appliance.running().catalogue.entry("default/adding")
    times: Any = entry.order[0].times
    return sum(estimate.count for _, _, estimate in times.usual.estimates())


async def test_observed_run_times_outlive_a_restart(furnished: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """Saved at the stop and read before the first request; with other settings of the processor they begin anew."""
    state_dir, keys = copied(furnished[0], tmp_path / "state"), furnished[1]
    async with running(state_dir) as appliance:
        before, start_ns = runs_seen(appliance), appliance.clock.now_ns()
        await ask(appliance, keys["harbour"], RUNS)
        seen = runs_seen(appliance)  # of quick runs that are as expected not all are looked at
        assert before < seen <= before + RUNS
    async with running(state_dir) as appliance:
        assert runs_seen(appliance) == seen
        headers = {"Authorization": f"Bearer {keys['admin']}"}
        transport = httpx.ASGITransport(appliance.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://box", headers=headers) as client:
            metrics = (await client.get("/metrics")).text
        assert "appliance_build_ballooning{" in metrics
        assert "appliance_profile_drifts_total " in metrics
        entry = appliance.running().catalogue.entry("default/adding")
        times: Any = entry.order[0].times
        last_ns = [one.last_ns for _, _, one in times.usual.estimates()]
        assert start_ns - NS_PER_S < max(last_ns) <= appliance.clock.now_ns(), "on the clock of this start"
    async with running(state_dir, processors=[{"threads_per_run": 2}]) as appliance:
        assert runs_seen(appliance) == 0
