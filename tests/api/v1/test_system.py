"""What the box says of itself."""

import asyncio
import resource
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from appliance import __version__
from appliance.api.auth.callers import CONNECTION
from appliance.api.v1 import system
from appliance.confinement.available import available
from appliance.resources.cores import usable_cores
from appliance.resources.memory import MemoryLimits
from appliance.runtime.telemetry import BUCKETS_S, PARTS
from tests.api.stand import ROWS, Stand, StandWith, refusal, stand_on

pytestmark = pytest.mark.anyio


async def test_system_shows_sane_figures_and_the_counts_of_the_caller(stand: Stand) -> None:
    shown = (await stand.client("harbour").get("/v1/system")).json()
    assert (shown["version"], shown["ready"], shown["models"], shown["applications"]) == (__version__, True, 2, 2)
    assert 0 < shown["process_bytes"] < shown["memory_total_bytes"]
    cores, memory = usable_cores(), MemoryLimits().now()
    assert (shown["cores"], shown["cores_bound"]) == (cores.count, cores.bound)
    assert (shown["memory_total_bytes"], shown["memory_bound"]) == (memory.total_bytes, memory.bound)
    assert shown["uptime_s"] > 0
    assert shown["confinement"] == asdict(available())
    assert shown["policies"]["eviction"]
    assert shown["settings"].keys() == {"memory", "pipelines", "queues", "residency", "selection"}
    assert shown["settings"]["memory"]["loads_parallel_max"] == 2
    assert (await stand.client("museum").get("/v1/system")).json()["models"] == 1
    counted = ("tenant", "models", "models_of_all", "applications_of_all")
    assert [shown[name] for name in counted] == ["harbour", 2, None, None], "a tenant's key learns of no others"
    operators = (await stand.client().get("/v1/system")).json()
    assert [operators[name] for name in counted] == ["default", 1, 2, 2]


async def test_system_out_of_file_handles_is_503_for_a_while(stand: Stand) -> None:
    """What the box would have to open cannot be told now; that is not the caller's mistake, and comes back by
    itself.
    """
    client = stand.client("harbour")
    assert (await client.get("/v1/system")).status_code == 200  # the store is open
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    system.process_bytes.cache_clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        answer = await client.get("/v1/system")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert refusal(answer) == (503, "out-of-files")
    assert answer.headers["retry-after"] == "1"
    assert "LimitNOFILE" in answer.json()["detail"]
    assert (await client.get("/v1/system")).status_code == 200


async def test_settings_show_their_source_to_admins_only(stand: Stand) -> None:
    """Given settings and defaults."""
    shown = {one["name"]: one for one in (await stand.client().get("/v1/settings")).json()}
    assert shown["state_dir"]["source"] == "option"
    loads = shown["memory.loads_parallel_max"]
    assert (loads["value"], loads["default"], loads["source"]) == (2, 2, "default")
    assert loads["description"] == "Loads at once; each reserves its measured peak."
    assert (await stand.client("harbour").get("/v1/settings")).status_code == 403


async def test_memory_shows_builds_to_the_tenants_that_use_them(stand: Stand) -> None:
    """Loaded by harbour: harbour and admin see it with its application, museum does not; a shared build all see, by
    their own names.
    """
    harbour, museum = stand.client("harbour"), stand.client("museum")
    await museum.post("/v1/applications", json={"name": "sums", "model": "adding"})
    assert (await harbour.post("/v2/repository/models/digits/load")).status_code == 200
    assert (await museum.post("/v1/applications/sums/predict", json=ROWS)).status_code == 200
    shown = {who: (await stand.client(who).get("/v1/memory")).json() for who in ("admin", "harbour", "museum")}
    names = {
        who: sorted(name for build in memory["builds"] for name in build["applications"])
        for who, memory in shown.items()
    }
    assert names == {
        "admin": ["default/adding", "harbour/digits", "museum/sums"],
        "harbour": ["default/adding", "harbour/digits"],
        "museum": ["default/adding", "museum/sums"],
    }
    build = shown["harbour"]["builds"][0]
    assert build["state"] == "resident"
    assert 0 < build["bytes"] <= shown["admin"]["used_bytes"] <= shown["admin"]["budget_bytes"]


