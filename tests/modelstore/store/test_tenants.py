"""Tenants and keys as they are stored."""

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.domain.access import KeyRecord, Role
from appliance.domain.catalogue import Application, Quota, Tenant
from appliance.domain.errors import AlreadyExists, BadName, InUse, QuotaExceeded, UnknownKey, UnknownTenant
from appliance.modelstore.store.keys import Keys
from appliance.modelstore.store.store import Change, Store
from tests.modelstore.boxes import Parts, parts, stored_model

pytestmark = pytest.mark.anyio

WHEN = datetime.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=datetime.UTC)


def key(id: str, tenant: str = "harbour") -> KeyRecord:
    return KeyRecord(id, tenant, Role.DEVICE, id.encode().ljust(32, b"."), WHEN, ("a", "b"), WHEN, "glasses 7")


async def test_tenant_is_created_changed_listed_and_deleted(box: Parts) -> None:
    """Every change is announced once, in order."""
    store, harbour = box.store, Tenant("harbour", Quota(stored_bytes=5))
    assert await store.tenants.create(harbour) == harbour
    assert await store.tenants.get("harbour") == harbour
    changed = Tenant("harbour", Quota(memory_share=0.5))
    await store.tenants.update(changed)
    assert await store.tenants.page() == [Tenant("default"), changed]
    assert await store.tenants.page(after="default", limit=1) == [changed]
    await store.tenants.delete("harbour")
    assert await store.tenants.page() == [Tenant("default")]
    assert box.changes == [
        Change("tenant", "harbour", harbour),
        Change("tenant", "harbour", changed),
        Change("tenant", "harbour", None),
    ]


async def test_invalid_tenant_change_is_refused(store: Store, tmp_path: Path) -> None:
    """Bad and taken names, unknown tenants, deletion of a tenant that still has models or of the default tenant."""
    with pytest.raises(BadName):
        await store.tenants.create(Tenant("No Good"))
    with pytest.raises(AlreadyExists):
        await store.tenants.create(Tenant("default"))
    for attempt in (store.tenants.get("x"), store.tenants.update(Tenant("x")), store.tenants.delete("x")):
        with pytest.raises(UnknownTenant):
            await attempt
    await store.tenants.create(Tenant("busy"))
    await stored_model(store, tmp_path, tenant="busy")
    for name in ("busy", "default"):
        with pytest.raises(InUse):
            await store.tenants.delete(name)
    assert {one.name for one in await store.tenants.page()} == {"default", "busy"}


async def test_keys_and_applications_are_deleted_with_tenant(box: Parts, store: Store, tmp_path: Path) -> None:
    """After a tenant is deleted none of its keys opens anything, and the key ring hears of each."""
    await stored_model(store, tmp_path)
    await store.models.update("default/m", shared=True)
    await store.tenants.create(Tenant("harbour"))
    await store.keys.create(key("k1"))
    await store.applications.create(Application("harbour/door", "harbour", "door", "default/m"))
    box.changes.clear()
    await store.tenants.delete("harbour")
    assert [(change.kind, change.id, change.value) for change in box.changes] == [
        ("key", "k1", None),
        ("application", "harbour/door", None),
        ("tenant", "harbour", None),
    ]
    assert await store.keys.all() == []


async def test_keys_come_back_after_a_restart(tmp_path: Path) -> None:
    """Every field of a key survives, times to the microsecond."""
    async with parts(tmp_path, runs=False) as box:
        await box.store.tenants.create(Tenant("harbour"))
        await box.store.keys.create(key("k1"))
    async with parts(tmp_path, runs=False) as box:
        assert await box.store.keys.get("k1") == key("k1")
        assert (await box.store.snapshot()).keys == [key("k1")]


async def test_keys_are_listed_and_revoked(store: Store) -> None:
    """A tenant's keys by page; a revoked one is gone; the same id or secret is not taken twice."""
    await store.tenants.create(Tenant("harbour"))
    for id in ("k1", "k2", "k3"):
        await store.keys.create(key(id))
    await store.keys.create(key("other", "default"))
    assert [one.id for one in await store.keys.page("harbour", limit=2)] == ["k1", "k2"]
    assert [one.id for one in await store.keys.page("harbour", after="k2")] == ["k3"]
    with pytest.raises(AlreadyExists):
        await store.keys.create(key("k1"))
    with pytest.raises(UnknownTenant):
        await store.keys.create(key("k9", "nobody"))
    await store.keys.revoke("k2")
    for attempt in (store.keys.revoke("k2"), store.keys.get("k2")):
        with pytest.raises(UnknownKey):
            await attempt
    assert [one.id for one in await store.keys.all()] == ["k1", "k3", "other"]


async def test_keys_beyond_tenant_limit_are_refused(store: Store) -> None:
    """One tenant has room for so many; a revoked one makes room, others and admins are not concerned."""
    keys = Keys(store.records, per_tenant_max=2)
    for name in ("harbour", "museum"):
        await store.tenants.create(Tenant(name))
    await keys.create(key("k1"))
    await keys.create(key("k2"))
    with pytest.raises(QuotaExceeded, match="keys"):
        await keys.create(key("k3"))
    await keys.create(key("m1", "museum"))
    for number in range(3):
        await keys.create(replace(key(f"a{number}", "default"), role=Role.ADMIN))
    await keys.revoke("k1")
    await keys.create(key("k3"))
