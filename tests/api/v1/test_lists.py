"""Lists over all tenants, and rows without what is large in them."""

import datetime
from typing import Any

import httpx
import pytest

from appliance.domain.audit import AuditRecord
from tests.api.stand import Stand, good, refusal
from tests.harness.work import turns

pytestmark = pytest.mark.anyio
PIPELINE: dict[str, Any] = {
    "name": "one",
    "latency_slo_ms": 500,
    "stages": [{"name": "what", "application": "digits"}],
}
LISTS = tuple(f"/v1/{name}?tenant=*" for name in ("models", "applications", "pipelines", "jobs", "uploads", "sessions"))
SESSION = {"fps": 5, "promise": {"kind": "latency", "slo_ms": 2000, "rate_rps": 1}}
KEYS = "/v1/tenants/*/keys"


MOVING = ("plan", "decisions")
"""Of a session: what changes while nobody touches it."""


async def rows(client: httpx.AsyncClient, path: str, limit: int = 100) -> list[dict[str, Any]]:
    """Of all pages."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = await good(client.get(path, params={**httpx.URL(path).params, "limit": limit, "cursor": cursor}))
        found += [{key: one[key] for key in one if key not in MOVING} for one in answer["items"]]
        cursor = answer["next_cursor"]
    return found


async def furnish_two(stand: Stand) -> None:
    """Two tenants with an application and a pipeline of the same name, an upload under way and a session."""
    await good(
        stand.client("harbour").post("/v1/applications", json={"name": "shown", "model": "digits", "shared": True})
    )
    stages = [{"name": "what", "application": "shown"}]
    for who, body in (("harbour", PIPELINE), ("museum", PIPELINE | {"stages": stages})):
        assert (await stand.client(who).post("/v1/pipelines", json=body)).status_code == 201
        named = {"application": body["stages"][0]["application"]}
        for path, order in (("uploads", {"length": 9}), ("sessions", SESSION | named)):
            await good(stand.client(who).post(f"/v1/{path}", json=order))


async def test_longest_page_is_made_in_many_turns_of_the_loop(stand: Stand) -> None:
    """Of 500 rows no turn makes more than a part."""
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    records = [AuditRecord(at, "harbour", "Make a key", "POST", "/v1/keys", str(i)) for i in range(600)]
    management, _ = await stand.appliance.management.get()
    await management.box.store.audit.add(records)
    client = stand.client()
    with turns() as seen:
        page = await good(client.get("/v1/audit?limit=500"))
    assert [one["subject"] for one in page["items"]] == [str(i) for i in range(599, 99, -1)]
    assert 0 < seen.shapes_max < 250


async def test_admin_lists_the_rows_of_all_tenants_by_tenant_and_name(stand: Stand) -> None:
    """As each tenant sees its own; also in pages of one, and whichever tenant the admin acts for."""
    await furnish_two(stand)
    for path in LISTS:
        listed = await rows(stand.client(), path)
        assert listed == await rows(stand.client(), path, limit=1)
        assert listed == await rows(stand.client(**{"X-Tenant": "museum"}), path)
        own = path.removesuffix("?tenant=*")
        for who, tenant in (("admin", "default"), ("harbour", "harbour"), ("museum", "museum")):
            mine = [one for one in await rows(stand.client(who), own) if one["tenant"] == tenant]
            assert [one for one in listed if one["tenant"] == tenant] == mine, path
    pipelines = await rows(stand.client(), "/v1/pipelines?tenant=*")
    assert [(one["tenant"], one["name"]) for one in pipelines] == [("harbour", "one"), ("museum", "one")]
    assert "harbour" in {one["tenant"] for one in await rows(stand.client(), "/v1/models?tenant=*")}
    for name in ("uploads", "sessions"):
        assert {one["tenant"] for one in await rows(stand.client(), f"/v1/{name}?tenant=*")} == {"harbour", "museum"}
        assert {one["tenant"] for one in await rows(stand.client("museum"), f"/v1/{name}")} == {"museum"}


async def test_admin_lists_the_keys_of_all_tenants_without_secrets(stand: Stand) -> None:
    admin = stand.client()
    listed = await rows(admin, KEYS)
    assert listed == await rows(admin, KEYS, limit=1)
    assert {"default", "harbour", "museum"} <= {one["tenant"] for one in listed}
    harbour = [one["id"] for one in await rows(admin, "/v1/tenants/harbour/keys")]
    assert [one["id"] for one in listed if one["tenant"] == "harbour"] == harbour
    assert not [one for one in listed if "key" in one or "sha256" in one]


@pytest.mark.parametrize("path", [*LISTS, KEYS])
async def test_lists_over_all_tenants_are_for_admins_only(stand: Stand, path: str) -> None:
    """Others are refused and told why, not shown their own part as if it were all."""
    for who in ("harbour", "museum", "device"):
        assert refusal(await stand.client(who).get(path)) == (403, "forbidden")


async def test_summary_rows_leave_out_large_fields(stand: Stand) -> None:
    """What stays is what the whole row says."""
    await furnish_two(stand)
    harbour = stand.client("harbour")
    hollow: dict[str, dict[str, Any]] = {
        "models": {"variants": []},
        "applications": {"choice": "", "warnings": []},
        "pipelines": {"stages": []},
    }
    for name, left_out in hollow.items():
        whole = await rows(harbour, f"/v1/{name}")
        summary = await rows(harbour, f"/v1/{name}?summary=true")
        if name == "applications":
            whole = [one | {"variants": one["variants"][:1]} for one in whole]
        assert summary == [one | left_out for one in whole]
        assert summary != await rows(harbour, f"/v1/{name}")
    for one in await rows(harbour, "/v1/models"):
        assert one["variants_count"] == len(one["variants"]) > 0
    for query, has_plan in (("", True), ("?summary=true", False)):
        (session,) = (await harbour.get(f"/v1/sessions{query}")).json()["items"]
        assert (session["plan"] is not None) is has_plan


async def test_summary_of_all_tenants_is_listed_for_an_admin(stand: Stand) -> None:
    """Both at once, as an admin's pages ask."""
    listed = await rows(stand.client(), "/v1/models?tenant=*&summary=true")
    assert listed
    assert all(one["variants"] == [] and one["variants_count"] > 0 for one in listed)
