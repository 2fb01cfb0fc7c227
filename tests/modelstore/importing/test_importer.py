"""Imports with the real stages: servable early, fair, cancelled, resumed, and never half done."""

import asyncio
import io
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import structlog
from onnx import TensorProto, helper, numpy_helper
from structlog.testing import LogCapture

from appliance.clock import NS_PER_MS, SystemClock
from appliance.confinement.available import Confinement
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
from appliance.domain.hardware import EMULATED, PreparedForm
from appliance.domain.jobs import ImportRequest
from appliance.domain.names import build_id
from appliance.domain.states import JobState, VariantState
from appliance.modelstore.importing import importer
from appliance.modelstore.importing.importer import ImportOptions
from tests import toys
from tests.fakes.measure import FakeMeasure
from tests.modelstore.boxes import CPU, MIB, parts, stream
from tests.modelstore.importing.asking import asked, done, net


def own_variant(name: str, source: Path) -> ImportRequest:
    """A tenant's own variant of its model `net`."""
    return ImportRequest("default", "net", str(source), source.name, variant=name)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def packed(target: Path, model: Path, **files: bytes) -> Path:
    with tarfile.open(target, "w") as archive:
        archive.add(model, "model.onnx")
        for name, body in files.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_", ".", 1))
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return target


@pytest.mark.usefixtures("processes")
def test_import_measures_every_variant_and_leaves_no_scratch(tmp_path: Path) -> None:
    """The source is taken, the job passes its stages upwards, every variant ends measured, and nothing is left in
    scratch.
    """

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            source = net(tmp_path)
            job = await box.importer.submit(asked(source, precisions=(Precision.INT8,)))
            assert not source.exists()
            assert (job.state, job.model_id) == (JobState.QUEUED, "default/net")
            assert [one.id for one in await box.store.applications.page("default")] == ["default/net"]
            ended = await done(box, job)
            assert (ended.stage, ended.percent, ended.error) == ("done", 100.0, "")
            model = await box.store.models.get("default/net")
            assert {one.precision for one in model.variants} == {Precision.FP32, Precision.INT8}
            assert model.variants[0].name == "fp32"
            assert all(one.servable and one.profile and one.accuracy for one in model.variants)
            assert model.variants[0].accuracy is not None
            assert model.variants[0].accuracy.points == pytest.approx(100)
            assert {case.batch for _form, cases in box.measure.profiled for case in cases} == {1, 2, 4, 8}
            assert files_in(box.store.state_dir / "scratch") == []
            for variant in model.variants:
                assert (await box.builds.open_build(build_id(variant.content_sha256, "cpu"))).optimised
            told = [facts for facts in box.events.of("job progressed") if facts["job_id"] == job.id]
            assert [facts["percent"] for facts in told] == sorted(facts["percent"] for facts in told)
            assert [told[0]["state"], told[-1]["state"]] == ["queued", "done"]
            assert {"unpack", "inspect", "fp32", "int8"} <= {facts["stage"] for facts in told}

    asyncio.run(story())


@pytest.mark.usefixtures("processes")
def test_import_of_fp16_network_names_original_fp16(tmp_path: Path) -> None:
    """No other fp16 variant is made of it."""

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            half = helper.make_model(
                helper.make_graph(
                    [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
                    "half",
                    [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["n", 64])],
                    [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["n", 64])],
                    [numpy_helper.from_array(np.eye(64, dtype=np.float16), "w")],
                ),
                ir_version=10,
                opset_imports=[helper.make_opsetid("", 17)],
            )
            onnx.save(half, tmp_path / "half.onnx")
            task, both = TaskSpec(TaskKind.TENSOR), (Precision.FP16, Precision.INT8)
            await done(box, await box.importer.submit(asked(tmp_path / "half.onnx", task=task, precisions=both)))
            model = await box.store.models.get("default/net")
            assert model.original is not None
            assert (model.original.name, model.original.precision) == ("fp16", Precision.FP16)
            assert [one.name for one in model.variants if one.is_original or one.precision is not Precision.INT8] == [
                "fp16"
            ]
            assert {one.precision for one in model.variants} <= {Precision.FP16, Precision.INT8}

    asyncio.run(story())


