"""The quality of a whole set of answers; most tasks simply add up, retrieval needs all of them at once."""

from collections.abc import Mapping, Sequence
from typing import Any

from appliance.domain.catalogue import TaskKind
from appliance.tasks.base import Score, Task
from appliance.tasks.embedding import vectors_of
from appliance.tasks.metrics import retrieval

METRICS: Mapping[TaskKind, str] = {
    TaskKind.IMAGE_CLASSIFICATION: "top-1",
    TaskKind.OBJECT_DETECTION: "f1@0.5",
    TaskKind.FACE_DETECTION: "f1@0.5",
    TaskKind.TEXT_DETECTION: "f1@0.5",
    TaskKind.TEXT_RECOGNITION: "1-cer",
    TaskKind.IMAGE_EMBEDDING: "cosine",
    TaskKind.TEXT_EMBEDDING: "cosine",
    TaskKind.VOICE_ACTIVITY: "agreement",
    TaskKind.TENSOR: "cosine",
}
"""What fidelity is called."""

Bodies = Sequence[Mapping[str, Any]]


def fidelity(task: Task, answers: Bodies, references: Bodies) -> Score:
    """How near a set of answers is to a reference variant's on the same media."""
    scores = [task.similarity(answer, reference) for answer, reference in zip(answers, references, strict=True)]
    return sum(scores, Score(0.0, 0.0, METRICS[task.kind]))


def correctness(task: Task, answers: Bodies, truths: Bodies) -> Score:
    """How right a set of answers is. Truths of embeddings with a `group` each are judged together, by retrieval.

    Raises: BadMetadata.
    """
    if truths and all("group" in truth for truth in truths):
        rows = [
            (vector, truth["group"])
            for answer, truth in zip(answers, truths, strict=True)
            for vector in vectors_of(answer)
        ]
        return retrieval([vector for vector, _ in rows], [group for _, group in rows])
    scores = [task.accuracy(answer, truth) for answer, truth in zip(answers, truths, strict=True)]
    return sum(scores[1:], scores[0]) if scores else Score(0.0, 0.0, METRICS[task.kind])
