"""Sums over HTTP: how promises were kept, and who used most, for those who may see it."""

from typing import Any

import pytest

from appliance.domain.promised import PromiseEnd
from tests.api.stand import IMAGE, Stand, StandWith, good, made_key, refusal
from tests.api.v1.test_pipelines import ONE

pytestmark = pytest.mark.anyio

NOTHING = {"kept": 0, "late": 0, "refused": 0, "failed": 0, "share": None}


async def promises(stand: Stand, who: str = "harbour", **query: str) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = (await good(stand.client(who).get("/v1/history/promises", params=query)))["items"]
    return shown


def counted(span: dict[str, Any]) -> dict[str, Any]:
    return {name: span[name] for name in NOTHING}


async def with_slo(stand: Stand, slo_ms: float | None = 60_000) -> None:
    await good(stand.client("harbour").patch("/v1/applications/digits", json={"latency_slo_ms": slo_ms}))


def end(stand: Stand, **times: int) -> None:
    """Requests of another caller end so."""
    for name, count in times.items():
        for _ in range(count):
            key = ("harbour/digits", "", "museum")
            stand.appliance.running().telemetry.failed(key, "failed", 5, PromiseEnd(name))


async def test_promise_of_application_has_exact_sums_and_cells(stand: Stand) -> None:
    """Three answers in time, two late, one refused, two failed: three of eight are kept."""
    history = stand.appliance.running().history
    await with_slo(stand)
    history.sample()
    for _ in range(3):
        await good(stand.client("harbour").post("/v2/models/digits/infer", json=IMAGE))
    end(stand, late=2, refused=1, failed=2)
    history.sample()
    [shown] = await promises(stand, application="digits")
    assert [shown[name] for name in ("tenant", "kind", "name", "of", "latency_slo_ms")] == [
        "harbour",
        "application",
        "digits",
        "requests",
        60_000,
    ]
    for name, (cells, length) in {"hour": (60, 60), "day": (48, 1800), "month": (30, 86_400)}.items():
        span = shown[name]
        assert counted(span) == {"kept": 3, "late": 2, "refused": 1, "failed": 2, "share": 3 / 8}
        assert span["cell_s"] == length
        assert {len(column) for column in span["cells"].values()} == {cells}
        assert sum(span["cells"]["kept"]) == 3
        down_s = span["cells"]["down_s"]
        assert down_s[0] is None  # there was no box
        assert down_s == [None] * down_s.count(None) + [0] * down_s.count(0)
    [listed] = await promises(stand)
    assert listed["month"] == shown["month"] | {"cells": None}


async def test_promises_survive_a_restart_and_a_change_of_slo(stand_with: StandWith) -> None:
    """What was counted stays; an application that promises nothing any more still shows what it promised."""
    async with stand_with() as stand:
        await with_slo(stand)
        end(stand, kept=2)
        await with_slo(stand, 50_000)
        end(stand, late=1)
        stand.appliance.running().history.sample()
    async with stand_with() as stand:
        await with_slo(stand, None)
        [shown] = await promises(stand)
        assert shown["latency_slo_ms"] is None
        assert counted(shown["month"]) == NOTHING | {"kept": 2, "late": 1, "share": 2 / 3}