def test_import_without_required_confinement_is_refused(tmp_path: Path) -> None:
    """The refusal says what is missing; the uploaded file stays, and there is no job."""

    async def story() -> None:
        lacking = Confinement(files=False, calls=True, own_user=True).missing
        async with parts(tmp_path / "state", options=ImportOptions(missing_confinement=lacking)) as box:
            source = net(tmp_path)
            with pytest.raises(NotConfined, match=r"lacks Landlock.*imports\.confine"):
                await box.importer.submit(asked(source))
            assert source.exists()
            assert await box.store.applications.page("default") == []

    asyncio.run(story())


def test_import_on_emulated_processor_is_refused(tmp_path: Path) -> None:
    """At once, and not after minutes; the uploaded file stays, and there is no job."""

    async def story() -> None:
        emulated = replace(CPU, name=EMULATED, kind=EMULATED)
        async with parts(tmp_path / "state", processor=emulated) as box:
            source = net(tmp_path)
            with pytest.raises(ProcessorEmulated, match="on a box with a real one"):
                await box.importer.submit(asked(source))
            assert source.exists()
            assert await box.store.applications.page("default") == []

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_measuring_again_without_required_confinement_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prepared forms that are missing stay so; what was imported before serves from its file."""
    logged = LogCapture()  # of its own: the process's logger may be set up by now, to say errors only
    own_log = structlog.wrap_logger(None, processors=[logged], wrapper_class=structlog.make_filtering_bound_logger(0))
    monkeypatch.setattr(importer, "log", own_log)

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            await done(box, await box.importer.submit(asked(net(tmp_path))))
        shutil.rmtree(tmp_path / "state" / "prepared")
        lacking, clock = Confinement(files=False, calls=True, own_user=True).missing, SystemClock()
        async with parts(tmp_path / "state", options=ImportOptions(missing_confinement=lacking)) as box:
            assert box.builds.unmeasured()
            async with asyncio.timeout(120):
                while not any("again" in line["event"] for line in logged.entries):
                    await clock.sleep_until_ns(clock.now_ns() + NS_PER_MS)
            assert box.measure.profiled == []
        assert [line["event"] for line in logged.entries if "again" in line["event"]] == ["nothing is measured again"]

    asyncio.run(story())


@pytest.mark.usefixtures("processes")
def test_model_serves_before_first_profile_ends(tmp_path: Path) -> None:
    """While the first profile still runs, the original is READY and its build can be opened."""

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            box.measure.gate.clear()
            job = await box.importer.submit(asked(net(tmp_path)))
            await box.until(job.id, lambda now: now.stage.startswith("fp32 accuracy"))
            (variant,) = (await box.store.models.get("default/net")).variants
            assert (variant.name, variant.state, variant.profile) == ("fp32", VariantState.READY, None)
            form = await box.builds.open_build(build_id(variant.content_sha256, "cpu"))
            assert not form.optimised
            box.measure.gate.set()
            await done(box, job)

    asyncio.run(story())


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    "body", [pytest.param(b"", marks=pytest.mark.nightly("another whole import")), b"no model at all" * 100]
)
def test_import_of_bad_file_fails_with_reason_and_frees_name(tmp_path: Path, body: bytes) -> None:
    """Neither model nor application nor file is left; the job keeps the reason; the same name can be uploaded again."""

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            source = tmp_path / "bad.onnx"
            source.write_bytes(body)
            job = await box.ended((await box.importer.submit(asked(source))).id)
            assert job.state is JobState.FAILED
            assert job.error
            assert "mistake" not in job.error
            with pytest.raises(UnknownModel):
                await box.store.models.get("default/net")
            assert await box.store.applications.page("default") == []
            assert files_in(box.store.state_dir / "scratch") == []
            assert files_in(box.store.state_dir / "blobs") == []
            await done(box, await box.importer.submit(asked(net(tmp_path))))

    asyncio.run(story())


def test_refused_import_leaves_uploaded_file_in_place(tmp_path: Path) -> None:
    """A taken name, an unknown tenant, an exceeded quota or a missing file: the caller still has what it had."""

    async def story() -> None:
        async with parts(tmp_path / "state", runs=False) as box:
            await box.store.tenants.create(Tenant("poor", Quota(stored_bytes=10)))
            await box.importer.submit(asked(net(tmp_path, "first.onnx")))
            source = net(tmp_path)
            attempts: list[tuple[ImportRequest, type[Exception]]] = [
                (asked(source), AlreadyExists),
                (asked(source, tenant="nobody"), UnknownTenant),
                (asked(source, tenant="poor"), QuotaExceeded),
                (asked(tmp_path / "none", name="other"), BadInput),
            ]
            for request, error in attempts:
                with pytest.raises(error):
                    await box.importer.submit(request)
            assert source.exists()
            assert len(list((box.store.state_dir / "scratch").iterdir())) == 1

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_upload_counts_once_for_quota_of_stored_bytes(tmp_path: Path) -> None:
    """A tenant whose quota just holds the uploaded file may import it."""

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            body = net(tmp_path).read_bytes()
            await box.store.tenants.create(Tenant("harbour", Quota(stored_bytes=len(body) + 5000)))
            record = await box.uploads.create("harbour", len(body))
            await box.uploads.append(record.id, 0, stream(body))
            path = await box.uploads.finish(record.id)
            job = await box.importer.submit(asked(path, tenant="harbour"))
            await box.uploads.delete(record.id)
            await done(box, job)

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_variant_beyond_quota_fails_alone(tmp_path: Path) -> None:
    """The original fits, the int8 variant beside it does not: it is on record with the reason, and the model serves."""

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            source = net(tmp_path)
            quota = Quota(stored_bytes=source.stat().st_size + 5000)
            await box.store.tenants.create(Tenant("harbour", quota))
            job = await done(
                box, await box.importer.submit(asked(source, tenant="harbour", precisions=(Precision.INT8,)))
            )
            states = {one.name: one.state for one in (await box.store.models.get("harbour/net")).variants}
            assert states["fp32"] is VariantState.READY
            assert states["int8"] is VariantState.FAILED
            assert "quota" in job.error

    asyncio.run(story())


@pytest.mark.usefixtures("processes")
def test_import_continues_after_restart_from_last_finished_variant(tmp_path: Path) -> None:
    """Stopped while the original was being measured: after the start the job ends, and what was finished is not made
    again.
    """

    async def story() -> None:
        state = tmp_path / "state"
        async with parts(state) as box:
            box.measure.gate.clear()
            job = await box.importer.submit(asked(net(tmp_path)))
            await box.until(job.id, lambda now: now.stage.startswith("fp32 accuracy"))
            (before,) = (await box.store.models.get("default/net")).variants
        async with parts(state) as box:
            ended = await done(box, job)
            assert ended.id == job.id
            after = (await box.store.models.get("default/net")).variants
            assert after[0].content_sha256 == before.content_sha256
            assert after[0].profile is not None
            contents = {one.content_sha256 for one in after}
            assert {Path(name).name for name in files_in(state / "blobs")} == contents
            assert files_in(state / "scratch") == []

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_import_after_restart_skips_finished_precisions(tmp_path: Path) -> None:
    """Stopped in its second precision: original and first precision are neither made nor measured again."""

    async def story() -> None:
        state = tmp_path / "state"
        precisions = (Precision.INT8, Precision.FP16)
        async with parts(state) as box:
            job = await box.importer.submit(asked(net(tmp_path), precisions=precisions))
            await box.until(job.id, lambda now: now.stage == "fp16")
        async with parts(state) as box:
            before = {one.name: one for one in (await box.store.models.get("default/net")).variants}
            await done(box, job)
            after = {one.name: one for one in (await box.store.models.get("default/net")).variants}
            assert any(name.startswith("fp16") for name in after.keys() - before.keys())
            assert {name: one.content_sha256 for name, one in after.items() if name in before} == {
                name: one.content_sha256 for name, one in before.items()
            }
            measured = {form.size_bytes for form, _cases in box.measure.profiled}
            assert measured == {one.size_bytes for name, one in after.items() if name.startswith("fp16")}

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_precision_that_cannot_be_made_is_recorded_as_failed_variant(tmp_path: Path) -> None:
    """A graph without weights has no int8 form: the variant is failed with the reason, and the model serves."""

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            request = asked(toys.tiny_add(tmp_path / "add.onnx"), task=TaskSpec(), precisions=(Precision.INT8,))
            job = await done(box, await box.importer.submit(request))
            variants = {one.name: one for one in (await box.store.models.get("default/net")).variants}
            assert variants["fp32"].state is VariantState.READY
            assert variants["int8"].state is VariantState.FAILED
            assert variants["int8"].reason in job.error

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_unexpected_error_fails_import_job_and_not_importer(tmp_path: Path) -> None:
    """The job fails with a hint, and the next job runs."""

    class Mistaken(FakeMeasure):
        async def prepare(
            self, source: str, target_dir: str, processor: str, *, is_reduced: bool = False
        ) -> PreparedForm | None:
            raise ZeroDivisionError("what now")

    async def story() -> None:
        async with parts(tmp_path / "state", measure=Mistaken()) as box:
            for name in ("a", "b"):
                job = await box.ended((await box.importer.submit(asked(net(tmp_path), name))).id)
                assert job.state is JobState.FAILED
                assert job.error == "the box made a mistake (ZeroDivisionError); its log says which"
            assert files_in(box.store.state_dir / "scratch") == []

    asyncio.run(story())


def test_import_job_without_uploaded_file_fails_after_restart(tmp_path: Path) -> None:
    """Restored from a backup, which holds no uploads: the job ends with that reason instead of hanging."""

    async def story() -> None:
        state = tmp_path / "state"
        async with parts(state, runs=False) as box:
            job = await box.importer.submit(asked(net(tmp_path)))
        shutil.rmtree(state / "scratch" / job.id)
        async with parts(state) as box:
            ended = await box.ended(job.id)
            assert (ended.state, ended.error) == (JobState.FAILED, "the uploaded file is gone; upload it again")

    asyncio.run(story())


@pytest.mark.nightly("several whole imports")
@pytest.mark.usefixtures("processes")
def test_deleted_model_cancels_running_and_waiting_imports(tmp_path: Path) -> None:
    """The running one is killed, the waiting one is taken out; both end as cancelled and leave
    nothing; others go on.
    """

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
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
            assert [one.name for one in await box.store.models.page()] == ["c"]
            assert files_in(box.store.state_dir / "scratch") == []
            assert len(files_in(box.store.state_dir / "blobs")) == 1

    asyncio.run(story())


@pytest.mark.usefixtures("processes")
def test_content_of_two_concurrent_imports_is_stored_once(tmp_path: Path) -> None:
    """Two tenants' jobs run side by side; the content is on the disk once and survives the deletion of either."""

    async def story() -> None:
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
            assert len(files_in(box.store.state_dir / "blobs")) == 1
            await box.deletion.delete("default/net")
            assert box.store.blobs.path(models[1].variants[0].content_sha256).exists()

    asyncio.run(story())


