"""Requests that share a run get their own rows, and nothing of the others'."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.runtime.processors.rows import apart, run_rows


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_requests_that_share_a_run_get_their_own_rows(counts: list[int]) -> None:
    """Every element names its request, so nothing can be mistaken."""
    requests = [{"x": np.full((count, 3), i, np.float32)} for i, count in enumerate(counts)]
    runs: list[int] = []

    def run(handle: str, inputs: Mapping[str, Any], outputs: None) -> dict[str, Any]:
        assert (handle, outputs) == ("b", None)
        runs.append(len(inputs["x"]))
        return {"y": inputs["x"] * 2, "top": inputs["x"][:, 0]}

    answers = run_rows(run, counts, "b", requests, None)
    assert runs == [sum(counts)]
    for i, (answer, count) in enumerate(zip(answers, counts, strict=True)):
        assert np.array_equal(answer["y"], np.full((count, 3), 2 * i))
        assert answer["top"].shape == (count,)


def test_answer_of_a_shared_run_keeps_no_memory_of_other_requests() -> None:
    answers = apart({"y": np.zeros((2, 4))}, [1, 1])
    assert all(answer["y"].base is None for answer in answers)


def test_shared_run_with_a_wrong_number_of_rows_is_an_error() -> None:
    with pytest.raises(ValueError, match="'y' has the shape \\[3\\] where 2 rows went in"):
        apart({"y": np.zeros(3)}, [1, 1])
