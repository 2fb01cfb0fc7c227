"""Arrays made larger, and outputs cut back."""

import numpy as np
import pytest

from appliance.domain.padding import CroppedAxis, Fill, PaddedAxis, Padding, widest
from appliance.tasks.padding import Padded, cropped, padded

ROWS = np.array([[[1.0, 3.0], [5.0, 7.0]], [[0.0, 0.0], [8.0, 0.0]]], np.float32)


@pytest.mark.parametrize(
    ("fill", "beyond"), [(Fill.MEAN, [[4, 4], [2, 2]]), (Fill.EDGE, [[3, 7], [0, 0]]), (Fill.ZERO, [[0, 0], [0, 0]])]
)
def test_padding_fills_batch_items_separately(fill: Fill, beyond: list[list[float]]) -> None:
    found = padded(ROWS, (9, 2, 3), fill)
    assert np.array_equal(found[:, :, :2], ROWS)
    assert found[:, :, 2].tolist() == beyond
    assert found.dtype == ROWS.dtype


def test_padding_fills_tokens_and_masks_with_zeros() -> None:
    tokens = np.array([[7, 8]], np.int64)
    assert [padded(tokens, (1, 3), fill).tolist() for fill in Fill] == 3 * [[[7, 8, 0]]]


def test_padding_does_not_copy_inputs_that_fit() -> None:
    inputs = Padded({"x": ROWS, "y": ROWS}, {"x": (1, 2, 2), "y": (1, 2, 4)}, Fill.ZERO)
    assert inputs["x"] is ROWS
    assert {name: array.shape for name, array in inputs.items()} == {"x": (2, 2, 2), "y": (2, 2, 4)}


def test_padding_steps_end_at_the_largest_shape() -> None:
    """Or where the input ends that is larger already."""
    padding = Padding(Fill.ZERO, (PaddedAxis("x", 1, 64), PaddedAxis("y", 1, 16)))
    found = padding.stepped({"x": (1, 65), "y": (3, 16), "z": (5,)}, {"x": (8, 100), "y": (8, 10)})
    assert found == {"x": (1, 100), "y": (3, 16), "z": (5,)}
    assert padding.stepped({"x": (1, 65)}, {}) == {"x": (1, 128)}
    assert widest([{"x": (1, 5, 2)}, {"x": (2, 3, 4)}]) == {"x": (2, 5, 4)}


def test_padded_outputs_are_cut_along_axes_that_grow_with_the_input() -> None:
    """By strides; other outputs are left alone."""
    padding = Padding(Fill.ZERO, (PaddedAxis("x", 1, 64),), (CroppedAxis("y", 1, 0, 1, 7, 8), CroppedAxis("z", 0, 0)))
    outputs = {"y": np.arange(16.0).reshape(2, 8), "whole": np.ones(3)}
    found = cropped(outputs, padding, {"x": (2, 17)}, {"x": (2, 64)})
    assert found["y"].tolist() == [[0, 1, 2], [8, 9, 10]]
    assert found["whole"] is outputs["whole"]
    with pytest.raises(ValueError, match="where 9 were foreseen"):
        cropped(outputs, padding, {"x": (2, 17)}, {"x": (2, 65)})
