"""A state folder opens whole, whatever state it was left in."""

import asyncio
import os
import stat
from pathlib import Path

import pytest
from sqlmodel import Session

from appliance.clock import SystemClock
from appliance.domain.catalogue import DEFAULT_TENANT, Quota, Tenant
from appliance.domain.errors import InUse, LoadFailed, QuotaExceeded
from appliance.domain.errors.unavailable import UPLOAD_AGAIN
from appliance.domain.names import build_id
from appliance.domain.states import VariantState
from appliance.modelstore.importing.serving import ServedBuilds
from appliance.modelstore.store.models import Models
from appliance.modelstore.store.store import Store
from appliance.modelstore.store.tables import ModelRow
from tests.modelstore.boxes import Parts, parts, stored_model, stored_variant, stream
from tests.present import present

pytestmark = pytest.mark.anyio


def place_of(state_dir: Path, sha256: str) -> Path:
    return state_dir / "blobs" / sha256[:2] / sha256


async def test_new_state_folder_has_default_tenant_and_private_mode(tmp_path: Path) -> None:
    """The default tenant is there from the start; other users may not look into the folder."""
    async with parts(tmp_path / "new" / "state", runs=False) as box:
        snapshot = await box.store.snapshot()
        assert snapshot == ([Tenant(DEFAULT_TENANT)], [], [], [], [])
        assert stat.S_IMODE(os.stat(box.store.state_dir).st_mode) == 0o700


def test_state_folder_opens_for_one_store_at_a_time(tmp_path: Path) -> None:
    """A second box on the same folder is refused at once; after closing it may."""
    store = Store.open(tmp_path, SystemClock())
    with pytest.raises(InUse):
        Store.open(tmp_path, SystemClock())
    store.close()
    Store.open(tmp_path, SystemClock()).close()


async def test_snapshot_after_restart_equals_committed_state(tmp_path: Path) -> None:
    """Models with variants and applications come back after a restart."""
    async with parts(tmp_path, runs=False) as box:
        variant = await stored_model(box.store, tmp_path)
        before = await box.store.snapshot()
    async with parts(tmp_path, runs=False) as box:
        after = await box.store.snapshot()
        assert after == before
        assert after.models[0].variants == (variant,)
        assert after.applications[0].model_id == "default/m"


@pytest.mark.parametrize("harm", ["flip", "cut", "missing"])
async def test_damaged_content_is_put_away_at_start(tmp_path: Path, harm: str) -> None:
    """Variants of the content are failed with the reason, others serve on; a damaged file is kept in quarantine."""
    async with parts(tmp_path, runs=False) as box:
        bad = await stored_model(box.store, tmp_path, body=b"will be damaged")
        good = await stored_variant(box.store, tmp_path, "default/m", "int8", b"stays")
    place = place_of(tmp_path, bad.content_sha256)
    if harm == "missing":
        place.unlink()
    else:
        place.write_bytes(b"will be Damaged" if harm == "flip" else b"will")
    async with parts(tmp_path, runs=False) as box:
        model = await box.store.models.get("default/m")
        assert model.variants[0].state is VariantState.FAILED
        assert UPLOAD_AGAIN in model.variants[0].reason
        assert model.variants[1] == good
        assert (tmp_path / "quarantine" / bad.content_sha256).exists() == (harm != "missing")


async def test_damaged_content_with_sound_prepared_form_still_serves(store: Store, tmp_path: Path) -> None:
    """The reason of its variants says so; the file is put away once, and each later start finds the damage again."""
    bad = await stored_model(store, tmp_path, body=b"will be damaged")
    place_of(store.state_dir, bad.content_sha256).write_bytes(bytes(15))
    await store.check_contents(lambda sha256: sha256 == bad.content_sha256)
    for _ in range(2):
        kept = await store.models.variant(bad.id)
        assert (kept.state, kept.is_damaged) == (VariantState.READY, True)
        assert "its prepared form serves" in kept.reason
        store.recover(lambda sha256: True)
    assert (store.state_dir / "quarantine" / bad.content_sha256).exists()
    await store.check_contents(lambda sha256: False)
    lost = await store.models.variant(bad.id)
    assert (lost.state, lost.is_damaged) == (VariantState.FAILED, True)


