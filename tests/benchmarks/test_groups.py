"""Which fixed maps our box is compared with."""

from benchmarks.groups import least_loaded


def test_least_loaded_maps_of_equal_cores_leave_out_mirror_images() -> None:
    """25 and 20 ms, two ways, then 28 and 17. The mirror image with less on the core that will be slowed is kept."""
    first, second, third = least_loaded([[5.0, 8.0, 12.0, 20.0]] * 2)
    assert {first, second} == {(0, 0, 0, 1), (0, 1, 1, 0)}
    assert third == (1, 0, 1, 0)


def test_least_loaded_map_of_unequal_cores_prefers_the_quick_core() -> None:
    """The longest on the quick core: 32 and 26 ms."""
    assert least_loaded([[5.0, 8.0, 12.0, 20.0], [10.0, 16.0, 24.0, 40.0]])[0] == (1, 1, 0, 0)
