"""Tenants and keys over HTTP."""

import sqlite3
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from tests.api.stand import Stand, refusing

pytestmark = pytest.mark.anyio
DAY_S = 86400


async def test_tenant_is_created_listed_changed_and_deleted_with_its_keys(stand: Stand) -> None:
    admin = stand.client()
    quota = {
        "requests_per_s": 50,
        "concurrent_requests": 16,
        "memory_guarantee_bytes": 1000,
        "memory_ceiling_bytes": 2000,
        "memory_share": 0.5,
        "stored_bytes": 1000,
        "processor_weight": 3,
        "isolation": "process",
    }
    made = await admin.post("/v1/tenants", json={"name": "airport", "quota": quota})
    assert (made.status_code, made.json()) == (201, {"name": "airport", "quota": quota})
    changed = await admin.put("/v1/tenants/airport", json={"quota": {"requests_per_s": 1}})
    assert changed.json()["quota"] == dict.fromkeys(quota) | {"requests_per_s": 1, "processor_weight": 1}
    names = [one["name"] for one in (await admin.get("/v1/tenants?limit=2")).json()["items"]]
    assert names == ["airport", "default"]
    key = (await admin.post("/v1/tenants/airport/keys", json={})).json()["key"]
    airport = stand.client(None, Authorization=f"Bearer {key}")
    assert (await airport.get("/v1/models")).status_code == 200
    assert (await admin.delete("/v1/tenants/airport")).status_code == 200
    assert (await airport.get("/v1/models")).status_code == 401
    assert (await admin.get("/v1/tenants/airport")).status_code == 404


