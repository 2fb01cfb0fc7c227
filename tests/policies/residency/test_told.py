"""Changes of residency in words."""

import pytest

from appliance.policies.residency.base import Change


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, "fp32", "harbour/door comes into memory as fp32"),
        ("fp32", "int8", "harbour/door goes from fp32 to int8"),
        ("int8", None, "harbour/door leaves memory"),
    ],
)
def test_change_of_residency_is_told_as_a_sentence(before: str | None, after: str | None, told: str) -> None:
    assert Change("harbour/door", before, after).told == told
