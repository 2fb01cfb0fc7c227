"""One unit of accuracy, and the ways into it and out of it."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.accuracy import UNMEASURED_POINTS, points, share
from appliance.domain.catalogue import Accuracy
from tests.fakes.engine import make_variant


def test_accuracy_points_are_a_hundred_times_the_share() -> None:
    assert (points(0.902), share(90.2)) == (90.2, 0.902)
    assert (points(0.57), share(57.0)) == (57.0, 0.57)  # 100 * 0.57 is 56.99999999999999


@given(st.decimals(0, 1, places=6))
def test_accuracy_share_survives_conversion_to_points_and_back(value: object) -> None:
    """To the six digits that are measured."""
    written = float(str(value))
    assert share(points(written)) == written


def test_unmeasured_variant_counts_as_accurate_as_the_original() -> None:
    assert make_variant("t/m", "v").accuracy_points == UNMEASURED_POINTS == 100
    assert make_variant("t/m", "v", accuracy=71.8).accuracy_points == 71.8
    assert Accuracy(71.8, "top-1", "labels", 10).share == 0.718
