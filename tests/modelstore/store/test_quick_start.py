"""The quick start reads what the tables hold, and leaves to the store what has to be mended."""

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from appliance.domain.access import KeyRecord, Role
from appliance.domain.catalogue import (
    DEFAULT_TENANT,
    Accuracy,
    Application,
    Late,
    Latency,
    Prefer,
    Profile,
    Quota,
    RunBound,
    TaskKind,
    TaskSpec,
    Tenant,
    Unverified,
    Verify,
    WallViewers,
)
from appliance.domain.isolation import Isolation
from appliance.domain.names import build_id
from appliance.domain.padding import CroppedAxis, Fill, PaddedAxis, Padding
from appliance.domain.parts import BatchTime, Cut, Part, PartProfile
from appliance.domain.pipeline import Ask, CostBy, Pipeline
from appliance.domain.profiles import SeenLatency, SeenRuns
from appliance.domain.session import AccuracyPromise, LatencyPromise, Reference, Session
from appliance.domain.states import VariantState
from appliance.modelstore.store.quick_start import Beginning
from appliance.modelstore.store.snapshot import Snapshot
from appliance.modelstore.store.state_folder import DATABASE
from tests.modelstore.boxes import Parts, parts, quickly_started, stored_model
from tests.present import present

pytestmark = pytest.mark.anyio


async def _furnish(box: Parts, folder: Path) -> None:
    """A tenant, keys, two models and an application with everything that a row can hold."""
    now = box.clock.wall_now()
    for role, name in ((Role.ADMIN, "a"), (Role.DEVICE, "d")):
        expires = None if role is Role.ADMIN else now + timedelta(days=1)
        key = KeyRecord(name, DEFAULT_TENANT, role, name.encode() * 32, now, ("x",), expires, f"for {name}", ("p",))
        await box.store.keys.create(key)
    await box.store.tenants.create(Tenant("harbour", Quota(requests_per_s=3.0, isolation=Isolation.PROCESS)))
    await box.store.tenants.allow_wall("harbour", WallViewers.TENANT)
    variant = await stored_model(box.store, folder, body=b"one")
    runs = (RunBound({"x": (1, 2)}, 1.5, 10),)
    profile = Profile("cpu", 3, 4, 5.0, 6.0, (Latency(1, 1.0, 2.0),), ("Loop",), runs)
    costs = PartProfile("cpu", (BatchTime(1, 2.0),), True, 3, 4, 5)
    measured = replace(
        variant,
        state=VariantState.EXCLUDED,
        height=8,
        width=9,
        accuracy=Accuracy(90.0, "top-1", "labels", 12),
        profile=profile,
        other_profiles=(replace(profile, processor="other", kind="openvino"),),
        inspected_ms=3.5,
        reason="another is better",
        batch_max=4,
        shape_max={"x": (1, 2)},
        cut=Cut({"cpu": "f"}, (Part(1, {"Relu": 1}, ("x",), ("y",), 5, 6.0, 7, (costs,)),), "whole"),
        padding=Padding(Fill.EDGE, (PaddedAxis("x", 1, 64),), (CroppedAxis("y", 1, 0, 1, 7, 8),), True, "samples"),
    )
    await box.store.models.put_variant(measured)
    labels = folder / "labels.txt"
    await asyncio.to_thread(labels.write_text, "a, b")
    await box.store.models.put_assets(
        variant.model_id, {"labels": await asyncio.to_thread(box.store.blobs.stage, [labels])}
    )
    task = TaskSpec(TaskKind.IMAGE_CLASSIFICATION, ("a", "b"), params={"score_min": 0.5})
    await box.store.models.update(variant.model_id, task=task, shared=True)
    await box.store.applications.create(
        Application(
            "harbour/a",
            "harbour",
            "a",
            variant.model_id,
            20.0,
            80.0,
            2.0,
            True,
            Late.RUN,
            Prefer.SPEED,
            Unverified.ALLOW,
            Verify.OFF,
        )
    )
    ask = Ask(name="find", application_id="harbour/a", accuracy_min=80.0)
    await box.store.pipelines.create(Pipeline("harbour/p", "harbour", "p", 600.0, (ask,), CostBy.ENERGY, 2.0))
    latency = Session(
        "s1", "harbour", "harbour/a", "cam", 30.0, LatencyPromise(150.0, 15.0, 50.0), "d", now, 2.0, True, True
    )
    promise = AccuracyPromise(0.03, Reference.DEDICATED)
    await box.store.sessions.put(latency)
    await box.store.sessions.put(replace(latency, id="s2", promise=latency.promise))
    await box.store.sessions.put(replace(latency, id="s2", promise=promise))
    await box.store.sessions.put(replace(latency, id="s3"))
    await box.store.sessions.put(replace(latency, id="s4", application_id="", pipeline_id="harbour/p"))
    await box.store.sessions.remove("s3")
    await box.store.residents.save(["b", "a"])
    build = build_id(variant.content_sha256, "cpu", "harbour")
    await box.store.seen.save([SeenRuns(build, "8x9~3", "f", (SeenLatency(1, 2, 3, 4, 5, now),))])


