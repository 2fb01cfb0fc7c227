"""A box on an emulated processor: runs take the time that their networks say, and every answer says so."""

from pathlib import Path

import pytest

from appliance.lab.scenario import parse_scenario
from tests.api.stand import Stand, running
from tests.fakes.emulated_box import INPUT, furnish
from tests.fakes.waiting import until

pytestmark = pytest.mark.anyio
SCENARIO = parse_scenario(
    {
        "box": {"memory_mb": 500, "processors": [{"name": "gpu"}]},
        "models": [
            {
                "name": "depth",
                "variants": [
                    {"name": "one", "size_mb": 50, "accuracy": 90, "load_ms": 1, "latency_ms": {"gpu": {"1": 60}}}
                ],
            }
        ],
        "applications": [{"name": "depth", "model": "depth"}],
    }
)


async def test_answers_say_that_the_processor_is_emulated(tmp_path: Path) -> None:
    """Answers of `predict` and of `/v2`; runs take as long as the network says."""
    await furnish(SCENARIO, tmp_path)
    processors = [{"kind": "emulated", "name": "gpu", "workers": 1}]
    async with running(tmp_path / "state", processors=processors, queues={"inline_ms_max": 0}) as appliance:
        key = tmp_path / "state" / "admin.key"
        await until(key.exists)  # a thread writes it
        stand = Stand(appliance, tmp_path / "state", {"admin": key.read_text().strip()})
        client = stand.client()
        answer = (await client.post("/v1/applications/depth/predict", json={"inputs": {INPUT: [[1.0]]}})).json()
        assert (answer["processor"], answer["variant"]) == ("emulated", "one")
        assert answer["timings_ms"]["compute"] >= 60
        tensor = {"name": INPUT, "shape": [1, 1], "datatype": "FP32", "data": [2.0]}
        inferred = await client.post("/v2/models/depth/infer", json={"inputs": [tensor]})
        assert inferred.json()["outputs"][0]["data"] == [2.0]
        assert inferred.headers["server-timing"].endswith(", emulated")
        assert [one["kind"] for one in (await client.get("/v1/processors")).json()] == ["emulated"]
        await stand.close()
