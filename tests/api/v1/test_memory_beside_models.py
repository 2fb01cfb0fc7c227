"""A box with little memory, of which its own processes take a part: what it promises, it holds."""

from typing import Any

import pytest

from appliance.demo.zoo import toys
from tests.api.stand import Stand, StandWith, good, refusal
from tests.api.v1.digit_pictures import samples

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("processes")]

ONE = {"name": "one", "latency_slo_ms": 5000, "stages": [{"name": "what", "application": "digits"}]}
MB = 10**6


async def _memory(stand: Stand) -> dict[str, Any]:
    shown: dict[str, Any] = (await stand.client().get("/v1/memory")).json()
    return shown


@pytest.mark.parametrize("budget_mb", [24, 62])
async def test_small_memory_budget_is_not_spent_on_planner_processes(
    stand_with: StandWith, digits: toys.Digits, budget_mb: int
) -> None:
    """A client of a pipeline is promised its frames, and all are answered: plans are made, but no process of 30 MB
    takes the place of the model.
    """
    picture = samples(digits, 1)[0][0]
    async with stand_with(memory={"budget_bytes": budget_mb * MB, "reserve_bytes": 0}) as stand:
        harbour = stand.client("harbour")
        assert (await harbour.post("/v1/pipelines", json=ONE)).status_code == 201
        joined = await good(harbour.post("/v1/pipelines/one/clients", json={"fps": 5}))
        headers = {"X-Client": joined["id"]}
        for _ in range(6):
            answer = await harbour.post("/v1/pipelines/one/predict", content=picture, headers=headers)
            assert answer.status_code == 200, answer.text
            assert [item.get("none") for item in answer.json()["items"]] == [None], answer.text
        assert (await harbour.get("/v1/pipelines/one")).json()["plan"]["feasible"]
        memory = await _memory(stand)
        assert (memory["overhead_bytes"], memory["evictions"]) == (0, 0)


async def test_guard_without_room_refuses_clients_before_a_promise(stand_with: StandWith, digits: toys.Digits) -> None:
    """40 MB hold no guard with its fork server: the client is refused, and so are requests, with nothing begun."""
    picture = samples(digits, 1)[0][0]
    memory = {"budget_bytes": 40 * MB, "reserve_bytes": 0}
    async with stand_with(guard={"isolation": "process"}, memory=memory) as stand:
        harbour = stand.client("harbour")
        await harbour.post("/v1/pipelines", json=ONE)
        joined = await harbour.post("/v1/pipelines/one/clients", json={"fps": 5})
        assert (joined.status_code, joined.json()["missing"]) == (409, ["memory"])
        refused = await harbour.post("/v1/applications/digits/predict", content=picture)
        assert refusal(refused) == (507, "out-of-memory")
        assert {one["why"] for one in refused.json()["blockers"]} == {"guards", "fork servers"}
        assert (await _memory(stand))["used_bytes"] == 0


async def test_guarded_models_serve_a_pipeline_on_a_small_budget(stand_with: StandWith, digits: toys.Digits) -> None:
    """In 80 MB, of which a guard and its fork server take most: what is promised is held."""
    picture = samples(digits, 1)[0][0]
    memory = {"budget_bytes": 80 * MB, "reserve_bytes": 0}
    async with stand_with(guard={"isolation": "process"}, memory=memory) as stand:
        harbour = stand.client("harbour")
        await harbour.post("/v1/pipelines", json=ONE)
        for _ in range(2):
            await good(harbour.post("/v1/pipelines/one/clients", json={"fps": 2}))
            answer = await harbour.post("/v1/pipelines/one/predict", content=picture)
            assert [item.get("none") for item in answer.json()["items"]] == [None], answer.text
        shown = await _memory(stand)
        assert shown["evictions"] == 0
        assert {one["of"] for one in shown["beside"]} == {"guards", "fork servers"}
        assert sum(one["bytes"] for one in shown["beside"]) == shown["overhead_bytes"]
        assert shown["overhead_bytes"] + sum(one["bytes"] for one in shown["builds"]) == shown["used_bytes"]
