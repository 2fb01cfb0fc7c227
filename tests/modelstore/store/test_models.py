"""Models, variants and their content, from acceptance to deletion."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.domain.catalogue import Accuracy, Model, Tenant
from appliance.domain.errors import StorageFull, UnknownModel, UnknownVariant
from appliance.domain.jobs import ImportRequest
from appliance.domain.states import VariantState
from appliance.modelstore.importing.deletion import ModelDeletion
from appliance.modelstore.store.store import Change, Store
from tests.fakes.waiting import until
from tests.modelstore.boxes import MIB, Parts, parts, stored_model, stored_variant

pytestmark = pytest.mark.anyio


async def test_variants_of_model_keep_order_and_facts(box: Parts, store: Store, tmp_path: Path) -> None:
    """Variants come back in the order of making with all that was measured; each change announces the whole model."""
    await stored_model(store, tmp_path)
    second = await stored_variant(store, tmp_path, "default/m", "aaa", b"other")
    measured = replace(second, accuracy=Accuracy(50.0, "top-1", "labels", 9, "nine cats"), height=224, batch_max=8)
    await store.models.put_variant(measured)
    model = await store.models.get("default/m")
    assert [one.name for one in model.variants] == ["fp32", "aaa"]
    assert model.variants[1] == measured == await store.models.variant("default/m:aaa")
    assert box.changes[-1] == Change("model", "default/m", model)


async def test_variant_number_is_kept_for_name_and_never_reused(tmp_path: Path) -> None:
    """From 1 in the order of making; deleted or imported again a name has the number it had, and no other name ever
    gets it.
    """

    async def numbers(box: Parts, *models: str) -> dict[str, int]:
        return {one.name: one.number for model in models for one in (await box.store.models.get(model)).variants}

    async with parts(tmp_path, runs=False) as box:
        store = box.store
        assert (await stored_model(store, tmp_path)).number == 1
        for name in ("int8", "own"):
            await stored_variant(store, tmp_path, "default/m", name, name.encode())
        await stored_variant(store, tmp_path, "default/m", "int8", b"better")
        assert await numbers(box, "default/m") == {"fp32": 1, "int8": 2, "own": 3}
        await store.models.delete_variant("default/m:own")
        other = await stored_variant(store, tmp_path, "default/m", "other", b"other")
        assert other.number == 4 == (await store.models.variant("default/m:other")).number
        again = await stored_variant(store, tmp_path, "default/m", "own", b"again")
        assert again.number == 3
        assert (await stored_model(store, tmp_path, "n")).number == 1
    async with parts(tmp_path, runs=False) as box:
        kept = {"fp32": 1, "int8": 2, "own": 3, "other": 4}
        assert await numbers(box, "default/m") == kept
        await box.deletion.delete("default/m")
        await box.store.imports.accept("again", ImportRequest("default", "m", "unused"))
        for name in ("other", "new", "fp32"):
            await stored_variant(box.store, tmp_path, "default/m", name, name.encode())
        assert await numbers(box, "default/m") == {"fp32": 1, "other": 4, "new": 5}


async def test_variant_numbers_are_deleted_with_tenant(box: Parts, store: Store, tmp_path: Path) -> None:
    for body in (b"first", b"second"):
        await store.tenants.create(Tenant("harbour"))
        await store.imports.accept(f"job {body!r}", ImportRequest("harbour", "m", "unused"))
        made = await stored_variant(store, tmp_path, "harbour/m", body.decode(), body)
        assert made.number == 1
        await box.deletion.delete("harbour/m")
        await store.tenants.delete("harbour")


async def test_variant_states_follow_allowed_transitions(store: Store, tmp_path: Path) -> None:
    """Excluded and back is legal; from failed to ready is our own mistake."""
    await stored_model(store, tmp_path)
    id = "default/m:fp32"
    assert (await store.models.set_variant_state(id, VariantState.EXCLUDED, "no use")).reason == "no use"
    assert (await store.models.set_variant_state(id, VariantState.READY)).reason == ""
    await store.models.set_variant_state(id, VariantState.FAILED, "broken")
    with pytest.raises(AssertionError, match="illegal move"):
        await store.models.set_variant_state(id, VariantState.READY)
    with pytest.raises(UnknownVariant):
        await store.models.set_variant_state("default/m:none", VariantState.READY)


async def test_content_is_deleted_with_last_variant(box: Parts, store: Store, tmp_path: Path) -> None:
    """Two models share one content: it stays until the second is deleted, and the builds hear of it."""
    first = await stored_model(store, tmp_path, "a", b"same")
    box.builds.put(await stored_model(store, tmp_path, "b", b"same"))
    assert len(box.builds.unmeasured()) == 1
    await box.deletion.delete("default/a")
    assert box.files("blobs") == {first.content_sha256}
    await store.models.delete_variant("default/b:fp32")
    assert box.files("blobs") == set()
    assert box.builds.unmeasured() == []
    assert (await store.models.get("default/b")).variants == ()


async def test_model_assets_are_stored_and_deleted_with_model(box: Parts, store: Store, tmp_path: Path) -> None:
    """A tokenizer lies beside the graph, comes with the model and counts as stored bytes."""
    await stored_model(store, tmp_path, body=b"12345")
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    staged = store.blobs.stage([tmp_path / "tokenizer.json"])
    model = await store.models.put_assets("default/m", {"tokenizer.json": staged})
    assert model.assets == {"tokenizer.json": staged.sha256}
    assert await store.models.get("default/m") == model
    assert store.blobs.path(staged.sha256).read_bytes() == b"{}"
    assert await store.stored_bytes.of_tenant("default") == 7
    await box.deletion.delete("default/m")
    assert box.files("blobs") == set()


async def test_model_deletion_waits_for_running_requests(box: Parts, tmp_path: Path) -> None:
    """The model is gone for new requests at once; content goes only after the hooks, in order, are through."""
    store, retiring, running = box.store, asyncio.Event(), asyncio.Event()
    told: list[tuple[str, list[tuple[str, object]]]] = []

    async def retire(id: str) -> None:
        told.append((id, [(one.kind, one.value) for one in box.changes]))
        retiring.set()
        await running.wait()

    deleting = ModelDeletion(store.models, [retire])
    variant = await stored_model(store, tmp_path)
    box.changes.clear()
    deletion = asyncio.create_task(deleting.delete("default/m"))
    again = asyncio.create_task(deleting.delete("default/m"))
    await retiring.wait()
    assert told == [("default/m", [("application", None), ("model", None)])]
    assert box.files("blobs") == {variant.content_sha256}
    with pytest.raises(UnknownModel):
        await store.models.get("default/m")
    assert (await store.snapshot()).models == []
    running.set()
    await asyncio.gather(deletion, again)
    assert len(told) == 1
    assert box.files("blobs") == set()
    await stored_model(store, tmp_path, name="m2")  # and the store goes on


async def test_model_deletion_continues_after_caller_is_cancelled(box: Parts, tmp_path: Path) -> None:
    """A client that hangs up while requests still run does not leave the model half deleted."""
    retiring, running = asyncio.Event(), asyncio.Event()

    async def retire(id: str) -> None:
        retiring.set()
        await running.wait()

    await stored_model(box.store, tmp_path)
    caller = asyncio.create_task(ModelDeletion(box.store.models, [retire]).delete("default/m"))
    await retiring.wait()
    caller.cancel()
    await asyncio.wait([caller])
    running.set()
    await until(lambda: not box.files("blobs"))


async def test_refused_variant_leaves_no_content(box: Parts, tmp_path: Path) -> None:
    """A row that cannot be written takes its published file away again."""
    with pytest.raises(UnknownModel):
        await stored_variant(box.store, tmp_path, "default/none", "fp32", b"x")
    assert box.files("blobs") == set()


async def test_equal_content_survives_a_refused_variant(box: Parts, tmp_path: Path) -> None:
    """The file that another model uses stays when a second variant with the same content is refused."""
    variant = await stored_model(box.store, tmp_path, body=b"same")
    with pytest.raises(UnknownModel):
        await stored_variant(box.store, tmp_path, "default/none", "fp32", b"same")
    assert box.files("blobs") == {variant.content_sha256}


async def test_full_disk_refuses_variant_and_recovers_after_deletion(small_disk: Path, tmp_path: Path) -> None:
    """A variant that does not fit is refused whole; what is there stays readable, and after a deletion there is room
    again.
    """
    async with parts(small_disk, runs=False) as box:
        store = box.store
        first = await stored_model(store, tmp_path, "a", b"a" * MIB)
        await store.imports.accept("2", ImportRequest("default", "b", ""))
        with pytest.raises(StorageFull):
            await stored_variant(store, tmp_path, "default/b", "fp32", b"b" * 2 * MIB)
        assert box.files("blobs") == {first.content_sha256}
        assert isinstance(await store.models.get("default/a"), Model)
        assert store.blobs.path(first.content_sha256).stat().st_size == MIB
        await box.deletion.delete("default/a")
        await stored_variant(store, tmp_path, "default/b", "fp32", b"b" * 2 * MIB)
