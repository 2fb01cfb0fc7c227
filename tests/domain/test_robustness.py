"""Every figure as computed by hand."""

import pytest

from appliance.domain.robustness import Served, fairness, robustness, served

DOOR = served({"large": (3, 1), "small": (1, 0), "": (0, 0)}, 8, {"large": 90.0, "small": 70.0})
"""8 requests: 4 of `large` (1 cold), 1 of `small`, 3 without an answer."""


def test_served_application_has_shares_of_all_requests() -> None:
    assert (DOOR.requests, DOOR.warm, DOOR.cold) == (8, 4, 1)
    assert (DOOR.warm_share, DOOR.cold_share) == (0.5, 0.125)


def test_served_accuracy_counts_cold_answers_with_the_variant_loaded() -> None:
    """(4 x 90 + 70) / 5 = 86, which is 16 of the 20 points between the two variants."""
    assert DOOR.accuracy == pytest.approx(0.86)
    assert DOOR.normalised == pytest.approx(0.8)
    assert DOOR.robustness == pytest.approx(0.5 * 0.86)


def test_served_application_with_one_accuracy_is_normalised_to_one() -> None:
    assert served({"only": (1, 1)}, 2, {"only": 80.0}).normalised == 1.0


def test_served_variant_of_unknown_accuracy_counts_as_start_alone() -> None:
    gone = served({"gone": (2, 0), "small": (1, 1)}, 4, {"small": 70.0, "large": 90.0})
    assert (gone.warm, gone.answered) == (3, 2)
    assert gone.accuracy == pytest.approx(0.7)
    assert gone.normalised == 0.0


def test_served_application_without_requests_has_no_figures() -> None:
    idle = served({}, 0, {})
    assert (idle.warm_share, idle.cold_share, idle.accuracy, idle.normalised, idle.robustness) == (None,) * 5
    assert robustness([idle]) is None
    assert fairness([idle]) is None


def test_served_application_without_answers_counts_as_no_robustness() -> None:
    assert Served(2, 0, 0, 0, 0.0).robustness == 0.0
    assert fairness([Served(2, 0, 0, 0, 0.0)]) is None


def test_robustness_is_the_mean_over_applications_with_requests() -> None:
    """(0.5 x 0.86 + 1 x 0.6) / 2."""
    shed = served({"only": (2, 0)}, 2, {"only": 60.0})
    assert robustness([DOOR, shed, served({}, 0, {})]) == pytest.approx(0.515)


def test_fairness_is_jains_index_of_warm_shares() -> None:
    """(0.5 + 1)^2 / (2 x (0.25 + 1)) = 0.9."""
    shed = served({"only": (2, 0)}, 2, {"only": 60.0})
    assert fairness([DOOR, shed, served({}, 0, {})]) == pytest.approx(0.9)
    assert fairness([shed, shed]) == 1.0