async def test_promises_of_pipelines_and_of_every_tenant_are_listed(stand: Stand) -> None:
    """A frame that is no picture is its sender's, and breaks no promise."""
    harbour, history = stand.client("harbour"), stand.appliance.running().history
    await good(harbour.post("/v1/pipelines", json=ONE | {"latency_slo_ms": 60_000}))
    refused = await harbour.post(
        "/v1/pipelines/one/predict", content=b"no picture", headers={"Content-Type": "image/png"}
    )
    assert not refused.is_success
    pipelines = stand.appliance.running().pipelines
    frames = pipelines.get("harbour/one").frames
    for broken in (PromiseEnd.LATE, PromiseEnd.REFUSED):
        second = frames.begins(0)
        frames.ends(second, is_answered=True, is_late=True, is_dropped=False, has_errors=False, broken=broken)
    history.sample()
    [shown] = await promises(stand, pipeline="one")
    assert (shown["kind"], shown["of"], shown["latency_slo_ms"]) == ("pipeline", "frames", 60_000)
    assert counted(shown["day"]) == NOTHING | {"late": 1, "refused": 1, "share": 0.0}
    assert [one["name"] for one in await promises(stand, "admin", tenant="*")] == ["one"]
    assert await promises(stand, "museum") == []
    for who, query in (("museum", {"application": "digits"}), ("museum", {"pipeline": "one"})):
        answer = await stand.client(who).get("/v1/history/promises", params=query)
        assert refusal(answer)[0] == 404
    answer = await stand.client("museum").get("/v1/history/promises", params={"tenant": "*"})
    assert refusal(answer) == (403, "forbidden")
    assert refusal(await stand.client("device").get("/v1/history/promises")) == (403, "forbidden")


async def used(stand: Stand, who: str = "admin", **query: str | int) -> dict[str, Any]:
    shown: dict[str, Any] = await good(stand.client(who).get("/v1/history/tenants", params=query))
    return shown


async def test_tenants_are_listed_by_who_used_most(stand: Stand) -> None:
    """Requests and processor time count for who asked, memory and disk for whose the model is."""
    box = stand.appliance.running()
    box.history.sample()
    infer = "/v2/models/digits/infer"
    await good(stand.client("harbour").patch("/v1/applications/digits", json={"shared": True}))
    await good(stand.client("harbour").post(infer, json=IMAGE))
    for _ in range(3):
        await good(stand.client("museum").post(infer, json=IMAGE))
    box.history.sample()
    by_requests = (await used(stand, sort="requests", over="hour"))["items"]
    assert [(one["name"], one["requests"]) for one in by_requests] == [("museum", 3), ("harbour", 1), ("default", 0)]
    rows = {one["name"]: one for one in by_requests}
    assert rows["museum"]["processor_s"] > 0
    assert rows["default"]["processor_s"] == 0
    assert rows["museum"]["stored_bytes"] == rows["museum"]["memory_bytes"] == 0
    use = (await good(stand.client("harbour").get("/v1/tenants/harbour")))["use"]
    assert rows["harbour"]["stored_bytes"] == use["stored_bytes"] > 0
    assert rows["harbour"]["processor_s"] == use["processor_s"] > 0
    assert 0 < rows["harbour"]["memory_bytes"] <= use["memory_bytes"]
    for sort in ("processor_s", "memory_bytes", "stored_bytes"):
        figures = [one[sort] for one in (await used(stand, sort=sort))["items"]]
        assert figures == sorted(figures, reverse=True)
    first = await used(stand, sort="name", limit=2)
    rest = await used(stand, sort="name", limit=2, cursor=first["next_cursor"])
    assert [one["name"] for one in (*first["items"], *rest["items"])] == ["default", "harbour", "museum"]
    assert rest["next_cursor"] is None


async def test_tenant_sees_its_own_use_and_a_new_tenant_of_the_name_nothing(stand: Stand) -> None:
    """A tenant that is deleted and made again has used nothing."""
    box, admin = stand.appliance.running(), stand.client()
    assert [one["name"] for one in (await used(stand, "museum"))["items"]] == ["museum"]
    await good(admin.post("/v1/tenants", json={"name": "airport"}))
    airport = stand.client(key=await made_key(admin, "airport"))
    await good(stand.client("harbour").patch("/v1/applications/digits", json={"shared": True}))
    await good(airport.post("/v2/models/digits/infer", json=IMAGE))
    box.history.sample()
    assert {one["name"]: one["requests"] for one in (await used(stand))["items"]}["airport"] == 1
    await good(admin.delete("/v1/tenants/airport"))
    await good(admin.post("/v1/tenants", json={"name": "airport"}))
    box.history.sample()
    [shown] = [one for one in (await used(stand))["items"] if one["name"] == "airport"]
    assert shown == {"name": "airport", "requests": 0, "processor_s": 0.0, "memory_bytes": 0, "stored_bytes": 0}
