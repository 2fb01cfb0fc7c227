"""Where the stretches of a network run that is fixed to a processor: Figure 9 of the Band paper."""

import pytest

from reproduce.band.phone import CPU_ONLY, NPU, Phone, eagleeye
from reproduce.band.systems import System, bound

HOME = frozenset((NPU,))
FSRNET = Phone(eagleeye(0.2)).networks["FSRNet"]
"""The NPU lacks its second and its fourth stretch."""


@pytest.mark.parametrize(
    ("system", "home", "places"),
    [
        ("fixed", HOME, [HOME, CPU_ONLY, CPU_ONLY, CPU_ONLY, CPU_ONLY]),
        ("max partition", HOME, [HOME, CPU_ONLY, HOME, CPU_ONLY, HOME]),
        ("fixed", CPU_ONLY, [CPU_ONLY] * 5),
        ("max partition", CPU_ONLY, [CPU_ONLY] * 5),
    ],
)
def test_fixed_network_leaves_its_processor_at_a_fallback(
    system: System, home: frozenset[str], places: list[frozenset[str]]
) -> None:
    """For good as it is, and until the fallback is over with maximal partitions."""
    assert [one.processors for one in bound(FSRNET, home, system).stretches] == places
