"""Who changed what: each change leaves an entry with its key, and a tenant sees its own."""

from typing import Any

import pytest

from appliance.api.auth.refused_sign_ins import RefusedSignIns
from appliance.clock import SystemClock
from tests.api.stand import Stand, made_key, refusing

pytestmark = pytest.mark.anyio


async def entries(stand: Stand, who: str = "admin", **query: Any) -> list[dict[str, Any]]:
    answer = await stand.client(who).get("/v1/audit", params={"limit": 20, **query})
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def test_audit_entry_names_the_change_its_key_and_address(stand: Stand) -> None:
    """What was sent and what was made; refusals, reads and calls leave no entry."""
    admin, harbour = stand.client(), stand.client("harbour")
    before = await entries(stand)
    order = {"label": "glasses", "role": "device", "applications": ["digits"]}
    made = (await harbour.post("/v1/tenants/harbour/keys", json=order)).json()
    [entry, *rest] = await entries(stand)
    assert rest[:1] == before[:1]
    assert (entry["action"], entry["method"], entry["path"]) == ("Make a key", "POST", "/v1/tenants/harbour/keys")
    assert (entry["tenant"], entry["subject"], entry["change"]) == ("harbour", made["id"], order)
    assert (entry["actor"]["tenant"], entry["actor"]["role"], entry["address"]) == ("harbour", "tenant", "127.0.0.1")
    assert (entry["outcome"], entry["times"]) == ("done", 1)
    assert made["key"] not in str(entry)

    assert (await harbour.post("/v1/tenants", json={"name": "x"})).status_code == 403
    assert (await harbour.get("/v1/models")).status_code == 200
    assert (await stand.client("device").post("/v1/applications/digits/predict", content=b"x")).status_code == 422
    assert (await entries(stand))[0] == entry

    assert (await admin.delete(f"/v1/tenants/harbour/keys/{made['id']}")).status_code == 200
    [deleted, *_] = await entries(stand)
    assert (deleted["action"], deleted["subject"], deleted["change"]) == ("Revoke a key", "", None)
    assert deleted["path"].endswith(made["id"])
    page = (await admin.get("/v1/audit", params={"limit": 1})).json()
    assert page["items"] == [deleted]
    assert (await entries(stand, cursor=page["next_cursor"]))[0] == entry


async def test_audit_shows_a_tenant_its_own_entries_only(stand: Stand) -> None:
    """Also what an admin did to it, without the admin's key; nothing of others, and nothing of a tenant of its name
    before. A device key sees nothing.
    """
    admin = stand.client()
    await admin.put("/v1/tenants/harbour", json={"quota": {"requests_per_s": 50}})
    await admin.put("/v1/tenants/museum", json={"quota": {"requests_per_s": 7}})
    [entry, *rest] = await entries(stand, "harbour")
    assert entry["change"] == {"quota": {"requests_per_s": 50}}
    assert (entry["actor"]["role"], entry["actor"]["key_id"], entry["address"]) == ("admin", None, None)
    assert {one["tenant"] for one in rest} == {"harbour"}
    assert (await stand.client("device").get("/v1/audit")).status_code == 403

    await admin.post("/v1/tenants", json={"name": "pier"})
    await admin.delete("/v1/tenants/pier")
    await admin.post("/v1/tenants", json={"name": "pier"})
    pier = stand.client(key=await made_key(admin, "pier"))
    seen = (await pier.get("/v1/audit")).json()["items"]
    assert [one["action"] for one in seen] == ["Make a key", "Make a tenant"]
    assert [one["action"] for one in await entries(stand, limit=4)][2] == "Delete a tenant"


@pytest.mark.parametrize("name", ["predict", "frames"])
async def test_audit_has_changes_of_a_tenant_named_like_a_call_path(stand: Stand, name: str) -> None:
    """A path of management then ends as calls do."""
    admin = stand.client()
    await admin.post("/v1/tenants", json={"name": name})
    assert (await admin.put(f"/v1/tenants/{name}", json={"quota": {"requests_per_s": 5}})).status_code == 200
    assert (await admin.delete(f"/v1/tenants/{name}")).status_code == 200
    seen = await entries(stand, limit=3)
    assert [one["method"] for one in seen] == ["DELETE", "PUT", "POST"]
    assert {one["tenant"] for one in seen} == {name}


async def test_audit_names_sign_ins_and_counts_refused_ones_by_address(stand: Stand) -> None:
    """The key that was sent is in no entry."""
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin", "Host": "localhost"}
    page = stand.client(None, **own)
    for _ in range(3):
        assert (await page.post("http://localhost/v1/sign-in", json={"key": "ea_wrong"})).status_code == 401
    assert (await page.post("http://localhost/v1/sign-in", json={"key": stand.keys["harbour"]})).status_code == 204
    [entry, *_] = await entries(stand)
    assert (entry["action"], entry["tenant"], entry["change"]) == ("Sign a browser in", "harbour", None)
    management, _ = await stand.appliance.management.get()
    await management.save_refused()
    [refused, *_] = await entries(stand)
    assert (refused["outcome"], refused["times"], refused["actor"]) == ("refused", 3, None)
    assert refused["address"] == "127.0.0.1"
    assert "ea_wrong" not in str(refused)


async def test_change_whose_audit_entry_cannot_be_written_is_taken_back(stand: Stand) -> None:
    before = await entries(stand)
    with refusing(stand, "audit"):
        made = await stand.client().post("/v1/tenants", json={"name": "pier"})
    assert made.status_code == 500
    assert (await stand.client().get("/v1/tenants/pier")).status_code == 404
    assert await entries(stand) == before


def test_refused_sign_ins_are_counted_until_the_audit_is_written() -> None:
    """On a full disk they come with the next minute's."""
    refused = RefusedSignIns()
    for _ in range(3):
        refused.add("192.0.2.7")
    refused.put_back(refused.taken(SystemClock()))
    refused.add("192.0.2.7")
    assert [(one.address, one.times) for one in refused.taken(SystemClock())] == [("192.0.2.7", 4)]
