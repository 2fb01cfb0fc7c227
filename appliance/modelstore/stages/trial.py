"""The trial stage: a variant runs on requests that another one has answered, and what the task reads is compared; of
tensors the outputs themselves.
"""

import base64
import hashlib
import io
import json
import time
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from appliance.domain.errors import ApplianceError
from appliance.domain.trial import Comparison
from appliance.modelstore import arrays
from appliance.modelstore.orders import PIXELS, TrialOrder, TrialRequest, Tried
from appliance.modelstore.stages.running import Runner
from appliance.tasks import TASKS
from appliance.tasks.base import Arrays, Media, Pixels, Score, Target, run_steps
from appliance.tasks.metrics import nearness

DIGEST_LETTERS = 12


def trial(order: TrialOrder, report: Callable[[float, str], None]) -> Tried:
    """A request on which the variant fails counts as one on which it does not agree.

    Raises: BadModel where it cannot be loaded.
    """
    runner = Runner(order.model)
    comparisons: list[Comparison] = []
    metric = ""
    for number, request in enumerate(order.requests):
        report(number / len(order.requests), f"request {number + 1} of {len(order.requests)}")
        try:
            score, asked, told = _compared(order, runner, request)
        except ApplianceError:
            asked = _text_digest([request.inputs, request.body, request.pixels])
            comparisons.append(Comparison(0.0, asked, ""))
            continue
        if score.weight:
            comparisons.append(Comparison(score.value, asked, told))
            metric = score.metric
    return Tried(tuple(comparisons), metric, time.process_time())


def _compared(order: TrialOrder, runner: Runner, request: TrialRequest) -> tuple[Score, str, str]:
    """Return the score, and the digests of the input and of the original's answer (`domain.trial.Comparison`)."""
    if request.read is None:
        inputs, answered = _arrays(request.inputs), _arrays(request.outputs)
        outputs = runner.run(inputs)
        found = {name: outputs[name] for name in answered if name in outputs}
        if order.is_original:
            return nearness(answered, found), _input_digest([inputs]), _answer_digest(found)
        return nearness(found, answered), _input_digest([inputs]), _answer_digest(answered)
    task = TASKS[order.task.kind]
    height, width = (order.size.height, order.size.width) if order.size else (None, None)
    target = Target(order.inputs, order.outputs, height, width, order.assets, order.shape_max)
    decoded = task.decode(_media(request), order.task, target, {})
    steps, _ = run_steps(decoded, order.task, runner.run)
    read: Mapping[str, object] = task.encode(steps, decoded, order.task).body
    answered_read, asked = request.read, _input_digest(decoded.steps)
    if order.is_original:
        return task.similarity(answered_read, read), asked, _text_digest(read)
    return task.similarity(read, answered_read), asked, _text_digest(answered_read)


def _media(request: TrialRequest) -> Media:
    pixels = None
    if request.pixels:
        pixels = Pixels(_arrays(request.pixels)[PIXELS], request.width, request.height)
    return Media(base64.b64decode(request.body), request.content_type, pixels=pixels)


def _input_digest(steps: Iterable[Arrays]) -> str:
    """Return a digest of the inputs of runs, the same for equal inputs only."""
    digest = hashlib.sha256()
    for step in steps:
        _add(digest, step)
    return digest.hexdigest()[:DIGEST_LETTERS]


def _answer_digest(outputs: Arrays) -> str:
    """Return a digest of outputs to five digits; empty where in each all values are the same, or the only one is 0."""
    if all(_is_empty(array) for array in outputs.values()):
        return ""
    digest = hashlib.sha256()
    _add(digest, {name: _to_five_digits(array) for name, array in outputs.items()})
    return digest.hexdigest()[:DIGEST_LETTERS]


def _add(digest: "hashlib._Hash", tensors: Arrays) -> None:
    for name, array in sorted(tensors.items()):
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())


def _is_empty(array: np.ndarray) -> bool:
    if array.size == 1:
        return not array.any()
    return bool((array == array.flat[0]).all()) if array.size else True


def _to_five_digits(array: np.ndarray) -> np.ndarray:
    """Round floats to the fifth digit of the largest, below which two runs of a network may differ."""
    if array.dtype.kind != "f":
        return array
    values = np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0)
    largest = float(np.abs(values).max(initial=0.0))
    digit = 10.0 ** (np.floor(np.log10(largest)) - 4) if largest else 1.0
    return np.asarray(np.round(values / digit) * digit)


def _text_digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]


def _arrays(text: str) -> dict[str, np.ndarray]:
    found = arrays.load(io.BytesIO(base64.b64decode(text)))
    return {name: array.astype(object) if array.dtype.kind == "U" else array for name, array in found.items()}
