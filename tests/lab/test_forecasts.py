"""A given forecast is answered one by one, and a late request stays expected."""

from appliance.lab.forecasts import Given
from appliance.policies.forecast.base import Prediction


def test_given_forecast_is_used_up_in_order() -> None:
    """An early request is not expected again; a late one does not use up the time after it, though that is nearer.
    After the last nothing is expected."""
    given = Given((10, 20, 30), (18, 19, 31))
    assert given.predict((), 0) == Prediction(10, 0, (20, 30))
    assert given.predict((18,), 18) == Prediction(20, 0, (30,))
    assert given.predict((18, 19), 19) == Prediction(30, 0)
    last = given.predict((18, 19, 31), 31)
    assert last is not None
    assert last.next_ns > 10**15


def test_late_request_is_expected_as_late_again_and_lapses_at_last() -> None:
    """As long again from now as the request is late, one mean gap at most; out of reach (three of them) it lapses for
    the next time."""
    given = Given((10, 20, 100), (16,))
    assert given.predict((), 14) == Prediction(18, 0, (20, 100))
    assert given.predict((), 80) == Prediction(125, 0, (20, 100))
    assert given.predict((16,), 16) == Prediction(20, 0, (100,))
    assert given.predict((16,), 160) == Prediction(205, 0, (100,))


def test_request_far_before_its_time_uses_up_no_forecast() -> None:
    given = Given((1000, 1010, 1020), (3, 1001))
    assert given.predict((3,), 3) == Prediction(1000, 0, (1010, 1020))
    assert given.predict((3, 1001), 1001) == Prediction(1010, 0, (1020,))


def test_given_forecast_does_not_look_at_later_requests() -> None:
    """The same history gives the same prediction, whatever comes after it."""
    assert Given((10, 20), (5, 6, 7)).predict((5,), 5) == Given((10, 20), (5, 19)).predict((5,), 5) == Prediction(20, 0)
