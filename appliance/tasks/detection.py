"""Objects and faces: a picture in, boxes in pixels of the upright original out."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.tasks.base import Answer, Arrays, Decoded, Media, Score, Target, label_of, number
from appliance.tasks.boxes import areas, nms
from appliance.tasks.detection_decoders import DECODERS, Candidates, InputSize, refuse
from appliance.tasks.image import Frame, decode_picture
from appliance.tasks.metrics import f1_of_objects, truth_list

_DEFAULT_DECODERS = {TaskKind.OBJECT_DETECTION: "yolov8", TaskKind.FACE_DETECTION: "centerface"}
_IOU_MAX = {"centerface": 0.3, "blazeface": 0.3, "end2end": 1.0}


class Detection:
    """Object detection, or face detection (one class, with landmarks where the network has them)."""

    def __init__(self, kind: TaskKind) -> None:
        self.kind = kind

    def decode(self, media: Media, spec: TaskSpec, target: Target, carry: Arrays) -> Decoded:
        return decode_picture(media, spec, target)

    @np.errstate(invalid="ignore", over="ignore")  # what a network says may be no number, or beyond all
    def encode(self, outputs: list[dict[str, np.ndarray]], decoded: Decoded, spec: TaskSpec) -> Answer:
        frame: Frame = decoded.context
        name = spec.decoder or _DEFAULT_DECODERS[self.kind]
        if name not in DECODERS:
            raise BadMetadata(reason=f"there is no detection decoder {name!r}; use one of {', '.join(DECODERS)}")
        arrays = {
            key: np.asarray(array, np.float32) for key, array in outputs[0].items()
        }  # fp16 is too coarse for pixels
        try:
            found = DECODERS[name](arrays, InputSize(frame.input_width, frame.input_height), spec)
        except (ValueError, IndexError):  # shapes that no check foresaw: the wrong decoder for this graph
            raise refuse(name, arrays) from None
        keep = nms(
            found.boxes,
            found.scores,
            found.classes,
            number(spec, "iou_max", _IOU_MAX.get(name, 0.5)),
            int(number(spec, "objects_max", 100)),
        )
        return Answer(
            {"objects": self._objects(found, keep, frame, spec), "width": frame.width, "height": frame.height}
        )

    def _objects(self, found: Candidates, keep: np.ndarray, frame: Frame, spec: TaskSpec) -> list[dict[str, Any]]:
        boxes = frame.to_original(found.boxes[keep].reshape(-1, 2, 2)).reshape(-1, 4)
        landmarks = (
            None
            if found.landmarks is None
            else np.nan_to_num(frame.to_original(found.landmarks[keep])).round(2).tolist()
        )
        sizes = areas(boxes)
        default = "face" if self.kind is TaskKind.FACE_DETECTION else ""
        objects: list[dict[str, Any]] = []
        for at, (index, box) in enumerate(zip(keep, boxes.round(2).tolist(), strict=True)):
            if not sizes[at] > 0:  # it lay in the padding, or is not even a number
                continue
            entry: dict[str, Any] = {
                "label": label_of(spec, int(found.classes[index]), default),
                "score": round(float(found.scores[index]), 4),
                "box": box,
            }
            if landmarks is not None:
                entry["landmarks"] = landmarks[at]
            objects.append(entry)
        return objects

    def similarity(self, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> Score:
        return f1_of_objects(answer["objects"], reference["objects"])

    def accuracy(self, answer: Mapping[str, Any], truth: Mapping[str, Any]) -> Score:
        return f1_of_objects(answer["objects"], truth_list(truth, "objects", "box"))
