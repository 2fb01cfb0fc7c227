"""How much accuracy tracking loses: the rate is found beside a base that detectors have by themselves."""

from random import Random

import pytest

from appliance.policies.sending.drop import Drop, DropEstimate
from tests.present import present


def _estimated(base: float, rate: float, strides: list[int], noise: float = 0.0, outliers: int = 0) -> Drop:
    random, estimate = Random(1), DropEstimate()
    for at, stride in enumerate(strides):
        wild = 0.9 if outliers and at % outliers == 0 else 0.0
        estimate.observe(stride, wild or base + rate * stride + random.gauss(0.0, noise))
    fitted = present(estimate.fitted())
    return fitted


def test_drop_estimate_without_aged_results_is_none() -> None:
    """And a result for its own frame says nothing."""
    estimate = DropEstimate()
    estimate.observe(0, 0.5)
    assert estimate.fitted() is None


def test_drop_rate_of_the_papers_example_is_the_papers() -> None:
    """0.04 at an interval of 8 is 0.005 a frame, while all strides are alike (§4.3)."""
    assert _estimated(0.0, 0.005, [8] * 3).rate == pytest.approx(0.005)


def test_drop_rate_leaves_out_the_detectors_own_disagreement() -> None:
    """A detector that agrees with itself to 0.9 only: drop / stride would say 0.0175 at strides of 8."""
    drop = _estimated(0.1, 0.005, [8, 16] * 15, noise=0.01)
    assert drop.rate == pytest.approx(0.005, abs=0.0015)
    assert drop.base == pytest.approx(0.1, abs=0.02)
    assert drop.at(10) == pytest.approx(0.05, abs=0.015)


def test_drop_rate_ignores_single_bad_results() -> None:
    """A sixth of the results are nonsense."""
    assert _estimated(0.05, 0.01, [4, 8, 12] * 12, noise=0.005, outliers=6).rate == pytest.approx(0.01, abs=0.003)


def test_drop_rate_follows_the_newest_samples() -> None:
    """The content changes (AR-06)."""
    estimate = DropEstimate()
    for rate in (0.005, 0.02):
        for stride in [4, 8] * 20:
            estimate.observe(stride, 0.1 + rate * stride)
    fitted = present(estimate.fitted())
    assert fitted.rate == pytest.approx(0.02)
    assert fitted.base == pytest.approx(0.1)


def test_drop_base_stays_while_strides_are_alike() -> None:
    """Equal strides say nothing of it."""
    estimate = DropEstimate()
    for stride in [4, 8] * 20 + [8] * 40:
        estimate.observe(stride, 0.1 + 0.005 * stride)
        fitted = estimate.fitted()
    assert fitted is not None
    assert fitted.base == pytest.approx(0.1)
    assert fitted.rate == pytest.approx(0.005)


def test_drop_never_exceeds_1() -> None:
    """No stride loses more than all."""
    assert _estimated(0.0, 0.2, [8] * 2).at(100) == 1.0
