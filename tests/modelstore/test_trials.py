"""Trials of variants on requests: real variants in real children, the original's answers by ONNX Runtime itself."""

import asyncio
import json
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from appliance.confinement.limits import ChildLimits
from appliance.domain.catalogue import Evidence, Model, Precision, TaskKind, TaskSpec, Variant
from appliance.domain.trial import Verdict
from appliance.modelstore import trials as module
from appliance.modelstore.trials import TrialPorts, Trials
from appliance.tasks.trial_sample import TensorsAsked, TrialSample
from tests.api.hand_written_networks import sensor_counts, sensor_level
from tests.modelstore.boxes import Parts, parts
from tests.modelstore.importing.asking import asked, imported
from tests.present import present

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.anyio]


@dataclass
class Kept:
    """Samples that are handed out once."""

    waiting: list[list[TrialSample]] = field(default_factory=list)
    taken: asyncio.Event = field(default_factory=asyncio.Event)

    async def some(self) -> None:
        if not self.waiting:
            self.taken.set()
            await asyncio.Event().wait()

    def take(self) -> list[TrialSample]:
        return self.waiting.pop()


def trials(box: Parts, kept: Kept, *, is_idle: bool = True, free_bytes: int = 1 << 30) -> Trials:
    ports = TrialPorts(kept, lambda: is_idle, lambda: free_bytes, box.events)
    return Trials(box.store, box.importer.stages, ports, ChildLimits(), 0.05)


def named(model: Model, name: str) -> Variant:
    return next(one for one in model.variants if one.name == name)


def answered(
    session: onnxruntime.InferenceSession, model: Model, beside: str, seeds: Sequence[int], scale: float = 1.0
) -> list[TrialSample]:
    """Requests for tensors that the original has answered."""
    found = []
    for seed in seeds:
        inputs = {"X": sensor_counts(seed)}
        names = [one.name for one in session.get_outputs()]
        outputs = dict(zip(names, session.run(None, inputs), strict=True))
        scaled = {name: np.asarray(array * scale, array.dtype) for name, array in outputs.items()}
        asked_ = TensorsAsked(inputs, scaled)
        found.append(TrialSample("default", model.id, f"{model.id}:fp32", named(model, beside), asked_, 0))
    return found


async def tensors(box: Parts, path: Path) -> tuple[Model, onnxruntime.InferenceSession]:
    session = onnxruntime.InferenceSession(path)
    task = TaskSpec(TaskKind.TENSOR)
    await imported(box, asked(path, task=task, precisions=(Precision.INT8, Precision.FP16)))
    return await box.store.models.get("default/net"), session


async def test_variants_in_trial_are_promoted_dismissed_and_tried_again(tmp_path: Path) -> None:
    """fp16 keeps to the original, int8 was calibrated on noise and does not; then the original is another one."""
    async with parts(tmp_path / "state") as box:
        model, session = await tensors(box, sensor_level(tmp_path / "level.onnx"))
        assert named(model, "fp16").accuracy is not None
        assert named(model, "fp16").evidence is Evidence.NOISE
        tries = trials(box, Kept())

        await tries.carry_out(answered(session, model, "int8", range(10)))
        await tries.carry_out(answered(session, model, "fp16", range(70)))
        halfway = present((await box.store.models.variant("default/net:fp16")).trial)
        assert (halfway.verdict, halfway.samples) == (Verdict.RUNNING, 70)
        cpu_s = await tries.carry_out(answered(session, model, "fp16", range(70, 140)))
        assert cpu_s > 0

        model = await box.store.models.get("default/net")
        int8, fp16 = named(model, "int8"), named(model, "fp16")
        assert int8.trial is not None
        assert (int8.trial.verdict, int8.evidence, int8.awaits_trial) == (Verdict.DISMISSED, Evidence.DISAGREED, False)
        assert int8.trial.samples < 10
        assert fp16.trial is not None
        assert fp16.accuracy is not None
        assert (fp16.trial.verdict, fp16.trial.samples) == (Verdict.PROMOTED, 129)
        assert (fp16.evidence, fp16.is_verified, fp16.accuracy.metric) == (Evidence.TRAFFIC, True, "1-error")
        assert fp16.accuracy.points > 99.9
        assert fp16.accuracy.loss_points is not None
        assert fp16.accuracy.loss_points < 0.5, "balanced may choose it"
        assert [facts["variant"] for facts in box.events.of("variant dismissed by requests")] == ["int8"]
        assert [facts["variant"] for facts in box.events.of("variant verified by requests")] == ["fp16"]

        drifted = answered(session, model, "fp32", range(200, 208), scale=3.0)
        watched = [replace(one, answered=fp16.id) for one in drifted]
        await tries.carry_out(watched)
        fp16 = await box.store.models.variant(fp16.id)
        assert fp16.trial is not None
        assert (fp16.evidence, fp16.trial.verdict, fp16.trial.samples) == (Evidence.DISAGREED, Verdict.RUNNING, 130)
        assert fp16.accuracy is not None
        assert fp16.accuracy.points < 99.9
        assert len(box.events.of("variant drifted")) == 1


async def test_trial_of_variant_deleted_meanwhile_changes_nothing(tmp_path: Path) -> None:
    async with parts(tmp_path / "state") as box:
        model, session = await tensors(box, sensor_level(tmp_path / "level.onnx"))
        samples = answered(session, model, "fp16", range(4))
        await box.store.models.delete_variant("default/net:fp16")
        assert await trials(box, Kept()).carry_out(samples) >= 0.0
        await box.deletion.delete("default/net")
        assert await trials(box, Kept()).carry_out(samples) == 0.0