async def test_quick_start_reads_same_records_as_store(tmp_path: Path) -> None:
    """Every column of every table that serving knows."""
    async with parts(tmp_path / "state", runs=False) as box:
        await _furnish(box, tmp_path)
        residents, seen = await box.store.residents.load(), await box.store.seen.load()
        expected = Beginning(await box.store.snapshot(), residents, seen, await box.store.sessions.load())
    assert expected[2]
    assert [one.id for one in expected.sessions] == ["s1", "s2", "s4"]
    assert _at_default(expected[0]) == set(), "a column that two rows alike cannot compare"
    assert quickly_started(tmp_path / "state") == expected


def _at_default(snapshot: Snapshot) -> set[str]:
    """Fields that no record has a value of its own in: a new one has to be furnished, or nothing is compared."""
    variants = [variant for model in snapshot.models for variant in model.variants]
    records: list[Any] = [*snapshot.tenants, *snapshot.models, *snapshot.applications, *snapshot.keys, *variants]
    records += snapshot.pipelines
    all_fields = {f"{type(one).__name__}.{field.name}" for one in records for field in fields(one)}
    return all_fields - {
        f"{type(one).__name__}.{field.name}"
        for one in records
        for field in fields(one)
        if getattr(one, field.name) != _default(field)
    }


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


@pytest.fixture
async def furnished(tmp_path: Path, anyio_backend: str) -> Path:
    """The state folder of a box that has stopped."""
    async with parts(tmp_path / "state", runs=False) as box:
        await _furnish(box, tmp_path)
    return tmp_path / "state"


def test_quick_start_forgets_findings_of_another_review(furnished: Path) -> None:
    """As the tables do: the build is guarded until it is reviewed again."""
    _sql("UPDATE variant SET profile = json_set(profile, '$.review', 'another')")(furnished)
    beginning = present(quickly_started(furnished))
    assert [v.profile and v.profile.hazards for m in beginning.snapshot.models for v in m.variants] == [None]


def test_quick_start_sweeps_leftovers_of_crash(furnished: Path) -> None:
    """Content without a row, uploads and scratch folders without an owner."""
    orphans = [furnished / place for place in ("blobs/tmp-1", "uploads/u", "scratch/s")]
    for orphan in orphans:
        orphan.write_bytes(b"left")
    assert quickly_started(furnished) is not None
    assert not any(orphan.exists() for orphan in orphans)


def _damage(state: Path) -> None:
    next(path for path in (state / "blobs").glob("*/*") if path.is_file()).write_bytes(b"other")


def _lose(state: Path) -> None:
    next(path for path in (state / "blobs").glob("*/*") if path.is_file()).unlink()


def _sql(statement: str) -> Callable[[Path], None]:
    def change(state: Path) -> None:
        with sqlite3.connect(state / DATABASE) as database:
            database.execute(statement)
        database.close()

    return change


@pytest.mark.parametrize(
    "change",
    [
        _damage,
        _lose,
        _sql("UPDATE model SET deleted_at = created_at"),
        _sql("DELETE FROM variant"),
        _sql("DELETE FROM access_key"),
    ],
    ids=["content damaged", "content missing", "deletion half done", "content unused", "no admin key"],
)
def test_quick_start_leaves_repairs_to_store(furnished: Path, change: Callable[[Path], None]) -> None:
    """The quick start returns nothing, and touches nothing."""
    change(furnished)
    orphan = furnished / "uploads" / "u"
    orphan.write_bytes(b"left")
    assert quickly_started(furnished) is None
    assert orphan.exists()
