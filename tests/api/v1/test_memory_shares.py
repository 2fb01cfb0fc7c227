"""Guarantees and ceilings of memory over HTTP; which networks leave is told in `tests/runtime/residency`."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import onnx
import pytest

from appliance import log
from appliance.domain.states import JobState
from tests import toys
from tests.api.stand import Stand, copied, imported, made_key, refusal, shown_when, stand_on

pytestmark = [pytest.mark.nightly("imports of several tenants into little memory"), pytest.mark.anyio]
BUSY = ("one", "two", "three")
PICTURE = {"inputs": [{"name": "image", "shape": [1, 3, 32, 32], "datatype": "FP32", "data": [0.5] * (3 * 32 * 32)}]}
IMAGE = {"inputs": {"image": [[[[0.5] * 32] * 32] * 3]}}


async def _furnish(folder: Path) -> None:
    """`calm` has one network, `busy` three; each about 2 MB, none of equal content."""
    async with stand_on(folder / "state") as stand:
        for tenant in ("calm", "busy"):
            assert (await stand.client().post("/v1/tenants", json={"name": tenant})).status_code == 201
        for seed, (tenant, name) in enumerate([("calm", "own"), *(("busy", name) for name in BUSY)]):
            network = _fixed(toys.conv_net(folder / f"{name}.onnx", 2, seed=seed))
            client = stand.client("admin", **{"X-Tenant": tenant})
            job = await imported(client, name, network.read_bytes(), metadata={"precisions": []})
            assert job["state"] == JobState.DONE


def _fixed(network: Path) -> Path:
    """For one picture of 32 x 32: what has no free axis is measured in a moment."""
    model = onnx.load(network)
    for axis, size in enumerate((1, 3, 32, 32)):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
    onnx.save(model, network)
    return network


@pytest.fixture(scope="module")
def pressed_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with the four networks."""
    log.configure("error", "console")
    folder = tmp_path_factory.mktemp("pressed")
    asyncio.run(_furnish(folder))
    return folder / "state"


@pytest.fixture
async def pressed(pressed_state: Path, tmp_path: Path) -> AsyncIterator[Stand]:
    """A box with room for three of the four networks, which makes room by the least recently used."""
    state_dir = copied(pressed_state, tmp_path / "state")
    async with stand_on(state_dir) as stand:
        sizes = [v["profile"] for tenant in ("calm", "busy") for v in await _variants(stand, tenant)]
    largest = max(max(s["peak_bytes"], s["resident_bytes"]) for s in sizes)
    budget = 2 * max(s["resident_bytes"] for s in sizes) + largest
    assert budget < sum(s["resident_bytes"] for s in sizes), "all four would fit"
    async with stand_on(state_dir, memory={"budget_bytes": budget, "reserve_bytes": 0, "wait_ms_max": 500}) as stand:
        yield stand


async def _variants(stand: Stand, tenant: str) -> list[dict[str, Any]]:
    client = stand.client("admin", **{"X-Tenant": tenant})
    names = ("own",) if tenant == "calm" else BUSY
    return [v for name in names for v in (await client.get(f"/v1/models/{name}")).json()["variants"]]


async def _ask(stand: Stand, tenant: str, name: str) -> httpx.Response:
    client = stand.client("admin", **{"X-Tenant": tenant})
    return await client.post(f"/v2/models/{name}/infer", json=PICTURE)


def _resident(memory: dict[str, Any]) -> set[str]:
    return {name for build in memory["builds"] if build["state"] == "resident" for name in build["applications"]}


async def _holding(stand: Stand, tenant: str) -> dict[str, Any]:
    rows = (await stand.client().get("/v1/memory")).json()["tenants"]
    found: dict[str, Any] = next(row for row in rows if row["tenant"] == tenant)
    return found


async def _set(stand: Stand, tenant: str, **quota: float) -> httpx.Response:
    return await stand.client().put(f"/v1/tenants/{tenant}", json={"quota": quota})