@pytest.mark.parametrize(("is_idle", "free_bytes"), [(False, 1 << 30), (True, 1 << 20)], ids=["busy", "no memory"])
async def test_trial_does_not_begin_on_busy_box_or_without_free_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_idle: bool, free_bytes: int
) -> None:
    monkeypatch.setattr(module, "GATHER_NS", 0)
    async with parts(tmp_path / "state", runs=False) as box:
        beside = Variant("default/net:int8", "default/net", "int8", Precision.INT8, "a" * 64, 1 << 20, (), ())
        sample = TrialSample("default", "default/net", "default/net:fp32", beside, TensorsAsked({}, {}), 0)
        kept = Kept([[sample]])
        running = asyncio.create_task(trials(box, kept, is_idle=is_idle, free_bytes=free_bytes).run())
        await kept.taken.wait()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert box.importer.stages.cpu_s == 0.0, "no process was begun"


async def test_variant_that_cannot_be_run_is_neither_promoted_nor_dismissed(tmp_path: Path) -> None:
    """The box may have had no memory for the variant; its state stays."""
    async with parts(tmp_path / "state") as box:
        model, session = await tensors(box, sensor_level(tmp_path / "level.onnx"))
        limits = ChildLimits(memory_bytes=1 << 20)
        ports = TrialPorts(Kept(), lambda: True, lambda: 1 << 30, box.events)
        tries = Trials(box.store, box.importer.stages, ports, limits, 0.05)
        assert await tries.carry_out(answered(session, model, "int8", range(8))) == module.FAILED_CPU_S
        assert (await box.store.models.variant("default/net:int8")).trial is None


async def test_variant_in_trial_on_one_input_is_not_promoted(tmp_path: Path) -> None:
    """However often it is asked, it shows but one thing."""
    async with parts(tmp_path / "state") as box:
        model, session = await tensors(box, sensor_level(tmp_path / "level.onnx"))
        tries = trials(box, Kept())
        await tries.carry_out(answered(session, model, "fp16", [3] * 140))
        fp16 = await box.store.models.variant("default/net:fp16")
        assert fp16.trial is not None
        assert (fp16.evidence, fp16.trial.verdict, fp16.trial.samples) == (Evidence.NOISE, Verdict.RUNNING, 1)


async def test_first_disagreement_takes_promoted_variant_back_to_trial(tmp_path: Path) -> None:
    """It is known to be off then, and its trial goes on."""
    async with parts(tmp_path / "state") as box:
        model, session = await tensors(box, sensor_level(tmp_path / "level.onnx"))
        tries = trials(box, Kept())
        await tries.carry_out(answered(session, model, "fp16", range(129)))
        fp16 = await box.store.models.variant("default/net:fp16")
        assert fp16.evidence is Evidence.TRAFFIC
        (drifted,) = answered(session, model, "fp32", [500], scale=3.0)
        await tries.carry_out([replace(drifted, answered=fp16.id)])
        fp16 = await box.store.models.variant(fp16.id)
        assert fp16.trial is not None
        assert (fp16.evidence, fp16.trial.verdict, fp16.trial.samples) == (Evidence.DISAGREED, Verdict.RUNNING, 130)
        assert (fp16.is_verified, fp16.awaits_trial) == (False, True)


async def test_variant_verified_by_samples_that_drifts_is_dismissed(tmp_path: Path) -> None:
    """Its samples are held against it no longer once real requests are unlike them."""
    level, upload = sensor_level(tmp_path / "level.onnx"), tmp_path / "level.zip"
    with zipfile.ZipFile(upload, "w") as archive:
        archive.write(level, "model.onnx")
        for seed in range(16):
            inputs = {"inputs": {"X": sensor_counts(1000 + seed).tolist()}}
            archive.writestr(f"calibration/{seed:02}.json", json.dumps(inputs))
    session = onnxruntime.InferenceSession(level)
    async with parts(tmp_path / "state") as box:
        task = TaskSpec(TaskKind.TENSOR)
        model = await imported(box, asked(upload, task=task, precisions=(Precision.INT8,)))
        int8, tries = named(model, "int8"), trials(box, Kept())
        assert int8.evidence is Evidence.SAMPLES
        assert {id: one.name for id, one in model.trials.items()} == {int8.id: "fp32"}

        (own,) = session.get_outputs()
        exact = [{own.name: session.run(None, {"X": sensor_counts(seed)})[0]} for seed in range(20)]
        like = [TensorsAsked({"X": sensor_counts(seed)}, exact[seed]) for seed in range(20)]
        beside = named(model, "fp32")
        await tries.carry_out([TrialSample("default", model.id, int8.id, beside, one, 0) for one in like])
        watched = await box.store.models.variant(int8.id)
        assert watched.trial is not None
        assert (watched.evidence, watched.trial.verdict, watched.trial.watched) == (Evidence.SAMPLES, "promoted", 20)

        drifted = answered(session, model, "fp32", range(500, 520), scale=3.0)
        await tries.carry_out([replace(one, answered=int8.id) for one in drifted])
        assert (await box.store.models.variant(int8.id)).evidence is Evidence.DISAGREED
        await tries.carry_out(answered(session, model, "int8", range(600, 630), scale=3.0))
        dismissed = await box.store.models.variant(int8.id)
        assert dismissed.trial is not None
        assert (dismissed.evidence, dismissed.trial.verdict) == (Evidence.DISAGREED, Verdict.DISMISSED)
