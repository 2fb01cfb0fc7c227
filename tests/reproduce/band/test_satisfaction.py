"""The best share in time: by what processors can do, by when requests come, and never less than a schedule reaches."""

import pytest

from reproduce.band.bounds import Application, satisfaction_bound
from reproduce.band.experiments import _calls, _periodic, _served
from reproduce.band.phone import FITTED, Phone, deepeye


def test_satisfaction_bound_is_limited_by_processor_time() -> None:
    """Two applications that take a whole period each: one processor answers half of them, two all."""
    one = [Application(0.0, 100.0, {"a": 10.0})] * 2
    assert satisfaction_bound(one, 10.0) == pytest.approx(0.5)
    assert satisfaction_bound([one[0], Application(0.0, 100.0, {"a": 10.0, "b": 10.0})], 10.0) == pytest.approx(1)


def test_satisfaction_bound_counts_simultaneous_requests_within_their_slo() -> None:
    """A period has time for both, but not while both could still be in time; half a period apart it has."""
    assert satisfaction_bound([Application(0.0, 8.0, {"a": 6.0})] * 2, 20.0) == pytest.approx(0.5)
    apart = [Application(phase_ms, 8.0, {"a": 6.0}) for phase_ms in (0.0, 10.0)]
    assert satisfaction_bound(apart, 20.0) == pytest.approx(1)


def test_satisfaction_bound_of_a_run_longer_than_its_slo_is_zero() -> None:
    assert satisfaction_bound([Application(3.0, 5.0, {"a": 5.5})], 10.0) == 0
    assert satisfaction_bound([Application(3.0, 5.0, {"a": 5.0})], 10.0) == pytest.approx(1)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("multiplier", [1.0, 2.0])
def test_satisfaction_bound_is_above_the_simulated_schedule(together: bool, multiplier: float) -> None:
    phone = Phone(deepeye(), FITTED)
    calls = [call for call in _calls(phone, multiplier, 5, together=together) if call.at_ms < 2000]
    assert _served(phone, calls, 5) <= satisfaction_bound(_periodic(phone, calls), 1000 / 30) + 1e-9