@pytest.mark.usefixtures("processes")
def test_new_model_serves_while_models_of_other_tenants_are_measured(tmp_path: Path) -> None:
    """Other tenants' profiles take minutes and keep no first answer waiting; a job that waits says behind what."""

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            await box.store.tenants.create(Tenant("harbour"))
            box.measure.gate.clear()
            for name in ("a", "b"):
                await box.importer.submit(asked(net(tmp_path), name))

            async def measures() -> bool:
                return bool(box.measure.prepared)

            await box.settled(measures)
            newcomer = await box.importer.submit(asked(net(tmp_path), "small", tenant="harbour"))

            async def serves() -> bool:
                return any(one.servable for one in (await box.store.models.get("harbour/small")).variants)

            await box.settled(serves)
            assert (await box.store.jobs.get(newcomer.id)).state is JobState.RUNNING

            async def waits() -> bool:
                return box.importer.waits_of(newcomer.id) == "waits behind 2 imports, 2 of other tenants"

            await box.settled(waits)
            box.measure.gate.set()
            await done(box, newcomer)
            assert box.importer.waits_of(newcomer.id) == ""

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_import_jobs_of_tenants_take_turns(tmp_path: Path) -> None:
    """A tenant that brought three models does not keep another's only one waiting behind all of them."""

    async def story() -> None:
        async with parts(tmp_path / "state", runs=False) as box:
            await box.store.tenants.create(Tenant("harbour"))
            broken = tmp_path / "broken"
            for name, tenant in (("a", "default"), ("b", "default"), ("c", "default"), ("d", "harbour")):
                broken.write_bytes(b"broken")
                await box.importer.submit(asked(broken, name, tenant))
            task = asyncio.create_task(box.importer.run())
            for job in await box.store.jobs.page():
                await box.ended(job.id)
            task.cancel()
            await asyncio.wait([task])
            ends = [facts["model_id"] for facts in box.events.of("job progressed") if facts["state"] == "failed"]
            assert ends.index("harbour/d") == 1

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_import_of_archive_takes_labels_and_assets(tmp_path: Path) -> None:
    """What lies beside the graph in the archive is part of the model: labels in its task, the tokenizer among its
    assets.
    """

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
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

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_uploaded_variant_is_measured_and_serves_beside_made_variants(tmp_path: Path) -> None:
    """The variant is inspected, measured and judged against the original, and its name is taken."""

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            await done(box, await box.importer.submit(asked(net(tmp_path))))
            other = net(tmp_path, "other.onnx", seed=9)
            await done(box, await box.importer.submit(own_variant("pruned", other)))
            own = (await box.store.models.get("default/net")).variants[-1]
            assert (own.name, own.precision, own.servable) == ("pruned", Precision.OWN, True)
            assert own.profile is not None
            assert own.accuracy is not None
            assert own.accuracy.against == "fp32"
            with pytest.raises(AlreadyExists):
                await box.importer.submit(own_variant("pruned", net(tmp_path, "third.onnx")))

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_uploaded_variant_with_other_inputs_is_refused(tmp_path: Path) -> None:
    """Other inputs are refused with their names; the model and its variants stay as they were."""

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            await done(box, await box.importer.submit(asked(net(tmp_path))))
            before = await box.store.models.get("default/net")
            job = await box.importer.submit(own_variant("own", toys.tiny_add(tmp_path / "add.onnx")))
            ended = await box.ended(job.id)
            assert ended.state is JobState.FAILED
            assert "same inputs as the model: image" in ended.error
            assert await box.store.models.get("default/net") == before

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_prepared_form_that_crashes_is_not_served(tmp_path: Path) -> None:
    """The measuring child dies of it: the plain file is profiled and serves instead."""

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            box.measure.breaks_prepared = True
            await done(box, await box.importer.submit(asked(net(tmp_path))))
            variant = (await box.store.models.get("default/net")).variants[0]
            assert variant.state is VariantState.READY
            assert variant.profile is not None
            assert not (await box.builds.open_build(build_id(variant.content_sha256, "cpu"))).optimised

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_import_of_model_that_never_runs_fails_with_reason(tmp_path: Path) -> None:
    """The serving processor refuses the file in every form: the variants stay on record as failed, and so does the
    job.
    """

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            box.measure.breaks_all = True
            job = await box.ended((await box.importer.submit(asked(net(tmp_path)))).id)
            assert job.state is JobState.FAILED
            variants: tuple[Variant, ...] = (await box.store.models.get("default/net")).variants
            assert {one.state for one in variants} == {VariantState.FAILED}
            assert "exit status -11" in variants[0].reason
            assert "exit status -11" in job.error

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_builds_are_prepared_anew_in_background_after_library_update(tmp_path: Path) -> None:
    """Each build is prepared and profiled without a request or a job for it."""

    async def story() -> None:
        state = tmp_path / "state"
        async with parts(state) as box:
            await done(box, await box.importer.submit(asked(net(tmp_path))))
            before = (await box.store.models.get("default/net")).variants[0]
        async with parts(state, processor=replace(CPU, fingerprint="library 2")) as box:
            id = build_id(before.content_sha256, "cpu")

            async def is_prepared() -> bool:
                return (await box.builds.open_build(id)).optimised

            await box.settled(is_prepared)
            assert box.measure.profiled
            assert len(await box.store.jobs.page()) == 1

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_model_of_earlier_version_is_reviewed_in_background(tmp_path: Path) -> None:
    """A profile without a word about hazards is made anew at the next start, without a new upload."""

    async def story() -> None:
        state = tmp_path / "state"
        async with parts(state) as box:
            await done(box, await box.importer.submit(asked(net(tmp_path))))
            variant = (await box.store.models.get("default/net")).variants[0]
            assert variant.profile is not None
            assert variant.profile.hazards == ()
            assert variant.shape_max is not None
            before = replace(variant.profile, hazards=None, runs=())
            await box.store.models.put_variant(replace(variant, profile=before, shape_max=None))
        async with parts(state) as box:

            async def is_reviewed() -> bool:
                now = await box.store.models.variant(variant.id)
                return now.profile is not None and now.profile.hazards == () and now.shape_max == variant.shape_max

            await box.settled(is_reviewed)
            assert len(await box.store.jobs.page()) == 1

    asyncio.run(story())


