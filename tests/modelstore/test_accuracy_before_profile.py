"""The accuracy of a model that serves is known before its profile, which waits for the processors to be idle."""

import io
import json
import tarfile
from pathlib import Path

import cv2
import numpy as np
import pytest

from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.domain.states import JobState
from tests import toys
from tests.modelstore.boxes import parts
from tests.modelstore.importing.asking import asked, done

pytestmark = pytest.mark.anyio


def _labelled(target: Path, model: Path) -> Path:
    """An archive of a network of ten classes, with one labelled picture."""
    picture = bytes(cv2.imencode(".png", np.zeros((64, 64, 3), np.uint8))[1])
    truth = json.dumps({"samples": [{"file": "0.png", "label": "0"}]}).encode()
    with tarfile.open(target, "w") as archive:
        archive.add(model, "model.onnx")
        for name, body in (("evaluation/0.png", picture), ("evaluation/truth.json", truth)):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return target


async def test_original_shows_its_accuracy_while_its_profile_is_measured(processes: None, tmp_path: Path) -> None:
    source = _labelled(tmp_path / "net.tar", toys.conv_net(tmp_path / "net.onnx", 0.2))
    task = TaskSpec(TaskKind.IMAGE_CLASSIFICATION, labels=tuple(map(str, range(10))))
    async with parts(tmp_path / "state") as box:
        box.measure.gate.clear()
        job = await box.importer.submit(asked(source, task=task))
        model = await box.model_once(lambda one: one.accuracy is not None)
        assert [one.profile for one in model.variants] == [None]
        assert model.variants[0].accuracy is not None
        assert model.variants[0].accuracy.metric == "top-1"
        assert (await box.store.jobs.get(job.id)).state is JobState.RUNNING
        box.measure.gate.set()
        await done(box, job)
        assert all(one.profile is not None for one in await box.variants())
