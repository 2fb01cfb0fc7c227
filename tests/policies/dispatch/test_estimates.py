"""Parts that were not measured are estimated from the one that was."""

import pytest

from appliance.policies.dispatch.estimates import ACCELERATOR_PER_BYTE, CPU_PER_BYTE, Work, estimated_ms

LARGEST, PART = Work(1_000_000, 500), Work(400_000, 300)


@pytest.mark.parametrize(("per_byte", "expected_ms"), [(ACCELERATOR_PER_BYTE, 4.6667), (CPU_PER_BYTE, 4.01)])
def test_unmeasured_part_is_estimated_by_operations_and_bytes(per_byte: float, expected_ms: float) -> None:
    """Derived from Band §4.3.2: 10 ms of the largest."""
    assert estimated_ms(PART, LARGEST, 10.0, per_byte) == pytest.approx(expected_ms, rel=1e-3)


def test_estimate_of_the_measured_part_is_its_measurement() -> None:
    assert estimated_ms(LARGEST, LARGEST, 10.0, CPU_PER_BYTE) == 10.0
    assert estimated_ms(Work(0.0, 0), Work(0.0, 0), 10.0, CPU_PER_BYTE) == 0.0
