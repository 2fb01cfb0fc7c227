"""What of a result can be followed from frame to frame, and how far two results of one frame agree."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from appliance.client.device.tracking.overlap import agreement
from appliance.client.device.tracking.tracker import EMPTY, Found

LISTS = ("objects", "regions")
"""Fields of an answer that are lists of things with a place: those of detection, and those of text detection."""


def found_in(answer: Mapping[str, Any], width: int | None = None) -> Found | None:
    """The objects of an answer, of a pipeline's those of the first stage that finds some; None where nothing of it
    finds any, so that the answer is held as it is. `width`: of the camera's pictures in pixels, in which boxes are
    then, whatever size was sent; None: they are as they came.
    """
    for one in (answer, *_stages_in(answer)):
        for name in LISTS:
            if isinstance(listed := one.get(name), list):
                sent = one.get("width")
                if width is None or not isinstance(sent, int | float) or sent <= 0:
                    return _found(listed, 1.0)
                return _found(listed, width / sent)
    return None


def drop_between(shown: Mapping[str, Any], fresh: Mapping[str, Any]) -> float | None:
    """How much worse an answer that was held is than the fresh one, 0 to 1; None where nobody can say."""
    if "labels" in fresh and "labels" in shown:
        return float(_best(shown["labels"]) != _best(fresh["labels"]))
    if isinstance(said := fresh.get("text"), str):
        return float(said != shown.get("text"))
    return None


def drop_of(boxes: np.ndarray, tracked: Found, fresh: Found) -> float:
    """How much worse tracked boxes are than the fresh ones, 0 to 1."""
    return 1.0 - agreement(boxes, fresh.boxes, tracked.same_label(fresh))


def _stages_in(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What the stages of a pipeline that look at the whole picture say of it; of an application's answer nothing. What
    stages behind a crop find lies within what was cut out."""
    nodes = answer.get("items")
    for node in nodes if isinstance(nodes, list) else ():
        if isinstance(node, dict) and "box" not in node and "quad" not in node:
            if isinstance(node.get("answer"), dict):
                yield node["answer"]
            yield from _stages_in(node)


def _found(listed: list[Any], factor: float) -> Found:
    things = [thing for thing in listed if isinstance(thing, dict) and _place(thing) is not None]
    if not things:
        return EMPTY
    boxes = np.array([_place(thing) for thing in things], np.float64).reshape(-1, 4) * factor
    facts = tuple({key: value for key, value in thing.items() if key not in ("box", "label")} for thing in things)
    return Found(boxes, tuple(str(thing.get("label", "")) for thing in things), facts)


def _place(thing: Mapping[str, Any]) -> list[float] | None:
    """x1, y1, x2, y2 of a thing's box, or of what its quad spans."""
    box = thing.get("box")
    if box is None and (quad := thing.get("quad")):
        xs, ys = [x for x, _ in quad], [y for _, y in quad]
        box = [min(xs), min(ys), max(xs), max(ys)]
    return None if box is None or len(box) != 4 else list(box)


def _best(labels: Any) -> Any:
    return labels[0].get("label") if isinstance(labels, list) and labels else None
