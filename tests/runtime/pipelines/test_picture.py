"""What counts as a change of what a pipeline was planned by."""

from dataclasses import replace

from appliance.domain.pipeline import Ask, Pipeline
from appliance.runtime.pipelines.picture import Seen

SIGNS = Pipeline("t/signs", "t", "signs", 600.0, (Ask(name="read", application_id="t/read"),))
BEFORE = Seen(SIGNS, (None,), (), 4.0, {"read": 1.0}, {"read": 1.0}, 0.35, {"read": ("int8",)})


def test_a_single_frame_is_none() -> None:
    """It moves the items of eight by just as much as their error; two frames move them by more (SC-18)."""
    assert replace(BEFORE, items={"read": 1.875}, items_error={"read": 0.875}).change_since(BEFORE) == ""
    two = replace(BEFORE, items={"read": 2.75}, items_error={"read": 1.3093})
    assert two.change_since(BEFORE) == "items of a frame at read: 1 before, 2.75 now"


def test_frames_that_are_alike_have_no_error() -> None:
    assert replace(BEFORE, items={"read": 1.3}).change_since(BEFORE) == ""
    assert "items of a frame at read" in replace(BEFORE, items={"read": 1.4}).change_since(BEFORE)


def test_what_nobody_uses_is_not_planned_for_what_it_would_take() -> None:
    """Runs have become slower: where no frames come, and none came, there is nothing to plan."""
    unused = replace(BEFORE, fps=0.0)
    assert replace(unused, ballooning={"read": 2.0}, items={"read": 9.0}).change_since(unused) == ""
    assert unused.change_since(BEFORE) == "frames a second: 4 before, 0 now"
    assert BEFORE.change_since(unused) == "frames a second: 0 before, 4 now"
