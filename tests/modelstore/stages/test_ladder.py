"""Input sizes and names of variants."""

import pytest

from appliance.domain.catalogue import ImageSpec, Precision, TaskKind, TaskSpec, TensorSpec
from appliance.modelstore.orders import Size
from appliance.modelstore.stages.ladder import has_free_size, rungs, variant_name

PICTURE = {"x": ("batch", "channel", "height", "width")}
DETECTION = TaskSpec(TaskKind.OBJECT_DETECTION, image=ImageSpec())


def free(*shape: int, task: TaskSpec = DETECTION) -> bool:
    return has_free_size((TensorSpec("x", "FP32", shape),), PICTURE, task)


def test_size_ladder_is_only_for_picture_of_free_height_and_width() -> None:
    """Fixed sides, lines of text and plain tensors keep the size that they are given."""
    assert free(-1, 3, -1, -1)
    assert not free(-1, 3, 224, 224)
    assert not free(-1, 3, 48, -1)
    assert not free(-1, 3, -1, -1, task=TaskSpec())
    assert not free(-1, 3, -1, -1, task=TaskSpec(TaskKind.TEXT_RECOGNITION, image=ImageSpec(resize="keep-height")))
    two = (TensorSpec("x", "FP32", (-1, 3, -1, -1)), TensorSpec("y", "FP32", (-1, 3, -1, -1)))
    assert not has_free_size(two, PICTURE | {"y": PICTURE["x"]}, DETECTION)


@pytest.mark.parametrize(
    ("full", "multiple", "expected"),
    [
        (Size(416, 544), 32, [(416, 544), (320, 416), (192, 256)]),
        (Size(224, 224), 1, [(224, 224), (160, 160), (128, 128)]),
        (Size(100, 60), 1, [(100, 60), (76, 44), (48, 32)]),
        (Size(64, 64), 16, [(64, 64), (48, 48), (32, 32)]),
        (Size(64, 64), 32, [(64, 64), (32, 32)]),
        (Size(32, 32), 32, [(32, 32)]),
        (Size(129, 131), 1, [(129, 131), (97, 98), (64, 66)]),
    ],
)
def test_size_ladder_rungs_are_distinct_and_fit_network(
    full: Size, multiple: int, expected: list[tuple[int, int]]
) -> None:
    """Largest first, rounded to what the network needs, never below 32 pixels."""
    found = rungs(full, ImageSpec(multiple=multiple), 3)
    assert [(size.height, size.width) for size in found] == expected


def test_size_ladder_has_as_many_rungs_as_asked_for() -> None:
    assert len(rungs(Size(640, 640), None, 6)) == 6
    assert rungs(Size(640, 640), None, 1) == (Size(640, 640),)


def test_variant_names_say_precision_and_size() -> None:
    """The full size has the bare name."""
    full, half = Size(480, 640), Size(240, 320)
    assert variant_name(Precision.INT8, full, full) == "int8"
    assert variant_name(Precision.INT8, None, None) == "int8"
    assert variant_name(Precision.FP32, half, full) == "fp32-240x320"
