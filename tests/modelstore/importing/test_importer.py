"""Imports with the real stages: servable early, fair, cancelled, resumed, and never half done."""

import asyncio
import errno
import io
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
from onnx import TensorProto
from structlog.testing import LogCapture

from appliance.confinement.available import Confinement
from appliance.confinement.limits import ChildLimits
from appliance.domain.catalogue import Precision, Quota, TaskKind, TaskSpec, Tenant, Variant
from appliance.domain.errors import (
    AlreadyExists,
    BadInput,
    NotConfined,
    ProcessorEmulated,
    QuotaExceeded,
    UnknownModel,
    UnknownTenant,
)
from appliance.domain.hardware import EMULATED
from appliance.domain.jobs import ImportRequest
from appliance.domain.names import build_id
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.domain.states import JobState, VariantState
from appliance.modelstore.importing import importer
from appliance.modelstore.importing.importer import ImportOptions
from appliance.modelstore.orders import MakeOrder
from tests import toys
from tests.fakes.measure import FakeMeasure
from tests.fakes.waiting import until
from tests.modelstore import networks
from tests.modelstore.boxes import CPU, MIB, Parts, parts, stream
from tests.modelstore.importing.asking import asked, done, failed, imported, net

pytestmark = pytest.mark.anyio


def own_variant(name: str, source: Path) -> ImportRequest:
    """A tenant's own variant of its model `net`."""
    return ImportRequest("default", "net", str(source), source.name, variant=name)


def packed(target: Path, model: Path, **files: bytes) -> Path:
    with tarfile.open(target, "w") as archive:
        archive.add(model, "model.onnx")
        for name, body in files.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_", ".", 1))
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return target


async def test_import_measures_every_variant_and_leaves_no_scratch(box: Parts, tmp_path: Path) -> None:
    """The source is taken, the job passes its stages upwards, every variant ends measured, and nothing is left in
    scratch.
    """
    source = net(tmp_path)
    job = await box.importer.submit(asked(source, precisions=(Precision.INT8,)))
    assert not source.exists()
    assert (job.state, job.model_id) == (JobState.QUEUED, "default/net")
    assert [one.id for one in (await box.store.snapshot()).applications] == ["default/net"]
    ended = await done(box, job)
    assert (ended.stage, ended.percent, ended.error) == ("done", 100.0, "")
    model = await box.store.models.get("default/net")
    assert {one.precision for one in model.variants} == {Precision.FP32, Precision.INT8}
    assert model.variants[0].name == "fp32"
    assert all(one.servable and one.profile and one.accuracy for one in model.variants)
    assert model.variants[0].accuracy is not None
    assert model.variants[0].accuracy.points == pytest.approx(100)
    assert {case.batch for _form, cases in box.measure.profiled for case in cases} == {1, 2, 4, 8}
    assert box.files("scratch") == set()
    for variant in model.variants:
        assert (await box.builds.open_build(build_id(variant.content_sha256, "cpu"))).optimised
    told = [facts for facts in box.events.of("job progressed") if facts["job_id"] == job.id]
    assert [facts["percent"] for facts in told] == sorted(facts["percent"] for facts in told)
    assert [told[0]["state"], told[-1]["state"]] == ["queued", "done"]
    assert {"unpack", "inspect", "fp32", "int8"} <= {facts["stage"] for facts in told}


async def test_import_of_fp16_network_names_original_fp16(box: Parts, tmp_path: Path) -> None:
    """No other fp16 variant is made of it."""
    types = dict.fromkeys("xy", int(TensorProto.FLOAT16))
    weights = {"w": np.eye(64, dtype=np.float16)}
    half = networks.model("y = MatMul(x, w)", {"x": ("n", 64)}, {"y": ("n", 64)}, weights, types=types)
    task, both = TaskSpec(TaskKind.TENSOR), (Precision.FP16, Precision.INT8)
    model = await imported(box, asked(Path(networks.write(half, tmp_path)), task=task, precisions=both))
    assert model.original is not None
    assert (model.original.name, model.original.precision) == ("fp16", Precision.FP16)
    assert [one.name for one in model.variants if one.is_original or one.precision is not Precision.INT8] == ["fp16"]
    assert {one.precision for one in model.variants} <= {Precision.FP16, Precision.INT8}


LACKING = Confinement(files=False, calls=True, own_user=True).missing


