"""Rows of several requests in one run: put together along the first axis, and taken apart again."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from appliance.domain.request import Tensors


def run_rows(
    run: Callable[..., dict[str, Any]],
    counts: Sequence[int],
    handle: Any,
    requests: Sequence[Tensors],
    outputs: Sequence[str] | None,
    *options: Any,
) -> list[dict[str, Any]]:
    """Outputs of each request, of which `counts[i]` rows are in all its tensors, by one `run(handle, inputs, outputs,
    *options)`.

    Raises: what `run` raises; ValueError where it gave other rows than it was given.
    """
    return apart(run(handle, together(requests), outputs, *options), counts)


def together(requests: Sequence[Tensors]) -> dict[str, Any]:
    """The tensors of one run; all requests have the same inputs, equal in all but their first axis."""
    return {name: np.concatenate([tensors[name] for tensors in requests]) for name in requests[0]}


def apart(outputs: dict[str, Any], counts: Sequence[int]) -> list[dict[str, Any]]:
    """Each request's rows, in arrays of its own: nobody's answer keeps those of others in memory, or shares them.

    Raises: ValueError.
    """
    rows = sum(counts)
    for name, array in outputs.items():
        if array.shape[:1] != (rows,):
            raise ValueError(f"output {name!r} has the shape {list(array.shape)} where {rows} rows went in")
    ends = np.cumsum(counts)
    return [
        {name: array[end - count : end].copy() for name, array in outputs.items()}
        for end, count in zip(ends, counts, strict=True)
    ]
