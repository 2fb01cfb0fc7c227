"""Requests that share a run get their own rows, and nothing of the others'."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from appliance.runtime.processors.rows import run_rows


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_each_gets_its_own_rows(counts: list[int]) -> None:
    """Every element names its request, so nothing can be mistaken."""
    requests = [{"x": np.full((count, 3), i, np.float32)} for i, count in enumerate(counts)]
    runs: list[int] = []

    def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
        runs.append(len(inputs["x"]))
        return {"y": inputs["x"] * 2, "top": inputs["x"][:, 0]}

    answers = run_rows(run, requests, counts)
    assert runs == [sum(counts)]
    for i, (answer, count) in enumerate(zip(answers, counts, strict=True)):
        assert np.array_equal(answer["y"], np.full((count, 3), 2 * i))
        assert answer["top"].shape == (count,)


def test_an_answer_keeps_nobody_elses_memory() -> None:
    answers = run_rows(dict, [{"x": np.zeros((1, 4))}, {"x": np.ones((1, 4))}], [1, 1])
    assert all(answer["x"].base is None for answer in answers)
