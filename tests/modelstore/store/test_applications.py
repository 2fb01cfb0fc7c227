"""Applications as they are stored."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.domain.catalogue import Application, Tenant
from appliance.domain.errors import AlreadyExists, BadName, InUse, UnknownApplication, UnknownModel, UnknownTenant
from tests.modelstore.boxes import parts, stored_model

DOOR = Application("default/door", "default", "door", "default/m", 100.0, 0.9, 2.0, shared=True)


def test_applications_live_and_change(tmp_path: Path) -> None:
    """Made, found after a restart with every field, changed, listed by page, deleted."""

    async def story() -> None:
        async with parts(tmp_path, runs=False) as box:
            await stored_model(box.store, tmp_path)
            assert await box.store.create_application(DOOR) == DOOR
        async with parts(tmp_path, runs=False) as box:
            store = box.store
            assert await store.application("default/door") == DOOR
            changed = replace(DOOR, latency_slo_ms=None, weight=1.0, shared=False)
            await store.update_application(changed)
            assert [one.name for one in await store.applications("default")] == ["door", "m"]
            assert await store.applications("default", limit=1) == [changed]
            assert [one.name for one in await store.applications("default", after="default/door")] == ["m"]
            await store.delete_application("default/door")
            with pytest.raises(UnknownApplication):
                await store.application("default/door")

    asyncio.run(story())


def test_what_cannot_be_done_to_applications(tmp_path: Path) -> None:
    """Taken and bad names, unknown tenants and models are refused, and nothing is left of the attempt."""

    async def story() -> None:
        async with parts(tmp_path, runs=False) as box:
            store = box.store
            await stored_model(store, tmp_path)
            with pytest.raises(AlreadyExists):
                await store.create_application(replace(DOOR, id="default/m", name="m"))
            with pytest.raises(BadName):
                await store.create_application(replace(DOOR, name="a/b"))
            with pytest.raises(UnknownTenant):
                await store.create_application(replace(DOOR, id="x/door", tenant="x"))
            with pytest.raises(UnknownModel):
                await store.create_application(replace(DOOR, model_id="default/none"))
            with pytest.raises(UnknownApplication):
                await store.update_application(DOOR)
            assert [one.id for one in await store.applications("default")] == ["default/m"]

    asyncio.run(story())


def test_others_models_may_be_used_only_while_shared(tmp_path: Path) -> None:
    """Another tenant's model does not exist until it is shared; while it is used, it can be neither unshared nor deleted."""

    async def story() -> None:
        async with parts(tmp_path, runs=False) as box:
            store = box.store
            await stored_model(store, tmp_path)
            await store.create_tenant(Tenant("harbour"))
            guest = Application("harbour/door", "harbour", "door", "default/m")
            with pytest.raises(UnknownModel):
                await store.create_application(guest)
            await store.update_model("default/m", shared=True)
            await store.create_application(guest)
            for attempt in (store.update_model("default/m", shared=False), store.delete_model("default/m")):
                with pytest.raises(InUse):
                    await attempt
            await store.delete_application("harbour/door")
            assert not (await store.update_model("default/m", shared=False)).shared

    asyncio.run(story())
