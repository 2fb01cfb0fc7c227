"""Where free axes end: what the task sends, what the tenant asks for, and what is cheap beyond."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from appliance.domain.catalogue import ImageSpec, Precision, Shapes, TaskKind, TaskSpec, TensorSpec, Variant
from appliance.domain.errors import BadMetadata
from appliance.modelstore.importing.growth import allowed, check_stated, growth
from appliance.modelstore.orders import Reviewed, Size

PICTURE = (TensorSpec("image", "FP32", (-1, 3, -1, -1)),)
PICTURE_AXES = {"image": ("batch", "channel", "height", "width")}
IDS = (TensorSpec("ids", "INT64", (-1, -1)), TensorSpec("mask", "INT64", (-1, -1)))
IDS_AXES = {"ids": ("batch", "sequence"), "mask": ("batch", "sequence")}
HARMLESS = Reviewed(())


def variant(inputs: tuple[TensorSpec, ...]) -> Variant:
    return Variant("t/m:v", "t/m", "v", Precision.FP32, "", 0, inputs, (), batch_max=8)


def test_measured_shapes_grow_to_full_size_and_then_in_items() -> None:
    """Each step is within the next, none more than doubles an axis, and the full size is needed."""
    base: Shapes = {"image": (1, 3, 32, 48)}
    plan = growth(base, variant(PICTURE), PICTURE_AXES, TaskSpec(), Size(96, 144), HARMLESS)
    shapes = [step["image"] for step in plan.steps]
    assert shapes == [
        (1, 3, 64, 96),
        (1, 3, 96, 144),
        (2, 3, 96, 144),
        (4, 3, 96, 144),
        (8, 3, 96, 144),
    ]
    assert plan.needed == 2
    assert plan.free is None, "so many sizes cannot all be run"


def test_measured_shapes_of_text_cover_what_task_sends() -> None:
    """What one request of the task may bring is needed, whatever it costs; ids and masks grow together."""
    task = TaskSpec(TaskKind.TEXT_EMBEDDING, params={"tokens_max": 300.0})
    base: Shapes = {"ids": (1, 128), "mask": (1, 128)}
    plan = growth(base, variant(IDS), IDS_AXES, task, None, HARMLESS)
    assert plan.steps[plan.needed - 1] == {"ids": (16, 300), "mask": (16, 300)}


def test_measured_shapes_of_text_lines_are_as_wide_as_task_sends() -> None:
    """The width of a line of text is free up to the task's own bound, rounded to the multiple."""
    task = TaskSpec(TaskKind.TEXT_RECOGNITION, image=ImageSpec(resize="keep-height", height=48, multiple=100))
    inputs = (TensorSpec("x", "FP32", (-1, 3, 48, -1)),)
    axes = {"x": ("batch", "channel", "height", "width")}
    plan = growth({"x": (1, 3, 48, 320)}, variant(inputs), axes, task, None, HARMLESS)
    assert plan.steps[plan.needed - 1]["x"] == (1, 3, 48, 2100)


def test_guarded_build_takes_several_items_whatever_the_cost() -> None:
    """Only a build that may be harmless gives up items to stay so."""
    base: Shapes = {"image": (1, 3, 32, 32)}
    reviewed = Reviewed(("Loop: it may run for ever",))
    plan = growth(base, variant(PICTURE), PICTURE_AXES, TaskSpec(), Size(32, 32), reviewed)
    assert plan.steps[plan.needed - 1] == {"image": (8, 3, 32, 32)}
    assert growth(base, variant(PICTURE), PICTURE_AXES, TaskSpec(), Size(32, 32), HARMLESS).needed == 0
    large = replace(variant(PICTURE), batch_max=128)
    plan = growth(base, large, PICTURE_AXES, TaskSpec(), Size(32, 32), reviewed)
    assert plan.steps[plan.needed - 1] == {"image": (8, 3, 32, 32)}, "more than usual are tried while they are cheap"
    assert {"image": (128, 3, 32, 32)} in plan.steps


def test_few_possible_shapes_may_all_be_run() -> None:
    """Where only the items are free; and where nothing is, there is one shape."""
    inputs = (TensorSpec("x", "FP32", (-1, 4)),)
    assert growth({"x": (1, 4)}, variant(inputs), {"x": ("batch", "")}, TaskSpec(), None, HARMLESS).free == {"x": (0,)}
    fixed = (TensorSpec("x", "FP32", (1, 4)),)
    plan = growth({"x": (1, 4)}, variant(fixed), {"x": ("batch", "")}, TaskSpec(), None, HARMLESS)
    assert (plan.steps, plan.free) == ((), {})


def test_stated_largest_shape_is_needed_and_bounds_others() -> None:
    """Asked for larger pictures: they are needed, and items are tried beyond. Asked for less: less is allowed."""
    task = TaskSpec(shape_max={"image": (None, None, 64, 64)})
    plan = growth({"image": (1, 3, 32, 32)}, variant(PICTURE), PICTURE_AXES, task, None, HARMLESS)
    assert plan.stated == plan.needed
    assert plan.steps[plan.needed - 1] == {"image": (1, 3, 64, 64)}
    assert plan.steps[-1] == {"image": (8, 3, 64, 64)}
    assert allowed({"image": (8, 3, 128, 128)}, task) == {"image": (8, 3, 64, 64)}


@pytest.mark.parametrize("stated", [{"x": (1, 3, 64, 64)}, {"image": (1, 4, 64, 64)}, {"image": (1, 3)}])
def test_stated_largest_shape_that_does_not_fit_graph_is_refused(stated: dict[str, tuple[int | None, ...]]) -> None:
    """An input that is not there, a dimension that the graph fixes, another rank."""
    with pytest.raises(BadMetadata, match="shape_max"):
        check_stated(TaskSpec(shape_max=stated), PICTURE)
    check_stated(TaskSpec(shape_max={"image": (None, 3, 64, None)}), PICTURE)


def test_stated_largest_shape_below_sound_chunk_is_refused() -> None:
    """512 samples behind 64: a largest shape below that would refuse every request."""
    sound = (TensorSpec("input", "FP32", (-1, -1)),)
    axes = {"input": ("batch", "sequence")}
    base: Shapes = {"input": (1, 512)}
    for size, is_enough in ((575, False), (576, True)):
        task = TaskSpec(TaskKind.VOICE_ACTIVITY, shape_max={"input": (1, size)})
        with nullcontext() if is_enough else pytest.raises(BadMetadata, match="is 575, and the task sends 576"):
            growth(base, variant(sound), axes, task, None, HARMLESS)
