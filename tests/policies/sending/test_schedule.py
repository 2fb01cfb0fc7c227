"""Which frames are due."""

from appliance.policies.sending.schedule import Orders, Schedule


def _due(orders: Orders, count: int, schedule: Schedule | None = None, first: int = 0) -> list[int]:
    schedule = schedule or Schedule()
    return [frame for frame in range(first, first + count) if schedule.is_due(frame, orders)]


def test_schedule_by_default_sends_every_frame() -> None:
    assert _due(Orders(), 5) == [0, 1, 2, 3, 4]


def test_schedule_sends_a_frame_per_interval() -> None:
    """Also where the rates do not divide: 15 of 60 and 10 of 25 frames a second."""
    assert _due(Orders(interval=4.0), 13) == [0, 4, 8, 12]
    assert _due(Orders(interval=2.5), 11) == [0, 3, 5, 8, 10]


def test_schedule_sends_named_frames_and_then_by_interval() -> None:
    """Between the named frames nothing is due."""
    assert _due(Orders(interval=5.0, frames=(2, 3, 9)), 20) == [2, 3, 9, 14, 19]


def test_schedule_under_a_new_plan_goes_on_from_the_last_frame() -> None:
    """No frame is due twice, none is left out."""
    schedule = Schedule()
    assert _due(Orders(interval=4.0), 6, schedule) == [0, 4]
    assert _due(Orders(interval=3.0), 9, schedule, first=6) == [8, 11, 14]


def test_schedule_after_a_camera_pause_makes_up_for_no_frames() -> None:
    """A camera that stood still: the next frame is due, and then a frame per interval."""
    schedule = Schedule()
    assert _due(Orders(interval=4.0), 1, schedule) == [0]
    assert _due(Orders(interval=4.0), 9, schedule, first=30) == [30, 34, 38]


def test_schedule_sends_the_next_frame_for_a_named_frame_that_never_came() -> None:
    """A camera slower than it said leaves numbers out; what was named before the last frame is past."""
    schedule, orders = Schedule(), Orders(interval=50.0, frames=(5, 12))
    assert [frame for frame in (0, 2, 4, 6, 8, 10, 11, 14, 16) if schedule.is_due(frame, orders)] == [6, 14]
    assert not schedule.is_due(18, Orders(interval=50.0, frames=(15, 30)))
    assert schedule.is_due(31, Orders(interval=50.0, frames=(15, 30)))