@pytest.mark.parametrize(
    ("parted", "error", "words"),
    [
        ({"options": ImportOptions(missing_confinement=LACKING)}, NotConfined, r"lacks Landlock.*imports\.confine"),
        ({"processor": replace(CPU, name=EMULATED, kind=EMULATED)}, ProcessorEmulated, "on a box with a real one"),
    ],
    ids=["without confinement", "emulated processor"],
)
async def test_import_that_box_cannot_carry_out_is_refused_at_once(
    tmp_path: Path, parted: dict[str, Any], error: type[Exception], words: str
) -> None:
    """And not after minutes, with the reason; the uploaded file stays, and there is no job."""
    async with parts(tmp_path / "state", **parted) as box:
        source = net(tmp_path)
        with pytest.raises(error, match=words):
            await box.importer.submit(asked(source))
        assert source.exists()
        assert (await box.store.snapshot()).applications == []


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
async def test_measuring_again_without_required_confinement_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prepared forms that are missing stay so; what was imported before serves from its file."""
    logged = LogCapture()  # of its own: the process's logger may be set up by now, to say errors only
    own_log = structlog.wrap_logger(None, processors=[logged], wrapper_class=structlog.make_filtering_bound_logger(0))
    monkeypatch.setattr(importer, "log", own_log)
    async with parts(tmp_path / "state") as box:
        await imported(box, asked(net(tmp_path)))
    shutil.rmtree(tmp_path / "state" / "prepared")
    async with parts(tmp_path / "state", options=ImportOptions(missing_confinement=LACKING)) as box:
        assert box.builds.unmeasured()
        await until(lambda: any("again" in line["event"] for line in logged.entries))
        assert box.measure.profiled == []
    assert [line["event"] for line in logged.entries if "again" in line["event"]] == ["nothing is measured again"]


async def test_model_serves_before_first_profile_ends(box: Parts, tmp_path: Path) -> None:
    """While the first profile still runs, the original is READY and its build can be opened."""
    box.measure.gate.clear()
    job = await box.importer.submit(asked(net(tmp_path)))
    await box.until(job.id, lambda now: now.stage.startswith("fp32 accuracy"))
    (variant,) = await box.variants()
    assert (variant.name, variant.state, variant.profile) == ("fp32", VariantState.READY, None)
    assert variant.inspected_ms is not None
    assert variant.inspected_ms > 0
    form = await box.builds.open_build(build_id(variant.content_sha256, "cpu"))
    assert not form.optimised
    box.measure.gate.set()
    await done(box, job)


async def test_model_serves_before_its_file_is_reviewed(
    box: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The review of a large network takes seconds to minutes, and the network runs in a guard until then."""
    is_let_go, run = asyncio.Event(), box.importer.stages.run

    async def gated(order: Any, **how: Any) -> Any:
        if isinstance(order, MakeOrder):
            await is_let_go.wait()
        return await run(order, **how)

    monkeypatch.setattr(box.importer.stages, "run", gated)
    job = await box.importer.submit(asked(net(tmp_path)))
    model = await box.model_once(lambda one: one.servable)
    assert [one.name for one in model.variants] == ["fp32"]
    assert not is_let_go.is_set()
    is_let_go.set()
    await done(box, job)


@pytest.mark.parametrize(
    "body", [pytest.param(b"", marks=pytest.mark.nightly("another whole import")), b"no model at all" * 100]
)
async def test_import_of_bad_file_fails_with_reason_and_frees_name(box: Parts, tmp_path: Path, body: bytes) -> None:
    """Neither model nor application nor file is left; the job keeps the reason; the same name can be uploaded again."""
    source = tmp_path / "bad.onnx"
    source.write_bytes(body)
    job = await failed(box, asked(source))
    assert job.error
    assert "mistake" not in job.error
    with pytest.raises(UnknownModel):
        await box.store.models.get("default/net")
    assert (await box.store.snapshot()).applications == []
    assert box.files("scratch") == set()
    assert box.files("blobs") == set()
    await imported(box, asked(net(tmp_path)))


async def test_refused_import_leaves_uploaded_file_in_place(idle_box: Parts, tmp_path: Path) -> None:
    """A taken name, an unknown tenant, an exceeded quota or a missing file: the caller still has what it had."""
    await idle_box.store.tenants.create(Tenant("poor", Quota(stored_bytes=10)))
    await idle_box.importer.submit(asked(net(tmp_path, "first.onnx")))
    source = net(tmp_path)
    attempts: list[tuple[ImportRequest, type[Exception]]] = [
        (asked(source), AlreadyExists),
        (asked(source, tenant="nobody"), UnknownTenant),
        (asked(source, tenant="poor"), QuotaExceeded),
        (asked(tmp_path / "none", name="other"), BadInput),
    ]
    for request, error in attempts:
        with pytest.raises(error):
            await idle_box.importer.submit(request)
    assert source.exists()
    assert len(list((idle_box.store.state_dir / "scratch").iterdir())) == 1


