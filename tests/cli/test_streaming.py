"""What `appliance stream` shows of its devices."""

from appliance.cli.streaming import in_time_of


def test_frames_that_a_plan_leaves_out_are_no_misses() -> None:
    """A camera of 15 frames a second that is planned with one of them sends every fifteenth, all of them in time."""
    assert in_time_of({"captured": 870, "sent": 58, "answered": 58}) == "100.0%"
    assert in_time_of({"captured": 870, "sent": 58, "answered": 29}) == "50.0%"
    assert in_time_of({"captured": 3, "sent": 0, "answered": 0}) == "–"
