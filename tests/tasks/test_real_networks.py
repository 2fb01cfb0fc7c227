"""Real networks on real, labelled media: the whole way from bytes to an answer that is right, and specs guessed from
real graphs.

They come from the zoo's cache or the package registries; what cannot be had is skipped with the zoo's own sentence.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest

from appliance.demo.zoo import ZooModel, default_folder
from appliance.demo.zoo.cache import Cache, NotAvailable
from appliance.demo.zoo.catalogue import ZOOS
from appliance.demo.zoo.fetching import made
from appliance.demo.zoo.package_cache import PackageCache
from appliance.domain.catalogue import TaskKind, TaskSpec, TensorSpec
from appliance.tasks import TASKS, infer_spec, parse_spec
from appliance.tasks.base import Media, Score, Target, run_steps
from appliance.tasks.embedding import vectors_of
from appliance.tasks.metrics import retrieval
from tests.demo.zoo.fetched import LEFT_OUT, model_of

pytestmark = pytest.mark.usefixtures("package_index")

WORDS = {"tensor(float)": "FP32", "tensor(int64)": "INT64", "tensor(double)": "FP64", "tensor(int32)": "INT32"}


def only(name: str) -> ZooModel:
    """One model of the large zoo, without the rest of it."""
    (recipe,) = (recipe for recipe in ZOOS["demo"] if recipe.name == name)
    package_cache = Cache(default_folder())
    try:
        with package_cache.locked(lambda *_: None):
            model, _ = made(recipe, PackageCache(package_cache, lambda *_: None))
    except NotAvailable as error:
        pytest.skip(f"{LEFT_OUT}{error}")
    return model


class Network:
    """One session with what the tasks want to know of it."""

    def __init__(self, model: ZooModel) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 2, 4
        self.session = onnxruntime.InferenceSession(str(model.model), options, providers=["CPUExecutionProvider"])
        self.kind = TaskKind(model.task)
        self.task = TASKS[self.kind]
        inputs, outputs = self._specs(self.session.get_inputs()), self._specs(self.session.get_outputs())
        props = self.session.get_modelmeta().custom_metadata_map
        self.guessed = infer_spec(self.kind, inputs, outputs, props)
        stated = {key: value for key, value in model.metadata.items() if key != "task"}
        self.spec = parse_spec(self.kind, stated, self.guessed)
        self.target = Target(inputs, outputs, assets={name: str(path) for name, path in model.assets.items()})
        self.names = [tensor.name for tensor in outputs]

    @staticmethod
    def _specs(tensors: Any) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(one.name, WORDS[one.type], tuple(side if isinstance(side, int) else -1 for side in one.shape))
            for one in tensors
        )

    def infer(self, inputs: dict[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return dict(zip(self.names, self.session.run(None, inputs), strict=True))

    def answer(self, body: bytes, spec: TaskSpec | None = None) -> dict[str, Any]:
        chosen = spec or self.spec
        decoded = self.task.decode(Media(body), chosen, self.target, {})
        answer = self.task.encode(run_steps(decoded, chosen, self.infer)[0], decoded, chosen).body
        json.dumps(answer, allow_nan=False)
        return answer


def labelled(model: ZooModel) -> list[tuple[bytes, dict[str, Any]]]:
    assert model.evaluation is not None
    samples = json.loads((model.evaluation / "truth.json").read_text())["samples"]
    return [((model.evaluation / sample["file"]).read_bytes(), sample) for sample in samples[:16]]


@pytest.mark.parametrize(
    ("name", "metric", "floor"),
    [
        ("faces", "f1@0.5", 0.9),
        ("faces-tiny", "f1@0.5", 0.7),
        ("find-text", "f1@0.5", 0.8),
        ("read-text", "1-cer", 0.9),
        ("speech", "agreement", 0.9),
        ("digits", "top-1", 0.8),
    ],
)
def test_real_network_answers_agree_with_the_labels(name: str, metric: str, floor: float) -> None:
    model = model_of(name, "ci", "small")
    network = Network(model)
    scores = (network.task.accuracy(network.answer(body), truth) for body, truth in labelled(model))
    score = sum(scores, Score(0.0, 0.0, metric))
    assert score.metric == metric
    assert score.value >= floor, score


def test_real_text_embeddings_of_paraphrases_are_nearest() -> None:
    """MiniLM with its own tokenizer; one request with all sentences gives the same vectors."""
    model = only("meaning")
    network = Network(model)
    samples = labelled(model)
    vectors = [vector for body, _ in samples for vector in vectors_of(network.answer(body))]
    assert retrieval(vectors, [truth["group"] for _, truth in samples]).value >= 0.9
    texts = [json.loads(body)["text"] if body.startswith(b"{") else body.decode() for body, _ in samples]
    together = network.answer(json.dumps({"texts": texts}).encode())["embeddings"]
    np.testing.assert_allclose(together, vectors, atol=1e-4)


@pytest.mark.parametrize("name", ["faces", "faces-tiny", "find-text", "read-text", "speech"])
def test_real_network_answers_right_with_the_guessed_spec(name: str) -> None:
    """Without a word from the tenant, the decoder, states and dictionary are right, and the first sample's answer is
    too.
    """
    model = model_of(name, "ci", "small")
    network = Network(model)
    guessed, stated = network.guessed, network.spec
    assert (guessed.decoder, guessed.state, guessed.constants, guessed.labels) == (
        stated.decoder,
        stated.state,
        stated.constants,
        stated.labels,
    )
    body, truth = labelled(model)[0]
    assert network.task.accuracy(network.answer(body, guessed), truth).value >= 0.6


def test_face_box_follows_the_picture_at_every_size() -> None:
    import cv2

    model = model_of("faces", "ci", "small")
    network = Network(model)
    body, truth = labelled(model)[0]
    image = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    for factor in (0.7, 1.0, 2.0):
        resized = cv2.resize(image, None, fx=factor, fy=factor)
        answer = network.answer(bytes(cv2.imencode(".png", resized)[1].tobytes()))
        boxes = [{**entry, "box": [value * factor for value in entry["box"]]} for entry in truth["objects"]]
        assert network.task.accuracy(answer, {"objects": boxes}).value == 1.0, factor


def test_real_network_answers_right_at_every_input_size() -> None:
    """One graph with free sides, at three rungs."""
    model = model_of("faces", "ci", "small")
    network = Network(model)
    body, truth = labelled(model)[0]
    for height, width in ((192, 256), (320, 416), (480, 640)):
        network.target = replace(network.target, height=height, width=width)
        assert network.task.accuracy(network.answer(body), truth).value == 1.0, (height, width)
