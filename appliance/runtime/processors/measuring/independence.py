"""Whether rows of one run do not influence one another, so that rows of several callers may share it.

A dynamically quantized network, for one, has a scale for a whole tensor: what one caller sends changes how the others'
rows are rounded.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from appliance.runtime.processors.measuring.same import difference

Arrays = Mapping[str, Any]
DIFFERENCE_MAX = 1e-3
"""Of the norm of a row's output: kernels add in another order when there are more rows."""
_LOUDER = 8.0
"""Times as large as measured are the rows beside: what depends on the largest value of all shows."""


def rows_are_independent(run: Callable[[Arrays], Arrays], inputs: Arrays, batch: int) -> bool:
    """Whether the first and the last row of a batch come out as they do alone, whatever is beside them.

    `inputs` have `batch` rows, two at least; an input or output without an axis of that size is shared by all rows.
    Raises: what `run` raises.
    """
    if batch < 2 or any(array.shape[:1] != (batch,) for array in inputs.values()):
        return False
    for row in (0, batch - 1):
        alone = run(_rows(inputs, [row]))
        for beside in _neighbours(inputs, row, batch):
            among = run(beside)
            for name, array in alone.items():
                if array.shape[:1] != (1,) or among[name].shape[:1] != (batch,):
                    return False
                if difference(array, among[name][row : row + 1]) > DIFFERENCE_MAX:
                    return False
    return True


def _neighbours(inputs: Arrays, row: int, batch: int) -> Iterator[dict[str, Any]]:
    """The batch as it is; with the other rows all equal to another one; and, where values are free, with louder and
    with silent rows.
    """
    yield dict(inputs)
    other = (row + 1) % batch
    order = [row if i == row else other for i in range(batch)]
    yield _rows(inputs, order)
    for factor in (_LOUDER, 0.0):
        yield {name: _scaled(array, row, factor) for name, array in inputs.items()}


def _rows(inputs: Arrays, order: list[int]) -> dict[str, Any]:
    return {name: array[order] for name, array in inputs.items()}


def _scaled(array: Any, row: int, factor: float) -> Any:
    if array.dtype.kind != "f":  # tokens and masks mean what they are
        return array
    scaled = (array * np.asarray(factor, array.dtype)).astype(array.dtype)
    scaled[row] = array[row]
    return scaled
