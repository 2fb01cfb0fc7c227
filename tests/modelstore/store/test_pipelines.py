"""Pipelines as they are stored, and the applications that they hold."""

import asyncio
import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.domain.access import KeyRecord, Role
from appliance.domain.catalogue import Application, TaskKind, TaskSpec, Tenant
from appliance.domain.errors import (
    AlreadyExists,
    ApplicationInUse,
    BadName,
    QuotaExceeded,
    UnknownApplication,
    UnknownPipeline,
    UnknownTenant,
)
from appliance.domain.pipeline import (
    Ask,
    CostBy,
    Crop,
    Join,
    OnError,
    Pick,
    PickBy,
    Pipeline,
    When,
    Where,
)
from appliance.modelstore.store.backup import back_up, restore
from appliance.modelstore.store.pipelines import PER_TENANT_MAX
from appliance.modelstore.store.store import Store
from tests.modelstore.boxes import Parts, parts, quickly_started, stored_model
from tests.present import present

pytestmark = pytest.mark.anyio

STAGES = (
    Ask(name="find", application_id="default/m", variant="int8", accuracy_min=90.0, is_stateful=True),
    Crop(name="lines", after=("find",), of="regions", where=Where(0.6, ("a",), ("b",), 0.1), at_most=16),
    Pick(name="best", after=("lines",), best=3, by=PickBy.SIZE, labels=("a",), when=When("lines", ("a",), ("b",), 0.5)),
    Ask(name="read", application_id="default/m", after=("best",), on_error=OnError.FAIL),
    Join(name="text", after=("read",)),
)
SIGNS = Pipeline("default/signs", "default", "signs", 600.0, STAGES, CostBy.PRICE, 2.0)
"""Every field of every sort of stage has a value of its own."""


@pytest.fixture
async def box(box: Parts, tmp_path: Path) -> Parts:
    """With the model and the application `default/m`."""
    await stored_model(box.store, tmp_path)
    return box


async def test_pipeline_is_created_changed_listed_and_deleted(tmp_path: Path) -> None:
    """Found after a restart with every field; each change is announced."""
    async with parts(tmp_path / "state", runs=False) as box:
        await stored_model(box.store, tmp_path)
        assert await box.store.pipelines.create(SIGNS) == SIGNS
        assert (box.changes[-1].kind, box.changes[-1].value) == ("pipeline", SIGNS)
    async with parts(tmp_path / "state", runs=False) as box:
        pipelines = box.store.pipelines
        assert await pipelines.get(SIGNS.id) == SIGNS
        assert (await box.store.snapshot()).pipelines == [SIGNS]
        changed = replace(SIGNS, latency_slo_ms=30.0, stages=STAGES[:1], cost_by=CostBy.SECONDS, weight=1.0)
        await pipelines.update(changed)
        assert await pipelines.update(replace(SIGNS, weight=9.0), SIGNS) is None  # it is another by now
        assert await pipelines.get(SIGNS.id) == changed
        other = replace(changed, id="default/other", name="other")
        await pipelines.create(other)
        assert (await box.store.snapshot()).pipelines == [other, changed]
        await pipelines.delete(SIGNS.id)
        assert (box.changes[-1].kind, box.changes[-1].value) == ("pipeline", None)
        with pytest.raises(UnknownPipeline):
            await pipelines.get(SIGNS.id)


async def test_invalid_pipeline_is_refused_and_not_stored(store: Store) -> None:
    """Names, tenants and applications that are not there."""
    await store.tenants.create(Tenant("harbour"))
    pipelines = store.pipelines
    with pytest.raises(BadName):
        await pipelines.create(replace(SIGNS, name="a/b"))
    with pytest.raises(UnknownTenant):
        await pipelines.create(replace(SIGNS, id="x/signs", tenant="x"))
    with pytest.raises(UnknownApplication):
        await pipelines.create(replace(SIGNS, stages=(Ask(name="a", application_id="default/none"),)))
    with pytest.raises(UnknownApplication):  # another tenant's, not shared
        await pipelines.create(replace(SIGNS, id="harbour/signs", tenant="harbour"))
    with pytest.raises(UnknownPipeline):
        await pipelines.update(SIGNS)
    with pytest.raises(UnknownPipeline):
        await pipelines.delete(SIGNS.id)
    await pipelines.create(SIGNS)
    with pytest.raises(AlreadyExists):
        await pipelines.create(SIGNS)
    for at in range(PER_TENANT_MAX - 1):
        await pipelines.create(replace(SIGNS, id=f"default/p{at}", name=f"p{at}"))
    with pytest.raises(QuotaExceeded):
        await pipelines.create(replace(SIGNS, id="default/last", name="last"))