@pytest.mark.nightly("another whole import")
async def test_upload_counts_once_for_quota_of_stored_bytes(box: Parts, tmp_path: Path) -> None:
    """A tenant whose quota just holds the uploaded file may import it."""
    body = net(tmp_path).read_bytes()
    await box.store.tenants.create(Tenant("harbour", Quota(stored_bytes=len(body) + 5000)))
    record = await box.uploads.create("harbour", len(body))
    await box.uploads.append(record.id, 0, stream(body))
    path = await box.uploads.finish(record.id)
    job = await box.importer.submit(asked(path, tenant="harbour"))
    await box.uploads.delete(record.id)
    await done(box, job)


@pytest.mark.nightly("another whole import")
async def test_variant_beyond_quota_fails_alone(box: Parts, tmp_path: Path) -> None:
    """The original fits, the int8 variant beside it does not: it is on record with the reason, and the model serves."""
    source = net(tmp_path)
    quota = Quota(stored_bytes=source.stat().st_size + 5000)
    await box.store.tenants.create(Tenant("harbour", quota))
    job = await done(box, await box.importer.submit(asked(source, tenant="harbour", precisions=(Precision.INT8,))))
    states = {one.name: one.state for one in (await box.store.models.get("harbour/net")).variants}
    assert states["fp32"] is VariantState.READY
    assert states["int8"] is VariantState.FAILED
    assert "quota" in job.error


@pytest.mark.usefixtures("processes")
async def test_import_continues_after_restart_from_last_finished_variant(tmp_path: Path) -> None:
    """Stopped while the original was being measured: after the start the job ends, and what was finished is not made
    again.
    """
    state = tmp_path / "state"
    async with parts(state) as box:
        box.measure.gate.clear()
        job = await box.importer.submit(asked(net(tmp_path)))
        await box.until(job.id, lambda now: now.stage.startswith("fp32 accuracy"))
        (before,) = await box.variants()
    async with parts(state) as box:
        ended = await done(box, job)
        assert ended.id == job.id
        after = await box.variants()
        assert after[0].content_sha256 == before.content_sha256
        assert after[0].profile is not None
        assert box.files("blobs") == {one.content_sha256 for one in after}
        assert box.files("scratch") == set()


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
async def test_import_after_restart_skips_finished_precisions(tmp_path: Path) -> None:
    """Stopped in its second precision: original and first precision are neither made nor measured again."""
    state = tmp_path / "state"
    precisions = (Precision.INT8, Precision.FP16)
    async with parts(state) as box:
        job = await box.importer.submit(asked(net(tmp_path), precisions=precisions))
        await box.until(job.id, lambda now: now.stage == "fp16")
    async with parts(state) as box:
        before = {one.name: one for one in await box.variants()}
        await done(box, job)
        after = {one.name: one for one in await box.variants()}
        assert any(name.startswith("fp16") for name in after.keys() - before.keys())
        assert {name: one.content_sha256 for name, one in after.items() if name in before} == {
            name: one.content_sha256 for name, one in before.items()
        }
        measured = {form.size_bytes for form, _cases in box.measure.profiled}
        assert measured == {one.size_bytes for name, one in after.items() if name.startswith("fp16")}


@pytest.mark.nightly("another whole import")
async def test_precision_that_cannot_be_made_is_recorded_as_failed_variant(box: Parts, tmp_path: Path) -> None:
    """A graph without weights has no int8 form: the variant is failed with the reason, and the model serves."""
    request = asked(toys.tiny_add(tmp_path / "add.onnx"), task=TaskSpec(), precisions=(Precision.INT8,))
    job = await done(box, await box.importer.submit(request))
    variants = {one.name: one for one in await box.variants()}
    assert variants["fp32"].state is VariantState.READY
    assert variants["int8"].state is VariantState.FAILED
    assert variants["int8"].reason in job.error


