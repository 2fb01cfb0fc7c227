"""The trial stage: a variant runs on requests that another one has answered, and what the task reads is compared; of
tensors the outputs themselves.
"""

import base64
import io
import time
from collections.abc import Callable, Mapping

import numpy as np

from appliance.domain.errors import ApplianceError
from appliance.modelstore import arrays
from appliance.modelstore.orders import PIXELS, TrialOrder, TrialRequest, Tried
from appliance.modelstore.stages.running import Runner
from appliance.tasks import TASKS
from appliance.tasks.base import Media, Pixels, Score, Target, run_steps
from appliance.tasks.metrics import nearness


def trial(order: TrialOrder, report: Callable[[float, str], None]) -> Tried:
    """A request on which the variant fails counts as one on which it does not agree.

    Raises: BadModel where it cannot be loaded.
    """
    runner = Runner(order.model)
    agreements: list[float] = []
    metric = ""
    for number, request in enumerate(order.requests):
        report(number / len(order.requests), f"request {number + 1} of {len(order.requests)}")
        try:
            score = _compared(order, runner, request)
        except ApplianceError:
            agreements.append(0.0)
            continue
        if score.weight:
            agreements.append(score.value)
            metric = score.metric
    return Tried(tuple(agreements), metric, time.process_time())


def _compared(order: TrialOrder, runner: Runner, request: TrialRequest) -> Score:
    if request.read is None:
        outputs, answered = runner.run(_arrays(request.inputs)), _arrays(request.outputs)
        found = {name: outputs[name] for name in answered if name in outputs}
        return nearness(answered, found) if order.is_original else nearness(found, answered)
    task = TASKS[order.task.kind]
    height, width = (order.size.height, order.size.width) if order.size else (None, None)
    target = Target(order.inputs, order.outputs, height, width, order.assets, order.shape_max)
    decoded = task.decode(_media(request), order.task, target, {})
    steps, _ = run_steps(decoded, order.task, runner.run)
    read: Mapping[str, object] = task.encode(steps, decoded, order.task).body
    answered_read = request.read
    return task.similarity(answered_read, read) if order.is_original else task.similarity(read, answered_read)


def _media(request: TrialRequest) -> Media:
    pixels = None
    if request.pixels:
        pixels = Pixels(_arrays(request.pixels)[PIXELS], request.width, request.height)
    return Media(base64.b64decode(request.body), request.content_type, pixels=pixels)


def _arrays(text: str) -> dict[str, np.ndarray]:
    found = arrays.load(io.BytesIO(base64.b64decode(text)))
    return {name: array.astype(object) if array.dtype.kind == "U" else array for name, array in found.items()}