async def test_application_asked_by_pipeline_cannot_be_deleted(store: Store) -> None:
    """Neither the application nor its model, and the application stays what it is; afterwards all of that goes."""
    await store.pipelines.create(SIGNS)
    with pytest.raises(ApplicationInUse) as refused:
        await store.applications.delete("default/m")
    assert refused.value.facts() == {"name": "m", "pipelines": ("signs",), "others": 0}
    with pytest.raises(ApplicationInUse):
        await store.models.begin_deletion("default/m")
    await stored_model(store, store.state_dir, name="other")
    await store.models.update("default/other", task=TaskSpec(TaskKind.TEXT_RECOGNITION))
    own = await store.applications.get("default/m")
    with pytest.raises(ApplicationInUse):
        await store.applications.update(replace(own, model_id="default/other"))
    await store.applications.update(replace(own, latency_slo_ms=5.0))
    await store.pipelines.update(replace(SIGNS, stages=(Ask(name="a", application_id="default/other"),)))
    await store.applications.delete("default/m")
    await store.pipelines.delete(SIGNS.id)
    await store.models.begin_deletion("default/other")


async def test_application_asked_by_foreign_pipeline_stays_shared(box: Parts, store: Store) -> None:
    """While a guest's pipeline asks an application its owner neither deletes nor unshares it, and learns how many
    pipelines do, not whose.
    """
    await store.tenants.create(Tenant("harbour"))
    await store.models.update("default/m", shared=True)
    shared = replace(await store.applications.get("default/m"), shared=True)
    await store.applications.update(shared)
    guest = replace(SIGNS, id="harbour/signs", tenant="harbour")
    await store.pipelines.create(guest)
    for attempt in (
        store.applications.delete("default/m"),
        store.applications.update(replace(shared, shared=False)),
    ):
        with pytest.raises(ApplicationInUse) as refused:
            await attempt
        assert refused.value.facts() == {"name": "m", "pipelines": (), "others": 1}
    await store.tenants.delete("harbour")
    assert box.changes[-2].id == "harbour/signs"
    await store.applications.update(replace(shared, shared=False))
    await store.applications.delete("default/m")


async def test_tenant_with_application_asked_by_others_cannot_be_deleted(store: Store) -> None:
    """The tenant's own pipelines would go with it, those of others would not."""
    await store.tenants.create(Tenant("harbour"))
    await store.models.update("default/m", shared=True)
    await store.applications.create(Application("harbour/n", "harbour", "n", "default/m", shared=True))
    own = Pipeline("harbour/p", "harbour", "p", 9.0, (Ask(name="a", application_id="harbour/n"),))
    await store.pipelines.create(own)
    await store.pipelines.create(replace(own, id="default/p", tenant="default"))
    with pytest.raises(ApplicationInUse):
        await store.tenants.delete("harbour")
    await store.pipelines.delete("default/p")
    await store.tenants.delete("harbour")
    with pytest.raises(UnknownPipeline):
        await store.pipelines.get("harbour/p")


async def test_concurrent_pipeline_changes_have_one_winner(store: Store) -> None:
    """Of several creations of a pipeline of one name one succeeds; of a pipeline and the deletion
    of what it asks, one.
    """
    pipelines, applications = store.pipelines, store.applications
    made = await asyncio.gather(*(pipelines.create(SIGNS) for _ in range(8)), return_exceptions=True)
    assert sorted(type(one).__name__ for one in made) == [*["AlreadyExists"] * 7, "Pipeline"]
    await pipelines.delete(SIGNS.id)
    for at in range(10):
        first, second = pipelines.create(SIGNS), applications.delete("default/m")
        ends = await asyncio.gather(*((first, second) if at % 2 else (second, first)), return_exceptions=True)
        kinds = {type(one) for one in ends}
        assert kinds in ({Pipeline, ApplicationInUse}, {type(None), UnknownApplication})
        if Pipeline in kinds:
            await pipelines.delete(SIGNS.id)
        else:
            await applications.create(Application("default/m", "default", "m", "default/m"))


async def test_pipeline_is_backed_up_with_keys_for_pipeline(box: Parts, tmp_path: Path) -> None:
    """With the keys that name it; the quick start of what was restored knows both."""
    await box.store.pipelines.create(SIGNS)
    now = box.clock.wall_now()
    for role, name in ((Role.ADMIN, "a"), (Role.DEVICE, "d")):
        key = KeyRecord(name, "default", role, name.encode() * 32, now, pipelines=("signs",))
        await box.store.keys.create(key)
    back_up(box.store.state_dir, tmp_path / "backup.tar", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    restore(tmp_path / "backup.tar", tmp_path / "restored")
    beginning = present(quickly_started(tmp_path / "restored"))
    assert beginning.snapshot.pipelines == [SIGNS]
    assert [key.pipelines for key in beginning.snapshot.keys] == [("signs",), ("signs",)]
