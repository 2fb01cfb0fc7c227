"""Tenants and keys over HTTP."""

import sqlite3
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from tests.api.stand import IMAGE, Stand, good, made_key, refusal, refusing

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
    airport = stand.client(key=await made_key(admin, "airport"))
    assert (await airport.get("/v1/models")).status_code == 200
    assert (await admin.delete("/v1/tenants/airport")).status_code == 200
    assert (await airport.get("/v1/models")).status_code == 401
    assert (await admin.get("/v1/tenants/airport")).status_code == 404


async def test_tenant_shows_its_own_use_beside_its_limits(stand: Stand) -> None:
    """Of its own requests alone; another tenant is not told."""
    harbour, empty = stand.client("harbour"), {"concurrent_requests": 0, "memory_bytes": 0, "stored_bytes": 0}
    before = (await harbour.get("/v1/tenants/harbour")).json()["use"]
    await good(harbour.post("/v2/models/digits/infer", json=IMAGE))
    use = (await harbour.get("/v1/tenants/harbour")).json()["use"]
    assert use["processor_s"] > before["processor_s"]
    assert use["memory_bytes"] > 0
    assert use["stored_bytes"] > 0
    assert use["concurrent_requests"] == 0
    other = (await stand.client("museum").get("/v1/tenants/museum")).json()["use"]
    assert {name: other[name] for name in empty} == empty
    assert (await stand.client("museum").get("/v1/tenants/harbour")).status_code == 404
    assert [one["name"] for one in (await harbour.get("/v1/tenants")).json()["items"]] == ["harbour"]


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
    device = stand.client(key=made["key"])
    assert (await device.get("/v1/applications")).status_code == 200
    assert (await harbour.delete(f"/v1/tenants/harbour/keys/{made['id']}")).json() == {"deleted": made["id"]}
    refused = await device.get("/v1/applications")
    assert refusal(refused) == (401, "wrong-key")
    assert refused.headers["www-authenticate"] == "Bearer"


async def test_expired_key_is_refused(stand: Stand) -> None:
    """`expires_in_s` counts from now; a very short one is over by the next request."""
    harbour = stand.client("harbour")
    made = (await harbour.post("/v1/tenants/harbour/keys", json={"expires_in_s": 1e-6})).json()
    assert made["expires_at"] is not None
    assert (await stand.client(key=made["key"]).get("/v1/models")).status_code == 401
    lasting = await made_key(harbour, "harbour", expires_in_s=DAY_S)
    assert (await stand.client(key=lasting).get("/v1/models")).status_code == 200


async def test_admin_keys_are_made_in_the_default_tenant_only(stand: Stand) -> None:
    admin = stand.client()
    second = stand.client(key=await made_key(admin, "default", role="admin"))
    assert (await second.get("/v1/tenants/museum")).status_code == 200
    assert (await admin.post("/v1/tenants/harbour/keys", json={"role": "admin"})).status_code == 403


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
    client = stand.client(key=made["key"])
    assert (await client.get("/v1/models")).status_code == 200
    with refusing(stand, "key_use"), pytest.raises(IntegrityError):
        await management.save_uses()
    await management.save_uses()  # what could not be written a minute ago
    used = (await listed())[made["id"]]["used_at"]
    assert used is not None
    keyring = stand.appliance.running().keyring
    record = keyring.record(made["id"])
    assert record is not None
    keyring.put(replace(record, created_at=record.created_at - timedelta(days=1)))  # its last tenth
    checks = {one["name"]: one for one in (await admin.get("/v1/health")).json()["checks"]}
    assert f"harbour/soon (last used on {used[:10]})" in checks["keys"]["detail"]
    await admin.delete(f"/v1/tenants/harbour/keys/{made['id']}")
    await management.save_uses()
    assert made["id"] not in await listed()