@pytest.mark.nightly("another whole import")
async def test_unexpected_error_fails_import_job_and_not_importer(box: Parts, tmp_path: Path) -> None:
    """The job fails with a hint, and the next job runs."""

    async def mistaken(processor: str) -> None:
        raise ZeroDivisionError("what now")

    box.measure.before_prepare = mistaken
    for name in ("a", "b"):
        job = await failed(box, asked(net(tmp_path), name))
        assert job.error == "the box made a mistake (ZeroDivisionError); its log says which"
    assert box.files("scratch") == set()


@pytest.mark.nightly("another whole import")
async def test_import_on_a_disk_that_cannot_be_written_fails_with_what_to_see_to(box: Parts, tmp_path: Path) -> None:
    async def unwritable(processor: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "prepared")

    box.measure.before_prepare = unwritable
    job = await failed(box, asked(net(tmp_path)))
    assert "state folder cannot be used" in job.error


async def test_import_job_without_uploaded_file_fails_after_restart(tmp_path: Path) -> None:
    """Restored from a backup, which holds no uploads: the job ends with that reason instead of hanging."""
    state = tmp_path / "state"
    async with parts(state, runs=False) as box:
        job = await box.importer.submit(asked(net(tmp_path)))
    shutil.rmtree(state / "scratch" / job.id)
    async with parts(state) as box:
        ended = await box.ended(job.id)
        assert (ended.state, ended.error) == (JobState.FAILED, "the uploaded file is gone; upload it again")


@pytest.mark.nightly("several whole imports")
async def test_deleted_model_cancels_running_and_waiting_imports(box: Parts, tmp_path: Path) -> None:
    """The running one is killed, the waiting one is taken out; both end as cancelled and leave
    nothing; others go on.
    """
    box.measure.gate.clear()
    running = await box.importer.submit(asked(net(tmp_path, "a.onnx"), "a"))
    await box.until(running.id, lambda now: now.stage.startswith("fp32 accuracy"))
    waiting = await box.importer.submit(asked(net(tmp_path, "b.onnx", 4), "b"))
    other = await box.importer.submit(asked(net(tmp_path, "c.onnx", 5), "c"))
    await box.deletion.delete("default/b")
    await box.deletion.delete("default/a")
    for job in (running, waiting):
        assert (await box.store.jobs.get(job.id)).state is JobState.CANCELLED
    box.measure.gate.set()
    await done(box, other)
    assert [one.name for one in (await box.store.snapshot()).models] == ["c"]
    assert box.files("scratch") == set()
    assert len(box.files("blobs")) == 1


@pytest.mark.usefixtures("processes")
async def test_content_of_two_concurrent_imports_is_stored_once(tmp_path: Path) -> None:
    """Two tenants' jobs run side by side; the content is on the disk once and survives the deletion of either."""
    async with parts(tmp_path / "state", options=ImportOptions(jobs_parallel_max=2)) as box:
        await box.store.tenants.create(Tenant("harbour"))
        box.measure.gate.clear()
        jobs = [
            await box.importer.submit(asked(net(tmp_path, f"{tenant}.onnx"), tenant=tenant))
            for tenant in ("default", "harbour")
        ]
        for job in jobs:
            await box.until(job.id, lambda now: now.stage.startswith("fp32 accuracy"))
        box.measure.gate.set()
        for job in jobs:
            await done(box, job)
        models = [await box.store.models.get(f"{tenant}/net") for tenant in ("default", "harbour")]
        assert models[0].variants[0].content_sha256 == models[1].variants[0].content_sha256
        assert len(box.files("blobs")) == 1
        await box.deletion.delete("default/net")
        assert box.store.blobs.path(models[1].variants[0].content_sha256).exists()


async def test_new_model_serves_while_models_of_other_tenants_are_measured(box: Parts, tmp_path: Path) -> None:
    """Other tenants' profiles take minutes and keep no first answer waiting; a job that waits says behind what."""
    await box.store.tenants.create(Tenant("harbour"))
    box.measure.gate.clear()
    for name in ("a", "b"):
        await box.importer.submit(asked(net(tmp_path), name))
    await until(lambda: bool(box.measure.prepared))
    newcomer = await box.importer.submit(asked(net(tmp_path), "small", tenant="harbour"))
    await box.model_once(lambda one: one.servable, "harbour/small")
    assert (await box.store.jobs.get(newcomer.id)).state is JobState.RUNNING
    await until(lambda: box.importer.waits_of(newcomer.id) == "waits behind 2 imports, 2 of other tenants")
    box.measure.gate.set()
    await done(box, newcomer)
    assert box.importer.waits_of(newcomer.id) == ""


