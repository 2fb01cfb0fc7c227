"""The classification extension of `/v2`: of an output not the values, but the largest ones with their places and
labels, as texts `value:index` or `value:index:label`.
"""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from appliance.api.v2.models import max_batch_size
from appliance.domain.catalogue import Model
from appliance.domain.errors import BadTensor

EXTENSION = "classification"
_SORTED_SOON, _WRITTEN_SOON = 8192, 512
"""Values, and texts of classes, that the event loop makes in less than a millisecond."""
_TEXTS_BYTES_MAX = 4 * 2**20
"""Of all texts of an answer, the labels included."""
_TEXT_BYTES = 64
"""About what a text takes beside its label."""


def is_slow_to_classify(outputs: Mapping[str, np.ndarray], counts: Mapping[str, int]) -> bool:
    """Whether `classified` and the writing of its texts may take more than a millisecond."""
    asked = [outputs[name] for name in counts if name in outputs]
    return sum(one.size for one in asked) > _SORTED_SOON or _texts(outputs, counts) > _WRITTEN_SOON


def classified(
    outputs: Mapping[str, np.ndarray], counts: Mapping[str, int], model: Model, variant: str
) -> Mapping[str, np.ndarray]:
    """The outputs of a run of `variant`, with texts in place of those that `counts` names: so many classes of each
    item, or all where there are fewer. Shape [items, classes]; [classes] where the variant has no axis for the batch.

    Labels are the model's, where an output has as many classes as there are. Raises: BadTensor where an output is no
    numbers, or where the texts would be more than 4 MiB.
    """
    labels = model.task.labels
    text_bytes = _TEXT_BYTES + 4 * max(map(len, labels), default=0)
    if (texts := _texts(outputs, counts)) * text_bytes > _TEXTS_BYTES_MAX:
        raise BadTensor(
            reason=f"{EXTENSION}: {texts} texts of up to {text_bytes} bytes are too many for an answer: ask for "
            "fewer classes, or fewer items at once"
        )
    is_batched = any(max_batch_size(one) for one in model.variants if one.name == variant)
    return {
        name: array if name not in counts else _classes(name, array, counts[name], labels, is_batched)
        for name, array in outputs.items()
    }


def _texts(outputs: Mapping[str, np.ndarray], counts: Mapping[str, int]) -> int:
    """How many there may be at most."""
    asked = [(outputs[name], count) for name, count in counts.items() if name in outputs]
    return sum(min(one.size, count * max(1, len(one)) if one.ndim else 1) for one, count in asked)


def _classes(name: str, array: np.ndarray, count: int, labels: Sequence[str], is_batched: bool) -> np.ndarray:
    if array.dtype.kind not in "fiub":
        raise BadTensor(reason=f"output {name!r}: {EXTENSION} needs numbers, and it has texts")
    items = len(array) if is_batched else 1
    rows = array.reshape(items, prod(array.shape[1:]) if is_batched else array.size)
    has_labels = rows.shape[1] == len(labels)
    texts = np.empty((items, min(count, rows.shape[1])), np.object_)
    for item, (row, order) in enumerate(zip(rows, _largest_first(rows)[:, : texts.shape[1]].tolist(), strict=True)):
        for place, index in enumerate(order):
            value = int(row[index]) if row.dtype.kind == "b" else row[index]
            texts[item, place] = f"{value}:{index}:{labels[index]}" if has_labels else f"{value}:{index}"
    return texts if is_batched else texts[0]


def _largest_first(rows: np.ndarray) -> np.ndarray:
    """Indices of the values of each row, the largest first, of equal ones the first; what is no number comes last."""
    known = np.where(np.isnan(rows), -np.inf, rows) if rows.dtype.kind == "f" else rows
    order: np.ndarray = rows.shape[1] - 1 - np.argsort(known[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return order