async def test_memory_ceiling_refusal_states_the_ceiling_to_its_tenant_only(pressed: Stand) -> None:
    """Over /v1 and /v2: what it holds, may hold and needs, and what to do. A guest of a shared model learns
    none of it.
    """
    assert (await _ask(pressed, "busy", "one")).status_code == 200
    held = (await _holding(pressed, "busy"))["held_bytes"]
    ceiling = int(1.5 * held)
    assert (await _set(pressed, "busy", memory_ceiling_bytes=ceiling)).status_code == 200
    owner, guest = (pressed.client("admin", **{"X-Tenant": tenant}) for tenant in ("busy", "calm"))
    assert (await owner.patch("/v1/applications/two", json={"shared": True})).status_code == 200
    memory = pressed.appliance.running().memory
    in_use = memory.pin_resident(memory.resident_set()[0])
    assert in_use is not None
    refused = await owner.post("/v1/applications/two/predict", json=IMAGE)
    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (503, "/problems/ceiling-reached")
    assert (problem["tenant"], problem["held_bytes"], problem["ceiling_bytes"]) == ("busy", held, ceiling)
    assert ceiling - held < problem["need_bytes"] < ceiling
    assert problem["blockers"] == [{"application": "busy/one", "mb": held / 1e6, "why": "pinned", "until_s": None}]
    assert f"tenant 'busy' holds {held / 1e6:.1f} MB and may hold {ceiling / 1e6:.1f} MB" in problem["detail"]
    assert refused.headers["Retry-After"] == "1"
    assert (await _ask(pressed, "busy", "two")).json() == {"error": problem["detail"]}
    other = (await guest.post("/v1/applications/two/predict", json=IMAGE)).json()
    assert other["type"] == "/problems/out-of-memory"
    assert not {"tenant", "held_bytes", "ceiling_bytes"} & set(other)
    memory.unpin(in_use)
    assert (await _ask(pressed, "busy", "two")).status_code == 200


async def test_model_above_the_memory_ceiling_is_refused_at_once(pressed: Stand) -> None:
    """To unload another model would not help, so the refusal does not advise it."""
    assert (await _set(pressed, "busy", memory_ceiling_bytes=1000)).status_code == 200
    refused = await _ask(pressed, "busy", "one")
    assert refused.status_code == 507
    assert refused.json()["error"].endswith("may hold 0.001 MB; upload a smaller variant, or have the ceiling raised")


async def test_memory_ceiling_that_is_lowered_holds_at_once(pressed: Stand) -> None:
    """Without a request and without a restart: the longest unused network leaves."""
    for name in ("one", "two"):
        assert (await _ask(pressed, "busy", name)).status_code == 200
    assert (await _set(pressed, "busy", memory_share=0.4)).status_code == 200
    await shown_when(pressed.client(), "/v1/memory", lambda memory: _resident(memory) == {"busy/two"})


async def test_memory_shares_are_shown_in_quota_memory_and_metrics(pressed: Stand) -> None:
    """A tenant sees its own row only."""
    admin = pressed.client()
    quota = {"memory_guarantee_bytes": 1000, "memory_ceiling_bytes": 2000, "memory_share": 1.0}
    assert (await _set(pressed, "calm", **quota)).status_code == 200
    shown = (await admin.get("/v1/tenants/calm")).json()["quota"]
    assert {key: shown[key] for key in quota} == quota
    calm = pressed.client(key=await made_key(admin, "calm"))
    assert (await calm.get("/v1/memory")).json()["tenants"] == [
        {"tenant": "calm", "held_bytes": 0, "guarantee_bytes": 1000, "ceiling_bytes": 2000}
    ]
    text = (await admin.get("/metrics")).text
    assert 'appliance_tenant_memory_ceiling_bytes{tenant="calm"} 2000.0' in text
    assert 'appliance_tenant_memory_ceiling_bytes{tenant="busy"}' not in text
    assert 'appliance_tenant_memory_guarantee_bytes{tenant="calm"} 1000.0' in text


async def test_memory_guarantee_that_cannot_be_held_is_refused(pressed: Stand) -> None:
    """More than the budget together is 409 with the figures; more than the own ceiling is 422. The old quota stays."""
    admin = pressed.client()
    budget = (await admin.get("/v1/memory")).json()["budget_bytes"]
    assert (await _set(pressed, "calm", memory_guarantee_bytes=budget - 10)).status_code == 200
    refused = await _set(pressed, "busy", memory_guarantee_bytes=11)
    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (409, "/problems/overcommitted")
    assert (problem["others_bytes"], problem["budget_bytes"]) == (budget - 10, budget)
    assert "at most 10 are left" in problem["detail"]
    more = await admin.post("/v1/tenants", json={"name": "third", "quota": {"memory_guarantee_bytes": 11}})
    assert more.status_code == 409
    assert (await _set(pressed, "busy", memory_guarantee_bytes=10)).status_code == 200
    assert refusal(await _set(pressed, "busy", memory_guarantee_bytes=9, memory_ceiling_bytes=8)) == (422, "bad-quota")
    assert (await _set(pressed, "busy", memory_guarantee_bytes=-1)).status_code == 422
    assert (await admin.get("/v1/tenants/busy")).json()["quota"]["memory_guarantee_bytes"] == 10
