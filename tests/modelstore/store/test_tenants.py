"""Tenants and keys as they are stored."""

import asyncio
import datetime
from pathlib import Path

import pytest

from appliance.domain.access import KeyRecord, Role
from appliance.domain.catalogue import Application, Quota, Tenant
from appliance.domain.errors import AlreadyExists, BadName, InUse, UnknownKey, UnknownTenant
from appliance.modelstore.store.store import Change
from tests.modelstore.boxes import parts, stored_model

WHEN = datetime.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=datetime.UTC)


def key(id: str, tenant: str = "harbour") -> KeyRecord:
    return KeyRecord(id, tenant, Role.DEVICE, id.encode().ljust(32, b"."), WHEN, ("a", "b"), WHEN, "glasses 7")


def test_tenants_live_and_change(tmp_path: Path) -> None:
    """Made, found, changed, listed by page, deleted; every change is announced once, in order."""

    async def story() -> None:
        async with parts(tmp_path, runs=False) as box:
            store, harbour = box.store, Tenant("harbour", Quota(stored_bytes=5))
            assert await store.create_tenant(harbour) == harbour
            assert await store.tenant("harbour") == harbour
            changed = Tenant("harbour", Quota(memory_share=0.5))
            await store.update_tenant(changed)
            assert await store.tenants() == [Tenant("default"), changed]
            assert await store.tenants(after="default", limit=1) == [changed]
            await store.delete_tenant("harbour")
            assert await store.tenants() == [Tenant("default")]
            assert box.changes == [
                Change("tenant", "harbour", harbour),
                Change("tenant", "harbour", changed),
                Change("tenant", "harbour", None),
            ]

    asyncio.run(story())


def test_what_cannot_be_done_to_tenants(tmp_path: Path) -> None:
    """Bad and taken names, unknown tenants, tenants that still have models, and the default tenant are refused."""

    async def story() -> None:
        async with parts(tmp_path, runs=False) as box:
            store = box.store
            with pytest.raises(BadName):
                await store.create_tenant(Tenant("No Good"))
            with pytest.raises(AlreadyExists):
                await store.create_tenant(Tenant("default"))
            for attempt in (store.tenant("x"), store.update_tenant(Tenant("x")), store.delete_tenant("x")):
                with pytest.raises(UnknownTenant):
                    await attempt
            await store.create_tenant(Tenant("busy"))
            await stored_model(store, tmp_path, tenant="busy")
            for name in ("busy", "default"):
                with pytest.raises(InUse):
                    await store.delete_tenant(name)
            assert {one.name for one in await store.tenants()} == {"default", "busy"}

    asyncio.run(story())


def test_a_tenant_takes_keys_and_applications_along(tmp_path: Path) -> None:
    """After a tenant is deleted none of its keys opens anything, and the key ring hears of each."""

    async def story() -> None:
        async with parts(tmp_path, runs=False) as box:
            store = box.store
            await stored_model(store, tmp_path)
            await store.update_model("default/m", shared=True)
            await store.create_tenant(Tenant("harbour"))
            await store.create_key(key("k1"))
            await store.create_application(Application("harbour/door", "harbour", "door", "default/m"))
            box.changes.clear()
            await store.delete_tenant("harbour")
            assert [(change.kind, change.id, change.value) for change in box.changes] == [
                ("key", "k1", None),
                ("application", "harbour/door", None),
                ("tenant", "harbour", None),
            ]
            assert await store.all_keys() == []

    asyncio.run(story())


def test_keys_come_back_after_a_restart(tmp_path: Path) -> None:
    """Every field of a key survives, times to the microsecond."""

    async def story() -> None:
        async with parts(tmp_path, runs=False) as box:
            await box.store.create_tenant(Tenant("harbour"))
            await box.store.create_key(key("k1"))
        async with parts(tmp_path, runs=False) as box:
            assert await box.store.key("k1") == key("k1")
            assert (await box.store.snapshot()).keys == [key("k1")]

    asyncio.run(story())


def test_keys_are_listed_and_revoked(tmp_path: Path) -> None:
    """A tenant's keys by page; a revoked one is gone; the same id or secret is not taken twice."""

    async def story() -> None:
        async with parts(tmp_path, runs=False) as box:
            store = box.store
            await store.create_tenant(Tenant("harbour"))
            for id in ("k1", "k2", "k3"):
                await store.create_key(key(id))
            await store.create_key(key("other", "default"))
            assert [one.id for one in await store.keys("harbour", limit=2)] == ["k1", "k2"]
            assert [one.id for one in await store.keys("harbour", after="k2")] == ["k3"]
            with pytest.raises(AlreadyExists):
                await store.create_key(key("k1"))
            with pytest.raises(UnknownTenant):
                await store.create_key(key("k9", "nobody"))
            await store.revoke_key("k2")
            for attempt in (store.revoke_key("k2"), store.key("k2")):
                with pytest.raises(UnknownKey):
                    await attempt
            assert [one.id for one in await store.all_keys()] == ["k1", "k3", "other"]

    asyncio.run(story())
