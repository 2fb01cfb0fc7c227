"""What an answer says in labels and scores, whatever its task, and what follows for those behind it: whether a
condition holds, which items are picked, and several answers as one. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from appliance.domain.pipeline import Pick, PickBy, Region, When

Body = Mapping[str, Any]
"""The task's fields."""
Judgement = tuple[str, float]
"""A label, empty where the task has none, and how sure the network is of it."""


def judgements(body: Body) -> list[Judgement]:
    """The best label of a classification; every object or region; a text, whose label is the text. Empty: there are
    none.
    """
    if labels := body.get("labels"):
        return [(str(labels[0]["label"]), float(labels[0]["score"]))]
    for name in ("objects", "regions"):
        if name in body:
            return [(str(one.get("label", "")), float(one.get("score", 1.0))) for one in body[name]]
    if isinstance(body.get("text"), str):
        return [(body["text"], float(body.get("score", 1.0)))]
    return []


def holds(when: When, found: Sequence[Judgement]) -> bool:
    """Whether a condition holds: some judgement is as it wants, and none that counts has a label that it forbids."""
    sure = [label for label, score in found if score >= when.score_min]
    if any(label in when.labels_not for label in sure):
        return False
    if when.labels:
        return any(label in when.labels for label in sure)
    return bool(sure) or not when.score_min


def picked(pick: Pick, items: Sequence[tuple[Region, Sequence[Judgement] | None]]) -> set[int]:
    """Positions of the best items; ties go to the first. `items`: where each lies, and what its answer says; None: it
    is judged by its region.
    """
    ranks: list[tuple[float, int]] = []
    for at, (region, found) in enumerate(items):
        own = [(region.label, region.score)] if found is None else found
        scores = [score for label, score in own if not pick.labels or label in pick.labels]
        if scores or (not own and not pick.labels):
            by = region.area if pick.by is PickBy.SIZE else max(scores, default=0.0)
            ranks.append((-by, at))
    return {at for _, at in sorted(ranks)[: pick.best]}


def joined(bodies: Sequence[Body]) -> dict[str, Any]:
    """Answers put together: `answers`, in the order of their items; of texts also the `text` of all, line by line."""
    texts = [body["text"] for body in bodies if isinstance(body.get("text"), str)]
    lines = {"text": "\n".join(texts)} if len(texts) == len(bodies) else {}
    return {**lines, "answers": [dict(body) for body in bodies]}
