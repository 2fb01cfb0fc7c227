"""A given forecast says the first of its times after now."""

from appliance.lab.forecasts import Given
from appliance.policies.forecast.base import Prediction


def test_the_first_time_after_now_is_next() -> None:
    given = Given((10, 20, 30))
    assert [given.predict((), now) for now in (0, 9, 10, 29)] == [
        Prediction(10, 0),
        Prediction(10, 0),
        Prediction(20, 0),
        Prediction(30, 0),
    ]
    assert given.predict((1, 2), 30) is None


def test_what_came_early_is_not_expected_again() -> None:
    given = Given((10, 20, 30))
    assert given.predict((18,), 18) == Prediction(30, 0)
    assert given.predict((12,), 12) == Prediction(20, 0)
    assert given.predict((28,), 28) is None
