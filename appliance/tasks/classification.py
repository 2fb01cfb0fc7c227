"""A picture in, its five likeliest labels out."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.tasks.base import Answer, Arrays, Decoded, Media, Score, Target, label_of, number
from appliance.tasks.image import decode_picture
from appliance.tasks.metrics import top_1
from appliance.tasks.softmax import are_probabilities, sigmoid, softmax


class Classification:
    """Decoders: `softmax`, `sigmoid` (several labels may be true), `probabilities` (as they are); by default,
    whatever the values look like.
    """

    kind = TaskKind.IMAGE_CLASSIFICATION

    def decode(self, media: Media, spec: TaskSpec, target: Target, carry: Arrays) -> Decoded:
        return decode_picture(media, spec, target)

    def encode(self, outputs: list[dict[str, np.ndarray]], decoded: Decoded, spec: TaskSpec) -> Answer:
        scores = probabilities(_class_output(outputs[0]), spec.decoder)
        count = min(int(number(spec, "labels_max", 5)), len(scores))
        best = np.argsort(-scores, kind="stable")[:count]
        return Answer(
            {
                "labels": [
                    {"label": label_of(spec, int(index)), "index": int(index), "score": round(float(scores[index]), 6)}
                    for index in best
                ]
            }
        )

    def similarity(self, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> Score:
        return top_1(answer, {"label": reference["labels"][0]["index"]})

    def accuracy(self, answer: Mapping[str, Any], truth: Mapping[str, Any]) -> Score:
        return top_1(answer, truth)


def _class_output(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first output of floating-point numbers, flat."""
    for array in outputs.values():
        if array.dtype.kind == "f" and array.size:
            return np.nan_to_num(np.asarray(array, np.float32).ravel())
    raise BadMetadata(reason="the model has no output of floating-point class scores")


def probabilities(scores: np.ndarray, decoder: str) -> np.ndarray:
    """Class scores as probabilities. scores: float32[C]."""
    if decoder == "sigmoid":
        return sigmoid(scores)
    if decoder == "probabilities" or (decoder == "" and are_probabilities(scores)):
        return scores
    return softmax(scores)
