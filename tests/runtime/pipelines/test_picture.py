"""What counts as a change of what a pipeline was planned by."""

from dataclasses import replace

from appliance.domain.pipeline import Ask, Pipeline
from appliance.runtime.pipelines.picture import Seen

SIGNS = Pipeline("t/signs", "t", "signs", 600.0, (Ask(name="read", application_id="t/read"),))
BEFORE = Seen(SIGNS, (None,), (), 4.0, {"read": 1.0}, {"read": 1.0}, 0.35, {"read": ("int8",)})


def test_single_frame_is_no_change_of_items_per_frame() -> None:
    """It moves the mean of eight frames by just as much as the error; two frames move it by more (SC-18)."""
    assert replace(BEFORE, items={"read": 1.875}, items_error={"read": 0.875}).change_since(BEFORE) == ""
    two = replace(BEFORE, items={"read": 2.75}, items_error={"read": 1.3093})
    assert two.change_since(BEFORE) == "items of a frame at read: 1 before, 2.75 now"


def test_items_of_frames_that_are_alike_have_no_error() -> None:
    assert replace(BEFORE, items={"read": 1.3}).change_since(BEFORE) == ""
    assert "items of a frame at read" in replace(BEFORE, items={"read": 1.4}).change_since(BEFORE)


def test_unused_pipeline_is_not_planned_anew_for_slower_runs() -> None:
    """No frames come and none came: there is nothing to plan."""
    unused = replace(BEFORE, fps=0.0)
    assert replace(unused, ballooning={"read": 2.0}, items={"read": 9.0}).change_since(unused) == ""
    assert unused.change_since(BEFORE) == "frames a second: 4 before, 0 now"
    assert BEFORE.change_since(unused) == "frames a second: 0 before, 4 now"
