"""Classes of the sizes that inputs have."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.profiles import SeenRuns, largest_of, shape_of, size_class


@given(st.integers(0, 10**9))
def test_classes_of_sizes(elements: int) -> None:
    """They grow with the size, and within one no size is more than one and a half times another."""
    size = size_class(elements)
    assert size <= size_class(elements + 1)
    if elements > 1:
        assert size_class(elements + elements // 2 + 1) > size
    assert elements <= largest_of(size)
    assert size_class(largest_of(size)) == size
    assert size_class(largest_of(size) + 1) > size


@given(st.integers(1, 10**9), st.sampled_from(["", "240x320"]))
def test_a_shape_says_how_large_its_inputs_are(elements: int, rung: str) -> None:
    """With a rung or without; without a class they are those of the import."""
    shape = shape_of(rung, size_class(elements))
    assert SeenRuns("b@cpu", shape, "f", ()).elements_max == largest_of(size_class(elements))
    assert SeenRuns("b@cpu", rung, "f", ()).elements_max is None


def test_a_shape_names_the_processor_where_the_import_measured_on_another() -> None:
    """Where it measured on that processor, the shape names none."""
    assert SeenRuns("b", shape_of("240x320", 3, "gpu"), "f", ()).processor == "gpu"
    assert SeenRuns("b", shape_of("240x320", 3), "f", ()).processor == ""
