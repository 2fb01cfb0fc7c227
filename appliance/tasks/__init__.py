"""Tasks: bytes → tensors, outputs → answers, answers → accuracy.

To add one, write its class and give it a line here.
"""

from collections.abc import Mapping

from appliance.domain.catalogue import TaskKind
from appliance.tasks.audio import VoiceActivity
from appliance.tasks.base import Task
from appliance.tasks.classification import Classification
from appliance.tasks.defaults import infer_spec, parse_spec
from appliance.tasks.detection import Detection
from appliance.tasks.embedding import ImageEmbedding, TextEmbedding
from appliance.tasks.tensor import Tensors
from appliance.tasks.text_detection import TextDetection
from appliance.tasks.text_recognition import TextRecognition

__all__ = ["TASKS", "infer_spec", "parse_spec"]

TASKS: Mapping[TaskKind, Task] = {
    TaskKind.IMAGE_CLASSIFICATION: Classification(),
    TaskKind.OBJECT_DETECTION: Detection(TaskKind.OBJECT_DETECTION),
    TaskKind.FACE_DETECTION: Detection(TaskKind.FACE_DETECTION),
    TaskKind.TEXT_DETECTION: TextDetection(),
    TaskKind.TEXT_RECOGNITION: TextRecognition(),
    TaskKind.IMAGE_EMBEDDING: ImageEmbedding(),
    TaskKind.TEXT_EMBEDDING: TextEmbedding(),
    TaskKind.VOICE_ACTIVITY: VoiceActivity(),
    TaskKind.TENSOR: Tensors(),
}