@pytest.mark.usefixtures("processes")
async def test_import_is_done_while_the_inspection_of_another_tenants_model_does_not_end(tmp_path: Path) -> None:
    """One network of a tenant that runs for ever keeps the imports of others waiting for some seconds only."""
    endless = Path(networks.write(networks.endless(), tmp_path))
    options = ImportOptions(inspect_wall_s=3600.0, limits=ChildLimits(cpu_s=3600))
    async with parts(tmp_path / "state", options=options) as box:
        await box.store.tenants.create(Tenant("harbour"))
        task = TaskSpec(TaskKind.TENSOR)
        inspected = await box.importer.submit(asked(endless, "endless", task=task))
        await box.until(inspected.id, lambda now: now.stage == "inspect")
        newcomer = await box.importer.submit(asked(net(tmp_path), tenant="harbour"))
        await done(box, newcomer)
        inspected = await box.store.jobs.get(inspected.id)
        assert (inspected.state, inspected.stage) == (JobState.RUNNING, "inspect"), inspected.error


@pytest.mark.nightly("another whole import")
async def test_import_jobs_of_tenants_take_turns(idle_box: Parts, tmp_path: Path) -> None:
    """A tenant that brought three models does not keep another's only one waiting behind all of them."""
    await idle_box.store.tenants.create(Tenant("harbour"))
    broken = tmp_path / "broken"
    for name, tenant in (("a", "default"), ("b", "default"), ("c", "default"), ("d", "harbour")):
        broken.write_bytes(b"broken")
        await idle_box.importer.submit(asked(broken, name, tenant))
    task = asyncio.create_task(idle_box.importer.run())
    for job in await idle_box.store.jobs.page():
        await idle_box.ended(job.id)
    task.cancel()
    await asyncio.wait([task])
    ends = [facts["model_id"] for facts in idle_box.events.of("job progressed") if facts["state"] == "failed"]
    assert ends.index("harbour/d") == 1


@pytest.mark.nightly("another whole import")
async def test_import_of_archive_takes_labels_and_assets(box: Parts, tmp_path: Path) -> None:
    """What lies beside the graph in the archive is part of the model: labels in its task, the tokenizer among its
    assets.
    """
    source = packed(
        tmp_path / "net.tar",
        net(tmp_path),
        labels_txt=b"cat\ndog\n",
        tokenizer_json=b"{}",
        metadata_json=b'{"task": "image-classification", "precisions": []}',
    )
    job = await box.importer.submit(asked(source, task=TaskSpec(), precisions=None))
    await done(box, job)
    model = await box.store.models.get("default/net")
    assert (model.task.kind, model.task.labels) == (TaskKind.IMAGE_CLASSIFICATION, ("cat", "dog"))
    assert box.store.blobs.path(model.assets["tokenizer.json"]).read_bytes() == b"{}"
    assert {one.precision for one in model.variants} == {Precision.FP32}


@pytest.mark.nightly("another whole import")
async def test_uploaded_variant_is_measured_and_serves_beside_made_variants(box: Parts, tmp_path: Path) -> None:
    """The variant is inspected, measured and judged against the original, and its name is taken."""
    await imported(box, asked(net(tmp_path)))
    other = net(tmp_path, "other.onnx", seed=9)
    await imported(box, own_variant("pruned", other))
    own = (await box.variants())[-1]
    assert (own.name, own.precision, own.servable) == ("pruned", Precision.OWN, True)
    assert own.profile is not None
    assert own.accuracy is not None
    assert own.accuracy.against == "fp32"
    with pytest.raises(AlreadyExists):
        await box.importer.submit(own_variant("pruned", net(tmp_path, "third.onnx")))


@pytest.mark.nightly("another whole import")
async def test_uploaded_variant_with_other_inputs_is_refused(box: Parts, tmp_path: Path) -> None:
    """Other inputs are refused with their names; the model and its variants stay as they were."""
    before = await imported(box, asked(net(tmp_path)))
    job = await box.importer.submit(own_variant("own", toys.tiny_add(tmp_path / "add.onnx")))
    ended = await box.ended(job.id)
    assert ended.state is JobState.FAILED
    assert "same inputs as the model: image" in ended.error
    assert await box.store.models.get("default/net") == before