async def test_processors_show_figures_to_admins_and_state_to_tenants(stand: Stand) -> None:
    """An operator sees the fingerprint of prepared forms and what ran there, a tenant that the CPU serves."""
    path = "/v1/applications/adding/predict"
    assert (await stand.client("harbour").post(path, json=ROWS)).status_code == 200
    (shown,) = (await stand.client().get("/v1/processors")).json()
    assert (shown["kind"], shown["state"], shown["reason"]) == ("cpu", "serving", "")
    assert shown["workers"] >= 1
    assert shown["fingerprint"]
    assert shown["runs"] >= 1
    assert shown["busy_ms"] > 0
    assert shown["mean_batch"] >= 1
    (own,) = (await stand.client("harbour").get("/v1/processors")).json()
    assert {name: value for name, value in own.items() if value is not None} == {
        "name": shown["name"],
        "kind": "cpu",
        "state": "serving",
    }


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics_count_requests_starts_and_loads(stand: Stand) -> None:
    """Two good requests: counters, a cold and a warm start, histograms whose buckets add up, loads."""
    harbour, admin = stand.client("harbour"), stand.client()
    for _ in range(2):
        assert (await harbour.post("/v1/applications/adding/predict", json=ROWS)).status_code == 200
    found = samples((await admin.get("/metrics")).text)
    labels = (("application", "default/adding"), ("tenant", "harbour"), ("variant", "fp32"))

    def value(name: str, *more: tuple[str, str]) -> float:
        return found[name, tuple(sorted((*labels, *more)))]

    assert value("appliance_requests_total", ("outcome", "done")) == 2
    assert value("appliance_starts_total", ("start", "cold")) == 1
    assert value("appliance_starts_total", ("start", "warm")) == 1
    for part in ("queue", "load", "compute", "total"):
        assert value("appliance_request_seconds_count", ("part", part)) == 2
        assert value("appliance_request_seconds_bucket", ("part", part), ("le", "+Inf")) == 2
    assert value("appliance_request_seconds_sum", ("part", "load")) > 0
    assert found["appliance_loads_total", ()] == 1
    assert found["appliance_memory_used_bytes", ()] > 0
    assert found["appliance_memory_overhead_bytes", ()] == 0
    assert found["appliance_ready", ()] == 1
    assert found["appliance_processor_runs_total", (("processor", "cpu"),)] >= 0
    assert found["appliance_processor_busy_seconds_total", (("processor", "cpu"),)] >= 0


@pytest.mark.nightly("thousands of series")
async def test_requests_are_answered_while_metrics_are_written(tmp_path: Path) -> None:
    """A page of five hundred applications is no single turn of the event loop, and holds every series whole."""
    async with stand_on(tmp_path) as stand:
        box = stand.appliance.running()
        for number in range(500):
            key = (f"default/{number:04}", "fp32", "default")
            box.telemetry.done(key, warm=True, parts_ns=(number, 10 * number, 0), items=1, run_items=1, at_ns=1)
        admin, anybody = stand.client(), stand.client(None)
        assert (await admin.get("/v1/system")).status_code == 200
        page = asyncio.create_task(admin.get("/metrics"))
        answered = 0
        while not page.done():
            assert (await anybody.get("/v2/health/live")).status_code == 200
            answered += 1
            await asyncio.sleep(0)  # noqa: TID251 - no time passes
        found = samples((await page).text)
    assert answered > 10
    assert sum(name == "appliance_requests_total" for name, _ in found) == 500
    assert sum(name == "appliance_request_seconds_bucket" for name, _ in found) == 500 * len(PARTS) * (
        len(BUCKETS_S) + 1
    )


async def test_metrics_count_windows_by_application(stand: Stand) -> None:
    """Two opened, one of them over and in vain; no event."""
    telemetry = stand.appliance.running().telemetry
    before = telemetry.recent()
    for _ in range(2):
        telemetry.window_opened("default/adding")
    telemetry.window_closed("default/adding", answered=False)
    found = samples((await stand.client().get("/metrics")).text)
    label = (("application", "default/adding"),)
    counts = [found[f"appliance_windows_{name}_total", label] for name in ("opened", "closed", "missed")]
    assert counts == [2, 1, 1]
    assert telemetry.recent() == before


async def test_metrics_for_a_tenant_have_its_own_series_only(stand: Stand) -> None:
    """Nothing of other tenants and nothing of the box; a device sees nothing at all; without a key 401."""
    for who in ("harbour", "museum"):
        await stand.client(who).post("/v1/applications/adding/predict", json=ROWS)
    found = samples((await stand.client("harbour").get("/metrics")).text)
    assert {dict(labels)["tenant"] for _, labels in found} == {"harbour"}
    assert (await stand.client("device").get("/metrics")).status_code == 403
    assert (await stand.client(None).get("/metrics")).status_code == 401


async def test_metrics_may_be_opened_to_all_by_setting(stand_with: StandWith) -> None:
    """Each caller who reaches the port sees all of it."""
    async with stand_with(security={"metrics_open": True}) as stand:
        answer = await stand.client(None).get("/metrics")
        assert answer.status_code == 200
        assert ("appliance_ready", ()) in samples(answer.text)


async def test_open_metrics_are_made_in_the_part_of_a_turn_of_each_caller(
    stand_with: StandWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So one address that asks without a pause keeps no other one waiting."""
    owners: list[str] = []
    async with stand_with(security={"metrics_open": True}) as stand:
        collect = stand.appliance.turns.collect

        async def noted(owner: str, items: Iterable[Any]) -> list[Any]:
            owners.append(owner)
            return await collect(owner, items)

        monkeypatch.setattr(stand.appliance.turns, "collect", noted)
        for address in ("stranger 192.0.2.1", "stranger 192.0.2.2"):

            async def app(scope: Any, receive: Any, send: Any, owner: str = address) -> None:
                await stand.appliance.asgi({**scope, CONNECTION: SimpleNamespace(owner=owner)}, receive, send)

            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://box") as client:
                assert (await client.get("/metrics")).status_code == 200
    assert owners == ["stranger 192.0.2.1", "stranger 192.0.2.2"]
