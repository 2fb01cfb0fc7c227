"""Classes of the sizes that inputs have."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.profiles import SeenRuns, largest_of, shape_of, size_class


@given(st.integers(0, 10**9))
def test_size_class_spans_sizes_within_a_factor_of_1_5(elements: int) -> None:
    """Classes grow with the size."""
    size = size_class(elements)
    assert size <= size_class(elements + 1)
    if elements > 1:
        assert size_class(elements + elements // 2 + 1) > size
    assert elements <= largest_of(size)
    assert size_class(largest_of(size)) == size
    assert size_class(largest_of(size) + 1) > size


@given(st.integers(1, 10**9), st.sampled_from(["", "240x320"]))
def test_run_shape_states_the_largest_input_of_its_size_class(elements: int, rung: str) -> None:
    """With a rung or without; a shape without a size class has the inputs of the import."""
    shape = shape_of(rung, size_class(elements))
    assert SeenRuns("b@cpu", shape, "f", ()).elements_max == largest_of(size_class(elements))
    assert SeenRuns("b@cpu", rung, "f", ()).elements_max is None


def test_run_shape_names_processor_unless_measured_at_import() -> None:
    """Where the import measured on that processor, the shape names none."""
    assert SeenRuns("b", shape_of("240x320", 3, "gpu"), "f", ()).processor == "gpu"
    assert SeenRuns("b", shape_of("240x320", 3), "f", ()).processor == ""