@pytest.mark.nightly("another whole import")
async def test_prepared_form_that_crashes_is_not_served(box: Parts, tmp_path: Path) -> None:
    """The measuring child dies of it: the plain file is profiled and serves instead."""
    box.measure.breaks_prepared = True
    await imported(box, asked(net(tmp_path)))
    variant = (await box.variants())[0]
    assert variant.state is VariantState.READY
    assert variant.profile is not None
    assert not (await box.builds.open_build(build_id(variant.content_sha256, "cpu"))).optimised


@pytest.mark.nightly("another whole import")
async def test_import_of_model_that_never_runs_fails_with_reason(box: Parts, tmp_path: Path) -> None:
    """The serving processor refuses the file in every form: the variants stay on record as failed, and so does the
    job.
    """
    box.measure.breaks_all = True
    job = await failed(box, asked(net(tmp_path)))
    variants: tuple[Variant, ...] = await box.variants()
    assert {one.state for one in variants} == {VariantState.FAILED}
    assert "exit status -11" in variants[0].reason
    assert "exit status -11" in job.error


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
async def test_builds_are_prepared_anew_in_background_after_library_update(tmp_path: Path) -> None:
    """Each build is prepared and profiled without a request or a job for it."""
    state = tmp_path / "state"
    async with parts(state) as box:
        await imported(box, asked(net(tmp_path)))
        before = (await box.variants())[0]
    async with parts(state, processor=replace(CPU, fingerprint="library 2")) as box:
        await until(lambda: bool(box.measure.profiled))
        while not (await box.builds.open_build(build_id(before.content_sha256, "cpu"))).optimised:
            await box.clock.sleep_until_ns(box.clock.now_ns() + 10_000_000)
        assert len(await box.store.jobs.page()) == 1


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
async def test_model_of_earlier_version_is_reviewed_in_background(tmp_path: Path) -> None:
    """A profile without a word about hazards is made anew at the next start, without a new upload."""
    state = tmp_path / "state"
    async with parts(state) as box:
        await imported(box, asked(net(tmp_path)))
        variant = (await box.variants())[0]
        assert variant.profile is not None
        assert variant.profile.hazards == ()
        assert variant.shape_max is not None
        before = replace(variant.profile, hazards=None, runs=())
        await box.store.models.put_variant(replace(variant, profile=before, shape_max=None))
    async with parts(state) as box:
        await box.model_once(
            lambda one: one.profile and one.profile.hazards == () and one.shape_max == variant.shape_max
        )
        assert len(await box.store.jobs.page()) == 1


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
async def test_model_of_a_box_with_fewer_workers_is_profiled_anew_in_background(tmp_path: Path) -> None:
    """Its profile tells of two runs at once; the box has four workers after the restart."""
    state, measure = tmp_path / "state", FakeMeasure()
    measure.shared_rows_max = 2
    async with parts(state, measure=measure) as box:
        await imported(box, asked(net(tmp_path)))
    measure.at_once = (2, 4)
    async with parts(state, measure=measure, processor=replace(CPU, workers=4, at_once=RunsAtOnce(4, 2))) as box:
        await box.model_once(lambda one: one.profile and any(row.concurrency == 4 for row in one.profile.latencies))
        assert len(await box.store.jobs.page()) == 1


@pytest.mark.nightly("two more imports")
@pytest.mark.parametrize(
    ("shape_max", "words"),
    [({"image": [1, 1]}, "has the shape"), ({"zebra": [1]}, "no input 'zebra'")],
)
async def test_import_with_largest_shape_that_does_not_fit_graph_fails(
    shape_max: dict[str, list[int]], words: str, box: Parts, tmp_path: Path
) -> None:
    """The job says which input, and what it is like."""
    request = replace(asked(net(tmp_path)), metadata={"shape_max": shape_max})
    job = await failed(box, request)
    assert words in job.error


@pytest.mark.nightly("another whole import")
async def test_full_disk_fails_import_job_and_nothing_else(small_disk: Path, tmp_path: Path) -> None:
    """The job needs more than there is: it says so, cleans up, and the box goes on to import a smaller model."""
    async with parts(small_disk) as box:
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"b" * MIB)
        big = toys.conv_net(tmp_path / "big.onnx", 1.0)
        job = await failed(box, asked(big, "big"))
        assert "disk" in job.error
        assert box.files("scratch") == set()
        assert box.files("blobs") == set()
        assert (await box.store.snapshot()).models == []
        ballast.unlink()
        await imported(box, asked(toys.conv_net(tmp_path / "small.onnx", 0.1), "small"))