async def test_tenant_shows_its_own_use_beside_its_limits(stand: Stand) -> None:
    """Of its own requests alone; another tenant is not told."""
    harbour, empty = stand.client("harbour"), {"concurrent_requests": 0, "memory_bytes": 0, "stored_bytes": 0}
    before = (await harbour.get("/v1/tenants/harbour")).json()["use"]
    image = {"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0] * 64}
    asked = await harbour.post("/v2/models/digits/infer", json={"inputs": [image]})
    assert asked.status_code == 200, asked.text
    use = (await harbour.get("/v1/tenants/harbour")).json()["use"]
    assert use["processor_s"] > before["processor_s"]
    assert use["memory_bytes"] > 0
    assert use["stored_bytes"] > 0
    assert use["concurrent_requests"] == 0
    assert use["requests_per_s"] is None or use["requests_per_s"] >= 0
    other = (await stand.client("museum").get("/v1/tenants/museum")).json()["use"]
    assert {name: other[name] for name in empty} == empty
    assert (await stand.client("museum").get("/v1/tenants/harbour")).status_code == 404


async def test_key_secret_is_shown_once_and_stored_nowhere(stand: Stand) -> None:
    """The list has no secret; neither the database nor its log of writes contains it."""
    admin = stand.client()
    made = (await admin.post("/v1/tenants/harbour/keys", json={"label": "glasses 7"})).json()
    assert made["key"].startswith("ea_")
    listed = (await admin.get("/v1/tenants/harbour/keys")).json()["items"]
    assert made["id"] in [one["id"] for one in listed]
    assert not [one for one in listed if "key" in one or "sha256" in one]
    for path in stand.state_dir.glob("appliance.db*"):
        assert made["key"].encode() not in path.read_bytes()
    with sqlite3.connect(stand.state_dir / "appliance.db") as database:
        assert database.execute("select label from access_key where id = ?", (made["id"],)).fetchone() == ("glasses 7",)
    database.close()


async def test_revoked_key_is_refused_at_the_next_request(stand: Stand) -> None:
    harbour = stand.client("harbour")
    made = (await harbour.post("/v1/tenants/harbour/keys", json={"role": "device"})).json()
    device = stand.client(None, Authorization=f"Bearer {made['key']}")
    assert (await device.get("/v1/applications")).status_code == 200
    assert (await harbour.delete(f"/v1/tenants/harbour/keys/{made['id']}")).json() == {"deleted": made["id"]}
    refused = await device.get("/v1/applications")
    assert (refused.status_code, refused.json()["type"]) == (401, "/problems/wrong-key")
    assert refused.headers["www-authenticate"] == "Bearer"


async def test_expired_key_is_refused(stand: Stand) -> None:
    """`expires_in_s` counts from now; a very short one is over by the next request."""
    harbour = stand.client("harbour")
    made = (await harbour.post("/v1/tenants/harbour/keys", json={"expires_in_s": 1e-6})).json()
    assert made["expires_at"] is not None
    assert (await stand.client(None, Authorization=f"Bearer {made['key']}").get("/v1/models")).status_code == 401
    made = (await harbour.post("/v1/tenants/harbour/keys", json={"expires_in_s": DAY_S})).json()
    assert (await stand.client(None, Authorization=f"Bearer {made['key']}").get("/v1/models")).status_code == 200


async def test_admin_keys_are_made_in_the_default_tenant_only(stand: Stand) -> None:
    admin = stand.client()
    made = (await admin.post("/v1/tenants/default/keys", json={"role": "admin"})).json()
    second = stand.client(None, Authorization=f"Bearer {made['key']}")
    assert (await second.get("/v1/tenants/museum")).status_code == 200
    assert (await admin.post("/v1/tenants/harbour/keys", json={"role": "admin"})).status_code == 403


async def test_tenant_sees_itself_alone(stand: Stand) -> None:
    listed = (await stand.client("harbour").get("/v1/tenants")).json()["items"]
    assert [one["name"] for one in listed] == ["harbour"]


async def test_admin_request_acts_for_the_tenant_in_x_tenant(stand: Stand) -> None:
    """Models made so belong to that tenant; an unknown tenant is 404."""
    acting = stand.client("admin", **{"X-Tenant": "harbour"})
    assert [one["name"] for one in (await acting.get("/v1/models")).json()["items"]] == ["adding", "digits"]
    assert (await acting.post("/v1/applications", json={"name": "door", "model": "digits"})).json()[
        "tenant"
    ] == "harbour"
    nobody = await stand.client("admin", **{"X-Tenant": "nobody"}).get("/v1/models")
    assert (nobody.status_code, nobody.json()["type"]) == (404, "/problems/unknown-tenant")


async def test_key_list_shows_the_last_use_of_each_key(stand: Stand) -> None:
    """To a minute; a revoked key leaves nothing; a key that ends within a week says so."""
    admin = stand.client()
    order = {"label": "soon", "expires_in_s": 3600}
    made = (await admin.post("/v1/tenants/harbour/keys", json=order)).json()
    assert (made["used_at"], made["expires_soon"]) == (None, False)

    async def listed() -> dict[str, dict[str, Any]]:
        return {one["id"]: one for one in (await admin.get("/v1/tenants/harbour/keys")).json()["items"]}

    management, _ = await stand.appliance.management.get()
    await management.save_uses()
    before = await listed()
    assert (before[made["id"]]["used_at"], before[made["id"]]["expires_soon"]) == (None, True)
    client = stand.client(None, Authorization=f"Bearer {made['key']}")
    assert (await client.get("/v1/models")).status_code == 200
    with refusing(stand, "key_use"), pytest.raises(IntegrityError):
        await management.save_uses()
    await management.save_uses()  # what could not be written a minute ago
    used = (await listed())[made["id"]]["used_at"]
    assert used is not None
    checks = {one["name"]: one for one in (await admin.get("/v1/health")).json()["checks"]}
    assert f"harbour/soon (last used on {used[:10]})" in checks["keys"]["detail"]
    await admin.delete(f"/v1/tenants/harbour/keys/{made['id']}")
    await management.save_uses()
    assert made["id"] not in await listed()
