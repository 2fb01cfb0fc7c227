"""Inputs of several requests, or of one that is padded, on their way to a guard, which pads them and puts their rows
together: in its own thread, and as it is the tenant's, at the tenant's cost.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from appliance.domain.padding import Fill
from appliance.domain.request import Tensors
from appliance.runtime.processors.rows import together
from appliance.tasks.padding import Padded


def apart_by_name(requests: Sequence[Tensors]) -> tuple[str, dict[str, Any]]:
    """What says how many they are and how they are padded, all of them alike, and the tensors of all of them as they
    were sent.
    """
    layout: dict[str, Any] = {"requests": len(requests)}
    padded = next((inputs for inputs in requests if isinstance(inputs, Padded)), None)
    if padded is not None:
        layout |= {"fill": padded.fill, "shapes": {name: list(shape) for name, shape in padded.shapes.items()}}
    tensors = {
        f"{at} {name}": array
        for at, inputs in enumerate(requests)
        for name, array in (inputs.inputs if isinstance(inputs, Padded) else inputs).items()
    }
    return json.dumps(layout), tensors


def joined(layout: str, tensors: Mapping[str, Any]) -> Tensors:
    """The inputs of their run. Raises: ValueError where their rows cannot be put together."""
    told = json.loads(layout)
    requests: list[dict[str, Any]] = [{} for _ in range(told["requests"])]
    for name, array in tensors.items():
        at, _, own = name.partition(" ")
        requests[int(at)][own] = array
    inputs: Sequence[Tensors] = requests
    if "fill" in told:
        inputs = [Padded(one, told["shapes"], Fill(told["fill"])) for one in requests]
    return dict(inputs[0]) if len(inputs) == 1 else together(inputs)