@pytest.mark.nightly("two more imports")
@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("shape_max", "words"),
    [({"image": [1, 1]}, "has the shape"), ({"zebra": [1]}, "no input 'zebra'")],
)
def test_import_with_largest_shape_that_does_not_fit_graph_fails(
    shape_max: dict[str, list[int]], words: str, tmp_path: Path
) -> None:
    """The job says which input, and what it is like."""

    async def story() -> None:
        async with parts(tmp_path / "state") as box:
            request = replace(asked(net(tmp_path)), metadata={"shape_max": shape_max})
            job = await box.ended((await box.importer.submit(request)).id)
            assert job.state is JobState.FAILED
            assert words in job.error

    asyncio.run(story())


@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
def test_full_disk_fails_import_job_and_nothing_else(small_disk: Path, tmp_path: Path) -> None:
    """The job needs more than there is: it says so, cleans up, and the box goes on to import a smaller model."""

    async def story() -> None:
        async with parts(small_disk) as box:
            ballast = small_disk / "ballast"
            ballast.write_bytes(b"b" * MIB)
            big = toys.conv_net(tmp_path / "big.onnx", 1.0)
            job = await box.ended((await box.importer.submit(asked(big, "big"))).id)
            assert job.state is JobState.FAILED
            assert "disk" in job.error
            assert files_in(small_disk / "scratch") == []
            assert files_in(small_disk / "blobs") == []
            assert await box.store.models.page() == []
            ballast.unlink()
            await done(box, await box.importer.submit(asked(toys.conv_net(tmp_path / "small.onnx", 0.1), "small")))

    asyncio.run(story())
