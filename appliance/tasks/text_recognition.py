"""A picture of one line of text in, its characters out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.tasks.base import Answer, Arrays, Decoded, Media, Score, Target
from appliance.tasks.image import decode_picture
from appliance.tasks.metrics import characters, truth_text
from appliance.tasks.softmax import are_probabilities, softmax


class TextRecognition:
    """Decoder `ctc`: the likeliest class per time step, repeats and blanks dropped. The labels are the dictionary."""

    kind = TaskKind.TEXT_RECOGNITION

    def decode(self, media: Media, spec: TaskSpec, target: Target, carry: Arrays) -> Decoded:
        return decode_picture(media, spec, target)

    def encode(self, outputs: list[dict[str, np.ndarray]], decoded: Decoded, spec: TaskSpec) -> Answer:
        text, score = ctc_greedy(_time_steps(outputs[0]), spec.labels)
        return Answer({"text": text, "score": round(score, 4)})

    def similarity(self, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> Score:
        return characters(answer["text"], reference["text"])

    def accuracy(self, answer: Mapping[str, Any], truth: Mapping[str, Any]) -> Score:
        return characters(answer["text"], truth_text(truth))


def _time_steps(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """[T, C] of the first output of rank 3."""
    for array in outputs.values():
        if array.ndim == 3:
            return array[0] if array.shape[0] == 1 else array[:, 0]
    raise BadMetadata(reason="decoder 'ctc' needs an output [1, time, classes]")


def ctc_greedy(steps: np.ndarray, labels: Sequence[str]) -> tuple[str, float]:
    """(text, mean probability of its characters). steps: float[T, C]; class 0 is the blank.

    Dictionaries come with the blank (C entries), without it (C - 1), or without it and the space, which is then last (C
    - 2).
    """
    classes = steps.shape[1]
    first = 0 if len(labels) >= classes else 1
    best = steps.argmax(axis=1)
    keep = (best != 0) & np.concatenate([[True], best[1:] != best[:-1]])[: len(best)]
    if not keep.any():
        return "", 0.0
    rows = steps[keep]
    sure = rows.max(axis=1) if are_probabilities(rows) else softmax(rows).max(axis=1)
    text = "".join(_character(labels, int(index) - first, int(index) == classes - 1) for index in best[keep])
    return text, float(np.nan_to_num(sure.mean()))


def _character(labels: Sequence[str], at: int, is_last: bool) -> str:
    if at < len(labels):
        return labels[at]
    return " " if is_last and labels else "\N{REPLACEMENT CHARACTER}"
