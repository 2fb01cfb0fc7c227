"""Rows of several requests in one run: put together along the first axis, and taken apart again."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from appliance.domain.request import Tensors


def run_rows(
    run: Callable[[Tensors], dict[str, Any]], requests: Sequence[Tensors], counts: Sequence[int]
) -> list[dict[str, Any]]:
    """Outputs of each request, which has `counts[i]` rows in all its tensors; raises what `run` raises."""
    return apart(run(together(requests)), counts)


def together(requests: Sequence[Tensors]) -> dict[str, Any]:
    """The tensors of one run; all requests have the same inputs, equal in all but their first axis."""
    return {name: np.concatenate([tensors[name] for tensors in requests]) for name in requests[0]}


def apart(outputs: dict[str, Any], counts: Sequence[int]) -> list[dict[str, Any]]:
    """Each request's rows, in arrays of its own: nobody's answer keeps those of others in memory, or shares them."""
    ends = np.cumsum(counts)
    found: list[dict[str, Any]] = [{} for _ in counts]
    for name, array in outputs.items():
        for outputs_of, end, count in zip(found, ends, counts, strict=True):
            outputs_of[name] = array[end - count : end].copy()
    return found
