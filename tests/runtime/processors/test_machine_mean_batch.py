"""Rows of a run, by processor."""

import pytest

from appliance.domain.hardware import ProcessorDescription
from appliance.machine import _mean_batch

RAN = {("cpu", "cpu"): (4, 10), ("little", "cpu"): (2, 2), ("cpu", "openvino"): (1, 8), ("little", "openvino"): (3, 4)}
"""Group and kind → runs and their rows."""


@pytest.mark.parametrize(
    ("name", "kind", "is_first_kind", "mean"),
    [
        ("cpu", "cpu", True, 2.5),
        ("little", "cpu", True, 1.0),
        ("openvino", "openvino", False, 3.0),
        ("cuda", "cuda", False, None),
    ],
)
def test_mean_batch_is_by_group_for_the_first_kind_else_over_all(
    name: str, kind: str, is_first_kind: bool, mean: float | None
) -> None:
    """Each processor of the first kind is a group; another kind's runs are those of all groups together."""
    described = ProcessorDescription(name, kind, 1, 1, "host", "")
    assert _mean_batch(described, RAN, is_first_kind=is_first_kind) == mean