async def test_damaged_asset_beside_graph_fails_model(tmp_path: Path) -> None:
    """A tokenizer, for example: whether it is found at night or at a start."""
    async with parts(tmp_path, runs=False) as box:
        variant = await stored_model(box.store, tmp_path)
        source = tmp_path / "tokenizer.json"
        source.write_bytes(b"words")
        staged = await asyncio.to_thread(box.store.blobs.stage, [source])
        await box.store.models.put_assets(variant.model_id, {"tokenizer.json": staged})
        place_of(tmp_path, staged.sha256).write_bytes(b"wordz")
        await box.store.check_contents(lambda sha256: False)
        lost = await box.store.models.variant(variant.id)
        assert lost.state is VariantState.FAILED
        assert lost.reason.startswith("tokenizer.json: its content on disk is damaged; ")
    async with parts(tmp_path, runs=False) as box:
        assert (await box.store.models.variant(variant.id)).is_damaged


async def test_damaged_content_found_by_load_marks_variant_failed(box: Parts, tmp_path: Path) -> None:
    """A load meets a flipped bit: it fails, and the variant is marked before the load's caller is told."""
    variant = await stored_model(box.store, tmp_path, body=b"good")
    box.builds.put(variant)
    place_of(box.store.state_dir, variant.content_sha256).write_bytes(b"goof")

    async def models() -> Models:
        return box.store.models

    served = ServedBuilds(box.builds, models)
    with pytest.raises(LoadFailed):
        await served.open_build(build_id(variant.content_sha256, "cpu"))
    marked = await box.store.models.variant(variant.id)
    assert (marked.state, marked.reason) == (
        VariantState.FAILED,
        f"its content on disk is damaged; {UPLOAD_AGAIN} (content {variant.content_sha256})",
    )


async def test_leftovers_of_crash_are_swept_at_start(tmp_path: Path) -> None:
    """Files without rows in every folder go; what rows need stays."""
    async with parts(tmp_path, runs=False) as box:
        variant = await stored_model(box.store, tmp_path)
        upload = await box.uploads.create("default")
        await box.uploads.append(upload.id, 0, stream(b"half"))
    leftovers = [
        tmp_path / "blobs" / "tmp-1",
        tmp_path / "blobs" / "ab" / ("ab" * 32),
        tmp_path / "uploads" / "form-1",
        tmp_path / "scratch" / "measure-1",
    ]
    for path in leftovers:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    (tmp_path / "scratch" / "job-default-m").mkdir()
    async with parts(tmp_path, runs=False) as box:
        assert not any(path.exists() for path in leftovers)
        assert (tmp_path / "scratch" / "job-default-m").exists(), "its job is still queued"
        assert box.store.blobs.path(variant.content_sha256).read_bytes() == b"weights"
        assert (await box.uploads.upload(upload.id)).offset == 4


async def test_acknowledged_model_deletion_is_finished_at_start(tmp_path: Path) -> None:
    """Killed between the mark and the removal: after the start neither row nor file is left."""

    def mark(session: Session) -> None:
        row = present(session.get(ModelRow, "default/m"))
        row.deleted_at = SystemClock().wall_now()

    async with parts(tmp_path, runs=False) as box:
        variant = await stored_model(box.store, tmp_path)
        await box.store.records.database.write(mark)
    async with parts(tmp_path, runs=False) as box:
        snapshot = await box.store.snapshot()
        assert (snapshot.models, snapshot.applications) == ([], [])
        assert not place_of(tmp_path, variant.content_sha256).exists()


async def test_stored_bytes_count_each_content_once(box: Parts, store: Store, tmp_path: Path) -> None:
    """Equal content of two models counts once, an upload with all that it announced; another tenant's does not
    count.
    """
    await store.tenants.create(Tenant("harbour", Quota(stored_bytes=100)))
    for name in ("a", "b"):
        await stored_model(store, tmp_path, name, b"x" * 30, tenant="harbour")
    await stored_model(store, tmp_path, "c", b"y" * 500)
    assert await store.stored_bytes.of_tenant("harbour") == 30
    await box.uploads.create("harbour", length=40)
    assert await store.stored_bytes.of_tenant("harbour") == 70
    await store.stored_bytes.require("harbour", 30)
    with pytest.raises(QuotaExceeded):
        await store.stored_bytes.require("harbour", 31)
    await store.stored_bytes.require("default", 2**20)


async def test_resident_set_comes_back_in_order_after_restart(tmp_path: Path) -> None:
    """What was in memory before a stop is known after the start, most wanted first; the last word counts."""
    async with parts(tmp_path, runs=False) as box:
        assert await box.store.residents.load() == []
        await box.store.residents.save(["a", "b", "c"])
        await box.store.residents.save(["c", "a"])
    async with parts(tmp_path, runs=False) as box:
        assert await box.store.residents.load() == ["c", "a"]
