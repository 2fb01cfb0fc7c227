"""Applications as they are stored."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.domain.catalogue import Application, Tenant
from appliance.domain.errors import (
    AlreadyExists,
    BadName,
    InUse,
    QuotaExceeded,
    UnknownApplication,
    UnknownModel,
    UnknownTenant,
)
from appliance.modelstore.store import applications
from appliance.modelstore.store.store import Store
from tests.modelstore.boxes import Parts, parts, stored_model

pytestmark = pytest.mark.anyio

DOOR = Application("default/door", "default", "door", "default/m", 100.0, 0.9, 2.0, shared=True)


async def test_application_is_created_changed_listed_and_deleted(tmp_path: Path) -> None:
    """Found after a restart with every field."""
    async with parts(tmp_path, runs=False) as box:
        await stored_model(box.store, tmp_path)
        assert await box.store.applications.create(DOOR) == DOOR
    async with parts(tmp_path, runs=False) as box:
        store = box.store
        assert await store.applications.get("default/door") == DOOR
        changed = replace(DOOR, latency_slo_ms=None, weight=1.0, shared=False)
        await store.applications.update(changed)
        assert [one.name for one in (await store.snapshot()).applications] == ["door", "m"]
        assert await store.applications.get("default/door") == changed
        await store.applications.delete("default/door")
        with pytest.raises(UnknownApplication):
            await store.applications.get("default/door")


async def test_invalid_application_is_refused_and_not_stored(store: Store, tmp_path: Path) -> None:
    """Taken and bad names, unknown tenants and models."""
    await stored_model(store, tmp_path)
    with pytest.raises(AlreadyExists):
        await store.applications.create(replace(DOOR, id="default/m", name="m"))
    with pytest.raises(BadName):
        await store.applications.create(replace(DOOR, name="a/b"))
    with pytest.raises(UnknownTenant):
        await store.applications.create(replace(DOOR, id="x/door", tenant="x"))
    with pytest.raises(UnknownModel):
        await store.applications.create(replace(DOOR, model_id="default/none"))
    with pytest.raises(UnknownApplication):
        await store.applications.update(DOOR)
    assert [one.id for one in (await store.snapshot()).applications] == ["default/m"]


async def test_application_of_foreign_model_needs_shared_model(box: Parts, store: Store, tmp_path: Path) -> None:
    """Another tenant's model does not exist until it is shared; a model in use can be neither unshared nor deleted."""
    await stored_model(store, tmp_path)
    await store.tenants.create(Tenant("harbour"))
    guest = Application("harbour/door", "harbour", "door", "default/m")
    with pytest.raises(UnknownModel):
        await store.applications.create(guest)
    await store.models.update("default/m", shared=True)
    await store.applications.create(guest)
    for attempt in (store.models.update("default/m", shared=False), box.deletion.delete("default/m")):
        with pytest.raises(InUse):
            await attempt
    await store.applications.delete("harbour/door")
    assert not (await store.models.update("default/m", shared=False)).shared


async def test_application_beyond_tenant_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another tenant's is not."""
    monkeypatch.setattr(applications, "PER_TENANT_MAX", 2)
    async with parts(tmp_path, runs=False) as box:
        store = box.store
        await stored_model(store, tmp_path)
        await store.applications.create(DOOR)
        with pytest.raises(QuotaExceeded):
            await store.applications.create(replace(DOOR, id="default/gate", name="gate"))
        await store.tenants.create(Tenant("museum"))
        other = replace(DOOR, id="museum/door", tenant="museum", model_id="museum/m")
        await stored_model(store, tmp_path, tenant="museum", body=b"others")
        assert await store.applications.create(other) == other


def test_application_limit_allows_a_thousand_by_default() -> None:
    assert applications.PER_TENANT_MAX >= 1000
